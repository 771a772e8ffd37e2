"""What Redis doesn't take goes into the table with ``on_redis_error="outbox"``."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.dispatch import Signal

from django_recheck import Outcome, batch, outage, recheck, store, views, worker
from tests.app.models import Item
from tests.servers import Server

from .seen import DATABASES, durable, rows, state, waiting

pytestmark = pytest.mark.django_db(transaction=True, databases=list(DATABASES))


@pytest.fixture
def calls() -> list[Any]:
    return []


@pytest.fixture(params=["inline", "worker"])
def kept(request: pytest.FixtureRequest, calls: list[Any]) -> Any:
    """A receiver that isn't durable."""
    dispatch = request.param
    return durable(calls, name="kept", durable=False, on_redis_error="outbox", dispatch=dispatch)


def back(stopped: Server) -> int:
    """Let Redis come back, and return how many items a drain runs."""
    stopped.start()
    outage.breaker.close()
    return worker.drain().items


def test_it_waits_in_the_table_and_isnt_run(
    kept: Any, calls: list[Any], stopped: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with transaction.atomic():
        item = Item.objects.create(name="a")
        item.save()
        assert rows() == [], "nobody knows yet that Redis is away"
    Item.objects.using("other").create(name="b")
    assert kept.recheck(item) is Outcome.PENDING
    assert kept.recheck_many([item]) == 1
    with suppress(ZeroDivisionError), batch():
        item.save()
        raise ZeroDivisionError
    text = f'{{"tests_app.item":{item.pk}}}'
    assert waiting() == {("kept", text): 4}
    assert [row.receiver for row in rows("other")] == ["kept"]
    assert "waits in the outbox" in caplog.text
    assert "they wait in the outbox" in caplog.text
    assert {record.levelname for record in caplog.records} == {"ERROR"}
    assert calls == []
    assert outage.owing() == []
    assert back(stopped) == 2
    assert len(calls) == 2
    assert rows() == rows("other") == []
    assert views.counts(store.current()) == {}


def test_a_pass_that_cant_be_closed_waits_there(calls: list[Any], stopped: Server) -> None:
    stopped.start()

    def stop() -> None:
        if len(calls) == 1:
            stopped.end()

    durable(calls, stop, durable=False, on_redis_error="outbox")
    Item.objects.create(name="a")
    assert len(rows()) == 1
    assert outage.owing() == []
    assert back(stopped) == 1
    assert len(calls) == 2
    assert rows() == []


def test_what_is_durable_stands_there_already(calls: list[Any], stopped: Server) -> None:
    receiver = durable(calls, on_redis_error="outbox")
    with transaction.atomic():
        item = Item.objects.create(name="a")
    assert receiver.recheck_many([item]) == 1
    assert len(rows()) == 2
    assert calls == []


def test_what_is_durable_is_never_skipped(
    calls: list[Any], stopped: Server, caplog: pytest.LogCaptureFixture
) -> None:
    durable(calls, on_redis_error="skip")
    with transaction.atomic():
        Item.objects.create(name="a")
    assert "waits in the outbox" in caplog.text
    assert len(rows()) == 1


def test_where_the_database_refuses_too_it_stays_owed(
    calls: list[Any], stopped: Server, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(execute: Any, sql: str, *rest: Any) -> Any:
        if "outbox" in sql:
            raise OperationalError("the server closed the connection")
        return execute(sql, *rest)

    receiver = durable(calls, durable=False, on_redis_error="outbox")
    with connection.execute_wrapper(refuse):
        item = Item.objects.create(name="a")
    assert "stay owed: the server closed the connection" in caplog.text
    assert "waits in the outbox" not in caplog.text
    assert [ready.receiver for ready in outage.owing()] == [receiver]
    back(stopped)
    assert [key for key, *_ in calls] == [item.pk]
    assert outage.owing() == []


def test_a_signal_from_an_event_loop_waits_there(stopped: Server) -> None:
    """The loop's own thread may use no database."""
    probe = Signal()

    @recheck(name="probe", key=lambda **_: 1, on_redis_error="outbox")
    def note(sender: Any, **kwargs: Any) -> None: ...

    @recheck(name="durable-probe", key=lambda **_: 1, durable=True)
    def keep(sender: Any, **kwargs: Any) -> None: ...

    probe.connect(note)
    probe.connect(keep)

    async def send() -> None:
        probe.send(sender=None)

    asyncio.run(send())
    assert waiting() == {("probe", "1"): 1, ("durable-probe", "1"): 1}


def test_a_receiver_that_runs_unlocked_keeps_its_row(calls: list[Any], stopped: Server) -> None:
    """Its process may end before it has told Redis that one more pass is owed."""
    durable(calls)
    with transaction.atomic():
        Item.objects.create(name="a")
    (row,) = rows()
    assert len(calls) == 1
    assert back(stopped) == 1
    assert state(row) == "idle"
    assert rows() == []
