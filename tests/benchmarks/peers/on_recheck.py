"""django-recheck: ``recheck_run`` over receivers that do nothing; also the worker's own program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from .marks import noop

COMMAND: Final = ("-m", __name__)


def receivers() -> dict[str, Any]:
    """Make the receivers: with and without their row read before each pass."""
    from django.db.models.signals import post_save

    from django_recheck import recheck
    from tests.app.models import Item

    def nothing(sender: Any, **kwargs: Any) -> None:
        noop()

    found = {}
    for name, refresh in (("plain", False), ("fresh", True)):
        found[name] = recheck(name=name, refresh=refresh)(nothing)
        post_save.connect(found[name], sender=Item, weak=False)
    return found


def enqueue(receiver: Any, rows: Iterable[Any]) -> None:
    """Record a pass for each row."""
    receiver.recheck_many(rows)


def main() -> None:
    """Do what waits."""
    import django
    from django.core.management import call_command

    django.setup()
    receivers()
    call_command("recheck_run", verbosity=0)


if __name__ == "__main__":
    main()
