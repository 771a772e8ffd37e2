"""Rows that no pass has covered in time, brought to Redis: part of every drain.

A row that was looked at isn't looked at again for a while, here or elsewhere, so several workers
share the work, and none of its rows is in another one's way.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from django.db import connections, transaction
from django.db.models import Count
from django.utils import timezone

from .. import dispatch, receivers, store, views
from ..events import Events
from ..exceptions import RecordError
from ..outage import Ready
from ..records import Item
from . import table

if TYPE_CHECKING:
    from .models import Event

logger = logging.getLogger("django_recheck")

CHUNK: Final = store.CHUNK
"""Rows that one look takes."""


@dataclass(slots=True)
class Replayed:
    """What a look at all outboxes has found."""

    rows: int = 0
    """Rows that were looked at."""
    told: int = 0
    """Items that Redis was told of."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Rows of receivers that aren't in this process, by receiver: left alone."""
    problems: dict[str, str] = field(default_factory=dict)
    """What couldn't be read, by database or receiver."""


def replay(
    wanted: Collection[str], known: Collection[str], stopping: Callable[[], bool]
) -> Replayed:
    """Tell Redis of rows that are due, where their item is idle.

    Args:
        wanted: Names of the receivers whose rows are looked at.
        known: Names of all receivers of this process.
        stopping: Asked between chunks; True ends it.

    Returns:
        What was found.

    Raises:
        RedisError: Redis doesn't answer. The rows stay.
    """
    found = Replayed()
    if not table.installed():
        return found
    refused: dict[str, Exception] = {}
    for alias in connections:
        table.ask(alias, refused, partial(_replay, alias, wanted, known, stopping, found))
    found.problems |= {f"outbox of {alias!r}": str(error) for alias, error in refused.items()}
    return found


def _replay(
    alias: str,
    wanted: Collection[str],
    known: Collection[str],
    stopping: Callable[[], bool],
    found: Replayed,
) -> None:
    if not table.usable(alias):
        return
    due = table.model().objects.using(alias).filter(due__lte=timezone.now()).order_by()
    waiting = dict(due.values_list("receiver").annotate(rows=Count("pk")))
    found.unknown.update({name: n for name, n in waiting.items() if name not in known})
    names = [name for name in waiting if name in wanted]
    more = bool(names)
    while more and not stopping():
        rows = _take(alias, names)
        found.rows += len(rows)
        untold = [row.pk for row in rows]
        try:
            untold = _tell(alias, rows, found)
        finally:
            if untold:  # a drain that finds Redis there mustn't wait for them
                table.rows_by(alias, untold).update(due=timezone.now())
        more = len(rows) == CHUNK and not untold


def _take(alias: str, names: Collection[str]) -> list[Event]:
    """Take rows that are due, the oldest first, and put them off for everybody."""
    now, features = timezone.now(), connections[alias].features
    due = table.model().objects.using(alias).filter(due__lte=now, receiver__in=names)
    rows = due.order_by("due")
    locking = features.has_select_for_update
    with transaction.atomic(using=alias) if locking else nullcontext():
        if locking:
            skipping = features.has_select_for_update_skip_locked
            rows = rows.select_for_update(skip_locked=skipping)
        taken = list(rows[:CHUNK])
        put_off = due.filter(pk__in=[row.pk for row in taken]).update(due=now + table.AGE)
    return taken if put_off == len(taken) else []  # without locks: another has been faster


def _tell(alias: str, rows: Collection[Event], found: Replayed) -> list[int]:
    """Tell Redis of the items that it doesn't know; return the rows if it takes none at all."""
    ready, ids = _items(rows, found)
    durable = [one for one in ready if one.receiver.options.durable]
    views_of = views.items(store.current(), [one.item for one in durable])
    idle = {view.item for view in views_of if view.state == "idle"}
    # A row that is kept for Redis alone tells of an event that it has surely not heard of.
    telling = [one for one in ready if one.item in idle or not one.receiver.options.durable]
    taken = dispatch.taken(telling)
    found.told += len(taken)
    done = [pk for one in taken if not one.receiver.options.durable for pk in ids[one.item]]
    table.remove(alias, done)
    return [] if taken or not telling else [row.pk for row in rows]


def _items(rows: Collection[Event], found: Replayed) -> tuple[list[Ready], dict[Item, list[int]]]:
    """Merge the rows of each item, in the order in which they were written."""
    merged: dict[Item, Ready] = {}
    ids: dict[Item, list[int]] = {}
    for row in sorted(rows, key=lambda row: row.pk):
        item, receiver = Item(row.receiver, row.item), receivers.named(row.receiver)
        if receiver is None:
            continue
        try:
            events = Events.parse(row.count, bytes(row.events))
        except RecordError as error:
            found.problems[row.receiver] = f"row {row.pk} of the outbox: {error}"
            continue
        merged[item] = Ready(receiver, item, events).after(merged.get(item))
        ids.setdefault(item, []).append(row.pk)
    return list(merged.values()), ids
