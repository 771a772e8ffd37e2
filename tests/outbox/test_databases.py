"""Where rows stand: on the database of the change, wherever else things are read or written."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError, connections, router, transaction
from django.db.models.signals import m2m_changed, post_save
from django.dispatch import Signal
from django.test.utils import CaptureQueriesContext

from django_recheck import batch, batching, outage, recheck, worker
from django_recheck.outbox import table
from tests.app.models import Friend, Item
from tests.servers import Server

from .seen import DATABASES, committed_and_not_told, durable, no_table, ripen, rows, waiting

pytestmark = pytest.mark.django_db(transaction=True, databases=list(DATABASES))


@pytest.fixture
def calls() -> list[Any]:
    return []


class Replica:
    """Reads from "other", as if it were a replica of "default"."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "other"

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "default"


@pytest.fixture
def replicated(settings: Any) -> Item:
    """Have a row on both databases, and reads go to the replica."""
    item = Item.objects.create(name="a")
    Item.objects.using("other").create(pk=item.pk, name="a")
    settings.DATABASE_ROUTERS = [Replica()]
    return Item.objects.get(pk=item.pk)


def test_what_was_read_from_a_replica_is_the_primarys(calls: list[Any], replicated: Item) -> None:
    probe = Signal()
    receiver = durable(calls, dispatch="worker")
    probe.connect(receiver)
    assert replicated._state.db == "other"
    receiver.recheck(replicated)
    receiver.recheck_many(Item.objects.all())
    replicated.save()
    probe.send(sender=Item, instance=Item.objects.get())
    assert (waiting().total(), waiting("other").total(), len(waiting())) == (4, 0, 1)


def test_rows_are_read_and_removed_on_the_primary(calls: list[Any], replicated: Item) -> None:
    durable(calls)
    replicated.save()
    with CaptureQueriesContext(connections["other"]) as caught, transaction.atomic():
        replicated.save()
    assert not any("outbox" in query["sql"] for query in caught.captured_queries)
    committed_and_not_told(replicated.save)
    ripen()
    assert worker.drain().items == 1
    assert len(calls) == 3
    assert rows() == []


def test_a_database_that_is_to_have_no_table_is_left(calls: list[Any], settings: Any) -> None:
    """As the page says of replicas."""

    class OnlyPrimary(Replica):
        def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
            return False if db == "other" else None

    durable(calls)
    settings.DATABASE_ROUTERS = [OnlyPrimary()]
    table._known.clear()
    assert not router.allow_migrate_model("other", table.model())
    with CaptureQueriesContext(connections["other"]) as caught:
        assert worker.drain().problems == {}
    assert caught.captured_queries == []


def test_two_databases_in_one_block_have_a_row_each(calls: list[Any]) -> None:
    durable(calls)
    with transaction.atomic(), transaction.atomic(using="other"):
        item = Item.objects.create(name="a")
        Item.objects.using("other").create(pk=item.pk, name="b")
        assert (len(rows()), len(rows("other"))) == (1, 1)
    assert rows() == rows("other") == []
    assert [key for key, *_ in calls] == [item.pk, item.pk]


def test_one_of_two_databases_is_rolled_back(calls: list[Any]) -> None:
    durable(calls, dispatch="worker")
    with transaction.atomic(), transaction.atomic(using="other"):
        item = Item.objects.create(name="a")
        Item.objects.using("other").create(pk=item.pk, name="b")
        transaction.set_rollback(True, using="other")
    assert (len(rows()), len(rows("other"))) == (1, 0)


def test_a_table_on_one_database_only(calls: list[Any]) -> None:
    durable(calls)
    table._known.clear()
    with no_table("other"):
        with transaction.atomic():
            Item.objects.create(name="a")
        with pytest.raises(DatabaseError), transaction.atomic(using="other"):
            Item.objects.using("other").create(name="b")
        assert not Item.objects.using("other").exists()
    assert len(calls) == 1


def test_before_it_is_migrated_passes_go_on_in_autocommit(
    calls: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The change is committed: who fails its pass now would only lose the event as well."""
    durable(calls)
    table._known.clear()
    with no_table():
        Item.objects.create(name="a")
    assert "1 events have no outbox row" in caplog.text
    assert len(calls) == 1


# Many-to-many, where one signal is several events


@pytest.mark.parametrize("block", [transaction.atomic, batch], ids=["transaction", "autocommit"])
def test_several_events_of_one_signal_have_a_row_for_each_item(
    calls: list[Any], block: Any
) -> None:
    """A symmetrical relation concerns both ends, and here both have one key."""

    @recheck(key="name", name="friends", durable=True, dispatch="worker")
    def note(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append((recheck_pass.key, recheck_pass.event_count))

    one, two, three = [Friend.objects.create(name="same") for _ in range(3)]
    m2m_changed.connect(note, sender=Friend.friends.through)
    with block():
        one.friends.add(two, three)
    assert waiting() == {("friends", '"same"'): 1}
    worker.drain()
    assert calls == [("same", 6)]
    assert rows() == []


# What Redis doesn't take, while another transaction is open


def test_it_isnt_written_into_a_transaction_that_isnt_its_own(
    calls: list[Any], stopped: Server, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """A batch that is full records what it has, wherever that is."""
    durable(calls, name="kept", durable=False, on_redis_error="outbox")
    monkeypatch.setattr(batching, "LARGEST", 1)
    with batch():
        Item.objects.create(name="a")
        with transaction.atomic():
            Item.objects.using("other").create(name="b")
            transaction.set_rollback(True)
    assert "it is in a transaction, which may be rolled back" in caplog.text
    assert "they stay owed" in caplog.text
    assert [ready.receiver.name for ready in outage.owing()] == ["kept"]
    assert [row.receiver for row in rows("other")] == ["kept"]
    stopped.start()
    outage.breaker.close()
    assert worker.drain().items == 2
    assert len(calls) == 2


def test_a_custom_signal_without_using_is_about_where_its_row_is_saved(
    calls: list[Any], replicated: Item
) -> None:
    """Else it would be delivered before the transaction that it belongs to commits."""
    probe = Signal()
    probe.connect(durable(calls))
    post_save.disconnect(sender=Item)
    with transaction.atomic():
        probe.send(sender=Item, instance=replicated)
        assert (calls, len(rows())) == ([], 1)
    assert len(calls) == 1
