"""The shop's receivers: each rebuilds one derived thing from ``recheck_pass.key``.

``bulk_create()``, ``bulk_update()`` and ``update()`` send no signals. After one of them, ask:
``refresh_order_total.recheck(key=order_id)``, or ``recheck_many(order_ids)`` for many.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete
from django.dispatch import Signal, receiver

from django_recheck import Pass, recheck

from . import totals
from .models import Belonging, Order, OrderLine, Product, Tag

order_total_changed = Signal()
"""An order's total was written, which no signal of Django's tells: ``update()`` sends none."""


def old_and_new(instance: Belonging, **kwargs: Any) -> set[int]:
    """Return where a row is and where it was: a move concerns both."""
    return instance.whereabouts()


@receiver([post_save, post_delete], sender=OrderLine)
@recheck(keys=old_and_new, name="order-total")
def refresh_order_total(sender: Any, recheck_pass: Pass, **kwargs: Any) -> None:
    """Keep an order's total the sum of its lines."""
    totals.rebuild_order_total(recheck_pass.key)
    for order in Order.objects.filter(pk=recheck_pass.key):
        order_total_changed.send(Order, instance=order)


@receiver(order_total_changed)
@receiver([post_save, post_delete], sender=Order)
@recheck(keys=old_and_new, name="customer-statistics")
def refresh_statistics(sender: Any, recheck_pass: Pass, **kwargs: Any) -> None:
    """Keep a customer's statistics, which follow from the totals of the orders."""
    totals.rebuild_statistics(recheck_pass.key)


def concerned_products(sender: Any, instance: Any, **kwargs: Any) -> set[int]:
    """Return the products that a change of a product, a tag or their relation concerns."""
    if isinstance(instance, Product):
        return {instance.pk}
    return tagged_products(instance) | set(kwargs.get("pk_set") or ())


def tagged_products(tag: Tag) -> set[int]:
    """Return a tag's products: before it goes or is cleared, as afterwards it has none.

    What a key is worked out from mustn't change before the commit. So in a transaction the tag is
    locked: who gives it to another product meanwhile waits, or is waited for.
    """
    if transaction.get_connection().in_atomic_block:
        Tag.objects.select_for_update().filter(pk=tag.pk).first()
    return set(tag.products.values_list("pk", flat=True))


@receiver([post_save, post_delete], sender=Product)
@receiver([post_save, pre_delete], sender=Tag)
@receiver(m2m_changed, sender=Product.tags.through)
@recheck(keys=concerned_products, name="search-document")
def refresh_document(sender: Any, recheck_pass: Pass, **kwargs: Any) -> None:
    """Keep a product's search document."""
    totals.rebuild_document(recheck_pass.key)
