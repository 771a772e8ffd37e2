"""A process may die after each step: with the outbox nothing is stale, without it some is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import running
from tests.storm.test_storm import ROOT, database

from .mutants import MUTANTS
from .scenarios import SCENARIOS


def search(kind: str, folder: Path, *arguments: str) -> dict[str, int]:
    """Search on a database and a Redis of its own; return what was found."""
    with running() as server, database(kind, folder) as where:
        mine = {"DJANGO_SETTINGS_MODULE": "tests.outbox.settings"}
        mine |= {"RECHECK_TEST_REDIS_URL": server.url, **where}
        done = subprocess.run(
            [sys.executable, "-m", "tests.outbox.deaths", *arguments],
            cwd=ROOT,
            env={**os.environ, **mine},
            text=True,
            capture_output=True,
            timeout=200,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_nobody_dies_with_an_event(tmp_path: Path) -> None:
    found = search("sqlite", tmp_path, "--turn", "0")
    assert found.pop("deaths") > 100
    steps = {what: found.pop(what) for what in [*found] if what.startswith("steps of")}
    assert len(steps) == len(SCENARIOS)
    assert not any(found.values()), found


@pytest.mark.postgres
def test_nobody_dies_with_an_event_on_postgresql(tmp_path: Path) -> None:
    scenarios = ("--scenario", "inline", "--scenario", "replay")
    found = search("postgres", tmp_path, "--turn", "2", *scenarios)
    assert found.pop("deaths") > 25
    assert all(what.startswith("steps of") for what in found), found


def test_without_the_outbox_some_do(tmp_path: Path) -> None:
    found = search("sqlite", tmp_path, "--forgetful", "--turn", "0", "--scenario", "inline")
    assert found["stale"] > 0


def test_without_any_one_protection_some_do(tmp_path: Path) -> None:
    found = search("sqlite", tmp_path, "--mutants")
    assert list(found) == [mutant.name for mutant in MUTANTS]
    assert all(found.values()), found
