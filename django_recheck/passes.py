"""One pass: what the receiver is called with, and ``recheck_pass``, what it may ask meanwhile."""

from __future__ import annotations

import contextvars
import inspect
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from django.db.models import Model
from redis.exceptions import RedisError

from . import awaiting, context, store, transactions
from .events import Call, Events, group_names
from .exceptions import LockLost
from .keys import Concern
from .records import Grant, Item, clock

if TYPE_CHECKING:
    from .outage import Ready
    from .receivers import Receiver

T = TypeVar("T")

_open: contextvars.ContextVar[tuple[Pass, ...]] = contextvars.ContextVar("recheck_open", default=())
_reading: contextvars.ContextVar[Pass | None] = contextvars.ContextVar(
    "recheck_reading", default=None
)
"""The pass whose row is being read; it isn't open yet."""


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
        self.ended = False
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
            if not self.ended and not (self.grant and self.grant.own):
                self._own = events.after(self._own) if self._own else events
            return not self.ended

    def end(self) -> Events | None:
        """End the pass and give out what it kept."""
        with self._mutex:
            self.ended = True
            return self._own


def current_pass() -> Pass | None:
    """Return the pass that this thread or task is in, the innermost one; None outside of any.

    What a pass has left behind, a task say, is outside once the pass has ended.
    """
    return next((run for run in reversed(_open.get()) if not run.ended), None)


def depth_here() -> int:
    """Return the depth of an event that happens here: one more than its pass's, 0 outside."""
    here = current_pass()
    return here.events.depth + 1 if here else 0


def own_pass(item: Item) -> Pass | None:
    """Return the open pass of this very item that the calling code runs in, also further out.

    A forked child has none: what a pass keeps there would be lost with the child.
    """
    return next((p for p in _open.get() if p.item == item and p.pid == os.getpid()), None)


def at_hand() -> Pass | None:
    """Return the pass whose row is being read, or that this thread or task is in."""
    return _reading.get() or current_pass()


def elsewhere(call: Callable[[], T]) -> T:
    """Call something as if from outside of any pass: its events are nobody's own."""
    around = contextvars.copy_context()
    around.run(_open.set, ())
    return around.run(call)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A pass with its call made ready, its row read after the grant."""

    run: Pass
    named: dict[str, Any]

    def __call__(self) -> None:
        """Call the receiver, in a context of its own, and end the pass."""
        try:
            contextvars.copy_context().run(self._within)
        finally:
            self.run.end()

    def whole(self) -> None:
        """Do so in no transaction.

        Raises:
            TransactionManagementError: It left a transaction open.
        """
        with transactions.none_left_open():
            self()

    def _within(self) -> None:
        receiver = self.run.receiver
        _open.set((*_open.get(), self.run))
        if receiver.wants_pass:
            self.named["recheck_pass"] = self.run
        with context.restore(self.run.concern.context):
            returned = receiver.func(**self.named)
            if inspect.isawaitable(returned):
                awaiting.to_its_end(returned)


def immediately(ready: Ready, named: Mapping[str, Any]) -> None:
    """Call the receiver with the signal's own arguments, without lock and Redis."""
    try:
        Prepared(Pass(ready.receiver, ready.item, ready.events, None), dict(named))()
    except awaiting.SenderCancelled as error:
        raise error.plain() from error


def prepare(
    receiver: Receiver[..., Any],
    item: Item,
    events: Events,
    grant: Grant | None,
    row: Model | None = None,
) -> Prepared | None:
    """Read the row and decide what the receiver is called with.

    Args:
        receiver: Whose pass it is.
        item: The item.
        events: What it is to cover.
        grant: The right to it, None without a lock.
        row: The row, if it was read since the grant.

    Returns:
        The call, or None if the row is gone and nothing says that it was deleted.

    Raises:
        RecordError: The events can't be read.
    """
    if not events.groups:
        events = receiver.event_of(Concern.parse(item.text)).after(events)
    run = Pass(receiver, item, events, grant)
    reading = _reading.set(run)
    try:
        with context.restore(run.concern.context):
            found = _choose(receiver, run.concern, events, row)
    finally:
        _reading.reset(reading)
    if found is None:
        return None
    call, run.gone = found
    run.data = call.data
    run.merged = group_names(group for group in events.groups if group.name != call.group)
    return Prepared(run, call.named())


def _choose(
    receiver: Receiver[..., Any], concern: Concern, events: Events, row: Model | None
) -> tuple[Call, bool] | None:
    """Return the call and whether its row is gone: newest event first, the row decides."""
    newest = Call.of(events.groups[-1], concern.using)
    if newest.row is None or not receiver.options.refresh:
        return newest, False
    read = newest.row.read(receiver.queryset) if row is None else row
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
    if not receiver.has_default_key and found.whole:
        keys = receiver.typed_keys(found.named())
        told = keys or isinstance(receiver.key, str)  # a callable's None says nothing
        if told and concern.typed not in keys:
            return newest, True  # the row has left this key; the new key has its own event
    return found, False
