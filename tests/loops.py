"""Event loops in tests: their heartbeat, which nothing may stop, and waiting for conditions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from asgiref.sync import SyncToAsync
from django.db import connections

T = TypeVar("T")

LONGEST = 20.0
"""Seconds after which what is waited for won't come any more."""


@dataclass
class Heart:
    """Beats whenever its loop gets to run."""

    beats: int = 0

    def goes_on(self) -> bool:
        """Wait, in another thread than the loop's, for two beats; False if none comes.

        Two, as the first may have been under way.
        """
        before, end = self.beats, time.monotonic() + 2
        while self.beats < before + 2 and time.monotonic() < end:
            time.sleep(0.001)
        return self.beats >= before + 2


@asynccontextmanager
async def beating() -> AsyncIterator[Heart]:
    """Let a heart beat in the running loop for as long as the block runs."""
    heart = Heart()

    async def beat() -> None:
        while True:
            heart.beats += 1
            await asyncio.sleep(0.001)

    task = asyncio.create_task(beat())
    try:
        yield heart
    finally:
        task.cancel()


async def until(condition: Callable[[], object]) -> None:
    """Wait for something without blocking the loop."""
    end = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < end, "it didn't happen"
        await asyncio.sleep(0.001)


def wait_for(condition: Callable[[], object]) -> None:
    """Wait for something in a thread."""
    end = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < end, "it didn't happen"
        time.sleep(0.001)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a loop, and close what the thread of its synchronous code has open."""
    try:
        return asyncio.run(main)
    finally:
        SyncToAsync.single_thread_executor.submit(connections.close_all).result(LONGEST)
