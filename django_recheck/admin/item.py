"""One item's page: all that its record says, as fields that are only read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.core.exceptions import ValidationError
from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .. import travel
from ..board import State
from ..events import Events, Group, group_names
from ..exceptions import RecordError
from ..keys import database_of
from ..messages import hide
from ..models import Lock
from ..records import Record
from ..remarks import span, unanswered
from ..screen import plain
from . import columns
from .columns import when

LONGEST: Final = 20_000
"""Characters of a text that the page shows."""
BREAK: Final = SafeString("<br>")
UNREADABLE: Final = (
    *(ValueError, TypeError, LookupError, AttributeError),
    *(RecursionError, ArithmeticError, ValidationError),
)
"""What reading a record's events may raise, whoever wrote it."""


def _record(lock: Lock) -> Record | None:
    return lock.row.view.record


def _moment(milliseconds: int) -> Any:
    return when(milliseconds / 1000) if milliseconds else None


@admin.display(description=gettext_lazy("key"))
def whole_key(lock: Lock) -> SafeString:
    """The key, as JSON, and where they matter the database and the context."""
    return format_html("<bdi>{}</bdi>", plain(lock.row.key[:LONGEST]))


@admin.display(description=gettext_lazy("now"))
def now(lock: Lock) -> SafeString:
    """Where it stands."""
    said = [lock.row.waits_for(), *unanswered(lock.refused)]
    return format_html_join(" ", "{}", ((plain(text),) for text in said))


@admin.display(description=gettext_lazy("next event"))
def next_event(lock: Lock) -> str:
    """What the next event would do."""
    return lock.row.next_event(paused=lock.paused)


@admin.display(description=gettext_lazy("paused"))
def paused(lock: Lock) -> str | None:
    """Whether a person lets its receiver wait."""
    return _("The receiver is paused: its events are recorded, and wait.") if lock.paused else None


@admin.display(description=gettext_lazy("pass"))
def passes(lock: Lock) -> int | None:
    """The number of the pass that runs."""
    return lock.row.passes or None


@admin.display(description=gettext_lazy("events of this pass"))
def working(lock: Lock) -> int | None:
    """How many events the pass covers that runs."""
    return lock.row.working or None


@admin.display(description=gettext_lazy("owner token"))
def token(lock: Lock) -> Any:
    """What stands in the lock, or in the record."""
    record = _record(lock)
    found = lock.row.view.holder or (record.token if record and record.token != "-" else "")
    return columns.short(found) if found else None


@admin.display(description=gettext_lazy("fence"))
def fence(lock: Lock) -> str | None:
    """The number of the last acquisition."""
    record = _record(lock)
    return record.fence if record and record.fence != "0" else None


@admin.display(description=gettext_lazy("first event that waits"))
def first(lock: Lock) -> Any:
    """When the first of them came."""
    record = _record(lock)
    return _moment(record.first) if record else None


@admin.display(description=gettext_lazy("last event that waits"))
def last(lock: Lock) -> Any:
    """When the last of them came."""
    record = _record(lock)
    return _moment(record.last) if record else None


@admin.display(description=gettext_lazy("outbox rows"))
def outbox(lock: Lock) -> str | None:
    """The rows that no pass has covered."""
    waiting = lock.row.outbox
    if not waiting.rows:
        return None
    return _("%(rows)s, the oldest %(span)s old") % {
        "rows": waiting.rows,
        "span": span(waiting.age),
    }


@admin.display(description=gettext_lazy("events worked on"))
def events_worked_on(lock: Lock) -> Any:
    """What the pass that runs covers."""
    record = _record(lock)
    return _told(record.working) if record and record.working else None


@admin.display(description=gettext_lazy("events that wait"))
def events_waiting(lock: Lock) -> Any:
    """What no pass has begun to cover."""
    record = _record(lock)
    return _told(record.newer) if record and record.newer else None


@admin.display(description=gettext_lazy("traceback"))
def traceback(lock: Lock) -> SafeString | None:
    """What the last failed pass raised."""
    if not lock.row.error:
        return None
    lines = lock.row.error[:LONGEST].splitlines()
    return format_html('<pre class="recheck-traceback">{}</pre>', "\n".join(map(plain, lines)))


def _told(packed: bytes) -> SafeString | str:
    try:
        lines = [_line(group) for group in Events.parse(0, packed).groups]
    except (RecordError, *UNREADABLE) as error:
        return plain(_("They can't be read: %(error)s") % {"error": hide(str(error))[:500]})
    return format_html_join(BREAK, "<bdi>{}</bdi>", ((line,) for line in lines))


