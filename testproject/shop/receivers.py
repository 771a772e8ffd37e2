"""The shop's receivers: each rebuilds one derived thing from ``recheck_pass.key``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete
from django.dispatch import receiver

from django_recheck import Pass, recheck

from . import totals
from .models import Order, OrderLine, Product, Tag


def both_orders(instance: OrderLine, **kwargs: Any) -> set[int]:
    """Return the order that a line is in and the one that it was in."""
    return {order for order in (instance.order_id, instance.loaded_order_id) if order is not None}


@receiver([post_save, post_delete], sender=OrderLine)
@recheck(keys=both_orders, name="order-total")
def refresh_order_total(sender: Any, recheck_pass: Pass, **kwargs: Any) -> None:
    """Keep an order's total the sum of its lines."""
    totals.rebuild_order_total(recheck_pass.key)


@receiver([post_save, post_delete], sender=Order)
@recheck(key="customer_id", name="customer-statistics")
def refresh_statistics(sender: Any, recheck_pass: Pass, **kwargs: Any) -> None:
    """Keep a customer's statistics."""
    totals.rebuild_statistics(recheck_pass.key)


def concerned_products(sender: Any, instance: Any, **kwargs: Any) -> Iterable[int]:
    """Return the products that a change of a product, a tag or their relation concerns.

    A tag is asked before it goes, and before its relations are cleared: afterwards it has none.
    """
    if isinstance(instance, Product):
        return [instance.pk]
    concerned = set(instance.products.values_list("pk", flat=True))
    return concerned | set(kwargs.get("pk_set") or ())


@receiver([post_save, post_delete], sender=Product)
@receiver([post_save, pre_delete], sender=Tag)
@receiver(m2m_changed, sender=Product.tags.through)
@recheck(keys=concerned_products, name="search-document")
def refresh_document(sender: Any, recheck_pass: Pass, **kwargs: Any) -> None:
    """Keep a product's search document."""
    totals.rebuild_document(recheck_pass.key)
