"""What the tests of the outbox share: a durable receiver, and what stands in the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from django.db import connections, transaction
from django.db.models import F
from django.db.models.signals import post_delete, post_save
from django.test.utils import CaptureQueriesContext

from django_recheck import Receiver, conf, recheck, store, views
from django_recheck.events import Events, group_names
from django_recheck.outbox import table
from django_recheck.records import Item
from tests.app import models

DATABASES = ("default", "other")


def rows(using: str = "default") -> list[Any]:
    """Return the rows, oldest first."""
    return list(table.model().objects.using(using).order_by("pk"))


def waiting(using: str = "default") -> Counter[tuple[str, str]]:
    """Count the rows of each item."""
    return Counter((row.receiver, row.item) for row in rows(using))


def names(row: Any) -> list[str]:
    """Return the signals that a row tells of."""
    return [name for name, *_ in group_names(Events.parse(1, bytes(row.events)).groups)]


def ripen(using: str = "default", seconds: float = 3600) -> None:
    """Let time go by: rows become due."""
    table.model().objects.using(using).update(due=F("due") - timedelta(seconds=seconds))


def statements(using: str, call: Callable[[], object], table_name: str = "outbox") -> list[str]:
    """Return the statements on the table that something makes."""
    with CaptureQueriesContext(connections[using]) as caught:
        call()
    return [query["sql"] for query in caught.captured_queries if table_name in query["sql"]]


@contextmanager
def no_table(using: str = "default") -> Iterator[None]:
    """Have the table under another name."""
    name = "django_recheck_outbox_event"
    with connections[using].schema_editor() as editor:
        editor.execute(f"ALTER TABLE {name} RENAME TO away")
    try:
        yield
    finally:
        with connections[using].schema_editor() as editor:
            editor.execute(f"ALTER TABLE away RENAME TO {name}")


class Died(Exception):
    """Stands for the end of a process between its commit and its first word to Redis."""


def committed_and_not_told(change: Callable[[], object], using: str = "default") -> None:
    """Commit a change whose events nobody delivers: another app's callback raises before ours."""

    def die() -> None:
        raise Died

    with suppress(Died), transaction.atomic(using=using):
        transaction.on_commit(die, using=using)
        change()


def state(row: Any) -> str:
    """Return an item's state in Redis."""
    return views.items(store.current(), [Item(row.receiver, row.item)])[0].state


def nothing() -> None:
    """Do nothing."""


def durable(
    calls: list[Any], then: Callable[[], object] = nothing, **options: Any
) -> Receiver[..., Any]:
    """Connect a durable receiver, which notes its passes and then does something."""

    @recheck(**{"name": "durable", "durable": True, **options})
    def note(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append((recheck_pass.key, sorted(recheck_pass.signals), recheck_pass.gone))
        then()

    for signal in (post_save, post_delete):
        signal.connect(note, sender=models.Item, weak=False)
    return note


def turned(receiver: Receiver[..., Any], **options: Any) -> None:
    """Have other options from now on, by upper-case name, as other code has."""
    receiver.options = conf.Options(receiver.name, {**receiver.options._given, **options})
