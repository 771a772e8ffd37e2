"""Nothing is stale at rest, no two passes overlap, and Redis is left as it was.

A few thousand events; in CI, or with ``RECHECK_STORM=full``, more than 20,000 on each database.
The recipe as published goes through the same storm, so that it is known to find something.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import POSTGRES
from tests.servers import running

from .process import DRAINS, GROUPS, WRITERS, Phase

ROOT = Path(__file__).parent.parent.parent
FULL = bool(os.environ.get("CI")) or os.environ.get("RECHECK_STORM") == "full"
PHASES = [
    Phase("worker", 30 if FULL else 6, 8),
    Phase("recipe", 400, 1, enough=3),
    Phase("inline", 180 if FULL else 20, 8),
]
SECONDS = 500

PREPARE = f"""
import django
django.setup()
from django.core.management import call_command
call_command("migrate", run_syncdb=True, verbosity=0)
from tests.app.models import Group
Group.objects.bulk_create(Group(name=str(n)) for n in range({GROUPS}))
"""


@dataclass
class Found:
    """What came of a phase."""

    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    passes: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Group, fence, begin and end of each pass."""
    reported: str = ""
    """What all processes logged as a warning or worse."""


@contextmanager
def database(kind: str, folder: Path) -> Iterator[dict[str, str]]:
    """Have a database for one storm; gives the variables that say where it is."""
    if kind == "sqlite":
        yield {"RECHECK_STORM_DATABASE": str(folder / "storm.sqlite3")}
        return
    import psycopg

    parts, name = urlsplit(POSTGRES), f"recheck_storm_{os.getpid()}"
    with psycopg.connect(f"{POSTGRES}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield {
                "RECHECK_STORM_DATABASE": name,
                "RECHECK_STORM_HOST": parts.hostname or "",
                "RECHECK_STORM_PORT": str(parts.port or 5432),
                "RECHECK_STORM_USER": parts.username or "postgres",
                "RECHECK_STORM_PASSWORD": parts.password or "",
            }
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def run(environment: dict[str, str], folder: Path) -> dict[str, Found]:
    """Run the storm, and return what came of each phase."""
    prepare = [sys.executable, "-c", PREPARE]
    subprocess.run(prepare, env=environment, cwd=ROOT, check=True)
    roles = ["writer"] * WRITERS + ["drain"] * DRAINS
    phases = json.dumps([asdict(phase) for phase in PHASES])
    processes = []
    found: dict[str, Found] = defaultdict(Found)
    try:
        for number, role in enumerate(roles):
            arguments = [role, str(number), str(folder), phases]
            command = [sys.executable, "-m", "tests.storm.process", *arguments]
            with (folder / "errors.log").open("a") as errors:
                process = subprocess.Popen(
                    command,
                    env=environment,
                    cwd=ROOT,
                    text=True,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                )
            processes.append(process)
        for process in processes:
            out, _ = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, (folder / "errors.log").read_text()
            for way, counted in json.loads(out).items():
                found[way].kinds.update(counted.pop("kinds"))
                found[way].counts.update(counted)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    for path in folder.glob("passes-*.log"):
        for way, *numbers in map(str.split, path.read_text().splitlines()):
            group, fence, began, ended = map(int, numbers)
            found[way].passes.append((group, fence, began, ended))
    for one in found.values():
        one.reported = (folder / "errors.log").read_text()
    return found


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)
def storm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Found]:
    """One storm on a database and a Redis of its own."""
    folder = tmp_path_factory.mktemp("storm")
    with running() as server, database(request.param, folder) as where:
        mine = {"DJANGO_SETTINGS_MODULE": "tests.storm.settings"}
        mine |= {"RECHECK_TEST_REDIS_URL": server.url, **where}
        found = run({**os.environ, **mine}, folder)
    print(f"\n{request.param}:")
    for way, one in found.items():
        print(f"{way}: {dict(one.counts)}, {len(one.passes)} passes, {dict(one.kinds)}")
    return found


@pytest.fixture(params=["inline", "worker"])
def found(request: pytest.FixtureRequest, storm: dict[str, Found]) -> Found:
    """What came of a phase with ``@recheck``."""
    return storm[request.param]


def test_there_was_a_storm(storm: dict[str, Found]) -> None:
    assert storm["inline"].counts["events"] >= (20_000 if FULL else 2_000)
    assert set(storm["inline"].kinds) == {"create", "save", "move", "delete"}


def test_nothing_is_stale_at_rest(found: Found) -> None:
    assert found.counts["rounds"] > 0
    assert found.counts["stale"] == 0


def test_events_are_coalesced(found: Found) -> None:
    assert 0 < len(found.passes) < found.counts["events"]


def test_no_two_passes_overlap_and_fences_grow(found: Found) -> None:
    groups = defaultdict(list)
    for group, fence, began, ended in found.passes:
        groups[group].append((began, ended, fence))
    for times in groups.values():
        for (_, ended, fence), (began, _, next_fence) in pairwise(sorted(times)):
            assert ended <= began
            assert fence <= next_fence


def test_nothing_of_an_item_is_left_in_redis(found: Found) -> None:
    assert found.counts["left"] == 0


def test_all_of_that_is_no_news(found: Found) -> None:
    assert found.reported == ""


def test_the_recipe_is_stale_in_the_same_storm(storm: dict[str, Found]) -> None:
    assert storm["recipe"].counts["stale"] > 0
