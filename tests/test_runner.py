"""One hold on a real server: how it goes on, how it ends, and what becomes of its events."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from django.db import transaction
from django.db.models.signals import post_save
from django.dispatch import Signal, receiver

from django_recheck import (
    Outcome,
    Receiver,
    conf,
    current_pass,
    recheck,
    store,
    views,
    worker,
)
from django_recheck.records import Grant, pack
from django_recheck.records import Item as Key
from tests.app.models import Item

KEY = Key("held", "1")
EVENT = pack([b'["","",""]', b"", b"", b"[null,null,{},{},null]"])
Body = Callable[[Any], Any]
"""What a receiver does in a pass; it gets ``recheck_pass``."""


class Subject:
    """A receiver of one item, which only its own signal changes."""

    def __init__(self) -> None:
        self.signal = Signal()
        self.seen: list[tuple[int, int, int]] = []
        """Number, events and attempt of each pass."""

    def does(self, body: Body, **options: Any) -> Receiver[..., Any]:
        """Say what its passes do."""

        @receiver(self.signal)
        @recheck(key=lambda **_: 1, **{"name": KEY.receiver, "backoff": (60, 60), **options})
        def held(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
            p = recheck_pass
            self.seen.append((p.number, p.event_count, p.attempt))
            body(p)

        return held

    def send(self) -> Outcome:
        ((_, outcome),) = self.signal.send(sender=None)
        assert isinstance(outcome, Outcome)
        return outcome


@pytest.fixture
def subject() -> Subject:
    return Subject()


def elsewhere(work: Callable[[], Any]) -> Any:
    """Do something in a thread that knows nothing of this one's pass, as another process would."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(20)


def look() -> views.View:
    (view,) = views.items(store.current(), [KEY])
    return view


def end_lease() -> None:
    current = store.current()
    current.client.delete(current.lane_of(KEY).lock(KEY))


def taken_over() -> Grant:
    """End the lease of whoever holds the item and let another have it."""
    end_lease()
    granted = store.current().request(KEY, EVENT, 1, conf.Options(KEY.receiver, {"TTL": 30}))
    assert isinstance(granted, Grant)
    return granted


