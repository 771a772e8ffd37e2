"""The part of the store that drains use: what is ripe is named, claimed and given back."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from redis.exceptions import ResponseError

from . import conf
from .connection import Call, text
from .exceptions import NewerRecord
from .namespace import Lane
from .records import Grant, Item, clock, new_token
from .tending import Tending

logger = logging.getLogger("django_recheck")


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, rounded up so that a wait is never shortened to nothing."""
    return -int(-seconds * 1000 // 1)


def backoff(options: conf.Options) -> tuple[int, int]:
    """First and longest backoff in ms, spread by one factor so that retries don't meet."""
    spread = 1 - secrets.randbelow(251) / 1000
    first, longest = options.backoff
    return milliseconds(first * spread), milliseconds(longest * spread)


def tell_broken(item: Item) -> None:
    names = {"receiver": item.receiver, "key": item.text}
    text = "%s %s: its record was broken and gave way to a new event: a pass follows"
    logger.error(text, *names.values(), extra=names)


class Claims(Tending):
    """How a drain gets its items; see ``Store``."""

    def peek(
        self,
        receivers: Iterable[str],
        limit: int,
        put_off: float,
        concurrency: Mapping[str, int | None] = MappingProxyType({}),
    ) -> tuple[list[Item], dict[str, str]]:
        """Name items that are ripe, or whose lease is over. One round trip for all lanes.

        Args:
            receivers: Names of the receivers to look at.
            limit: Most items of one lane.
            put_off: Seconds for which other workers don't see them.
            concurrency: How many items of a receiver may run at once; no more are named than have
                a place. None, or a receiver that isn't there, for any number.

        Returns:
            The items, and for a receiver whose keys can't be read why. A name that is no text was
            written by nobody here; its item is thrown away, and told there.
        """
        lanes = list(self.lanes(receivers))
        calls: list[Call] = []
        for lane in lanes:
            places = self.places(lane, concurrency.get(lane.receiver))
            calls.append((lane.keys, (lane.receiver, "", limit, milliseconds(put_off), places)))
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

    def give_back(self, items: Sequence[Item]) -> None:
        """Let everybody see items again that ``peek`` has put off, but for lapsed leases.

        Where an item stands elsewhere by now it stays there; ``claim`` looks whether it is ripe.
        """
        now = int(self.now() * 1000)
        named = ((self.lane_of(item).keys[2], item.text) for item in items)
        self.ask(*(("ZADD", due, "XX", "LT", now, text) for due, text in named), raising=False)
        self.hint()

    def _throw_away(self, lane: Lane, name: bytes) -> None:
        indexes = (("ZREM", key, name) for key in lane.keys[1:4])
        self.ask(*indexes, ("HDEL", lane.keys[0], name), raising=False)

    def claim(self, item: Item, options: conf.Options) -> Grant | str:
        """Take an item that is ripe or whose holder died; see ``claim_many``."""
        (claimed,) = self.claim_many([(item, options)])
        if isinstance(claimed, Exception):
            raise claimed
        return claimed

    def claim_many(
        self, wanted: Sequence[tuple[Item, conf.Options]]
    ) -> list[Grant | str | Exception]:
        """Take items that are ripe or whose holder died. One round trip for all.

        Args:
            wanted: Items, each with its receiver's settings.

        Returns:
            For each the grant, or ``"HELD"``, ``"LATER"``, ``"DONE"``, ``"DEAD"``, ``"MISSING"``,
            ``"BROKEN"``, or why it can't be used: a ``ResponseError``, a ``NewerRecord``.
        """
        sent, tokens, calls = clock(), [new_token() for _ in wanted], list[Call]()
        for token, (item, options) in zip(tokens, wanted, strict=True):
            args = (
                *(item.receiver, item.text, token),
                milliseconds(options.ttl),
                options.max_attempts,
                *backoff(options),
                self.places(self.lane_of(item), options.concurrency),
            )
            calls.append((self.keys_of(item), args))
        found: list[Grant | str | Exception] = []
        replies = self.call_many("claim", calls, raising=False)
        for token, (item, options), reply in zip(tokens, wanted, replies, strict=True):
            try:
                refused = isinstance(reply, ResponseError)
                deadline = sent + options.ttl
                found.append(reply if refused else self._granted(item, token, deadline, reply))
            except NewerRecord as error:
                found.append(error)
        return found

    def unbegun(self, grants: Sequence[Grant]) -> list[Grant]:
        """Give back items that were claimed and not begun: nothing was tried. One round trip.

        Returns:
            Those that aren't the caller's any more. Each needs a pass, as if it had been lost.
        """
        ours, calls = [grant for grant in grants if grant.ours], list[Call]()
        for grant in ours:
            which = grant.item.receiver, grant.item.text, grant.token, grant.fence, grant.number
            rest = ("unbegun", 0, 0, 0, 0, 0, "", 0, "", 0, 0, 0, self.hints)
            calls.append((self.keys_of(grant.item), (*which, *rest)))
        replies = self.call_many("finish", calls, raising=False)
        lost = []
        for grant, reply in zip(ours, replies, strict=True):
            if isinstance(reply, ResponseError):  # its lease ends, and a drain meets the same
                names = {"receiver": grant.item.receiver, "key": grant.item.text}
                said = "%s %s: couldn't be given back: %s"
                logger.error(said, *names.values(), reply, extra=names)
            elif text(reply[0]) == "LOST":
                lost.append(grant)
        return lost

    def _granted(self, item: Item, token: str, deadline: float, reply: list[Any]) -> Grant | str:
        word, *rest = reply
        if rest and rest[-1]:
            tell_broken(item)
        if len(rest) < 6:
            if text(word) == "NEWER":
                raise NewerRecord
            return text(word)
        fence, number, count, attempts, own, events, takeover, _ = rest
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
