"""What people see of the outboxes: how many rows wait, and for how long; and what they give up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, Generic, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.models import Count, Max, Min, QuerySet
from django.utils import timezone

from ..exceptions import RecordError
from ..keys import database_of
from ..receivers import named
from ..records import Item
from ..survey import OVERDUE
from . import table

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Waiting:
    """Rows that no pass has covered yet, of a receiver or of an item."""

    rows: int = 0
    oldest: datetime | None = None
    """When the oldest row was written, None if there is none."""
    newest: int = 0
    """The highest primary key."""
    allowed: float = 0
    """Seconds that its receiver lets events wait, by DELAY and MAX_WAIT."""

    @property
    def age(self) -> float | None:
        """Seconds since the oldest row was written, None if there is none."""
        return (timezone.now() - self.oldest).total_seconds() if self.oldest else None

    @property
    def overdue(self) -> bool:
        """Whether the oldest row is older than it may be, by ``survey.OVERDUE`` seconds."""
        return (self.age or 0) > OVERDUE + self.allowed

    @property
    def seen(self) -> str:
        """What a discard compares, "" where there is no row. Between two passes rows only come."""
        return f"{self.rows}.{self.newest}" if self.rows else ""

    def __add__(self, other: Waiting) -> Waiting:
        times = [time for time in (self.oldest, other.oldest) if time]
        newest = max(self.newest, other.newest)
        allowed = max(self.allowed, other.allowed)
        return Waiting(self.rows + other.rows, min(times, default=None), newest, allowed)


NONE: Final = Waiting()


@dataclass(frozen=True, slots=True)
class Found(Generic[K]):
    """What waits, as far as the databases can say."""

    waiting: dict[K, Waiting]
    """By receiver, or by item: those that have rows."""
    problems: dict[str, Exception]
    """Why a database couldn't say, by alias."""


def on(alias: str) -> dict[str, Waiting]:
    """Count a database's rows, by receiver, known here or not; none where it has no outbox.

    Raises:
        Error: The database doesn't answer.
    """
    if not table.usable(alias):
        return {}
    rows = table.model().objects.using(alias)
    return {name: waiting for (name,), waiting in _counted(rows, "receiver")}


def receivers(names: Collection[str] | None = None) -> Found[str]:
    """Count the rows of all databases by receiver. One query for each.

    Args:
        names: Whose rows, by default those of all receivers, known here or not.
    """
    found: Found[str] = Found({}, {})
    for alias in connections if table.installed() else ():
        counted = table.ask(alias, found.problems, partial(on, alias)) or {}
        for name, waiting in counted.items():
            if names is None or name in names:
                found.waiting[name] = found.waiting.get(name, NONE) + waiting
    return found


def items(wanted: Iterable[Item]) -> Found[Item]:
    """Count the rows of some items. One query for each of their databases."""
    found: Found[Item] = Found({}, {})
    for alias, some in _by_database(wanted):
        counted = table.ask(alias, found.problems, partial(_of, alias, some)) or {}
        found.waiting.update(counted)
    return found


def discard(
    seen: Sequence[tuple[Item, str]],
    forget: Callable[[Sequence[tuple[Item, str]]], list[str | Exception]],
) -> list[str | Exception]:
    """Give items up with their rows: those rows that were seen, no others.

    They are looked at before Redis is told, and removed after it, by their primary keys. Who dies
    in between leaves rows of an item that Redis doesn't know: a drain brings it back into sight.

    Args:
        seen: Items, each once, with what was seen of their records and of their rows.
        forget: Tells Redis; is given items with what was seen of their records.

    Returns:
        For each what ``forget`` says; ``"CHANGED"`` where other rows than those seen are there;
        why its database doesn't answer.
    """
    answers: dict[Item, str | Exception] = dict.fromkeys((item for item, _ in seen), "CHANGED")
    places = dict(_by_database(answers))
    refused: dict[str, Exception] = {}
    rows: dict[Item, list[int]] = {}
    for alias, some in places.items():
        rows |= table.ask(alias, refused, partial(_keys, alias, some)) or {}
    away = {item: refused[alias] for alias in refused for item in places[alias]}
    asked = [
        (item, record)
        for item, (record, _, shown) in ((item, told.partition("-")) for item, told in seen)
        if item not in away and _seen(rows.get(item, ())) == shown
    ]
    words = forget(asked) if asked else []
    answers |= away | dict(zip((item for item, _ in asked), words, strict=True))
    for alias, some in places.items():
        given_up = [item for item in some if item in rows and answers[item] in ("DONE", "GONE")]
        keys = [pk for item in given_up for pk in rows[item]]
        table.ask(alias, refused, partial(table.remove, alias, keys))
        answers |= dict.fromkeys(given_up, refused.get(alias, "DONE"))
    return [answers[item] for item, _ in seen]


def _counted(rows: QuerySet[Any], *by: str) -> Iterator[tuple[tuple[str, ...], Waiting]]:
    numbers = {"rows": Count("pk"), "oldest": Min("created"), "newest": Max("pk")}
    for *names, number, oldest, newest in rows.order_by().values_list(*by).annotate(**numbers):
        yield tuple(names), Waiting(number, oldest, newest, _allowed(names[0]))


def _allowed(name: str) -> float:
    """Return for how many seconds a receiver lets events wait, 0 if this process can't say."""
    with suppress(ImproperlyConfigured):  # a check says so
        if (receiver := named(name)) and receiver.options.delay:
            return receiver.options.max_wait
    return 0


def _by_database(wanted: Iterable[Item]) -> Iterator[tuple[str, set[Item]]]:
    """Yield the databases that may have rows of some items, each with these."""
    found: dict[str, set[Item]] = {}
    for item in wanted if table.installed() else ():
        try:
            found.setdefault(database_of(item.text), set()).add(item)
        except RecordError:
            continue  # nobody has written rows of it
    yield from ((alias, some) for alias, some in found.items() if alias in connections)


def _of(alias: str, some: Collection[Item]) -> dict[Item, Waiting]:
    found = [_counted(rows, "receiver", "item") for rows in table.rows_of_all(alias, some)]
    return {Item(*names): waiting for each in found for names, waiting in each}


def _keys(alias: str, some: Collection[Item]) -> dict[Item, list[int]]:
    """Return the primary keys of the rows of some items."""
    found: dict[Item, list[int]] = {}
    for rows in table.rows_of_all(alias, some):
        for pk, *names in rows.values_list("pk", "receiver", "item"):
            found.setdefault(Item(*names), []).append(pk)
    return found


def _seen(keys: Collection[int]) -> str:
    return Waiting(len(keys), newest=max(keys, default=0)).seen
