"""The names of all Redis keys: prefixes, shards, lanes, locks."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .records import Item


@dataclass(frozen=True, slots=True)
class Lane:
    """The Redis keys of one receiver in one shard."""

    receiver: str
    tag: str
    shard: int = 0

    @property
    def keys(self) -> tuple[str, ...]:
        """state, running, due, dead, lanes: the order of KEYS in the scripts."""
        return _keys(self.tag, self.receiver)

    @property
    def minutes(self) -> str:
        """The key of its shard's events and passes of the last hour."""
        return f"{self.tag}:minutes"

    def lock(self, item: Item) -> str:
        """Return the lock key of an item."""
        return f"{self.tag}:lock:{self.receiver}:{item.text}"


@functools.lru_cache(1024)
def _keys(tag: str, receiver: str) -> tuple[str, ...]:
    named = (f"{tag}:{kind}:{receiver}" for kind in ("state", "running", "due", "dead"))
    return (*named, f"{tag}:lanes")


@functools.lru_cache(1024)
def _lane(base: str, receiver: str, shard: int) -> Lane:
    return Lane(receiver, f"{{{base}:{shard}}}", shard)


class Namespace:
    """The keys under one prefix.

    Args:
        base: The cache's KEY_PREFIX and ``RECHECK["PREFIX"]``.
        shards: How many hash tags the items are spread over.
    """

    def __init__(self, base: str, shards: int) -> None:
        self.base = base
        self.shards = shards
        self.meta = f"{base}:meta"
        self.hints = f"{base}:hints"
        """The channel on which those who watch are told that a pass is owed; no key."""

    def lane(self, receiver: str, shard: int) -> Lane:
        """Return the lane of a receiver in one shard."""
        return _lane(self.base, receiver, shard)

    def lane_of(self, item: Item) -> Lane:
        """Return the lane that an item lives in."""
        return self.lane(item.receiver, zlib.crc32(item.text.encode()) % self.shards)

    def places(self, lane: Lane, concurrency: int | None) -> int:
        """Return how many items of a lane may run at once: its shard's share of CONCURRENCY.

        No script sees two shards, so each has places of its own.

        Args:
            lane: A lane of the receiver.
            concurrency: The receiver's setting.

        Returns:
            At least 1, or 0 for any number.
        """
        if concurrency is None:
            return 0
        least, more = divmod(concurrency, self.shards)
        return max(1, least + (lane.shard < more))

    def keys_of(self, item: Item) -> tuple[str, ...]:
        """Return its lane's keys, lock, fence and minutes: the KEYS of scripts for one item."""
        lane = self.lane_of(item)
        return (*lane.keys, lane.lock(item), f"{lane.tag}:fence", lane.minutes)

    def lanes(self, receivers: Iterable[str]) -> Iterator[Lane]:
        """Return all lanes of some receivers."""
        return (self.lane(name, shard) for name in receivers for shard in range(self.shards))
