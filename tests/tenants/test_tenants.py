"""Tenants with django-tenants: each row is its tenant's own, under lock and in its pass.

Real processes, real schemas; the CONTEXT is the class that the how-to page shows.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.servers import running
from tests.storm.test_storm import database

from .process import GROUPS, TENANTS

pytestmark = pytest.mark.postgres

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/howto/tenants.md"
FULL = bool(os.environ.get("CI")) or os.environ.get("RECHECK_STORM") == "full"
WRITERS, ROUNDS = 3, 150 if FULL else 40
ROW = '{"tests_app.group":1} "default"'
DRAIN = [sys.executable, "-m", "django", "recheck_run", "--json"]


class Site:
    """A site with a database, a Redis and a folder."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.log = folder / "passes.log"
        self.errors = folder / "errors.log"
        self.environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.tenants.settings",
            "PYTHONPATH": str(folder),
            "RECHECK_TENANTS_LOG": str(self.log),
            **environment,
        }

    def start(self, *scene: object, **environment: str) -> subprocess.Popen[str]:
        """Start a process; its scene is a function of ``tests.tenants.process``."""
        command = [sys.executable, "-m", "tests.tenants.process", *map(str, scene)]
        return self._popen(command, environment)

    def _popen(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        names = {f"RECHECK_TENANTS_{name}": value for name, value in environment.items()}
        with self.errors.open("a") as errors:
            return subprocess.Popen(
                command,
                env=self.environment | names,
                cwd=ROOT,
                text=True,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def ended(self, process: subprocess.Popen[str], *codes: int) -> Any:
        """Wait for a process, and return what it printed."""
        out, _ = process.communicate(timeout=240)
        assert process.returncode in (codes or (0,)), self.errors.read_text()
        return json.loads(out)

    def play(self, *scene: object, **environment: str) -> Any:
        """Play a scene in a process of its own, and return what came of it."""
        return self.ended(self.start(*scene, **environment))

    def recheck_run(self, code: int = 0, **environment: str) -> Any:
        """Run the command as cron does: in no tenant's schema."""
        return self.ended(self._popen(DRAIN, environment), code)

    @property
    def passes(self) -> list[dict[str, Any]]:
        """What was written down of the passes."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("tenants")
    block, *_ = re.findall(r"^```python\n# howto\.py\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    (folder / "howto.py").write_text(block)
    with running() as server, database("postgres", folder) as where:
        site = Site(folder, {"RECHECK_TEST_REDIS_URL": server.url, **where})
        site.play("prepare")
        yield site


@pytest.fixture
def site(built: Site) -> Site:
    """The site, with nothing written down yet, neither in its folder nor in Redis."""
    with redis.Redis.from_url(built.environment["RECHECK_TEST_REDIS_URL"]) as client:
        client.flushall()
    for path in (built.log, built.errors):
        path.unlink(missing_ok=True)
    return built


@pytest.mark.parametrize(
    ("key", "text"), [("row", '{"tests_app.group":1}'), ("callable", "1")], ids=["row", "callable"]
)
def test_c64_rows_of_two_tenants_with_one_pk_never_share_a_lock(
    site: Site, key: str, text: str
) -> None:
    said = site.play("side_by_side", key)
    assert said["meanwhile"] == {"alpha": "COALESCED", "beta": "RAN"}
    assert said["passes"] == ["alpha", "beta", "alpha"]
    assert said["running"] == [f'{text} "default" "alpha"', f'{text} "default" "beta"']


@pytest.mark.parametrize("around", ["public", "beta"])
def test_a_pass_runs_in_the_schema_of_its_event_wherever_the_commit_was(
    site: Site, around: str
) -> None:
    assert site.play("one_transaction", around) == {"after": [around, around]}
    where = [(p["item"], p["schemas"], p["name"], p["events"]) for p in site.passes]
    assert where == [
        (f'{ROW} "alpha"', ["alpha", "alpha"], "1 of alpha", 2),
        (f'{ROW} "beta"', ["beta", "beta"], "1 of beta", 1),
    ]


def test_c64_a_worker_that_starts_in_no_schema_runs_each_pass_in_its_own(site: Site) -> None:
    site.play("one_transaction", "public", DISPATCH="worker")
    assert site.passes == []
    assert site.recheck_run()["passes"] == 2
    where = sorted((p["item"], p["schemas"], p["name"]) for p in site.passes)
    assert where == [
        (f'{ROW} "alpha"', ["alpha", "alpha"], "1 of alpha"),
        (f'{ROW} "beta"', ["beta", "beta"], "1 of beta"),
    ]


def test_the_outbox_is_shared_and_each_of_its_rows_runs_in_its_own_schema(site: Site) -> None:
    assert site.play("lose", DURABLE="1") == {"greeting": 2}
    assert site.passes == []
    assert site.recheck_run(DURABLE="1")["passes"] == 2
    assert sorted(p["schemas"] for p in site.passes) == [["alpha"] * 2, ["beta"] * 2]
    site.play("one_transaction", "beta", DURABLE="1")
    assert len(site.passes) == 4
    assert site.play("waiting", DURABLE="1") == {}
    assert site.errors.read_text() == ""


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [("well", "RAN"), ("raising", "FAILED"), ("aborting", "FAILED"), ("elsewhere", "RAN")],
)
def test_after_a_drain_the_schema_is_the_one_before(site: Site, kind: str, outcome: str) -> None:
    said = site.play("drain_in", "beta", kind)
    assert said["during"] == [["1 of alpha", "alpha", "alpha"]]
    assert said["outcomes"] == {outcome: 1}
    assert said["after"] == ["beta", "beta"]


def test_without_redis_too_a_pass_runs_in_the_schema_of_its_event(site: Site) -> None:
    assert site.play("save", "beta", REDIS_URL="redis://127.0.0.1:1/0") == "UNLOCKED"
    assert [(p["schemas"], p["name"]) for p in site.passes] == [(["beta", "beta"], "1 of beta")]


def test_what_was_recorded_before_there_was_a_context_fails_in_sight(site: Site) -> None:
    site.play("save", "alpha", CONTEXT="", DISPATCH="worker")
    said = site.recheck_run(1, ATTEMPTS="1")
    assert (said["failed"], said["outcomes"]) == (1, {"dead": 1})
    assert "Database schema not set" in site.errors.read_text()
    assert site.passes == []


def test_what_a_tenant_owes_whose_schema_is_gone_ends_dead_in_sight(site: Site) -> None:
    site.play("save", "gone", DISPATCH="worker")
    site.play("drop", "gone")
    said = site.recheck_run(1, ATTEMPTS="1")
    assert said["outcomes"] == {"dead": 1}
    assert f'greeting {ROW} "gone": given up' in site.errors.read_text()
    assert site.passes == []


def test_a_storm_on_both_tenants_leaves_nothing_stale_in_either(site: Site) -> None:
    processes = [site.start("write", n, ROUNDS, WRITERS) for n in range(WRITERS)]
    processes.append(site.start("drain", WRITERS))
    try:
        *written, _ = [site.ended(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    site.recheck_run()
    found, passes = site.play("judge"), site.passes
    assert found["stale"] == []
    assert found["left"] == []
    assert len(set(found["sums"].values())) == len(TENANTS) * GROUPS, "all have their own"
    events = sum(one[schema] for one in written for schema in TENANTS)
    assert events >= 2 * WRITERS * ROUNDS
    assert 0 < len(passes) < events
    assert site.errors.read_text() == ""
    times = defaultdict(list)
    for one in passes:
        schema = json.loads(one["item"].split()[-1])
        assert one["schemas"] == [schema, schema]
        times[one["item"]].append((one["began"], one["ended"]))
    assert len(times) == len(TENANTS) * GROUPS
    for one_item in times.values():
        assert all(ended <= began for (_, ended), (began, _) in pairwise(sorted(one_item)))
