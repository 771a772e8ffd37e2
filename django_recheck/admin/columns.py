"""The columns of the list. Nothing that stands in Redis reaches the page as it is."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from django.contrib import admin
from django.utils import formats, timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..board import State
from ..messages import hide
from ..models import Lock
from ..remarks import span
from ..screen import plain

LONGEST: Final = 80
"""Characters of a key or of an error that a cell shows."""
LABELS: Final = {
    State.RUNNING: gettext_lazy("running"),
    State.FLAGGED: gettext_lazy("running, flagged"),
    State.PENDING: gettext_lazy("pending"),
    State.DELAYED: gettext_lazy("delayed"),
    State.BACKING_OFF: gettext_lazy("backing off"),
    State.PAUSED: gettext_lazy("paused"),
    State.DEAD: gettext_lazy("dead"),
    State.IDLE: gettext_lazy("idle"),
}


def when(seconds: float | None, text: str = "") -> SafeString | str:
    """Return a time of Redis in the reader's time zone, or a text that has it as its title."""
    if seconds is None:
        return text or "-"
    moment = datetime.fromtimestamp(seconds, timezone.get_current_timezone())
    shown = formats.date_format(moment, "DATETIME_FORMAT")
    title = format_html(' title="{}"', shown) if text else ""
    return format_html(
        '<time datetime="{}"{}>{}</time>',
        moment.isoformat(timespec="seconds"),
        title,
        text or shown,
    )


def short(text: str) -> SafeString:
    """Return a text in one cell, the whole of it as its title if it is cut."""
    text = plain(text[:1000])
    cut = Truncator(text).chars(LONGEST)
    title = format_html(' title="{}"', text) if cut != text else ""
    return format_html("<bdi{}>{}</bdi>", title, cut)


@admin.display(description=gettext_lazy("state"))
def state(lock: Lock) -> SafeString:
    """A badge: its text says all."""
    row = lock.row
    kind = row.state.name.lower().replace("_", "-")
    badge = format_html('<span class="recheck-badge recheck-{}">{}</span>', kind, LABELS[row.state])
    marks = [_("overdue")] if row.overdue else []
    marks += [_("lease over")] if row.lapsed else []
    marks += [_("problem")] if row.view.problem else []
    for text in marks:
        badge += format_html(' <span class="recheck-badge recheck-alarm">{}</span>', text)
    return badge


@admin.display(description=gettext_lazy("receiver"))
def receiver(lock: Lock) -> SafeString:
    """Whose lock it is."""
    return short(lock.receiver)


@admin.display(description=gettext_lazy("key"))
def key(lock: Lock) -> SafeString:
    """The key, as JSON."""
    return short(lock.key)


@admin.display(description=gettext_lazy("holder"), empty_value="-")
def holder(lock: Lock) -> Any:
    """Where it runs, and for how long."""
    row = lock.row
    if row.held_for is None and row.view.holder is None:
        return None
    by = f"{row.host}:{row.pid}" if row.pid is not None else row.view.holder or "-"
    if row.held_for is None:
        return short(by)
    held = when(row.since, _("for %(span)s") % {"span": span(row.held_for)})
    return format_html("{} {}", short(by), held)


@admin.display(description=gettext_lazy("lease left"), ordering="moment", empty_value="-")
def lease(lock: Lock) -> Any:
    """How long its lock still lasts."""
    if lock.row.lapsed:
        return _("over")
    return None if lock.row.lease_left is None else span(lock.row.lease_left)


@admin.display(description=gettext_lazy("pass"))
def passes(lock: Lock) -> Any:
    """The number of the pass that runs."""
    return lock.row.passes


@admin.display(description=gettext_lazy("events waiting"))
def waiting(lock: Lock) -> Any:
    """Events that no pass has begun to cover."""
    return lock.row.waiting


@admin.display(description=gettext_lazy("attempts"))
def attempts(lock: Lock) -> Any:
    """Failures, takeovers and heals since the last success."""
    return lock.row.attempts


@admin.display(description=gettext_lazy("due"), empty_value="-")
def due(lock: Lock) -> Any:
    """When a pass is owed."""
    row = lock.row
    if row.due is None:
        return None
    ahead = row.due - row.now
    text = _("in %(span)s") if ahead > 0 else _("%(span)s ago")
    return when(row.due, text % {"span": span(abs(ahead))})


@admin.display(description=gettext_lazy("given up"), ordering="moment", empty_value="-")
def given_up(lock: Lock) -> Any:
    """When it died."""
    row = lock.row
    if row.state is not State.DEAD or row.since is None:
        return None
    return when(row.since, _("%(span)s ago") % {"span": span(max(0.0, row.now - row.since))})


@admin.display(description=gettext_lazy("last error"), empty_value="-")
def error(lock: Lock) -> Any:
    """The line that says what went wrong."""
    reason = hide(lock.row.reason)
    return short(reason) if reason else None


HELD: Final = (state, receiver, key, holder, lease, passes, waiting, attempts, error)
OWED: Final = (state, receiver, key, due, waiting, attempts, error)
DEAD: Final = (state, receiver, key, given_up, waiting, attempts, error)
FOUND: Final = (state, receiver, key, holder, lease, passes, waiting, attempts, due, error)
BY_STATE: Final = {"running": HELD, "pending": OWED, "later": OWED, "dead": DEAD}
