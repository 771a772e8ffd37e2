"""What people do from a page. Each action says what happened, what didn't, and why.

Django finds an action by its function's name; ``delete_selected`` takes its own one's place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, cast

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..messages import hide
from ..models import Lock
from ..records import Item
from ..screen import plain
from ..usable import Unusable, usable
from .locks import CHUNK, Locks
from .verbs import DISCARD, PAUSE, RECHECK, RELEASE, RESUME, RETRY, WHY, Verb
from .wanted import lock_of, mark

MOST: Final = 50
"""Locks that are named where people are asked whether they are sure."""


def act(model_admin: Any, request: HttpRequest, chunks: Iterable[list[Lock]], verb: Verb) -> None:
    """Do something, and tell in one message what happened, what didn't, and why."""
    words: Counter[str] = Counter()
    problem = ""
    try:
        for locks in chunks:
            with usable():
                found = verb.ask(locks)
            pairs = list(zip(locks, found, strict=True))
            words.update(map(str, found))
            _log(request, [lock for lock, word in pairs if word == "DONE"], verb)
    except Unusable as error:
        problem = str(error)
    _tell(model_admin, request, words, verb.done, problem)


def _chosen(request: HttpRequest, locks: Locks) -> Iterator[list[Lock]]:
    """Yield in chunks what was chosen; of all pages, as one of a certain moment has shown them."""
    if locks.wanted.marks is None:
        try:
            as_of = float(request.POST.get("as_of", ""))
        except ValueError:
            as_of = 0.0
        locks = locks.narrowed(as_of=as_of)
    found = locks.iterator()
    while some := list(islice(found, CHUNK)):
        yield some


def _log(request: HttpRequest, locks: Sequence[Lock], verb: Verb) -> None:
    """Write the history, in the language of the site."""
    if not locks:
        return
    with translation.override(settings.LANGUAGE_CODE):
        message = str(verb.logged)
    user, objects = cast(int, request.user.pk), cast(Any, locks)
    LogEntry.objects.log_actions(user, objects, verb.flag, message)


def _tell(
    model_admin: Any, request: HttpRequest, words: Counter[str], done: Any, problem: str
) -> None:
    number = words.pop("DONE", 0)
    level = messages.WARNING if words or not number else messages.SUCCESS
    said = [done % {"number": number}] if number else []
    if words:
        why = [WHY[word] % {"number": words.pop(word)} for word in WHY if word in words]
        why += [f"{count}: {plain(hide(word)[:500])}" for word, count in words.items()]
        said.append(_("Left alone: %(why)s.") % {"why": "; ".join(why)})
    elif not number and not problem:
        said.append(_("There was nothing to do."))
    if problem:
        said.append(problem)
    model_admin.message_user(request, " ".join(said), messages.ERROR if problem else level)


@admin.action(permissions=["change"], description=gettext_lazy("Recheck selected locks now"))
def recheck(model_admin: Any, request: HttpRequest, locks: Locks) -> None:
    """Ask for a pass of each, now."""
    act(model_admin, request, _chosen(request, locks), RECHECK)


@admin.action(
    permissions=["change"],
    description=gettext_lazy("Release selected locks, whose holders find out"),
)
def release(model_admin: Any, request: HttpRequest, locks: Locks) -> None:
    """End the holds."""
    act(model_admin, request, _chosen(request, locks), RELEASE)


@admin.action(permissions=["change"], description=gettext_lazy("Retry selected dead locks"))
def retry(model_admin: Any, request: HttpRequest, locks: Locks) -> None:
    """Let what was given up be tried again."""
    act(model_admin, request, _chosen(request, locks), RETRY)


@admin.action(permissions=["delete"], description=gettext_lazy("Discard selected locks"))
def delete_selected(model_admin: Any, request: HttpRequest, locks: Locks) -> Any:
    """Forget items with their events, once a person is sure."""
    if request.POST.get("post"):
        act(model_admin, request, _chosen(request, locks), DISCARD)
        return None
    across = locks.wanted.marks is None
    try:
        shown = locks.look(0, MOST).locks if across else list(locks)
        count = locks.count() if across else len(shown)
    except Unusable as error:
        model_admin.message_user(request, str(error), messages.ERROR)
        return None
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Are you sure?"),
        "opts": model_admin.opts,
        "media": model_admin.media,
        "count": count,
        "shown": shown[:MOST],
        "more": max(0, count - MOST),
        "action_checkbox_name": ACTION_CHECKBOX_NAME,
        "marks": [mark(lock) for lock in (shown[:1] if across else shown)],
        "as_of": request.POST.get("as_of", "") if across else "",
    }
    template = "admin/django_recheck/lock/discard_confirmation.html"
    return TemplateResponse(request, template, context)


@admin.action(
    permissions=["change"], description=gettext_lazy("Pause the receivers of selected locks")
)
def pause(model_admin: Any, request: HttpRequest, locks: Locks) -> None:
    """Let the receivers' events wait."""
    act(model_admin, request, _receivers(locks), PAUSE)


@admin.action(
    permissions=["change"], description=gettext_lazy("Resume the receivers of selected locks")
)
def resume(model_admin: Any, request: HttpRequest, locks: Locks) -> None:
    """Let the receivers go on."""
    act(model_admin, request, _receivers(locks), RESUME)


def _receivers(locks: Locks) -> Iterator[list[Lock]]:
    """Yield, in the shape of locks, the receivers of what was chosen."""
    yield [lock_of(Item(name, "")) for name in locks.receivers()]
