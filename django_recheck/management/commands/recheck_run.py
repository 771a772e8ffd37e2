"""``manage.py recheck_run``: run what is ripe, then exit. For cron, at least once a minute."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import (
    BaseCommand,
    CommandError,
    CommandParser,
    SystemCheckError,
)
from django.db.transaction import TransactionManagementError
from redis.exceptions import RedisError

from django_recheck import receivers, worker


def positive(text: str) -> int:
    """Return a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, at least 1, not {text!r}")
    return int(text)


class Command(BaseCommand):
    """Drain: retries, requeued and delayed items, and what a dead holder left."""

    help = (
        "Runs every pass that is owed and ripe, then exits. "
        "Exit codes: 0 done, 1 some pass failed, 2 cannot work."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--receiver", metavar="NAME", help="only items of this receiver")
        parser.add_argument("--limit", type=positive, metavar="N", help="run at most N items")
        parser.add_argument("--json", action="store_true", help="print the summary as JSON")

    def check(self, *args: Any, **kwargs: Any) -> None:
        """Run the system checks; what they refuse is no failed pass, it is no work at all."""
        try:
            super().check(*args, **kwargs)
        except SystemCheckError as error:
            error.returncode = 2
            raise

    def handle(
        self,
        *,
        receiver: str | None,
        limit: int | None,
        json: bool,
        verbosity: int,
        **_: Any,
    ) -> None:
        if receiver is not None and receivers.named(receiver) is None:
            known = ", ".join(sorted(receivers.registry)) or "none"
            raise CommandError(
                f"No receiver is called {receiver!r}; known are: {known}.", returncode=2
            )
        with _stopped_by_signal() as stop:
            try:
                tally = worker.drain(
                    None if receiver is None else [receiver],
                    limit=limit,
                    stopping=stop.is_set,
                )
            except RedisError as error:
                raise CommandError(f"Redis doesn't answer: {error}", returncode=2) from error
            except (ImproperlyConfigured, TransactionManagementError) as error:
                raise CommandError(str(error), returncode=2) from error
            except SystemExit as error:  # some receiver's, and no success whatever it says
                raise CommandError(f"A pass ended the process: {error!r}", returncode=1) from error
        self._say(tally, as_json=json, verbosity=verbosity)
        if tally.failed or tally.problems:
            raise SystemExit(1)

    def _say(self, tally: worker.Tally, *, as_json: bool, verbosity: int) -> None:
        if as_json:
            outcomes = {outcome.name.lower(): n for outcome, n in tally.outcomes.items()}
            report = {
                "items": tally.items,
                "passes": tally.passes,
                "failed": tally.failed,
            }
            rest = {"unknown": tally.unknown, "problems": tally.problems}
            self.stdout.write(json.dumps(report | {"outcomes": outcomes, **rest}))
        elif verbosity:
            words = f"{tally.items} items, {tally.passes} passes, {tally.failed} failed"
            unknown = sum(tally.unknown.values())
            self.stdout.write(words + (f", {unknown} of unknown receivers" if unknown else ""))


@contextmanager
def _stopped_by_signal() -> Iterator[threading.Event]:
    """Let the first SIGINT or SIGTERM finish the pass, and the second one end at once."""
    stop = threading.Event()
    before: dict[signal.Signals, Any] = {}

    def handler(number: int, frame: FrameType | None) -> None:
        stop.set()
        _restore(before)

    for number in (signal.SIGINT, signal.SIGTERM):
        if threading.current_thread() is threading.main_thread():
            before[number] = signal.signal(number, handler)
    try:
        yield stop
    finally:
        _restore(before)


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
