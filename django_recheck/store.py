"""The only module that talks to Redis: one method an operation, one Lua script behind each.

What the scripts promise stands in their heads; ``docs/explanation/protocol.md`` puts it together.
Receivers, transactions and policies are the neighbours' business.
"""

from __future__ import annotations

import functools
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import ResponseError

from . import conf
from .connection import Call, text
from .exceptions import NewerRecord
from .meta import Meta
from .namespace import Lane
from .records import Grant, Item, clock, new_token

CHUNK: Final = 200
"""Items or leases that one call carries: cheap, and yet it doesn't hold the server up."""


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, rounded up so that a wait is never shortened to nothing."""
    return -int(-seconds * 1000 // 1)


@dataclass(frozen=True, slots=True)
class Entry:
    """Events of one item on their way to Redis."""

    item: Item
    count: int
    events: bytes
    options: conf.Options


def _chunks(indexes: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(indexes), CHUNK):
        yield indexes[start : start + CHUNK]


class Store(Meta):
    """One namespace in one Redis."""

    def _one(self, name: str, item: Item, args: Sequence[Any]) -> tuple[Any, bool]:
        lane = self.lane_of(item)
        keys = (*lane.keys, lane.lock(item), f"{lane.tag}:fence")
        return self.call(name, keys, (item.receiver, item.text, *args))

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
            *_backoff(options),
            options.max_attempts,
        )
        reply, _ = self._one("request", item, args)
        return self._granted(item, token, sent + options.ttl, reply)

    def claim(self, item: Item, options: conf.Options) -> Grant | str:
        """Take an item that is ripe or whose holder died. One round trip.

        Returns:
            The grant, or ``"HELD"``, ``"LATER"``, ``"DONE"``, ``"DEAD"``, ``"MISSING"``,
            ``"BROKEN"``.
        """
        token, sent = new_token(), clock()
        args = (
            token,
            milliseconds(options.ttl),
            options.max_attempts,
            *_backoff(options),
        )
        reply, _ = self._one("claim", item, args)
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
                *_backoff(options),
                error,
                *own,
                *delays,
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
        lanes: dict[Lane, list[int]] = defaultdict(list)
        for index, entry in enumerate(entries):
            lanes[self.lane_of(entry.item)].append(index)
        chunks = [(lane, part) for lane, found in lanes.items() for part in _chunks(found)]
        calls: list[Call] = []
        for lane, part in chunks:
            options = entries[part[0]].options
            args = [
                lane.receiver,
                "",
                *map(milliseconds, (options.delay, options.max_wait)),
            ]
            for entry in map(entries.__getitem__, part):
                args += [entry.item.text, entry.count, entry.events]
            calls.append((lane.keys, args))
        words: list[str | Exception] = [""] * len(entries)
        replies = self.call_many("enqueue", calls, raising=False)
        for (_, part), reply in zip(chunks, replies, strict=True):
            refused = isinstance(reply, ResponseError)
            for at, index in enumerate(part):
                words[index] = reply if refused else text(reply[at])
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

    def peek(
        self, receivers: Iterable[str], limit: int, put_off: float
    ) -> tuple[list[Item], dict[str, str]]:
        """Name items that are ripe, or whose lease is over. One round trip for all lanes.

        Args:
            receivers: Names of the receivers to look at.
            limit: Most items of one lane.
            put_off: Seconds for which other workers don't see them.

        Returns:
            The items, and for a receiver whose keys can't be read why. A name that is no text was
            written by nobody here; its item is thrown away, and told there.
        """
        lanes = list(self.lanes(receivers))
        calls = [(lane.keys, (lane.receiver, "", limit, milliseconds(put_off))) for lane in lanes]
        found, problems = [], {}
        replies = self.call_many("peek", calls, raising=False)
        for lane, reply in zip(lanes, replies, strict=True):
            if isinstance(reply, ResponseError):
                problems[lane.receiver] = f"its keys in Redis can't be read: {reply}"
                continue
            for name in reply:
                try:
                    found.append(Item(lane.receiver, name.decode()))
                except UnicodeDecodeError:
                    self._throw_away(lane, name)
                    problems[lane.receiver] = f"the item {name!r} is no text, and was thrown away"
        return found, problems

    def pause(self, receivers: Iterable[str], *, paused: bool = True) -> bool:
        """Let events of some receivers be recorded and wait, or let them go on. One round trip.

        Args:
            receivers: Their names, former ones too.
            paused: False lets them go on.

        Returns:
            Whether that changed something.
        """
        calls = [(lane.keys, (lane.receiver, "", int(paused))) for lane in self.lanes(receivers)]
        return any(self.call_many("pause", calls))

    def _throw_away(self, lane: Lane, name: bytes) -> None:
        indexes = (("ZREM", key, name) for key in lane.keys[1:4])
        self.ask(*indexes, ("HDEL", lane.keys[0], name), raising=False)

    def _granted(self, item: Item, token: str, deadline: float, reply: list[Any]) -> Grant | str:
        word, *rest = reply
        if len(rest) < 6:
            if text(word) == "NEWER":
                raise NewerRecord
            return text(word)
        fence, number, count, attempts, own, events, takeover = rest
        counts = (int(number), int(count), int(attempts))
        return Grant(
            item,
            token,
            text(fence),
            *counts,
            bool(own),
            events,
            bool(takeover),
            deadline,
        )


def _backoff(options: conf.Options) -> tuple[int, int]:
    """First and longest backoff in ms, spread by one factor so that retries don't meet."""
    spread = 1 - secrets.randbelow(251) / 1000
    first, longest = options.backoff
    return milliseconds(first * spread), milliseconds(longest * spread)


@functools.lru_cache(maxsize=64)
def _store(alias: str, prefix: str, shards: int) -> Store:
    return Store(alias, prefix, shards)


def current() -> Store:
    """Return the store that the settings name now."""
    return _store(conf.get("CACHE"), conf.get("PREFIX"), conf.get("SHARDS"))


def forget() -> None:
    """Forget the stores that were used: for tests, and where a server was replaced."""
    _store.cache_clear()
