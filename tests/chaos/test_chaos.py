"""A short chaos run: the promises hold although holders die, and the server comes back empty."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.postgres
SECONDS = "15"


@pytest.fixture(scope="module", params=[[], ["--empty"]], ids=["lasting", "emptied"])
def found(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the command reported in its last line."""
    command = [sys.executable, "-m", "tests.chaos", "--seconds", SECONDS, "--seed", "7"]
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(
        [*command, *request.param], cwd=root, text=True, capture_output=True, timeout=300
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**report, "emptying": request.param != []}


def test_there_was_chaos(found: dict[str, Any]) -> None:
    assert found["events"] > 1000
    assert found["passes"] > 100
    assert found["faults"]["kill"] > 0
    assert found["faults"]["stop"] > 0
    assert ("empty" in found["faults"]) == found["emptying"]
    assert found["rests"] > 1


def test_the_promises_held(found: dict[str, Any]) -> None:
    assert found["held"]
    assert (found["stale"], found["left"], found["overlaps"]["unexplained"]) == (0, 0, 0)


def test_what_an_empty_restart_took_along_is_counted(found: dict[str, Any]) -> None:
    assert found["lost_to_an_empty_restart"] == 0 or found["faults"]["empty"] > 0


def test_c21_who_was_killed_is_taken_over_within_its_lease(found: dict[str, Any]) -> None:
    """From the end of the lease on somebody looks, but the machine may be busy."""
    assert found["recovery_in_ttls"]["median"] < 2
