"""Hears on Redis's channel that a pass may be owed, so that who watches needn't ask all the time.

A hint is only that: where none comes, because this user may not subscribe or a proxy knows no
channels, a watch looks by itself every few seconds.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, Final

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, ResponseError

from . import store
from .connection import failure, unwelcome
from .messages import hide

logger = logging.getLogger("django_recheck")

SILENCE: Final = 30.0
"""Seconds without a word after which it is asked whether the other end is still there."""
FIRST: Final = 0.1
"""Seconds until a lost subscription is first tried again; the wait doubles."""
LONGEST: Final = 5.0
REFUSED: Final = 60.0
"""Seconds until one is tried again that was refused."""


class Bell:
    """Wakes a thread that sleeps. It may be rung by any thread, and by a signal's handler."""

    def __init__(self) -> None:
        self._here, self._there = socket.socketpair()
        self._there.setblocking(False)

    def ring(self) -> None:
        """Wake who waits, or who waits next. It takes no lock, so it never hangs."""
        with suppress(OSError):  # it was rung often enough, or is closed
            self._there.send(b"!")

    def wait(self, seconds: float) -> bool:
        """Sleep for so long, or until it is rung; return whether it was."""
        self._here.settimeout(max(seconds, 0.001))
        try:
            return bool(self._here.recv(65536))
        except TimeoutError:
            return False

    def close(self) -> None:
        """Give its sockets back."""
        self._here.close()
        self._there.close()


class Listener:
    """Subscribes, in a thread of its own, and again whenever the subscription is lost.

    Args:
        heard: Called when a hint comes, and when hints may have been missed.
    """

    def __init__(self, heard: Callable[[], Any]) -> None:
        self._heard = heard
        self._problem: Exception | None = None
        self._since = 0.0
        self._wait = FIRST
        self._told = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="django-recheck-hints", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def close(self) -> None:
        """Let the thread end, within a second."""
        self._closed.set()

    def complain(self, patience: float) -> None:
        """Say once that no hints come. It is asked while Redis answers everything else.

        Args:
            patience: Seconds for which a lost subscription is no news.
        """
        problem = self._problem
        if problem is None or self._told or time.monotonic() - self._since < patience:
            return
        self._told = True
        text = "No hints of new events, so they wait for the next look, for up to %g s: Redis %s"
        logger.warning(text, patience, hide(failure(problem)))

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._listen()
            except Exception as error:  # also what a client of its own makes of a lack of channels
                if self._problem is None:
                    self._since = time.monotonic()
                    self._heard()
                self._problem = error
                if unwelcome(error) or isinstance(error, (ResponseError, AttributeError)):
                    self._wait = REFUSED
                self._closed.wait(self._wait)
                self._wait = min(LONGEST, 2 * self._wait)

    def _listen(self) -> None:
        current = store.current()
        with closing(current.client.pubsub()) as subscription:
            subscription.subscribe(current.hints)
            heard, asked = time.monotonic(), False
            while not self._closed.is_set():
                try:
                    message = subscription.get_message(timeout=1.0)
                except NoPermissionError:
                    if not asked:
                        raise
                    message = {"type": "pong"}  # that is an answer, too
                now = time.monotonic()
                if message is not None:
                    heard, asked = now, False
                    self._take(message["type"])
                elif now - heard > SILENCE:
                    if asked:
                        raise RedisConnectionError("the subscription doesn't answer any more")
                    subscription.ping()
                    heard, asked = now, True

    def _take(self, kind: str) -> None:
        if kind == "subscribe":  # also after a connection that redis-py has made anew by itself
            self._problem, self._wait = None, FIRST
        if kind in ("subscribe", "message"):
            self._heard()
