"""What the search for deaths must find: each mutant takes one protection away."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock


@dataclass(frozen=True)
class Mutant:
    """One protection that is missing, and the death that shows it."""

    patch: Callable[[], Any]
    """Takes the protection away."""
    scenario: str
    last: int | str
    """The step at which the process dies, 0 if that isn't even needed."""
    then: str
    """What comes after that."""

    @property
    def name(self) -> str:
        """How it is called where it is told of."""
        return f"{self.patch.__name__}, {self.scenario}"


def removed_when_read() -> Any:
    """Remove the rows when the pass begins."""
    from django_recheck.outbox import covered

    read = covered.read

    def reading(receiver: Any, item: Any, events: Any) -> Any:
        rows, events = read(receiver, item, events)
        covered.remove(item, rows)
        return rows, events

    return mock.patch.object(covered, "read", reading)


def removed_as_a_range() -> Any:
    """Remove all rows up to the newest one that the pass has seen."""
    from django_recheck.outbox import table

    def remove(using: str, ids: Any) -> None:
        for last in sorted(ids)[-1:]:
            table.model().objects.using(using).filter(pk__lte=last).delete()

    return mock.patch.object(table, "remove", remove)


def removed_with_the_item() -> Any:
    """Remove what rows the item has when the pass is over."""
    from django_recheck.outbox import covered, table

    def remove(item: Any, rows: Any) -> None:
        table.rows_of(item).delete()

    return mock.patch.object(covered, "remove", remove)


def removed_when_told() -> Any:
    """Remove the rows once Redis was told of them."""
    from django_recheck import dispatch
    from django_recheck.outbox import table

    taken = dispatch.taken

    def taking(batch: Any) -> Any:
        found = taken(batch)
        for ready in found:
            table.rows_of(ready.item).delete()
        return found

    return mock.patch.object(dispatch, "taken", taking)


def removed_when_taken() -> Any:
    """Remove the rows when a drain looks at them."""
    from django_recheck.outbox import replay, table

    take = replay._take

    def taking(alias: str, names: Any) -> Any:
        rows = take(alias, names)
        table.remove(alias, [row.pk for row in rows])
        return rows

    return mock.patch.object(replay, "_take", taking)


def removed_although_own() -> Any:
    """Take no notice of a pass's own events, which have no row."""
    from django_recheck import runner
    from django_recheck.outbox import covered

    finish = runner.Hold._finish

    def finishing(hold: Any, worked: Any) -> Any:
        rows = hold.rows
        found = finish(hold, worked)
        if worked.word == "ok":
            covered.remove(hold.item, rows)
        return found

    return mock.patch.object(runner.Hold, "_finish", finishing)


def written_after_the_commit() -> Any:
    """Write the row when the callback is called."""
    from django_recheck import commit
    from django_recheck.outbox import written

    both = ExitStack()
    both.enter_context(mock.patch.object(commit, "_lacks_a_row", return_value=True))
    both.enter_context(mock.patch.object(written, "write", return_value={}))
    return both


def dropped_with_the_name() -> Any:
    """Leave no rows to the item that takes another one's place."""
    from django_recheck.outbox import table

    return mock.patch.object(table, "move", lambda item, to: table.rows_of(item).delete())


def not_put_aside() -> Any:
    """Let the process alone know of what Redis doesn't take."""
    from django_recheck import outage
    from django_recheck.outbox import table

    put_aside = table.put_aside

    def owing(batch: Any) -> bool:
        put_aside(batch)
        for ready in batch:
            table.rows_of(ready.item).delete()
            outage.owe(ready)
        return False

    return mock.patch.object(table, "put_aside", owing)


MUTANTS: Final = (
    Mutant(removed_when_read, "inline", "after remove", "empty"),
    Mutant(removed_as_a_range, "worker", "after claim_many again", "empty"),
    Mutant(removed_with_the_item, "meanwhile", 0, "nothing"),
    Mutant(removed_when_told, "replay", "after remove", "empty"),
    Mutant(removed_when_taken, "replay", "after _take", "nothing"),
    Mutant(removed_when_taken, "kept", "after _take", "nothing"),
    Mutant(removed_although_own, "own", "after remove", "empty"),
    Mutant(written_after_the_commit, "inline", "after _commit", "nothing"),
    Mutant(dropped_with_the_name, "renamed", "after move", "empty"),
    Mutant(not_put_aside, "away", "after put_aside", "nothing"),
)
