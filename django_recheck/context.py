"""What surrounds a save and must surround its pass: a tenant's schema, a language (``CONTEXT``)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, cast

from django.utils.module_loading import import_string

from . import conf
from .exceptions import EventError
from .keys import as_json


class Context(Protocol):
    """The class that ``CONTEXT`` names; it is instantiated without arguments."""

    def capture(self) -> Any:
        """Return what is in force now, as JSON: it becomes part of the item."""

    def restore(self, value: Any) -> AbstractContextManager[Any]:
        """Return a context manager that puts a captured value in force."""


def _context() -> Context | None:
    path = conf.get("CONTEXT")
    return cast(Context, import_string(path)()) if path else None


def capture() -> Any:
    """Return what the configured context captures now, None without one.

    Raises:
        EventError: It is no JSON.
    """
    context = _context()
    if context is None:
        return None
    try:
        return as_json(context.capture())
    except (TypeError, ValueError) as error:
        raise EventError(
            f"What capture() of {type(context).__name__} returned is no JSON: {error}"
        ) from error


def restore(value: Any) -> AbstractContextManager[Any]:
    """Return a context manager in which a captured value is in force, None also being one."""
    context = _context()
    return nullcontext() if context is None else context.restore(value)
