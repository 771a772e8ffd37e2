"""Death after each step from INSERT to removal of a row: ``python -m tests.outbox.deaths``.

A child process lives through a scenario; it is killed at the n-th of the steps that it takes, for
each n until none is left. Then comes what may come: nothing, another event of the same key, an
empty Redis, both. A drain later the totals must be right and nothing may be left.
The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final
from unittest import mock

import django

from .mutants import MUTANTS
from .scenarios import SCENARIOS, THEN, Scenario, change

KILLED: Final = 9


class Killer:
    """Counts the steps of a process, and ends it at one of them.

    Args:
        last: The step at which it ends, its number or name, "… again" for a second one; none is 0.
        since: The step that is the first one to be counted, "" for any.
    """

    def __init__(self, last: int | str, since: str = "") -> None:
        self.last = last
        self.since = since
        self.steps: list[str] = []

    def step(self, name: str) -> None:
        """Take a step."""
        if not self.steps and self.since not in ("", name):
            return
        called = name + " again" * self.steps.count(name)
        self.steps.append(name)
        if self.last in (len(self.steps), called):
            sys.stdout.flush()
            os._exit(KILLED)

    def after(self, owner: Any, name: str) -> Any:
        """Make a step of a call's end. Before it, nothing has changed since the step before."""
        inner = getattr(owner, name)

        def stepping(*args: Any, **kwargs: Any) -> Any:
            found = inner(*args, **kwargs)
            self.step(f"after {name}")
            return found

        return mock.patch.object(owner, name, stepping)


def watched() -> list[tuple[Any, str]]:
    """Return what is a step: all that changes the database or Redis. Who has only read, has not."""
    from django.db import connections

    from django_recheck.outbox import replay, table, written
    from django_recheck.store import Store

    calls: list[tuple[Any, str]] = [(table, name) for name in ("insert", "remove", "move")]
    calls += [(written, "write"), (table, "put_aside"), (replay, "_take")]
    calls += [
        (Store, name)
        for name in ("request", "claim_many", "give_back", "finish", "enqueue", "peek")
    ]
    return [*calls, (type(connections["default"]), "_commit")]


killer = Killer(0)


def step(name: str) -> None:
    """Take a step in the receiver."""
    killer.step(name)


def live(scenario: Scenario, last: int | str) -> None:
    """Do what a scenario says, as far as one lives."""
    killer.__init__(last, scenario.since)  # type: ignore[misc]
    with ExitStack() as stack:
        for owner, name in watched():
            stack.enter_context(killer.after(owner, name))
        scenario.live()


def cron() -> None:
    """Do what cron does, later: rows are due, and the leases of the dead are over."""
    from django_recheck import outage, store, views, worker
    from django_recheck.outbox import table

    current = store.current()
    for _ in range(2):  # what a drain ripens, the next one runs
        for name in ("total", "old"):
            (lane,) = current.lanes([name])
            for view in views.page(current, name, "running"):
                current.client.delete(lane.lock(view.item))
                current.client.zadd(lane.keys[1], {view.item.text: 1})
            for view in views.page(current, name, "due"):
                current.client.zadd(lane.keys[2], {view.item.text: 1})
        table.model().objects.update(due="2000-01-01T00:00:00Z")
        outage.forget()
        worker.drain()


def prepare() -> None:
    """Make the world as it is before the first step."""
    from django_recheck import store
    from django_recheck.outbox import table
    from tests.app.models import Group, Item

    store.current().client.flushall()
    store.forget()
    for model in (table.model(), Item):
        model.objects.all()._raw_delete("default")
    Group.objects.update(total=0)
    Item.objects.bulk_create([Item(group_id=1, name="moves", value=0)])


def child(scenario: Scenario, last: int | str) -> int:
    """Do what a scenario says in a process of its own, and return how many steps it took.

    Returns:
        0 if it was killed.
    """
    from django.db import connections

    connections.close_all()
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        try:
            live(scenario, last)
            os.write(writing, str(len(killer.steps)).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as told:
        steps = told.read()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) in (0, KILLED)
    return int(steps or 0)


def deaths(name: str, turn: int, *, durable: bool = True) -> Iterator[Counter[str]]:
    """Let a process die at each of its steps, and yield what was found after each death.

    Args:
        name: The scenario.
        turn: After each death comes one thing, the next one in turn, from this one on.
        durable: Whether there is an outbox.
    """
    then = SCENARIOS[name].then
    for last in itertools.count(1):
        found = death(name, last, then[(last + turn) % len(then)], durable=durable)
        yield found
        if not found["deaths"]:
            return


def death(name: str, last: int | str, then: str, *, durable: bool = True) -> Counter[str]:
    """Let a process die at a step, and return what was found after it."""
    scenario = SCENARIOS[name]
    prepare()
    scenario.connect(durable=durable)
    scenario.before(durable)
    scenario.connect(step, durable=durable)
    steps = child(scenario, last)
    found = after(then, f"{name}, {then}, step {last}")
    return found + Counter({f"steps of {name}": steps} if steps else {"deaths": 1})


def after(then: str, where: str) -> Counter[str]:
    """Let come what may come, and a drain; return what is wrong."""
    from django_recheck import store
    from django_recheck.outbox import table
    from tests.app.models import Group, Item

    if then.startswith("empty"):
        store.current().client.flushall()
    store.forget()
    if then.endswith("another event"):
        change(11)
    cron()
    found: Counter[str] = Counter()
    for group in Group.objects.all():
        values = Item.objects.filter(group=group).values_list("value", flat=True)
        if group.total != sum(values):
            found += Counter({"stale": 1, f"stale: {where}": 1})
    found["rows left"] = table.model().objects.count()
    keys = store.current().client.keys("*")
    kept = (b":fence", b":minutes")
    left = [key for key in keys if b":meta" not in key and not key.endswith(kept)]
    found["keys left"] = len(left)
    return found


def carelessly(connection: Any, **kwargs: Any) -> None:
    """Spare the disk: processes die here, not the database."""
    how = {"postgresql": "SET synchronous_commit = off", "sqlite": "PRAGMA synchronous = off"}
    if connection.vendor in how:
        connection.cursor().execute(how[connection.vendor])


def main() -> None:
    """Search as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.outbox.deaths")
    parser.add_argument("--forgetful", action="store_true", help="without the outbox")
    parser.add_argument("--turn", type=int, choices=range(len(THEN)), help="one of four turns; all")
    parser.add_argument("--scenario", choices=SCENARIOS, action="append", help="all")
    parser.add_argument("--mutants", action="store_true", help="without one protection each")
    options = parser.parse_args()
    django.setup()
    import logging

    from django.core.management import call_command
    from django.db.backends.signals import connection_created

    from tests.app.models import Group

    connection_created.connect(carelessly)
    logging.getLogger("django_recheck").addHandler(logging.NullHandler())
    call_command("migrate", run_syncdb=True, verbosity=0)
    Group.objects.bulk_create(Group(pk=pk, name="") for pk in (1, 2))
    found: Counter[str] = Counter()
    if options.mutants:
        for mutant in MUTANTS:
            with mutant.patch():
                one = death(mutant.scenario, mutant.last, mutant.then)
                found[mutant.name] = one["stale"]
    else:
        turns = range(len(THEN)) if options.turn is None else [options.turn]
        for name, turn in itertools.product(options.scenario or SCENARIOS, turns):
            for one in deaths(name, turn, durable=not options.forgetful):
                found += one
    print(json.dumps(found))


if __name__ == "__main__":
    main()
