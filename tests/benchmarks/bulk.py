"""Many items at once: ``recheck_many()``, and transactions that change many rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from . import peers
from .figures import Figure
from .harness import Bench

PLACES: Final = ("P", "S")
MANY: Final = 1000


def run(bench: Bench) -> Iterator[Figure]:
    """Compare with huey's enqueue, and with transactions whose receivers are plain."""
    yield from _recorded(bench)
    yield from _transactions(bench)


def _recorded(bench: Bench) -> Iterator[Figure]:
    from django_recheck import recheck

    @recheck(name="many")
    def many(sender: Any, **kwargs: Any) -> None: ...

    @recheck(name="keyed", key="group_id")
    def keyed(sender: Any, **kwargs: Any) -> None: ...

    _follow(many, keyed)
    number = bench.scaled(MANY)
    from tests.app.models import Item

    rows = Item.objects.bulk_create(Item(name="a") for _ in range(number))
    ways = [lambda: keyed.recheck_many(range(number)), lambda: many.recheck_many(rows)]
    if "huey" in peers.installed():
        ways.append(lambda: peers.peer("huey").enqueue(number))
    found = bench.paired(*ways, times=1, before=bench.empty)
    for times, what in zip(found, ("keys", "rows"), strict=False):
        work, rates = f"recheck_many, {what}", [number / seconds for seconds in times]
        place = bench.place
        yield Figure.of(rates, work=work, unit="/s", place=place, least=80_000)
        if found[2:]:
            speeds = [b / a for a, b in zip(times, found[2], strict=True)]
            yield Figure.of(speeds, work=work, against="huey enqueue", place=place, least=10)


def _transactions(bench: Bench) -> Iterator[Figure]:
    from django.db import transaction
    from django.db.models.signals import post_save

    from django_recheck import recheck
    from tests.app.models import Group, Item

    def nothing(sender: Any, **kwargs: Any) -> None: ...

    ours = recheck(name="followed", dispatch="worker")(nothing)
    number = bench.scaled(MANY)
    rows = Group.objects.bulk_create(Group(name="a") for _ in range(number))

    def of(receiver: Any, one: bool) -> Any:
        def change() -> None:
            post_save.connect(receiver, sender=Group)
            with transaction.atomic():
                for row in rows:
                    (rows[0] if one else row).save()
            post_save.disconnect(receiver, sender=Group)

        return change

    for one, most in ((True, 1.05), (False, 1.15)):
        times = bench.paired(of(ours, one), of(nothing, one), times=1, before=bench.empty)
        work = f"transaction, {number:,} saves of {'one row' if one else 'as many rows'}"
        yield bench.ratio(*times, work=work, against="plain receiver", most=most)
        extra = [(a - b) / number * 1e6 for a, b in zip(*times, strict=True)]
        yield Figure.of(extra, work=f"{work}: more", unit="µs each", place=bench.place)
    Item.objects.all().delete()


def _follow(*receivers: Any) -> None:
    from django.db.models.signals import post_save

    from tests.app.models import Item

    for receiver in receivers:
        post_save.connect(receiver, sender=Item, weak=False)
