"""Suites of projects, run as they run them: pytest and Django's runner, in parallel processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import unittest
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.db.models.signals import post_save

from tests.servers import of_the_run

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/howto/testing.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
SITES = {b"suite:recheck:meta", b"a site's own"}
"""Keys that are there before, and must be there afterwards."""


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    """A Redis that a site uses, too."""
    with redis.Redis(port=of_the_run().port, db=9) as client:
        client.flushdb()
        for key in SITES:
            client.hset(key, "a", "b")
        yield client
        client.flushdb()


def run(folder: Path, *command: str, settings: str = "tests.suite.settings") -> str:
    """Run a suite, and return what it said."""
    (folder / "meeting").mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": settings,
        "PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT, ROOT / "testproject"))),
        "RECHECK_TEST_REDIS_URL": f"redis://127.0.0.1:{of_the_run().port}/9",
        "RECHECK_TEST_FOLDER": str(folder),
        "SUITE_MEETING": str(folder / "meeting"),
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
    }
    for name in [name for name in environment if name.startswith("PYTEST_XDIST")]:
        del environment[name]
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    return done.stdout


def test_pytests_processes_dont_meet_and_broken_receivers_are_found_out(
    tmp_path: Path, client: redis.Redis
) -> None:
    suite = [f"tests/suite/{name}_style.py" for name in ("pytest", "unittest")]
    said = run(tmp_path, "pytest", "-c", "tests/suite/pytest.ini", "-n2", "--dist=loadfile", *suite)
    failed = Counter(re.findall(r"^FAILED \S+::(\w+)", said, re.M))
    assert failed == {"test_broken_remember": 3, "test_broken_add_up": 2}, said
    assert re.search(r"\b5 failed, 16 passed\b", said), said
    assert set(client.keys()) == SITES


def test_djangos_processes_dont_meet(tmp_path: Path, client: redis.Redis) -> None:
    suite = ("tests.suite", "--pattern=unittest_style.py", "--exclude-tag=broken")
    said = run(tmp_path, "django", "test", *suite, "--parallel=2")
    assert re.search(r"^Ran 11 tests in .*\n\nOK$", said, re.M), said
    assert set(client.keys()) == SITES


def write(folder: Path) -> list[str]:
    """Write the files that the how-to page shows; return the names of the tests among them."""
    (folder / "settings_for_tests.py").write_text("from tests.suite.settings import *\n")
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    for block in BLOCKS:
        if found := re.match(r"# (\w+\.py)(?:, at its end)?\n", block):
            with (folder / found[1]).open("a") as file:
                file.write(block[found.end() :])
    return sorted(path.name for path in folder.glob("test_*.py"))


def test_the_how_to_pages_tests_pass(tmp_path: Path, client: redis.Redis) -> None:
    names = write(tmp_path)
    assert "test_orders.py" in names
    files = [str(tmp_path / name) for name in names]
    said = run(tmp_path, "pytest", "-n2", *files, settings="settings_for_tests")
    assert re.search(rf"\b{len(names)} passed in", said), said
    django = ("django", "test", str(tmp_path), "--parallel=2")
    said = run(tmp_path, *django, "--pattern=test_[!df]*.py", settings="settings_for_tests")
    assert re.search(r"^Ran 3 tests in .*\n\nOK$", said, re.M), said
    assert set(client.keys()) == SITES


@pytest.mark.django_db
def test_the_how_to_pages_bad_receiver_is_found_out() -> None:
    (broken,) = (block for block in BLOCKS if block.startswith("seen = {}"))
    (proof,) = (block for block in BLOCKS if block.startswith("# test_orders.py"))
    post_save.receivers[:] = []
    post_save.sender_receivers_cache.clear()
    names: dict[str, Any] = {"__name__": "shop.broken"}
    exec("from django.db.models.signals import post_save", names)
    exec("from django.dispatch import receiver", names)
    exec("from django_recheck import recheck", names)
    exec(proof.replace("from shop.receivers import refresh_order_total", broken), names)
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(names["OrderTotalTests"]).run(result)
    ((_, why),) = result.failures
    assert "AssertionError: Decimal('2.00') != 532" in why
