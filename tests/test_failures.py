"""A pass that fails: what is kept, when it is tried again, and how that ends."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from django.db import transaction

from django_recheck import Outcome, recheck, store, transactions, worker
from tests.app.models import Item
from tests.test_runner import KEY, Subject, elsewhere, levels, look, taken_over


@pytest.fixture
def subject() -> Subject:
    return Subject()


def test_c03_a_failure_waits_with_its_events_and_the_newer_ones(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_at_first(recheck_pass: Any) -> None:
        if len(subject.seen) <= 2:
            elsewhere(subject.send)
        if len(subject.seen) == 1:
            raise ValueError("not today")

    subject.does(fail_at_first)
    assert subject.send() is Outcome.FAILED
    assert levels(caplog) == [logging.WARNING]
    view = look()
    assert view.record is not None
    assert (view.state, view.holder, view.record.attempts) == ("due", None, 1)
    assert (view.record.newer_count, view.record.count) == (2, 0)
    assert view.record.error.endswith("ValueError: not today\n")
    seconds, _ = store.current().client.time()
    assert view.score is not None
    assert seconds + 30 < view.score <= seconds + 61
    assert worker.drain().items == 0, "not yet"
    assert subject.send() is Outcome.RAN, "an event during backoff runs at once"
    assert subject.seen[:2] == [(1, 1, 1), (1, 3, 2)]
    assert subject.seen[2:] == [(2, 1, 1)], "success resets the attempts"


def test_after_too_many_failures_it_is_dead_until_a_new_event(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_twice(recheck_pass: Any) -> None:
        if len(subject.seen) < 3:
            raise ValueError

    subject.does(fail_twice, max_attempts=2)
    assert [subject.send(), subject.send()] == [Outcome.FAILED, Outcome.DEAD]
    assert levels(caplog) == [logging.WARNING, logging.ERROR]
    assert look().state == "dead"
    assert worker.drain().items == 0
    assert subject.send() is Outcome.RAN
    assert subject.seen[-1] == (1, 3, 3)
    assert look().state == "idle"


def test_a_newer_event_keeps_a_failure_from_giving_up(subject: Subject) -> None:
    def fail(recheck_pass: Any) -> None:
        if len(subject.seen) == 1:
            elsewhere(subject.send)
        raise ValueError

    subject.does(fail, max_attempts=1)
    assert subject.send() is Outcome.FAILED, "what came during the pass has to have one of its own"
    assert look().state == "due"
    assert subject.send() is Outcome.DEAD
    assert subject.seen == [(1, 1, 1), (1, 3, 2)]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_who_ends_the_process_gives_the_item_back(
    subject: Subject, kind: type[BaseException]
) -> None:
    def interrupted(recheck_pass: Any) -> None:
        if len(subject.seen) == 1:
            raise kind

    subject.does(interrupted)
    with pytest.raises(kind):
        subject.send()
    view = look()
    assert view.record is not None
    assert (view.state, view.holder, view.record.attempts) == ("due", None, 1)
    assert subject.send() is Outcome.RAN
    assert subject.seen == [(1, 1, 1), (1, 2, 2)]


@pytest.mark.parametrize("kind", [SystemExit, asyncio.CancelledError])
def test_who_ends_the_process_again_and_again_ends_dead(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """It may be the receiver's own doing, and the others have to be run, too."""
    calls = []

    @recheck(name=KEY.receiver, key="value", max_attempts=2, backoff=(0.001, 0.001))
    async def held(sender: Any, **kwargs: Any) -> None:
        raise kind

    @recheck(name="other", key="value")
    def other(sender: Any, **kwargs: Any) -> None:
        calls.append(1)

    held.recheck_many([1])
    other.recheck_many([1])
    until = time.monotonic() + 20
    while look().state != "dead" or not calls:  # what was looked at is put off for some seconds
        assert time.monotonic() < until
        with nullcontext() if kind is asyncio.CancelledError else suppress(kind):
            worker.drain()
    assert calls == [1]
    assert levels(caplog) == [logging.WARNING, logging.ERROR]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["atomic", "autocommit"])
def test_no_pass_inherits_a_transaction_that_a_receiver_left_open(
    subject: Subject, how: str
) -> None:
    seen = []

    def leave_open(recheck_pass: Any) -> None:
        seen.append(transactions.opened() is not None)
        if len(seen) == 1:
            elsewhere(subject.send)
            if how == "atomic":
                transaction.atomic().__enter__()
            else:
                transaction.set_autocommit(False)
            Item.objects.create(name="never committed")

    subject.does(leave_open)
    assert subject.send() is Outcome.FAILED
    assert transactions.opened() is None
    assert Item.objects.count() == 0, "it was rolled back"
    view = look()
    assert view.record is not None
    assert "left a transaction of 'default' open" in view.record.error
    assert subject.send() is Outcome.RAN
    assert seen == [False, False]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "error", [Unspeakable(), ValueError("é" * 1_000_000), ValueError("\udcff")]
)
def test_any_exception_fits_into_the_record(
    subject: Subject, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "django_recheck")  # xdist can't carry such a log

    def fail(recheck_pass: Any) -> None:
        raise error

    subject.does(fail)
    assert subject.send() is Outcome.FAILED
    view = look()
    assert view.record is not None
    assert view.state == "due"
    assert 0 < len(view.record.error) <= 4000


def test_c16_the_receivers_own_exception_wins(subject: Subject, settings: Any) -> None:
    settings.RECHECK = {**settings.RECHECK, "RAISE_EXCEPTIONS": True}

    def fail(recheck_pass: Any) -> None:
        taken_over()
        raise LookupError("mine")

    subject.does(fail)
    with pytest.raises(LookupError, match="mine"):
        subject.send()


def test_an_interrupted_pass_whose_lease_was_lost_takes_no_lock_for_nobody(
    subject: Subject,
) -> None:
    def interrupted(recheck_pass: Any) -> None:
        grant = taken_over()
        store.current().finish(grant, "ok", held.options)
        raise KeyboardInterrupt

    held = subject.does(interrupted)
    with pytest.raises(KeyboardInterrupt):
        subject.send()
    assert (look().state, look().holder) == ("due", None)


def test_backoffs_double_up_to_the_longest_and_are_spread(subject: Subject) -> None:
    def fail(recheck_pass: Any) -> None:
        raise ValueError

    subject.does(fail, backoff=(100, 350), max_attempts=9)
    spread = set()
    for longest in (100, 200, 350, 350):
        assert subject.send() is Outcome.FAILED, "an event during backoff runs at once"
        seconds, micros = store.current().client.time()
        waits = (look().score or 0) - seconds - micros / 1e6
        assert 0.74 * longest < waits <= longest
        spread.add(round(waits / longest, 3))
    assert len(spread) > 1
