"""The page on running the drain: its command lines, unit, probe and images do what they say."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

from django_recheck import store
from tests.test_docs import DOCS, blocks
from tests.watch.process import Run, noted
from tests.watch.watching import until

PAGE = DOCS / "howto/running.md"

pytestmark = pytest.mark.django_db(transaction=True)


def block(language: str) -> str:
    """Return the only block in a language."""
    (text,) = blocks(PAGE, language)
    return text


def unit() -> dict[str, str]:
    """Return the settings of the systemd unit."""
    return dict(re.findall(r"^(\w+)=(.*)$", block("ini"), re.MULTILINE))


def lines() -> dict[str, list[str]]:
    """Return the words behind ``manage.py`` of every command line that the page shows."""
    crons = [line.split("&& ", 1)[1] for text in blocks(PAGE, "text") for line in text.splitlines()]
    (image,) = re.findall(r"^CMD (.*)$", block("dockerfile"), re.MULTILINE)
    (pod,) = re.findall(r"^ +command: (\[python.*\])$", block("yaml"), re.MULTILINE)
    found = {
        "cron": shlex.split(crons[0]),
        "alert": shlex.split(crons[1].partition(">")[0]),
        "systemd": shlex.split(unit()["ExecStart"]),
        "docker": json.loads(image),
        "kubernetes": [word.strip(" \"'") for word in pod.strip("[]").split(",")],
        "development": block("console").removeprefix("$ ").split(),
    }
    return {name: words[words.index("manage.py") + 1 :] for name, words in found.items()}


@pytest.mark.parametrize(
    "name", ["cron", "alert", "systemd", "docker", "kubernetes", "development"]
)
def test_each_command_line_is_one_that_the_commands_take(name: str) -> None:
    command, *words = lines()[name]
    parser = load_command_class(get_commands()[command], command)
    parser.create_parser("manage.py", command).parse_args(words)


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Run]:
    """A process with a command line of the page."""
    path = tmp_path / "recheck"
    words = [word.replace("/tmp/recheck", str(path)) for word in lines()[request.param][1:]]
    run = Run(tmp_path, *words)
    yield run
    run.close()


@pytest.mark.parametrize("run", ["cron"], indirect=True)
def test_crons_line_says_nothing_if_all_is_well(run: Run) -> None:
    assert run.ended() == ("", "", 0)


@pytest.mark.parametrize("run", ["systemd", "docker", "kubernetes"], indirect=True)
def test_watches_work_and_end_as_their_keepers_want_it(run: Run) -> None:
    until(store.current().last_drain)
    noted().recheck_many(["a"])
    run.until("ran-a")
    run.send(signal.SIGTERM)
    assert run.ended()[2] == 0


def probes() -> list[str]:
    """Return the shell's lines of the probes."""
    (image,) = re.findall(r"^HEALTHCHECK .* CMD (.*)$", block("dockerfile"), re.MULTILINE)
    (pod,) = re.findall(r"command: \[sh, -c, '(.*)'\]$", block("yaml"), re.MULTILINE)
    return [image, pod]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("run", ["kubernetes"], indirect=True)
def test_the_probe_tells_a_watch_that_looks_from_one_that_doesnt(run: Run, number: int) -> None:
    path = run.folder / "recheck"
    probe = probes()[number].replace("/tmp/recheck", str(path))

    def well() -> bool:
        return subprocess.run(["sh", "-c", probe], stderr=subprocess.DEVNULL).returncode == 0

    until(store.current().last_drain)
    assert well()
    run.send(signal.SIGTERM)
    run.ended()
    an_age_ago = path.stat().st_mtime - 150
    os.utime(path, (an_age_ago, an_age_ago))
    assert not well()
    path.unlink()
    assert not well()


def test_systemd_knows_what_the_unit_says(tmp_path: Path) -> None:
    """With the real one where there is one; without it, the names at least."""
    told = unit()
    assert (told["RestartPreventExitStatus"], told["Restart"]) == ("2", "on-failure")
    tool = shutil.which("systemd-analyze")
    if tool is None:
        return
    path = tmp_path / "shop-recheck.service"
    here = told["ExecStart"].split()[0]
    text = block("ini").replace(here, sys.executable).replace("User=shop\n", "")
    path.write_text(text.replace("WorkingDirectory=/srv/shop", f"WorkingDirectory={tmp_path}"))
    done = subprocess.run([tool, "verify", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
