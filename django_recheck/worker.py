"""Runs what is ripe: retries, requeued items, delayed ones, and what a dead holder left."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import connections
from django.db.transaction import TransactionManagementError
from django.utils.translation import gettext as _
from redis.exceptions import ResponseError

from . import dispatch, handover, outage, receivers, store, transactions, views
from .exceptions import NewerRecord
from .granted import Granted
from .outbox import replay
from .outcome import Outcome
from .records import Grant, Item, clock
from .ripe import Ripe
from .runner import Ended, Hold, given_up, never

logger = logging.getLogger("django_recheck")

KEPT: Final = 1.0
"""Seconds for which passes that follow one another have the same database connections, also where
CONN_MAX_AGE is 0: opening one may cost more than the pass."""


def nothing(*_: Any) -> None:
    """Do nothing."""


@dataclass(slots=True)
class Tally:
    """What a drain has done."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    passes: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    """Items of receivers that this process doesn't have, by receiver: left alone."""
    problems: dict[str, str] = field(default_factory=dict)
    """What Redis holds for a receiver and can't be used, by receiver: the others were drained."""

    @property
    def items(self) -> int:
        """Items that were run."""
        return self.outcomes.total()

    @property
    def failed(self) -> int:
        """Items whose pass failed, or that were given up."""
        return self.outcomes[Outcome.FAILED] + self.outcomes[Outcome.DEAD]


class Drain:
    """What is ripe, run until nothing is: by one thread or several side by side.

    Args:
        names: Receivers to look at, by default all of this process with their former names.
        limit: Most items to run.
        stopping: Asked between passes; True ends the drain and gives the rest back.
        progress: Called with each item and how its hold ended, by one thread at a time.
        looked: Called after each look at what is ripe.
    """

    def __init__(
        self,
        names: Iterable[str] | None = None,
        *,
        limit: int | None = None,
        stopping: Callable[[], bool] = never,
        progress: Callable[[Item, Ended], Any] = nothing,
        looked: Callable[[], Any] = nothing,
    ) -> None:
        self.tally = Tally()
        self.names = known_names(names)
        self._all = names is None
        self._room = float("inf") if limit is None else limit
        self._stopping = stopping
        self._stopped = False
        self._alone = True
        self._progress = progress
        self._ripe = Ripe(self.names, looked)
        self._problems: dict[str, str] = {}
        self._told: dict[str, str] = {}
        self._unknown: Mapping[str, int] = {}
        self._mutex = threading.Lock()

    def over(self) -> bool:
        """Return whether no further item is to be run: it was stopped, or has reached its limit."""
        return not self._room or self._ending()

    def _ending(self) -> bool:
        return self._stopped or self._stopping()

    def stop(self) -> None:
        """End it in all threads, after their passes."""
        self._stopped = True

    def refuse_transactions(self) -> None:
        """Refuse to work where passes would read what isn't committed.

        Raises:
            TransactionManagementError: This thread is in a transaction.
        """
        if (connection := transactions.opened()) is not None:
            raise TransactionManagementError(
                f"A drain can't run inside a transaction of {connection.alias!r}: its passes would "
                "read what isn't committed. Call it after the transaction."
            )

    def run(self, threads: int = 1) -> None:
        """Run what is ripe now, and what becomes ripe meanwhile, until nothing is.

        Args:
            threads: How many do so side by side, this one included.

        Raises:
            RedisError: Redis doesn't answer.
            TransactionManagementError: This thread is in a transaction.
        """
        self.refuse_transactions()
        self._begin()
        self._side_by_side(threads)
        self._tell()
        if not self.over():
            self._note()

    def _side_by_side(self, threads: int) -> None:
        self._alone = threads == 1
        raised: list[BaseException] = []

        def work() -> None:
            try:
                self._work()
            except BaseException as error:  # also what a receiver ends its thread with
                raised.append(error)
                self.stop()

        def help_out() -> None:
            try:
                work()
            finally:
                connections.close_all()  # this thread's

        named = (f"django-recheck-{number}" for number in range(2, threads + 1))
        helpers = [threading.Thread(target=help_out, name=name, daemon=True) for name in named]
        for helper in helpers:
            helper.start()
        work()
        for helper in helpers:
            helper.join()
        for error in raised:
            raise error

    def _begin(self) -> None:
        """Bring what waits elsewhere to Redis."""
        replayed = replay.replay(self.names, known_names(), self.over)
        self._unknown = replayed.unknown
        with self._mutex:
            self._problems |= replayed.problems

    def _work(self) -> None:
        """Run items, in one of the threads."""
        tended = float("-inf")
        try:
            while items := self._next():
                if clock() - tended > KEPT:
                    close_old_connections()
                    tended = clock()
                self._run(items)
        finally:
            close_old_connections()
            with suppress(*outage.FAULTS):
                self._ripe.give_back()

    def _next(self) -> list[Item]:
        """Return items to claim together, none if there is nothing to do any more."""
        if self.over():
            return []
        item = self._take()
        items = [] if item is None else [item]
        if item and self._alone:  # threads are for slow passes, and share what was named
            items += self._ripe.beside()
        with self._mutex:
            room = 0 if self._ending() else int(min(self._room, len(items)))
            self._room -= room
        self._ripe.put_back(items[room:])
        return items[:room]

    def _take(self) -> Item | None:
        return self._ripe.take()

    def _note(self) -> None:
        """Write down that all was drained, and report what is left to others."""
        if self._all:
            current = store.current()
            self.tally.unknown = _unknown(current, self._unknown)
            current.drained()

    def _run(self, items: Sequence[Item]) -> None:
        found = [(item, receivers.named(item.receiver)) for item in items]
        known = [(item, receiver) for item, receiver in found if receiver]
        self._not_run(len(found) - len(known))
        claimed = store.current().claim_many([(item, r.options) for item, r in known])
        pairs = list(zip(known, claimed, strict=True))
        granted = Granted((one, r) for (_, r), one in pairs if isinstance(one, Grant))
        try:  # from here on nothing may go without being given back
            for (item, receiver), one in pairs:
                if not isinstance(one, Grant):
                    self._note_refused(receiver, item, one)
            while not self._ending() and (held := granted.take()) is not None:
                began = clock()
                grant, receiver = held
                if (heir := handover.heir(receiver, grant)) is not None:
                    handover.give(receiver, grant, heir)
                    self._not_run(1)
                    continue
                row = granted.row(grant.item)
                hold = Hold(receiver, grant, stopping=self._ending, row=row)
                self._note_end(grant.item, hold.run())
                self._ripe.took(clock() - began)
                close_old_connections(failed=True)
        finally:
            granted.close()
            if granted.returned:
                self._ripe.alone()
                self._not_run(granted.returned)

    def _note_refused(
        self, receiver: receivers.Receiver[..., Any], item: Item, why: str | Exception
    ) -> None:
        ended = None
        if isinstance(why, ResponseError):
            with self._mutex:
                self._problems[item.receiver] = f"{item.text} can't be run: {why}"
        else:
            ended = not_granted(receiver, item, why)
        if ended is None:
            self._not_run(1)
        else:
            self._note_end(item, ended)

    def _not_run(self, number: int) -> None:
        with self._mutex:
            self._room += number

    def _note_end(self, item: Item, ended: Ended) -> None:
        with self._mutex:
            self.tally.outcomes[ended.outcome] += 1
            self.tally.passes += ended.passes
            self._progress(item, ended)

    def _tell(self) -> None:
        """Log what couldn't be used since it was last told, a problem that stays only once."""
        owed = outage.owing()
        with self._mutex:
            problems, self._problems = self._problems | self._ripe.collect(), {}
            for ready in owed:
                problems[ready.receiver.name] = "owed a pass that Redis doesn't take"
            news = {n: text for n, text in problems.items() if self._told.get(n) != text}
            self._told = problems
            self.tally.problems |= problems
        for name, problem in news.items():
            logger.error("%s: %s", name, problem, extra={"receiver": name})


