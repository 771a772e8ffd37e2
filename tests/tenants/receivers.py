"""What follows the rows of all tenants, and writes down where its passes were."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from django.db import connection
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver

from django_recheck import Pass, recheck
from tests.app.models import Group, Item
from tests.storm.changes import concerned

MOMENT = 0.001
"""Seconds between a pass's reading and its writing."""


def schemas() -> list[str | None]:
    """Return the schema that django-tenants thinks is in force, and the one that is."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        (real,) = cursor.fetchone()
    thought: Any = connection
    return [thought.schema_name, real]


def note(run: Pass, began: int, **details: Any) -> None:
    """Write down a pass."""
    where: dict[str, Any] = {"receiver": run.receiver.name, "item": run.item.text}
    when = {"schemas": schemas(), "began": began, "ended": time.monotonic_ns()}
    with open(os.environ["RECHECK_TENANTS_LOG"], "a", encoding="utf-8") as log:
        log.write(json.dumps(where | when | details) + "\n")


@receiver([post_save, post_delete], sender=Item)
@recheck(keys=concerned, name="total")
def refresh_total(sender: Any, recheck_pass: Pass, **kwargs: Any) -> None:
    """Write the sum of a group's items."""
    began = time.monotonic_ns()
    total = sum(Item.objects.filter(group_id=recheck_pass.key).values_list("value", flat=True))
    time.sleep(MOMENT)
    Group.objects.filter(pk=recheck_pass.key).update(total=total)
    note(recheck_pass, began, events=recheck_pass.event_count)


@receiver(post_save, sender=Group)
@recheck(name="greeting")
def greet(sender: Any, instance: Group, recheck_pass: Pass, **kwargs: Any) -> None:
    """Note the name in the row that the pass was given."""
    note(recheck_pass, time.monotonic_ns(), name=instance.name, events=recheck_pass.event_count)
