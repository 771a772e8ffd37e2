"""Rows that no pass has covered in time are brought to Redis by a drain, each once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.db.models.signals import post_save
from redis.exceptions import RedisError

from django_recheck import outage, receivers, store, views, worker
from django_recheck.outbox import replay, shown, table
from django_recheck.records import Grant
from django_recheck.records import Item as Subject
from tests.app.models import Item
from tests.servers import of_the_run, running

from .seen import (
    DATABASES,
    committed_and_not_told,
    durable,
    no_table,
    ripen,
    rows,
    state,
    statements,
    turned,
)

pytestmark = pytest.mark.django_db(transaction=True, databases=list(DATABASES))
LOCKING = connection.vendor != "sqlite"


@pytest.fixture
def calls() -> list[Any]:
    return []


@pytest.fixture
def item() -> Item:
    return Item.objects.create(name="a")


def lost(item: Item, times: int = 1) -> Any:
    """Commit changes of a row of which Redis doesn't hear; return the first's row of the outbox."""
    for _ in range(times):
        committed_and_not_told(item.save)
    return rows()[0]


@pytest.mark.parametrize("using", DATABASES)
def test_what_a_dead_writer_committed_is_run(calls: list[Any], using: str) -> None:
    item = Item.objects.using(using).create(name="a")
    durable(calls)
    committed_and_not_told(item.save, using)
    committed_and_not_told(item.delete, using)
    assert worker.drain().items == 0
    assert calls == [], "it isn't due yet: whoever committed may be about to say it"
    ripen(using)
    assert worker.drain().items == 1
    assert [signals for _, signals, _ in calls] == [["post_delete", "post_save"]]
    assert rows(using) == []
    assert views.counts(store.current()) == {}


def test_what_redis_forgot_is_run(calls: list[Any], item: Item) -> None:
    durable(calls, dispatch="worker")
    with transaction.atomic():
        item.save()
    with of_the_run().client as client:
        client.flushall()
    names = ["durable"]
    for _ in range(2):
        ripen()
        assert replay.replay(names, names, lambda: False).told == 1
        assert len(rows()) == 1, "until a pass has covered it"
        with of_the_run().client as client:
            client.flushall()
    ripen()
    assert worker.drain().items == 1
    assert rows() == []


def test_the_command_does_it(calls: list[Any], item: Item) -> None:
    durable(calls)
    lost(item)
    ripen()
    call_command("recheck_run", verbosity=0)
    assert len(calls) == 1


def test_pending_and_running_items_are_left(calls: list[Any], item: Item) -> None:
    receiver = durable(calls, delay=100)
    with transaction.atomic():
        item.save()
    (row,) = rows()
    assert state(row) == "due"
    subject = Subject(row.receiver, row.item)

    def count() -> int:
        record = views.items(store.current(), [subject])[0].record
        return record.count + record.newer_count if record else 0

    ripen()
    assert worker.drain().items == 0
    assert count() == 1
    assert isinstance(store.current().request(subject, b"", 0, receiver.options), Grant)
    ripen()
    assert worker.drain().items == 0
    assert (state(row), count()) == ("running", 1)


def test_a_dead_item_isnt_revived_by_its_own_rows(calls: list[Any], item: Item) -> None:
    def fail() -> None:
        raise ValueError("on purpose")

    durable(calls, then=fail, max_attempts=1)
    with transaction.atomic():
        item.save()
    (row,) = rows()
    for _ in range(2):
        assert state(row) == "dead"
        ripen()
        worker.drain()
    assert (len(calls), len(rows())) == (1, 1)


def test_what_was_looked_at_waits_and_is_in_nobodys_way(
    calls: list[Any], item: Item, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "CHUNK", 2)
    durable(calls, delay=100)
    with transaction.atomic():
        for _ in range(3):
            Item.objects.create(name="pending")
    turned(receivers.registry["durable"][-1], DELAY=0)
    lost(item)
    ripen()
    assert worker.drain().items == 1
    assert calls[0][0] == item.pk
    assert len(statements("default", worker.drain)) == 1, "one look is all, where none is due"


def test_rows_of_receivers_that_arent_here_stay_and_are_told(
    calls: list[Any], item: Item, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = durable(calls, name="renamed")
    lost(item)
    durable([], name="known")
    post_save.disconnect(receiver, sender=Item)
    lost(item)
    ripen()
    before, _ = rows()
    del receivers.registry["renamed"]
    assert worker.drain().unknown == {"renamed": 1}
    assert "renamed: 1 items wait for this receiver" in caplog.text
    assert rows()[0].due == before.due, "a process that has it must find it due"
    receivers.registry["other"] = [receiver]
    receiver.former_names = ("renamed",)
    assert worker.drain().items == 1
    assert rows() == []


def test_only_the_receivers_that_are_asked_for(calls: list[Any], item: Item) -> None:
    durable(calls)
    lost(item)
    ripen()
    durable([], name="mine")
    tally = worker.drain(["mine"])
    assert (tally.items, tally.unknown, len(rows())) == (0, {}, 1)
    assert worker.drain(["durable"]).items == 1


def test_rows_of_a_receiver_that_isnt_durable_any_more_end_with_redis(
    calls: list[Any], item: Item
) -> None:
    receiver = durable(calls, delay=100, refresh=False, carry=["value"])
    with transaction.atomic():
        item.save()
    turned(receiver, DURABLE=False)
    ripen()
    worker.drain()
    assert rows() == []
    (view,) = views.page(store.current(), "durable", "due")
    assert view.record
    assert view.record.newer_count == 2, "it can't be known whether Redis had heard of it"


def test_rows_of_an_item_are_merged_in_their_order(calls: list[Any], item: Item) -> None:
    receiver = durable(calls, dispatch="worker", refresh=False, carry=["value"])
    for value in (21, 22, 23):
        item.value = value
        lost(item)
    turned(receiver, DURABLE=False)
    ripen()
    assert replay.replay(["durable"], ["durable"], lambda: False).told == 1
    (view,) = views.page(store.current(), "durable", "due")
    assert view.record
    assert view.record.newer_count == 3
    assert b'"value":23' in view.record.newer


@contextmanager
def away(settings: Any) -> Iterator[Any]:
    """A Redis that isn't there."""
    with running() as server:
        cache = {**settings.CACHES["recheck"], "LOCATION": server.url}
        settings.CACHES = {**settings.CACHES, "away": cache}
        settings.RECHECK = {**settings.RECHECK, "CACHE": "away", "BREAKER": 0}
        server.end()
        yield server