def _line(group: Group) -> str:
    """Return what a group is. What it carries isn't shown: it may be for other eyes."""
    signal, action, sender = map(str, *group_names([group]))
    label, values, *_rest = group.content
    words = [signal or _("asked for by hand")]
    words += [_("of %(sender)s") % {"sender": sender}] if sender else []
    if label and isinstance(values, Mapping):
        model = travel.sender_named(label)
        names = [field.attname for field in model._meta.pk_fields] if model else []
        words += [f"{name}={values.get(name)!r}" for name in names]
    marks = (action, group.created and "created", group.raw and "raw")
    words += [f"({each})" for each in marks if each]
    return plain(" ".join(words)[:1000])


def links(lock: Lock, site: Any, request: HttpRequest) -> Iterator[SafeString]:
    """Yield a link to each row that the events are about, where this site shows it to this user.

    Args:
        lock: Whose events.
        site: The ``AdminSite``.
        request: Of the user.
    """
    record = _record(lock)
    found: dict[tuple[type[Model], Any], travel.Row] = {}
    for packed in (record.working, record.newer) if record else ():
        try:
            alias = database_of(lock.row.key)
            groups = Events.parse(0, packed).groups
            rows = [row for group in groups if (row := _row(group, alias)) is not None]
            found |= {(row.model, row.pk): row for row in rows}
        except (RecordError, *UNREADABLE):
            continue
    for row in found.values():
        yield from _link(row, site, request)


def _row(group: Group, alias: str) -> travel.Row | None:
    label, values, *_rest = group.content
    model = travel.sender_named(label) if label else None
    return travel.Row(model, alias, values) if model is not None else None


def _link(row: travel.Row, site: Any, request: HttpRequest) -> Iterator[SafeString]:
    known = (row.model, row.model._meta.concrete_model)
    model = next((model for model in known if site.is_registered(model)), None)
    if model is None:
        return
    shown = site.get_model_admin(model)
    found = shown.get_object(request, row.pk)
    if found is None or found._state.db != row.using:
        return
    if shown.has_view_or_change_permission(request, found):
        named = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
        url = reverse(named, args=(quote(found.pk),), current_app=site.name)
        yield format_html('<a href="{}">{}: {}</a>', url, model._meta.verbose_name, found)


def fieldsets(lock: Lock, site: Any, request: HttpRequest) -> list[Any]:
    """Return the fields of the page."""
    found = list(links(lock, site, request))

    @admin.display(description=gettext_lazy("object"))
    def objects(lock: Lock) -> SafeString:
        """The rows that its events are about."""
        return format_html_join(BREAK, "{}", ((link,) for link in found))

    item = (columns.state, columns.receiver, whole_key, *((objects,) if found else ()))
    held = (columns.holder, columns.lease, passes, working, token, fence)
    owed = (columns.waiting, first, last, columns.due, columns.given_up, columns.attempts, outbox)
    parts: list[tuple[str | None, Sequence[Callable[[Lock], Any]]]] = [
        (None, (*item, now, next_event, paused)),
        (_("Hold"), held),
        (_("What waits"), owed),
        (_("Events"), (events_worked_on, events_waiting)),
        (_("Last error"), (columns.error, traceback)),
    ]
    told = ((title, [field for field in part if field(lock) is not None]) for title, part in parts)
    return [(title, {"fields": fields}) for title, fields in told if fields]


LABELS: Final = {
    "recheck": gettext_lazy("Recheck now"),
    "release": gettext_lazy("Release the lock"),
    "retry": gettext_lazy("Retry"),
    "delete_selected": gettext_lazy("Discard…"),
    "pause": gettext_lazy("Pause the receiver"),
    "resume": gettext_lazy("Resume the receiver"),
}
"""What the page's buttons say, by the actions' names."""


def buttons(lock: Lock, allowed: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the actions that make sense as the item stands: names, and what the buttons say.

    Args:
        lock: The item.
        allowed: By name, what the user may do.
    """
    row = lock.row
    names = ["retry" if row.state is State.DEAD else "recheck", "delete_selected"]
    if row.state in (State.RUNNING, State.FLAGGED):
        names = ["recheck", "release"]
    elif row.state is State.IDLE and not (row.view.problem or row.outbox.rows):
        names = ["recheck"]
    names.append("resume" if lock.paused else "pause")
    return [(name, str(LABELS[name])) for name in names if name in allowed]
