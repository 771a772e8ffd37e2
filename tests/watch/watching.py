"""A watch in a thread of the test, and what it is seen to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django_recheck import Receiver, recheck
from django_recheck.watch import Watch

PATIENCE = 30.0
"""Seconds after which what should happen is held for lost."""


def until(happened: Callable[[], Any], what: str = "it didn't happen") -> None:
    """Wait for something."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, what
        time.sleep(0.002)


class Watched:
    """A watch that runs, how often it has looked, and what it raised."""

    def __init__(
        self,
        names: list[str] | None = None,
        threads: int = 1,
        looked: Callable[[], Any] = bool,
        **options: Any,
    ) -> None:
        self.looks = 0
        self.looked = looked
        self.raised: BaseException | None = None
        self.watch = Watch(names, looked=self._looked, **options)
        self.thread = threading.Thread(target=self._run, args=(threads,))

    def _looked(self) -> None:
        self.looked()
        self.looks += 1

    def _run(self, threads: int) -> None:
        try:
            self.watch.run(threads)
        except BaseException as error:
            self.raised = error

    def ended(self) -> None:
        """Wait for its end."""
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "it doesn't end"


@contextmanager
def watching(
    *args: Any, begun: Callable[[], Any] | None = None, **options: Any
) -> Iterator[Watched]:
    """Run a watch for as long as the block runs. It sleeps for minutes unless told otherwise.

    Args:
        *args: As of ``Watched``.
        begun: What tells that it has begun, by default its first look.
        **options: As of ``Watched``.
    """
    watched = Watched(*args, **{"bound": 600.0, **options})
    watched.thread.start()
    try:
        until(begun or (lambda: watched.looks or watched.raised))
        yield watched
    finally:
        watched.watch.stop()
        watched.ended()


def noting(name: str = "watched", body: Callable[[Any], Any] = bool, **options: Any) -> Any:
    """Return a receiver for drains, and the list of keys that its passes were about."""
    keys: list[Any] = []

    @recheck(name=name, key="group", **{"dispatch": "worker", "backoff": (60, 60), **options})
    def receive(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        body(recheck_pass.key)
        keys.append(recheck_pass.key)

    assert isinstance(receive, Receiver)
    return receive, keys