@pytest.mark.parametrize("kept", [True, False])
def test_without_redis_nothing_is_lost(
    calls: list[Any], item: Item, settings: Any, kept: bool
) -> None:
    receiver = durable(calls)
    lost(item)
    turned(receiver, DURABLE=kept)
    with away(settings) as server:
        ripen()
        with pytest.raises(RedisError):
            worker.drain()
        assert len(rows()) == 1
        server.start()
        outage.forget()
        ripen()
        assert worker.drain().items == 1
    assert rows() == []


def test_a_database_without_the_table_doesnt_stop_the_others(calls: list[Any], item: Item) -> None:
    durable(calls)
    worker.drain()
    lost(item)
    ripen()
    with no_table("other"):
        assert worker.drain().problems.keys() == {"outbox of 'other'"}, "it was there before"
        table._known.clear()
        assert worker.drain().problems == {}
    assert len(calls) == 1


def test_a_broken_row_is_told_and_left(calls: list[Any], item: Item) -> None:
    durable(calls)
    other = Item.objects.create(name="b")
    broken = lost(item)
    lost(other)
    table.model().objects.filter(pk=broken.pk).update(events=b"9:broken")
    ripen()
    tally = worker.drain()
    assert tally.items == 1
    assert "the outbox" in tally.problems["durable"]
    assert [row.pk for row in rows()] == [broken.pk]


def test_several_workers_at_once_do_no_row_twice(calls: list[Any]) -> None:
    durable(calls, dispatch="worker")
    items = Item.objects.bulk_create(Item(name=str(n)) for n in range(1000))
    committed_and_not_told(lambda: receivers.registry["durable"][-1].recheck_many(items))
    ripen()
    barrier = threading.Barrier(4)

    def work() -> tuple[int, int]:
        barrier.wait(20)
        try:
            names = ["durable"]
            done = [replay.replay(names, names, lambda: False) for _ in range(10)]
        finally:
            connections.close_all()
        assert not any(one.problems for one in done), done
        return sum(one.rows for one in done), sum(one.told for one in done)

    with ThreadPoolExecutor(4) as pool:
        found = [future.result(60) for future in [pool.submit(work) for _ in range(4)]]
    assert sum(number for number, _ in found) == sum(told for _, told in found) == 1000
    counted = views.page(store.current(), "durable", "due", size=1000)
    assert {view.record.newer_count for view in counted if view.record} == {1}
    assert len(counted) == 1000


def plan(queries: list[str]) -> str:
    """Return how the database does some queries."""
    told = []
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("ANALYZE django_recheck_outbox_event")
        for query in queries:
            word = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
            cursor.execute(f"{word} {query}")
            told += [" ".join(map(str, row)) for row in cursor.fetchall()]
    return "\n".join(told)


def test_an_index_serves_each_query(calls: list[Any], item: Item) -> None:
    """Of many rows that aren't due, or another item's, none is read."""
    receiver = durable(calls, dispatch="worker")
    receiver.recheck_many([Item(pk=pk) for pk in range(10_000, 13_000)])
    lost(item)
    last = rows()[-1]
    table.model().objects.filter(pk=last.pk).update(due=last.created)
    names = ["durable"]
    made = statements("default", lambda: replay.replay(names, names, lambda: False))
    looked = plan([sql for sql in made if sql.startswith("SELECT")])
    assert "_due_" in looked
    asked = statements("default", lambda: list(table.rows_of(Subject(last.receiver, last.item))))
    asked += statements("default", lambda: shown.items([Subject(last.receiver, last.item)]))
    found = plan(asked)
    assert "_digest_" in found
    assert "Seq Scan" not in looked + found
    assert "SCAN django" not in looked + found


@pytest.mark.skipif(not LOCKING, reason="the database locks no rows")
def test_a_row_that_another_worker_looks_at_is_passed_over(calls: list[Any], item: Item) -> None:
    durable(calls)
    mine, other = lost(item), Item.objects.create(name="b")
    lost(other)
    ripen()
    locked, done = threading.Event(), threading.Event()

    def look() -> None:
        try:
            with transaction.atomic():
                assert table.model().objects.select_for_update().get(pk=mine.pk)
                locked.set()
                done.wait(20)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        assert locked.wait(20)
        assert worker.drain().items == 1
        done.set()
        looking.result(20)
    assert [row.pk for row in rows()] == [mine.pk]
    assert worker.drain().items == 1
