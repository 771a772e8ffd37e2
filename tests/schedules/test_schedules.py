"""A few thousand schedules through the real client, and the faults that they must find."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Iterator
from hashlib import sha1
from typing import Any, Final

import pytest

from django_recheck import connection, lease, outage, receivers, store, views
from django_recheck.records import Grant
from django_recheck.runner import Hold
from tests.servers import Server, running

from .play import LEASE, LINES, ORDERS, Play, changed, connect
from .stage import Parking, Stage
from .world import Violation

pytestmark = pytest.mark.django_db(transaction=True)

FULL: Final = bool(os.environ.get("CI")) or os.environ.get("RECHECK_STORM") == "full"
SCHEDULES: Final = int(os.environ.get("RECHECK_SCHEDULES", "3000" if FULL else "1000"))
SCRIPTS: Final = ("request", "finish", "renew", "enqueue", "peek", "claim")
CLOCK: Final = "redis.call('TIME')"
MOVED: Final = "{redis.call('GET', 'clock'), '0'}"
"""The clock of the scripts here: it stands still unless the schedule moves it."""

Patch = Callable[[str, str], str]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def learn(settings: Any, server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give the scripts their clock, and change their text otherwise if asked to."""
    options = {"REDIS_CLIENT_CLASS": "tests.schedules.stage.Parking"}
    cache = {**settings.CACHES["recheck"], "LOCATION": server.url, "OPTIONS": options}
    settings.CACHES = {**settings.CACHES, "stage": cache}
    settings.RECHECK = {"CACHE": "stage", "BREAKER": 0}
    texts = {name: connection.script(name) for name in SCRIPTS}
    monkeypatch.setattr(lease, "renewer", lease.renewer)
    monkeypatch.setattr(logging.getLogger("django_recheck"), "disabled", True)

    def learn(patch: Patch = lambda name, text: text) -> None:
        known = {name: copy.copy(script) for name, script in texts.items()}
        for name, script in known.items():
            assert script.text.count(CLOCK) == 1, "the clock stands in one place"
            script.text = patch(name, script.text).replace(CLOCK, MOVED)
            script.sha = sha1(script.text.encode()).hexdigest()
            store.current().client.script_load(script.text)
            Parking.names[script.sha] = name
        monkeypatch.setattr(connection, "script", known.__getitem__)

    learn()
    return learn


@pytest.fixture
def stage(learn: Any) -> Iterator[Stage]:
    with Stage("ann", "bob", "cyd", "drain", "renewal").open() as stage:
        receivers.registry.clear()
        changed.receivers[:] = []
        changed.sender_receivers_cache.clear()
        connect(lambda: playing[-1])
        yield stage


playing: list[Play] = []


def play(stage: Stage, seed: int, **rules: Any) -> Play:
    """Play one schedule; a broken promise is told with what led to it."""
    schedule = Play(stage, seed, **rules)
    playing[:] = [schedule]
    try:
        schedule.run()
    except Violation as violation:
        violation.add_note(f"seed {seed}\n" + "\n".join(schedule.trace))
        raise
    return schedule


def find(stage: Stage, *kinds: str, **rules: bool) -> Violation:
    """Return the first violation; a rule that is switched off must lead to one."""
    for seed in range(5000):
        try:
            play(stage, seed, kinds=kinds, **rules)
        except Violation as violation:
            print(f"seed {seed}: {violation}")
            return violation
    raise AssertionError("it wasn't found")


def test_every_schedule_keeps_the_promises(stage: Stage) -> None:
    befell: set[str] = set()
    for seed in range(SCHEDULES):
        befell.update(line.partition(": ")[2] for line in play(stage, seed).trace)
    steps, orders = zip(*(what.split(", ") for what in befell if what), strict=True)
    assert set(steps) == {*SCRIPTS, *LINES, "commit"}
    assert set(orders) == {*ORDERS["trip"], *ORDERS["line"], "go"}


def test_a_schedule_is_its_seed(stage: Stage) -> None:
    for seed in range(20):
        once, twice = play(stage, seed), play(stage, seed)
        assert once.trace == twice.trace
        assert once.world.passes == twice.world.passes


def switched_off(script: str, old: str, new: str) -> Patch:
    """Return a patch of one script."""

    def patch(name: str, text: str) -> str:
        if name != script:
            return text
        assert text.count(old) == 1, f"{old!r} stands in {name} once"
        return text.replace(old, new)

    return patch


RULES: Final = {
    "again or release is one step": (
        "finish",
        "local due = due_at(r)\nif not due then",
        "local due = ARGV[12] == 'seen' and due_at(r) or nil\nif not due then",
    ),
    "the flag is cleared when a pass begins": (
        "finish",
        "r.attempts, r.error, r.working, r.count, r.own = 0, '', '', 0, 0\n",
        "r.attempts, r.error, r.working, r.count, r.own = 0, '', '', 0, 0\n"
        "if PASS == 1 then r.newer, r.newer_count, r.owed = '', 0, 0 end\n",
    ),
    "an expired lease counts as pending": ("peek", "ipairs({RUNNING, DUE})", "ipairs({DUE})"),
    "at the cap the flag stays": (
        "finish",
        "local due = due_at(r)\nif not due then",
        "local due = ARGV[8] == '0' and due_at(r) or nil\nif not due then",
    ),
    "a resent request is granted": (
        "request",
        "if r and held == TOKEN and r.token == TOKEN then return begun('GRANTED', at, r) end",
        "",
    ),
    "a resent claim is granted": (
        "claim",
        "if r and held == TOKEN and r.token == TOKEN then return begun('GRANTED', at, r) end",
        "",
    ),
    "a resent finish repeats again": (
        "finish",
        "if r.passes == PASS + 1 then return begun('AGAIN', at, r) end",
        "",
    ),
    "finish compares the owner": ("finish", "if held ~= TOKEN then return {'LOST'} end", ""),
    "what is held is refused": (
        "request",
        "if held then return refuse(at, r, LEASE, 'COALESCED') end",
        "",
    ),
    "a hold ends at its cap": ("finish", "or PAUSED or ARGV[8] == '1'", "or PAUSED"),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_of_the_scripts_that_is_switched_off_is_found(
    stage: Stage, learn: Callable[[Patch], None], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn(switched_off(*RULES[rule]))
    if "one step" in rule:
        monkeypatch.setattr(store.Store, "finish", looked_before(store.Store.finish))
    find(stage, *(("deaf",) if "resent" in rule else ("lease", "dead")))


def looked_before(finish: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``finish`` that looks at the flag a step before, as the recipe does."""

    def in_two(self: store.Store, grant: Grant, *args: Any, **named: Any) -> Any:
        self.renew([grant], [LEASE])
        (view,) = views.items(self, [grant.item])
        seen = view.record is not None and view.record.newer_count > 0
        return finish(self, grant, *args, **{**named, "error": "seen" if seen else ""})

    return in_two


def test_a_first_pass_that_doesnt_read_under_the_lock_is_found(stage: Stage) -> None:
    assert "stale" in str(find(stage, stale=True))


def test_a_holder_that_doesnt_heal_is_found(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hold, "_heal", lambda self, worked, **how: "PENDING")
    assert "stale" in str(find(stage, "lease"))


def test_a_process_that_forgets_what_it_owes_is_found(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "owe", lambda ready: None)
    assert "stale" in str(find(stage, "away"))
