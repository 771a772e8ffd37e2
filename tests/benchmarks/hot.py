"""Eight processes with events of one key: how many a second, and what is stale at rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import redis

from .figures import Figure
from .harness import Bench, fork
from .recipe import Recipe

PLACES: Final = ("P",)
PROCESSES: Final = 8
EVENTS: Final = 200
"""Of each process, in one round."""
ROUNDS: Final = 9


def run(bench: Bench) -> Iterator[Figure]:
    """Compare with the recipe. An event is a change and the word of it, a pass copies it."""
    from django_recheck import recheck, store, views, worker

    client = redis.Redis.from_url(bench.server.url)

    def copy() -> None:
        client.set("copy", client.get("change") or 0)

    @recheck(name="hot", key=lambda **_: 1)
    def hot(sender: Any, **kwargs: Any) -> None:
        copy()

    recipe = Recipe(client)

    def settle() -> None:
        while any(c.due or c.running for c in views.counts(store.current()).values()):
            worker.drain()

    def seconds_each(ask: Callable[[], Any]) -> float:
        number, ready = bench.scaled(EVENTS), fork.Barrier(PROCESSES + 1)

        def storm() -> None:
            client.ping()
            ready.wait()
            for _ in range(number):
                client.incr("change")
                ask()

        processes = [fork.Process(target=storm) for _ in range(PROCESSES)]
        for process in processes:
            process.start()
        ready.wait()
        began = time.perf_counter()
        for process in processes:
            process.join()
        return (time.perf_counter() - began) / (number * PROCESSES)

    def is_stale() -> bool:
        return client.get("change") != client.get("copy")

    ours, theirs, stale = [], [], [0, 0]
    for _ in bench.turns(ROUNDS):
        ours.append(seconds_each(lambda: hot.recheck(key=1)))
        settle()
        stale[0] += is_stale()
        theirs.append(seconds_each(lambda: recipe.run("1", copy)))
        stale[1] += is_stale()
    rounds, speeds = len(ours), [b / a for a, b in zip(ours, theirs, strict=True)]
    place, against = bench.place, "the recipe on redis-py"
    work = f"events a second on one key, {PROCESSES} processes"
    yield Figure.of(speeds, work=work, against=against, place=place, least=1)
    yield Figure.of([1 / seconds for seconds in ours], work=f"{work}: ours", unit="/s", place=place)
    for who, most, found in (("ours", 0, stale[0]), ("the recipe", None, stale[1])):
        detail = f"{found} of {rounds}"
        share = [100 * found / rounds]
        work = f"rounds on one key that rest stale: {who}"
        yield Figure.of(share, work=work, unit="%", place=place, most=most, detail=detail)
