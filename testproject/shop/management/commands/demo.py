"""``manage.py demo``: the main job, three times over, with a table at the end."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from project.embedded import VAR
from tqdm import tqdm

from django_recheck import store, views, worker
from shop import totals
from shop.models import Customer, Order, OrderLine, Product
from shop.workload import Crew

HOT_ORDERS = 2
USER, PASSWORD = "demo", "demo"
CONTENDERS = {
    "lock": "plain lock that drops",
    "recipe": "the recipe as published",
    "recheck": "@recheck",
}


def whole(text: str) -> int:
    """Return a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, at least 1, not {text!r}")
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
        "lock, by the recipe, and by @recheck. At rest, totals are compared with lines."
    )
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--events", type=whole, default=1200, help="changes in each run")
        parser.add_argument("--processes", type=whole, default=4, help="processes at once")
        parser.add_argument("--json", action="store_true", help="print the result as JSON only")
        parser.add_argument("--serve", action="store_true", help="then serve the site, with a user")

    def handle(
        self, *, events: int, processes: int, json: bool, serve: bool, **options: Any
    ) -> None:
        if processes > 32:
            raise CommandError("--processes must be at most 32: each is a real process.")
        self._own_database()
        runs = [self._run(name, events, processes, quiet=json) for name in CONTENDERS]
        self._say(runs, as_json=json)
        if serve:
            self._serve()
        if runs[-1].stale:
            raise SystemExit(1)

    def _own_database(self) -> None:
        """Start with a fresh SQLite file, or with no rows of an earlier demo."""
        if connection.vendor == "sqlite":
            connection.close()
            path = VAR / "demo.sqlite3"
            for leftover in path.parent.glob("demo.sqlite3*"):
                leftover.unlink()
            os.environ["SHOP_DATABASE"] = path.name  # the processes read it
            settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = path
        call_command("migrate", verbosity=0, interactive=False)

    def _run(self, name: str, events: int, processes: int, *, quiet: bool) -> Run:
        orders = self._stock()
        run, rounds = Run(name), -(-events // processes)
        crew = Crew(name, processes, rounds)
        began = time.monotonic()
        try:
            crew.start()
            shown = tqdm(
                total=rounds,
                desc=CONTENDERS[name],
                unit="round",
                disable=quiet or not sys.stderr.isatty(),
                leave=False,
            )
            with shown:
                for number in range(rounds):
                    crew.meet()
                    if number == 0:
                        began = time.monotonic()
                    crew.meet()
                    run.stale += self._stale(orders)
                    shown.update()
                    shown.set_postfix(stale=run.stale)
        except threading.BrokenBarrierError:
            raise CommandError(f"A process of the run {name!r} ended early.") from None
        except KeyboardInterrupt:
            raise CommandError("Stopped.", returncode=130) from None
        finally:
            crew.end()
        run.events, run.passes = crew.events, crew.passes
        run.coalesced = max(0, run.events - run.passes)
        run.seconds = round(time.monotonic() - began, 2)
        return run

    def _stock(self) -> list[int]:
        """Put customers, products and hot orders in, without any lines."""
        OrderLine.objects.filter(order__customer__name="demo").delete()
        Order.objects.filter(customer__name="demo").delete()
        customer, _ = Customer.objects.get_or_create(name="demo")
        Product.objects.get_or_create(name="demo", defaults={"price": Decimal("9.90")})
        return [Order.objects.create(customer=customer).pk for _ in range(HOT_ORDERS)]

    def _stale(self, orders: list[int]) -> int:
        """Count stale orders at rest, and set them right for the next round."""
        if views.counts(store.current()):
            worker.drain()
        stale = totals.stale_orders(orders)
        for order in stale:
            totals.rebuild_order_total(order)
        return len(stale)

    def _say(self, runs: list[Run], *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps({"runs": [asdict(run) for run in runs]}))
            return
        head = ("", "events", "passes", "coalesced", "stale at rest", "seconds")
        rows = [
            (CONTENDERS[r.name], r.events, r.passes, r.coalesced, r.stale, f"{r.seconds:.1f}")
            for r in runs
        ]
        widths = [max(len(str(row[i])) for row in (head, *rows)) for i in range(len(head))]
        for row in (head, *rows):
            first, *rest = (str(cell) for cell in row)
            cells = [first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]
            self.stdout.write("  ".join(cells))
        self.stdout.write(
            "\nstale: orders whose total wasn't the sum of their lines, counted after every round "
            "in which\nall processes changed something at the same moment, when all was at rest."
        )

    def _serve(self) -> None:
        from django.contrib.auth import get_user_model

        users = get_user_model()
        if not users.objects.filter(username=USER).exists():
            users.objects.create_superuser(USER, password=PASSWORD)
        self.stdout.write(f"\nhttp://127.0.0.1:8000/ as {USER} with the password {PASSWORD}")
        call_command("runserver", use_reloader=False)
