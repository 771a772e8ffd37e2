"""``batch()``: many transactions, one word an item."""

from __future__ import annotations

from django.db import transaction

from django_recheck import store, views
from tests.app.models import Group, Item


def waiting() -> dict[str, int]:
    return {name: found.due for name, found in views.counts(store.current()).items()}


def fill(groups: list[Group], number: int = 3) -> None:
    """Save some items of each group, each in a transaction of its own."""
    for n in range(number):
        for group in groups:
            with transaction.atomic():
                Item.objects.create(name=str(n), group=group)
