"""Without Redis where passes can't run here and now: in an event loop, in another's transaction."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.dispatch import Signal, receiver
from redis import ConnectionPool, RedisError

from django_recheck import Outcome, outage, recheck
from tests.servers import Server, apart
from tests.test_runner import KEY, Subject, look

BURST = 200


@pytest.fixture
def server(settings: Any) -> Iterator[Server]:
    """A server that may be stopped."""
    with apart(settings, BREAKER=600) as server:
        yield server


@pytest.fixture
def subject() -> Subject:
    return Subject()


def test_what_a_loop_asks_for_while_redis_is_away_runs_unlocked_beside_it(
    subject: Subject, server: Server
) -> None:
    threads: list[int] = []
    subject.does(lambda p: threads.append(threading.get_ident()))
    server.end()

    async def send() -> Outcome:
        return subject.send()

    assert asyncio.run(send()) is Outcome.PENDING
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
    assert [ready.item for ready in outage.owing()] == [KEY], "one more, under the lock"


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_what_an_open_block_holds_up_while_redis_is_away_runs_unlocked_after_it(
    subject: Subject, server: Server
) -> None:
    opened: list[bool] = []
    subject.does(lambda p: opened.append(transaction.get_connection("other").in_atomic_block))
    server.end()
    with transaction.atomic(using="other"):
        assert subject.send() is Outcome.PENDING
        assert opened == []
    assert opened == [False]
    assert [(ready.item, ready.events.count) for ready in outage.owing()] == [(KEY, 1)]


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_rolled_back_block_takes_no_owed_pass_along(subject: Subject, server: Server) -> None:
    subject.does(lambda p: None)
    server.end()
    with transaction.atomic(using="other"):
        assert subject.send() is Outcome.PENDING
        transaction.set_rollback(True, using="other")
    assert subject.seen == []
    server.start()
    outage.breaker.close()
    other = Subject()
    other.does(lambda p: None, name="other")
    assert other.send() is Outcome.RAN
    assert subject.seen == [(1, 1, 1)]
    assert look().state == "idle"


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_what_was_repaid_meanwhile_isnt_run_unlocked_too(subject: Subject, server: Server) -> None:
    subject.does(lambda p: None)
    server.end()
    with transaction.atomic(using="other"):
        assert subject.send() is Outcome.PENDING
        server.start()
        outage.breaker.close()
        assert [ready.item for ready in outage.owing()] == [KEY]
        assert subject.send() is Outcome.PENDING
        assert outage.owing() == []
    assert subject.seen == [(1, 2, 1)]
    assert look().state == "idle"


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_sender_that_is_cancelled_then_stops_no_callback_behind_it(server: Server) -> None:
    probe, later = Signal(), []

    @receiver(probe)
    @recheck(name=KEY.receiver, key=lambda **_: 1)
    async def held(sender: Any, **kwargs: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    server.end()
    with transaction.atomic(using="other"):
        probe.send(sender=None)
        transaction.on_commit(lambda: later.append(1), using="other")
    assert later == [1]


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_unlocked_passes_that_wait_for_a_commit_share_one_budget(server: Server) -> None:
    probe, ran = Signal(), []

    @receiver(probe)
    @recheck(name=KEY.receiver, keys=lambda **_: range(20), inline_budget=0.2)
    def held(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        ran.append(recheck_pass.key)
        time.sleep(0.1)

    server.end()
    with transaction.atomic(using="other"), transaction.atomic():
        probe.send(sender=None)
    assert 0 < len(ran) <= 3
    assert len(outage.owing()) == 20


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("first", ["run", "raise"])
def test_raise_comes_out_of_the_commit_whoevers_event_came_first(
    server: Server, first: str
) -> None:
    probe = Signal()
    policies = [first, *({"run", "raise"} - {first})]
    for policy in policies:

        @receiver(probe, weak=False)
        @recheck(name=policy, key=lambda **_: 1, on_redis_error=policy)
        def held(sender: Any, **kwargs: Any) -> None: ...

    server.end()
    with pytest.raises(RedisError), transaction.atomic():
        probe.send(sender=None)
    assert [ready.item.receiver for ready in outage.owing()] == ["run"]


class Unreachable(ConnectionPool):
    """What resolves a name, or a pool of one's own, may raise an error of the system."""

    asked = 0

    def get_connection(self, *args: Any, **kwargs: Any) -> Any:
        type(self).asked += 1
        raise OSError("no route to host")


def test_an_error_of_the_system_opens_the_breaker_too(subject: Subject, settings: Any) -> None:
    options = {"CONNECTION_POOL_CLASS": f"{__name__}.Unreachable"}
    cache = {**settings.CACHES["recheck"], "OPTIONS": options, "LOCATION": "redis://127.0.0.1:1/79"}
    settings.CACHES = {**settings.CACHES, "unreachable": cache}
    settings.RECHECK = {**settings.RECHECK, "CACHE": "unreachable", "BREAKER": 600}
    subject.does(lambda p: None)
    assert [subject.send(), subject.send()] == [Outcome.UNLOCKED] * 2
    assert Unreachable.asked == 1
