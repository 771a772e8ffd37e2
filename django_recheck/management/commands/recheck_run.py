"""``manage.py recheck_run``: run what is ripe, then exit, from cron; or go on, with ``--watch``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management.base import (
    BaseCommand,
    CommandError,
    CommandParser,
    SystemCheckError,
)
from django.db.models import Model, QuerySet

from django_recheck import receivers, screen, store, survey, worker
from django_recheck.management import dead, every_row, one_item, progress, reloading
from django_recheck.management.stopping import Stop, stopped_by_signal
from django_recheck.management.working import unknown, working
from django_recheck.receivers import Receiver
from django_recheck.records import Item
from django_recheck.runner import Ended
from django_recheck.watch import Watch

ONCE = "is done once: leave out --watch"
CLASHES = {
    ("model", "watch"): "--model {}, and let the watch that runs anyway do the passes.",
    ("retry_dead", "watch"): "--retry-dead {}, and let the watch that runs anyway do the passes.",
    ("key", "watch"): "--key names one item, which {}.",
    ("key", "model"): "--key names one item and --model every row: leave one of them out.",
    ("key", "limit"): "--key names one item: leave out --limit.",
    ("key", "threads"): "--key names one item: leave out --threads.",
}
"""Options that make no sense together, and what is said."""
NEEDS = {
    "key": ("receiver", "--key needs --receiver NAME: whose key is it?"),
    "reload": ("watch", "--reload needs --watch: a drain that ends needs no new code."),
    "health_file": ("watch", "--health-file needs --watch: a drain that ends has an exit code."),
}
"""Options that need another one, and what is said."""


def positive(text: str) -> int:
    """Return a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, at least 1, not {text!r}")
    return int(text)


def model_named(text: str) -> type[Model]:
    """Return the model of that label."""
    try:
        return apps.get_model(text)
    except (LookupError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"must be a model such as shop.Order: {error}") from None


