"""One hold: passes until the item is done, requeued, failed or lost.

The store decides what comes next; this module calls the receiver in between.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Model
from django.dispatch import Signal

from . import lease, outage, signals, store
from .events import DEEPEST, Events
from .exceptions import EndlessTriggers
from .outbox import covered, table
from .outcome import Outcome
from .passes import prepare
from .records import Grant, Item, clock

if TYPE_CHECKING:
    from .receivers import Receiver

logger = logging.getLogger("django_recheck")

FAILURES: Final = (Exception, asyncio.CancelledError)
"""What a receiver raises by itself. Anything else ends the process or the test, and goes on."""

LONGEST_ERROR: Final = 4000
"""Characters of an exception that its record keeps."""

OUTCOMES: Final = {
    "DONE": Outcome.RAN,
    "REQUEUED": Outcome.REQUEUED,
    "PENDING": Outcome.PENDING,
    "FAILED": Outcome.FAILED,
    "DEAD": Outcome.DEAD,
    "COALESCED": Outcome.COALESCED,
    "HELD": Outcome.COALESCED,
    "LATER": Outcome.PENDING,
    "BROKEN": Outcome.DEAD,
    "MISSING": Outcome.RAN,
}
"""What the store's words mean for an event."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a hold ended: the item's outcome, its passes, what the receiver raised last."""

    outcome: Outcome
    passes: int = 0
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class _Worked:
    """How one pass went, in the words of ``finish``."""

    word: str
    error: BaseException | None = None
    skipped: bool = False
    own: tuple[int, bytes] = (0, b"")

    @property
    def interrupted(self) -> BaseException | None:
        """What ends the process, or the test."""
        return None if isinstance(self.error, FAILURES) else self.error

    @property
    def unbegun(self) -> bool:
        """Whether the lease was over before the receiver was called."""
        return self.word == "back"


def never() -> bool:
    """Say that nobody asked to stop."""
    return False


class Hold:
    """The possession of one item's lock.

    Args:
        receiver: Whose passes these are.
        grant: The right to the first one.
        until: ``clock()`` after which no further pass starts here.
        stopping: Says whether the process was asked to end.
        row: The row of the first pass, if it was read since the grant.
    """

    def __init__(
        self,
        receiver: Receiver[..., Any],
        grant: Grant,
        until: float = float("inf"),
        stopping: Callable[[], bool] = never,
        row: Model | None = None,
    ) -> None:
        self.receiver = receiver
        self.row = row
        self.item: Item = grant.item
        self.grant = grant
        self.until = until
        self.stopping = stopping
        self.events = Events(0, ())
        self.rows: list[int] = []
        """The outbox rows that the pass covers."""
        self.passes = 0
        self.error: BaseException | None = None
        self.lost = self.told = False
        self.began = 0.0

    def run(self) -> Ended:
        """Run passes until the hold is over.

        Returns:
            How it ended. Only what ends a process (KeyboardInterrupt, SystemExit, …) is raised,
            after the item was given back.
        """
        options = self.receiver.options
        kept = lease.Lease(self.grant, options.ttl, options.max_hold)
        with lease.keep(kept):
            while True:
                worked = self._work()
                following = self._finish(worked)
                if isinstance(following, Outcome):
                    return Ended(following, self.passes, self.error)
                self.grant = following
                kept.begin(following)

    def _work(self) -> _Worked:
        """Run one pass. A lease that is over before it begins gives the pass back."""
        grant, self.began = self.grant, clock()
        self.rows = []
        prepared = error = None
        try:
            if grant.takeover:
                text = "taken over from a holder whose lease ended"
                details = {"fence": int(grant.fence), "attempts": grant.attempts}
                self._tell(signals.took_over, logging.WARNING, text, **details)
            if grant.events:  # read first: what is given back, or healed, takes them along
                self.events = Events.parse(grant.count, grant.events)
            if self.events.depth > DEEPEST + self.receiver.options.max_attempts:
                raise EndlessTriggers(
                    f"{self.events.depth} passes led to one another: this one isn't begun. "
                    "An event from outside, or recheck(), begins anew."
                )
            self.rows, self.events = covered.read(self.receiver, self.item, self.events)
            row, self.row = self.row, None
            prepared = prepare(self.receiver, self.item, self.events, grant, row)
            if prepared is None:
                return _Worked("ok", skipped=True)
            if clock() >= grant.deadline:
                return _Worked("back")
            self.passes += 1
            prepared.whole()
        except BaseException as raised:  # also what ends a process: it may be the receiver's own
            error = raised
        own = prepared.run.end() if prepared else None
        if own:  # they go along, however the pass ended
            self.events = own.after(self.events)
        kept = (own.count, own.packed()) if own else (0, b"")
        return _Worked("failed" if error else "ok", error, own=kept)

    def _finish(self, worked: _Worked) -> Grant | Outcome:
        options, grant = self.receiver.options, self.grant
        now = clock()
        over = now >= self.until or now - self.began > options.max_hold
        last = over or grant.number >= options.max_passes or self.stopping()
        closed = False
        try:
            with outage.breaker.watch(asking=True):
                following, resent = store.current().finish(
                    grant,
                    worked.word,
                    options,
                    last=last,
                    error=_described(worked.error),
                    own=worked.own,
                )
                closed = worked.word == "ok" and following != "LOST"
                if following == "LOST" and grant.ours:
                    following = self._heal(worked, quiet=resent or worked.unbegun)
                    if following == "LATER" and resent:
                        following = "DEAD"  # by the first copy, whose answer was lost
        except outage.FAULTS as error:
            names = {"receiver": self.receiver.name, "key": self.item.text}
            text = "%s %s: its pass couldn't be closed: %s"
            logger.warning(text, *names.values(), error, extra=names)
            self._put_aside()
            following = "PENDING"
        # An own event has no row: those of the pass that it came from stay until the next one.
        if closed and self.rows and not (worked.own[0] and options.refresh):
            covered.remove(self.item, self.rows)
        self._report(worked, following)
        if worked.interrupted is not None:
            raise worked.interrupted
        if isinstance(following, Grant):
            return following
        if self.lost or following == "LOST":
            return Outcome.LEASE_LOST
        if following == "DONE" and worked.skipped:
            return Outcome.GONE
        return OUTCOMES[following]

    def _put_aside(self) -> None:
        """Remember what of the pass nobody may know any more."""
        ready, options = outage.Ready(self.receiver, self.item, self.events), self.receiver.options
        if options.on_redis_error == "outbox" and not options.durable:
            table.put_aside([ready])
        else:
            outage.owe(ready)

    def _heal(self, worked: _Worked, *, quiet: bool) -> Grant | str:
        """Ask for one more pass: a holder that outlived its lease may have had a stale last word.

        Quietly, where that is no news: a pass that never began, or a ``finish`` whose reply was
        lost and whose first copy did close the hold. What was given back, or interrupted, isn't run
        here again.
        """
        again, self.lost = self.lost, self.lost or not quiet
        tried = self.grant.attempts + 1
        if again or worked.unbegun or worked.interrupted is not None:
            tried = max(tried, 2)  # one healing pass a hold is enough; the next is for others
        packed = self.events.packed()
        return store.current().request(self.item, packed, 1, self.receiver.options, heal=tried)

    def _report(self, worked: _Worked, following: Grant | str) -> None:
        dead = following == "DEAD"
        names = {"receiver": self.receiver.name, "key": self.item.text}
        logger.debug(
            "%s %s: pass %d, %d events, %.3f s: %s",
            *(*names.values(), self.passes, self.events.count, clock() - self.began),
            "AGAIN" if isinstance(following, Grant) else following,
            extra=names,
        )
        if worked.unbegun:
            text = "%s %s: its lease was over before the pass began: is TTL long enough?"
            logger.warning(text, *names.values(), extra=names)
        if worked.error is not None:
            self.error = worked.error
            level = logging.DEBUG if dead else logging.WARNING  # else its traceback comes twice
            attempts = self.grant.attempts + 1
            text, details = f"the receiver failed, attempt {attempts}", {"attempts": attempts}
            self._tell(signals.receiver_failed, level, text, error=worked.error, **details)
        if self.lost and not self.told:
            self.told = True
            text = "a pass outlived its lease, one more is asked for"
            details = {"fence": int(self.grant.fence), "passes": self.passes}
            self._tell(signals.lease_lost, logging.WARNING, text, **details)
        if dead:
            text = "given up until a new event comes, or a person"
            self._tell(signals.dead, logging.ERROR, text, error=self.error)
        elif following == "REQUEUED":
            text = "requeued, a further pass is owed"
            self._tell(signals.requeued, logging.INFO, text, passes=self.passes)

    def _tell(self, signal: Signal, level: int, text: str, **details: Any) -> None:
        signals.tell(signal, level, text, self.receiver, self.item, **details)


def given_up(receiver: Receiver[..., Any], item: Item, word: str) -> Ended:
    """Tell of an item that the store has given up, and why: ``"DEAD"`` or ``"BROKEN"``."""
    reason = "no pass ended within its lease" if word == "DEAD" else "its record is broken"
    text = f"given up until a new event comes, or a person: {reason}"
    signals.tell(signals.dead, logging.ERROR, text, receiver, item, error=None)
    return Ended(OUTCOMES[word])


def _described(error: BaseException | None) -> str:
    """Return an exception's traceback, bounded, whatever its ``str()`` does."""
    if error is None:
        return ""
    try:
        lines = traceback.TracebackException.from_exception(error).format()
        text = "".join(lines)[-LONGEST_ERROR:]
        return text.encode("utf-8", "replace").decode()  # a path may hold what UTF-8 can't write
    except Exception:
        return type(error).__name__
