"""What Redis holds at one moment, of all receivers: numbers, and some items of each state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .connection import text
from .meta import digits
from .namespace import Lane
from .records import PAUSE, Item
from .views import Part, View, by, looking, view_of

if TYPE_CHECKING:
    from .store import Store

OVERDUE: Final = 300
"""Seconds that a pass may be owed, or a lease be over, before people are told of it."""


MINUTES: Final = 60
"""Minutes for which Redis keeps how many events came and how many passes began."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """How many items of a receiver are in which state at a moment."""

    running: int = 0
    lapsed: int = 0
    """Of those that run, how many have a lease that is over: they wait for a drain."""
    held: tuple[int, ...] = field(default=(), compare=False)
    """Of each shard, how many have a lease that isn't over."""
    pending: int = 0
    """A pass is owed now."""
    later: int = 0
    """A pass is owed later: after a delay, or after a failure."""
    dead: int = 0
    overdue: int = 0
    """Owed, or with a lease that is over, for more than ``OVERDUE`` seconds; 0 if paused."""
    oldest: float | None = None
    """Server time in seconds at which the pass longest owed was due, None if none is owed now."""
    paused: bool = False
    problem: str = ""
    """Why some of it couldn't be read."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What Redis holds at a moment, of each receiver, and some items of each state."""

    now: float
    """Server time in seconds."""
    drained: int | None
    """When a drain last came to its end, in seconds; None if none did."""
    numbers: dict[str, Numbers]
    """By receiver: those asked for, and with ``others`` also what else Redis holds."""
    parts: list[list[View]]
    """For each part that was asked for, the items. What has moved on meanwhile shows so."""
    items: list[View]
    """The items that were looked up directly."""
    minutes: list[tuple[int, int]]
    """Events that came and passes that began in each of the last ``MINUTES``, the oldest first.

    Of all receivers together, so only with ``others``; the last minute is this one, not over yet.
    An event is counted when Redis records it, a transaction's or a bulk call's of an item as one.
    """


def survey(
    store: Store,
    names: Iterable[str],
    parts: Sequence[Part] = (),
    *,
    items: Callable[[Sequence[str]], Iterable[Item]] | None = None,
    others: bool = True,
) -> Survey:
    """Count what receivers have, and read some of it.

    Two round trips; a third one where Redis holds items of receivers that weren't named.

    Args:
        store: Where to look.
        names: The receivers that are known to be there, or may be.
        parts: Which items to read, of all these receivers together.
        items: Gets the receivers' names, and returns items to look up directly.
        others: Whether to look for further receivers.
    """
    lanes = list(store.lanes(dict.fromkeys(names)))
    shards = list(store.lanes([""])) if others else []
    sets = [("SMEMBERS", lane.keys[4]) for lane in shards]
    counters = [("HGETALL", lane.minutes) for lane in shards]
    ranges = [part.of(lane, alone=len(lanes) == 1) for part in parts for lane in lanes]
    first = ("TIME",), ("HGET", store.meta, "drained"), *sets, *counters, *ranges
    (seconds, micros), drained, *replies = store.ask(*first, raising=False)
    now = seconds + micros / 1e6
    listed, replies = replies[: len(sets)], replies[len(sets) :]
    counted, replies = replies[: len(counters)], replies[len(counters) :]
    minutes = _minutes(counted, seconds // 60) if others else []
    told = {text(n) for reply in listed if not isinstance(reply, Exception) for n in reply}
    if more := sorted(told - {lane.receiver for lane in lanes}):
        lanes += store.lanes(more)
        ranges = [part.of(lane, alone=False) for part in parts for lane in lanes]
        replies = store.ask(*ranges, raising=False) if ranges else []
    wanted = [
        part.merged(lanes, replies[i * len(lanes) : (i + 1) * len(lanes)], now)
        for i, part in enumerate(parts)
    ]
    direct = items(list(dict.fromkeys(lane.receiver for lane in lanes))) if items else ()
    wanted.append(list(direct))
    counting = [command for lane in lanes for command in _counting(lane, now)]
    asked = [command for each in wanted for item in each for command in looking(store, item)]
    replies = store.ask(*counting, *asked, raising=False) if counting or asked else []
    numbers: dict[str, Numbers] = {}
    for lane, part in zip(lanes, by(9, replies[: len(counting)]), strict=True):
        numbers[lane.receiver] = _added(numbers.get(lane.receiver), part)
    found = by(6, replies[len(counting) :])
    shown = [[view_of(item, next(found)) for item in each] for each in wanted]
    last = None if isinstance(drained, Exception) else digits(text(drained)) or None
    return Survey(now, last, numbers, shown[:-1], shown[-1], minutes)


def _minutes(replies: Sequence[Any], this: int) -> list[tuple[int, int]]:
    """Return events and passes of each minute up to this one, of all shards together."""
    shards = [reply for reply in replies if isinstance(reply, dict)]
    summed: Counter[str] = Counter()
    for shard in shards:
        summed.update({text(name): digits(text(number)) for name, number in shard.items()})
    span = range(this - MINUTES + 1, this + 1)
    return [(summed[f"{minute}e"], summed[f"{minute}p"]) for minute in span]


def _counting(lane: Lane, now: float) -> Iterator[Sequence[Any]]:
    """Yield the nine commands that count a lane's items."""
    state, running, due, dead, _ = lane.keys
    this, late = f"{now * 1000:.0f}", f"{(now - OVERDUE) * 1000:.0f}"
    yield from (("ZCARD", key) for key in (running, due, dead))
    for moment in (this, late):
        yield from (("ZCOUNT", key, "-inf", moment) for key in (running, due))
    yield ("ZRANGE", due, 0, 0, "WITHSCORES")
    yield ("HEXISTS", state, PAUSE)


def _added(before: Numbers | None, replies: Sequence[Any]) -> Numbers:
    """Return a receiver's numbers with those of one more lane of its."""
    before = before or Numbers()
    problem = next((str(reply) for reply in replies if isinstance(reply, Exception)), "")
    counted: list[Any] = [0 if isinstance(reply, Exception) else reply for reply in replies]
    running, due, dead, lapsed, ripe, long_over, long_owed, oldest, paused = counted
    paused = bool(paused) or before.paused
    times = [t for t in (before.oldest, oldest[0][1] / 1000 if oldest and ripe else None) if t]
    return Numbers(
        running=before.running + running,
        lapsed=before.lapsed + lapsed,
        held=(*before.held, running - lapsed),
        pending=before.pending + ripe,
        later=before.later + max(0, due - ripe),
        dead=before.dead + dead,
        overdue=0 if paused else before.overdue + long_over + long_owed,
        oldest=min(times, default=None),
        paused=paused,
        problem=before.problem or problem,
    )
