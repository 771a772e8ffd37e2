"""A row with the change: in its transaction, one for each item, and what is open in autocommit."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.db.models.signals import post_save
from django.test import TestCase, override_settings

from django_recheck import batch, recheck, worker
from tests.app.models import Group, Item

from .seen import DATABASES, durable, names, no_table, rows, statements, waiting

pytestmark = pytest.mark.django_db(transaction=True, databases=list(DATABASES))


@pytest.fixture
def calls() -> list[Any]:
    return []


class Undone(Exception):
    """Rolls back."""


def item_of(item: Item) -> str:
    return f'{{"tests_app.item":{item.pk}}}'


def test_the_migration_is_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("makemigrations", "django_recheck_outbox", check=True, dry_run=True)


@pytest.mark.parametrize("using", DATABASES)
def test_it_is_committed_with_the_change(calls: list[Any], using: str) -> None:
    durable(calls, dispatch="worker")
    with transaction.atomic(using=using):
        item = Item.objects.using(using).create(name="a")
        (row,) = rows(using)
    assert rows(using) == [row]
    text = item_of(item) + (f' "{using}"' if using != "default" else "")
    assert (row.receiver, row.item, row.count) == ("durable", text, 1)
    assert names(row) == ["post_save"]
    assert row.due > row.created


def test_it_is_rolled_back_with_the_change(calls: list[Any]) -> None:
    durable(calls)
    with transaction.atomic():
        Item.objects.create(name="a")
        transaction.set_rollback(True)
    assert rows() == []


def test_receivers_that_arent_durable_have_none(calls: list[Any]) -> None:
    durable(calls, durable=False)
    with transaction.atomic():
        Item.objects.create(name="a")
        assert rows() == []


def test_a_thousand_saves_of_a_row_are_one_insert(calls: list[Any]) -> None:
    durable(calls, dispatch="worker")

    def change() -> None:
        with transaction.atomic():
            item = Item.objects.create(name="a")
            for number in range(999):
                item.value = number
                item.save()

    (made,) = statements("default", change)
    assert made.startswith("INSERT")
    (row,) = rows()
    assert names(row) == ["post_save"]


def test_a_thousand_rows_of_one_group_are_one_insert(calls: list[Any]) -> None:
    durable(calls, key="group_id", dispatch="worker")
    group = Group.objects.create(name="a")

    def change() -> None:
        with transaction.atomic():
            for number in range(100):
                Item.objects.create(name=str(number), group=group)

    assert len(statements("default", change)) == 1


def test_each_item_has_its_own(calls: list[Any]) -> None:
    durable(calls, dispatch="worker")

    def change() -> None:
        with transaction.atomic():
            for number in range(10):
                Item.objects.create(name=str(number))

    assert len(statements("default", change)) == 10
    assert set(waiting().values()) == {1}


def test_several_items_of_one_event_are_one_statement(calls: list[Any]) -> None:
    durable(calls, keys=lambda instance, **_: [1, 2, 3], dispatch="worker")

    def change() -> None:
        with transaction.atomic():
            Item.objects.create(name="a")

    assert len(statements("default", change)) == 1
    assert waiting() == {("durable", key): 1 for key in "123"}


@pytest.mark.parametrize("using", DATABASES)
def test_what_a_later_event_adds_is_written(calls: list[Any], using: str) -> None:
    """A replayed pass must hear of the deletion, or it would only see that the row is gone."""
    durable(calls, dispatch="worker")

    def change() -> None:
        with transaction.atomic(using=using):
            item = Item.objects.using(using).create(name="a")
            item.save()
            item.delete()

    made = statements(using, change)
    assert [sql.partition(" ")[0] for sql in made] == ["INSERT", "UPDATE"]
    (row,) = rows(using)
    assert names(row) == ["post_save", "post_delete"]


def test_where_the_database_tells_no_keys_it_is_one_more_row(
    calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """MySQL is such a database."""
    features = type(connection.features)
    monkeypatch.setattr(features, "can_return_rows_from_bulk_insert", False)
    durable(calls, dispatch="worker")
    with transaction.atomic():
        item = Item.objects.create(name="a")
        item.save()
        Item(pk=item.pk).delete()
        Item(pk=item.pk).delete()
    assert [names(row) for row in rows()] == [["post_save"], ["post_save", "post_delete"]]
    assert worker.drain().items == 1
    assert rows() == []


def test_it_never_claims_less_than_happened(calls: list[Any]) -> None:
    durable(calls, dispatch="worker")
    item = Item.objects.create(name="a")

    def change() -> None:
        with transaction.atomic():
            for field in ("name", "name", "value", "value", "name"):
                item.save(update_fields=[field])

    assert len(statements("default", change)) == 2
    assert b'"name"' not in bytes(rows()[-1].events)


def test_newer_values_are_written_where_no_pass_reads_them(calls: list[Any]) -> None:
    durable(calls, refresh=False, carry=["name"], key=lambda **_: 1, dispatch="worker")
    with transaction.atomic():
        item = Item.objects.create(name="a")
        item.name = "newer"
        item.save()
    (row,) = rows()
    assert b"newer" in bytes(row.events)


def test_after_a_savepoint_is_rolled_back_it_is_written_again(calls: list[Any]) -> None:
    durable(calls, dispatch="worker")
    item = Item.objects.create(name="a")
    rows()[0].delete()
    with transaction.atomic():
        with transaction.atomic():
            item.save()
            transaction.set_rollback(True)
        assert rows() == []
        item.save()
        item.save()
        with transaction.atomic():
            item.delete()
            transaction.set_rollback(True)
        (row,) = rows()
        assert names(row) == ["post_save"]
        Item.objects.filter(name="a").delete()
    (row,) = rows()
    assert names(row) == ["post_save", "post_delete"]


def test_an_exception_that_is_kept_keeps_no_row_alive(calls: list[Any]) -> None:
    """Its frames keep what was rolled back, and what a raising callback left of a commit."""
    durable(calls, dispatch="worker")
    item = Item.objects.create(name="a")
    rows()[0].delete()
    with transaction.atomic():
        try:
            with transaction.atomic():
                item.save()
                raise Undone
        except Undone:
            item.save()
        assert len(rows()) == 1

    def raises() -> None:
        raise Undone

    try:
        with transaction.atomic():
            transaction.on_commit(raises)
            item.save()
    except Undone:
        with transaction.atomic():
            for _ in range(3):
                transaction.on_commit(nothing)
            item.save()
    assert len(rows()) == 3


def nothing() -> None:
    """Be another app's callback."""


