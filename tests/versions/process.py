"""One process of the site: ``python -m tests.versions.process NAME OPTIONS``.

OPTIONS are those of its one receiver, as JSON. Each line that it is sent is a list: a function of
this module, and its arguments; what it returns is printed as JSON.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

WHO, OPTIONS = sys.argv[1], json.loads(sys.argv[2])
FOLDER = Path(os.environ["RECHECK_TEST_FOLDER"])
told: list[str] = []
passes: list[list[Any]] = []


class Told(logging.Handler):
    """Keeps what the package warns of."""

    def emit(self, record: logging.LogRecord) -> None:
        told.append(record.getMessage())


def prepare() -> None:
    """Make the tables."""
    from django.core.management import call_command

    from tests.app.models import Group

    call_command("migrate", run_syncdb=True, verbosity=0)
    Group.objects.bulk_create([Group(pk=pk, name=str(pk)) for pk in (7, 8)])


def follow() -> None:
    """Connect this version's receiver: a group's total, read, and written when the gate opens."""
    from django.db.models import Sum
    from django.db.models.signals import post_save
    from django.dispatch import receiver

    from django_recheck import recheck
    from tests.app.models import Group, Item

    @receiver(post_save, sender=Item)
    @recheck(**OPTIONS)
    def refresh(sender: Any, instance: Item | None, recheck_pass: Any, **kwargs: Any) -> None:
        passes.append([recheck_pass.item.receiver, recheck_pass.item.text, recheck_pass.gone])
        key: Any = instance.group_id if "key" not in OPTIONS and instance else recheck_pass.key
        found = Item.objects.filter(group=key).aggregate(total=Sum("value"))["total"]
        gate, until = FOLDER / f"gate of {WHO}", time.monotonic() + 60
        if gate.exists():
            (FOLDER / f"{WHO} waits").touch()
            while gate.exists():
                assert time.monotonic() < until
                time.sleep(0.01)
        Group.objects.filter(pk=key).update(total=found or 0)


def save(value: int, group: int = 7) -> int:
    """Create an item."""
    from tests.app.models import Item

    return Item.objects.create(name="a", value=value, group_id=group).pk


def drain() -> dict[str, Any]:
    """Drain; return what the tally says."""
    from django_recheck import worker

    tally = worker.drain()
    outcomes = {outcome.name: number for outcome, number in tally.outcomes.items()}
    return {"outcomes": outcomes, "unknown": tally.unknown, "problems": tally.problems}


def ask(keys: list[Any]) -> int:
    """Ask for passes by hand."""
    from django_recheck import receivers

    (found,) = (r[-1] for n, r in receivers.registry.items() if n == OPTIONS["name"])
    return found.recheck_many(keys)


def said() -> dict[str, Any]:
    """Return the passes and warnings since the last time."""
    found = {"passes": [*passes], "told": [*told]}
    passes.clear()
    told.clear()
    return found


def totals() -> list[int]:
    """Return what the groups' totals are."""
    from tests.app.models import Group

    return [*Group.objects.order_by("pk").values_list("total", flat=True)]


def main() -> None:
    """Do what each line says."""
    import django

    django.setup()
    logging.getLogger("django_recheck").addHandler(Told(logging.WARNING))
    follow()
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(globals()[name](*arguments)), flush=True)


if __name__ == "__main__":
    main()
