"""What is owed: run it here, or look at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from .. import receivers, store, views, worker
from ..events import Events, group_names
from ..exceptions import RecordError
from ..keys import Concern
from ..outcome import Outcome
from ..receivers import Receiver
from ..records import Grant, Item
from ..runner import Ended, Hold
from ..worker import Tally

STATES: Final = {"due": "pending", "running": "running", "dead": "dead"}
"""What an item's index says of it."""


def drain(*, delayed: bool = False, raising: bool = True) -> Tally:
    """Run what is owed and ripe here, in this process and thread, as ``recheck_run`` does.

    In a TestCase it runs inside the test's own transaction.

    Args:
        delayed: Also what waits for its DELAY, or for another try after a failure. Each item is
            run once before its time.
        raising: Raise what the first failed receiver raised, once all is done.

    Returns:
        What was done: ``items``, ``passes``, ``failed``, and ``outcomes``, a ``Counter`` of
        ``Outcome``.

    Raises:
        Exception: What a receiver raised.
        AssertionError: An item failed otherwise, or what Redis holds for it can't be used.
        TransactionManagementError: This thread is in a transaction that isn't the test's own.
    """
    problems: list[BaseException] = []
    early: set[Item] = set()

    def note(item: Item, ended: Ended) -> None:
        if ended.outcome in (Outcome.FAILED, Outcome.DEAD, Outcome.LEASE_LOST):
            text = f"{item.receiver} {item.text}: {ended.outcome.value}"
            problem = ended.error or AssertionError(text)
            problem.add_note(f"In a drain: {text}.")
            problems.append(problem)

    tally = worker.drain(progress=note)
    while delayed and (waiting := _waiting() - early):
        early |= waiting
        for item in waiting:
            if ended := _before_its_time(item):
                tally.outcomes[ended.outcome] += 1
                tally.passes += ended.passes
                note(item, ended)
        more = worker.drain(progress=note)
        tally.outcomes += more.outcomes
        tally.passes += more.passes
        tally.problems |= more.problems
    if raising:
        problems += [AssertionError(f"{name}: {text}") for name, text in tally.problems.items()]
        for problem in problems:
            raise problem
    return tally


def _waiting() -> set[Item]:
    """Return the items of this process's receivers that are owed a pass, now or later."""
    names = worker.known_names()
    return {view.item for name in names for view in _views(name, "due")}


def _before_its_time(item: Item) -> Ended | None:
    receiver = receivers.named(item.receiver)
    assert receiver is not None
    granted = store.current().request(item, b"", 0, receiver.options)
    return Hold(receiver, granted).run() if isinstance(granted, Grant) else None


def _views(name: str, state: str) -> list[views.View]:
    current = store.current()
    counted = views.counts(current, [name])[name]
    return views.page(current, name, state, size=getattr(counted, state))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One item of a receiver, as it stands in Redis."""

    key: Any
    """What ``recheck_pass.key`` will be."""
    state: str
    """``"pending"``: a pass is owed, now or later; ``"running"``; or ``"dead"``: given up."""
    event_count: int
    """How many events wait for a pass."""
    signals: frozenset[str]
    """The names of their signals."""
    attempts: int
    """Failures since the last success."""


def recorded(receiver: Receiver[..., Any]) -> list[Recorded]:
    """Return what is recorded for a receiver: those it will run, that run, and that it gave up.

    Returns:
        The pending items first, in the order of their times, then the running and the dead ones.

    Raises:
        RecordError: Something there can't be read.
    """
    names = worker.known_names([decorated(receiver).name])
    found = [view for state in STATES for name in names for view in _views(name, state)]
    return [_recorded(view) for view in found if view.state in STATES]  # else it has just ended


def _recorded(view: views.View) -> Recorded:
    record = view.record
    if record is None:
        raise RecordError(f"{view.item.receiver} {view.item.text}: {view.problem}")
    events = Events.parse(record.newer_count, record.newer)
    return Recorded(
        key=Concern.parse(view.item.text).key,
        state=STATES[view.state],
        event_count=events.count,
        signals=frozenset(name for name, _, _ in group_names(events.groups) if name),
        attempts=record.attempts,
    )


def decorated(receiver: Any) -> Receiver[..., Any]:
    """Return the receiver, or say that it is none."""
    if not isinstance(receiver, Receiver):
        raise TypeError(f"Give a receiver that @recheck decorates, not {receiver!r}.")
    return receiver