def test_a_change_without_its_row_isnt_made(calls: list[Any]) -> None:
    durable(calls)
    missing = pytest.raises(DatabaseError, match="django_recheck_outbox_event")
    with no_table(), missing, transaction.atomic():
        Item.objects.create(name="a")
    assert not Item.objects.exists()
    assert calls == []


def test_where_the_app_isnt_listed_that_is_said(calls: list[Any], settings: Any) -> None:
    durable(calls)
    with (
        override_settings(INSTALLED_APPS=settings.INSTALLED_APPS[:-1]),
        pytest.raises(ImproperlyConfigured, match="INSTALLED_APPS = "),
        transaction.atomic(),
    ):
        Item.objects.create(name="a")


def test_own_events_have_none() -> None:
    seen = []

    @recheck(name="own", durable=True)
    def own(sender: Any, instance: Item, recheck_pass: Any, **kwargs: Any) -> None:
        if recheck_pass.number == 1:
            before = rows()
            with transaction.atomic():
                instance.save()
            instance.save()
            seen.append(rows() == before)

    post_save.connect(own, sender=Item)
    with transaction.atomic():
        Item.objects.create(name="a")
    assert seen == [True]
    assert rows() == []


# By hand, and many at once


def test_recheck_and_recheck_many(calls: list[Any]) -> None:
    receiver = durable(calls, dispatch="worker")
    item, other = Item.objects.bulk_create([Item(name="a"), Item(name="b")])

    def change() -> None:
        with transaction.atomic():
            receiver.recheck(item)
            receiver.recheck_many([item, other])
            receiver.recheck_many([other])
            other.save()

    made = statements("default", change)
    assert [sql.partition(" ")[0] for sql in made] == ["INSERT", "INSERT"]
    assert waiting() == {("durable", item_of(item)): 1, ("durable", item_of(other)): 1}


def test_many_are_few_statements(calls: list[Any]) -> None:
    receiver = durable(calls, dispatch="worker")
    items = Item.objects.bulk_create(Item(name=str(n)) for n in range(500))

    def change() -> None:
        with transaction.atomic():
            receiver.recheck_many(items)

    assert len(statements("default", change)) < 10
    assert len(rows()) == 500
    receiver.recheck_many(items)
    assert len(rows()) == 1000, "in autocommit, too"


def test_in_a_batch_rows_are_written_with_each_transaction(calls: list[Any]) -> None:
    durable(calls)
    with batch():
        for _ in range(3):
            with transaction.atomic():
                item = Item.objects.first() or Item(name="a")
                item.save()
        assert len(rows()) == 3
        assert calls == []
    assert len(calls) == 1
    assert rows() == []


def test_each_capture_of_a_testcase_has_its_own(calls: list[Any]) -> None:
    durable(calls)
    block = transaction.atomic()
    block._from_testcase = True  # type: ignore[attr-defined]
    with block:
        for number in range(2):
            with TestCase.captureOnCommitCallbacks(execute=True):
                item = Item.objects.first() or Item(name="a")
                item.save()
                assert len(rows()) == 1
            assert (len(calls), rows()) == (number + 1, [])
        transaction.set_rollback(True)


def test_what_a_capture_has_delivered_is_nobodys_to_change(calls: list[Any]) -> None:
    durable(calls, dispatch="worker")
    with transaction.atomic():
        item = Item.objects.create(name="a")
        with TestCase.captureOnCommitCallbacks(execute=True):
            Item(pk=item.pk).delete()
        Item.objects.create(pk=item.pk, name="again")
    assert [names(row) for row in rows()] == [["post_save", "post_delete"], ["post_save"]]