def drain(
    names: Iterable[str] | None = None,
    *,
    limit: int | None = None,
    stopping: Callable[[], bool] = never,
    progress: Callable[[Item, Ended], Any] = nothing,
) -> Tally:
    """Run in this thread what is ripe, until nothing is; see ``Drain``.

    Returns:
        What was done.
    """
    this = Drain(names, limit=limit, stopping=stopping, progress=progress)
    this.run()
    return this.tally


def not_granted(
    receiver: receivers.Receiver[..., Any], item: Item, why: str | Exception
) -> Ended | None:
    """Tell of an item that isn't to be had; return how it ended, if it did."""
    names = {"receiver": item.receiver, "key": item.text}
    if isinstance(why, NewerRecord):
        logger.log(dispatch.level(why), "%s %s: %s", *names.values(), why, extra=names)
    elif why in ("DEAD", "BROKEN"):
        return given_up(receiver, item, str(why))
    elif why == "MISSING":
        logger.warning("%s %s: was due, but nothing is recorded", *names.values(), extra=names)
    return None


def close_old_connections(*, failed: bool = False) -> None:
    """Do as Django does between requests, but leave a transaction alone, such as a TestCase's.

    Args:
        failed: Only where something has failed: an age that is over isn't looked at.
    """
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block and (connection.errors_occurred or not failed):
            connection.close_if_unusable_or_obsolete()


def _unknown(current: store.Store, rows: Mapping[str, int]) -> dict[str, int]:
    """Count what waits for receivers that this process doesn't have; report each once an hour."""
    mine = set(known_names())
    waiting = {n: c.due + c.running for n, c in views.counts(current).items() if n not in mine}
    waiting = {n: max(waiting.get(n, 0), rows.get(n, 0)) for n in (*waiting, *rows)}
    untold = set(current.untold([f"unknown:{name}" for name in waiting]))
    for name in (name for name in waiting if f"unknown:{name}" in untold):
        logger.warning("%s", left_alone(name, waiting[name]), extra={"receiver": name})
    return waiting


def left_alone(name: str, number: int) -> str:
    """Say what to do about items of a receiver that this process doesn't have."""
    return _(
        "%(name)s: %(number)s items wait for this receiver, which isn't in this process, and are "
        "left untouched: if it has another name now, give it former_names=['%(name)s']"
    ) % {"name": name, "number": number}


def known_names(names: Iterable[str] | None = None) -> list[str]:
    """Return the names of some receivers of this process, of all by default, former ones too."""
    own = list(receivers.registry) if names is None else list(names)
    found = [receiver for receiver in map(receivers.named, own) if receiver]
    return list(dict.fromkeys(name for r in found for name in (r.name, *r.former_names)))
