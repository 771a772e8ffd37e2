"""Sentences about all that is known: what somebody should look at, on a screen or on a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from django.utils.translation import gettext as _

from . import worker
from .board import places
from .messages import hide
from .outbox.shown import NONE, Found
from .survey import OVERDUE, Survey


def span(seconds: float | None) -> str:
    """Return a span of time as people say it."""
    if seconds is None:
        return "-"
    units = (86400, _("%(number)s d")), (3600, _("%(number)s h")), (60, _("%(number)s min"))
    for size, text in units:
        if seconds >= 2 * size:
            return text % {"number": f"{seconds / size:.0f}"}
    return _("%(number)s s") % {"number": f"{seconds:.0f}"}


def remarks(found: Survey, outbox: Found[str]) -> Iterator[str]:
    """Yield what is wrong, or waits for somebody."""
    limit = span(OVERDUE)
    if overdue := sum(each.overdue for each in found.numbers.values()):
        said = _("%(number)s overdue, for more than %(span)s: does recheck_run run?")
        yield said % {"number": overdue, "span": limit}
    if names := ", ".join(late(found, outbox)):
        said = _("Outbox rows older than %(span)s, of %(names)s: does recheck_run run?")
        yield said % {"span": limit, "names": names}
    for name, each in found.numbers.items():
        running, most = each.running - each.lapsed, places(name)
        if each.pending and most is not None and running >= most:
            said = _(
                "%(name)s: %(number)s wait while %(running)s run, as many as CONCURRENCY lets."
            )
            yield said % {"name": name, "number": each.pending, "running": running}
    known = set(worker.known_names())
    waiting = {n: each.running + each.pending + each.later for n, each in found.numbers.items()}
    for name in sorted({*waiting, *outbox.waiting} - known):
        rows = outbox.waiting.get(name, NONE).rows
        if number := max(waiting.get(name, 0), rows):
            yield worker.left_alone(name, number)
    yield from (f"{name}: {each.problem}" for name, each in found.numbers.items() if each.problem)
    yield from unanswered(outbox.problems)


def late(found: Survey, outbox: Found[str]) -> list[str]:
    """Return the receivers whose rows wait for too long, but not for a person who paused them."""
    paused = {name for name, each in found.numbers.items() if each.paused}
    return sorted({n for n, each in outbox.waiting.items() if each.overdue} - paused)


def unanswered(refused: Mapping[str, Exception]) -> Iterator[str]:
    """Yield which outboxes couldn't be looked at, by the databases' aliases, and why."""
    said = _("The outbox of %(alias)s couldn't be looked at: %(error)s")
    for alias, error in refused.items():
        yield said % {"alias": repr(alias), "error": hide(str(error))}
