"""Ten thousand leases of one process, renewed by its thread."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

from .figures import Figure
from .harness import Bench

PLACES: Final = ("P", "S")
LEASES: Final = 10_000
TTL: Final = 30.0
RENEWALS_A_TTL: Final = 3
ROUNDS: Final = 9
THREAD: Final = "django-recheck-leases"


def run(bench: Bench) -> Iterator[Figure]:
    """Hold them all, and renew them as the thread does."""
    from django_recheck import recheck, store
    from django_recheck.lease import Lease, Renewer
    from django_recheck.records import Item

    @recheck(name="kept", key=lambda **_: 1, ttl=600)
    def kept(sender: Any, **kwargs: Any) -> None: ...

    number, leases = bench.scaled(LEASES), []
    for key in range(number):
        grant = store.current().request(Item(kept.name, str(key)), b"", 1, kept.options)
        assert not isinstance(grant, str)
        leases.append(Lease(grant, 600, 3600))
    renewer, cpu, trips, server = Renewer(), [], [], []
    for _ in bench.turns(ROUNDS):
        bench.client.config_resetstat()
        began, worked = time.perf_counter(), time.process_time()
        renewer.renew(leases)
        cpu.append(time.process_time() - worked)
        trips.append(time.perf_counter() - began)
        said = bench.client.info("commandstats")["cmdstat_evalsha"]
        server.append((said["usec"], said["usec"] / said["calls"]))
    assert all(lease.grant.deadline for lease in leases), os.getpid()
    with ExitStack() as held:
        for lease in leases:
            held.enter_context(renewer.keep(lease))
        threads = sum(thread.name == THREAD for thread in threading.enumerate())
    place, work = bench.place, f"{number:,} leases renewed"
    shares = [100 * RENEWALS_A_TTL * seconds / TTL for seconds in cpu]
    yield Figure.of(shares, work=f"{work}, of a core at TTL {TTL:g}", unit="%", place=place, most=1)
    yield Figure.of([1e3 * s for s in trips], work=f"{work}, all", unit="ms", place=place)
    each = [spent / number for spent, _ in server]
    yield Figure.of(each, work=f"{work}, server", unit="µs each", place=place, most=4)
    longest = [call / 1e3 for _, call in server]
    yield Figure.of(longest, work=f"{work}, one script", unit="ms", place=place, most=1)
    yield Figure.of([threads], work=f"{number:,} leases", unit="thread", place=place, most=1)
