"""The table as the rest uses it: rows put in, found by their item, taken out. No signal is sent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeVar

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import Error, connections, router, transaction
from django.db.models import QuerySet
from django.db.transaction import TransactionManagementError
from django.utils import timezone

from .. import outage, transactions
from ..awaiting import in_running_loop
from ..keys import database_of
from ..records import Item

if TYPE_CHECKING:
    from ..outage import Ready
    from .models import Event

logger = logging.getLogger("django_recheck")

T = TypeVar("T")

APP: Final = "django_recheck.outbox"
AGE: Final = timedelta(seconds=60)
"""How old a row is before a drain asks whether Redis knows of it, and how long until it asks
again."""
AT_ONCE: Final = 1000
"""Rows that one statement writes or removes."""

FAULTS: Final = (Error, ImproperlyConfigured)
"""What the table's use may raise: the database doesn't answer, or the app isn't there."""


def installed() -> bool:
    """Return whether the project lists the app."""
    return apps.is_installed(APP)


def model() -> type[Event]:
    """Return the table's model.

    Raises:
        ImproperlyConfigured: The app isn't listed.
    """
    if not installed():
        raise ImproperlyConfigured(f'{APP} is missing: write INSTALLED_APPS = [..., "{APP}"].')
    found: type[Event] = apps.get_model("django_recheck_outbox", "Event")
    return found


def digest(item: Item) -> int:
    """Return the number by which an item's rows are found."""
    text = f"{item.receiver} {item.text}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), signed=True)


def insert(using: str, batch: Sequence[Ready], wait: timedelta = AGE) -> list[int | None]:
    """Write a row for each item, in the open transaction, or in one of its own.

    Args:
        using: The database.
        batch: The items with their events.
        wait: How long they aren't looked at.

    Returns:
        Their primary keys; None where the database doesn't tell them.
    """
    event, now = model(), timezone.now()
    rows = [
        event(
            receiver=ready.item.receiver,
            item=ready.item.text,
            digest=digest(ready.item),
            count=ready.events.count,
            events=ready.events.packed(),
            created=now,
            due=now + wait,
        )
        for ready in batch
    ]
    written = event.objects.using(using).bulk_create(rows, batch_size=AT_ONCE)
    return [row.pk for row in written]


def rows_of(item: Item) -> QuerySet[Event]:
    """Return an item's rows, on the database that its events come from.

    Raises:
        RecordError: It is no item's text.
    """
    wanted = {"digest": digest(item), "receiver": item.receiver, "item": item.text}
    return model().objects.using(database_of(item.text)).filter(**wanted)


def rows_of_all(alias: str, items: Collection[Item]) -> Iterator[QuerySet[Event]]:
    """Yield the rows of some items of a database; none where it has no outbox.

    Raises:
        Error: The database doesn't answer.
    """
    wanted = list(items) if usable(alias) else []
    for start in range(0, len(wanted), AT_ONCE):
        some = wanted[start : start + AT_ONCE]
        # All three, for several items may have one digest; the index is the digest's.
        named = {"receiver__in": {i.receiver for i in some}, "item__in": {i.text for i in some}}
        rows = model().objects.using(alias).filter(digest__in=[digest(item) for item in some])
        yield rows.filter(**named)


def remove(using: str, ids: Collection[int]) -> None:
    """Remove rows by their primary keys."""
    listed = list(ids)
    for start in range(0, len(listed), AT_ONCE):
        rows_by(using, listed[start : start + AT_ONCE])._raw_delete(using)


def rows_by(using: str, ids: Collection[int]) -> QuerySet[Event]:
    """Return rows by their primary keys, ``AT_ONCE`` at most."""
    return model().objects.using(using).filter(pk__in=ids)


def move(item: Item, to: Item) -> None:
    """Make all rows of an item another one's, of the same database.

    Raises:
        RecordError: It is no item's text.
        Error: The database refuses.
    """
    rows_of(item).update(receiver=to.receiver, item=to.text, digest=digest(to))


def outside_of_a_loop(call: Callable[[], T]) -> T:
    """Use a database here, or in a thread where an event loop runs in this one."""
    if not in_running_loop():
        return call()

    def within() -> T:
        try:
            return call()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(within).result()


def put_aside(batch: Iterable[Ready]) -> bool:
    """Write down what Redis doesn't take, for the next drain that finds it there again.

    What is durable has its row. What a database doesn't take either stays owed by this process.

    Returns:
        Whether all of it stands in a database.
    """
    whole = True
    by_database: dict[str, list[Ready]] = {}
    for ready in batch:
        if not ready.receiver.options.durable:
            by_database.setdefault(database_of(ready.item.text), []).append(ready)
    for using, found in by_database.items():
        try:
            outside_of_a_loop(partial(_of_their_own, using, found))
        except FAULTS as error:
            text = "%d items can't be put into the outbox of %r, and stay owed: %s"
            logger.error(text, len(found), using, error)
            for ready in found:
                outage.owe(ready)
            whole = False
    return whole


def _of_their_own(using: str, batch: Sequence[Ready]) -> None:
    if transactions.is_open(connections[using]):
        raise TransactionManagementError("it is in a transaction, which may be rolled back")
    with transaction.atomic(using=using):
        insert(using, batch, timedelta())


def ask(alias: str, problems: dict[str, Exception], call: Callable[[], T]) -> T | None:
    """Ask a database about its outbox: what goes wrong is a problem of its own, and no error.

    In an open transaction that breaks nothing but what was asked.
    """
    opened = connections[alias].in_atomic_block
    try:
        with transaction.atomic(using=alias) if opened else nullcontext():
            return call()
    except FAULTS as error:
        problems[alias] = error
    except AssertionError:
        pass  # Django's TestCase says so of a database that it doesn't use
    return None


_known: set[str] = set()
"""Databases of which this process knows that they have the table."""


def usable(alias: str) -> bool:
    """Return whether a database is to have the table, and has it.

    Raises:
        Error: It doesn't answer.
    """
    if alias not in _known:  # asked once: in a tenant's schema routers say no of a shared app
        if not router.allow_migrate_model(alias, model()) or not has_table(alias):
            return False
        _known.add(alias)
    return True


def has_table(alias: str) -> bool:
    """Return whether a database has the table.

    Raises:
        Error: It doesn't answer.
    """
    with connections[alias].cursor() as cursor:
        names = connections[alias].introspection.table_names(cursor)
    return model()._meta.db_table in names
