"""Read-only views of what Redis holds: counts, pages, one item. From indexes, never by SCAN."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .exceptions import RecordError
from .records import Item, Record

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

    def __add__(self, other: Counts) -> Counts:
        times = [t for t in (self.oldest_due, other.oldest_due) if t is not None]
        return Counts(
            self.running + other.running,
            self.due + other.due,
            self.dead + other.dead,
            min(times, default=None),
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
    """Why there is no record although there is something: broken, or another version's."""
    holder: str | None
    """The owner token in the lock."""
    lease_left: float | None
    """Seconds until the lock ends."""


def _names(replies: Iterable[Any]) -> list[str]:
    return sorted(n.decode("utf-8", "replace") if isinstance(n, bytes) else str(n) for n in replies)


def receivers(store: Store) -> list[str]:
    """Return the names of all receivers of which Redis holds an item, known here or not."""

    def ask(client: Any) -> list[Any]:
        with client.pipeline(transaction=False) as pipe:
            for lane in store.lanes([""]):
                pipe.smembers(lane.keys[4])
            return list(pipe.execute())

    return sorted({name for reply in store.send(ask)[0] for name in _names(reply)})


def counts(store: Store, names: Sequence[str] = ()) -> dict[str, Counts]:
    """Count the items of some receivers, by default of all that have any, in two round trips."""
    lanes = list(store.lanes(names or receivers(store)))

    def ask(client: Any) -> list[Any]:
        with client.pipeline(transaction=False) as pipe:
            for lane in lanes:
                for key in lane.keys[1:4]:
                    pipe.zcard(key)
                pipe.zrange(lane.keys[2], 0, 0, withscores=True)
            return list(pipe.execute())

    found: dict[str, Counts] = {}
    replies = store.send(ask)[0] if lanes else []
    for index, lane in enumerate(lanes):
        running, due, dead, oldest = replies[4 * index : 4 * index + 4]
        since = oldest[0][1] / 1000 if oldest else None
        counted = Counts(running, due, dead, since)
        found[lane.receiver] = found.get(lane.receiver, Counts()) + counted
    return found


def page(store: Store, receiver: str, state: str, start: int = 0, size: int = 100) -> list[View]:
    """Return a page of a receiver's items in one state, in the order of its index.

    Args:
        store: Where to look.
        receiver: The receiver's name.
        state: One of ``STATES``.
        start: How many items to pass over, in each shard.
        size: Most items to return.
    """
    number = 1 + STATES.index(state)
    lanes = list(store.lanes([receiver]))

    def ask(client: Any) -> list[Any]:
        with client.pipeline(transaction=False) as pipe:
            for lane in lanes:
                pipe.zrange(lane.keys[number], start, start + size - 1, withscores=True)
            return list(pipe.execute())

    scored = [(score, member) for reply in store.send(ask)[0] for member, score in reply]
    names = [_names([member])[0] for _, member in sorted(scored, key=lambda pair: pair[0])[:size]]
    return items(store, [Item(receiver, name) for name in names])


def items(store: Store, wanted: Sequence[Item]) -> list[View]:
    """Look items up directly. One round trip."""

    def ask(client: Any) -> list[Any]:
        with client.pipeline(transaction=False) as pipe:
            for item in wanted:
                lane = store.lane_of(item)
                pipe.hget(lane.keys[0], item.text)
                for key in lane.keys[1:4]:
                    pipe.zscore(key, item.text)
                pipe.get(lane.lock(item))
                pipe.pttl(lane.lock(item))
            return list(pipe.execute())

    replies = store.send(ask)[0] if wanted else []
    return [_view(item, *replies[6 * i : 6 * i + 6]) for i, item in enumerate(wanted)]


def _view(item: Item, text: Any, running: Any, due: Any, dead: Any, lock: Any, ttl: int) -> View:
    record, problem = None, ""
    if text is not None:
        try:
            record = Record.parse(text if isinstance(text, bytes) else str(text).encode())
        except RecordError as error:
            problem = str(error)
    scores = dict(zip(STATES, (running, due, dead), strict=True))
    state = next((name for name in STATES if scores[name] is not None), "idle")
    score = scores.get(state)
    return View(
        item=item,
        state=state,
        score=None if score is None else score / 1000,
        record=record,
        problem=problem,
        holder=_names([lock])[0] if lock is not None else None,
        lease_left=ttl / 1000 if ttl >= 0 else None,
    )


def last_drain(store: Store) -> float | None:
    """Return when a drain last came to its end, by the server's clock; None if none ever did."""
    found = store.send(lambda client: client.hget(store.meta, "drained"))[0]
    return None if found is None else float(found)
