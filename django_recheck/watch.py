"""A drain that goes on: it sleeps until a pass is owed, and outlives Redis's absence.

One of its threads looks and sleeps for all, so a watch of many threads asks no more than one of
one thread. The others wait for their turn, or run passes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured

from . import outage, store, views
from .connection import failure, unwelcome
from .hints import Bell, Listener
from .messages import hide
from .records import Item, clock
from .worker import KEPT, Drain, close_old_connections, nothing

logger = logging.getLogger("django_recheck")

BOUND: Final = 5.0
"""Seconds after which it looks, whatever it has heard."""
NOTED: Final = 30.0
"""Seconds between two notes that somebody drains."""
GAP: Final = 0.01
"""Seconds between two looks that find nothing, however many hints come."""
FIRST: Final = 0.1
"""Seconds until Redis is asked again that didn't answer; the wait doubles."""
LONGEST: Final = 5.0


class Watch(Drain):
    """What is ripe, run whenever it is, until it is stopped.

    Args:
        bound: Seconds after which it looks, whatever it has heard.
        noted: Seconds between two notes that somebody drains.
        **options: As of a ``Drain``.
    """

    def __init__(
        self,
        names: Iterable[str] | None = None,
        *,
        bound: float = BOUND,
        noted: float = NOTED,
        **options: Any,
    ) -> None:
        self._tell_of_look: Callable[[], Any] = options.pop("looked", nothing)
        super().__init__(names, looked=self._answered, **options)
        self._bound, self._noted = bound, noted
        self._bell = Bell()
        self._listener = Listener(self._bell.ring)
        self._leading = threading.Lock()
        """Of the thread that looks and sleeps for all."""
        self._replay_at = self._note_at = 0.0
        self._looked = 0.0
        """``clock()`` of the last look that found nothing."""
        self._seen = 0.0
        """Until which time of the server's all that is owed has been seen."""
        self._ever = self._away = False
        self._wait = FIRST

    def stop(self) -> None:
        """End it in all threads, after their passes. A signal's handler may call this."""
        super().stop()
        self._bell.ring()

    def run(self, threads: int = 1) -> None:
        """Run what is ripe, whenever it is.

        Args:
            threads: How many do so side by side, this one included.

        Raises:
            RedisError: Redis refuses this user at the first look. Later it is asked again.
            ImproperlyConfigured: What Redis holds doesn't fit the settings.
            TransactionManagementError: This thread is in a transaction.
        """
        try:
            self.refuse_transactions()
            self._listener.start()
            self._side_by_side(threads)
            self._tell()
        finally:
            self._listener.close()
            self._bell.close()

    def _work(self) -> None:
        while not self.over():
            try:
                super()._work()
            except outage.FAULTS as error:
                self._failed(error)
        self._bell.ring()  # for the thread that sleeps: this one may have reached the limit

    @contextmanager
    def _lead(self) -> Iterator[None]:
        """Wait for the one that sleeps for all, without a connection where that takes a while."""
        if not self._leading.acquire(timeout=KEPT):
            close_old_connections()
            self._leading.acquire()
        try:
            yield
        finally:
            self._leading.release()

    def _take(self) -> Item | None:
        with self._lead():
            while not self.over():
                try:
                    self._keep_up()
                    item = self._ripe.take()
                    seconds = self._seconds() if item is None else 0.0
                except outage.FAULTS as error:
                    self._failed(error)
                    item, seconds, self._wait = None, self._wait, min(LONGEST, 2 * self._wait)
                if item is not None:
                    return item
                close_old_connections()
                if self._bell.wait(seconds) and not self.over():
                    time.sleep(max(0.0, self._looked + GAP - clock()))
        return None

    def _keep_up(self) -> None:
        """Do what a drain does at its beginning and its end, every now and then."""
        if clock() >= self._replay_at:
            self._begin()
            self._replay_at = clock() + self._bound
        if clock() >= self._note_at:
            self._note()
            self._tell()
            self._note_at = clock() + self._noted

    def _seconds(self) -> float:
        """Return for how long nothing is ripe, at most the bound."""
        self._looked = clock()
        ahead, now = views.ahead(store.current(), self.names, self._seen)
        self._seen = now
        seconds = min(self._bound, ahead)
        logger.debug("nothing to run: the next look is in %.3f s, or at an event", seconds)
        return seconds

    def _answered(self) -> None:
        if self._away:
            logger.warning("Redis is back, and what is owed is run.")
        self._ever, self._away, self._wait = True, False, FIRST
        self._listener.complain(self._bound)
        self._tell_of_look()

    def _failed(self, error: Exception) -> None:
        """Say once that Redis doesn't answer; end where another try is no use."""
        if isinstance(error, ImproperlyConfigured) or (not self._ever and unwelcome(error)):
            raise error
        if not self._away:
            self._away = True
            logger.error("Redis %s. It is asked again until it does.", hide(failure(error)))
