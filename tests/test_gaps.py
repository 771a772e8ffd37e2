"""Ways in which an event, a heal or an end could go unseen: each was seen once."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models.signals import post_delete, post_save

from django_recheck import Outcome, outage, recheck, signals, store, transactions, views, worker
from django_recheck.records import Item
from tests.servers import Server, apart

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])
SOON = (0.01, 0.01)


class TimeLimit(Exception):
    """What a worker's soft time limit raises, wherever the thread is."""


@pytest.fixture
def limited() -> Iterator[Any]:
    """Let a time limit strike this thread after some seconds."""

    def strike(number: int, frame: FrameType | None) -> None:
        raise TimeLimit

    before = signal.signal(signal.SIGALRM, strike)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def server(settings: Any) -> Iterator[Server]:
    """A server that may hang or be flushed."""
    with apart(settings) as server:
        yield server


def left() -> dict[str, Any]:
    """Return what Redis has of items."""
    return {
        name: (found.running, found.due, found.dead)
        for name, found in views.counts(store.current()).items()
    }


def drain_for(seconds: float) -> worker.Tally:
    until = time.monotonic() + seconds
    return worker.drain(stopping=lambda: time.monotonic() > until)


# Interrupts


def test_an_async_receiver_is_over_before_its_lock_is_given_up(limited: Any) -> None:
    log: list[str] = []

    @recheck(key=lambda **_: 1, name="slow", backoff=SOON)
    async def slow(recheck_pass: Any, **kwargs: Any) -> None:
        log.append("begins")
        try:
            await asyncio.sleep(60 if len(log) == 1 else 0)
        finally:
            log.append("ends")

    limited(0.3)
    assert slow.recheck(key=1) is Outcome.FAILED
    assert log == ["begins", "ends"]
    time.sleep(SOON[1])
    worker.drain()
    assert log == ["begins", "ends"] * 2


def test_a_first_word_that_is_interrupted_stays_owed(limited: Any, server: Server) -> None:
    keys: list[Any] = []

    @recheck(key=lambda **_: 1, name="note", ttl=1)
    def note(recheck_pass: Any, **kwargs: Any) -> None:
        keys.append(recheck_pass.key)

    note.recheck(key=0)
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)
    limited(0.3)
    with transaction.atomic():
        note.recheck(key=1)
    os.kill(server.process.pid, signal.SIGCONT)
    assert [ready.item.text for ready in outage.owing()] == ["1"]
    note.recheck(key=2)
    assert outage.owing() == []
    until = time.monotonic() + 10  # what was asked may have been granted: that lease ends first
    while 1 not in keys and time.monotonic() < until:
        worker.drain()
    assert 1 in keys


def test_repaying_that_is_interrupted_owes_all_of_it_still(limited: Any, server: Server) -> None:
    @recheck(key=lambda **_: 1, name="note")
    def note(**kwargs: Any) -> None:
        pass

    server.end()
    for key in (1, 2):
        assert note.recheck(key=key) is Outcome.UNLOCKED
    server.start()
    outage.breaker.close()
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)
    limited(0.3)
    with pytest.raises(TimeLimit):
        worker.drain()
    os.kill(server.process.pid, signal.SIGCONT)
    assert {ready.item.text for ready in outage.owing()} == {"1", "2"}


# A pass's own events, when it doesn't end well


class Index:
    """A receiver that deletes its own row, once, and then does what a test wants."""

    def __init__(self, then: Any) -> None:
        self.heard: list[bool] = []

        @recheck(name="index", backoff=SOON)
        def index(sender: Any, instance: Any, recheck_pass: Any, **kwargs: Any) -> None:
            self.heard.append(recheck_pass.gone)
            if len(self.heard) == 1:
                instance.delete()
                then(recheck_pass)

        post_save.connect(index, sender=User)
        post_delete.connect(index, sender=User)

    def told_of_the_delete(self) -> bool:
        time.sleep(SOON[1])
        worker.drain()
        return self.heard[-1]


def fails(_: Any) -> None:
    raise RuntimeError("network")


def loses_its_lock(run: Any) -> None:
    lane = store.current().lane_of(run.item)
    store.current().client.delete(*lane.keys, lane.lock(run.item))


@pytest.mark.parametrize("then", [lambda _: None, fails, loses_its_lock])
def test_own_events_go_along_however_the_pass_ends(then: Any) -> None:
    index = Index(then)
    User.objects.create(username="x")
    assert index.told_of_the_delete()


def test_own_events_of_an_unlocked_pass_are_owed(server: Server) -> None:
    index = Index(lambda _: None)
    server.end()
    User.objects.create(username="x")
    server.start()
    outage.breaker.close()
    assert index.told_of_the_delete()


# What could go round for ever


