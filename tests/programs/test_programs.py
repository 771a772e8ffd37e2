"""Events delivered equal those that plain ``on_commit`` delivers, and a commit delivers once."""

from __future__ import annotations

import os
from collections import Counter
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from django.db import connections

from django_recheck import commit, dispatch, receivers, store, views, worker

from .program import DATABASES, Log, Program

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=list(DATABASES)),
    # captureOnCommitCallbacks logs what a robust callback raises, and so does Django.
    pytest.mark.filterwarnings("default"),
]
PROGRAMS = int(os.environ.get("RECHECK_PROGRAMS", "1500"))


def run(seed: int, *, breaking: bool = False) -> Log:
    """Run one program and leave nothing of it behind."""
    try:
        return Program(seed, breaking).run()
    finally:
        worker.drain([f"program-{seed}"])
        receivers.registry.pop(f"program-{seed}", None)
        for alias in DATABASES:
            assert not connections[alias].in_atomic_block


def test_ours_delivers_what_plain_on_commit_delivers() -> None:
    delivered = 0
    for seed in range(PROGRAMS):
        log = run(seed)
        assert set(log.ours) == log.plain, f"seed {seed}"
        assert all(number == 1 for number in Counter(log.ours).values()), f"seed {seed}"
        assert all(deliveries <= 1 for deliveries in log.runs), f"seed {seed}"
        delivered += len(log.ours)
    assert delivered > PROGRAMS
    assert views.counts(store.current()) == {}


def test_a_callback_that_raises_costs_no_event_more_than_plain_on_commit_loses() -> None:
    more = 0
    for seed in range(PROGRAMS // 5):
        log = run(seed, breaking=True)
        assert log.plain <= set(log.ours), f"seed {seed}"
        more += len(set(log.ours) - log.plain)
    assert more, "the first entry takes along what a raising callback would have stopped"


def differs(monkeypatch: pytest.MonkeyPatch) -> bool:
    """Say whether some program shows that events are delivered wrongly."""
    for seed in range(300):
        log = run(seed)
        if set(log.ours) != log.plain:
            return True
    return False


def test_strong_references_deliver_what_was_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    strong = SimpleNamespace(WeakValueDictionary=dict, WeakKeyDictionary=WeakKeyDictionary)
    monkeypatch.setattr(commit, "weakref", strong)
    monkeypatch.setattr(commit, "_waiting", WeakKeyDictionary())
    assert differs(monkeypatch)


def test_without_order_entries_are_taken_before_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def take_all(entry: Any) -> None:
        if entry.done:
            return
        batch = [e for e in list(commit._waiting[entry.connection].values()) if not e.done]
        for other in batch:
            other.done = True
        dispatch.deliver([other.ready for other in batch])

    monkeypatch.setattr(commit.Entry, "__call__", take_all)
    assert differs(monkeypatch)
