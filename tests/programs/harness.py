"""Runs programs for real, and compares what is delivered with what plain ``on_commit`` delivers.

The reference is a plain receiver of the same signals that registers one ``on_commit`` callback an
event. Both are watched at their border: what ``dispatch.deliver`` is given, what the callbacks say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.backends.signals import connection_created
from django.db.models.signals import post_delete, post_save
from django.dispatch import Signal
from django.test import TestCase

from django_recheck import dispatch, recheck, store, views, worker
from django_recheck.events import Call
from django_recheck.outage import Ready
from tests.app.models import Item

from .program import (
    DATABASES,
    Atomic,
    Capture,
    Catch,
    Event,
    Foreign,
    Program,
    Raise,
    RollBack,
    Step,
    Steps,
)

NAME = "program"


class Wanted(Exception):
    """What programs raise."""


EXPECTED = (Wanted, RuntimeError, transaction.TransactionManagementError)
"""What else comes up: a durable block inside of another, a query in a broken block."""


@dataclass
class Run:
    """One run of a connection's callbacks: a commit, the end of a capture, an event on its own."""

    plain: frozenset[int] = frozenset()
    """Events whose plain callbacks it has before it."""
    began: int = 0
    """The newest event when it began."""
    last: dict[str, int] = field(default_factory=dict)
    """For each item the number of the newest event at its last delivery in this run."""


@dataclass
class Found:
    """What became of one program."""

    faults: list[str] = field(default_factory=list)
    plain: set[int] = field(default_factory=set)
    """Events that plain callbacks were called for."""
    ours: Counter[int] = field(default_factory=Counter)
    excused: set[int] = field(default_factory=set)
    """Events that an entry before them may take along although their plain callback isn't called.

    Those of a run that a raising callback stopped, or of callbacks that are called by hand; those
    captured in a block that an exception leaves, whose frames keep them alive.
    """
    delivered: Counter[str] = field(default_factory=Counter)
    """Events delivered of each item."""
    covered: Counter[str] = field(default_factory=Counter)
    """Events that the passes of each item covered."""
    merged: int = 0
    """Events that went along with another one's entry."""

    def judge(self) -> list[str]:
        """Return what is wrong."""
        ours = set(self.ours)
        faults = list(self.faults)
        if missing := self.plain - ours:
            faults.append(f"not delivered: {sorted(missing)}")
        if extra := ours - self.plain - self.excused:
            faults.append(f"delivered, though never committed: {sorted(extra)}")
        if twice := [number for number, times in self.ours.items() if times > 1]:
            faults.append(f"delivered twice: {twice}")
        if self.delivered != self.covered:
            faults.append(f"events {self.delivered}, but passes covered {self.covered}")
        return faults


class _AtExit(AbstractContextManager[Any]):
    """Another context manager, with a ``Run`` that counts as open while it exits."""

    def __init__(self, harness: Harness, using: str, inner: AbstractContextManager[Any]) -> None:
        self.harness, self.using, self.inner = harness, using, inner
        self.start = len(connections[using].run_on_commit)

    def __enter__(self) -> Any:
        return self.inner.__enter__()

    def __exit__(self, *raised: Any) -> bool | None:
        waiting = connections[self.using].run_on_commit[self.start :]
        plain = self.harness.numbers(callback for _, callback, *_ in waiting)
        if raised[0] and not isinstance(self.inner, transaction.Atomic):
            self.harness.found.excused |= plain
        with self.harness.running(plain):
            return self.inner.__exit__(*raised)


