"""The examples of the page on transactions do what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db.models import Sum
from django.db.models.signals import post_save
from django.dispatch import receiver
from shop.models import Customer, Order, OrderLine, Product

from django_recheck import recheck
from tests.test_docs import blocks

PAGE = Path(__file__).parent.parent / "docs/howto/transactions.md"
pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

passed: list[Any] = []


@pytest.fixture(autouse=True)
def _receivers() -> None:
    passed.clear()

    @receiver(post_save, sender=OrderLine)
    @recheck(name="page-total", key="order_id")
    def total(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        lines = OrderLine.objects.filter(order=recheck_pass.key)
        passed.append((lines.aggregate(total=Sum("price"))["total"], recheck_pass.event_count))

    @receiver(post_save, sender=Order)
    @receiver(post_save, sender=Product)
    @recheck(name="page-rows")
    def rows(sender: Any, instance: Any, **kwargs: Any) -> None:
        archive = Product.objects.using("other").filter(pk=instance.pk)
        passed.append([*archive.values_list("name", flat=True)])


def example(function: str) -> Any:
    """Return a function of the page; the tests' second database is called "other"."""
    (text,) = (block for block in blocks(PAGE, "python") if f"def {function}(" in block)
    names: dict[str, Any] = {}
    exec(compile(text.replace('"archive"', '"other"'), PAGE.name, "exec"), names)
    return names[function]


def test_many_lines_are_one_pass_of_the_total() -> None:
    order = Order.objects.create(customer=Customer.objects.create(name="a"))
    product = Product.objects.create(name="tea", price=7)
    for price in (10, 20):
        OrderLine.objects.create(order=order, product=product, price=price)
    passed.clear()
    example("take_ten_percent_off")(order)
    assert passed == [(27, 2)]


def test_a_pass_waits_for_the_archive() -> None:
    product = Product.objects.create(name="tea", price=7)
    Product.objects.using("other").bulk_create([Product(pk=product.pk, name="old", price=7)])
    product.name = "green tea"
    passed.clear()
    example("copy")(product)
    assert passed == [["green tea"]]


def test_a_mail_server_that_is_away_costs_no_event(caplog: pytest.LogCaptureFixture) -> None:
    order = Order.objects.create(customer=Customer.objects.create(name="a"))
    passed.clear()

    def send_mail() -> None:
        raise ConnectionError

    example("pay")(order, send_mail)
    assert passed == [[]]
