"""Random programs of savepoints and rollbacks: the rows at each commit are the committed items.

The reference is the database itself: a row of a plain table for each event, by the same connection.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections import Counter, defaultdict
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from django.db import Error
from django.db.models.signals import post_delete, post_save

from django_recheck import recheck
from django_recheck.outbox import table, written
from tests.app.models import Item, Watched
from tests.programs.harness import Harness
from tests.programs.program import DATABASES, Program, random_program

from .seen import names, rows

pytestmark = pytest.mark.django_db(transaction=True, databases=list(DATABASES))
PROGRAMS = int(os.environ.get("RECHECK_PROGRAMS", "1500")) // 10
SIGNALS = {"save": "post_save", "delete": "post_delete", "send": ""}


class Watching(Harness):
    """Runs programs, and compares the rows with the events that the database has."""

    def __init__(self) -> None:
        super().__init__()
        self.level = 0
        self.kind = ""
        self.exact = True
        self.compared = 0
        self.merged = 0
        self.faults: list[str] = []
        self.transactions = itertools.count()

    def judged(self, program: Program) -> list[str]:
        """Run a program, and return what is wrong with its rows."""
        self.faults = []
        self.exact = "Capture(" not in repr(program)
        self.run(program)
        for using in DATABASES:
            for model in (table.model(), Watched, Item):
                model.objects.using(using).all()._raw_delete(using)
        return self.faults

    def walk(self, steps: Any) -> None:
        """Run some steps; the outermost ones are followed by the comparison."""
        self.level += 1
        try:
            super().walk(steps)
        finally:
            self.level -= 1
            if not self.level:
                for using in DATABASES:
                    with suppress(Error):  # a TestCase's transaction, broken
                        self.compare(using)

    def event(self, event: Any) -> None:
        """Let an event happen, of a kind that the reference knows."""
        self.kind = event.kind
        super().event(event)

    def refer(self, sender: Any, instance: Any, using: str, **kwargs: Any) -> None:
        """Write an event down, with the transaction that it belongs to."""
        blocks = self.depths(using)
        if blocks and not hasattr(blocks[0], "number"):
            blocks[0].number = next(self.transactions)
        number = blocks[0].number if blocks else next(self.transactions)
        name = f"{number} {instance.pk} {self.kind}"
        Watched.objects.using(using).bulk_create([Watched(name=name)])

    def compare(self, using: str) -> None:
        """Compare what the database has of both."""
        happened = {tuple(w.name.split()) for w in Watched.objects.using(using).all()}
        wanted = Counter(pk for pk, _ in {(pk, number) for number, pk, _ in happened})
        kinds: dict[str, set[str]] = defaultdict(set)
        told: dict[str, set[str]] = defaultdict(set)
        for _, pk, kind in happened:
            kinds[pk].add(SIGNALS[kind])
        found: Counter[str] = Counter()
        for row in rows(using):
            pk = row.item.partition(",")[2].partition("]")[0]
            found[pk] += 1
            told[pk].update(name if name in SIGNALS.values() else "" for name in names(row))
        if kinds != told:
            self.faults.append(f"{using}: happened {dict(kinds)}, told {dict(told)}")
        if self.exact and wanted != found:
            self.faults.append(f"{using}: items of transactions {wanted}, rows {found}")
        self.compared += len(wanted)
        self.merged += Watched.objects.using(using).count() - found.total()


@pytest.fixture
def watching() -> Watching:
    made = Watching()

    @recheck(
        name="kept", key=lambda instance, **_: ("row", instance.pk), durable=True, dispatch="worker"
    )
    def keep(sender: Any, **kwargs: Any) -> None: ...

    for signal in (post_save, post_delete, made.probe):
        signal.connect(keep, sender=Item)
        signal.connect(made.refer, sender=Item)
    return made


def test_rows_at_commit_are_the_committed_items(watching: Watching) -> None:
    exact = 0
    for seed in range(PROGRAMS):
        program = random_program(Random(seed))
        assert not (faults := watching.judged(program)), f"seed {seed}: {faults}: {program}"
        exact += watching.exact
    assert watching.compared > PROGRAMS / 2
    assert watching.merged > PROGRAMS / 10
    assert exact > PROGRAMS / 10


def first_fault(watching: Watching) -> str:
    """Return what is wrong with the first program that isn't right, "" if all are."""
    for seed in range(PROGRAMS):
        if faults := watching.judged(random_program(Random(seed))):
            return f"seed {seed}: {faults}"
    return ""


def test_when_rows_outlive_their_savepoints_some_are_missing(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written.Row, "lives", lambda row, connection: True)
    monkeypatch.setattr(weakref, "WeakValueDictionary", dict)
    assert "items of transactions" in first_fault(watching)


def test_when_no_row_is_known_there_are_too_many(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written.Row, "lives", lambda row, connection: False)
    assert "items of transactions" in first_fault(watching)
