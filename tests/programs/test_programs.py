"""Events delivered equal those that plain ``on_commit`` delivers, and a commit delivers once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from weakref import WeakKeyDictionary

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_recheck import commit

from .harness import Harness, harness
from .program import DATABASES, random_program

pytestmark = pytest.mark.django_db(transaction=True, databases=list(DATABASES))
PROGRAMS = int(os.environ.get("RECHECK_PROGRAMS", "1500"))


@pytest.fixture
def running() -> Iterator[Harness]:
    with harness() as made:
        yield made


def test_what_is_delivered_is_what_plain_on_commit_delivers(running: Harness) -> None:
    delivered = merged = stopped = 0
    for seed in range(PROGRAMS):
        program = random_program(Random(seed))
        found = running.run(program)
        assert not found.judge(), f"seed {seed}: {program}"
        delivered += len(found.ours)
        merged += found.merged
        stopped += len(set(found.ours) - found.plain)
    assert delivered > PROGRAMS
    assert merged > PROGRAMS / 10
    assert stopped or PROGRAMS < 1000, (
        "the first entry takes along what a raising callback would have stopped"
    )


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.randoms(use_true_random=False))
def test_programs_that_hypothesis_makes(running: Harness, chance: Random) -> None:
    program = random_program(chance)
    found = running.run(program)
    assert not found.judge(), program


def first_fault(running: Harness) -> str:
    """Return what is wrong with the first program that isn't right, "" if all are."""
    for seed in range(600):
        if faults := running.run(random_program(Random(seed))).judge():
            return f"seed {seed}: {faults}"
    return ""


def test_with_strong_references_what_was_rolled_back_is_delivered(
    running: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    strong = SimpleNamespace(WeakValueDictionary=dict, WeakKeyDictionary=WeakKeyDictionary)
    monkeypatch.setattr(commit, "weakref", strong)
    monkeypatch.setattr(commit, "_waiting", WeakKeyDictionary())
    assert "never committed" in first_fault(running)


class Unordered(commit.Entry):
    """An entry that takes all living ones along, also earlier ones."""

    def __call__(self) -> None:
        number, self.number = self.number, -1
        try:
            super().__call__()
        finally:
            self.number = number


def test_without_an_order_entries_go_before_their_time(
    running: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "Entry", Unordered)
    assert "never committed" in first_fault(running)


class Alone(commit.Entry):
    """An entry that takes none along."""

    def __call__(self) -> None:
        waiting = commit._waiting[self.connection]
        commit._waiting[self.connection] = type(waiting)({self.number: self})
        try:
            super().__call__()
        finally:
            commit._waiting[self.connection] = waiting


def test_when_each_goes_alone_a_commit_delivers_an_item_twice(
    running: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "Entry", Alone)
    assert "wasn't taken along" in first_fault(running)
