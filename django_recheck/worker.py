"""Runs what is ripe: retries, requeued items, delayed ones, and what a dead holder left."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import connections
from django.db.transaction import TransactionManagementError
from redis.exceptions import ResponseError

from . import dispatch, outage, receivers, store, transactions, views
from .exceptions import NewerRecord
from .outcome import Outcome
from .records import Grant, Item
from .runner import Ended, Hold, given_up, never

logger = logging.getLogger("django_recheck")

BATCH: Final = 10
"""Items that one look at a lane names."""
PUT_OFF: Final = 5.0
"""Seconds for which other workers don't see what this one has looked at."""


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


def drain(
    names: Iterable[str] | None = None,
    *,
    limit: int | None = None,
    stopping: Callable[[], bool] = never,
    progress: Callable[[Item, Ended], Any] | None = None,
) -> Tally:
    """Run what is ripe now, and what becomes ripe meanwhile, until nothing is.

    Args:
        names: Receivers to look at, by default all of this process with their former names.
        limit: Most items to run.
        stopping: Asked between passes; True ends the drain and gives the rest back.
        progress: Called with each item and how its hold ended.

    Returns:
        What was done.

    Raises:
        RedisError: Redis doesn't answer.
        TransactionManagementError: This thread is in a transaction.
    """
    if (connection := transactions.opened()) is not None:
        raise TransactionManagementError(
            f"A drain can't run inside a transaction of {connection.alias!r}: its passes would "
            "read what isn't committed. Call it after the transaction."
        )
    tally, current = Tally(), store.current()
    wanted = known_names(names)
    found = True
    while found and not stopping() and (limit is None or tally.items < limit):
        found = False
        dispatch.record_owed()
        items, problems = current.peek(wanted, BATCH, PUT_OFF)
        tally.problems |= problems
        for item in _interleaved(items):
            if stopping() or (limit is not None and tally.items >= limit):
                break
            found = True
            _close_old_connections()
            try:
                ended = run_item(item, stopping)
            except ResponseError as error:
                if type(error) is not ResponseError:
                    raise  # it is read-only, full, …
                tally.problems[item.receiver] = f"{item.text} can't be run: {error}"
                continue
            if ended:
                tally.outcomes[ended.outcome] += 1
                tally.passes += ended.passes
                if progress:
                    progress(item, ended)
    for ready in outage.owing():
        tally.problems[ready.receiver.name] = "owed a pass that Redis doesn't take"
    for name, problem in tally.problems.items():
        logger.error("%s: %s", name, problem, extra={"receiver": name})
    if not stopping():
        tally.unknown = _unknown(current) if names is None else {}
        current.drained()
    return tally


def run_item(item: Item, stopping: Callable[[], bool] = never) -> Ended | None:
    """Claim one item and run its hold; None if it isn't to be had or isn't ripe."""
    receiver = receivers.named(item.receiver)
    if receiver is None:
        return None
    try:
        granted = store.current().claim(item, receiver.options)
    except NewerRecord as error:
        names = {"receiver": item.receiver, "key": item.text}
        logger.log(dispatch.level(error), "%s %s: %s", *names.values(), error, extra=names)
        return None
    if isinstance(granted, Grant):
        return Hold(receiver, granted, stopping=stopping).run()
    names = {"receiver": item.receiver, "key": item.text}
    if granted in ("DEAD", "BROKEN"):
        return given_up(receiver, item, granted)
    if granted == "MISSING":
        logger.warning("%s %s: was due, but nothing is recorded", *names.values(), extra=names)
    return None


def _close_old_connections() -> None:
    """Do as Django does between requests, but leave a transaction alone, such as a TestCase's."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def _interleaved(items: Iterable[Item]) -> list[Item]:
    """Return items so that receivers take turns: a long lane doesn't hold the others up."""
    places: Counter[str] = Counter()
    ranked = []
    for item in items:
        ranked.append((places[item.receiver], item))
        places[item.receiver] += 1
    return [item for _, item in sorted(ranked, key=lambda pair: pair[0])]


def _unknown(current: store.Store) -> dict[str, int]:
    """Count what waits for receivers that this process doesn't have; report it once an hour."""
    mine = set(known_names())
    waiting = {n: c.due + c.running for n, c in views.counts(current).items() if n not in mine}
    told = waiting and current.first_in_an_hour("unknown")
    for name, number in waiting.items() if told else ():
        logger.warning(
            "%s: %d items wait for this receiver, which isn't in this process",
            name,
            number,
        )
    return waiting


def known_names(names: Iterable[str] | None = None) -> list[str]:
    """Return the names of some receivers of this process, of all by default, former ones too."""
    own = list(receivers.registry) if names is None else list(names)
    found = [receiver for receiver in map(receivers.named, own) if receiver]
    return list(dict.fromkeys(name for r in found for name in (r.name, *r.former_names)))
