"""An async receiver is run to its end, whatever happens to whoever waits for it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from asgiref.current_thread_executor import CurrentThreadExecutor
from asgiref.sync import AsyncToSync, async_to_sync
from django.db import connections

from . import transactions


class SenderCancelled(asyncio.CancelledError):
    """An async receiver was cancelled, as the task that sent its signal was."""

    def plain(self) -> asyncio.CancelledError:
        """Return what the sender is told: ``asyncio.timeout()`` of 3.11 knows no subclass."""
        return asyncio.CancelledError(*self.args)


def to_its_end(returned: Awaitable[Any]) -> None:
    """Run an async receiver to its end; in a thread where this one has a running loop.

    Raises:
        SenderCancelled: Its task was cancelled from outside.
        BaseException: What it raised, or what struck this thread meanwhile.
    """
    awaited = _Awaited(returned)
    if in_running_loop():
        context = contextvars.copy_context()
        with ThreadPoolExecutor(1) as pool:
            awaited.until(lambda: pool.submit(context.run, awaited.beside).result(), awaited.wait)
    else:
        awaited.here()


def in_running_loop() -> bool:
    """Return whether this thread is a running event loop's, which mustn't wait."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Awaited:
    """An async receiver on its way.

    It runs in another thread, and doesn't feel what strikes this one, such as Ctrl-C or a time
    limit. So it is cancelled then, and awaited all the same: the lock mustn't be given up before
    its end. Each further strike cancels it again, as it may have caught the one before.
    """

    def __init__(self, returned: Awaitable[Any]) -> None:
        self.returned = returned
        self.begun: list[tuple[asyncio.Task[Any], CurrentThreadExecutor]] = []
        self.stopped = False
        self.over: Future[None] = Future()

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            # What it calls by sync_to_async() runs in the thread that waits, as long as it serves.
            self.begun.append((task, AsyncToSync.executors.current))
            if not self.stopped:
                await self.returned
        except asyncio.CancelledError as error:
            if self.stopped or not task.cancelling():
                raise
            raise SenderCancelled("The task that sent the signal was cancelled.") from error
        finally:
            self.over.set_result(None)

    def here(self) -> None:
        """Run it, serving it in this thread, until it is over."""
        self.until(async_to_sync(self._run), self._serve)

    def beside(self) -> None:
        """Run it in a thread of its own, which leaves nothing open."""
        try:
            with transactions.none_left_open():
                self.here()
        finally:
            connections.close_all()

    def wait(self) -> None:
        """Wait until it is over, served by another thread."""
        self.over.result()

    def _serve(self) -> None:
        for _, executor in self.begun:
            executor.run_until_future(self.over)

    def until(self, run: Callable[[], Any], rest: Callable[[], Any]) -> None:
        """Raise what ``run`` raises, but not before the receiver is over, for which ``rest`` waits.

        Of several strikes it is the first that ends a process.
        """
        struck: BaseException | None = None
        try:
            run()
        except BaseException as error:
            struck = error
        while struck and self._goes_on():
            try:
                self._cancel()
                rest()
            except BaseException as again:
                struck = again if isinstance(struck, Exception) else struck
        if struck:
            raise struck

    def _goes_on(self) -> bool:
        self.stopped = True  # looked at after `begun` was written: it stops, or is seen here
        if not self.begun and inspect.iscoroutine(self.returned):
            self.returned.close()
        return bool(self.begun) and not self.over.done()

    def _cancel(self) -> None:
        for task, _ in self.begun:
            with suppress(RuntimeError):  # its loop is closed
                task.get_loop().call_soon_threadsafe(task.cancel)
