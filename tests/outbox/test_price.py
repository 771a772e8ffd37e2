"""What a durable receiver costs in statements of any kind, against the same one without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.signals import post_delete, post_save
from django.test.utils import CaptureQueriesContext

from django_recheck import worker
from tests.app.models import Item

from .seen import DATABASES, durable, rows, statements

pytestmark = pytest.mark.django_db(transaction=True, databases=list(DATABASES))


def made(call: Callable[[], object], **options: Any) -> Counter[str]:
    """Return the first words of all statements that something makes, with a receiver or without."""
    receiver = durable([], **options)
    with CaptureQueriesContext(connection) as caught:
        call()
    for signal in (post_save, post_delete):
        signal.disconnect(receiver, sender=Item)
    return Counter(query["sql"].split()[0] for query in caught.captured_queries)


def added(call: Callable[[], object], **options: Any) -> dict[str, int]:
    """Return how many statements more a durable receiver makes."""
    made(call, **options)  # what is asked once for each process
    plain = made(call, durable=False, name="plain", **options)
    kept = made(call, **options)
    assert not plain - kept, "and none less"
    return dict(kept - plain)


def saves(*items: Item) -> Callable[[], None]:
    """Return what saves rows in one transaction."""

    def call() -> None:
        with transaction.atomic():
            for item in items:
                item.save()

    return call


@pytest.fixture
def items() -> list[Item]:
    return Item.objects.bulk_create(Item(name=str(number)) for number in range(10))


def test_a_transaction_has_one_insert_for_each_item(items: list[Item]) -> None:
    worker_only = {"dispatch": "worker"}
    assert added(saves(items[0]), **worker_only) == {"INSERT": 1}
    assert added(saves(*items[:1] * 10), **worker_only) == {"INSERT": 1}
    assert added(saves(*items), **worker_only) == {"INSERT": 10}


def test_a_pass_has_a_select_before_it_and_a_delete_after_it(items: list[Item]) -> None:
    inline = {"dispatch": "inline"}
    assert added(saves(items[0]), **inline) == {"INSERT": 1, "SELECT": 1, "DELETE": 1}
    assert added(saves(*items), **inline) == {"INSERT": 10, "SELECT": 10, "DELETE": 10}


def test_a_drain_that_finds_nothing_asks_each_database_once() -> None:
    durable([])
    worker.drain()
    for using in DATABASES:
        assert len(statements(using, worker.drain)) == 1


def test_a_bulk_of_many_is_few_inserts(items: list[Item]) -> None:
    receiver = durable([], dispatch="worker")
    many = [Item(pk=pk) for pk in range(10_000, 12_500)]

    def ask() -> None:
        with transaction.atomic():
            receiver.recheck_many(many)

    inserts = statements("default", ask)
    assert len(rows()) == len(many)
    if connection.vendor == "sqlite":  # it takes fewer values at once, by its version
        assert len(inserts) < 25
    else:
        assert len(inserts) == 3


def test_at_rest_the_table_is_empty(items: list[Item]) -> None:
    durable([])
    saves(*items)()
    assert rows() == []
