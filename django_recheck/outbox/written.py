"""A row with the change: one for each item of a transaction, whatever its savepoints do.

A row lives as long as the ``on_commit`` entry that it was written for stands in Django's list:
a savepoint that is rolled back takes both along, and only where it was set by hand the row alone,
so after a rollback the table is asked. While a row lives, later events of its item write nothing,
unless they tell what the row doesn't.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from django.db.backends.base.base import BaseDatabaseWrapper

from .. import outage
from ..events import Events
from ..records import Item
from . import rollbacks, table

if TYPE_CHECKING:
    from ..outage import Ready
    from ..receivers import Receiver

logger = logging.getLogger("django_recheck")

_told: set[str] = set()
"""Receivers of which it was said that their rows come after the commit."""


class Owner(Protocol):
    """What stands in Django's list for a row: a method of it is called at the commit."""

    done: bool


class Row:
    """A row of the open transaction, or a change of one; its owner keeps it."""

    __slots__ = ("__weakref__", "events", "id", "item", "number", "owner", "place", "rollbacks")

    def __init__(self, item: Item, number: int, pk: int | None, events: Events) -> None:
        self.item = item
        self.number = number
        self.id = pk
        self.events = events
        self.place = -1
        self.rollbacks = 0
        """Rollbacks to savepoints of which it is known that it has outlived them."""
        self.owner: weakref.ref[Any] | None = None

    @property
    def delivered(self) -> bool:
        """Whether its event was delivered although the transaction is open: in a test's capture."""
        owner: Any = self.owner() if self.owner else None
        return owner is None or owner.done

    def lives(self, connection: BaseDatabaseWrapper) -> bool:
        """Return whether its owner still stands in the list of the open transaction.

        What is rolled back is always the end of the list, so a place that is left stays the same.
        """
        owner: Any = self.owner() if self.owner else None
        hooks = connection.run_on_commit
        if owner is None or self.place >= len(hooks):
            return False
        return getattr(hooks[self.place][1], "__self__", None) is owner


_rows: weakref.WeakKeyDictionary[
    BaseDatabaseWrapper, weakref.WeakValueDictionary[tuple[Item, int], Row]
] = weakref.WeakKeyDictionary()


def write(connection: BaseDatabaseWrapper, batch: Sequence[Ready]) -> dict[Item, Row]:
    """Write what the open transaction's rows don't tell yet.

    Args:
        connection: Whose transaction is open.
        batch: Events of durable receivers; nobody's own.

    Returns:
        The rows, to be given an owner each.

    Raises:
        Error: The database refuses: the change mustn't be committed without its row.
    """
    found: dict[Item, Row] = {}
    new: list[tuple[Ready, int]] = []
    for ready in outage.merged(batch):
        older = _newest(connection, ready.item)
        if older is None or older.delivered:
            new.append((ready, older.number + 1 if older else 0))
            continue
        events = ready.events.after(older.events)
        if _told_by(events, ready.receiver) != _told_by(older.events, ready.receiver):
            if older.id is None:  # where the database doesn't tell keys, it is one more row
                new.append((replace(ready, events=events), older.number + 1))
                continue
            row = table.model().objects.using(connection.alias).filter(pk=older.id)
            row.update(count=events.count, events=events.packed())
            found[ready.item] = Row(ready.item, older.number + 1, older.id, events)
    if new:
        keys = table.insert(connection.alias, [ready for ready, _ in new])
        for (ready, number), pk in zip(new, keys, strict=True):
            found[ready.item] = Row(ready.item, number, pk, ready.events)
    return found


def own(connection: BaseDatabaseWrapper, row: Row, owner: Owner) -> None:
    """Give a row its owner, whose method is about to be put into Django's list."""
    row.place, row.owner = len(connection.run_on_commit), weakref.ref(owner)
    row.rollbacks = rollbacks.count(connection)
    known = _rows.setdefault(connection, weakref.WeakValueDictionary())
    known[row.item, row.number] = row


def _newest(connection: BaseDatabaseWrapper, item: Item) -> Row | None:
    """Return what the item's row holds: its last change that wasn't rolled back."""
    known, chain = _rows.get(connection), list[Row]()
    while known and (row := known.get((item, len(chain)))) and row.lives(connection):
        chain.append(row)
    now = rollbacks.count(connection)
    while chain and any(row.rollbacks != now for row in chain):
        if _stands_there(chain[-1]):
            for row in chain:
                row.rollbacks = now
        else:
            del _rows[connection][item, chain.pop().number]
    return chain[-1] if chain else None


def _stands_there(row: Row) -> bool:
    """Return whether the table has a row as it was last changed; without a key it hasn't."""
    if row.id is None:
        return False
    stored = table.rows_of(row.item).filter(pk=row.id).values_list("events", flat=True)
    return [bytes(events) for events in stored] == [row.events.packed()]


def _told_by(events: Events, receiver: Receiver[..., Any]) -> Hashable:
    """Return what a pass would hear of the events that it can't see in the database."""
    if receiver.data is not None or not receiver.options.refresh:
        return events.packed()
    own = receiver.has_default_key  # else their rows are several, and the key is what counts
    return frozenset((g.name, g.marks, g.varying, g.body if own else "") for g in events.groups)


def afterwards(using: str, batch: Sequence[Ready]) -> None:
    """Write rows where no transaction is open any more: late, and better than never.

    Args:
        using: The database.
        batch: Committed events of one durable receiver.
    """
    name = batch[0].receiver.name
    if name not in _told:
        _told.add(name)
        text = (
            "%s: its outbox rows of %r are written after the change's own commit, and a process "
            "that dies in between takes the event along: make changes in transaction.atomic(), or "
            "set ATOMIC_REQUESTS"
        )
        logger.warning(text, name, using, extra={"receiver": name})
    try:
        table.outside_of_a_loop(lambda: table.insert(using, outage.merged(batch)))
    except table.FAULTS as error:
        text = "%s: %d events have no outbox row: %s"
        logger.error(text, name, len(batch), error, extra={"receiver": name})


def forget() -> None:
    """Say anew what was said: for tests."""
    _told.clear()
