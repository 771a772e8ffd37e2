"""What the outbox costs: transactions with ``durable=True`` against the same without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from .figures import Figure
from .harness import Bench

PLACES: Final = ("P", "S")
TIMES: Final = 20
MANY: Final = 100


def run(bench: Bench) -> Iterator[Figure]:
    """Compare transactions that save a row once, often, and many rows."""
    from django.db import connection, transaction
    from django.db.models.signals import post_save

    from django_recheck import recheck
    from django_recheck.outbox import table
    from tests.app.models import Group

    number = bench.scaled(MANY)
    rows = Group.objects.bulk_create(Group(name="a") for _ in range(number))
    transactions = {"a save": rows[:1], f"{number} saves": rows[:1] * number}
    transactions[f"{number} rows"] = rows

    def empty() -> None:
        bench.empty()
        table.model().objects.all()._raw_delete("default")

    def changing(dispatch: str, *, durable: bool) -> Callable[[list[Group]], None]:
        name = f"{dispatch}-{'durable' if durable else 'plain'}"

        @recheck(name=name, durable=durable, dispatch=dispatch, inline_budget=60)
        def follow(sender: Any, **kwargs: Any) -> None: ...

        def change(saved: list[Group]) -> None:
            post_save.connect(follow, sender=Group)
            with transaction.atomic():
                for row in saved:
                    row.save()
            post_save.disconnect(follow, sender=Group)

        return change

    for dispatch in ("worker", "inline"):
        changes = [changing(dispatch, durable=durable) for durable in (True, False)]
        for what, saved in transactions.items():
            times = TIMES if len(saved) == 1 else 1
            ways = [partial(change, saved) for change in changes]
            kept, plain = bench.paired(*ways, times=times, before=empty)
            work = f'{what}, "{dispatch}", {connection.vendor}'
            yield bench.ratio(kept, plain, work=work, against="not durable")
