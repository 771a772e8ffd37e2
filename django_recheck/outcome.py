"""What became of an event, or of one pass."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Outcome(Enum):
    """What ``send()`` returns for a decorated receiver.

    The members stand in the order of the attention they need, least first:
    where one event concerns several items, the last of their outcomes is returned.
    """

    IGNORED = "ignored"
    """The key was ``None``, or no app has the row's model: the event concerns nobody."""
    GONE = "gone"
    """The row was deleted in the meantime and nobody asked to hear of that."""
    RAN = "ran"
    """The receiver ran, and its item is idle again."""
    COALESCED = "coalesced"
    """Somebody is running this item and will go again."""
    AFTER_COMMIT = "after commit"
    """The event waits for the end of the transaction it came from, or of the batch."""
    PENDING = "pending"
    """Recorded: a pass is owed, now or later."""
    REQUEUED = "requeued"
    """The receiver ran as often as one hold may, and a further pass is owed."""
    UNLOCKED = "unlocked"
    """Redis didn't answer; the receiver ran once without its lock."""
    LEASE_LOST = "lease lost"
    """A pass outlived its lease; one more was asked for."""
    FAILED = "failed"
    """The receiver raised; it is tried again after a backoff."""
    DEAD = "dead"
    """Given up after too many failures, until a new event or a person asks again."""


_RANK = {outcome: rank for rank, outcome in enumerate(Outcome)}


def most_urgent(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the outcome that needs most attention, ``IGNORED`` if there is none."""
    return max(outcomes, key=_RANK.__getitem__, default=Outcome.IGNORED)
