"""Nothing is stale at rest, no two passes overlap, and Redis is left as it was.

A few thousand events; in CI, or with ``RECHECK_STORM=full``, more than 20,000 on each database.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import POSTGRES
from tests.servers import Server, running

from .process import CHANGES, GROUPS

ROOT = Path(__file__).parent.parent.parent
FULL = bool(os.environ.get("CI")) or os.environ.get("RECHECK_STORM") == "full"
PROCESSES = 8
ROUNDS = 253 if FULL else 30

PREPARE = f"""
import django
django.setup()
from django.core.management import call_command
call_command("migrate", run_syncdb=True, verbosity=0)
from tests.app.models import Group
Group.objects.bulk_create(Group(name=str(n)) for n in range({GROUPS}))
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def environment(
    request: pytest.FixtureRequest, server: Server, tmp_path: Path
) -> Iterator[dict[str, str]]:
    """The environment of the processes, with a database that is there for this storm only."""
    mine = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.storm.settings",
        "RECHECK_TEST_REDIS_URL": server.url,
        "RECHECK_STORM_DATABASE": str(tmp_path / "storm.sqlite3"),
    }
    if request.param == "sqlite":
        yield mine
        return
    import psycopg

    parts, name = urlsplit(POSTGRES), f"recheck_storm_{os.getpid()}"
    mine |= {
        "RECHECK_STORM_DATABASE": name,
        "RECHECK_STORM_HOST": parts.hostname or "",
        "RECHECK_STORM_PORT": str(parts.port or 5432),
        "RECHECK_STORM_USER": parts.username or "postgres",
    }
    with psycopg.connect(f"{POSTGRES}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield mine
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def storm(environment: dict[str, str], folder: Path, way: str, rounds: int) -> dict[str, int]:
    """Run a storm, and return what its processes counted."""
    prepare = [sys.executable, "-c", PREPARE]
    subprocess.run(prepare, env=environment, cwd=ROOT, check=True)
    processes = []
    for number in range(PROCESSES):
        arguments = [str(number), str(PROCESSES), str(rounds), way, str(folder)]
        command = [sys.executable, "-m", "tests.storm.process", *arguments]
        processes.append(
            subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        )
    counted: dict[str, int] = defaultdict(int)
    try:
        for process in processes:
            out, _ = process.communicate(timeout=400)
            assert process.returncode == 0
            for name, number in json.loads(out).items():
                counted[name] += number
    finally:
        for process in processes:
            process.kill()
    return counted


def passes(folder: Path) -> list[tuple[int, int, int, int]]:
    """Return (group, fence, begin, end) of each pass."""
    lines = [line for path in folder.glob("passes-*.log") for line in path.read_text().splitlines()]
    return [tuple(map(int, line.split())) for line in lines]  # type: ignore[misc]


def assert_one_at_a_time(found: list[tuple[int, int, int, int]]) -> None:
    """Compare each pass with the next of its group: later, and under no older fence."""
    groups = defaultdict(list)
    for group, fence, began, ended in found:
        groups[group].append((began, ended, fence))
    for times in groups.values():
        for (_, ended, fence), (began, _, next_fence) in pairwise(sorted(times)):
            assert ended <= began, "two passes overlap"
            assert fence <= next_fence


@pytest.mark.parametrize("way", ["inline", "worker"])
def test_nothing_is_lost(
    environment: dict[str, str],
    server: Server,
    tmp_path: Path,
    way: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rounds = ROUNDS if way == "inline" else ROUNDS // 5
    counted = storm(environment, tmp_path, way, rounds)
    found = passes(tmp_path)
    with capsys.disabled():
        print(f"\n{way}: {counted['events']} events, {len(found)} passes, stale", end=" ")
        print(counted["stale"], end=" ")
    assert counted["events"] == PROCESSES * rounds * CHANGES
    assert counted["stale"] == 0
    assert 0 < len(found) < counted["events"]
    assert_one_at_a_time(found)
    with server.client as client:
        left = {key.decode() for key in client.scan_iter("*test-*")}
    assert {key.rpartition(":")[2] for key in left} == {"fence", "meta"}


def test_the_recipe_is_stale_in_the_same_storm(
    environment: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = storm(environment, tmp_path, "recipe", 150)
    with capsys.disabled():
        print(f"\nrecipe: {counted['events']} events, stale {counted['stale']}", end=" ")
    assert counted["stale"] > 0
