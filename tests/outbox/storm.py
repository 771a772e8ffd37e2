"""A storm in which writers die wherever they are: ``python -m tests.outbox.storm --seconds 10``.

Writers change rows of a few groups in transactions, several items each; drains run beside them.
All of them are killed at random, other apps' callbacks raise before ours. In the first half Redis
comes back with nothing, and is away for a while; in the second one it fails over to a replica that
doesn't have the last of what was acknowledged, and Sentinel leads the clients there.
Then all comes to rest, drains do their work, and totals are compared.
A pass locks its group's row: what is to be seen is lost events, not what only a fence could keep.
The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from tests.servers import Server, running
from tests.storm.changes import Changes, concerned
from tests.storm.test_storm import database

from .deaths import carelessly
from .pair import Pair, paired

WRITERS: Final = 4
SLOTS: Final = WRITERS + 2
GROUPS: Final = 2000
LEAST: Final = 3
"""Kills from one fault to the next, however slow the machine is; three changes for each."""
SHORT: Final = {"TTL": 1.0, "BREAKER": 0.1, "BACKOFF": (0.02, 0.1), "MAX_ATTEMPTS": 1000}
WORLDS: Final = {
    "restarts": {"CACHE": "recheck", "DISPATCH": "inline"},
    "failover": {"CACHE": "paired", "DISPATCH": "worker"},
}
"""What the settings are besides: a failover loses what is only recorded."""
fork = get_context("fork")


class ForeignError(Exception):
    """What another app's callback raises."""


