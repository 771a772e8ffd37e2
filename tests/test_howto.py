"""What the pages on keys and on bulk writes show does what they say."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.db.models.signals import post_delete, post_save, pre_save
from shop.models import Customer, Order, OrderLine, Product
from shop.receivers import refresh_order_total

from django_recheck import Outcome, receivers, worker
from tests.test_docs import DOCS, blocks

pytestmark = pytest.mark.django_db(transaction=True)
Names = dict[str, Any]


def shown(page: str) -> Names:
    """Run all that a page shows, as one module; return its names."""
    path = DOCS / "howto" / page
    names: Names = {"__name__": f"howto.{Path(page).stem}"}
    for block in blocks(path, "python"):
        exec(compile(block, page, "exec"), names)
    return names


@pytest.fixture
def alone() -> None:
    """Take away the shop's own receivers and all others; they are put back after the test."""
    receivers.registry.clear()
    for signal in (pre_save, post_save, post_delete):
        signal.receivers[:] = []
        signal.sender_receivers_cache.clear()


@pytest.fixture
def keys(alone: None) -> Iterator[Names]:
    """What the page on keys shows, connected."""
    names = shown("keys.md")
    yield names
    names["imported"].disconnect(names["note_import"])


@pytest.fixture
def bulk() -> Names:
    """What the page on bulk writes shows."""
    return shown("bulk.md")


@pytest.fixture
def product() -> Product:
    """What all lines are about."""
    return Product.objects.create(name="tea", price=7)


@pytest.fixture
def orders() -> list[Order]:
    """Two orders of one customer."""
    customer = Customer.objects.create(name="ann")
    return [Order.objects.create(customer=customer) for _ in range(2)]


def line(order: Order, product: Product, **values: Any) -> OrderLine:
    return OrderLine.objects.create(order=order, product=product, **{"price": 7, **values})


def totals() -> list[int]:
    return [int(total) for total in Order.objects.order_by("pk").values_list("total", flat=True)]


# Keys, moves and deletes


def test_a_foreign_key_as_the_key(keys: Names, orders: list[Order], product: Product) -> None:
    line(orders[0], product, quantity=2)
    line(orders[0], product, quantity=3).delete()
    assert totals() == [2, 0]


def test_a_product_concerns_every_order_that_has_it(
    keys: Names, orders: list[Order], product: Product
) -> None:
    for order in orders:
        line(order, product, quantity=4)
    Order.objects.update(total=0)
    product.save()
    assert totals() == [4, 4]


def test_a_move_concerns_both_orders(keys: Names, orders: list[Order], product: Product) -> None:
    assert pre_save.disconnect(keys["remember_order"], sender=OrderLine)
    moved = line(orders[0], product, quantity=4)
    keys["move"](moved.pk, orders[1].pk)
    assert totals() == [0, 4]


@pytest.mark.parametrize("atomic", [True, False])
def test_a_form_that_moves_is_looked_after_before_it_saves(
    keys: Names, orders: list[Order], product: Product, atomic: bool
) -> None:
    moved = line(orders[0], product, quantity=4)
    moved.order = orders[1]
    if atomic:
        with transaction.atomic():
            moved.save()
    else:
        moved.save()
    assert totals() == [0, 4]


def test_the_document_of_a_row_that_is_gone(keys: Names, product: Product) -> None:
    pk = product.pk
    assert keys["documents"] == {pk: "tea, 7.00"}
    product.delete()
    assert keys["documents"] == {}
    assert keys["removed"] == ["tea"], "what is carried"


def test_data_takes_what_cant_travel(keys: Names) -> None:
    class File(io.StringIO):
        name = "a.csv"

    file = File("some text")
    file.read(4)
    ((_, outcome),) = keys["imported"].send(sender=None, file=file)
    assert outcome is Outcome.RAN
    assert keys["removed"] == [("a.csv", 4, None)]


# Bulk writes and imports


def test_bulk_create_and_update_ask_for_their_orders(
    bulk: Names, orders: list[Order], product: Product
) -> None:
    lines = [OrderLine(order=order, product=product, price=7) for order in orders]
    bulk["import_lines"](lines)
    assert totals() == [0, 0]
    assert worker.drain().outcomes == {Outcome.RAN: 2}
    assert totals() == [7, 7]
    bulk["raise_price"](product.pk, 8)
    worker.drain()
    assert totals() == [8, 8]


def test_what_is_rolled_back_asks_for_nothing(
    bulk: Names, orders: list[Order], product: Product
) -> None:
    with transaction.atomic():
        bulk["import_lines"]([OrderLine(order=orders[0], product=product, price=7)])
        transaction.set_rollback(True)
    assert worker.drain().items == 0


def test_rows_that_leave_their_key_in_bulk(
    bulk: Names, orders: list[Order], product: Product
) -> None:
    for order in orders:
        line(order, product)
    bulk["merge_orders"](orders[0].pk, orders[1].pk)
    worker.drain()
    assert totals() == [0, 14]
    OrderLine.objects.update(quantity=0)
    bulk["drop_empty_lines"]()
    worker.drain()
    assert totals() == [0, 0]
    assert not OrderLine.objects.exists()


def test_an_import_of_many_transactions_is_one_event_of_each_order(
    bulk: Names, orders: list[Order], product: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[Any] = []
    told = refresh_order_total.func

    def counted(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        passes.append((recheck_pass.key, recheck_pass.event_count))
        told(sender=sender, recheck_pass=recheck_pass, **kwargs)

    monkeypatch.setattr(refresh_order_total, "func", counted)
    rows = [{"order": order, "product": product, "price": n} for n in (1, 2) for order in orders]
    bulk["import_rows"](rows)
    assert passes == [(order.pk, 2) for order in orders]
    assert totals() == [3, 3]


def test_everything_is_asked_for_after_somebody_elses_write(
    bulk: Names, orders: list[Order], product: Product
) -> None:
    line(orders[0], product)
    Order.objects.update(total=1)
    assert bulk["ask_for_all"]() == 2
    worker.drain()
    assert totals() == [7, 0]
