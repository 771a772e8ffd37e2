"""Events of a transaction, delivered after it commits.

One ``on_commit`` entry for every event, and the entry owns its event.
Django dropping an entry is the rollback, so savepoints, nested blocks and captures in tests need
no case of their own. Beside the entries a connection has weak references to them, in order:
the first entry that runs takes along every later one that is still alive.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Sequence
from contextlib import suppress

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from . import batching, conf, dispatch
from .outage import Ready
from .outbox import written
from .outbox.written import Row
from .outcome import Outcome, most_urgent
from .passes import Pass, own_pass
from .runner import Ended
from .transactions import refuse_manual

_numbers = itertools.count()
_waiting: weakref.WeakKeyDictionary[
    BaseDatabaseWrapper, weakref.WeakValueDictionary[int, Entry]
] = weakref.WeakKeyDictionary()


class Entry:
    """One event that waits for its transaction; calling it is the commit."""

    __slots__ = ("__weakref__", "connection", "done", "ended", "number", "own", "ready", "row")

    def __init__(
        self, connection: BaseDatabaseWrapper, ready: Ready, own: Pass | None, row: Row | None
    ) -> None:
        self.connection = connection
        self.ready = ready
        self.own = own
        self.row = row
        self.number = next(_numbers)
        self.done = False
        self.ended: Ended | None = None

    def __call__(self) -> None:
        """Deliver this event, with every later living one, and raise what it has led to."""
        if not self.done:
            self._deliver()
        ended, self.ended = self.ended, None
        with suppress(asyncio.CancelledError):  # it would keep later callbacks from running
            dispatch.raise_first([ended] if ended else [])

    def _deliver(self) -> None:
        living = list(_waiting[self.connection].values())
        batch = [entry for entry in living if entry.number >= self.number and not entry.done]
        for entry in batch:
            entry.done = True
        batch = [entry for entry in batch if not _kept(entry.own, entry.ready)]
        for entry in filter(_lacks_a_row, batch):
            written.afterwards(self.connection.alias, [entry.ready])
        found = batching.deliver([entry.ready for entry in batch])
        for entry, ended in zip(batch, found, strict=True):
            entry.ended = ended


def _kept(own: Pass | None, ready: Ready) -> bool:
    """Leave an event to the open pass that caused it, if it is still open."""
    return own is not None and own.keep(ready.events)


def _lacks_a_row(entry: Entry) -> bool:
    """Return whether a durable event was a pass's own, and isn't any more."""
    return entry.own is not None and entry.ready.receiver.options.durable


class Bulk:
    """What ``recheck_many()`` asks for; calling it is the commit. Nothing of it is run here."""

    __slots__ = ("__weakref__", "batch", "done", "rows")

    def __init__(self, batch: Sequence[Ready], rows: Sequence[Row]) -> None:
        self.batch = batch
        self.rows = rows
        self.done = False

    def __call__(self) -> None:
        """Record it."""
        self.done = True
        dispatch.record(self.batch)


def record(batch: Sequence[Ready], using: str) -> None:
    """Record one receiver's events when their transaction has committed: now, where there is none.

    Args:
        batch: The items, each once, at least one.
        using: The database whose commit counts.

    Raises:
        TransactionManagementError: Autocommit is off: nothing tells when the change commits.
    """
    connection = connections[using]
    receiver = batch[0].receiver
    durable = receiver.options.durable
    if connection.in_atomic_block:
        rows = written.write(connection, batch) if durable else {}
        bulk = Bulk(batch, list(rows.values()))
        for row in bulk.rows:
            written.own(connection, row, bulk)
        robust = receiver.options.on_redis_error != "raise"
        transaction.on_commit(bulk.__call__, using=using, robust=robust)
        return
    refuse_manual(connection, receiver.name)
    if durable:
        written.afterwards(using, batch)
    dispatch.record(batch)


def deliver(batch: Sequence[Ready], using: str) -> Outcome:
    """Deliver one receiver's event when its transaction has committed: now, where there is none.

    Args:
        batch: The items that it concerns, at least one.
        using: The database whose commit counts.

    Returns:
        The outcome of the item that needs most attention.

    Raises:
        TransactionManagementError: Autocommit is off: nothing tells when the change commits.
        CancelledError: The sending task was cancelled while an async receiver ran.
    """
    connection = connections[using]
    receiver = batch[0].receiver
    found = [(ready, own_pass(ready.item)) for ready in batch]
    durable = receiver.options.durable
    if connection.in_atomic_block:
        robust = not conf.get("RAISE_EXCEPTIONS") and receiver.options.on_redis_error != "raise"
        foreign = [ready for ready, own in found if own is None] if durable else []
        rows = written.write(connection, foreign)
        for ready, own in found:
            entry = Entry(connection, ready, own, rows.get(ready.item))
            if entry.row is not None:
                written.own(connection, entry.row, entry)
            _waiting.setdefault(connection, weakref.WeakValueDictionary())[entry.number] = entry
            # A bound method: Django names a robust callback that raised by its __qualname__.
            transaction.on_commit(entry.__call__, using=using, robust=robust)
        return Outcome.AFTER_COMMIT
    refuse_manual(connection, receiver.name)
    others = [ready for ready, own in found if not _kept(own, ready)]
    if durable and others:
        written.afterwards(using, others)
    ended = batching.deliver(others)
    dispatch.raise_first(ended)
    outcomes = [one.outcome for one in ended]
    return most_urgent(outcomes if len(others) == len(found) else [*outcomes, Outcome.COALESCED])