def connect(*, durable: bool) -> None:
    """Connect the receiver: it keeps the total of a group."""
    from django.db import transaction
    from django.db.models.signals import post_delete, post_save

    from django_recheck import recheck
    from tests.app.models import Group, Item

    @recheck(keys=concerned, name="total", durable=durable)
    def total(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        with transaction.atomic():
            group = Group.objects.select_for_update().get(pk=recheck_pass.key)
            values = Item.objects.filter(group=group).values_list("value", flat=True)
            Group.objects.filter(pk=group.pk).update(total=sum(values))

    for signal_ in (post_save, post_delete):
        signal_.connect(total, sender=Item, weak=False)


def write(seed: int, over: Any, counted: Any) -> None:
    """Change rows until all is over."""
    from django.db import transaction

    chance = random.Random(seed)
    changes = Changes(seed, list(range(1, GROUPS + 1)))

    def fail() -> None:
        raise ForeignError

    while not over.value:
        try:
            with transaction.atomic():
                if chance.random() < 0.05:
                    transaction.on_commit(fail)
                changes.change()
        except ForeignError:
            pass
        counted.value += 1
        time.sleep(chance.random() * 0.02)


def drain(over: Any) -> None:
    """Drain until all is over."""
    from redis.exceptions import RedisError

    from django_recheck import worker

    while not over.value:
        try:
            worker.drain()
        except RedisError:
            time.sleep(0.05)
        time.sleep(0.05)


class Storm:
    """The processes, and what is done to them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.over = fork.Value("b", 0, lock=False)
        self.counted = [fork.Value("q", 0, lock=False) for _ in range(SLOTS)]
        self.processes: dict[int, Any] = {}
        self.kills = 0

    def spawn(self, slot: int) -> None:
        """Start a slot's process."""
        arguments = (self.chance.randrange(10**9), self.over, self.counted[slot])
        if slot < WRITERS:
            process = fork.Process(target=write, args=arguments)
        else:
            process = fork.Process(target=drain, args=(self.over,))
        process.start()
        self.processes[slot] = process

    def go(self, seconds: float, faults: Sequence[Callable[[Storm], None]]) -> dict[str, int]:
        """Let it all happen: processes die all the time, and Redis has one fault after another."""
        for slot in range(SLOTS):
            self.spawn(slot)
        for fault in (*faults, None):
            end = time.monotonic() + seconds / (len(faults) + 1)
            kills, changes = self.kills + LEAST, self.changes + 3 * LEAST
            while time.monotonic() < end or self.kills < kills or self.changes < changes:
                time.sleep(self.chance.random() * 0.08)
                slot = self.chance.choice(list(self.processes))
                self.kill(slot)
                self.spawn(slot)
            if fault:
                fault(self)
        self.over.value = 1
        for process in self.processes.values():
            process.join(60)
        return {"changes": self.changes, "kills": self.kills}

    @property
    def changes(self) -> int:
        """How many transactions have ended, so far."""
        return sum(value.value for value in self.counted)

    def kill(self, slot: int) -> None:
        """Kill a slot's process, wherever it is."""
        process = self.processes.pop(slot)
        assert process.exitcode is None, f"slot {slot} ended by itself with {process.exitcode}"
        process.kill()
        process.join()
        self.kills += 1


def goes(server: Server) -> Callable[[Storm], None]:
    """Return the fault of a server that is killed."""

    def fault(storm: Storm) -> None:
        server.end(signal.SIGKILL)

    return fault


def comes_back(server: Server) -> Callable[[Storm], None]:
    """Return what isn't quite the end of a fault: it is there again, and has nothing."""

    def fault(storm: Storm) -> None:
        server.start()

    return fault


def restarts(server: Server) -> Callable[[Storm], None]:
    """Return both at once."""

    def fault(storm: Storm) -> None:
        goes(server)(storm)
        comes_back(server)(storm)

    return fault


def loses_its_replica(pair: Pair) -> Callable[[Storm], None]:
    """Return the fault of a primary that writes alone; drains are about to be started anew."""

    def fault(storm: Storm) -> None:
        for slot in range(WRITERS, SLOTS):
            storm.kill(slot)
        pair.cut()

    return fault


def fails_over(pair: Pair) -> Callable[[Storm], None]:
    """Return the fault of a failover, with drains after it."""

    def fault(storm: Storm) -> None:
        pair.fail_over()
        for slot in range(WRITERS, SLOTS):
            storm.spawn(slot)

    return fault


def rest() -> dict[str, int]:
    """Drain, as cron would, until nothing is owed; then compare."""
    from django.db.models import F, Sum
    from django.db.models.functions import Coalesce

    from django_recheck import store, views, worker
    from django_recheck.outbox import table
    from tests.app.models import Group

    until = time.monotonic() + 60
    rows = table.model().objects
    while rows.exists() or any(c.running or c.due for c in views.counts(store.current()).values()):
        assert time.monotonic() < until, "no rest came about"
        rows.update(due="2000-01-01T00:00:00Z")
        worker.drain()
        time.sleep(0.05)
    right = Group.objects.annotate(right=Coalesce(Sum("item__value"), 0))
    names = store.current().client.scan_iter(count=10_000)
    kept = (b":fence", b":minutes")
    left = [key for key in names if b":meta" not in key and not key.endswith(kept)]
    return {"stale": right.exclude(total=F("right")).count(), "left": len(left)}


def main() -> int:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.outbox.storm", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--forgetful", action="store_true", help="without the outbox")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="recheck-outbox-") as folder,
        running() as server,
        paired() as pair,
        database("postgres", Path(folder)) as where,
    ):
        os.environ |= {"RECHECK_TEST_REDIS_URL": server.url, **where}
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.outbox.settings"
        settings = prepare(pair, forgetful=options.forgetful)
        found = {}
        halves = {
            "restarts": [restarts(server), goes(server), comes_back(server)],
            "failover": [loses_its_replica(pair), fails_over(pair)],
        }
        for number, (name, faults) in enumerate(halves.items()):
            settings.RECHECK.update(WORLDS[name])
            found[name] = Storm(options.seed + number).go(options.seconds / 2, faults)
            judge = get_context("fork").Pool(1)
            found[name] |= judge.apply(rest)
            judge.terminate()
    print(json.dumps(found))
    return 0


def prepare(pair: Pair, *, forgetful: bool) -> Any:
    """Make the database and the receiver ready, and leave no connection open."""
    import logging

    import django
    from django.conf import settings

    settings.CACHES["paired"] = pair.cache
    django.setup()
    settings.RECHECK.update(SHORT)
    from django.core.management import call_command
    from django.db import connections
    from django.db.backends.signals import connection_created

    from django_recheck import ripe
    from django_recheck.outbox import table
    from tests.app.models import Group

    connection_created.connect(carelessly)
    logging.getLogger("django_recheck").addHandler(logging.NullHandler())
    table.AGE = timedelta(seconds=0.5)  # type: ignore[misc]
    ripe.PUT_OFF = 0.5  # type: ignore[misc]
    call_command("migrate", run_syncdb=True, verbosity=0)
    Group.objects.bulk_create(Group(pk=pk, name="") for pk in range(1, GROUPS + 1))
    connect(durable=not forgetful)
    connections.close_all()
    return settings


if __name__ == "__main__":
    sys.exit(main())
