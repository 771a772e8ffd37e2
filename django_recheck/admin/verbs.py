"""What can be done to locks and receivers, and the words for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from django.contrib.admin.models import CHANGE, DELETION
from django.utils.translation import gettext_lazy, ngettext_lazy

from .. import receivers, store, worker
from ..board import State
from ..exceptions import RecordError
from ..keys import Concern
from ..models import Lock
from ..records import Item
from ..store import Entry

Words = list[str | Exception]
"""What became of each lock: ``"DONE"``, one of ``WHY``, or what went wrong."""
HELD: Final = (State.RUNNING, State.FLAGGED)

WHY: Final = {
    "CHANGED": ngettext_lazy(
        "%(number)s has changed since the page was shown",
        "%(number)s have changed since the page was shown",
        "number",
    ),
    "RUNNING": ngettext_lazy("%(number)s is running", "%(number)s are running", "number"),
    "FREE": ngettext_lazy(
        "%(number)s isn't held by anybody", "%(number)s aren't held by anybody", "number"
    ),
    "GONE": ngettext_lazy(
        "%(number)s isn't there any more", "%(number)s aren't there any more", "number"
    ),
    "NEWER": ngettext_lazy(
        "%(number)s is of a newer version", "%(number)s are of a newer version", "number"
    ),
    "ALIVE": ngettext_lazy("%(number)s isn't dead", "%(number)s aren't dead", "number"),
    "STRANGER": ngettext_lazy(
        "%(number)s is of a receiver that this process doesn't have",
        "%(number)s are of receivers that this process doesn't have",
        "number",
    ),
    "ALREADY": ngettext_lazy(
        "%(number)s needed no change", "%(number)s needed no change", "number"
    ),
}


@dataclass(frozen=True, slots=True)
class Verb:
    """One thing that is done to locks or receivers."""

    ask: Callable[[Sequence[Lock]], Words]
    done: Any
    """Says how many it was done to."""
    logged: Any
    """What stands in the history of each."""
    flag: int = CHANGE


def _seen(locks: Iterable[Lock]) -> list[tuple[Item, str]]:
    return [(lock.row.view.item, lock.seen) for lock in locks]


def _apart(locks: Sequence[Lock], refused: Callable[[Lock], str | Exception]) -> tuple[Any, Any]:
    """Return why some locks are left alone, by lock, and the others."""
    why = {lock.pk: word for lock in locks if (word := refused(lock))}
    return why, [lock for lock in locks if lock.pk not in why]


def _recheck(locks: Sequence[Lock]) -> Words:
    """Let what is owed be tried now; what isn't, gets an event."""
    entries: dict[str, Entry] = {}

    def refused(lock: Lock) -> str | Exception:
        if lock.row.state not in (*HELD, State.IDLE):
            return ""
        if lock.seen.partition("-")[0] != lock.row.view.seen:
            return "CHANGED"
        receiver = receivers.named(lock.receiver)
        if receiver is None:
            return "STRANGER"
        item, options = lock.row.view.item, receiver.options
        try:
            events = receiver.event_of(Concern.parse(item.text))
        except (RecordError, LookupError, TypeError, ValueError) as error:
            return error
        entries[lock.pk] = Entry(item, 1, events.packed(), options, delay=-options.delay)
        return ""

    why, rest = _apart(locks, refused)
    owed = [lock for lock in rest if lock.pk not in entries]
    told = dict(zip(entries, store.current().enqueue(list(entries.values())), strict=True))
    for pk, word in told.items():
        why[pk] = "DONE" if word in ("COALESCED", "PENDING") else word
    pairs = zip(owed, store.current().retry(_seen(owed)), strict=True)
    why |= {lock.pk: word for lock, word in pairs}
    store.current().hint()
    return [why[lock.pk] for lock in locks]


def _release(locks: Sequence[Lock]) -> Words:
    words = store.current().release(_seen(locks))
    store.current().hint()
    return words


def _retry(locks: Sequence[Lock]) -> Words:
    def refused(lock: Lock) -> str:
        if lock.row.state is State.DEAD:
            return ""
        return "RUNNING" if lock.row.state in HELD else "ALIVE"

    why, dead = _apart(locks, refused)
    pairs = zip(dead, store.current().retry(_seen(dead)), strict=True)
    why |= {lock.pk: word for lock, word in pairs}
    store.current().hint()
    return [why[lock.pk] for lock in locks]


def _discard(locks: Sequence[Lock]) -> Words:
    return store.current().discard(_seen(locks))


def _set(receivers: Sequence[Lock], paused: bool) -> Words:
    names = [(worker.known_names([each.receiver]) or [each.receiver]) for each in receivers]
    found = [store.current().pause(some, paused=paused) for some in names]
    store.current().hint()
    return ["DONE" if changed else "ALREADY" for changed in found]


RECHECK: Final = Verb(
    _recheck,
    ngettext_lazy(
        "A pass of %(number)s lock is owed now: its holder or the next drain runs it.",
        "Passes of %(number)s locks are owed now: their holders or the next drain run them.",
        "number",
    ),
    gettext_lazy("Asked for a pass."),
)
RELEASE: Final = Verb(
    _release,
    ngettext_lazy(
        "%(number)s lock is released. Its holder finds out when it renews its lease or ends its "
        "pass, and one more pass follows.",
        "%(number)s locks are released. Their holders find out when they renew their leases or end "
        "their passes, and one more pass of each follows.",
        "number",
    ),
    gettext_lazy("Released the lock."),
)
RETRY: Final = Verb(
    _retry,
    ngettext_lazy(
        "%(number)s dead lock is tried again by the next drain.",
        "%(number)s dead locks are tried again by the next drain.",
        "number",
    ),
    gettext_lazy("Let it be tried again."),
)
DISCARD: Final = Verb(
    _discard,
    ngettext_lazy(
        "%(number)s lock is discarded, with its events.",
        "%(number)s locks are discarded, with their events.",
        "number",
    ),
    gettext_lazy("Discarded it, with its events."),
    DELETION,
)


PAUSE: Final = Verb(
    partial(_set, paused=True),
    ngettext_lazy(
        "%(number)s receiver is paused: its events are recorded, and wait.",
        "%(number)s receivers are paused: their events are recorded, and wait.",
        "number",
    ),
    gettext_lazy("Paused the receiver."),
)
RESUME: Final = Verb(
    partial(_set, paused=False),
    ngettext_lazy(
        "%(number)s receiver goes on: the next drain runs what waits.",
        "%(number)s receivers go on: the next drain runs what waits.",
        "number",
    ),
    gettext_lazy("Let the receiver go on."),
)