class Command(BaseCommand):
    """Drain: retries, requeued and delayed items, and what a dead holder left."""

    help = (
        "Runs every pass that is owed and ripe, then exits; with --watch it goes on. "
        "Exit codes: 0 done, 1 some pass failed, 2 cannot work; a watch that is stopped has done "
        "its work. "
        "The first SIGINT (Ctrl-C) or SIGTERM lets the running passes end, and leaves the rest to "
        "the next drain. "
        "A second one ends the process at once, which a shell sees as 130 or 143. "
        "-v 0 tells errors only, 1 a summary, 2 each item, 3 each look and pass."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--watch", action="store_true", help="go on, and run what becomes ripe, until stopped")
        add("--threads", type=positive, metavar="N", help="run N passes side by side")
        add("--limit", type=positive, metavar="N", help="run at most N items, then exit")
        add("--receiver", metavar="NAME", help="only items of this receiver")
        add("--key", metavar="KEY", help="only this item of it: 42, or JSON")
        add("--retry-dead", action="store_true", help="first let dead items be tried again")
        add("--model", type=model_named, metavar="app.Model", help="first ask for each of its rows")
        add("--json", action="store_true", help="print the summary as JSON")
        add("--health-file", type=Path, metavar="PATH", help="touch it at each look of the watch")
        add("--reload", action="store_true", help="begin anew when the code changes: to develop")

    def check(self, *args: Any, **kwargs: Any) -> None:
        """Run the system checks; what they refuse is no failed pass, it is no work at all."""
        try:
            super().check(*args, **kwargs)
        except SystemCheckError as error:
            error.returncode = 2
            raise

    def handle(self, *, reload: bool, verbosity: int, **options: Any) -> None:
        if isinstance(options["model"], str):  # call_command() doesn't convert its keywords
            try:
                options["model"] = model_named(options["model"])
            except argparse.ArgumentTypeError as error:
                raise CommandError(f"--model: {error}", returncode=2) from None
        self._refuse({**options, "reload": reload})
        self.verbosity = verbosity
        with progress.logged(verbosity, self.stderr):
            if reload:
                self._reload(options)
                return
            with stopped_by_signal() as stop:
                self._do(stop, **options)

    def _refuse(self, options: dict[str, Any]) -> None:
        """Refuse what makes no sense together, and what can't be used."""
        for name, (other, said) in NEEDS.items():
            if options[name] and not options[other]:
                raise CommandError(said, returncode=2)
        for names, said in CLASHES.items():
            if all(options[name] for name in names):
                raise CommandError(said.format(ONCE), returncode=2)
        path, receiver = options["health_file"], options["receiver"]
        if receiver is not None and receivers.named(receiver) is None:
            raise unknown(receiver)
        try:
            if path is not None:
                Path(path).touch()
        except OSError as error:
            raise CommandError(f"--health-file can't be written: {error}", returncode=2) from None

    def _reload(self, options: dict[str, Any]) -> None:
        stop = Stop()

        def watch() -> None:
            try:
                self._do(stop, **options)
            except CommandError as error:
                self._warn(f"{error}\nChange the code, and it is tried again.")

        reloading.run(watch, stop.ask, self._warn)

    def _warn(self, text: str) -> None:
        self.stderr.write(self.style.ERROR(text))

    def _do(
        self,
        stop: Stop,
        *,
        watch: bool,
        threads: int | None,
        limit: int | None,
        receiver: str | None,
        key: str | None,
        retry_dead: bool,
        model: type[Model] | None,
        json: bool,
        health_file: Path | None,
        **_: Any,
    ) -> None:
        followers = every_row.followers(model, receiver) if model else []
        names = [receiver] if receiver else [each.name for each in followers] or None
        known = worker.known_names(names)
        report: dict[str, Any] = {"recorded": 0, "retried": 0}
        try:
            with working():
                items = one_item.meant(known, key) if key is not None else None
                if retry_dead:
                    report["retried"] = dead.retry(known, items)
                if model is not None:
                    rows = every_row.rows_of(model)
                    report["recorded"] = sum(self._record(each, rows, stop) for each in followers)
                with self._bar("run", partial(_pending, known), shown=not watch) as advance:
                    told: dict[str, Any] = {"progress": partial(self._ran, advance, to_error=json)}
                    told |= {"limit": limit, "stopping": stop}
                    drain = _drain(names, items, health_file, watch=watch, **told)
                    stop.then.append(drain.stop)
                    drain.run(threads or 1)
                idle = one_item.state(items) if items and not drain.tally.items else ""
        except SystemExit as error:  # some receiver's, and no success whatever it says
            raise CommandError(f"A pass ended the process: {error!r}", returncode=1) from error
        self._say(drain.tally, report, idle, as_json=json)
        if (drain.tally.failed or drain.tally.problems) and not watch:
            raise SystemExit(1)

    def _record(self, receiver: Receiver[..., Any], rows: QuerySet[Model], stop: Stop) -> int:
        with self._bar(f"ask {receiver.name}", rows.count) as advance:
            return every_row.record(receiver, rows, stop, advance)

    def _bar(
        self, title: str, total: Callable[[], int], *, shown: bool = True
    ) -> AbstractContextManager[Callable[[], Any]]:
        shown = shown and self.verbosity == 1 and self.stderr.isatty()
        return progress.bar(title, total, shown=shown)

    def _ran(self, advance: Callable[[], Any], item: Item, ended: Ended, *, to_error: bool) -> None:
        advance()
        if self.verbosity >= 2:
            named = screen.plain(f"{item.receiver} {item.text}")
            stream = self.stderr if to_error else self.stdout
            stream.write(f"{named}: {ended.outcome.value}, {ended.passes} passes")
            stream.flush()

    def _say(self, tally: worker.Tally, first: dict[str, int], idle: str, *, as_json: bool) -> None:
        if as_json:
            outcomes = {outcome.name.lower(): n for outcome, n in tally.outcomes.items()}
            report = {"items": tally.items, "passes": tally.passes, "failed": tally.failed}
            rest = {"unknown": tally.unknown, "problems": tally.problems}
            self.stdout.write(json.dumps(first | report | {"outcomes": outcomes, **rest}))
        elif self.verbosity:
            words = [f"{number} {what}" for what, number in first.items() if number]
            words += [f"{tally.items} items", f"{tally.passes} passes", f"{tally.failed} failed"]
            unknown = [worker.left_alone(*waiting) for waiting in tally.unknown.items()]
            self.stdout.write("\n".join((", ".join(words), *filter(None, [idle]), *unknown)))


def _pending(names: Sequence[str]) -> int:
    """Return how many items are owed a pass now."""
    found = survey.survey(store.current(), names, others=False)
    return sum(each.pending for each in found.numbers.values())


def _drain(
    names: list[str] | None,
    items: Sequence[Item] | None,
    health_file: Path | None,
    *,
    watch: bool,
    **options: Any,
) -> worker.Drain:
    """Return what does the work."""
    if items is not None:
        return one_item.OneItem(items, **options)
    if not watch:
        return worker.Drain(names, **options)

    def looked() -> None:
        if health_file is not None:
            with suppress(OSError):  # then it grows old, and somebody looks
                Path(health_file).touch()

    return Watch(names, looked=looked, **options)
