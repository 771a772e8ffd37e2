"""One pass: what the receiver is called with, and ``recheck_pass``, what it may ask meanwhile."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import threading
import time
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from asgiref.sync import async_to_sync
from django.db.transaction import TransactionManagementError
from redis.exceptions import RedisError

from . import context, store, transactions
from .events import Call, Events, group_names
from .exceptions import LockLost
from .keys import Concern
from .records import Grant, Item, clock

if TYPE_CHECKING:
    from .outage import Ready
    from .receivers import Receiver

_open: contextvars.ContextVar[tuple[Pass, ...]] = contextvars.ContextVar("recheck_open", default=())


class Pass:
    """A pass as its receiver sees it, as ``recheck_pass`` or from ``current_pass()``.

    Attributes:
        key: The raw key: what the receiver's ``key`` returned; a row's primary key by default.
        number: 1 for the first pass of a hold.
        event_count: How many events this pass covers; 0 if it only repeats one that may be stale.
        merged: (signal, action, sender) of the events that went along with the one delivered.
        signals: The names of all signals it covers.
        attempt: 1, and one more for each failure since the last success.
        fence: A number that grows with every acquisition: compare it where you write.
        gone: The row was deleted, or left this key; ``instance`` has only what the event carried.
        data: What the receiver's ``data=`` returned when the event happened.
    """

    def __init__(
        self,
        receiver: Receiver[..., Any],
        item: Item,
        events: Events,
        grant: Grant | None,
    ) -> None:
        self.item = item
        self.receiver = receiver
        self.events = events
        self.concern = Concern.parse(item.text)
        self.key = self.concern.key
        self.number = grant.number if grant else 1
        self.event_count = events.count
        names = group_names(events.groups)
        self.merged = names[:-1]
        self.signals = frozenset(name[0] for name in names if name[0])
        self.attempt = grant.attempts + 1 if grant else 1
        self.fence = int(grant.fence) if grant else 0
        self.gone = False
        self.data: Any = None
        self.grant = grant
        self.pid = os.getpid()
        self._mutex = threading.Lock()
        self._ended = False
        self._own: Events | None = None

    @property
    def deadline(self) -> float:
        """When the lease ends unless it is renewed, in seconds of ``time.monotonic()``."""
        left = self.grant.deadline - clock() if self.grant else float("inf")
        return time.monotonic() + left

    @property
    def lost(self) -> bool:
        """Whether the lease is over, as far as this process knows."""
        return self.grant is not None and clock() >= self.grant.deadline

    def ensure_held(self) -> None:
        """Extend the lease on the server, or find out that it can't be.

        Raises:
            LockLost: The item is another's by now, or Redis didn't answer.
        """
        if self.grant is None:
            return
        try:
            held = store.current().renew([self.grant], [self.receiver.options.ttl])[0]
        except RedisError as error:
            raise LockLost(f"Nobody can say who holds {self.item.text}: {error}") from error
        if not held:
            self.grant.deadline = 0.0
            raise LockLost(
                f"The lock of {self.receiver.name} {self.item.text} is another's by now."
            )

    def keep(self, events: Events) -> bool:
        """Take an event of the item that the pass itself caused; False once the pass has ended."""
        with self._mutex:
            if not self._ended and not (self.grant and self.grant.own):
                self._own = events.after(self._own) if self._own else events
            return not self._ended

    def end(self) -> Events | None:
        """End the pass and give out what it kept."""
        with self._mutex:
            self._ended = True
            return self._own


def current_pass() -> Pass | None:
    """Return the pass that this thread or task is in, the innermost one; None outside of any."""
    passes = _open.get()
    return passes[-1] if passes else None


def own_pass(item: Item) -> Pass | None:
    """Return the open pass of this very item that the calling code runs in, also further out.

    A forked child has none: what a pass keeps there would be lost with the child.
    """
    return next((p for p in _open.get() if p.item == item and p.pid == os.getpid()), None)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A pass with its call made ready, its row read after the grant."""

    run: Pass
    named: dict[str, Any]

    def __call__(self) -> None:
        """Call the receiver, in a context of its own."""
        contextvars.copy_context().run(self._within)

    def whole(self) -> None:
        """Call the receiver, and end the pass.

        Raises:
            TransactionManagementError: It left a transaction open.
        """
        try:
            self()
        finally:
            self.run.end()
            left = transactions.roll_back_what_is_open()
        if left:
            raise TransactionManagementError(
                f"The receiver left a transaction of {left!r} open, which was rolled back."
            )

    def _within(self) -> None:
        receiver = self.run.receiver
        _open.set((*_open.get(), self.run))
        if receiver.wants_pass:
            self.named["recheck_pass"] = self.run
        with context.restore(self.run.concern.context):
            returned = receiver.func(**self.named)
            if inspect.isawaitable(returned):
                _await(returned)


