"""Writers die, Redis is emptied or fails over: nothing is stale with the outbox, some without."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.storm.test_storm import ROOT

pytestmark = pytest.mark.postgres


def storm(*arguments: str) -> dict[str, dict[str, int]]:
    """Run a storm of some seconds, and return what was found in each half."""
    command = [sys.executable, "-m", "tests.outbox.storm", "--seconds", "4", *arguments]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, dict[str, int]] = json.loads(done.stdout.splitlines()[-1])
    assert list(found) == ["restarts", "failover"]
    for half in found.values():
        assert half["kills"] > 5
        assert half["changes"] > 20
    return found


def test_with_the_outbox_nothing_is_stale() -> None:
    for name, half in storm().items():
        assert (half["stale"], half["left"]) == (0, 0), name


def test_without_it_some_is() -> None:
    for name, half in storm("--forgetful").items():
        assert half["stale"] > 0, name
