"""While Redis is away: leave it alone for a while, run unlocked, remember what is owed.

A save never breaks for it unless ``ON_REDIS_ERROR`` is ``"raise"``.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from django.core.exceptions import ImproperlyConfigured
from redis.exceptions import RedisError, ResponseError

from . import conf
from .events import Events
from .exceptions import RecordError, RedisAway
from .records import Item

if TYPE_CHECKING:
    from .receivers import Receiver

logger = logging.getLogger("django_recheck")

MOST_OWED: Final = 10_000
"""Items that a process remembers for the time when Redis is back."""

FAULTS: Final = (RedisError, RecordError, OSError, ImproperlyConfigured)
"""What asking Redis may raise: it is away, or what it holds can't be used, by this SHARDS, say."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ready:
    """An item's events, committed and merged: what is to be delivered."""

    receiver: Receiver[..., Any]
    item: Item
    events: Events

    def after(self, older: Ready | None) -> Ready:
        """Return this with older events of the same item merged in."""
        if older is None or older.events is self.events:
            return self
        return replace(self, events=self.events.after(older.events))


def merged(batch: Iterable[Ready]) -> list[Ready]:
    """Return a batch with each item once, its events merged in their order."""
    found: dict[Item, Ready] = {}
    for ready in batch:
        found[ready.item] = ready.after(found.get(ready.item))
    return list(found.values())


class _Breaker:
    """Opens at a failure, so that one hanging server doesn't cost every save its socket timeout."""

    def __init__(self) -> None:
        self._until = 0.0

    @property
    def open(self) -> bool:
        """Whether Redis is left alone just now."""
        return time.monotonic() < self._until

    @contextmanager
    def watch(self, *, asking: bool = False) -> Iterator[None]:
        """Open it if Redis fails meanwhile.

        Args:
            asking: Ask Redis although it is open: a hold must be given up if it can be.

        Raises:
            RedisAway: It is open.
        """
        if self.open and not asking:
            raise RedisAway("Redis failed a moment ago and is left alone for now.")
        try:
            yield
        except (RedisError, OSError) as error:
            if type(error) is ResponseError:
                raise  # it answers: what stands in its keys is wrong, not the server
            self._until = time.monotonic() + float(conf.get("BREAKER"))
            raise

    def close(self) -> None:
        self._until = 0.0


breaker = _Breaker()
_owed: dict[Item, Ready] = {}
_mutex = threading.Lock()


def guarded(ask: Callable[[], T]) -> T | Exception:
    """Ask Redis something unless it is left alone just now; return what went wrong, if it did."""
    try:
        with breaker.watch():
            return ask()
    except FAULTS as error:
        return error


class Telling:
    """While Redis is told of events: they are owed if that ends by Ctrl-C or a time limit, say.

    Args:
        batch: The events; looked at when it ends so.
    """

    __slots__ = ("batch",)

    def __init__(self, batch: Iterable[Ready]) -> None:
        self.batch = batch

    def __enter__(self) -> Telling:
        """Begin."""
        return self

    def done(self) -> None:
        """Say that Redis has taken or refused each, and that somebody cares for those."""
        self.batch = ()

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Owe what isn't told."""
        if kind is not None:
            for ready in list(self.batch):
                owe(ready)


def owe(ready: Ready) -> None:
    """Remember that an item needs one more pass under its lock; of too many the rest is told."""
    with _mutex:
        if ready.item in _owed or len(_owed) < MOST_OWED:
            _owed[ready.item] = ready.after(_owed.get(ready.item))
            return
    names = {"receiver": ready.receiver.name, "key": ready.item.text}
    text = "%s %s: its event is lost: Redis is away, and %d items are owed already"
    logger.error(text, *names.values(), MOST_OWED, extra=names)


def owing() -> list[Ready]:
    """Return what is owed."""
    with _mutex:
        return list(_owed.values())


def payable() -> bool:
    """Return whether something is owed and Redis isn't left alone: asked at every event."""
    return bool(_owed) and not breaker.open


def collect() -> list[Ready]:
    """Hand out what is owed, unless Redis is still left alone."""
    if not payable():
        return []
    with _mutex:
        owed = list(_owed.values())
        _owed.clear()
    return owed


def take(items: Iterable[Item]) -> list[Ready]:
    """Hand out what is owed of some items, whether or not Redis is left alone."""
    with _mutex:
        return [_owed.pop(item) for item in items if item in _owed]


def _forked() -> None:
    """Owe nothing in a child: the parent does, and the lock may be a lost thread's."""
    global _mutex
    _mutex = threading.Lock()
    _owed.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def forget() -> None:
    """Close the breaker and owe nothing: for tests."""
    breaker.close()
    with _mutex:
        _owed.clear()
