"""What the admin looks for, and how a lock is named on its pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from urllib.parse import quote, unquote

from .. import lookup, receivers, store, worker
from ..board import Row, State, busy
from ..models import Lock
from ..outbox import shown
from ..records import Item
from ..survey import Survey, survey
from ..usable import usable
from ..views import Part, View


def primary_key(item: Item) -> str:
    """Return the primary key of an item's lock; an empty text stands for the whole receiver.

    It passes through forms, addresses and databases: control characters are written out.

    >>> primary_key(Item("totals", '[7,"de"]'))
    'totals [7,"de"]'
    """
    text = re.sub(r"[%\x00-\x1f\x7f]", lambda found: f"%{ord(found[0]):02X}", item.text)
    return f"{quote(item.receiver, safe='/<>:')} {text}"


def mark(lock: Lock) -> str:
    """Return what stands on a page for a lock: its primary key, and before it what was seen."""
    return f"={lock.seen} {lock.pk}"


def marked(mark: str) -> tuple[Item, str]:
    """Return the item of a mark or of a primary key, and what was seen of it, "" if nothing was.

    >>> marked("=0a1b totals 7")
    (Item(receiver='totals', text='7'), '0a1b')
    """
    seen = ""
    if mark.startswith("="):  # which no primary key does
        seen, _, mark = mark[1:].partition(" ")
    receiver, _, text = mark.partition(" ")
    return Item(unquote(receiver), unquote(text)), seen


def lock_of(item: Item) -> Lock:
    """Return the lock of an item of which nothing was read."""
    return Lock(id=primary_key(item), receiver=item.receiver, key=item.text)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for: items that are named, what somebody typed, or else a state."""

    state: str = "running"
    """One of those that ``Numbers`` counts and ``Part`` reads."""
    receiver: str = ""
    """The name of the only receiver, if it is only one."""
    typed: str = ""
    """A key, or a receiver and a key."""
    marks: tuple[str, ...] | None = None
    """Marks or primary keys."""
    as_of: float | None = None
    """When a page was read on which all were chosen, in seconds by the server."""

    @property
    def direct(self) -> bool:
        """Whether items are looked up, and no index is read."""
        return self.marks is not None or bool(self.typed)

    def survey(self, parts: Sequence[Part] = ()) -> Survey:
        """Look at Redis, in two round trips.

        Raises:
            Unusable: It can't be looked at.
        """
        with usable():
            current, others = store.current(), False
            current.look_at_format()
            if self.marks is not None:
                names = [item.receiver for item, _ in map(marked, self.marks)]
            elif self.receiver:
                names = worker.known_names([self.receiver]) or [self.receiver]
            else:
                names, others = worker.known_names(), True
            return survey(current, names, parts, items=self._items, others=others)

    def _items(self, names: Sequence[str]) -> list[Item]:
        if self.marks is not None:
            return [item for item, _ in map(marked, self.marks)]
        return lookup.items(self.typed, names) if self.typed else []

    def found(self, survey: Survey) -> list[Lock]:
        """Return what was looked up: all that was named; of what was typed, what there is."""
        seen = (seen for _, seen in map(marked, self.marks)) if self.marks else repeat("")
        locks = locks_of(survey, survey.items, seen)
        if self.marks is not None:
            return locks
        there = [lock for lock in locks if lock.row.state is not State.IDLE or lock.row.outbox.rows]
        known = {receivers.named(lock.receiver) for lock in locks} - {None}
        return there or (locks[:1] if len(known) == 1 else [])

    def stands(self, row: Row) -> bool:
        """Return whether an item is what a page of ``as_of`` has shown, or would have."""
        state = row.view.state
        if row.state in (State.RUNNING, State.FLAGGED):
            state = "running"
        elif state == "due":
            state = "later" if (row.view.score or 0) > row.now else "pending"
        if not self.direct and state != self.state:
            return False
        record, as_of = row.view.record, self.as_of or 0
        last = record.last / 1000 if record is not None and state != "running" else 0
        began = record.since / 1000 if record is not None else 0
        return max(last, began, row.since or 0) <= as_of

    def indexed(self) -> list[Item]:
        """Return all items of the state.

        Raises:
            Unusable: Redis can't be looked at.
        """
        found = self.survey()
        part = Part(self.state, 0, max(1, self.count(found)), self.state == "later")
        with usable():
            lanes = list(store.current().lanes(found.numbers))
            asked = [part.of(lane, alone=False) for lane in lanes]
            return part.merged(lanes, store.current().ask(*asked, raising=False), found.now)

    def count(self, survey: Survey) -> int:
        """Return how many items are in the state."""
        return sum(getattr(numbers, self.state) for numbers in survey.numbers.values())


def locks_of(survey: Survey, views: Sequence[View], seen: Iterable[str] = repeat("")) -> list[Lock]:
    """Return the locks of what a survey has read, with what waits of them in the outboxes.

    Args:
        survey: What was read.
        views: Some of its items.
        seen: For each what somebody saw of it, "" for what stands there now.
    """
    outbox = shown.items(view.item for view in views)
    locks = []
    for view, was in zip(views, seen):  # noqa: B905 - the second may have no end
        lock, waiting = lock_of(view.item), outbox.waiting.get(view.item, shown.NONE)
        numbers, lock.refused = survey.numbers[view.item.receiver], outbox.problems
        lock.paused, taken = numbers.paused, busy(numbers, view.item)
        lock.row = Row.of(view, survey.now, paused=lock.paused, busy=taken, outbox=waiting)
        lock.seen = was or lock.row.seen
        locks.append(lock)
    return locks