class Harness:
    """Runs programs, one after the other. Make one with ``harness()``."""

    def __init__(self) -> None:
        self.number = 0
        self.found = Found()
        self.runs: list[Run] = []
        self.probe = Signal()
        self.blocks = 0
        """Transactions around a program that count as a TestCase's."""

    def run(self, program: Program) -> Found:
        """Run a program, then a drain; what it has put into Redis is gone after it."""
        self.found, self.runs = Found(), [Run()]
        with ExitStack() as stack:
            if program.testcase:
                for using in DATABASES:
                    block = transaction.atomic(using=using)
                    block._from_testcase = True  # type: ignore[attr-defined]
                    stack.enter_context(block)
                    stack.callback(transaction.set_rollback, True, using=using)
            self.blocks = int(program.testcase)
            with suppress(*EXPECTED):
                self.walk(program.body)
            worker.drain([NAME])
        if left := views.counts(store.current()):
            self.found.faults.append(f"left in Redis: {left}")
        return self.found

    def walk(self, steps: Steps) -> None:
        """Run some steps."""
        for step in steps:
            self.step(step)

    def step(self, step: Step) -> None:
        """Run one step."""
        match step:
            case Event():
                self.event(step)
            case Raise():
                raise Wanted
            case RollBack(using):
                if connections[using].in_atomic_block and len(self.depths(using)) > self.blocks:
                    transaction.set_rollback(True, using=using)
            case Catch(body):
                with suppress(*EXPECTED):
                    self.walk(body)
            case Atomic(using, savepoint, durable, body):
                block = transaction.atomic(using=using, savepoint=savepoint, durable=durable)
                with _AtExit(self, using, block):
                    self.walk(body)
            case Capture():
                self.capture(step)
            case Foreign(using, robust, body):
                with self.running():
                    transaction.on_commit(lambda: self.foreign(body), using=using, robust=robust)

    def event(self, event: Event) -> None:
        """Let an event happen, and a commit of its own where no transaction is open."""
        self.number += 1
        row = Item(pk=event.row + 1, value=self.number)
        with self.running():
            if event.kind == "save":
                row.save(using=event.using)
            elif event.kind == "delete":
                row.delete(using=event.using)
            else:
                self.probe.send(sender=Item, instance=row, using=event.using)

    def capture(self, step: Capture) -> None:
        """Capture what its steps register."""
        captured = TestCase.captureOnCommitCallbacks(
            using=step.using, execute=step.how == "execute"
        )
        with _AtExit(self, step.using, captured) as callbacks:
            self.walk(step.body)
        if step.how == "by hand":
            with self.running(self.numbers(callbacks)):
                for callback in callbacks:
                    callback()
                    self.excuse(self.runs[-1])  # what it registered isn't in the list

    def foreign(self, body: Steps) -> None:
        """Be another app's callback."""
        run = self.runs[-1]
        try:
            self.walk(body)
        except Exception:
            self.excuse(run)
            raise

    def excuse(self, run: Run) -> None:
        """Allow that a run delivers all that it has, and what was registered meanwhile."""
        self.found.excused |= {*run.plain, *range(run.began + 1, self.number + 1)}

    # The reference, and what is watched

    def plain(self, sender: Any, using: str, **kwargs: Any) -> None:
        """Receive an event without the decorator."""
        transaction.on_commit(partial(self.note, self.number), using=using)

    def note(self, number: int) -> None:
        """Be called for an event after its commit, as far as plain ``on_commit`` knows."""
        self.found.plain.add(number)

    def numbers(self, callbacks: Any) -> frozenset[int]:
        """Return the events of the plain callbacks among some."""
        return frozenset(
            call.args[0] for call in callbacks if getattr(call, "func", None) == self.note
        )

    @contextmanager
    def running(self, plain: frozenset[int] = frozenset()) -> Iterator[None]:
        """Say that callbacks run from here on."""
        self.runs.append(Run(plain, self.number))
        try:
            yield
        finally:
            self.runs.pop()

    def delivers(self, batch: Sequence[Ready]) -> None:
        """Note what ours delivers."""
        run, newest = self.runs[-1], self.number
        self.found.merged += max(0, len(batch) - 1)
        before = dict(run.last)
        for ready in batch:
            text = ready.item.text
            number: int = Call.of(ready.events.groups[-1], "default").data
            self.found.ours[number] += 1
            self.found.delivered[text] += 1
            run.last[text] = newest
            if number <= before.get(text, 0):
                self.found.faults.append(f"event {number} wasn't taken along by one before it")

    def passes(self, recheck_pass: Any) -> None:
        """Be in a pass: no database has a transaction open, but for a TestCase's own."""
        self.found.covered[recheck_pass.item.text] += recheck_pass.event_count
        if opened := [using for using in DATABASES if len(self.depths(using)) > self.blocks]:
            self.found.faults.append(f"a pass inside of a transaction of {opened}")

    @staticmethod
    def depths(using: str) -> list[Any]:
        """Return the blocks that a database has open."""
        return list(connections[using].atomic_blocks)


@contextmanager
def harness() -> Iterator[Harness]:
    """Connect a harness's receivers and watch where events are delivered."""
    made, deliver = Harness(), dispatch.deliver

    def watched(batch: Sequence[Ready]) -> Any:
        made.delivers(batch)
        return deliver(batch)

    @recheck(
        name=NAME,
        key=lambda instance, **_: ("row", instance.pk),
        data=lambda **_: made.number,
        refresh=False,  # where a program broke a TestCase's transaction, no row can be read
    )
    def rebuild(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        made.passes(recheck_pass)

    for signal in (post_save, post_delete):
        signal.connect(rebuild, sender=Item)
        signal.connect(made.plain, sender=Item)
    made.probe.connect(rebuild)
    made.probe.connect(made.plain)
    for using in DATABASES:
        connections[using].close()
    connection_created.connect(_carelessly)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "deliver", watched)
        try:
            yield made
        finally:
            connection_created.disconnect(_carelessly)


def _carelessly(connection: Any, **kwargs: Any) -> None:
    """Spare the disk: nothing here outlives the process."""
    if connection.vendor == "sqlite":
        connection.cursor().execute("PRAGMA synchronous = OFF")
