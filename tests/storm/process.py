"""One process of a storm: ``python -m tests.storm.process ROLE NUMBER FOLDER PHASES``.

A phase is some rounds with one way of following items: ``inline`` and ``worker`` are ``@recheck``
with that dispatch, ``recipe`` is the recipe as published. In every round all writers change a few
rows at the same moment, then wait for rest. There the first of them compares each group's total
with its items, and sets it right for the next round. Drains drain all through a ``worker`` phase.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import redis

from .changes import Changes, concerned

if TYPE_CHECKING:
    from tests.app.models import Item

WRITERS: Final = 8
DRAINS: Final = 2
GROUPS: Final = 3
WAIT: Final = 240
"""Seconds after which the others are given up."""
MOMENT: Final = 0.001
"""Seconds between a pass's reading and its writing."""
RELEASE: Final = (
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end"
)


@dataclass(frozen=True, slots=True)
class Phase:
    """Some rounds.

    Attributes:
        way: ``inline``, ``worker`` or ``recipe``.
        rounds: How many.
        changes: Changes that each writer makes in a round.
        enough: Stale totals after which it ends early.
    """

    way: str
    rounds: int
    changes: int
    enough: int = 10**9


@dataclass
class Counted:
    """What a process counted in a phase."""

    events: int = 0
    stale: int = 0
    left: int = 0
    """Rests at which Redis still held something of an item."""
    rounds: int = 0
    kinds: Counter[str] = field(default_factory=Counter)


class Process:
    """What every process has: a way to meet the others, and a log of its passes."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self.client = redis.Redis.from_url(os.environ["RECHECK_TEST_REDIS_URL"])
        self.log = (folder / f"passes-{number}.log").open("w")
        self.meetings = 0

    def until(self, condition: Callable[[], object], pause: float = 0.002) -> None:
        """Wait for the others, ``pause`` seconds between two looks."""
        end = time.monotonic() + WAIT
        while not condition():
            assert time.monotonic() < end, "the others are gone"
            assert not self.client.exists("storm:failed"), "another has failed"
            time.sleep(pause)

    def meet(self) -> None:
        """Wait until all writers are here: the last one lets the others go, all at once."""
        self.meetings += 1
        name = f"storm:meeting:{self.meetings}"
        if self.client.incr(name) == WRITERS:
            self.client.rpush(f"{name}:over", *range(WRITERS - 1))
        else:
            self.until(lambda: self.client.blpop([f"{name}:over"], timeout=1), pause=0)

    def rebuild(self, way: str, group: int, fence: int) -> None:
        """Write a group's total, and when that began and ended."""
        from tests.app.models import Group, Item

        began = time.monotonic_ns()
        total = sum(Item.objects.filter(group_id=group).values_list("value", flat=True))
        time.sleep(MOMENT)
        Group.objects.filter(pk=group).update(total=total)
        self.log.write(f"{way} {group} {fence} {began} {time.monotonic_ns()}\n")

    def follow(self, way: str) -> Callable[..., Any]:
        """Return what follows the items in a phase."""
        from django.db import transaction

        from django_recheck import Pass, recheck

        if way != "recipe":

            @recheck(keys=concerned, name=f"storm-{way}", dispatch=way)
            def receive(sender: Any, recheck_pass: Pass, **kwargs: Any) -> None:
                self.rebuild(way, recheck_pass.key, recheck_pass.fence)

            return receive

        def follow(sender: Any, instance: Item, **kwargs: Any) -> None:
            for group in concerned(instance):
                transaction.on_commit(partial(self.recipe, group))

        return follow

    def recipe(self, group: int) -> None:
        """Run under a lock with a flag that the holder looks at before it releases."""
        name, flag, token = f"recipe:{group}", f"recipe:flag:{group}", secrets.token_hex(16)
        if not self.client.set(name, token, nx=True, ex=30):
            self.client.set(flag, 1)
            return
        for _ in range(10):
            self.client.delete(flag)
            self.rebuild("recipe", group, 0)
            if not self.client.exists(flag):
                break
        self.client.eval(RELEASE, 1, name, token)


class Writer(Process):
    """Changes rows of its own in groups that all share."""

    def __init__(self, number: int, folder: Path) -> None:
        from tests.app.models import Group

        super().__init__(number, folder)
        groups = list(Group.objects.values_list("pk", flat=True).order_by("pk"))
        self.changes = Changes(number, groups)
        self.counted = Counted()

    def run(self, phase: Phase) -> Counted:
        """Live through a phase."""
        from django.db.models.signals import post_delete, post_save

        from tests.app.models import Item

        self.counted, follow = Counted(), self.follow(phase.way)
        self.changes.events, self.changes.kinds = 0, self.counted.kinds
        for signal in (post_save, post_delete):
            signal.connect(follow, sender=Item, weak=False)
        if self.number == 0:
            self.client.set("storm:phase", phase.way)
        for _ in range(phase.rounds):
            self.meet()
            if self.client.exists(f"storm:enough:{phase.way}"):
                break
            self.counted.rounds += 1
            for _ in range(phase.changes):
                self.changes.change()
            self.meet()
            if self.number == 0:
                self.judge(phase)
        self.meet()
        for signal in (post_save, post_delete):
            signal.disconnect(follow, sender=Item)
        self.counted.events = self.changes.events
        return self.counted

    def judge(self, phase: Phase) -> None:
        """Bring about rest, and count what is stale or left behind."""
        from django_recheck import store, views, worker
        from tests.app.models import Group, Item

        if phase.way == "inline":
            worker.drain()
        elif phase.way == "worker":
            self.until(lambda: not views.receivers(store.current()))
        if phase.way != "recipe":
            kept = (b":fence", b":minutes", b":meta")
            names = self.client.scan_iter(count=10_000)
            left = [key for key in names if not key.startswith((b"storm:", b"recipe:"))]
            self.counted.left += any(not key.endswith(kept) for key in left)
        for group in Group.objects.all():
            total = sum(Item.objects.filter(group=group).values_list("value", flat=True))
            if group.total != total:
                self.counted.stale += 1
                Group.objects.filter(pk=group.pk).update(total=total)
        if self.counted.stale >= phase.enough:
            self.client.set(f"storm:enough:{phase.way}", 1)


def drain(process: Process, phases: list[Phase]) -> None:
    """Drain while a ``worker`` phase goes on."""
    from django_recheck import worker

    if "worker" not in [phase.way for phase in phases]:
        return
    process.follow("worker")
    process.until(lambda: process.client.get("storm:phase") == b"worker")
    while process.client.get("storm:phase") == b"worker":
        worker.drain()
        time.sleep(MOMENT)


def main() -> None:
    """Run as the command line says, and print what was counted."""
    import django

    django.setup()
    role, number, folder, described = sys.argv[1:]
    phases = [Phase(**phase) for phase in json.loads(described)]
    process = (Writer if role == "writer" else Process)(int(number), Path(folder))
    found = {}
    try:
        if isinstance(process, Writer):
            found = {phase.way: vars(process.run(phase)) for phase in phases}
            process.client.set("storm:phase", "over")
        else:
            drain(process, phases)
    except BaseException:
        process.client.set("storm:failed", 1)
        raise
    process.log.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
