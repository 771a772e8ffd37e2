"""Read-only views of what Redis holds: counts, pages, one item. From indexes, never by SCAN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .connection import text
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
    holder: str | None
    """The owner token in the lock."""
    lease_left: float | None
    """Seconds until the lock ends."""


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
            ("HEXISTS", lane.keys[0], "paused"),
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
        start: How many items to pass over, in each shard.
        size: Most items to return.
    """
    number = 1 + STATES.index(state)
    keys = [lane.keys[number] for lane in store.lanes([receiver])]
    ranges = (("ZRANGE", key, start, start + size - 1, "WITHSCORES") for key in keys)
    replies = store.ask(*ranges, raising=False)
    scored = [pair for reply in replies if not isinstance(reply, Exception) for pair in reply]
    names = [text(name) for name, _ in sorted(scored, key=lambda pair: pair[1])[:size]]
    return items(store, [Item(receiver, name) for name in names])


def items(store: Store, wanted: Sequence[Item]) -> list[View]:
    """Look items up directly. One round trip."""
    commands: list[Sequence[Any]] = []
    for item in wanted:
        lane = store.lane_of(item)
        commands.append(("HGET", lane.keys[0], item.text))
        commands += [("ZSCORE", key, item.text) for key in lane.keys[1:4]]
        commands += [("GET", lane.lock(item)), ("PTTL", lane.lock(item))]
    replies = store.ask(*commands, raising=False) if wanted else []
    return [_view(item, replies[6 * i : 6 * i + 6]) for i, item in enumerate(wanted)]


def _view(item: Item, replies: Sequence[Any]) -> View:
    problem = next((str(reply) for reply in replies if isinstance(reply, Exception)), "")
    stored, *scored, lock, ttl = (None if isinstance(r, Exception) else r for r in replies)
    record = None
    if stored is not None:
        try:
            record = Record.parse(stored)
        except RecordError as error:
            problem = str(error)
    scores = dict(zip(STATES, scored, strict=True))
    state = next((name for name in STATES if scores[name] is not None), "idle")
    score = scores.get(state)
    return View(
        item=item,
        state=state,
        score=None if score is None else score / 1000,
        record=record,
        problem=problem,
        holder=text(lock) if lock is not None else None,
        lease_left=ttl / 1000 if ttl is not None and ttl >= 0 else None,
    )
