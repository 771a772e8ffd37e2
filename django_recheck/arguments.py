"""What receivers and the callables of ``@recheck`` take, compared with what signals send."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from django.contrib.auth import signals as auth
from django.core import signals as core
from django.db.backends.signals import connection_created
from django.db.models import signals
from django.dispatch import Signal

SENT: Final[Mapping[Signal, frozenset[str]]] = {
    signal: frozenset(("signal", "sender", *names.split()))
    for signal, names in (
        (signals.post_save, "instance created raw using update_fields"),
        (signals.pre_delete, "instance using origin"),
        (signals.post_delete, "instance using origin"),
        (signals.m2m_changed, "action instance reverse model pk_set using"),
        (signals.pre_migrate, "app_config verbosity interactive using"),
        (signals.post_migrate, "app_config verbosity interactive using"),
        (core.setting_changed, "setting value enter"),
        (core.request_started, ""),
        (core.request_finished, ""),
        (core.got_request_exception, "request"),
        (connection_created, "connection"),
        (auth.user_logged_in, "request user"),
        (auth.user_logged_out, "request user"),
        (auth.user_login_failed, "request credentials"),
    )
}
"""What Django's own signals always come with: ``flush`` sends less of a migration than ``migrate``.
Of other signals nobody knows before they are sent."""


def parameters(func: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return what a function takes; anything, where it is of C and nobody can tell."""
    try:
        return inspect.signature(func).parameters
    except ValueError:
        return inspect.signature(lambda **kwargs: None).parameters


def refuse(what: str, func: Callable[..., Any]) -> None:
    """Refuse what doesn't take all that a signal sends, as Django does for receivers.

    Args:
        what: What it is called in the message.
        func: A receiver, or a callable that gets the same.

    Raises:
        TypeError: It can't be called with what a signal sends.
    """
    takes = parameters(func).values()
    if all(p.kind is not p.VAR_KEYWORD for p in takes):
        raise TypeError(
            f"{what} must take **kwargs: a signal sends all its arguments by name, "
            "and with another version of Django some more."
        )
    for p in takes:
        if p.kind is p.POSITIONAL_ONLY and p.default is p.empty:
            raise TypeError(f"{what} takes {p.name!r} by position, and a signal sends it by name.")


def missing(func: Callable[..., Any], known: Iterable[str]) -> list[str]:
    """Return the parameters that a function must be called with, and that aren't known."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    takes = [p for p in parameters(func).values() if p.kind in named and p.default is p.empty]
    return [p.name for p in takes if p.name not in known]
