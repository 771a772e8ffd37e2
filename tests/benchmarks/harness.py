"""What a benchmark works with: a server of its own, paired rounds, one process for each place.

A benchmark is a module beside this one with a function ``run(bench)`` that yields figures, and
``PLACES``, where it runs. Each place gets a process of its own, forked after Django's set-up, and a
server that is empty.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from tests.servers import Server, running
from tests.storm.test_storm import database

from . import places
from .figures import Figure, spoken

SETTINGS: Final = "tests.outbox.settings"
LEAST: Final = 3
"""Rounds of any comparison, however long they last."""
fork = get_context("fork")


class Bench:
    """One benchmark's surroundings.

    Args:
        server: The server, for itself alone.
        place: Where it runs.
        rounds: How many paired rounds.
        scale: What numbers of items are multiplied with: far below 1 only tries whether it works.
        seconds: After which a comparison ends that has three rounds.
        cpu: Count the time of the processor in client and server, not the clock's, where ways are
            compared one after the other: on a machine that others use, too.
    """

    def __init__(
        self,
        server: Server,
        place: str,
        *,
        rounds: int,
        scale: float,
        seconds: float = math.inf,
        cpu: bool = False,
    ) -> None:
        self.server = server
        self.place = place
        self.rounds = rounds
        self.scale = scale
        self.seconds = seconds
        self.cpu = cpu
        self.client = server.client
        self.counted = [self.client]
        """Clients of the servers whose time of the processor counts."""
        self.clock = self._spent if cpu else time.perf_counter

    def _spent(self) -> float:
        """Return the seconds that this process and the servers' main threads have computed."""
        spent = time.process_time()
        for client in self.counted:
            found = client.info("cpu")
            spent += sum(float(found[f"used_cpu_{kind}_main_thread"]) for kind in ("user", "sys"))
        return spent

    def empty(self) -> None:
        """Empty the server; it is done when this returns."""
        self.client.flushall()

    def scaled(self, number: int) -> int:
        """Return a number of items or calls as large as was asked for."""
        return max(2, round(number * self.scale))

    def turns(self, most: int | None = None) -> Iterator[int]:
        """Count the rounds of a comparison, until it has lasted long enough.

        Args:
            most: How many at most, other than those that were asked for.
        """
        until = time.monotonic() + self.seconds
        for number in range(min(most or self.rounds, self.rounds)):
            if number < LEAST or time.monotonic() < until:
                yield number

    def paired(
        self,
        *ways: Callable[[], Any],
        times: int,
        before: Callable[[], Any] | None = None,
    ) -> list[list[float]]:
        """Time several ways of doing something, one after the other in every round.

        Args:
            ways: Each does it once; the order changes from round to round.
            times: Calls of each in one round.
            before: Called before each way's calls, and not timed.

        Returns:
            For each way the seconds of one call, round by round.
        """
        for way in ways:  # connections, scripts, caches
            if before:
                before()
            way()
        found: list[list[float]] = [[] for _ in ways]
        times = self.scaled(times) if times > 1 else 1
        for number in self.turns():
            order = list(enumerate(ways))
            for index, way in order if number % 2 else reversed(order):
                if before:
                    before()
                began = self.clock()
                for _ in range(times):
                    way()
                found[index].append((self.clock() - began) / times)
        return found

    def ratio(self, ours: Sequence[float], theirs: Sequence[float], **others: Any) -> Figure:
        """Make the figure of two ways that were timed in pairs."""
        ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
        detail = f"{spoken(median(ours))} / {spoken(median(theirs))}"
        return Figure.of(ratios, **{"place": self.place, "detail": detail, **others})


def median(samples: Sequence[float]) -> float:
    """Return the median."""
    return Figure.of(samples, work="").median


def measure(name: str, *, everywhere: bool = True, **how: Any) -> Iterator[Figure]:
    """Run one benchmark in all its places, or only in the first.

    Args:
        name: Its module.
        everywhere: Whether in all places.
        **how: As for ``Bench``.
    """
    module = import_module(f"tests.benchmarks.{name}")
    possible = places.possible(module.PLACES)
    for place in possible if everywhere else possible[:1]:
        with ProcessPoolExecutor(1, mp_context=fork) as apart:
            yield from apart.submit(_run, name, place, how).result()


def _run(name: str, place: str, how: dict[str, Any]) -> list[Figure]:
    from django.conf import settings

    with running(lazyfree_lazy_user_flush="no") as server:
        assert server.process
        os.environ["RECHECK_TEST_REDIS_URL"] = server.url  # for processes that are started
        settings.CACHES["recheck"]["LOCATION"] = server.url
        with places.at(place, server.process.pid):
            return list(import_module(f"tests.benchmarks.{name}").run(Bench(server, place, **how)))


@contextmanager
def surroundings(kind: str) -> Iterator[None]:
    """Have a database with tables, and Django set up; no connection is open.

    Args:
        kind: ``sqlite`` or ``postgres``.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recheck-bench-")))
        os.environ |= stack.enter_context(database(kind, folder))
        os.environ["DJANGO_SETTINGS_MODULE"] = SETTINGS
        import django
        from django.core.management import call_command
        from django.db import connections

        django.setup()
        call_command("migrate", run_syncdb=True, verbosity=0)
        connections.close_all()
        yield
