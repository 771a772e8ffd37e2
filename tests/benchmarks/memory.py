"""What Redis keeps for each item that is owed, and for each that is held."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from .figures import Figure
from .harness import Bench

PLACES: Final = ("",)
SIZES: Final = (60_000, 80_000, 100_000)
"""Items; several, since tables grow in jumps."""


def run(bench: Bench) -> Iterator[Figure]:
    """Fill the server, and divide."""
    from django_recheck import recheck, store
    from django_recheck.keys import item_text
    from django_recheck.records import Item

    @recheck(name="shop.order_total", key=lambda **_: 1, ttl=600)
    def total(sender: Any, **kwargs: Any) -> None: ...

    def due(number: int) -> None:
        total.recheck_many(range(number))

    def held(number: int) -> None:
        for key in range(number):
            item = Item(total.name, item_text(key, "default", None))
            store.current().request(item, b"", 1, total.options)

    for work, fill, most, share in (
        ("memory of an owed item", due, 350, 1.0),
        ("memory of a held item", held, 750, 0.2),
    ):
        found = []
        for size in SIZES:
            number = bench.scaled(round(size * share))
            bench.empty()
            fill(1)
            before = _used(bench)
            fill(number + 1)
            found.append((_used(bench) - before) / number)
        yield Figure.of(found, work=work, unit="bytes", most=most)


def _used(bench: Bench) -> int:
    """Return the bytes that the server has taken, but for its clients' buffers."""
    found = bench.client.info("memory")
    used: int = found["used_memory"] - found["mem_clients_normal"]
    return used
