"""``manage.py recheck_status``: what is held, by whom, since when; what waits or failed."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import close_old_connections

from django_recheck import lookup, screen, store, survey, views, worker
from django_recheck.board import Row, State, busy, events_in, places
from django_recheck.exceptions import RecordError
from django_recheck.management.working import unknown, working
from django_recheck.messages import hide
from django_recheck.outbox import shown
from django_recheck.records import Item
from django_recheck.remarks import late

PARTS: Final = (
    views.Part("running", size=20),
    views.Part("due", size=5),
    views.Part("dead", size=10, newest=True),
)
"""What the screen shows: leases that end first, what is longest owed, what died last."""
MOST: Final = tuple(views.Part(part.state, 0, 200, part.newest) for part in PARTS)
"""What ``--json`` says."""
FIELDS: Final = (
    *("receiver", "key", "state", "host", "pid", "held_for", "lease_left", "passes"),
    *("working", "waiting", "attempts", "since", "due", "overdue"),
)
"""What it says of a row, beside the error and the outbox."""


class Command(BaseCommand):
    """The board, for a shell."""

    help = (
        "Shows what is held, owed and dead, on one screen. It changes nothing. "
        "Exit codes: 0 fine, 1 something is overdue or dead, or can't be read, 2 cannot work."
    )
    requires_system_checks = ()  # on a bad night the answer is wanted all the same

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--receiver", metavar="NAME", help="only this receiver")
        parser.add_argument("--key", metavar="KEY", help="explain one item of it: 42, or JSON")
        parser.add_argument("--json", action="store_true", help="print JSON, one line a look")
        parser.add_argument("--watch", action="store_true", help="look every second until Ctrl-C")

    def handle(
        self, *, receiver: str | None, key: str | None, json: bool, watch: bool, **_: Any
    ) -> None:
        if key is not None and receiver is None:
            raise CommandError("--key needs --receiver NAME: whose key is it?", returncode=2)
        code = 0
        try:
            while True:
                lines, code = self._look(receiver, key, as_json=json, going_on=watch)
                self._write(lines, redraw=watch and not json and self.stdout.isatty())
                if not watch:
                    break
                close_old_connections()  # one that a database has ended is opened anew
                time.sleep(1)
        except KeyboardInterrupt:
            if not watch:
                raise
        if code:
            raise SystemExit(code)

    def _look(
        self, receiver: str | None, key: str | None, *, as_json: bool, going_on: bool
    ) -> tuple[list[str], int]:
        """Return the lines of one look, and its exit code."""
        try:
            with working():
                store.current().look_at_format()
                if receiver is not None and key is not None:
                    return _item(receiver, key, as_json=as_json)
                return _all(receiver, as_json=as_json)
        except CommandError as error:
            error.args = (hide(screen.plain(str(error))),)
            if not going_on:
                raise
            return [json.dumps({"error": str(error)})] if as_json else screen.wrapped(str(error)), 2

    def _write(self, lines: list[str], *, redraw: bool) -> None:
        if redraw:  # home; each line to its end; what is below
            lines = lines[: shutil.get_terminal_size().lines - 1]
            text = "\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J"
        else:
            text = "".join(f"{line}\n" for line in lines)
        encoding = getattr(self.stdout, "encoding", None) or "utf-8"
        self.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding), ending="")
        self.stdout.flush()


def _all(receiver: str | None, *, as_json: bool) -> tuple[list[str], int]:
    current, parts = store.current(), MOST if as_json else PARTS
    names = worker.known_names() if receiver is None else _names(receiver)
    found = survey.survey(current, names, parts, others=receiver is None)
    outbox = shown.receivers(None if receiver is None else names)
    there = (view.item for part in found.parts for view in part) if as_json else ()
    waiting = shown.items(there).waiting
    rows = [[_row(view, found, waiting) for view in part] for part in found.parts]
    held, owed, dead = ([row for row in part if row.state is not State.IDLE] for part in rows)
    numbers = found.numbers.values()
    bad = any(each.overdue or each.dead or each.problem for each in numbers)
    bad = bad or bool(outbox.problems) or bool(late(found, outbox))
    if not as_json:
        return list(screen.overview(found, held, owed, dead, outbox)), int(bad)
    known = set(worker.known_names())
    counted = {}
    for name, each in found.numbers.items():
        counted[name] = {**asdict(each), "known": name in known, "concurrency": places(name)}
        del counted[name]["held"]
    report: dict[str, Any] = {"now": found.now, "last_drain": found.drained, "receivers": counted}
    report["minutes"] = found.minutes
    listed = {"held": held, "owed": owed, "dead": dead}
    report |= {name: [_fields(row) for row in part] for name, part in listed.items()}
    waits = {name: _waiting(each) for name, each in sorted(outbox.waiting.items())}
    report["outbox"] = {"receivers": waits, "problems": _problems(outbox)}
    return [json.dumps(report)], int(bad)


def _item(receiver: str, key: str, *, as_json: bool) -> tuple[list[str], int]:
    current, names = store.current(), _names(receiver)
    wanted = [Item(name, text) for name in names for text in lookup.texts(name, key)]
    found = survey.survey(current, names, items=lambda _: wanted, others=False)
    outbox = shown.items(wanted)
    rows = [_row(view, found, outbox.waiting) for view in found.items]
    there = (r for r in rows if r.state is not State.IDLE or r.view.record or r.outbox.rows)
    row = next(there, rows[0])
    paused = found.numbers[row.receiver].paused
    bad = row.overdue or row.state is State.DEAD or bool(row.view.problem)
    bad = bad or (row.outbox.overdue and not paused) or bool(outbox.problems)
    if not as_json:
        return list(screen.explained(row, outbox.problems, paused=paused)), int(bad)
    said = {"waits_for": row.waits_for(), "next_event": row.next_event(paused=paused)}
    known = {"outbox": _waiting(row.outbox) | {"problems": _problems(outbox)}, **_events(row)}
    return [json.dumps(_fields(row) | said | {"traceback": row.error, **known})], int(bad)


def _names(receiver: str) -> list[str]:
    """Return the names under which a receiver has items; one that isn't here any more has one."""
    if names := worker.known_names([receiver]):
        return names
    if receiver not in (*views.receivers(store.current()), *shown.receivers().waiting):
        raise unknown(receiver)
    return [receiver]


def _row(view: views.View, found: survey.Survey, waiting: Mapping[Item, shown.Waiting]) -> Row:
    numbers, outbox = found.numbers[view.item.receiver], waiting.get(view.item, shown.NONE)
    taken = busy(numbers, view.item)
    return Row.of(view, found.now, paused=numbers.paused, busy=taken, outbox=outbox)


def _fields(row: Row) -> dict[str, Any]:
    named = {name: getattr(row, name) for name in FIELDS}
    return named | {"error": row.reason, "outbox": _waiting(row.outbox)}


def _waiting(outbox: shown.Waiting) -> dict[str, Any]:
    return {"rows": outbox.rows, "age": outbox.age}


def _problems(outbox: shown.Found[Any]) -> dict[str, str]:
    return {alias: hide(str(error)) for alias, error in outbox.problems.items()}


def _events(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for title, name in (("working", "working"), ("waiting", "newer")):
        try:
            found[title] = events_in(getattr(row.view.record, name, b""))
        except RecordError as error:
            found[title] = [{"problem": str(error)}]
    return {"events": found}
