"""A database router for projects with replicas: no pass reads from one."""

from __future__ import annotations

from typing import Any

from django.db import router
from django.db.models import Model

from .passes import at_hand


class PassRouter:
    """Send what a receiver reads during a pass to the database where its event was written.

    A replica may not have it yet. Models that are written to another database are read from that
    one. Outside of passes it has no opinion; nor has it one of writes, relations and migrations.
    It goes in front of the routers that send reads to replicas:

    >>> DATABASE_ROUTERS = ["django_recheck.routers.PassRouter", "shop.routers.ReplicaRouter"]
    """

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        """Return the alias to read a model from, None outside of a pass."""
        run = at_hand()
        if run is None:
            return None
        written: str = router.db_for_write(model, **hints)
        using, subject = run.concern.using, run.events.groups[-1].model
        from_row = getattr(hints.get("instance"), "_state", None)
        if subject is None or (from_row and from_row.db not in (None, using)):
            return written
        # The event may have named its database itself: then others of its kind are there, too.
        return using if written == router.db_for_write(subject) else written
