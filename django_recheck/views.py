"""Read-only views of what Redis holds: counts, pages, one item. From indexes, never by SCAN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from .connection import text
from .exceptions import NewerRecord, RecordError
from .namespace import Lane
from .records import PAUSE, Item, Record, seen

if TYPE_CHECKING:
    from .store import Store

STATES = ("running", "due", "dead")
"""The indexes of a lane, by the names that their keys have."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many items of a receiver are in which state, and the oldest time owed."""

    running: int = 0
    due: int = 0
    dead: int = 0
    oldest_due: float | None = None
    """Server time in seconds at which the pass longest owed was due, None if there is none."""
    paused: bool = False
    """Whether a person lets its events wait."""
    problem: str = ""
    """Why some of it couldn't be read."""

    def __add__(self, other: Counts) -> Counts:
        times = [t for t in (self.oldest_due, other.oldest_due) if t is not None]
        return Counts(
            self.running + other.running,
            self.due + other.due,
            self.dead + other.dead,
            min(times, default=None),
            self.paused or other.paused,
            self.problem or other.problem,
        )


@dataclass(frozen=True, slots=True)
class View:
    """One item as it stands in Redis."""

    item: Item
    state: str
    """``"running"``, ``"due"``, ``"dead"`` or ``"idle"``."""
    score: float | None
    """Server time in seconds: end of the lease, when a pass is owed, or when it was given up."""
    record: Record | None
    problem: str
    """Why there is no record although there is something: broken, another version's, no hash."""
    newer: bool
    """Whether the record is of a newer version, which leaves it alone."""
    holder: str | None
    """The owner token in the lock."""
    lease_left: float | None
    """Seconds until the lock ends."""
    seen: str
    """What ``Store.release``, ``retry`` and ``discard`` compare before they act."""


def receivers(store: Store) -> list[str]:
    """Return the names of all receivers of which Redis holds an item, known here or not."""
    replies = store.ask(*(("SMEMBERS", lane.keys[4]) for lane in store.lanes([""])))
    return sorted({text(name) for reply in replies for name in reply})


def counts(store: Store, names: Sequence[str] = ()) -> dict[str, Counts]:
    """Count the items of some receivers, by default of all that have any, in two round trips."""
    lanes = list(store.lanes(names or receivers(store)))
    commands = [
        command
        for lane in lanes
        for command in (
            *(("ZCARD", key) for key in lane.keys[1:4]),
            ("ZRANGE", lane.keys[2], 0, 0, "WITHSCORES"),
            ("HEXISTS", lane.keys[0], PAUSE),
        )
    ]
    replies = store.ask(*commands, raising=False) if lanes else []
    found: dict[str, Counts] = {}
    for index, lane in enumerate(lanes):
        part = replies[5 * index : 5 * index + 5]
        problem = next((str(reply) for reply in part if isinstance(reply, Exception)), "")
        running, due, dead, oldest, paused = (None if isinstance(r, Exception) else r for r in part)
        since = oldest[0][1] / 1000 if oldest else None
        counted = Counts(running or 0, due or 0, dead or 0, since, bool(paused), problem)
        found[lane.receiver] = found.get(lane.receiver, Counts()) + counted
    return found


def page(store: Store, receiver: str, state: str, start: int = 0, size: int = 100) -> list[View]:
    """Return a page of a receiver's items in one state, in the order of its index.

    Args:
        store: Where to look.
        receiver: The receiver's name.
        state: One of ``STATES``.
        start: How many items to pass over.
        size: Most items to return.
    """
    lanes, part = list(store.lanes([receiver])), Part(state, start, size)
    replies = store.ask(*(part.of(lane, alone=len(lanes) == 1) for lane in lanes), raising=False)
    return items(store, part.merged(lanes, replies))


