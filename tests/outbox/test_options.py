"""What the other settings mean to a durable receiver, and what becomes of rows when they change."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import transaction
from django.db.models import F
from redis.exceptions import RedisError

from django_recheck import Outcome, batch, outage, store, views, worker
from django_recheck.outbox import replay, shown, table
from tests.app.models import Item
from tests.servers import Server, of_the_run

from .seen import DATABASES, committed_and_not_told, durable, ripen, rows, statements, turned

pytestmark = pytest.mark.django_db(transaction=True, databases=list(DATABASES))


@pytest.fixture
def calls() -> list[Any]:
    return []


def save() -> None:
    """Change the one item, in a transaction."""
    with transaction.atomic():
        (Item.objects.first() or Item(name="a")).save()


def fail() -> None:
    raise ValueError("on purpose")


def forget_all() -> None:
    with of_the_run().client as client:
        client.flushall()


def test_immediate_has_no_row(calls: list[Any]) -> None:
    """It has no lock and no Redis either: it is as without the decorator."""
    durable(calls, dispatch="immediate")
    assert statements("default", save) == []
    assert len(calls) == 1


def test_what_a_receiver_raises_leaves_its_row(calls: list[Any], settings: Any) -> None:
    settings.RECHECK = {**settings.RECHECK, "RAISE_EXCEPTIONS": True}
    durable(calls, fail)
    other: list[Any] = []
    durable(other, name="another", dispatch="worker")
    with pytest.raises(ValueError, match="on purpose"):
        save()
    assert Item.objects.count() == 1
    assert [row.receiver for row in rows()] == ["durable", "another"]
    worker.drain()
    assert len(other) == 1, "it was recorded before anything was raised"


def test_raise_raises_and_the_row_waits(calls: list[Any], stopped: Server) -> None:
    receiver = durable(calls, on_redis_error="raise")
    with pytest.raises(RedisError):
        save()
    with pytest.raises(RedisError):
        receiver.recheck_many([Item.objects.get()])
    assert Item.objects.count() == 1
    assert len(rows()) == 2
    assert (calls, outage.owing()) == ([], [])
    stopped.start()
    outage.forget()
    assert worker.drain().items == 0
    ripen()
    assert worker.drain().items == 1
    assert rows() == []


def test_a_drain_that_finds_redis_away_puts_nothing_off(calls: list[Any], stopped: Server) -> None:
    """What waits in the table is run by the next drain that finds it there, not a minute later."""
    durable(calls, durable=False, on_redis_error="outbox")
    save()
    outage.breaker.close()
    with pytest.raises(RedisError):
        worker.drain()
    assert len(rows()) == 1
    stopped.start()
    outage.breaker.close()
    assert worker.drain().items == 1
    assert rows() == []


def test_nor_does_one_that_is_only_refused(calls: list[Any], monkeypatch: Any) -> None:
    """A Redis that lets itself be read may take nothing."""
    durable(calls)
    committed_and_not_told(Item(name="a").save)
    ripen()
    with of_the_run().client as client:
        client.config_set("min-replicas-to-write", 1)
        try:
            with pytest.raises(RedisError):
                worker.drain()
        finally:
            client.config_set("min-replicas-to-write", 0)
    outage.forget()
    assert worker.drain().items == 1
    assert rows() == []


def test_rows_of_an_open_batch_are_found_although_nobody_ends_it(calls: list[Any]) -> None:
    durable(calls)
    with batch():
        save()
        save()
        assert (calls, len(rows())) == ([], 2)
        ripen()
        assert replay.replay(["durable"], ["durable"], lambda: False).told == 1


# Other code beside this one


def test_events_under_way_when_it_becomes_durable(calls: list[Any]) -> None:
    receiver = durable(calls, durable=False, dispatch="worker")
    save()
    turned(receiver, DURABLE=True)
    assert worker.drain().outcomes == {Outcome.RAN: 1}
    turned(receiver, DURABLE=False)
    save()
    turned(receiver, DURABLE=True)
    save()
    assert len(rows()) == 1
    worker.drain()
    assert len(calls) == 2
    assert rows() == []


def test_a_pass_of_older_code_leaves_rows_and_one_more_pass_covers_them(calls: list[Any]) -> None:
    receiver = durable(calls, dispatch="worker")
    save()
    turned(receiver, DURABLE=False)
    worker.drain()
    assert (len(calls), len(rows())) == (1, 1)
    turned(receiver, DURABLE=True)
    ripen()
    worker.drain()
    assert (len(calls), rows()) == (2, [])


# Huge


def test_a_huge_row_is_written_and_read(calls: list[Any]) -> None:
    key = "k" * 1_000_000
    seen: list[int] = []
    receiver = durable(
        calls,
        lambda: seen.append(len(calls[-1][0])),
        key=lambda **_: key,
        data=lambda **_: "d" * 4_000_000,
    )
    committed_and_not_told(Item(name="a").save)
    (row,) = rows()
    assert len(row.item) > 1_000_000
    assert len(bytes(row.events)) > 4_000_000
    ripen()
    worker.drain()
    assert seen == [1_000_000]
    assert rows() == []
    assert receiver.recheck(key=key) is Outcome.RAN
    assert rows() == []


def test_a_row_for_each_of_many_transactions(calls: list[Any]) -> None:
    """As after a day without Redis: one pass covers more rows than a statement removes."""
    durable(calls, key=lambda **_: 1, dispatch="worker")
    committed_and_not_told(Item(name="a").save)
    (row,) = rows()
    copies = [{**vars(row), "id": None} for _ in range(2500)]
    known = [{name: v for name, v in copy.items() if name != "_state"} for copy in copies]
    table.model().objects.bulk_create([table.model()(**values) for values in known])
    ripen()
    assert worker.drain().passes == 1
    assert rows() == []
    assert views.counts(store.current()) == {}


# How long may rows wait?


def status(*words: str) -> int:
    """Return the exit code of ``recheck_status``."""
    try:
        call_command("recheck_status", *words, stdout=StringIO())
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_rows_that_wait_for_a_delay_are_no_alert(calls: list[Any]) -> None:
    receiver = durable(calls, delay=100, max_wait=1000)
    save()

    def older(seconds: float) -> bool:
        table.model().objects.update(created=F("created") - timedelta(seconds=seconds))
        return bool(shown.receivers().waiting["durable"].overdue)

    assert not older(1200)
    assert status() == 0
    assert older(200)
    assert status() == 1
    turned(receiver, MAX_WAIT=5)
    assert shown.receivers().waiting["durable"].overdue, "a setting that is wrong says nothing"


def test_rows_that_wait_for_a_person_are_no_alert(calls: list[Any]) -> None:
    durable(calls)
    committed_and_not_told(Item(name="a").save)
    table.model().objects.update(created=F("created") - timedelta(seconds=600))
    (row,) = rows()
    one = ("--receiver", "durable", "--key", row.item)
    assert (status(), status(*one)) == (1, 1)
    store.current().pause(["durable"])
    assert (status(), status(*one)) == (0, 0)
