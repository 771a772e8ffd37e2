"""Logs that nobody drains: a process that records what a drain must run looks now and then."""

from __future__ import annotations

import logging
import time
from typing import Final

from . import outage, receivers, store
from .outcome import Outcome

logger = logging.getLogger("django_recheck")

EVERY: Final = 300.0
"""Seconds between two looks of a process, the first one after its first such event."""
WAITING: Final = (Outcome.PENDING, Outcome.REQUEUED, Outcome.FAILED)
"""Outcomes that leave something to a drain."""

_at: float | None = None
"""``time.monotonic()`` from which on the next one that waits looks."""


def look() -> None:
    """Look, if it is time, whether passes are overdue and no drain ended meanwhile.

    Two round trips, once in ``EVERY`` seconds. It is logged once an hour, by whoever sees it first.
    """
    global _at
    now = time.monotonic()
    if _at is not None and now < _at:
        return
    first, _at = _at is None, now + EVERY
    if not first:
        outage.guarded(_tell)


def _tell() -> None:
    current = store.current()
    known = [found[-1] for found in receivers.registry.values()]
    names = [name for receiver in known for name in (receiver.name, *receiver.former_names)]
    from . import survey  # what people look at is no part of a start-up

    found = survey.survey(current, names, others=False)
    overdue = {name: each.overdue for name, each in found.numbers.items() if each.overdue}
    since = None if found.drained is None else found.now - found.drained
    if not overdue or (since is not None and since <= survey.OVERDUE):
        return
    if current.first_in_an_hour("undrained"):
        ago = "never" if since is None else f"{since:.0f} s ago"
        text = "%d items of %s are overdue, and the last drain ended %s: "
        text += "have cron run manage.py recheck_run, or keep recheck_run --watch running"
        logger.warning(text, sum(overdue.values()), ", ".join(sorted(overdue)), ago)


def forget() -> None:
    """Begin as a process that has just started: for tests."""
    global _at
    _at = None
