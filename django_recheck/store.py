"""The only module that talks to Redis: one method an operation, one Lua script behind each.

What the scripts promise stands in their heads; ``docs/explanation/protocol.md`` puts it together.
Receivers, transactions and policies are the neighbours' business.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import ResponseError

from . import conf
from .claims import Claims, backoff, milliseconds, tell_broken
from .connection import Call, text
from .namespace import Lane
from .records import Grant, Item, clock, new_token

logger = logging.getLogger("django_recheck")

CHUNK: Final = 200
"""Items or leases that one call carries: cheap, and yet it doesn't hold the server up."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Events of one item on their way to Redis."""

    item: Item
    count: int
    events: bytes
    options: conf.Options
    delay: float = 0.0
    """Seconds that it waits, beside DELAY."""
    here: bool = False
    """Whether the caller runs it itself: who watches isn't told of it."""


def _chunks(indexes: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(indexes), CHUNK):
        yield indexes[start : start + CHUNK]


class Store(Claims):
    """One namespace in one Redis."""

    def _one(self, name: str, item: Item, args: Sequence[Any]) -> tuple[Any, bool]:
        return self.call(name, self.keys_of(item), (item.receiver, item.text, *args))

    def request(
        self,
        item: Item,
        events: bytes,
        count: int,
        options: conf.Options,
        *,
        heal: int = 0,
    ) -> Grant | str:
        """Acquire the item's lock for its events, or flag its holder. One round trip.

        Args:
            item: What the lock is about.
            events: The events, packed.
            count: How many they are.
            options: The receiver's settings.
            heal: Of a holder whose lease is gone: the attempts there were at least, this one
                included. From the second on it only asks for a pass, and acquires nothing.

        Returns:
            The grant, or ``"COALESCED"``, ``"PENDING"``, and for a heal ``"DEAD"``, ``"LATER"``.
        """
        token, sent = new_token(), clock()
        args = (
            token,
            milliseconds(options.ttl),
            count,
            events,
            heal,
            *backoff(options),
            options.max_attempts,
            self.places(self.lane_of(item), options.concurrency),
        )
        reply, _ = self._one("request", item, args)
        return self._granted(item, token, sent + options.ttl, reply)

    def finish(
        self,
        grant: Grant,
        outcome: str,
        options: conf.Options,
        *,
        last: bool = False,
        error: str = "",
        own: tuple[int, bytes] = (0, b""),
    ) -> tuple[Grant | str, bool]:
        """End a pass: go again, or give the lock up. One round trip.

        Args:
            grant: The pass's grant.
            outcome: ``"ok"``, ``"failed"``, or ``"back"`` for a pass that was interrupted.
            options: The receiver's settings.
            last: Whether the hold must end here.
            error: What the receiver raised.
            own: Count and events of the item that the pass itself caused.

        Returns:
            The grant of the next pass or a word, and whether the command was sent twice.
        """
        if not grant.ours:
            return "LOST", False
        sent = clock()
        delays = (milliseconds(options.delay), milliseconds(options.max_wait))
        places = self.places(self.lane_of(grant.item), options.concurrency)
        args = (
            *(
                grant.token,
                grant.fence,
                grant.number,
                outcome,
                milliseconds(options.ttl),
            ),
            *(
                int(last),
                options.max_attempts,
                *backoff(options),
                error,
                *own,
                *delays,
                places,
                self.hints if places else "",
            ),
        )
        reply, resent = self._one("finish", grant.item, args)
        return self._granted(grant.item, grant.token, sent + options.ttl, reply), resent

    def enqueue(self, entries: Sequence[Entry]) -> list[str | Exception]:
        """Record events without acquiring: all in one round trip, a script for every 200 of a lane.

        Returns:
            ``"COALESCED"``, ``"PENDING"`` or ``"NEWER"`` for each entry, or why its lane can't be
            written.
        """
        lanes: dict[tuple[Lane, conf.Options, float, bool], list[int]] = defaultdict(list)
        for index, entry in enumerate(entries):
            alike = self.lane_of(entry.item), entry.options, entry.delay, entry.here
            lanes[alike].append(index)
        chunks = [(*lane, part) for lane, found in lanes.items() for part in _chunks(found)]
        calls: list[Call] = []
        for lane, options, delay, here, part in chunks:
            waits = (options.delay + delay, options.max_wait + delay)
            args = [lane.receiver, "" if here else self.hints, *map(milliseconds, waits)]
            for entry in map(entries.__getitem__, part):
                args += [entry.item.text, entry.count, entry.events]
            calls.append(((*lane.keys, lane.minutes), args))
        words: list[str | Exception] = [""] * len(entries)
        replies = self.call_many("enqueue", calls, raising=False)
        for (*_, part), reply in zip(chunks, replies, strict=True):
            refused = isinstance(reply, ResponseError)
            for at, index in enumerate(part):
                words[index] = reply if refused else text(reply[at]).rstrip("!")
                if not refused and reply[at].endswith(b"!"):
                    tell_broken(entries[index].item)
        return words

    def renew(self, grants: Sequence[Grant], leases: Sequence[float]) -> list[bool]:
        """Extend leases, in seconds from now. One round trip for every 200 a shard.

        Returns:
            For each grant whether it is still its holder's.
        """
        shards: dict[str, list[int]] = defaultdict(list)
        for index, grant in enumerate(grants):
            if grant.ours:
                shards[self.lane_of(grant.item).tag].append(index)
        chunks = [part for found in shards.values() for part in _chunks(found)]
        calls: list[Call] = []
        for chunk in chunks:
            keys: list[str] = []
            args: list[Any] = []
            for index in chunk:
                grant, lane = grants[index], self.lane_of(grants[index].item)
                keys += [lane.lock(grant.item), *lane.keys[:2]]
                args += [
                    grant.item.text,
                    grant.token,
                    grant.fence,
                    milliseconds(leases[index]),
                ]
            calls.append((keys, args))
        sent, ours = clock(), [False] * len(grants)
        for chunk, reply in zip(chunks, self.call_many("renew", calls), strict=True):
            for index, mine in zip(chunk, reply, strict=True):
                ours[index] = bool(mine)
                if mine:
                    grants[index].deadline = sent + leases[index]
        return ours


_stores: dict[tuple[str, str, int], Store] = {}


def current() -> Store:
    """Return the store that the settings name now."""
    named = (conf.get("CACHE"), conf.get("PREFIX"), conf.get("SHARDS"))
    return _stores.get(named) or _stores.setdefault(named, Store(*named))


def used(prefix: str) -> list[Store]:
    """Return the stores under a ``PREFIX`` that this process has used."""
    return [store for named, store in _stores.items() if named[1] == prefix and store.known]


def forget() -> None:
    """Forget the stores that were used: for tests, and where a server was replaced."""
    _stores.clear()
