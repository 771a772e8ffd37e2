"""Without Redis: what ON_REDIS_ERROR says, the breaker, and the pass that stays owed."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.dispatch import Signal, receiver

from django_recheck import Outcome, outage, recheck, transactions
from tests.servers import Server, running
from tests.test_runner import KEY, Subject, look


@pytest.fixture
def subject() -> Subject:
    return Subject()


@pytest.fixture(params=[False, True], ids=["", "ignoring-exceptions"])
def server(request: pytest.FixtureRequest, settings: Any) -> Iterator[Server]:
    """A server that may be stopped, under a client that does or doesn't ignore exceptions."""
    with running() as server:
        cache = {**settings.CACHES["recheck"], "LOCATION": server.url}
        cache["OPTIONS"] = {**cache["OPTIONS"], "IGNORE_EXCEPTIONS": request.param}
        settings.CACHES = {**settings.CACHES, "stopped": cache}
        settings.RECHECK = {**settings.RECHECK, "CACHE": "stopped", "BREAKER": 600}
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
