"""A row goes when a pass that began after its commit has succeeded, and not a moment earlier."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction
from django.db.models.signals import post_delete, post_save

from django_recheck import Outcome, Pass, ahead, outage, recheck, store, views, worker
from django_recheck.outbox import table
from django_recheck.passes import elsewhere
from django_recheck.records import Grant
from tests.app.models import Item
from tests.servers import Server, of_the_run, running

from .seen import DATABASES, committed_and_not_told, durable, rows, statements, turned

pytestmark = pytest.mark.django_db(transaction=True, databases=list(DATABASES))


@pytest.fixture
def calls() -> list[Any]:
    return []


class Follower:
    """A durable receiver that notes which rows stand there at the end of each pass.

    Args:
        meanwhile: What happens within each pass, in turn.
        options: The receiver's.
    """

    def __init__(self, *meanwhile: Any, **options: Any) -> None:
        self.meanwhile = list(meanwhile)
        self.seen: list[list[int]] = []
        self.passes: list[Pass] = []
        self.values: list[int] = []

        @recheck(**{"name": "follower", "durable": True, "backoff": (0.001, 0.001), **options})
        def follow(sender: Any, instance: Item, recheck_pass: Any, **kwargs: Any) -> None:
            self.passes.append(recheck_pass)
            self.values.append(instance.value)
            try:
                if self.meanwhile and (step := self.meanwhile.pop(0)):
                    step()
            finally:
                self.seen.append([row.pk for row in rows()])

        for signal in (post_save, post_delete):
            signal.connect(follow, sender=Item)
        self.receiver = follow


def other_thread(call: Any) -> None:
    """Do something on connections of its own, as another process would."""

    def within() -> None:
        try:
            call()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(within).result(20)


def save(**values: Any) -> None:
    """Change the one item, in a transaction."""
    with transaction.atomic():
        item = Item.objects.first() or Item(name="a")
        vars(item).update(values)
        item.save()


def forget_all() -> None:
    with of_the_run().client as client:
        client.flushall()


def fail() -> None:
    raise ValueError("on purpose")


@pytest.fixture
def server(settings: Any) -> Iterator[Server]:
    """A server of its own, that may be stopped."""
    with running() as server:
        cache = {**settings.CACHES["recheck"], "LOCATION": server.url}
        settings.CACHES = {**settings.CACHES, "stopped": cache}
        settings.RECHECK = {**settings.RECHECK, "CACHE": "stopped", "BREAKER": 0}
        yield server


@pytest.mark.parametrize("using", DATABASES)
def test_a_pass_costs_two_statements(calls: list[Any], using: str) -> None:
    durable(calls)

    def change() -> None:
        with transaction.atomic(using=using):
            Item.objects.using(using).create(name="a")

    made = [sql.partition(" ")[0] for sql in statements(using, change)]
    assert made == ["INSERT", "SELECT", "DELETE"]
    assert len(calls) == 1
    assert rows(using) == []


def test_receivers_that_arent_durable_dont_ask(calls: list[Any]) -> None:
    durable(calls, durable=False)
    assert statements("default", lambda: Item.objects.create(name="a")) == []
    assert len(calls) == 1


def test_a_row_that_comes_meanwhile_waits_for_the_next_pass() -> None:
    follower = Follower(lambda: other_thread(lambda: save(value=1)))
    save()
    (first, second), (later,) = follower.seen
    assert (first, later) != (second, second)
    assert later == second
    assert rows() == []


@pytest.mark.skipif(connection.vendor == "sqlite", reason="one transaction at a time writes there")
def test_a_lower_row_that_is_committed_later_waits_for_the_next_pass() -> None:
    """Rows get their numbers when they are written, and are seen when they are committed."""
    written, go_on = threading.Event(), threading.Event()

    def late() -> None:
        try:
            with suppress(ValueError), transaction.atomic():
                transaction.on_commit(fail)  # nobody tells Redis, as if the process ended here
                follower.receiver.recheck(item)
                written.set()
                assert go_on.wait(20)
        finally:
            connections.close_all()

    follower, item = Follower(), Item.objects.create(name="a")
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(late)
        assert written.wait(20)

        def commit_the_other() -> None:
            before = [row.pk for row in rows()]
            go_on.set()
            other.result(20)
            (lower,) = {row.pk for row in rows()} - {*before}
            assert lower < min(before)

        follower.meanwhile.append(commit_the_other)
        save()
    (left,) = rows()
    table.model().objects.update(due=left.created)
    worker.drain()
    assert (len(follower.seen), rows()) == (3, [])


def test_it_stays_while_passes_fail_and_when_the_item_is_dead() -> None:
    follower = Follower(fail, fail, fail, max_attempts=2)
    save()
    (row,) = rows()
    while views.counts(store.current())["follower"].due:
        worker.drain()
    assert views.counts(store.current())["follower"].dead == 1
    assert rows() == [row]
    follower.meanwhile.clear()
    save()
    assert rows() == []


def test_it_stays_when_the_lock_is_lost() -> None:
    follower = Follower(forget_all)
    save()
    first, healing = follower.seen
    assert first == healing != []
    assert rows() == []


def test_it_stays_when_nobody_knows_how_the_pass_ended(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    follower = Follower(server.end)
    save()
    assert "couldn't be closed" in caplog.text
    assert len(follower.passes) == len(rows()) == 1
    server.start()
    outage.forget()
    save()
    assert rows() == []


def test_it_stays_when_the_pass_is_interrupted() -> None:
    class Stop(BaseException):
        pass

    def stop() -> None:
        raise Stop

    Follower(stop)
    with pytest.raises(Stop):
        save()
    assert len(rows()) == 1
    worker.drain()
    assert rows() == []


def test_it_goes_with_a_pass_that_finds_its_row_gone(calls: list[Any]) -> None:
    receiver = durable(calls, dispatch="worker")
    save()
    post_delete.disconnect(receiver, sender=Item)
    Item.objects.all().delete()
    tally = worker.drain()
    assert tally.outcomes == {Outcome.GONE: 1}
    assert rows() == []


def test_it_goes_with_a_success_that_a_delay_follows(calls: list[Any]) -> None:
    follower = Follower(lambda: elsewhere(lambda: other_thread(save)), dispatch="worker")
    save()
    turned(follower.receiver, DELAY=50)
    assert worker.drain().outcomes == {Outcome.PENDING: 1}
    (row,) = rows()
    assert follower.seen[0][1] == row.pk


def test_own_events_keep_it_for_the_pass_that_they_cause() -> None:
    """They have no row: what happens to Redis now must not lose them."""
    follower = Follower(lambda: Item.objects.get().save())
    save()
    assert [len(ids) for ids in follower.seen] == [1, 1]
    assert follower.passes[1].number == 2
    assert rows() == []


def test_a_deletion_that_redis_never_heard_of_is_heard(calls: list[Any]) -> None:
    """Its row goes with this pass, which would otherwise only see that the row is gone."""
    durable(calls, dispatch="worker")
    save()
    pk = Item.objects.get().pk
    committed_and_not_told(lambda: Item.objects.all().delete())
    worker.drain()
    assert calls == [(pk, ["post_delete", "post_save"], True)]
    assert rows() == []


def test_values_that_redis_never_heard_of_are_the_newest() -> None:
    follower = Follower(dispatch="worker", refresh=False, carry=["value"])
    save(value=1)
    committed_and_not_told(lambda: save(value=2))
    worker.drain()
    assert follower.values == [2]
    assert rows() == []


def test_values_of_an_own_event_are_newer_than_its_rows() -> None:
    def own() -> None:
        item = Item.objects.get()
        item.value = 2
        item.save()

    follower = Follower(own, refresh=False, carry=["value"])
    save(value=1)
    assert follower.values == [1, 2]
    assert [len(ids) for ids in follower.seen] == [1, 0], "else its rows would be the newest"
    assert rows() == []


def test_events_arent_counted_twice() -> None:
    follower = Follower(dispatch="worker")
    for _ in range(3):
        save()
    worker.drain()
    assert [run.event_count for run in follower.passes] == [3]


def test_what_cant_be_removed_is_told_and_stays(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("DELETE"):
            raise OperationalError("the server closed the connection")
        return execute(sql, *rest)

    Follower()
    with connection.execute_wrapper(refuse):
        save()
    assert "its outbox rows stay, and lead to one more pass: the server closed" in caplog.text
    assert len(rows()) == 1


def test_rows_of_a_batch_arent_read_ahead(calls: list[Any]) -> None:
    """The pass reads which events it covers first, or one that comes in between is lost."""
    receiver = durable(calls, dispatch="worker")
    items = [Item.objects.create(name="a") for _ in range(3)]
    current = store.current()
    wanted = [(view, receiver.options) for view in current.peek([receiver.name], 9, 0)[0]]
    grants = [grant for grant in current.claim_many(wanted) if isinstance(grant, Grant)]
    assert len(grants) == len(items)
    assert ahead.rows((grant, receiver) for grant in grants) == {}
