"""Events of a transaction, delivered after it commits.

One ``on_commit`` entry for every event, and the entry owns its event.
Django dropping an entry is the rollback, so savepoints, nested blocks and captures in tests need
no case of their own. Beside the entries a connection has weak references to them, in order:
the first entry that runs takes along every later one that is still alive.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from . import conf, dispatch
from .outage import Ready
from .outcome import Outcome, most_urgent
from .passes import Pass, own_pass
from .transactions import refuse_manual

_numbers = itertools.count()
_waiting: weakref.WeakKeyDictionary[
    BaseDatabaseWrapper, weakref.WeakValueDictionary[int, Entry]
] = weakref.WeakKeyDictionary()


class Entry:
    """One event that waits for its transaction; calling it is the commit."""

    __slots__ = ("__weakref__", "connection", "done", "number", "own", "ready")

    def __init__(self, connection: BaseDatabaseWrapper, ready: Ready, own: Pass | None) -> None:
        self.connection = connection
        self.ready = ready
        self.own = own
        self.number = next(_numbers)
        self.done = False

    def __call__(self) -> None:
        """Deliver this event and every later living one, unless an earlier entry did."""
        if self.done:
            return
        living = list(_waiting[self.connection].values())
        batch = [entry for entry in living if entry.number >= self.number and not entry.done]
        for entry in batch:
            entry.done = True
        dispatch.deliver([entry.ready for entry in batch if not _kept(entry.own, entry.ready)])


def _kept(own: Pass | None, ready: Ready) -> bool:
    """Leave an event to the open pass that caused it, if it is still open."""
    return own is not None and own.keep(ready.events)


def deliver(batch: Sequence[Ready], using: str) -> Outcome:
    """Deliver one receiver's event when its transaction has committed: now, where there is none.

    Args:
        batch: The items that it concerns, at least one.
        using: The database whose commit counts.

    Returns:
        The outcome of the item that needs most attention.

    Raises:
        TransactionManagementError: Autocommit is off: nothing tells when the change commits.
    """
    connection = connections[using]
    receiver = batch[0].receiver
    found = [(ready, own_pass(ready.item)) for ready in batch]
    if connection.in_atomic_block:
        robust = not conf.get("RAISE_EXCEPTIONS") and receiver.options.on_redis_error != "raise"
        for ready, own in found:
            entry = Entry(connection, ready, own)
            _waiting.setdefault(connection, weakref.WeakValueDictionary())[entry.number] = entry
            # A bound method: Django names a robust callback that raised by its __qualname__.
            transaction.on_commit(entry.__call__, using=using, robust=robust)
        return Outcome.AFTER_COMMIT
    refuse_manual(connection, receiver.name)
    others = [ready for ready, own in found if not _kept(own, ready)]
    outcomes = dispatch.deliver(others)
    return most_urgent(outcomes if len(others) == len(found) else [*outcomes, Outcome.COALESCED])
