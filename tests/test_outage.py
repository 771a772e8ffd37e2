"""Without Redis: what ON_REDIS_ERROR says, the breaker, and the pass that stays owed."""

from __future__ import annotations

import contextvars
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.dispatch import Signal, receiver
from redis.exceptions import RedisError

from django_recheck import Outcome, outage, recheck, transactions
from tests.servers import Server, apart
from tests.test_runner import KEY, Subject, look


@pytest.fixture
def subject() -> Subject:
    return Subject()


@pytest.fixture(params=[False, True], ids=["", "ignoring-exceptions"])
def server(request: pytest.FixtureRequest, settings: Any) -> Iterator[Server]:
    """A server that may be stopped, under a client that does or doesn't ignore exceptions."""
    with apart(settings, {"IGNORE_EXCEPTIONS": request.param}, BREAKER=600) as server:
        yield server


def test_c30_run_goes_on_unlocked_and_owes_one_more_pass(subject: Subject, server: Server) -> None:
    subject.does(lambda p: None)
    assert subject.send() is Outcome.RAN
    server.end()
    assert subject.send() is Outcome.UNLOCKED
    server.start()
    assert subject.send() is Outcome.UNLOCKED, "Redis is left alone for a while"
    assert len(subject.seen) == 3
    outage.breaker.close()
    other = Subject()
    other.does(lambda p: None, name="other")
    assert other.send() is Outcome.RAN
    assert subject.seen[3:] == [(1, 2, 1)], "any item's next event brings the owed pass along"
    assert look().state == "idle"


def test_a_pass_that_cant_be_closed_is_owed(subject: Subject, server: Server) -> None:
    subject.does(lambda p: server.end() if len(subject.seen) == 1 else None)
    assert subject.send() is Outcome.PENDING
    server.start()
    outage.breaker.close()
    other = Subject()
    other.does(lambda p: None, name="other")
    assert other.send() is Outcome.RAN
    assert subject.seen == [(1, 1, 1)] * 2
    assert look().state == "idle"


def test_what_outlives_an_unlocked_pass_is_no_event_of_its_own(
    subject: Subject, server: Server
) -> None:
    sending = []

    def leave_a_copy_behind(recheck_pass: Any) -> None:
        sending.append(contextvars.copy_context())

    subject.does(leave_a_copy_behind)
    server.end()
    assert subject.send() is Outcome.UNLOCKED
    assert sending[0].run(subject.send) is Outcome.UNLOCKED
    assert len(subject.seen) == 2


@pytest.mark.django_db(transaction=True)
def test_c30_many_by_hand_stay_owed_and_stop_nobody(server: Server) -> None:
    later: list[int] = []

    @receiver(Signal())
    @recheck(name=KEY.receiver, key="value", dispatch="worker")
    def held(sender: Any, **kwargs: Any) -> None: ...

    assert held.recheck_many([1]) == 1
    server.end()
    outage.breaker.close()
    with transaction.atomic():
        assert held.recheck_many([2, 3]) == 2
        transaction.on_commit(lambda: later.append(1))
    assert {ready.item.text for ready in outage._owed.values()} == {"2", "3"}
    assert later == [1]


def test_c30_what_stands_recorded_isnt_run_unlocked(server: Server) -> None:
    probe, seen = Signal(), []

    @receiver(probe)
    @recheck(name=KEY.receiver, keys=lambda **_: [1, 2])
    def held(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        seen.append(recheck_pass.key)
        server.end()

    probe.send(sender=None)
    assert seen == [1], "the other one waits in Redis"


@pytest.mark.django_db(transaction=True)
def test_an_unlocked_pass_leaves_no_transaction_open_either(
    subject: Subject, server: Server
) -> None:
    opened = []

    def leave_open(recheck_pass: Any) -> None:
        opened.append(transactions.opened() is not None)
        transaction.atomic().__enter__()

    subject.does(leave_open)
    server.end()
    assert [subject.send(), subject.send()] == [Outcome.FAILED] * 2
    assert opened == [False, False]
    assert transactions.opened() is None


def test_what_is_owed_beyond_the_bound_is_told(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(outage, "MOST_OWED", 2)

    @recheck(name=KEY.receiver, key="value")
    def held(sender: Any, **kwargs: Any) -> None: ...

    server.end()
    held.recheck_many([1, 2, 3])
    held.recheck_many([1, 2])
    assert caplog.text.count("its event is lost") == 1
    assert "held 3: its event is lost: Redis is away, and 2 items are owed already" in caplog.text


def test_redis_is_left_alone_for_breaker_seconds(
    subject: Subject, server: Server, settings: Any
) -> None:
    settings.RECHECK = {**settings.RECHECK, "BREAKER": 0}
    subject.does(lambda p: None)
    server.end()
    assert subject.send() is Outcome.UNLOCKED
    server.start()
    assert subject.send() is Outcome.RAN, "asked again at once"
    settings.RECHECK = {**settings.RECHECK, "BREAKER": 600}
    server.end()
    assert subject.send() is Outcome.UNLOCKED
    server.start()
    assert subject.send() is Outcome.UNLOCKED


def test_what_stands_in_redis_and_cant_be_used_breaks_no_save(
    subject: Subject, settings: Any
) -> None:
    """Other SHARDS than its items were stored with, here."""
    subject.does(lambda p: None).recheck_many([1])
    settings.RECHECK = {**settings.RECHECK, "SHARDS": 4}
    assert subject.send() is Outcome.UNLOCKED
    assert subject.seen == [(1, 1, 1)]
    assert [ready.item for ready in outage.owing()] == [KEY]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_owes_nothing(subject: Subject, server: Server) -> None:
    """The parent repays; both would run what only one event asked for."""
    subject.does(lambda p: None)
    server.end()
    assert subject.send() is Outcome.UNLOCKED
    if not (child := os.fork()):
        os._exit(len(outage.owing()))
    assert os.waitpid(child, 0)[1] == 0
    assert [ready.item for ready in outage.owing()] == [KEY]


@pytest.mark.django_db(transaction=True)
def test_raise_raises_in_the_block_that_commits(subject: Subject, server: Server) -> None:
    subject.does(lambda p: None, on_redis_error="raise")
    server.end()
    with pytest.raises(RedisError), transaction.atomic():
        assert subject.send() is Outcome.AFTER_COMMIT
    assert subject.seen == []


@pytest.mark.django_db(transaction=True)
def test_unlocked_passes_keep_to_the_budget_too(server: Server) -> None:
    """One slow receiver, many items, a Redis that is away: the request must go on."""
    seen: list[int] = []

    @recheck(name=KEY.receiver, key="value", inline_budget=0.01)
    def held(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        seen.append(recheck_pass.key)
        end = time.monotonic() + 0.01
        while time.monotonic() < end:
            pass

    server.end()
    with transaction.atomic():
        for key in (1, 2, 3):
            held.recheck(key=key)
    assert seen == [1]
    assert {ready.item.text for ready in outage.owing()} == {"1", "2", "3"}
