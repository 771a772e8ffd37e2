"""One ``save()`` with a decorated receiver that does nothing, in round trips and queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import redis

from .figures import Figure, spoken
from .harness import Bench, median

PLACES: Final = ("P", "S")
TIMES: Final = 50


def run(bench: Bench) -> Iterator[Figure]:
    """Compare with a plain receiver, one PING and one query."""
    from django.db import connection
    from django.db.models.signals import post_save

    from django_recheck import recheck
    from tests.app.models import Group

    def nothing(sender: Any, **kwargs: Any) -> None: ...

    row, client = Group.objects.create(name="a"), redis.Redis.from_url(bench.server.url)
    fresh = recheck(name="fresh")(nothing)
    as_sent = recheck(name="as_sent", refresh=False)(nothing)
    for_worker = recheck(name="for_worker", dispatch="worker")(nothing)

    def saving(receiver: Any) -> Any:
        def save() -> None:
            post_save.connect(receiver, sender=Group)
            row.save()
            post_save.disconnect(receiver, sender=Group)

        return save

    ways = [saving(each) for each in (nothing, as_sent, fresh, for_worker)]
    ways += [client.ping, lambda: Group.objects.get(pk=row.pk)]
    plain, sent, read, recorded, ping, query = bench.paired(*ways, times=TIMES)

    def more(work: str, ours: list[float], theirs: list[float], of: list[float]) -> Figure:
        triples = zip(ours, theirs, of, strict=True)
        unit = "PING" if of is ping else "query"
        detail = f"{spoken(median(ours))} - {spoken(median(theirs))}, {spoken(median(of))}"
        multiples = [(a - b) / c for a, b, c in triples]
        return Figure.of(multiples, work=work, unit=unit, place=bench.place, detail=detail)

    vendor = connection.vendor
    yield more("save(), no refresh: more than plain", sent, plain, ping)
    yield more("save(), refresh: more than plain", read, plain, ping)
    yield more(f"save(), refresh: more than none, {vendor}", read, sent, query)
    yield more('save(), "worker": more than plain', recorded, plain, ping)
    yield bench.ratio(read, plain, work=f"save(), refresh, {vendor}", against="plain receiver")
