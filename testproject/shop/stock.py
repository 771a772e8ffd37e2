"""The demo's own rows, by which they are known again in a database with others."""

from __future__ import annotations

from decimal import Decimal

from .models import Customer, Order, OrderLine, Product, Tag

HOT_ORDERS = 2
CUSTOMER = "Customer of the demo"
DESCRIPTION = "Made for the demo."
PRODUCTS = {"Teapot": "24.90", "Cup": "6.50", "Tea, 100 g": "7.20"}
TAG = "sold in the demo"


def put() -> tuple[list[int], list[int]]:
    """Put products and some hot orders without lines in.

    Returns:
        The primary keys of the orders and of the products.
    """
    clear()
    tag = Tag.objects.create(name=TAG)
    products = []
    for name, price in PRODUCTS.items():
        row = Product.objects.create(name=name, description=DESCRIPTION, price=Decimal(price))
        row.tags.add(tag)
        products.append(row.pk)
    customer = Customer.objects.create(name=CUSTOMER)
    orders = [Order.objects.create(customer=customer).pk for _ in range(HOT_ORDERS)]
    return orders, products


def clear() -> None:
    """Take out what ``put`` and the demo have put in."""
    OrderLine.objects.filter(order__customer__name=CUSTOMER).delete()
    Customer.objects.filter(name=CUSTOMER).delete()
    unused = Product.objects.filter(description=DESCRIPTION, orderline__isnull=True)
    unused.delete()
    Tag.objects.filter(name=TAG).delete()
