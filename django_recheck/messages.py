"""How a wrong setting is told of: the messages of the system checks, and never a password."""

from __future__ import annotations

import re
from typing import Any

from django.core.checks import CheckMessage, Error, Warning

_PLAIN = (str, bytes, int, float, type(None))


def hide(text: str) -> str:
    """Return a text without the password that a URL in it may have."""
    return re.sub(r"(?i)(password=)[^&\s'\"]+", r"\1…", re.sub(r"//\S*@", "//…@", text))


def shown(value: Any) -> str:
    """Return a value as messages show it: of what may hold a password, only the type."""
    parts = value if isinstance(value, (tuple, list)) else [value]
    if all(isinstance(part, _PLAIN) for part in parts):
        return hide(repr(value))
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"of type {type(value).__name__}"


def message(number: str, text: str, hint: str) -> CheckMessage:
    """Return an error (E…) or a warning (W…) of this app."""
    kind = Error if number.startswith("E") else Warning
    return kind(hide(text), hint=hint[0].upper() + hint[1:], id=f"django_recheck.{number}")
