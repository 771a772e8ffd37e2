"""How a hold is closed: when it may not go on, whose it is, and what a lost reply changes."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
from django.db import transaction
from django.dispatch import receiver
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from django_recheck import Outcome, outage, recheck, runner, signals, store, views, worker
from django_recheck.records import Grant
from tests.servers import apart
from tests.test_runner import EVENT, KEY, Subject, elsewhere, end_lease, levels, look, taken_over


@pytest.fixture
def subject() -> Subject:
    return Subject()


class Losing(redis.Connection):
    """A connection that may lose a reply: the command was done, and nobody heard of it."""

    loses = 0

    def read_response(self, *args: Any, **options: Any) -> Any:
        reply = super().read_response(*args, **options)
        if Losing.loses:
            Losing.loses -= 1
            self.disconnect()  # type: ignore[no-untyped-call]
            raise RedisConnectionError("the reply got lost")
        return reply


@pytest.fixture
def losing(settings: Any) -> Iterator[type[Losing]]:
    """Connections that lose replies, to a server of their own."""
    with apart(settings, {"CONNECTION_POOL_KWARGS": {"connection_class": Losing}}):
        store.current().check_format()
        yield Losing
        Losing.loses = 0


# No further pass here


def test_a_hold_whose_budget_is_used_up_is_handed_over(subject: Subject) -> None:
    subject.does(lambda p: elsewhere(subject.send), inline_budget=0)
    assert subject.send() is Outcome.REQUEUED
    assert len(subject.seen) == 1
    assert look().state == "due"


@pytest.mark.django_db(transaction=True)
def test_holds_of_one_commit_share_its_budget() -> None:
    passes = []

    @recheck(name=KEY.receiver, key="value", inline_budget=0.05)
    def held(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        passes.append(recheck_pass.key)
        elsewhere(lambda: held.recheck(key=recheck_pass.key))
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            pass

    with transaction.atomic():
        for key in (1, 2):
            held.recheck(key=key)
    assert passes == [1]
    assert views.counts(store.current())[KEY.receiver].due == 2


def test_a_hold_that_is_asked_to_stop_is_handed_over(subject: Subject) -> None:
    held = subject.does(lambda p: elsewhere(subject.send))
    held.recheck_many([1])
    tally = worker.drain(stopping=lambda: bool(subject.seen))
    assert tally.outcomes == {Outcome.REQUEUED: 1}
    assert len(subject.seen) == 1
    assert look().state == "due"


# A lease that is over before its pass


def test_a_pass_whose_lease_is_over_is_given_back(subject: Subject) -> None:
    held = subject.does(lambda p: None)
    grant = store.current().request(KEY, EVENT, 1, held.options)
    assert isinstance(grant, Grant)
    grant.deadline = 0.0  # its granting took longer than the lease, say
    assert runner.Hold(held, grant).run().outcome is Outcome.PENDING
    assert subject.seen == []
    assert (look().state, look().holder) == ("due", None)


@pytest.mark.parametrize("done", [False, True])
def test_what_another_has_by_then_isnt_run_here(
    subject: Subject, caplog: pytest.LogCaptureFixture, done: bool
) -> None:
    """Nothing was written here that could be stale: no lease was outlived."""
    held = subject.does(lambda p: None)
    grant = store.current().request(KEY, EVENT, 1, held.options)
    assert isinstance(grant, Grant)
    others = taken_over()
    if done:
        store.current().finish(others, "ok", held.options)
    grant.deadline = 0.0
    ended = runner.Hold(held, grant).run()
    assert ended.outcome is (Outcome.PENDING if done else Outcome.COALESCED)
    assert (subject.seen, levels(caplog)) == ([], [logging.WARNING])
    assert look().state == ("due" if done else "running")


# Nobody else's


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_heals_nothing(subject: Subject) -> None:
    parent, outcome = os.getpid(), None

    def fork(recheck_pass: Any) -> None:
        if child := os.fork():
            assert os.waitpid(child, 0)[1] == 0

    subject.does(fork)
    try:
        outcome = subject.send()
    finally:
        if os.getpid() != parent:
            os._exit(0 if outcome is Outcome.LEASE_LOST else 1)
    assert (outcome, len(subject.seen)) == (Outcome.RAN, 1)


def test_what_another_has_given_up_isnt_told_twice(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    def outlive(recheck_pass: Any) -> None:
        assert store.current().finish(taken_over(), "failed", held.options)[0] == "DEAD"
        subject.seen.append((0, 0, 0))

    held = subject.does(outlive, max_attempts=1)
    assert subject.send() is Outcome.LEASE_LOST
    assert subject.seen == [(1, 1, 1), (0, 0, 0)]
    assert levels(caplog) == [logging.WARNING], "who gave it up has said so"
    assert look().state == "dead"


# Redis, in the middle of a hold


def test_a_hold_is_closed_although_redis_is_left_alone(subject: Subject) -> None:
    def fail_for_another(recheck_pass: Any) -> None:
        with suppress(RedisError), outage.breaker.watch():
            raise RedisError
        assert outage.breaker.open

    subject.does(fail_for_another)
    assert subject.send() is Outcome.RAN
    assert look().state == "idle"


def test_a_record_that_went_while_the_lock_stayed_is_worked_on_again(subject: Subject) -> None:
    """Evicted, say: a flag may have gone with it. What the event brought is still known here."""
    brought = []

    def evict(recheck_pass: Any) -> None:
        current = store.current()
        brought.append(recheck_pass.data)
        if recheck_pass.number == 1:
            current.client.delete(current.lane_of(KEY).keys[0])

    subject.does(evict, data=lambda **_: "kept")
    assert subject.send() is Outcome.RAN
    assert brought == ["kept", "kept"]
    assert subject.seen == [(1, 1, 1), (2, 1, 1)]
    assert look().state == "idle"


def test_a_heal_that_finds_a_newer_versions_record_leaves_it_alone(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    current = store.current()
    records = current.lane_of(KEY).keys[0]

    def upgraded(recheck_pass: Any) -> None:
        end_lease()
        current.client.hset(records, KEY.text, "2 whatever")

    subject.does(upgraded)
    assert subject.send() is Outcome.LEASE_LOST
    assert "newer version" in caplog.text
    assert current.client.hget(records, KEY.text) == b"2 whatever"
    assert [ready.item for ready in outage.owing()] == [KEY]


# A reply that was lost, and its command sent again


def test_a_resent_end_that_had_worked_is_no_lost_lease(
    subject: Subject, losing: type[Losing], caplog: pytest.LogCaptureFixture
) -> None:
    def lose(recheck_pass: Any) -> None:
        losing.loses = int(len(subject.seen) == 1)

    subject.does(lose)
    assert subject.send() is Outcome.RAN
    assert len(subject.seen) == 2, "nobody can tell who closed it, so once more"
    assert levels(caplog) == []
    assert look().state == "idle"


def test_a_resent_end_that_had_given_the_item_up_tells_it(
    subject: Subject, losing: type[Losing], caplog: pytest.LogCaptureFixture
) -> None:
    told: list[BaseException] = []

    @receiver(signals.dead)
    def hear(error: BaseException, **kwargs: Any) -> None:
        told.append(error)

    def fail(recheck_pass: Any) -> None:
        losing.loses = 1
        raise ValueError

    subject.does(fail, max_attempts=1)
    assert subject.send() is Outcome.DEAD
    signals.dead.disconnect(hear)
    assert [type(error) for error in told] == [ValueError]
    assert levels(caplog) == [logging.ERROR]
    assert look().state == "dead"
