"""``manage.py demo``: the main job, three times over, with a table at the end."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django_redis import get_redis_connection
from project import DEMO_DATABASE, embedded
from redis.exceptions import RedisError

from django_recheck import store, views, worker
from shop import contenders, receivers, stock, totals
from shop.models import Order
from shop.workload import Crew, MemberLost

MOST_PROCESSES = 32
USER = "demo"
RECEIVER = "order-total"
TITLES = {
    "lock": "a plain lock that drops",
    "recipe": "the recipe as published",
    "recheck": "@recheck",
}
FOOT = (
    "In each round all processes change a line at the same moment, and wait until all is at rest.\n"
    "stale: orders whose total isn't the sum of their lines then, over all rounds, counted from\n"
    "the database. coalesced: events that got no pass of their own; a lock that drops drops them."
)


def whole(text: str) -> int:
    """Return a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, at least 1, not {text!r}.")
    return int(text)


def some(text: str) -> int:
    """Return a number of processes: each is a real one."""
    if not text.isdecimal() or not 1 <= int(text) <= MOST_PROCESSES:
        raise argparse.ArgumentTypeError(f"must be from 1 to {MOST_PROCESSES}, not {text!r}.")
    return int(text)


@dataclass
class Run:
    """What came of one contender."""

    name: str
    events: int = 0
    passes: int = 0
    coalesced: int = 0
    stale: int = 0
    seconds: float = 0.0


class Command(BaseCommand):
    """Real processes change the lines of a few hot orders at once, and totals are looked at."""

    help = (
        "Several processes save, move and delete lines of the same orders, protected by a plain "
        "lock, by the recipe, and by @recheck. At rest, totals are compared with lines. "
        "Exit codes: 0 nothing was stale with @recheck, 1 something was, or the demo can't run."
    )
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--events", type=whole, default=1200, help="events of each run: 1200")
        parser.add_argument("--processes", type=some, default=4, help="processes at once: 4")
        parser.add_argument("--json", action="store_true", help="print the result as JSON only")
        parser.add_argument("--serve", action="store_true", help="then serve the site, with a user")

    def handle(
        self, *, events: int, processes: int, json: bool, serve: bool, **options: Any
    ) -> None:
        if json and serve:
            raise CommandError("--json prints nothing but JSON, so it can't go with --serve.")
        embedded.ensure()
        before = signal.signal(signal.SIGTERM, _interrupted)
        try:
            with embedded.locked("demo.lock", fcntl.LOCK_EX | fcntl.LOCK_NB):
                stale = self._demonstrate(events, processes, as_json=json, serve=serve)
        except BlockingIOError:
            raise CommandError("Another demo is running: there is one at a time.") from None
        except MemberLost:
            raise CommandError("A process of the demo has ended, or doesn't answer.") from None
        except RedisError as error:
            raise CommandError(f"Redis doesn't answer: {error}") from error
        except KeyboardInterrupt:
            raise CommandError("Stopped.", returncode=130) from None
        finally:
            signal.signal(signal.SIGTERM, before)
        if stale:
            raise SystemExit(1)

    def _demonstrate(self, events: int, processes: int, *, as_json: bool, serve: bool) -> int:
        """Do it all; return how often something was stale with ``@recheck``."""
        get_redis_connection(settings.RECHECK["CACHE"]).ping()
        _own_database()
        try:
            runs = []
            for name in contenders.NAMES:
                with Progress(name, events, quiet=as_json) as advance:
                    runs.append(_run(name, events, processes, advance))
            self._say(runs, as_json=as_json)
            if serve:
                self._serve()
        finally:
            stock.clear()
        return runs[-1].stale

    def _say(self, runs: list[Run], *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps({"runs": [asdict(run) for run in runs]}))
            return
        head = ("", "events", "passes", "coalesced", "stale", "seconds")
        rows = [
            (TITLES[r.name], r.events, r.passes, r.coalesced, r.stale, f"{r.seconds:.1f}")
            for r in runs
        ]
        widths = [max(len(str(row[i])) for row in (head, *rows)) for i in range(len(head))]
        for row in (head, *rows):
            first, *rest = (str(cell) for cell in row)
            cells = [first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]
            self.stdout.write("  ".join(cells))
        self.stdout.write(f"\n{FOOT}")

    def _serve(self) -> None:
        """Serve the site until Ctrl-C, with a user for as long."""
        users, password = get_user_model(), secrets.token_urlsafe(9)
        name = USER if connection.vendor == "sqlite" else f"{USER}-{secrets.token_hex(3)}"
        user = users.objects.create_superuser(name, password=password)
        for order in Order.objects.filter(customer__name=stock.CUSTOMER):
            receivers.refresh_order_total.recheck(key=order.pk)  # statistics were left out
        address = f"127.0.0.1:{_free_port()}"
        self.stdout.write(f"\nhttp://{address}/  user: {name}  password: {password}")
        self.stdout.write("Ctrl-C ends the site, the demo's rows and this user.\n")
        self.stdout.flush()
        try:
            call_command("runserver", address, use_reloader=False, skip_checks=True)
        except SystemExit:
            pass  # Ctrl-C
        finally:
            user.delete()


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _own_database() -> None:
    """Start with a fresh SQLite file; in a database with others, the demo has rows of its own."""
    if connection.vendor == "sqlite":
        path = Path(str(settings.DATABASES["default"]["NAME"]))
        if path.name != DEMO_DATABASE:
            raise CommandError("Run the demo with testproject/manage.py: it recreates a database.")
        connection.close()
        for leftover in path.parent.glob(f"{path.name}*"):
            leftover.unlink()
    call_command("migrate", verbosity=0, interactive=False)


