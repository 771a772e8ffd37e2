"""Locks as the admin asks for them: a queryset that reads Redis, a page at a time.

What is looked for stands in ``Wanted``; order and limits in Django's own ``Query``.
It answers what the admin asks: a page, some by their primary keys, or all, in chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from django.core.exceptions import FieldError
from django.db.models import QuerySet

from .. import receivers
from ..board import Row, State
from ..models import Lock
from ..survey import Survey
from ..views import Part
from .wanted import Wanted, locks_of, marked, primary_key

HOLDS: Final = Part("running")
"""What is looked at for the longest hold."""
CHUNK: Final = 500
"""Locks that are read, and acted on, at once where all are wanted."""


@dataclass(frozen=True, slots=True)
class Look:
    """A page, and what stands above it."""

    survey: Survey
    holds: list[Row]
    """Some of those that run."""
    locks: list[Lock]
    count: int
    """Locks on all pages."""


class Locks(QuerySet[Lock]):
    """Locks in Redis. Whatever reads may raise ``Unusable``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.wanted = Wanted()
        self.page: Look | None = None

    def _clone(self) -> Locks:
        clone: Locks = super()._clone()  # type: ignore[misc]
        clone.wanted, clone.page = self.wanted, self.page
        return clone

    def narrowed(self, **changes: Any) -> Locks:
        """Return a queryset that looks for something else; the names are those of ``Wanted``."""
        clone = self._clone()
        clone.wanted, clone.page = replace(self.wanted, **changes), None
        return clone

    def filter(self, *args: Any, **kwargs: Any) -> Locks:
        """Find locks by their primary keys, or by marks.

        Raises:
            FieldError: It is another question, which no index answers: the admin starts anew.
        """
        if any(args) or not {"pk", "id", "pk__in"}.issuperset(kwargs):
            raise FieldError("Locks are found by their primary keys, by state and by receiver.")
        for name, value in kwargs.items():
            marks = map(str, value if name == "pk__in" else [value])
            return self.narrowed(marks=tuple(dict.fromkeys(marks)))
        return self._clone()

    def get(self, *args: Any, **kwargs: Any) -> Lock:
        """Return a lock of which something is known, or may be: this process has its receiver.

        Raises:
            DoesNotExist: Nothing of it is known.
        """
        for lock in self.filter(*args, **kwargs):
            there = lock.row.state is not State.IDLE or lock.row.view.record or lock.row.outbox.rows
            if there or receivers.named(lock.receiver):
                return lock
        raise Lock.DoesNotExist

    def look(self, start: int, size: int) -> Look:
        """Read a page, and what stands above it, in two round trips."""
        newest = any(str(name).startswith("-") for name in self.query.order_by[:1])
        state = self.wanted.state
        part = Part(state, start, size, newest or state == "later")
        parts = [HOLDS] if self.wanted.direct else list(dict.fromkeys((HOLDS, part)))
        survey = self.wanted.survey(parts)
        if self.wanted.direct:
            locks = self.wanted.found(survey)
            count, locks = len(locks), locks[start : start + size]
        else:
            locks = locks_of(survey, survey.parts[-1])
            locks = [lock for lock in locks if lock.row.state is not State.IDLE]
            count = self.wanted.count(survey)
        holds = [Row.of(view, survey.now) for view in survey.parts[0]]
        return Look(survey, holds, locks, count)

    def showing(self, page: Look) -> Locks:
        """Return a queryset that has read a page."""
        clone = self._clone()
        clone.page = page
        return clone

    def count(self) -> int:
        """Return how many there are."""
        if self.query.is_empty():
            return 0
        if self.page is not None:
            return self.page.count
        return len(self) if self.wanted.direct else self.wanted.count(self.wanted.survey())

    def exists(self) -> bool:
        """Return whether there is any."""
        return self.count() > 0

    def _fetch_all(self) -> None:
        if self._result_cache is None:
            limits = self.query.low_mark, self.query.high_mark
            found = self.page.locks if self.page else islice(self.iterator(), *limits)
            self._result_cache = list(found)

    def iterator(self, chunk_size: int | None = CHUNK) -> Iterator[Lock]:
        """Yield all that are wanted.

        With ``as_of``, what has changed since then bears another mark, so that nobody acts on it.

        Args:
            chunk_size: How many are read at once.
        """
        if self.query.is_empty():
            return
        for lock in self._read(chunk_size or CHUNK):
            if self.wanted.as_of is not None and not self.wanted.stands(lock.row):
                lock.seen = "changed"
            yield lock

    def _read(self, size: int) -> Iterator[Lock]:
        if self.wanted.direct:
            yield from self.wanted.found(self.wanted.survey())
            return
        names = list(map(primary_key, self.wanted.indexed()))
        for start in range(0, len(names), size):
            chunk = replace(self.wanted, marks=tuple(names[start : start + size]))
            yield from chunk.found(chunk.survey())

    def receivers(self) -> list[str]:
        """Return the receivers that have any of what is wanted."""
        if self.wanted.marks is not None:
            found = [marked(mark)[0].receiver for mark in self.wanted.marks]
        elif self.wanted.direct:
            found = [lock.receiver for lock in self]
        else:
            numbers = self.wanted.survey().numbers
            found = [name for name, n in numbers.items() if getattr(n, self.wanted.state)]
        return list(dict.fromkeys(found))