@dataclass(frozen=True, slots=True)
class Part:
    """Some items of one state, in the order of its index."""

    state: str
    """One of ``STATES``, or ``"pending"`` or ``"later"``: what of ``due`` is owed by now, or isn't.

    The second is the end of its index: it must be read with ``newest``.
    """
    start: int = 0
    size: int = 100
    """Most items, at least 1."""
    newest: bool = False
    """Whether the highest times come first."""

    def of(self, lane: Lane, *, alone: bool) -> Sequence[Any]:
        """Return the command that reads what a lane adds to it.

        Of several lanes none knows what the others have before its own: their names are read from
        the first one on.
        """
        first, last = self.start if alone else 0, self.start + self.size - 1
        order = ["REV"] if self.newest else []
        index = self.state if self.state in STATES else "due"
        return ("ZRANGE", lane.keys[1 + STATES.index(index)], first, last, *order, "WITHSCORES")

    def merged(self, lanes: Sequence[Lane], replies: Sequence[Any], now: float = 0) -> list[Item]:
        """Return the items that the lanes' replies name, at a time in seconds by the server."""
        scored = [
            (score, Item(lane.receiver, text(name)))
            for lane, reply in zip(lanes, replies, strict=True)
            if not isinstance(reply, Exception)
            for name, score in reply
            if self.state in STATES or (score > now * 1000) is (self.state == "later")
        ]
        scored.sort(key=lambda pair: pair[0], reverse=self.newest)
        first = self.start if len(lanes) > 1 else 0
        return [item for _, item in scored[first : first + self.size]]


def ahead(store: Store, names: Sequence[str], since: float) -> tuple[float, float]:
    """Return in how many seconds a pass is next owed or a lease over, and what time it is.

    What stands there since earlier isn't looked at: it may be paused. One round trip.

    Args:
        store: Where to look.
        names: The receivers to look at.
        since: Server time in seconds.

    Returns:
        Seconds, infinitely many if nothing is ahead, and the server's time.
    """
    indexes = [key for lane in store.lanes(names) for key in lane.keys[1:3]]
    span = (f"({int(since * 1000)}", "+inf", "BYSCORE", "LIMIT", 0, 1, "WITHSCORES")
    asked = (("TIME",), *(("ZRANGE", key, *span) for key in indexes))
    (seconds, micros), *replies = store.ask(*asked, raising=False)
    now = seconds + micros / 1e6
    times = (score / 1000 for r in replies if not isinstance(r, Exception) for _, score in r)
    return min(times, default=float("inf")) - now, now


def by(size: int, replies: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield replies in groups."""
    rest = iter(replies)
    while part := list(islice(rest, size)):
        yield part


def items(store: Store, wanted: Sequence[Item]) -> list[View]:
    """Look items up directly. One round trip."""
    commands = [command for item in wanted for command in looking(store, item)]
    replies = by(6, store.ask(*commands, raising=False) if wanted else [])
    return [view_of(item, part) for item, part in zip(wanted, replies, strict=True)]


def looking(store: Store, item: Item) -> Iterator[Sequence[Any]]:
    """Yield the six commands that look one item up."""
    lane, lock = store.lane_of(item), store.lane_of(item).lock(item)
    yield ("HGET", lane.keys[0], item.text)
    yield from (("ZSCORE", key, item.text) for key in lane.keys[1:4])
    yield from (("GET", lock), ("PTTL", lock))


def view_of(item: Item, replies: Sequence[Any]) -> View:
    """Return what the replies to ``looking`` say."""
    problem = next((str(reply) for reply in replies if isinstance(reply, Exception)), "")
    stored, *scored, lock, ttl = (None if isinstance(r, Exception) else r for r in replies)
    record, newer = None, False
    if stored is not None:
        try:
            record = Record.parse(stored)
        except RecordError as error:
            problem, newer = str(error), isinstance(error, NewerRecord)
    scores = dict(zip(STATES, scored, strict=True))
    state = next((name for name in STATES if scores[name] is not None), "idle")
    score = scores.get(state)
    return View(
        item=item,
        state=state,
        score=None if score is None else score / 1000,
        record=record,
        problem=problem,
        newer=newer,
        holder=text(lock) if lock is not None else None,
        lease_left=ttl / 1000 if ttl is not None and ttl >= 0 else None,
        seen=seen(stored, lock, running=scores["running"] is not None),
    )