class Progress:
    """A bar on a terminal, and nothing elsewhere or without tqdm."""

    def __init__(self, name: str, events: int, *, quiet: bool) -> None:
        self.bar: Any = None
        if quiet or not sys.stderr.isatty():
            return
        try:
            from tqdm import tqdm
        except ImportError:
            return
        size = shutil.get_terminal_size()  # where it is unknown, tqdm by itself shows nothing
        self.bar = tqdm(
            total=events,
            desc=TITLES[name],
            unit=" events",
            leave=False,
            ncols=size.columns,
            nrows=size.lines,
        )

    def __enter__(self) -> Callable[[Run], None]:
        return self._advance

    def _advance(self, run: Run) -> None:
        if self.bar is not None:
            self.bar.set_postfix(stale=run.stale, refresh=False)
            self.bar.update(run.events - self.bar.n)

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.close()


def _run(name: str, events: int, processes: int, advance: Callable[[Run], None]) -> Run:
    """Let one contender do the job in new processes."""
    orders, products = stock.put()
    url = os.environ["REDIS_URL"]
    contenders.forget(url, orders)
    shares = [(events + number) // processes for number in range(processes)]
    run, crew = Run(name), Crew(name, shares, orders, products)
    drained = 0
    try:
        crew.start()
        began = time.monotonic()
        while True:
            crew.change()
            if name == "recheck":
                drained += _rest()
            run.events, run.passes = crew.events, crew.passes + drained
            run.stale += _stale(orders)
            run.seconds = round(time.monotonic() - began, 2)
            run.coalesced = max(0, run.events - run.passes)
            advance(run)
            if run.events >= events:
                return run
    finally:
        crew.end()
        contenders.forget(url, orders)


def _rest() -> int:
    """Wait until nothing is running and nothing pending; return the passes that this took.

    There is something to do only where a hold was cut short, or a process of an earlier demo was
    killed: its lease has to end first.
    """
    passes, current = 0, store.current()
    until = time.monotonic() + 90
    while True:
        counted = views.counts(current, [RECEIVER])[RECEIVER]
        if not counted.running and not counted.due:
            return passes
        if time.monotonic() > until:
            raise CommandError(f"{RECEIVER} doesn't come to rest: {counted}.")
        passes += worker.drain([RECEIVER]).passes
        time.sleep(0.05)


def _stale(orders: list[int]) -> int:
    """Count stale orders at rest, and set them right for the next round."""
    stale = totals.stale_orders(orders)
    for order in stale:
        totals.rebuild_order_total(order)
    return len(stale)


def _free_port() -> int:
    """Return Django's usual port, or another one if it is taken."""
    for port in (8000, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise CommandError("No port is free on 127.0.0.1.")
