"""SIGINT and SIGTERM: the first one asks a command to end, the second one ends it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any


class Stop:
    """Whether somebody has asked for an end, and what is to be done then."""

    def __init__(self) -> None:
        self.asked = False
        self.then: list[Callable[[], Any]] = []
        """Called in the signal's handler: it may take no lock."""

    def __call__(self) -> bool:
        """Return whether somebody has asked."""
        return self.asked

    def ask(self) -> None:
        """Ask for an end."""
        self.asked = True
        for each in self.then:
            each()


def _end_at_once(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


@contextmanager
def stopped_by_signal() -> Iterator[Stop]:
    """Let the first SIGINT or SIGTERM finish the pass, and the second one end at once."""
    stop = Stop()
    before: dict[signal.Signals, Any] = {}
    # The system's own way: even a pass that is stuck ends. It doesn't end a container's process 1.
    second: Any = _end_at_once if os.getpid() == 1 else signal.SIG_DFL

    def handler(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, second)
        stop.ask()
        said = f"{signal.Signals(number).name}: the running pass is finished, the rest is left to "
        said += "the next drain. A second one stops at once.\n"
        with suppress(OSError):
            os.write(2, said.encode())  # not through sys.stderr, which may be writing just now

    for number in (signal.SIGINT, signal.SIGTERM):
        if threading.current_thread() is threading.main_thread():
            before[number] = signal.signal(number, handler)
    try:
        yield stop
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)
