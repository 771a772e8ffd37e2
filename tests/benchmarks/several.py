"""One, two and four workers: many receivers, some with most of the items, passes that wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from .figures import Figure
from .harness import Bench, fork

PLACES: Final = ("P",)
RECEIVERS: Final = 20
ITEMS: Final = 2000
WAITING: Final = 0.005
"""Seconds of a pass, as for a database or a remote service."""
ROUNDS: Final = 5


def run(bench: Bench) -> Iterator[Figure]:
    """Compare with one worker; look when each receiver's first pass begins."""
    from django_recheck import recheck, worker

    began = fork.Array("d", RECEIVERS, lock=False)
    number = bench.scaled(ITEMS)
    total = sum(1 / (rank + 1) for rank in range(RECEIVERS))
    shares = [max(1, round(number / (rank + 1) / total)) for rank in range(RECEIVERS)]

    def made(rank: int) -> Any:
        def wait(sender: Any, **kwargs: Any) -> None:
            began[rank] = began[rank] or time.monotonic()
            time.sleep(WAITING)

        return recheck(name=f"waiting-{rank}", key=lambda **_: 1)(wait)

    receivers = [made(rank) for rank in range(RECEIVERS)]

    def drained(workers: int) -> tuple[float, float]:
        for rank, receiver in enumerate(receivers):
            receiver.recheck_many(range(shares[rank]))
            began[rank] = 0.0
        processes = [fork.Process(target=worker.drain) for _ in range(workers)]
        start = time.monotonic()
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert all(began), "each receiver had its turn"
        return time.monotonic() - start, max(began) - start

    times: dict[int, list[float]] = {1: [], 2: [], 4: []}
    oldest: list[float] = []
    for _ in bench.turns(ROUNDS):
        for workers, found in times.items():
            taken, waited = drained(workers)
            found.append(taken)
            oldest.append(waited / taken)
    for workers, least in ((2, 1.8), (4, 3.4)):
        faster = [one / some for one, some in zip(times[1], times[workers], strict=True)]
        work = f"{workers} workers, {RECEIVERS} receivers, passes of {WAITING * 1e3:g} ms"
        yield Figure.of(faster, work=work, against="one worker", place=bench.place, least=least)
    work = "oldest wait of any receiver, of the whole"
    yield Figure.of(
        [100 * share for share in oldest], work=work, unit="%", place=bench.place, most=20
    )
