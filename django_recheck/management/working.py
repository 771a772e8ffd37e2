"""What the commands can't work with: one sentence, and exit code 2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError
from django.db.transaction import TransactionManagementError

from django_recheck import receivers
from django_recheck.usable import Unusable, usable


@contextmanager
def working() -> Iterator[None]:
    """Refuse wrong settings, and say in one sentence why there is no working.

    Raises:
        CommandError: With exit code 2: a setting is wrong, or Redis doesn't answer or refuses.
    """
    try:
        with usable():
            yield
    except (Unusable, TransactionManagementError) as error:
        raise CommandError(str(error), returncode=2) from error


def unknown(name: str) -> CommandError:
    """Return the error that says which receivers there are."""
    known = ", ".join(sorted(receivers.registry)) or "none"
    text = f"No receiver is called {name!r}; known are: {known}."
    return CommandError(text, returncode=2)
