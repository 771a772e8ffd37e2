"""Receivers of a project: those that cope with a recheck, and those that don't."""

from __future__ import annotations

from typing import Any

from django.db.models import Sum
from django.db.models.signals import post_save
from django.dispatch import receiver

from django_recheck import Pass, recheck
from tests.app.models import Friend, Group, Item, Priced, Watched

seen: dict[Any, Any] = {}
"""What a module shouldn't remember."""


@receiver(post_save, sender=Item)
@recheck(key="group_id", name="total")
def refresh_total(sender: Any, recheck_pass: Pass, **kwargs: Any) -> None:
    """Keep a group's total the sum of its items."""
    items = Item.objects.filter(group=recheck_pass.key)
    total = items.aggregate(total=Sum("value"))["total"] or 0
    Group.objects.filter(pk=recheck_pass.key).update(total=total)


@receiver(post_save, sender=Watched)
@recheck(name="count", dispatch="worker", delay=60)
async def count_names(sender: Any, instance: Watched, **kwargs: Any) -> None:
    """Keep a watched row's value the length of its name."""
    await Watched.objects.filter(pk=instance.pk).aupdate(value=len(instance.name))


@receiver(post_save, sender=Friend)
@recheck(name="cached")
def remember(sender: Any, instance: Friend, **kwargs: Any) -> None:
    """Derive a team from a friend: from the first values that this process has seen."""
    name = seen.setdefault(instance.pk, instance.name)
    Group.objects.update_or_create(name=f"friend {instance.pk}", defaults={"total": len(name)})


@receiver(post_save, sender=Priced)
@recheck(key=lambda **kwargs: "all", name="added")
def add_up(sender: Any, instance: Priced, **kwargs: Any) -> None:
    """Add each price to what was there: as if every event had a pass of its own."""
    group, _ = Group.objects.get_or_create(name="prices")
    Group.objects.filter(pk=group.pk).update(total=group.total + int(instance.price))
