"""The names of all Redis keys: prefixes, shards, lanes, locks."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .records import Item


@dataclass(frozen=True, slots=True)
class Lane:
    """The Redis keys of one receiver in one shard."""

    receiver: str
    tag: str

    @property
    def keys(self) -> tuple[str, ...]:
        """state, running, due, dead, lanes: the order of KEYS in the scripts."""
        named = (
            f"{self.tag}:{kind}:{self.receiver}" for kind in ("state", "running", "due", "dead")
        )
        return (*named, f"{self.tag}:lanes")

    def lock(self, item: Item) -> str:
        """Return the lock key of an item."""
        return f"{self.tag}:lock:{self.receiver}:{item.text}"


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

    def lane(self, receiver: str, shard: int) -> Lane:
        """Return the lane of a receiver in one shard."""
        return Lane(receiver, f"{{{self.base}:{shard}}}")

    def lane_of(self, item: Item) -> Lane:
        """Return the lane that an item lives in."""
        return self.lane(item.receiver, zlib.crc32(item.text.encode()) % self.shards)

    def lanes(self, receivers: Iterable[str]) -> Iterator[Lane]:
        """Return all lanes of some receivers."""
        return (self.lane(name, shard) for name in receivers for shard in range(self.shards))
