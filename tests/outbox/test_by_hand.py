"""Savepoints by hand: Django keeps the callbacks of what is rolled back, and the row is gone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from django import VERSION
from django.db import connection, transaction
from django.db.models.signals import post_delete, post_save

from django_recheck.outbox import table, written
from tests.app.models import Item, Watched

from .seen import DATABASES, durable, names, rows, statements

pytestmark = pytest.mark.django_db(transaction=True, databases=list(DATABASES))
savepoint_create: Callable[[], str] = (
    transaction.savepoint_create if VERSION >= (6, 1) else transaction.savepoint
)
PROGRAMS = 150
STEPS = ("save", "save", "delete", "set", "set", "back", "back", "release", "block")


@pytest.fixture
def calls() -> list[Any]:
    return []


def rolled_back(*steps: Callable[[], Any]) -> None:
    """Take some steps within a savepoint, and roll it back."""
    savepoint = savepoint_create()
    for step in steps:
        step()
    transaction.savepoint_rollback(savepoint)


def by_raw_sql(sql: Any) -> Callable[..., None]:
    """Return how to do so as who writes all SQL."""

    def undone(*steps: Callable[[], Any]) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SAVEPOINT mine")
            for step in steps:
                step()
            cursor.execute(sql)

    return undone


IN_SQL = (
    "rollback to savepoint mine",
    """
    ROLLBACK TO SAVEPOINT mine
    """,
    "/* why */ ROLLBACK TO SAVEPOINT mine",
    "-- why\nRollback To mine",
)
COMPOSED = []
if connection.vendor == "postgresql":
    from psycopg.sql import SQL, Identifier

    COMPOSED = [SQL("ROLLBACK TO SAVEPOINT {}").format(Identifier("mine"))]


@pytest.mark.parametrize("undone", [rolled_back, *map(by_raw_sql, (*IN_SQL, *COMPOSED))])
def test_a_later_event_has_a_row_again(calls: list[Any], undone: Any) -> None:
    durable(calls, dispatch="worker")
    item = Item.objects.create(name="a")
    rows()[0].delete()
    with transaction.atomic():
        undone(item.save)
        assert rows() == []
        item.save()
        item.save()
        assert len(rows()) == 1
    assert len(rows()) == 1


def test_what_was_added_to_a_row_is_added_again(calls: list[Any]) -> None:
    durable(calls, dispatch="worker")
    with transaction.atomic():
        item = Item.objects.create(name="a")
        rolled_back(lambda: Item(pk=item.pk).delete())
        assert [names(row) for row in rows()] == [["post_save"]]
        item.delete()
    assert [names(row) for row in rows()] == [["post_save", "post_delete"]]


def test_another_items_row_with_the_same_number_is_left(calls: list[Any]) -> None:
    """SQLite gives a primary key anew that was rolled back."""
    durable(calls, dispatch="worker")
    first, second = Item.objects.bulk_create([Item(name="a"), Item(name="b")])
    with transaction.atomic():
        rolled_back(first.save)
        second.save()
        first.delete()
    assert sorted(map(names, rows())) == [["post_delete"], ["post_save"]]


def test_the_table_is_asked_once_after_a_rollback(calls: list[Any]) -> None:
    durable(calls, dispatch="worker")
    item = Item.objects.create(name="a")

    def change() -> None:
        with transaction.atomic():
            item.save()
            rolled_back(item.save)
            for _ in range(100):
                item.save()

    made = [sql.partition(" ")[0] for sql in statements("default", change)]
    assert made == ["INSERT", "SELECT"]


def test_another_wrapper_of_the_connection_goes_and_ours_stays(calls: list[Any]) -> None:
    """Django takes out the last one, whichever that is."""
    durable(calls, dispatch="worker")
    seen: list[str] = []

    def look(execute: Any, sql: str, *rest: Any) -> Any:
        seen.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(look), transaction.atomic():
        Item.objects.create(name="a")
    assert look not in connection.execute_wrappers
    assert seen != []
    with transaction.atomic():
        rolled_back(Item.objects.get().save)
        Item.objects.get().save()
    assert len(rows()) == 2


class Walk:
    """A random transaction of events, blocks and savepoints by hand, with a reference."""

    def __init__(self, seed: int, items: list[Item]) -> None:
        self.chance = Random(seed)
        self.items = items

    def go(self) -> None:
        """Take its steps in a transaction."""
        with transaction.atomic():
            self.steps(2)

    def steps(self, depth: int) -> None:
        open_: list[str] = []
        for _ in range(self.chance.randrange(3, 9)):
            step = self.chance.choice(STEPS)
            if step == "set":
                open_.append(savepoint_create())
            elif step == "back" and open_:
                at = self.chance.randrange(len(open_))
                transaction.savepoint_rollback(open_[at])
                del open_[at + 1 :]
            elif step == "release" and open_:
                transaction.savepoint_commit(open_.pop())
            elif step == "block" and depth:
                with transaction.atomic():
                    self.steps(depth - 1)
                    if self.chance.random() < 0.4:
                        transaction.set_rollback(True)
            elif step in ("save", "delete"):
                getattr(Item(pk=self.chance.choice(self.items).pk, name="a"), step)()


def refer(sender: Any, instance: Any, signal: Any, **kwargs: Any) -> None:
    """Write an event down by the same connection: the database knows what becomes of it."""
    kind = "post_save" if signal is post_save else "post_delete"
    Watched.objects.bulk_create([Watched(name=f"{instance.pk} {kind}")])


def faults(seed: int, items: list[Item]) -> list[str]:
    """Return what is wrong with the rows of a random transaction."""
    for model in (table.model(), Watched):
        model.objects.all()._raw_delete("default")
    Walk(seed, items).go()
    happened, told = defaultdict(set), defaultdict(set)
    for pk, kind in (watched.name.split() for watched in Watched.objects.all()):
        happened[pk].add(kind)
    found: Counter[str] = Counter()
    for row in rows():
        pk = row.item.partition(":")[2].rstrip("}")
        found[pk] += 1
        told[pk].update(names(row))
    twice = [f"rows {found}"] if found and max(found.values()) > 1 else []
    return twice + ([f"happened {happened}, told {told}"] if happened != told else [])


@pytest.fixture
def items(calls: list[Any]) -> list[Item]:
    made = Item.objects.bulk_create([Item(name="a") for _ in range(2)])
    durable(calls, dispatch="worker")
    for signal in (post_save, post_delete):
        signal.connect(refer, sender=Item)
    return made


def test_rows_at_commit_are_the_committed_items(items: list[Item]) -> None:
    for seed in range(PROGRAMS):
        assert not faults(seed, items), seed


def test_where_nobody_looks_after_rollbacks_some_are_missing(
    items: list[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written, "_stands_there", lambda row: True)
    assert any(faults(seed, items) for seed in range(PROGRAMS))
