"""C57: the processes of this suite don't meet, and nobody is told to empty a database.

Each process has a server that it has started itself, and a prefix. Where a test empties one, that
stands for a Redis that has lost everything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import of_the_run
from tests.test_docs import PAGES, ROOT, blocks

NOTE = """
import os, pathlib, time
import pytest
from django_recheck import store

@pytest.mark.parametrize("number", [1, 2])
def test_note(number, worker_id):
    current = store.current()
    current.client.set(current.meta + ":mine", worker_id)
    folder = pathlib.Path(os.environ["NOTES"])
    (folder / worker_id).write_text(f"{os.environ['RECHECK_TEST_REDIS_URL']} {current.meta}")
    until = time.monotonic() + 60
    while not all((folder / other).exists() for other in ("gw0", "gw1")):
        assert time.monotonic() < until
        time.sleep(0.01)
    current.client.flushall()
    (folder / f"{worker_id}-flushed").touch()
    while not all((folder / f"{other}-flushed").exists() for other in ("gw0", "gw1")):
        assert time.monotonic() < until
        time.sleep(0.01)
"""


def test_c57_each_process_has_a_server_and_a_prefix_of_its_own(tmp_path: Path) -> None:
    test = tmp_path / "test_note.py"
    test.write_text(NOTE)
    environment = {**os.environ, "NOTES": str(tmp_path), "PYTHONPATH": str(ROOT)}
    for name in [name for name in environment if name.startswith(("PYTEST_", "RECHECK_TEST_"))]:
        del environment[name]
    options = ["-n2", "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider"]
    with of_the_run().client as client:
        client.set("somebody's", "own")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *options, str(test)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert client.delete("somebody's") == 1
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    first, second = (tmp_path.joinpath(name).read_text().split() for name in ("gw0", "gw1"))
    assert first[0] != second[0], "one server each"
    assert first[0] != of_the_run().url != second[0]
    assert (first[1], second[1]) == ("test-gw0:recheck:meta", "test-gw1:recheck:meta")


EMPTYING = re.compile(r"flush(db|all)|(caches?(\[.*\])?|connection|client)\.clear\(", re.IGNORECASE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_c57_no_page_has_readers_empty_a_database(page: Path) -> None:
    shown = blocks(page, "", "python", "console", "sh", "text", "ini", "yaml", "dockerfile")
    assert not [text for text in shown if EMPTYING.search(text)]


def test_only_tests_empty_a_database() -> None:
    for folder in ("django_recheck", "testproject"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text("utf-8")
            assert not re.search(r"\.flush(db|all)\(|['\"]FLUSH(DB|ALL)['\"]", text), path