def _await(returned: Awaitable[Any]) -> None:
    """Run an async receiver to its end; in a thread where this one has a running loop.

    It runs in another thread either way, and doesn't feel what strikes this one, such as Ctrl-C or
    a time limit.
    So it is cancelled then, and awaited all the same: the lock mustn't be given up before its end.
    """
    tasks: list[asyncio.Task[Any]] = []
    stopped, over = threading.Event(), threading.Event()

    async def end() -> None:
        try:
            tasks.extend(filter(None, [asyncio.current_task()]))
            if not stopped.is_set():
                await returned
        finally:
            over.set()

    try:
        if not in_running_loop():
            async_to_sync(end)()
            return
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(contextvars.copy_context().run, async_to_sync(end))
            try:
                future.result()
            except BaseException:
                _cancel(tasks, stopped)
                raise
    except BaseException:
        _cancel(tasks, stopped)
        if tasks:
            over.wait()
        elif inspect.iscoroutine(returned):
            returned.close()
        raise


def _cancel(tasks: Sequence[asyncio.Task[Any]], stopped: threading.Event) -> None:
    stopped.set()
    for task in tasks:
        with suppress(RuntimeError):  # its loop is closed
            task.get_loop().call_soon_threadsafe(task.cancel)


def in_running_loop() -> bool:
    """Return whether this thread is a running event loop's, which mustn't wait."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def immediately(ready: Ready, named: Mapping[str, Any]) -> None:
    """Call the receiver with the signal's own arguments, without lock and Redis."""
    Prepared(Pass(ready.receiver, ready.item, ready.events, None), dict(named))()


def prepare(
    receiver: Receiver[..., Any], item: Item, events: Events, grant: Grant | None
) -> Prepared | None:
    """Read the row and decide what the receiver is called with.

    Returns:
        The call, or None if the row is gone and nothing says that it was deleted.

    Raises:
        RecordError: The events can't be read.
    """
    if not events.groups:
        events = receiver.event_of(Concern.parse(item.text)).after(events)
    run = Pass(receiver, item, events, grant)
    with context.restore(run.concern.context):
        found = _choose(receiver, run.concern, events)
    if found is None:
        return None
    call, run.gone = found
    run.data = call.data
    run.merged = group_names(group for group in events.groups if group.name != call.group)
    return Prepared(run, call.named())


def _choose(
    receiver: Receiver[..., Any], concern: Concern, events: Events
) -> tuple[Call, bool] | None:
    """Return the call and whether its row is gone: newest event first, the row decides."""
    newest = Call.of(events.groups[-1], concern.using)
    if newest.row is None or not receiver.options.refresh:
        return newest, False
    read = newest.row.read(receiver.queryset)
    if read is None:
        if not receiver.has_default_key:
            return newest, True
        older = (Call.of(group, concern.using) for group in reversed(events.groups))
        deleted = next((call for call in older if call.deletes), None)
        return None if deleted is None else (deleted, True)
    call = newest
    if newest.deletes:
        others = (Call.of(group, concern.using) for group in reversed(events.groups))
        saves = (call for call in others if call.signal == "post_save")
        if saved := next((c for c in saves if c.row and c.row.pk == newest.row.pk), None):
            call = saved
        elif receiver.receives("post_save", newest.sender):
            call = newest.as_save()
        else:
            return newest, False
    found = replace(call, read=read)
    if not receiver.has_default_key:
        keys = receiver.typed_keys(found.named())
        if keys and concern.typed not in keys:
            return newest, True  # the row has left this key; the new key has its own event
    return found, False
