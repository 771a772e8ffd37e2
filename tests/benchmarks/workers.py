"""One process that does what waits, beside the workers of task queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from . import peers
from .figures import Figure
from .harness import Bench

PLACES: Final = ("P",)
TASKS: Final = 2000
ROUNDS: Final = 5


def run(bench: Bench) -> Iterator[Figure]:
    """Let each do the same number of tasks that do nothing."""
    from django.db import connection

    from tests.app.models import Item

    from .peers import on_recheck

    number = bench.scaled(TASKS)
    Item.objects.bulk_create(Item(name="a") for _ in range(number))
    rows, own = list(Item.objects.all()), on_recheck.receivers()
    fill: dict[str, Callable[[], None]] = {
        name: partial(on_recheck.enqueue, own[name], rows) for name in own
    }
    commands = dict.fromkeys(own, on_recheck.COMMAND)
    for name in peers.installed():
        peer = peers.peer(name)
        fill[name], commands[name] = partial(peer.enqueue, number), peer.COMMAND
    times: dict[str, list[float]] = {name: [] for name in fill}
    for _ in bench.turns(ROUNDS):
        for name, enqueue in fill.items():
            bench.empty()
            enqueue()
            times[name].append(peers.seconds_each(commands[name], number, cpu=bench.cpu))
    names = {"plain": "recheck_run", "fresh": f"recheck_run, rows read from {connection.vendor}"}
    for mine, work in names.items():
        rates = [1 / seconds for seconds in times[mine]]
        yield Figure.of(rates, work=work, unit="/s", place=bench.place)
        for other in peers.installed():
            speeds = [b / a for a, b in zip(times[mine], times[other], strict=True)]
            least = 6.0 if mine == "plain" else {"sqlite": 3.0}.get(connection.vendor, 1.5)
            yield Figure.of(speeds, work=work, against=other, place=bench.place, least=least)
