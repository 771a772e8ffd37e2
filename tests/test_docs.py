"""What README and docs say is true: their code runs, and their tables are the code's."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import redis
from django.db.models.signals import post_delete, post_save
from django.dispatch import Signal
from shop.models import Customer, Order, OrderLine, Product

import django_recheck
from django_recheck import Outcome, Pass, conf, receivers, recheck, signals, testing
from django_recheck.testing import drain, event_during_pass, recorded
from tests.servers import of_the_run

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SETTINGS_PAGE = DOCS / "reference/settings.md"
API_PAGE = DOCS / "reference/api.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def text_of(path: Path) -> str:
    return path.read_text("utf-8")


def blocks(path: Path, *languages: str) -> list[str]:
    """Return the fenced blocks of a page that are in one of the languages."""
    return [text for language, text in FENCE.findall(text_of(path)) if language in languages]


def section(path: Path, title: str) -> str:
    """Return what stands under a heading, up to the next one of its level."""
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^\1 |\Z)", text_of(path), re.M | re.S)
    assert found, f"{path.name} has no heading {title!r}"
    return found[2]


def rows(text: str) -> list[list[str]]:
    """Return the cells of all table rows, without heads and rules."""
    lines = [line.strip().strip("|") for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in lines]


PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_compile(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block, page.name, "exec")


# README


def test_the_readme_is_short() -> None:
    assert len(text_of(ROOT / "README.md").splitlines()) <= 90


@pytest.mark.parametrize(
    ("title", "extra", "last"),
    [
        ("See it work", "demo", "testproject/manage.py demo"),
        ("Run the tests", "dev", "-m pytest"),
    ],
)
def test_the_readmes_commands_do_all_their_own_set_up(title: str, extra: str, last: str) -> None:
    found = FENCE.findall(section(ROOT / "README.md", title))
    assert [language for language, _ in found] == ["sh"]
    (command,) = found[0][1].splitlines()
    first, install, run = command.split(" && ")
    assert first == "python3 -m venv .venv"
    assert install == f".venv/bin/python -m pip install -q -e '.[{extra}]'"
    assert run == f".venv/bin/python {last}"


@pytest.fixture
def alone() -> None:
    """Take the shop's own receivers away; what every test changes there is put back after it."""
    receivers.registry.clear()
    for signal in (post_save, post_delete):
        signal.receivers[:] = []
        signal.sender_receivers_cache.clear()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("alone")
def test_the_readmes_receiver_keeps_a_total() -> None:
    (settings_block, receiver_block) = blocks(ROOT / "README.md", "python")
    assert "RECHECK" in settings_block
    assert '"SOCKET_TIMEOUT"' in settings_block
    exec(compile(receiver_block, "README.md", "exec"), {"__name__": "shop.example"})
    order = Order.objects.create(customer=Customer.objects.create(name="a"))
    product = Product.objects.create(name="tea", price=7)
    lines = [OrderLine.objects.create(order=order, product=product, price=n) for n in (1, 2, 4)]
    order.refresh_from_db()
    assert order.total == 7
    lines[0].delete()
    order.refresh_from_db()
    assert order.total == 6


# The tutorial


class Reader:
    """Somebody who follows the tutorial to the letter, in an empty folder.

    Args:
        folder: The empty folder.
        redis_url: The server that stands for the one on port 6379.
    """

    def __init__(self, folder: Path, redis_url: str) -> None:
        self.folder = folder
        self.redis_url = redis_url
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self.environment.pop("DJANGO_SETTINGS_MODULE", None)
        self.said = ""
        """What the last command wrote to the standard error."""

    def write(self, block: str) -> None:
        """Write a file whose name is the block's first line."""
        head, _, rest = block.partition("\n")
        name, _, at_the_end = head.removeprefix("# ").partition(", ")
        path = self.folder / name
        before = text_of(path) if at_the_end else ""
        address = "redis://localhost:6379/1"
        path.write_text(before + rest.replace(address, self.redis_url), "utf-8")

    def type(self, line: str) -> tuple[str, int]:
        """Run a command line; return what it wrote and its exit code."""
        line = re.sub(r"^django-admin ", "python -m django ", line)
        line = re.sub(r"(?<!\S)python ", f"{sys.executable} ", line)
        done = subprocess.run(
            line,
            shell=True,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.said = done.stderr
        return done.stdout, done.returncode

    def follow(self, page: Path) -> Iterator[tuple[str, str, str, int]]:
        """Yield each command with the output that the page shows, the real one and its code."""
        for language, block in FENCE.findall(text_of(page)):
            if language == "python":
                self.write(block)
            elif language == "console":
                for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M):
                    yield command, shown, *self.type(command)


@pytest.fixture
def own_database() -> Iterator[str]:
    """Give a database of the run's server that nobody else uses."""
    url = f"redis://127.0.0.1:{of_the_run().port}/7"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
        yield url
        client.flushdb()


def crowded(output: str) -> tuple[int, str]:
    """Return the number of events that passes covered, and the last line."""
    *passes, last = output.splitlines()
    assert 2 <= len(passes) < 8, output
    assert all(re.fullmatch(r"order 1, pass \d, \d event\(s\)", line) for line in passes), output
    return sum(int(line.split()[-2]) for line in passes), last