def test_a_receiver_that_flushes_its_lock_away_ends_dead(server: Server) -> None:
    passes, dead = [], []

    @recheck(key=lambda **_: 1, name="flusher", backoff=SOON, max_attempts=4)
    def flusher(recheck_pass: Any, **kwargs: Any) -> None:
        passes.append(1)
        with server.client as client:
            client.flushall()

    def heard(**kwargs: Any) -> None:
        dead.append(kwargs["key"])

    signals.dead.connect(heard)
    flusher.recheck(key=1)
    for _ in range(10):
        time.sleep(SOON[1])
        drain_for(5)
    signals.dead.disconnect(heard)
    assert dead == [1]
    assert len(passes) <= 4
    assert left() == {"flusher": (0, 0, 1)}


def test_a_read_that_outlasts_the_lease_ends_dead(caplog: pytest.LogCaptureFixture) -> None:
    reads, calls = [], []

    def slow(rows: Any) -> Any:
        reads.append(1)
        time.sleep(1.05)
        return rows

    @recheck(name="slow", ttl=1, max_hold=1, queryset=slow, backoff=SOON, max_attempts=2)
    def receive(**kwargs: Any) -> None:
        calls.append(1)

    post_save.connect(receive, sender=User)
    User.objects.create(username="a")
    time.sleep(SOON[1])
    drain_for(20)
    assert (len(reads), calls) == (2, [])
    assert left() == {"slow": (0, 0, 1)}
    assert "its lease was over before the pass began" in caplog.text


# What one thing did to others


def test_a_lane_that_cant_be_written_leaves_the_others_alone() -> None:
    ran: list[str] = []

    @recheck(key=lambda **_: 1, name="bad", on_redis_error="skip")
    def bad(**kwargs: Any) -> None:
        ran.append("bad")

    @recheck(key=lambda **_: 1, name="good")
    def good(recheck_pass: Any, **kwargs: Any) -> None:
        ran.append("good" if recheck_pass.fence else "good, unlocked")

    current = store.current()
    current.client.set(current.lane("bad", 0).keys[0], "hostile")
    try:
        with transaction.atomic():
            bad.recheck(key=1)
            good.recheck(key=2)
    finally:
        current.client.delete(current.lane("bad", 0).keys[0])
    assert ran == ["good"]
    assert outage.owing() == []


def test_the_next_events_of_a_dead_holders_key_run_here_also_when_they_are_several() -> None:
    keys: list[Any] = []

    @recheck(key=lambda **_: 1, name="note")
    def note(recheck_pass: Any, **kwargs: Any) -> None:
        keys.append(recheck_pass.key)

    current, item = store.current(), Item("note", "1")
    current.request(item, b"", 1, note.options)  # and its holder dies
    lane = current.lane_of(item)
    current.client.delete(lane.lock(item))
    current.client.zadd(lane.keys[1], {item.text: 1})
    with transaction.atomic():
        note.recheck(key=1)
        note.recheck(key=2)
    assert sorted(keys) == [1, 2]
    assert left() == {}


def test_all_transactions_that_a_receiver_leaves_open_are_rolled_back() -> None:
    opened: list[Any] = []

    @recheck(key=lambda **_: 1, name="leaves", max_attempts=1)
    def leaves(**kwargs: Any) -> None:
        for alias in ("default", "other"):
            transaction.atomic(using=alias).__enter__()

    assert leaves.recheck(key=1) is Outcome.DEAD
    opened.append(transactions.opened())
    assert opened == [None]


# What nobody was told


def test_an_item_that_is_given_up_inline_is_told(caplog: pytest.LogCaptureFixture) -> None:
    @recheck(key=lambda **_: 1, name="killer", max_attempts=1)
    def killer(**kwargs: Any) -> None:
        pass

    current, item = store.current(), Item("killer", "1")
    with transaction.atomic(using="other"):
        assert killer.recheck(key=1) is Outcome.PENDING
        current.claim(item, killer.options)  # by a drain, which is killed
        lane = current.lane_of(item)
        current.client.delete(lane.lock(item))
        current.client.zadd(lane.keys[1], {item.text: 1})
    assert left() == {"killer": (0, 0, 1)}
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]


def test_a_drain_repays_what_is_owed(server: Server) -> None:
    keys: list[Any] = []

    @recheck(key=lambda **_: 1, name="note")
    def note(recheck_pass: Any, **kwargs: Any) -> None:
        keys.append(recheck_pass.key)

    server.end()
    note.recheck(key=1)
    server.start()
    outage.breaker.close()
    assert worker.drain().problems == {}
    assert keys == [1, 1]


def test_a_drain_says_what_stays_owed(server: Server) -> None:
    @recheck(key=lambda **_: 1, name="note")
    def note(**kwargs: Any) -> None:
        pass

    server.end()
    note.recheck(key=1)
    server.start()  # but Redis is left alone for a while
    assert worker.drain().problems == {"note": "owed a pass that Redis doesn't take"}
