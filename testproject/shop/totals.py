"""What is derived, rebuilt from its key alone. None of it minds whether the row is still there.

Where a derived row may have to be created, the row that it belongs to is locked meanwhile, so that
it isn't deleted between the look and the write. That takes a transaction of a few statements.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from django.db import transaction
from django.db.models import Count, Sum

from .models import Customer, CustomerStatistics, Order, OrderLine, Product, SearchDocument


def order_total(order_id: int) -> Decimal:
    """Return the sum of an order's lines."""
    lines = OrderLine.objects.filter(order_id=order_id).values_list("quantity", "price")
    return sum((quantity * price for quantity, price in lines), Decimal(0))


def rebuild_order_total(order_id: int) -> None:
    """Write an order's total."""
    Order.objects.filter(pk=order_id).update(total=order_total(order_id))


def stale_orders(orders: Iterable[int]) -> list[int]:
    """Return those orders whose total isn't the sum of their lines."""
    found = Order.objects.filter(pk__in=orders).values_list("pk", "total")
    return [order_id for order_id, total in found if total != order_total(order_id)]


@transaction.atomic
def rebuild_statistics(customer_id: int) -> None:
    """Count and sum a customer's orders."""
    if Customer.objects.select_for_update(no_key=True).filter(pk=customer_id).first() is None:
        return  # the statistics went along
    orders = Order.objects.filter(customer_id=customer_id)
    found = orders.aggregate(orders=Count("pk"), spent=Sum("total", default=Decimal(0)))
    CustomerStatistics.objects.update_or_create(customer_id=customer_id, defaults=found)


@transaction.atomic
def rebuild_document(product_id: int) -> None:
    """Write a product's search document."""
    product = Product.objects.select_for_update(no_key=True).filter(pk=product_id).first()
    if product is None:
        return  # the document went along
    tags = product.tags.order_by("name").values_list("name", flat=True)
    text = "\n".join(filter(None, (product.name, product.description, " ".join(tags))))
    SearchDocument.objects.update_or_create(product_id=product_id, defaults={"text": text})
