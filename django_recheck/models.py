"""The lock as Django's admin and permissions know it: a model without a table.

Locks stand in Redis. ``admin/locks.py`` reads them there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from django.db import models
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from .board import Row


class NoRows(models.Manager["Lock"]):
    """Finds nothing and asks no database, so that ``dumpdata`` and the like have nothing to do."""

    def get_queryset(self) -> models.QuerySet[Lock]:
        """Return no lock."""
        return super().get_queryset().none()


class Lock(models.Model):
    """One item: a receiver, a key, and where they stand."""

    id = models.TextField(primary_key=True)
    receiver = models.TextField(_("receiver"))
    key = models.TextField(_("key"))
    moment = models.DateTimeField(_("moment"), unique=True)
    """What its index is sorted by: when its lease ends, a pass is owed, or it was given up."""

    objects = NoRows()

    row: Row
    """What is known of it."""
    seen: str
    """What stood in Redis when somebody saw it: actions compare that."""
    paused: bool
    """Whether a person lets its receiver wait."""
    refused: Mapping[str, Exception]
    """Why an outbox couldn't be looked at, by the database's alias."""
    problem: str = ""
    """Why nothing could be read: then there is none of the above."""

    class Meta:
        managed = False
        base_manager_name = "objects"
        default_permissions = ("view", "change", "delete")
        verbose_name = _("lock")
        verbose_name_plural = _("locks")

    def __str__(self) -> str:
        from .screen import plain  # what people look at is no part of a start-up

        return Truncator(plain(f"{self.receiver} {self.key}".strip()[:1000])).chars(200)
