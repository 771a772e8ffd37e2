"""What a process is about when it dies: the ways from a change to the row's removal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

THEN: Final = ("nothing", "another event", "empty", "empty, another event")
"""What happens after the death, in another process."""
UNTOLD: Final = 5
"""The value of a change of which Redis doesn't hear."""
BOUND: Final = 50
"""The highest value where passes change rows themselves."""


def nothing(*rest: Any) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Scenario:
    """What a process does, with a receiver that keeps the totals of groups."""

    live: Callable[[], object]
    options: Mapping[str, Any] = field(default_factory=dict)
    """The receiver's."""
    before: Callable[[bool], object] = nothing
    """What was there before, given whether receivers are durable."""
    within: Callable[[Any], object] = nothing
    """What happens in a pass that has written, given the pass."""
    since: str = ""
    """The step from which on the process may die, by default the first one."""
    then: tuple[str, ...] = THEN
    """What may come after it."""

    def connect(self, step: Callable[[str], None] = nothing, **options: Any) -> None:
        """Connect the receiver, and no other.

        Args:
            step: Called with the names of its steps.
            options: Its options, unless the scenario has others.
        """
        from django.db.models.signals import post_delete, post_save

        from django_recheck import receivers, recheck
        from tests.app.models import Group, Item
        from tests.storm.changes import concerned

        @recheck(**{"name": "total", "keys": concerned, **options, **self.options})
        def total(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
            rows = Item.objects.filter(group_id=recheck_pass.key)
            found = sum(rows.values_list("value", flat=True))
            Group.objects.filter(pk=recheck_pass.key).update(total=found)
            step("has written")
            self.within(recheck_pass)

        receivers.registry.clear()
        receivers.registry[total.name] = [total]
        for signal in (post_save, post_delete):
            signal.receivers[:] = []
            signal.sender_receivers_cache.clear()
            signal.connect(total, sender=Item, weak=False)


def change(value: int = 7) -> None:
    """Change what both groups have, in one transaction."""
    from django.db import transaction

    from tests.app.models import Item

    with transaction.atomic():
        Item.objects.create(group_id=2, name="never was", value=99).delete()
        item: Any = Item.objects.get(name="moves")
        item.was, item.group_id, item.value = item.group_id, 3 - item.group_id, value
        item.save()
        Item.objects.create(group_id=1, name="stays", value=value)


def change_one(value: int = 7) -> None:
    """Change what one group has, in a transaction."""
    from django.db import transaction

    from tests.app.models import Item

    with transaction.atomic():
        Item.objects.create(group_id=1, name="stays", value=value)


def not_told(durable: bool = True) -> None:
    """Commit a change of which nobody tells Redis."""
    from django.db import transaction

    def die() -> None:
        raise KeyError

    with suppress(KeyError), transaction.atomic():
        transaction.on_commit(die)
        change(UNTOLD)


def drain() -> None:
    """Drain when all rows are due."""
    from django_recheck import worker
    from django_recheck.outbox import table

    table.model().objects.update(due="2000-01-01T00:00:00Z")
    worker.drain()


def change_and_drain() -> None:
    """Change, and be the worker, too."""
    change()
    drain()


def without_redis(durable: bool = True) -> None:
    """Change while Redis is left alone."""
    from django_recheck import outage

    outage.breaker._until = float("inf")
    change_one()
    outage.forget()


def older_code(durable: bool) -> None:
    """Be the code in which the receiver had another name."""
    Scenario(nothing, {"name": "old", "dispatch": "worker"}).connect(durable=durable)
    change()


def bounded(run: Any) -> None:
    """Be a receiver that changes rows of its own item, after its total is written."""
    from django.db import transaction

    from tests.app.models import Item

    with transaction.atomic():
        for item in Item.objects.filter(group_id=run.key, value__gt=BOUND):
            item.value = BOUND
            item.save()


def overtaken(run: Any) -> None:
    """Let another process commit and die, after the very first pass has written its total."""
    from django.db import connections

    from tests.app.models import Item

    def within() -> None:
        not_told()
        connections.close_all()

    if not Item.objects.filter(value=UNTOLD).exists():
        thread = threading.Thread(target=within)
        thread.start()
        thread.join()


WORKER: Final = {"dispatch": "worker"}
KEPT: Final = {"durable": False, "on_redis_error": "outbox"}
SCENARIOS: Final = {
    "inline": Scenario(change),
    "worker": Scenario(change_and_drain, WORKER),
    "replay": Scenario(drain, before=not_told),
    "own": Scenario(lambda: change(77), within=bounded),
    "meanwhile": Scenario(change, within=overtaken),
    "renamed": Scenario(drain, {**WORKER, "former_names": ["old"]}, before=older_code),
    "away": Scenario(without_redis, KEPT, since="after put_aside"),
    # Of what isn't durable the row is Redis's once it has taken it.
    "kept": Scenario(drain, KEPT, before=without_redis, then=THEN[:2]),
}
