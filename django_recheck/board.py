"""What people see of items, on a terminal or a page: one row for each, and sentences about it.

It formats nothing and writes nothing: that is the command's part, and the admin's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext as _

from . import receivers, store
from .events import Events, Group, group_names
from .exceptions import RecordError
from .messages import hide
from .outbox.shown import NONE, Waiting
from .records import Item
from .survey import OVERDUE, Numbers
from .views import View


class State(StrEnum):
    """An item's state, in people's words."""

    RUNNING = "running"
    FLAGGED = "running, flagged"
    """Events came meanwhile: the holder will go again."""
    PENDING = "pending"
    """A pass is owed now."""
    DELAYED = "delayed"
    """A pass is owed when there has been quiet for long enough."""
    BACKING_OFF = "backing off"
    """It failed, and is tried again later."""
    PAUSED = "paused"
    """A pass is owed, and a person lets its receiver wait."""
    DEAD = "dead"
    IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One item at a moment. Times are seconds by Redis's clock, spans are seconds."""

    view: View
    now: float
    state: State
    host: str | None = None
    """Where its holder runs."""
    pid: int | None = None
    held_for: float | None = None
    lease_left: float | None = None
    """0 if the lease is over: its holder is late, or dead. None also for a lock without an end."""
    passes: int = 0
    """The number of the pass that runs."""
    working: int = 0
    """Events that this pass covers."""
    waiting: int = 0
    """Events that came since, or that wait for a pass."""
    attempts: int = 0
    """Failures, takeovers and heals since the last success."""
    since: float | None = None
    """When the hold began, or the item was given up."""
    due: float | None = None
    """When a pass is owed."""
    busy: int = 0
    """How many other items of its receiver run, if there is no place for one more; else 0."""
    overdue: bool = False
    """Whether it is owed, or its lease over, for more than ``survey.OVERDUE`` seconds."""
    error: str = ""
    """What the last failed pass raised, with its traceback."""
    outbox: Waiting = NONE
    """Its rows in the outbox."""

    @classmethod
    def of(
        cls,
        view: View,
        now: float,
        *,
        paused: bool = False,
        busy: int = 0,
        outbox: Waiting = NONE,
    ) -> Row:
        """Return the row of an item.

        Args:
            view: The item as it stands in Redis.
            now: The server's time when it was read.
            paused: Whether its receiver is paused.
            busy: What ``busy()`` says of it.
            outbox: Its rows in the outbox, as ``outbox.shown.items()`` has them.
        """
        record, held = view.record, view.state == "running" or view.holder is not None
        numbers, since, due, left = {}, None, None, None
        if record is not None:
            numbers = {"passes": record.passes, "working": record.count}
            numbers |= {"waiting": record.newer_count, "attempts": record.attempts}
        state, host, pid = State.IDLE, None, None
        if held:
            state = State.FLAGGED if record is not None and record.newer_count else State.RUNNING
            ours = record is not None and view.holder in (None, record.token)
            host, pid = _who(view.holder or (record.token if record else ""))
            since = record.since / 1000 if record is not None and ours and record.since else None
            left = view.lease_left if view.holder is not None else 0.0
            late = view.score if left == 0 else None
        elif view.state == "due":
            due = _due(view)
            late = due
            state = State.PAUSED if paused else _waits(view, due, now)
        else:
            late, since = None, view.score
            state = State.DEAD if view.state == "dead" else State.IDLE
        return cls(
            view=view,
            now=now,
            state=state,
            host=host,
            pid=pid,
            held_for=max(0.0, now - since) if held and since is not None else None,
            lease_left=left,
            since=since,
            due=due,
            busy=busy,
            overdue=not paused and late is not None and now - late > OVERDUE,
            error=hide(record.error) if record is not None else "",
            outbox=outbox,
            **numbers,
        )

    @property
    def receiver(self) -> str:
        """Its receiver's name, as it was when the item was recorded."""
        return self.view.item.receiver

    @property
    def key(self) -> str:
        """The key as Redis holds it: JSON, and where they matter the database and the context."""
        return self.view.item.text

    @property
    def seen(self) -> str:
        """What ``Store.release``, ``retry`` and ``discard`` compare before they act."""
        return "-".join(filter(None, (self.view.seen, self.outbox.seen)))

    @property
    def lapsed(self) -> bool:
        """Whether it is held by a lease that is over."""
        return self.lease_left == 0

    @property
    def reason(self) -> str:
        """The line of the last error that says what was raised, or why there is no record."""
        return self.view.problem or _raised(self.error)

    def waits_for(self) -> str:
        """Say in a sentence where the item stands, and what it waits for."""
        named = {"n": self.attempts, "host": self.host, "pid": self.pid, "pass": self.passes}
        named["busy"] = self.busy
        if self.view.problem:
            return _("Its record can't be used: %(why)s") % {"why": self.view.problem}
        match self.state:
            case State.RUNNING | State.FLAGGED if self.lapsed:
                return _("Its holder's lease is over: a drain, or the next event, takes it over.")
            case State.RUNNING | State.FLAGGED if self.pid is None or not self.passes:
                return _("Its lock is held by somebody that this package doesn't know.")
            case State.RUNNING:
                return _("Pass %(pass)s runs in process %(pid)s on %(host)s.") % named
            case State.FLAGGED:
                said = _("Pass %(pass)s runs in process %(pid)s on %(host)s, and one more follows.")
                return said % named
            case State.PENDING if self.busy:
                said = _(
                    "A pass is owed, and waits for a place: %(busy)s run already, no more may."
                )
                return said % named
            case State.PENDING:
                return _("A pass is owed: the next drain runs it, or the next event.")
            case State.DELAYED:
                return _("It waits until no event has come for a while.")
            case State.BACKING_OFF:
                return _("It failed, and is tried again later (attempts so far: %(n)s).") % named
            case State.PAUSED:
                return _("A pass is owed, and waits for a person: the receiver is paused.")
            case State.DEAD:
                return _("Given up (attempts: %(n)s), until a new event, or a person.") % named
        if self.outbox.rows:
            return _("Redis has nothing of it: a drain brings it the rows of the outbox.")
        return _("Nothing is known of it, and nothing is owed.")

    def next_event(self, *, paused: bool = False) -> str:
        """Say in a sentence what the next event of this item would do, by the settings of now.

        Args:
            paused: Whether its receiver is paused.
        """
        receiver = receivers.named(self.receiver)
        if receiver is None:
            return _("It has no next event here: this process has no such receiver.")
        if self.receiver != receiver.name:
            name = {"name": receiver.name}
            return _("It would be an event of %(name)s, the receiver's name today.") % name
        options = receiver.options
        if options.dispatch == "immediate":
            return _("It would run in the signal itself, without Redis or a lock.")
        if self.view.newer:
            return _("It would not be recorded: the record is of a newer version.")
        held = self.state in (State.RUNNING, State.FLAGGED)
        if held and not self.lapsed:
            if self.passes >= options.max_passes:
                return _("It would be recorded, and run by a drain: this hold has had its passes.")
            return _("It would flag the holder, which then goes again.")
        if paused:
            return _("It would be recorded, and wait: the receiver is paused.")
        if self.busy and not options.delay:
            said = _(
                "It would be recorded, and wait for a place: %(busy)s run already, no more may."
            )
            return said % {"busy": self.busy}
        if options.delay and self.state is State.PENDING:
            return _("It would be recorded: a pass is owed already, and covers it.")
        if options.delay and not held:
            named = {"delay": f"{options.delay:g}"}
            return _("It would be recorded, and run after %(delay)s s without another.") % named
        if options.dispatch == "worker" or options.delay:
            return _("It would be recorded, and run by the next drain.")
        if held:
            return _("It would take over from the holder, whose lease is over, and run at once.")
        if self.state is State.IDLE:
            return _("It would run at once, in the thread that commits it.")
        return _("It would run at once, in the thread that commits it, and cover what waits.")


