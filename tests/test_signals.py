"""The package's own signals: who hears what, when, and that nobody who hears it can do harm."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.dispatch import Signal, receiver

from django_recheck import Outcome, recheck, signals, store, worker
from tests.test_runner import KEY, Subject, elsewhere, end_lease, levels, look, taken_over

NAMES = {value: name for name, value in vars(signals).items() if isinstance(value, Signal)}


@pytest.fixture
def subject() -> Subject:
    return Subject()


@pytest.fixture
def heard() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """What was told: the signal's name, and what it brought beside the item's names."""
    told: list[tuple[str, dict[str, Any]]] = []

    def hear(signal: Signal, sender: Any, receiver: str, item: str, key: Any, **rest: Any) -> None:
        assert (sender.name, receiver, item, key) == (KEY.receiver, KEY.receiver, KEY.text, 1)
        told.append((NAMES[signal], rest))
        raise RuntimeError("a receiver of these signals changes nothing")

    for signal in NAMES:
        signal.connect(hear)
    yield told
    for signal in NAMES:
        signal.disconnect(hear)


Heard = list[tuple[str, dict[str, Any]]]


def test_success_and_coalescing_are_no_news(subject: Subject, heard: Heard) -> None:
    subject.does(lambda p: p.number == 1 and elsewhere(subject.send))
    assert subject.send() is Outcome.RAN
    assert heard == []


def test_requeued(subject: Subject, heard: Heard) -> None:
    subject.does(lambda p: len(subject.seen) < 5 and elsewhere(subject.send), max_passes=2)
    assert subject.send() is Outcome.REQUEUED
    assert heard == [("requeued", {"passes": 2})]


def test_failed_and_dead(subject: Subject, heard: Heard, caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("no")

    def fail(recheck_pass: Any) -> None:
        raise error

    subject.does(fail, max_attempts=2)
    assert subject.send() is Outcome.FAILED
    assert heard == [("receiver_failed", {"error": error, "attempts": 1})]
    assert subject.send() is Outcome.DEAD
    assert heard[1:] == [
        ("receiver_failed", {"error": error, "attempts": 2}),
        ("dead", {"error": error}),
    ]
    assert levels(caplog) == [logging.WARNING, logging.ERROR]


def test_what_is_told_stands_in_redis_already(subject: Subject) -> None:
    states = []

    @receiver(signals.receiver_failed)
    def hear(**kwargs: Any) -> None:
        states.append((look().state, look().holder))

    def fail(recheck_pass: Any) -> None:
        raise ValueError

    subject.does(fail)
    subject.send()
    signals.receiver_failed.disconnect(hear)
    assert states == [("due", None)]


def test_lease_lost_is_told_once_a_hold(
    subject: Subject, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    def outlive(recheck_pass: Any) -> None:
        fences.append(recheck_pass.fence)
        grant = taken_over()
        store.current().finish(grant, "ok", held.options)

    fences: list[int] = []
    held = subject.does(outlive)
    assert subject.send() is Outcome.LEASE_LOST
    assert len(fences) == 2, "the healing pass, which outlived its lease as well"
    assert heard == [("lease_lost", {"fence": fences[0], "passes": 1})]
    assert levels(caplog) == [logging.WARNING]


def test_took_over(subject: Subject, heard: Heard) -> None:
    fences = []
    subject.does(lambda p: fences.append(p.fence))
    taken_over()
    end_lease()
    assert subject.send() is Outcome.RAN
    assert heard == [("took_over", {"fence": fences[0], "attempts": 1})]


def test_who_kills_its_holders_is_given_up_in_sight(
    subject: Subject, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    subject.does(lambda p: None, max_attempts=1)
    taken_over()
    end_lease()
    current = store.current()
    current.client.zadd(current.lane_of(KEY).keys[1], {KEY.text: 1})  # its end has come
    assert worker.drain().failed == 1
    assert heard == [("dead", {"error": None})]
    assert "no pass ended within its lease" in caplog.text
    assert levels(caplog) == [logging.ERROR]


def test_a_heal_that_gives_up_says_so(
    subject: Subject, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    def outlive(recheck_pass: Any) -> None:
        taken_over()
        end_lease()

    subject.does(outlive, max_attempts=2)
    assert subject.send() is Outcome.LEASE_LOST
    assert [name for name, _ in heard] == ["lease_lost", "dead"]
    assert look().state == "dead"
    assert levels(caplog) == [logging.WARNING, logging.ERROR]


def test_an_item_that_cant_be_read_is_told_without_its_key(subject: Subject) -> None:
    keys = []

    @receiver(signals.dead)
    def hear(key: Any, item: str, **kwargs: Any) -> None:
        keys.append((key, item))

    subject.does(lambda p: None, max_attempts=1)
    current = store.current()
    lane = current.lane_of(KEY).keys
    current.client.hset(lane[0], "{odd", "garbage")
    current.client.zadd(lane[2], {"{odd": 1})
    worker.drain()
    signals.dead.disconnect(hear)
    assert keys == [(None, "{odd")]


def test_a_decorated_receiver_may_follow_them(subject: Subject) -> None:
    seen = []

    @receiver(signals.receiver_failed)
    @recheck(name="night-watch", key="item")
    def watch(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        seen.append((recheck_pass.key, sender, kwargs["error"], kwargs["attempts"]))

    def fail(recheck_pass: Any) -> None:
        raise ValueError

    subject.does(fail)
    assert subject.send() is Outcome.FAILED
    assert seen == [("1", None, None, 1)]
