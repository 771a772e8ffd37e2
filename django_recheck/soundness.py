"""What is wrong with the settings: told by the system checks, and by the first signal.

Where the checks never ran (gunicorn, Celery), a wrong setting must not turn up after a commit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import ERROR, CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from . import caches, conf
from .messages import message, shown
from .outbox import table


def require(options: conf.Options) -> None:
    """Refuse to go on with settings that the system checks would refuse.

    They are looked at once for each ``RECHECK`` and ``CACHES``, and then remembered.

    Args:
        options: The settings as one receiver sees them.

    Raises:
        ImproperlyConfigured: With what the check says, unless that one is silenced.
    """
    now = getattr(django_settings, "RECHECK", None), django_settings.CACHES
    known = options.found_sound
    if known is not None and known[0] is now[0] and known[1] is now[1]:
        return
    if not apps.is_installed("django_recheck"):
        raise ImproperlyConfigured(
            '"django_recheck" is missing from INSTALLED_APPS, so nothing is checked and nothing '
            'drains. Write INSTALLED_APPS = [..., "django_recheck"].'
        )
    refuse(_problems(options))
    options.found_sound = now


def refuse(problems: Iterable[CheckMessage]) -> None:
    """Raise the first error that isn't silenced.

    Raises:
        ImproperlyConfigured: With what the check says.
    """
    for problem in problems:
        if problem.level >= ERROR and not problem.is_silenced():
            said = problem.msg if problem.msg.endswith((".", "?")) else f"{problem.msg}."
            raise ImproperlyConfigured(f"{said} {problem.hint} ({problem.id})")


def _problems(options: conf.Options) -> Iterator[CheckMessage]:
    yield from settings(getattr(django_settings, "RECHECK", {}))
    yield from tuned(options.name, conf.get("RECEIVERS").get(options.name, {}))
    yield from debounce("RECHECK", pair(conf.get))
    yield from debounce(options.name, pair(options.value))
    yield from places("RECHECK", limit(conf.get))
    yield from places(options.name, limit(options.value))
    yield from outbox(options.name, outbox_asked_for(options.value))
    if options.dispatch != "immediate":
        yield from caches.problems(conf.get("CACHE"))


def settings(mine: Any) -> Iterator[CheckMessage]:
    """Check each name and value of a ``RECHECK``, but for what ``RECEIVERS`` says of each."""
    if not isinstance(mine, Mapping):
        text = f"RECHECK is {shown(mine)}, and must be a dict."
        yield message("E001", text, 'Write RECHECK = {"CACHE": "default"}, or leave it out.')
        return
    for name, value in mine.items():
        if name in conf.SETTINGS:
            yield from _value(f"RECHECK[{name!r}]", name, value)
        else:
            hint = conf.nearest(str(name), conf.SETTINGS)
            yield message("E002", f"RECHECK[{name!r}]: there is no such setting.", hint)
    path = mine.get("CONTEXT")
    if path is not None and conf.SETTINGS["CONTEXT"].problem(path) is None:
        yield from _context(path)


def _value(where: str, name: str, value: Any) -> Iterator[CheckMessage]:
    setting = conf.SETTINGS[name]
    if problem := setting.problem(value):
        hint = f"Write {name!r}: {setting.default!r}, the default, or leave it out."
        yield message("E003", f"{where} is {shown(value)}: it {problem}.", hint)


def _context(path: str) -> Iterator[CheckMessage]:
    hint = "Name a class that takes no arguments and has capture() and restore(value)."
    try:
        found = import_string(path)
    except Exception as error:  # whatever that module raises
        text = f"RECHECK['CONTEXT'] can't be imported: {type(error).__name__}: {error}"
        yield message("E009", text, hint)
        return
    methods = (getattr(found, name, None) for name in ("capture", "restore"))
    if not (all(map(callable, methods)) and _needs_nothing(found)):
        text = f"RECHECK['CONTEXT'] is {path!r}: it can't capture and restore."
        yield message("E020", text, hint)


def _needs_nothing(found: Any) -> bool:
    try:
        inspect.signature(found).bind()
    except TypeError:
        return False
    except ValueError:
        pass  # it has no signature to look at
    return True


def tuned(receiver: Any, values: Mapping[str, Any]) -> Iterator[CheckMessage]:
    """Check what ``RECEIVERS`` says of one receiver.

    Args:
        receiver: Its name, as it stands there.
        values: By the settings' names.
    """
    where = f"RECHECK['RECEIVERS'][{receiver!r}]"
    tunable = [name for name, setting in conf.SETTINGS.items() if setting.tunable]
    for name, value in values.items():
        here = f"{where}[{name!r}]"
        if name in tunable:
            yield from _value(here, name, value)
        elif name in conf.SETTINGS:
            place = "in the decorator" if conf.SETTINGS[name].option else "in RECHECK itself"
            text = f"{here}: {name} can't be set here, only {', '.join(tunable)}."
            yield message("E012", text, f"Say it {place}.")
        else:
            yield message(
                "E002", f"{here}: there is no such setting.", conf.nearest(str(name), tunable)
            )


def pair(value: Callable[[str], Any]) -> tuple[float, float | None] | None:
    """Return DELAY and MAX_WAIT, None if one of them is wrong by itself: that is said already."""
    try:
        return value("DELAY"), value("MAX_WAIT")
    except ImproperlyConfigured:
        return None


def debounce(where: str, found: tuple[float, float | None] | None) -> Iterator[CheckMessage]:
    """Compare a MAX_WAIT with its DELAY."""
    if found and (problem := conf.debounce_problem(*found)):
        hint = f"Write a MAX_WAIT above {found[0]:g}, or leave it out: it is 10 * DELAY then."
        yield message("E004", f"{where}: {problem}.", hint)


def limit(value: Callable[[str], Any]) -> tuple[int | None, int] | None:
    """Return CONCURRENCY and SHARDS, None if one of them is wrong by itself."""
    try:
        return value("CONCURRENCY"), value("SHARDS")
    except ImproperlyConfigured:
        return None


def places(where: str, found: tuple[int | None, int] | None) -> Iterator[CheckMessage]:
    """Compare a CONCURRENCY with the number of shards, each of which needs a place of its own."""
    if found and (problem := conf.places_problem(*found)):
        hint = f"Write a CONCURRENCY of {found[1]} or more, or None for any number of passes."
        yield message("E025", f"{where}: {problem}.", hint)


def dispatch_of(value: Callable[[str], Any]) -> Any:
    """Return DISPATCH as something sees it, None if it is wrong."""
    try:
        return value("DISPATCH")
    except ImproperlyConfigured:
        return None  # another check says so


def outbox_asked_for(value: Callable[[str], Any]) -> tuple[bool, bool]:
    """Return whether DURABLE and ON_REDIS_ERROR ask for the outbox, as far as they are right."""

    def found(name: str) -> Any:
        with suppress(ImproperlyConfigured):  # another message says so
            return value(name)

    return found("DURABLE") is True, found("ON_REDIS_ERROR") == "outbox"


def outbox(where: str, asked: tuple[bool, bool]) -> Iterator[CheckMessage]:
    """Check that the app is there that the outbox needs."""
    if table.installed():
        return
    durable, refused = asked
    hint = f'Write INSTALLED_APPS = [..., "{table.APP}"], and run manage.py migrate.'
    if durable:
        yield message("E030", f"{where}: DURABLE is True, and the outbox isn't installed.", hint)
    if refused:
        text = f"{where}: ON_REDIS_ERROR is 'outbox', and the outbox isn't installed."
        yield message("E031", text, hint)
