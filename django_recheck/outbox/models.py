"""The outbox's one table. The core asks for it by its label, and only where it is installed."""

from __future__ import annotations

from django.db import models


class Event(models.Model):
    """What happened to one item in one transaction, until a pass has covered it."""

    id = models.BigAutoField(primary_key=True)
    receiver = models.TextField()
    item = models.TextField()
    digest = models.BigIntegerField(db_index=True)
    """Of receiver and item: finds an item's rows without an index on long texts."""
    count = models.PositiveBigIntegerField()
    """Events that it stands for, at least."""
    events = models.BinaryField()
    """As ``Events.packed()`` has them."""
    created = models.DateTimeField()
    due = models.DateTimeField(db_index=True)
    """When a drain looks whether Redis knows of it."""

    class Meta:
        app_label = "django_recheck_outbox"
        default_permissions = ()
        verbose_name = "event that no pass has covered yet"
        verbose_name_plural = "events that no pass has covered yet"
