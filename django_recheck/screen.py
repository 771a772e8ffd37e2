"""The board as text: what ``recheck_status`` prints, 80 columns wide.

Nothing that stands in Redis reaches the terminal as it is: control characters are written out.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from django.utils import timezone

from .board import Row, events_in, places
from .exceptions import RecordError
from .outbox.shown import Found
from .remarks import remarks, span, unanswered
from .survey import Numbers, Survey

WIDTH: Final = 80
Column = tuple[str, int]
"""Its title, and how many columns it takes; a negative number aligns it to the right."""
RECEIVERS: Final[Sequence[Column]] = (
    *(("receiver", 33), ("running", -7), ("pending", -7), ("later", -6), ("dead", -6)),
    *(("overdue", -7), ("oldest", -7)),
)
HELD: Final[Sequence[Column]] = (
    *(("held", 16), ("key", 13), ("by", 21), ("for", -7), ("lease", -6), ("pass", -4)),
    ("more", -5),
)
OWED: Final[Sequence[Column]] = (
    *(("owed", 16), ("key", 13), ("", 11), ("due", -10), ("tries", -5), ("last error", 20)),
)
DEAD: Final[Sequence[Column]] = (
    *(("dead", 16), ("key", 13), ("since", -10), ("tries", -5), ("last error", 32)),
)
MINUTES: Final[Sequence[Column]] = (("last hour", 9), ("", 60), ("in all", -9))
BARS: Final = " ▁▂▃▄▅▆▇█"
OUTBOX: Final[Sequence[Column]] = (("outbox", 33), ("rows", -7), ("oldest", -7))


def plain(text: str) -> str:
    """Return a text with everything written out that a terminal might take for an order."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def columns(text: str) -> int:
    """Return how many columns a terminal needs for a text."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(bool(unicodedata.combining(c)) for c in text)


def fitted(text: str, width: int) -> str:
    """Return a text in so many columns, cut if need be; a negative width aligns it to the right."""
    room, kept = abs(width), plain(text[: WIDTH + 1])
    if columns(kept) > room:
        while columns(kept) > room - 1:
            kept = kept[:-1]
        kept += "…"
    blank = " " * (room - columns(kept))
    return blank + kept if width < 0 else kept + blank


def clock(seconds: float | None) -> str:
    """Return a moment in the time zone of the settings."""
    if seconds is None:
        return "-"
    moment = datetime.fromtimestamp(seconds, timezone.get_current_timezone())
    return moment.strftime("%Y-%m-%d %H:%M:%S %Z")


def overview(
    found: Survey, held: list[Row], owed: list[Row], dead: list[Row], outbox: Found[str]
) -> Iterator[str]:
    """Yield the lines of the screen, all receivers first."""
    drained = "never drained"
    if found.drained is not None:
        drained = f"last drain {span(max(0.0, found.now - found.drained))} ago"
    said = clock(found.now)
    yield said + drained.rjust(WIDTH - len(said))
    counted = {name: each for name, each in sorted(found.numbers.items()) if each != Numbers()}
    if not counted and not outbox.waiting:
        yield from ("", "Nothing is held, owed or dead.")
    numbers = [_numbers(name, each, found.now) for name, each in counted.items()]
    yield from _table(RECEIVERS, numbers)
    total = sum(each.running for each in counted.values())
    yield from _table(HELD, [_held(row) for row in held], total)
    total = sum(each.pending + each.later for each in counted.values())
    yield from _table(OWED, [_owed(row) for row in owed], total)
    total = sum(each.dead for each in counted.values())
    yield from _table(DEAD, [_dead(row) for row in dead], total)
    waiting = [(n, each.rows, span(each.age)) for n, each in sorted(outbox.waiting.items())]
    yield from _table(OUTBOX, waiting)
    longest = max((row.held_for for row in held if row.held_for is not None), default=None)
    told = [f"The longest hold is {span(longest)} old."] if longest is not None else []
    yield from _table(MINUTES, _minutes(found.minutes))
    for text in (*told, *remarks(found, outbox)):
        yield from ("", *wrapped(text))


def _table(titles: Sequence[Column], rows: Sequence[Sequence[Any]], total: int = 0) -> list[str]:
    lines = []
    for cells in ([title for title, _ in titles], *rows) if rows else ():
        pairs = zip(cells, titles, strict=True)
        lines.append(" ".join(fitted(str(cell), size) for cell, (_, size) in pairs).rstrip())
    more = [f"… and {total - len(rows)} more"] if rows and total > len(rows) else []
    return ["", *lines, *more] if lines else []


def _numbers(name: str, each: Numbers, now: float) -> Sequence[Any]:
    oldest = span(now - each.oldest) if each.oldest is not None else "-"
    limit = places(name)
    running = each.running if limit is None else f"{each.running}/{limit}"
    shown = f"{fitted(name, 24).rstrip()} (paused)" if each.paused else name
    return (shown, running, each.pending, each.later, each.dead, each.overdue, oldest)


def _held(row: Row) -> Sequence[Any]:
    by = f"{row.host}:{row.pid}" if row.pid is not None else row.view.holder or "-"
    if columns(by) > 21 and row.host is not None:  # the pid is what tells processes apart
        by = f"{row.host[: 19 - len(str(row.pid))]}…:{row.pid}"
    lease = "over" if row.lapsed else span(row.lease_left)
    return (row.receiver, row.key, by, span(row.held_for), lease, row.passes, row.waiting)


def _owed(row: Row) -> Sequence[Any]:
    due = "-"
    if row.due is not None:
        ahead = row.due - row.now
        due = f"in {span(ahead)}" if ahead > 0 else f"{span(-ahead)} ago"
    return (row.receiver, row.key, row.state, due, row.attempts, row.reason)


def _dead(row: Row) -> Sequence[Any]:
    since = f"{span(row.now - row.since)} ago" if row.since is not None else "-"
    return (row.receiver, row.key, since, row.attempts, row.reason)


def _minutes(minutes: Sequence[tuple[int, int]]) -> list[Sequence[Any]]:
    """Return a row of events and one of passes, as bars of one scale; none if all was quiet."""
    most = max((max(pair) for pair in minutes), default=0)
    rows: list[Sequence[Any]] = []
    for name, numbers in zip(("events", "passes"), zip(*minutes, strict=True), strict=False):
        bars = (BARS[-(-n * (len(BARS) - 1) // max(1, most))] for n in numbers)
        rows.append((name, "".join(bars), sum(numbers)))
    return rows if most else []


def wrapped(text: str, indent: str = "") -> list[str]:
    """Return a text of Redis or of ours, in lines that the screen has room for."""
    width = WIDTH if columns(text) <= len(text) else WIDTH // 2  # it counts characters
    return textwrap.wrap(plain(text), width, initial_indent=indent, subsequent_indent=indent)


def explained(row: Row, refused: Mapping[str, Exception], *, paused: bool) -> Iterator[str]:
    """Yield the lines about one item, and why a database couldn't tell of its rows."""
    yield from wrapped(f"{row.receiver} {row.key}"[:2000])
    yield ""
    facts = {"state": row.state, "holder": "", "pass": "", "owed": "", "given up": ""}
    if row.held_for is not None or row.lapsed or row.view.holder is not None:
        by = f"process {row.pid} on {row.host}" if row.pid is not None else row.view.holder or "-"
        lease = "its lease is over" if row.lapsed else f"lease left: {span(row.lease_left)}"
        facts["holder"] = f"{by[:200]}, for {span(row.held_for)}; {lease}"
        facts["pass"] = f"{row.passes}, covers {row.working} events"
    if row.due is not None:
        facts["owed"] = clock(row.due) + (", overdue" if row.overdue else "")
    if row.since is not None and row.state == "dead":
        facts["given up"] = clock(row.since)
    facts |= {"waiting": f"{row.waiting} events", "attempts": str(row.attempts)}
    if row.outbox.rows:
        facts["outbox"] = f"{row.outbox.rows} rows, the oldest {span(row.outbox.age)} old"
    for name, fact in facts.items():
        yield from wrapped(f"{name:9} {fact}", "  ") if fact else ()
    yield from ("", *wrapped(row.waits_for()))
    yield from wrapped("The next event: " + row.next_event(paused=paused))
    for text in unanswered(refused):
        yield from ("", *wrapped(text))
    if record := row.view.record:
        yield from _events("worked on", record.working)
        yield from _events("that wait", record.newer)
    if row.error:
        yield from ("", "Last error:")
        yield from (f"  {plain(line)}" for line in row.error.splitlines())


def _events(title: str, packed: bytes) -> Iterator[str]:
    if not packed:
        return
    yield from ("", f"Events {title}:")
    try:
        found = events_in(packed)
    except RecordError as error:
        yield from wrapped(str(error), "  ")
        return
    for each in found:
        what = each["signal"] or "asked for by hand"
        of = f" of {each['sender']}" if each["sender"] else ""
        marks = (each["action"], *(mark for mark in ("created", "raw") if each[mark]))
        yield from wrapped(" ".join((what + of, *(f"({m})" for m in marks if m))), "  ")