def busy(numbers: Numbers, item: Item) -> int:
    """Return how many items of a receiver run, if that is as many as may; 0 if one more may.

    Args:
        numbers: The receiver's, of ``survey()``.
        item: An item of it.
    """
    current, limit = store.current(), places(item.receiver)
    lane = current.lane_of(item)
    held = numbers.held[lane.shard] if lane.shard < len(numbers.held) else 0
    return held if limit is not None and held >= current.places(lane, limit) else 0


def places(name: str) -> int | None:
    """Return how many items of a receiver may run at once, None for any number."""
    receiver = receivers.named(name)
    try:
        return None if receiver is None else receiver.options.concurrency
    except ImproperlyConfigured:  # a check says so; what is held is wanted all the same
        return None


def events_in(packed: bytes) -> list[dict[str, Any]]:
    """Return what each group of an item's events is; what they carry isn't shown.

    Raises:
        RecordError: They can't be read.
    """
    try:
        return [_told(group) for group in Events.parse(0, packed).groups]
    except (ValueError, TypeError, RecursionError) as error:
        raise RecordError(f"An event can't be read: {error}") from error


def _told(group: Group) -> dict[str, Any]:
    signal, action, sender = map(str, *group_names([group]))
    named = {"signal": signal, "action": action, "sender": sender}
    return named | {"created": group.created, "raw": group.raw}


def _due(view: View) -> float | None:
    """Return when a pass is owed; a drain that looks at an item puts only its index ahead."""
    record = view.record
    times = [time for time in (record.owed, record.ready) if time] if record is not None else []
    return min(times) / 1000 if times else view.score


def _waits(view: View, due: float | None, now: float) -> State:
    record = view.record
    if record is None or due is None or due <= now:
        return State.PENDING
    return State.BACKING_OFF if due == record.owed / 1000 else State.DELAYED


def _who(token: str) -> tuple[str | None, int | None]:
    """Return host and pid of an owner token, None if it is none of ours."""
    match = re.fullmatch(r"(\S+):([0-9]{1,10}):[0-9a-f]{32}", token)
    return (match[1], int(match[2])) if match else (None, None)


def _raised(traceback: str) -> str:
    """Return a traceback's line that names the exception; without frames, the last line."""
    lines = re.sub(r"(?m)^  [+|] ", "", traceback).splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    rest = lines[frames[-1] + 1 :] if frames else lines[::-1]
    return next((line for line in rest if line.strip() and not line.startswith(" ")), "").strip()