def test_the_tutorial_followed_to_the_letter(tmp_path: Path, own_database: str) -> None:
    reader = Reader(tmp_path, own_database)
    codes = {}
    for command, shown, output, code in reader.follow(DOCS / "tutorial.md"):
        codes[command] = code
        if command == "python crowd.py":  # how many of them coalesce is the machine's affair
            assert crowded(output) == crowded(shown)
        elif shown:
            assert output == shown, (command, reader.said)
        if command == "python mistake.py":
            assert "order-total 1: the receiver failed, attempt 1" in reader.said
            assert "ValueError: a price is negative" in reader.said
    failed = {command for command, code in codes.items() if code}
    assert failed == {"sleep 1; python manage.py recheck_run"}
    assert codes["sleep 1; python manage.py recheck_run"] == 1
    with redis.Redis.from_url(own_database, decode_responses=True) as client:
        assert set(client.keys()) == {"recheck:meta", "{recheck:0}:fence", "{recheck:0}:minutes"}


# Reference


def test_the_settings_page_has_each_setting_and_its_default() -> None:
    told = {cells[0].strip("`"): cells for cells in rows(section(SETTINGS_PAGE, "All settings"))}
    assert list(told) == list(conf.SETTINGS)
    for name, setting in conf.SETTINGS.items():
        default = ast.literal_eval(told[name][1].strip("`"))
        assert (default, type(default)) == (setting.default, type(setting.default)), name
        where = ["decorator"] * setting.option + ["RECEIVERS"] * setting.tunable
        assert told[name][3] == ", ".join(["RECHECK", *where]), name


@pytest.mark.parametrize("value", ["celery", "tasks", "shop.dispatch.Mine"])
def test_the_settings_page_says_what_isnt_there_yet(value: str) -> None:
    lacking = section(SETTINGS_PAGE, "What this version doesn't have")
    assert f'`"{value}"`' in lacking
    problem = conf.SETTINGS["DISPATCH"].problem(value)
    assert problem is not None
    assert "this version has no other way to dispatch" in problem


def test_the_api_page_names_all_that_is_public() -> None:
    text = text_of(API_PAGE)
    for name in django_recheck.__all__:
        assert re.search(rf"`{name}\b", text), name


def test_the_api_page_has_each_name_for_tests() -> None:
    told = [cells[0].strip("`") for cells in rows(section(API_PAGE, "Tests of your own"))]
    names = [name.partition("(")[0] for name in told]
    assert sorted(names) == testing.__all__
    for name in (drain, event_during_pass, recorded):
        written = told[names.index(name.__name__)].partition("(")[2].rstrip(")").split(", ")
        plain = [p.partition("=")[0] for p in written if p != "*"]
        assert plain == list(inspect.signature(name).parameters)
    text = section(API_PAGE, "Tests of your own")
    assert all(f"`{field.name}`" in text for field in fields(testing.Recorded))


def test_the_api_page_has_each_option_of_the_decorator() -> None:
    own = [
        p.name for p in inspect.signature(recheck).parameters.values() if p.kind is p.KEYWORD_ONLY
    ]
    settings = [name.lower() for name, setting in conf.SETTINGS.items() if setting.option]
    told = [cells[0] for cells in rows(section(API_PAGE, "`recheck`"))]
    assert re.findall(r"\w+", " ".join(told)) == own + settings


def test_the_api_page_has_each_attribute_of_a_pass() -> None:
    told = [cells[0].strip("`()") for cells in rows(section(API_PAGE, "`Pass`"))]
    asked_for = re.findall(r"^    +(\w+): ", inspect.getdoc(Pass) or "", re.MULTILINE)
    assert told == [*asked_for, "deadline", "lost", "ensure_held"]
    assert all(hasattr(Pass, name) for name in ("deadline", "lost", "ensure_held"))


def test_the_api_page_has_each_outcome_in_order() -> None:
    told = [cells[0].strip("`") for cells in rows(section(API_PAGE, "`Outcome`"))]
    assert told == [outcome.name for outcome in Outcome]


def test_the_api_page_has_each_signal() -> None:
    told = [cells[0].strip("`") for cells in rows(section(API_PAGE, "Signals"))]
    assert told == [name for name, value in vars(signals).items() if isinstance(value, Signal)]


def test_the_changelog_begins_with_this_version() -> None:
    version = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]["version"]
    titles = re.findall(r"^## (\S+?),? ", text_of(DOCS / "changelog.md"), re.MULTILINE)
    assert titles[0] == version


# The tree


MACHINE = "|".join(
    ("/(opt|root|work|home|Users|mnt)/", "py" + "pi", "python" + "hosted", "index-" + "url")
)
"""Folders of somebody's machine, and the hosts that packages come from."""


def files_of_the_tree(folder: Path) -> Iterator[Path]:
    """Yield the project's own files: no environments, no caches, nothing that was built."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or path.name.startswith(".coverage"):
            continue
        if path.is_file():
            yield path
        elif path.name == ".ci" or not (
            path.name.startswith((".", "__pycache__", "_build"))
            or path.name.endswith(".egg-info")
            or path.name in ("build", "dist", "var")
            or (path / "pyvenv.cfg").exists()
        ):
            yield from files_of_the_tree(path)


def test_no_file_names_a_machine_or_a_registry() -> None:
    paths = list(files_of_the_tree(ROOT))
    assert ROOT / ".ci/run" in paths
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in paths
        for line in path.read_text("utf-8", "replace").splitlines()
        if re.search(MACHINE, line, re.IGNORECASE)
    ]
    assert found == []
