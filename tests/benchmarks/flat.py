"""What a process keeps after very many holds: nothing."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from .figures import Figure
from .harness import Bench

PLACES: Final = ("P",)
FEW: Final = 1000
HOLDS: Final = 20_000
"""Of keys that are all different; ``--scale 50`` makes it a million."""
PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def run(bench: Bench) -> Iterator[Figure]:
    """Compare memory and threads after many holds with those after few."""
    from django_recheck import recheck

    @recheck(name="held", key=lambda **_: 1)
    def held(sender: Any, **kwargs: Any) -> None: ...

    def hold(first: int, number: int) -> tuple[int, int]:
        for key in range(first, first + number):
            held.recheck(key=key)
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * PAGE, threading.active_count()

    few, many = bench.scaled(FEW), bench.scaled(HOLDS)
    before, threads = hold(0, few)
    after, then = hold(few, many)
    work = f"after {many:,} holds, beside {few:,}:"
    growth = (after - before) / 2**20
    yield Figure.of([1 + growth], work=f"{work} memory", unit="MiB", place=bench.place, most=3)
    yield Figure.of([then / threads], work=f"{work} threads", place=bench.place, most=1)
    left = len(list(bench.client.scan_iter("*", count=10_000)))
    yield Figure.of([left], work=f"{work} keys in Redis", unit="keys", place=bench.place)
