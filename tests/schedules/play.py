"""One schedule: what the threads do, what befalls them, and what must be true once all is at rest.

The "database" is two dicts: a source that commits change, and what passes derive from it.
Time is a key in Redis that the scripts read for their clock: it moves when the schedule says so.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

from django.db import transaction
from django.dispatch import Signal, receiver
from redis.exceptions import RedisError

from django_recheck import Pass, lease, outage, recheck, store, views, worker
from django_recheck.keys import item_text
from django_recheck.records import Item

from .stage import Actor, Stage
from .world import CAP, Violation, World

changed: Final = Signal()
KEYS: Final = ("a", "b")
LATER: Final = "z"
"""The key of the event that comes when all is over: it brings along what the process owes."""
NAME: Final = "derive"
LEASE: Final = 3000
LINES: Final = ("read", "write", "return")
ORDERS: Final = {
    "trip": ("deaf", "cut", "late", "die", "dead"),
    "line": ("die", "fail", "interrupt", "ensure", "own"),
    "beside": ("lease", "away"),
}
"""What may befall a round trip, a line of a receiver, and all of them."""
BESIDE: Final = ("drain", "renewal", "time", "late")
BROKEN: Final = ("deaf", "cut", "late")


def connect(current: Callable[[], Play]) -> None:
    """Connect the receiver of all schedules of a test.

    Args:
        current: Returns the one that is played just now.
    """

    @receiver(changed)
    @recheck(
        name=NAME,
        key=lambda key, **_: key,
        ttl=LEASE,
        max_passes=CAP,
        max_attempts=99,
        backoff=(8, 60),
        inline_budget=10**6,
    )
    def derive(sender: Any, recheck_pass: Pass, version: int, **kwargs: Any) -> None:
        current().work(recheck_pass, version)


class Play:
    """A schedule.

    Args:
        stage: Its threads: writers, then a drain, then one that renews.
        seed: What everything is drawn from.
        kinds: What befalls it; by default a few kinds are drawn, as many hide one another.
        stale: The first pass of a hold works with what its signal brought (a rule switched off).
    """

    def __init__(
        self, stage: Stage, seed: int, *, kinds: tuple[str, ...] = (), stale: bool = False
    ) -> None:
        self.stage = stage
        self.chance = random.Random(seed)
        self.stale = stale
        self.world = World()
        self.trace: list[str] = []
        self.budget = self.chance.choice((2, 4, 6))
        every = [what for orders in ORDERS.values() for what in orders]
        drawn = [what for what in every if self.chance.random() < 0.35]
        self.faults = {
            where: [what for what in orders if what in (kinds or drawn)]
            for where, orders in ORDERS.items()
        }
        self.broken: set[str] = set()
        self.away = 0
        """Moves for which Redis isn't there."""
        self.ranks: dict[Actor, float] | None = None
        """Half of the schedules have ranks: the first goes until it falls behind all others."""
        if self.chance.random() < 0.5:
            self.ranks = {actor: self.chance.random() for actor in stage.actors}
        self.store = store.current()
        self.client = self.store.client
        self.client.flushdb()
        items = [Item(NAME, item_text(key)) for key in (*KEYS, LATER)]
        self.locks = [self.store.lane_of(item).lock(item) for item in items]
        self.time = 1_000_000
        self._later(0)
        outage.forget()
        stage.late.clear()
        lease.renewer = lease.Renewer()

    def _later(self, seconds: int) -> None:
        self.time += seconds
        self.client.set("clock", self.time)

    # What the threads do

    def _send(self, key: str) -> None:
        changed.send(sender=None, key=key, version=self.world.source[key])

    def _writer(self, actor: Actor) -> Callable[[], None]:
        plans = (["a"], ["a"], ["a", "b"], ["b", "a", "a"])
        plan = self.chance.choices(plans, k=self.chance.choice((1, 1, 2, 3)))

        def write() -> None:
            for keys in plan:
                actor.step("commit")
                self.world.wrote.pop(actor.name, None)
                self.trace.append(f"  {keys}")
                with transaction.atomic() if len(keys) > 1 else nullcontext():
                    for key in keys:
                        self.world.commit(actor, key)
                        self._send(key)

        return write

    def work(self, recheck_pass: Pass, version: int) -> None:
        """Be the receiver."""
        actor, world, key = threading.current_thread(), self.world, str(recheck_pass.key)
        fence, grant = recheck_pass.fence, recheck_pass.grant
        world.enter(key, fence)
        try:
            self._line("read", recheck_pass)
            first = self.stale and recheck_pass.number == 1
            value = version if first else world.source[key]
            order = self._line("write", recheck_pass)
            world.derived[key] = value
            world.wrote[actor.name] = key, fence
            if order == "own" and isinstance(actor, Actor) and grant and not grant.own:
                world.commit(actor, key)
                self._send(key)
            self._line("return", recheck_pass)
        finally:
            world.open.remove((key, fence))

    def _line(self, what: str, recheck_pass: Pass) -> str:
        actor = threading.current_thread()
        order = actor.step(what) if isinstance(actor, Actor) else "go"
        if order == "fail":
            raise ValueError("as the schedule wants it")
        if order == "interrupt":
            raise KeyboardInterrupt
        if order == "ensure":
            recheck_pass.ensure_held()
        return order

    # What befalls them

    def run(self) -> World:
        """Let it happen, come to rest, and look.

        Raises:
            Violation: A promise is broken.
        """
        *writers, drain, renewal = self.stage.actors
        for actor in writers:
            actor.begin(self._writer(actor))
        for _ in range(1000):
            moving = [actor for actor in self.stage.actors if actor.at]
            if not moving:
                break
            if self.chance.random() < 0.1:
                self._beside(drain, renewal)
            else:
                self._move(self._next(moving))
        else:
            raise Violation("it goes on for ever")
        self._rest()
        return self.world

    def _next(self, moving: list[Actor]) -> Actor:
        if self.ranks is None:
            return self.chance.choice(moving)
        first = max(moving, key=self.ranks.__getitem__)
        tired = 0.35 if first.at in ("write", "finish") else 0.05
        if self.chance.random() < tired:  # it sleeps, perhaps beyond its lease
            self.ranks[first] = min(self.ranks.values()) - 1
            if "lease" in self.faults["beside"] and self.chance.random() < 0.7:
                self._end_lease()
            return self._next(moving)
        return first

    def _move(self, actor: Actor) -> None:
        order, at = "go", actor.at
        risk = 0.5 if actor.name in self.broken else 0.25
        faults = self.faults["line" if at in LINES else "trip"]
        if at != "commit" and faults and self.budget and self.chance.random() < risk:
            order = self.chance.choice(faults)
            self.budget -= 1
            self.world.faults += 1
        elif self.away and at not in (*LINES, "commit"):
            order = "cut"
            self.world.faults += 1
        self.away = max(0, self.away - 1)
        self.trace.append(f"{actor.name}: {at}, {order}")
        if order in BROKEN:
            self.world.orphans |= actor.name in self.broken or order == "late"
            self.broken.add(actor.name)
        elif at not in LINES:
            self.broken.discard(actor.name)
        actor.go(order)
        if actor.dead and not actor.at:
            self.world.died(actor)
        excused = (KeyboardInterrupt, RedisError) if "drain" in actor.name else KeyboardInterrupt
        if actor.failure is not None and not isinstance(actor.failure, excused):
            raise actor.failure

    def _beside(self, drain: Actor, renewal: Actor) -> None:
        what = self.chance.choice((*BESIDE, *self.faults["beside"]))
        self.trace.append(what)
        if what == "drain" and not drain.at:
            drain.begin(partial(worker.drain, [NAME]))
        elif what == "renewal" and not renewal.at:
            leases = sorted(lease.renewer._leases, key=lambda kept: kept.grant.fence)
            renewal.begin(lambda: lease.renewer.renew(leases))
        elif what == "time":
            self._later(10)
        elif what == "late" and self.stage.late:
            self.stage.late.pop()()
            self.world.faults += 1
        elif what == "away" and self.budget:
            self.budget -= 1
            self.away = self.chance.randrange(5, 25)
        elif what == "lease":
            self._end_lease()

    def _end_lease(self) -> None:
        views_ = views.items(self.store, [Item(NAME, item_text(key)) for key in KEYS])
        held = [view for view in views_ if view.holder and view.record]
        if not held or not self.budget:
            return
        self.budget -= 1
        self.world.faults += 1
        view = self.chance.choice(held)
        lane = self.store.lane_of(view.item)
        self.client.delete(lane.lock(view.item))
        self.client.zadd(lane.keys[1], {view.item.text: self.time * 1000})
        fence = view.record.fence if view.record else "0"
        self.trace.append(f"the lease of {view.item.text} ends")
        self.world.ended.add(int(fence))
        self.world.orphans |= bool(self.broken)  # a lapsed token isn't granted anew
        if self.chance.random() < 0.5:  # and the holder's own clock says so
            for kept in lease.renewer._leases:
                if kept.grant.fence == fence:
                    kept.grant.deadline = 0.0

    # What must be true

    def _rest(self) -> None:
        world = self.world
        world.check()
        if not world.orphans and self._counts().running:
            raise Violation("held by nobody, although nobody died")
        if outage._owed:
            self._send(LATER)
        for _ in range(50):
            self.client.delete(*self.locks)
            self._later(LEASE + 10)
            worker.drain([NAME])
            world.check()
            counts = self._counts()
            if not counts.running + counts.due + counts.dead:
                break
        else:
            raise Violation("it never comes to rest")
        for change in world.commits:
            required = change.reached or not change.actor.dead
            stale = world.derived[change.key] < change.version
            if stale and required and change.key not in world.waived:
                raise Violation(f"stale: {change.key} is {world.derived[change.key]}")
        kept = (b":fence", b":minutes", b":meta", b"clock")
        left = [key for key in self.client.scan_iter() if not key.endswith(kept)]
        if left:
            raise Violation(f"left in Redis: {left}")
        if len(world.passes) > len(world.commits) + 2 * world.faults + 1:
            raise Violation("more passes than events and faults account for")

    def _counts(self) -> views.Counts:
        return views.counts(self.store, [NAME])[NAME]