def levels(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [record.levelno for record in caplog.records if record.name == "django_recheck"]


class Blocked:
    """A body that stays in every pass until it is let go."""

    def __init__(self) -> None:
        self.entered: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.go = threading.Semaphore(0)

    def __call__(self, recheck_pass: Any) -> None:
        self.entered.put(recheck_pass)
        assert self.go.acquire(timeout=20)


@pytest.fixture
def blocked(subject: Subject) -> Iterator[tuple[Blocked, Future[Outcome]]]:
    """The subject in its first pass, in another thread."""
    body = Blocked()
    subject.does(body)
    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(subject.send)
        body.entered.get(timeout=20)
        yield body, holding
        body.go.release(20)


# A hold goes on


def test_success_leaves_nothing(subject: Subject) -> None:
    subject.does(lambda p: None)
    assert subject.send() is Outcome.RAN
    assert subject.seen == [(1, 1, 1)]
    view = look()
    assert (view.state, view.record, view.holder) == ("idle", None, None)


def test_c02_many_events_during_one_pass_lead_to_one_more_that_begins_after_the_last(
    subject: Subject, blocked: tuple[Blocked, Future[Outcome]]
) -> None:
    body, holding = blocked
    assert [subject.send() for _ in range(7)] == [Outcome.COALESCED] * 7
    assert body.entered.empty(), "one at a time"
    body.go.release(2)
    assert holding.result(20) is Outcome.RAN
    assert subject.seen == [(1, 1, 1), (2, 7, 1)]
    assert look().state == "idle"


def test_c13_coalescing_is_an_outcome_and_logged_at_debug(
    subject: Subject, blocked: tuple[Blocked, Future[Outcome]], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        assert subject.send() is Outcome.COALESCED
    assert levels(caplog) == [logging.DEBUG]


def test_c04_at_the_cap_the_item_is_handed_over(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    subject.does(lambda p: len(subject.seen) < 5 and elsewhere(subject.send), max_passes=2)
    with caplog.at_level(logging.INFO):
        assert subject.send() is Outcome.REQUEUED
    assert levels(caplog) == [logging.INFO]
    assert "requeued" in caplog.text
    view = look()
    assert (view.state, view.holder) == ("due", None)
    assert view.score is not None
    seconds, _ = store.current().client.time()
    assert view.score <= seconds + 1
    tally = worker.drain()
    assert tally.outcomes == {Outcome.REQUEUED: 1, Outcome.RAN: 1}, "again, and then the last"
    assert [number for number, _, _ in subject.seen] == [1, 2, 1, 2, 1]
    assert {attempt for _, _, attempt in subject.seen} == {1}, "nobody died"
    assert look().state == "idle"


# A hold's own events


def test_c12_own_events_cause_one_further_pass_and_no_more(subject: Subject) -> None:
    outcomes = []
    subject.does(lambda p: outcomes.append(subject.send()))
    assert subject.send() is Outcome.RAN
    assert outcomes == [Outcome.COALESCED] * 2
    assert subject.seen == [(1, 1, 1), (2, 1, 1)]
    assert look().state == "idle"


def test_own_events_at_the_cap_are_handed_over(subject: Subject) -> None:
    subject.does(lambda p: subject.send(), max_passes=1)
    assert subject.send() is Outcome.REQUEUED
    assert subject.seen == [(1, 1, 1)]
    assert look().state == "due"


@pytest.mark.django_db(transaction=True)
def test_own_events_of_a_transaction_within_the_pass_stay_its_own(subject: Subject) -> None:
    def save_all(recheck_pass: Any) -> None:
        with transaction.atomic():
            assert subject.send() is Outcome.AFTER_COMMIT

    subject.does(save_all)
    assert subject.send() is Outcome.RAN
    assert subject.seen == [(1, 1, 1), (2, 1, 1)], "the second one's are ignored"
    assert look().state == "idle"


@pytest.mark.django_db(transaction=True)
def test_c12_what_was_folded_into_a_receivers_own_save_is_not_lost() -> None:
    derived = []

    @receiver(post_save, sender=Item)
    @recheck(name="tidy")
    def tidy(sender: Any, instance: Item, **kwargs: Any) -> None:
        derived.append(instance.value)
        instance.name = instance.name.strip()
        if len(derived) == 1:
            instance.value = 2  # somebody's pre_save handler, say
        instance.save()

    Item.objects.create(name=" a ", value=1)
    assert derived == [1, 2]


def test_anothers_event_beside_the_own_ones_is_not_lost(subject: Subject) -> None:
    def both(recheck_pass: Any) -> None:
        subject.send()
        if recheck_pass.number < 3:
            elsewhere(subject.send)

    subject.does(both)
    assert subject.send() is Outcome.RAN
    assert subject.seen == [(1, 1, 1), (2, 2, 1), (3, 2, 1), (4, 1, 1)]


# Where a pass runs


def test_current_pass_is_each_threads_and_tasks_own(subject: Subject) -> None:
    found = []

    async def inquire(task: int) -> Any:
        await asyncio.sleep(0)
        return current_pass()

    async def both() -> tuple[Any, ...]:
        return await asyncio.gather(inquire(1), inquire(2))

    def body(recheck_pass: Any) -> None:
        found.append(current_pass() is recheck_pass)
        found.append(elsewhere(current_pass) is None)
        found.extend(p is recheck_pass for p in asyncio.run(both()))

    subject.does(body)
    subject.send()
    assert found == [True] * 4
    assert current_pass() is None


def test_c51_a_sync_send_in_a_running_loop_runs_an_async_receiver() -> None:
    probe, calls, done = Signal(), [], threading.Event()

    @receiver(probe)
    @recheck(name=KEY.receiver, key=lambda **_: 1)
    async def held(sender: Any, **kwargs: Any) -> None:
        await asyncio.sleep(0)
        calls.append(1)
        done.set()

    async def in_a_loop() -> Any:
        return probe.send(sender=None)

    assert asyncio.run(in_a_loop()) == [(held, Outcome.PENDING)]
    assert done.wait(20)
    assert calls == [1]
    until = time.monotonic() + 20
    while look().state != "idle":
        assert time.monotonic() < until
        time.sleep(0.005)
