"""Passes that can't run here and now: in another database's transaction, in an event loop."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from . import transactions
from .awaiting import in_running_loop
from .records import clock

logger = logging.getLogger("django_recheck")

MOST: Final = 2
"""Threads of a loop's pool that passes have at once: a pass may wait for others of the pool."""

Run = Callable[[float], Any]
"""Runs passes; it is told from when on ``INLINE_BUDGET`` counts, by ``clock()``."""


def starter() -> Callable[[Run], None] | None:
    """Return what starts passes that can't run here and now, None if they can."""
    connection = transactions.opened()
    if connection is not None:
        return partial(_after_commit, connection)
    return _beside_the_loop if in_running_loop() else None


def _after_commit(connection: BaseDatabaseWrapper, run: Run) -> None:
    """Start passes once another open transaction of this thread has committed."""

    def within() -> None:
        with suppress(asyncio.CancelledError):  # which no robust callback keeps to itself
            run(clock())

    if connection.in_atomic_block:
        # Always robust: what it raised would stop events behind it that nobody has recorded yet.
        transaction.on_commit(within, using=connection.alias, robust=True)


def _beside_the_loop(run: Run) -> None:
    """Start passes beside the running event loop, which goes on."""

    def within(started: float) -> None:
        try:
            run(started)
        finally:
            connections.close_all()

    loop = asyncio.get_running_loop()
    beside = _beside.setdefault(loop, _Beside())
    beside.start(loop, partial(contextvars.copy_context().run, within, clock()))


class _Beside:
    """Passes beside one event loop, in its default executor, but never in all of its threads.

    ``asyncio.run()`` waits for that one, so a script's last passes aren't struck by the end of the
    interpreter.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[Callable[[], Any]] = deque()
        self._threads = 0

    def start(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Any]) -> None:
        """Do some work as soon as a thread is free."""
        with self._mutex:
            self._waiting.append(work)
            if self._threads == MOST:
                return
            self._threads += 1
        try:
            loop.run_in_executor(None, self._go_on)
        except RuntimeError as error:  # no thread is to be had: a drain will run them
            with self._mutex:
                self._threads -= 1
                self._waiting.clear()
            logger.warning("Passes stay pending beside the event loop: %s", error)

    def _go_on(self) -> None:
        while True:
            with self._mutex:
                if not self._waiting:
                    self._threads -= 1
                    return
                work = self._waiting.popleft()
            try:
                work()
            except BaseException as error:  # nobody else hears of it
                logger.error("A pass beside an event loop raised %r", error, exc_info=error)


_beside: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Beside] = weakref.WeakKeyDictionary()
