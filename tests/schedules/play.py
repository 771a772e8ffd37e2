"""One schedule: what the threads do, what befalls them, and what must be true once all is at rest.

The "database" is two dicts: a source that commits change, and what passes derive from it.
Time is a key in Redis that the scripts read for their clock: it moves when the schedule says so.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import transaction
from django.dispatch import Signal, receiver

from django_recheck import LockLost, lease, recheck, store, views, worker
from django_recheck.records import Item

from .stage import Actor, Stage

KEYS: Final = ("a", "b")
CAP: Final = 2
NAME: Final = "derive"
LEASE: Final = 3000
ORDERS: Final = {
    "trip": ("deaf", "cut", "late", "die", "dead"),
    "line": ("die", "fail", "interrupt", "ensure", "own"),
}
"""What may befall a round trip, and a line of a receiver, other than going as it should."""


class Violation(AssertionError):
    """A promise that a schedule breaks."""


@dataclass
class Commit:
    """One committed change: the key's version, and whether Redis has heard of it."""

    key: str
    version: int
    actor: Actor
    reached: bool = False


@dataclass
class World:
    """The database of a schedule, and the account of what happened in it."""

    source: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))
    derived: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))
    commits: list[Commit] = field(default_factory=list)
    passes: list[tuple[str, int]] = field(default_factory=list)
    """Key and fence of every pass; a fence of 0 is a pass without a lock."""
    open: dict[str, list[int]] = field(default_factory=lambda: {key: [] for key in KEYS})
    ended: set[int] = field(default_factory=set)
    """Fences of leases that ended before their hold did."""
    waived: set[str] = field(default_factory=set)
    """Keys of which a holder wrote after its lease and died before it could say so."""
    faults: int = 0
    orphans: bool = False
    """Something may be held by nobody: a death, a late copy, a grant that never arrived."""

    def commit(self, actor: Actor, key: str) -> None:
        self.source[key] += 1
        change = Commit(key, self.source[key], actor)
        self.commits.append(change)
        actor.unsent.append(change)


class Play:
    """A schedule.

    Args:
        stage: Its threads: writers, then a drain and a renewal.
        seed: What everything is drawn from.
        stale: The first pass of a hold works with what its signal brought (a rule switched off).
    """

    def __init__(self, stage: Stage, seed: int, *, stale: bool = False) -> None:
        self.stage = stage
        self.chance = random.Random(seed)
        self.stale = stale
        self.world = World()
        self.trace: list[str] = []
        self.budget = self.chance.choice((0, 1, 2, 4))
        self.signal = Signal()
        self.store = store.current()
        self.store.client.flushdb()
        self.time = 1_000_000
        self.store.client.set("clock", self.time)
        self._connect()

    def _connect(self) -> None:
        options: dict[str, Any] = {"ttl": LEASE, "backoff": (8, 60), "max_attempts": 99}

        @receiver(self.signal)
        @recheck(
            name=NAME, key=lambda key, **_: key, max_passes=CAP, inline_budget=10**6, **options
        )
        def derive(sender: Any, recheck_pass: Any, version: int, **kwargs: Any) -> None:
            self._pass(recheck_pass, version)

    # What the threads do

    def _send(self, key: str) -> None:
        self.signal.send(sender=None, key=key, version=self.world.source[key])

    def _writer(self, actor: Actor, commits: list[list[str]]) -> Callable[[], None]:
        def write() -> None:
            for keys in commits:
                actor.step("commit")
                if len(keys) == 1:
                    self.world.commit(actor, keys[0])
                    self._send(keys[0])
                    continue
                with transaction.atomic():
                    for key in keys:
                        self.world.commit(actor, key)
                        self._send(key)

        return write

    def _pass(self, recheck_pass: Any, version: int) -> None:
        actor, world, key = self._me(), self.world, recheck_pass.key
        self._overlap(key, recheck_pass.fence)
        world.passes.append((key, recheck_pass.fence))
        world.open[key].append(recheck_pass.fence)
        written = False
        try:
            self._line(actor, "read", recheck_pass)
            value = version if self.stale and recheck_pass.number == 1 else world.source[key]
            order = self._line(actor, "write", recheck_pass)
            world.derived[key] = value
            written = True
            if order == "own" and not recheck_pass.grant.own:
                world.commit(actor, key)
                self._send(key)
            self._line(actor, "return", recheck_pass)
        finally:
            world.open[key].remove(recheck_pass.fence)
            if actor is not None:
                actor.wrote = (key, recheck_pass.fence) if written else None

    def _line(self, actor: Actor | None, what: str, recheck_pass: Any) -> str:
        order = actor.step(what) if actor else "go"
        if order == "fail":
            raise ValueError("as the schedule wants it")
        if order == "interrupt":
            raise KeyboardInterrupt
        if order == "ensure":
            recheck_pass.ensure_held()
        return order

    def _me(self) -> Actor | None:
        return next((actor for actor in self.stage.actors if actor.is_current()), None)
