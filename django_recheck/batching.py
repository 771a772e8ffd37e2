"""``batch()``: an import of many transactions says one word an item, at its end."""

from __future__ import annotations

import contextvars
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar, cast

from . import dispatch, outage
from .outage import Ready
from .outcome import Outcome
from .records import Item
from .runner import Ended

P = ParamSpec("P")
R = TypeVar("R")

LARGEST: Final = 10_000
"""Items that a batch keeps in memory. Beyond them it records what it has, and begins anew."""

_current: contextvars.ContextVar[_Batch | None] = contextvars.ContextVar(
    "recheck_batch", default=None
)


class _Batch(outage.Telling):
    """The committed events of a block, merged, until it ends."""

    def __init__(self) -> None:
        super().__init__(self)
        self._mutex = threading.Lock()
        self._pid = os.getpid()
        self._over = False
        self._ready: dict[Item, Ready] = {}

    def __exit__(self, *error: Any) -> None:
        """Take nothing more, whatever has struck."""
        self._over = True
        super().__exit__(*error)

    @property
    def open(self) -> bool:
        """Whether it takes events: not after its end, and not in a forked child."""
        return not self._over and self._pid == os.getpid()

    def take(self, batch: Sequence[Ready]) -> bool:
        """Take events along, unless it isn't open."""
        full: list[Ready] = []
        if not self.open:  # asked first: in a forked child the mutex may be a lost thread's
            return False
        with self._mutex:
            if self._over:
                return False
            for ready in batch:
                self._ready[ready.item] = ready.after(self._ready.get(ready.item))
            if len(self._ready) > LARGEST:
                full = list(self._ready.values())
                self._ready.clear()
        dispatch.record(full, raising=False)
        return True

    def __iter__(self) -> Iterator[Ready]:
        """Go through what it has taken; through nothing in a forked child."""
        return iter(list(self._ready.values()) if self._pid == os.getpid() else [])

    def end(self) -> list[Ready]:
        """End it, and give out what it has taken; nothing in a forked child."""
        if not self.open:
            return []
        with self._mutex:
            self._over = True
            return list(self._ready.values())


class batch:  # noqa: N801 - it is written as open() is
    """Deliver the events of many transactions at the end of a block, one for each item.

    Events of transactions that commit within the block, in its thread or its task and the tasks
    that this one starts, are merged as those of a single transaction are. Inside of another batch
    it does nothing: the outer one delivers. Also a decorator, of coroutine functions, too.

    If an exception leaves the block, what was committed is recorded, and left to a drain.
    A process that dies in the block takes the events along that it has not delivered yet.

    Raises:
        RedisError, NewerRecord: At its end: an event wasn't taken, and its receiver has
            ``on_redis_error="raise"``.
        Exception: At its end: what a receiver raised, with ``RAISE_EXCEPTIONS``.

    >>> from django_recheck import batch
    >>> with batch():
    ...     ...
    """

    def __enter__(self) -> None:
        """Begin."""
        self._block = _block()
        self._block.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        """Deliver, or record."""
        return self._block.__exit__(*error)

    def __call__(self, func: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function.

        Raises:
            TypeError: It is a generator function, whose caller would be in the batch, too.
        """
        if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
            raise TypeError(
                f"@batch() can't decorate {func.__qualname__}: a generator's block would also hold "
                "for its caller. Write `with batch():` around the loop that goes through it."
            )
        if inspect.iscoroutinefunction(func):

            @wraps(func)
            async def within(*args: P.args, **kwargs: P.kwargs) -> Any:
                with batch():
                    return await func(*args, **kwargs)

            return cast(Callable[P, R], within)

        @wraps(func)
        def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            with batch():
                return func(*args, **kwargs)

        return inside


@contextmanager
def _block() -> Iterator[None]:
    outer = _current.get()
    if outer and outer.open:
        yield
        return
    mine = _Batch()
    with mine:
        try:
            _current.set(mine)
            yield
        except BaseException:
            dispatch.record(mine.end(), raising=False)
            mine.done()
            raise
        finally:
            _current.set(outer)
        found = dispatch.deliver(mine.end(), telling=mine)
    dispatch.raise_first(found)


def deliver(ready: Sequence[Ready]) -> list[Ended]:
    """Deliver committed events: now, or at the end of the batch that the calling code is in.

    Args:
        ready: Items with their events; the same item may stand there several times.

    Returns:
        What became of each, as from ``dispatch.deliver()``.
    """
    mine = _current.get()
    if mine and mine.take(ready):
        return [Ended(Outcome.AFTER_COMMIT)] * len(ready)
    return dispatch.deliver(ready)
