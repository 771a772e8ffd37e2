"""Every kind of transaction: its events are delivered when it commits, and not otherwise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import Error, connection, connections, transaction
from django.db.models.signals import post_delete, post_save
from django.db.transaction import TransactionManagementError
from django.dispatch import receiver

from django_recheck import recheck, store, views, worker
from tests.app.models import Group, Item
from tests.servers import Server
from tests.test_round_trips import HOLD, Wire, cold, server, wire

__all__ = ["cold", "server", "wire"]  # fixtures
pytestmark = pytest.mark.django_db(transaction=True)
only_bytes = pytest.mark.parametrize("cold", ["bytes"], indirect=True)

passed: list[Any] = []


class Undo(Exception):
    """What a block is left with to roll it back."""


@pytest.fixture(autouse=True)
def note() -> Iterator[Any]:
    passed.clear()

    @receiver([post_save, post_delete], sender=Item)
    @recheck(name="note", carry=["name"])
    def note(sender: Any, instance: Item, recheck_pass: Any, **kwargs: Any) -> None:
        assert not connection.in_atomic_block
        passed.append((instance.name, recheck_pass.event_count))

    yield note
    assert views.counts(store.current()) == {}


def save(name: str) -> Item:
    return Item.objects.create(name=name)


# Autocommit


def test_in_autocommit_the_pass_comes_with_each_change() -> None:
    item = save("a")
    assert passed == [("a", 1)]
    item.save()
    assert passed == [("a", 1)] * 2
    item.delete()
    assert passed == [("a", 1)] * 3


def test_what_django_wraps_by_itself_is_a_transaction() -> None:
    Item.objects.get_or_create(name="a")
    Item.objects.update_or_create(name="a", defaults={"value": 1})
    assert passed == [("a", 1), ("a", 1)]
    group = Group.objects.create(name="g")
    for name in "bc":
        save(name)
    Item.objects.update(group=group)
    passed.clear()
    group.delete()
    assert sorted(passed) == [("a", 1), ("b", 1), ("c", 1)], "in one transaction"


# Blocks


@transaction.atomic
def decorated(inner: Callable[[], None]) -> None:
    save("decorated")
    inner()
    assert passed == []


def durable(inner: Callable[[], None]) -> None:
    with transaction.atomic(durable=True):
        save("durable")
        inner()
        assert passed == []


def without_savepoints(inner: Callable[[], None]) -> None:
    with transaction.atomic(), transaction.atomic(savepoint=False):
        save("inner")
        inner()
    assert passed


@pytest.mark.parametrize("block", [decorated, durable, without_savepoints])
def test_a_block_of_any_kind_is_delivered_when_the_outermost_commits(
    block: Callable[[Callable[[], None]], None],
) -> None:
    block(lambda: None)
    assert len(passed) == 1
    passed.clear()

    def fail() -> None:
        raise Undo

    with pytest.raises(Undo):
        block(fail)
    assert passed == []


def test_a_durable_block_within_another_is_refused_as_ever() -> None:
    with transaction.atomic():
        save("a")
        with pytest.raises(RuntimeError, match="durable"):
            durable(lambda: None)
    assert passed == [("a", 1)]


def test_c40_savepoints_keep_and_drop_their_own_events_at_any_depth() -> None:
    with transaction.atomic():
        item = save("a")
        with suppress(Undo), transaction.atomic():
            item.save()
            with transaction.atomic():
                save("kept by an inner one, dropped by the outer one")
            raise Undo
        with transaction.atomic():
            item.save()
            with suppress(Undo), transaction.atomic():
                item.save()
                save("dropped")
                raise Undo
            save("b")
    assert passed == [("a", 2), ("b", 1)]


def test_a_savepoint_by_hand_drops_no_event_and_the_row_decides() -> None:
    with transaction.atomic():
        item = save("a")
        by_hand = vars(transaction).get("savepoint_create", transaction.savepoint)()  # 6.1's name
        item.name = "b"
        item.save()
        transaction.savepoint_rollback(by_hand)
    assert passed == [("a", 2)]


def test_a_transaction_that_is_broken_drops_all() -> None:
    with suppress(Error), transaction.atomic():
        item = save("a")
        with suppress(Error):
            Item(pk=item.pk, name="b").save(force_insert=True)
        with pytest.raises(TransactionManagementError):
            save("c")
    assert passed == []


def test_a_row_that_comes_and_goes_in_one_transaction_is_one_event() -> None:
    with transaction.atomic():
        save("a").delete()
    assert passed == [("a", 2)]


def test_changes_of_a_pass_are_transactions_of_their_own() -> None:
    seen: list[Any] = []

    @receiver(post_save, sender=Item)
    @recheck(name="writes")
    def writes(sender: Any, instance: Item, **kwargs: Any) -> None:
        if instance.name == "a":
            with suppress(Undo), transaction.atomic():
                save("undone")
                raise Undo
            with transaction.atomic():
                save("b")
                seen.append(("b", 1) in passed)
            seen.append(("b", 1) in passed)

    with transaction.atomic():
        save("a")
    assert seen == [False, True]
    assert ("undone", 1) not in passed


# Callbacks of others


@pytest.mark.parametrize(
    ("registered", "robust", "expected"),
    [("before", False, []), ("before", True, [("a", 1)]), ("after", False, [("a", 1)])],
)
def test_only_a_callback_that_raises_before_ours_and_isnt_robust_takes_the_event_along(
    registered: str, robust: bool, expected: list[Any]
) -> None:
    def fail() -> None:
        raise Undo

    with suppress(Undo), transaction.atomic():
        if registered == "before":
            transaction.on_commit(fail, robust=robust)
        save("a")
        if registered == "after":
            transaction.on_commit(fail, robust=robust)
    assert passed == expected


# By hand


@pytest.mark.parametrize("change", ["save", "delete", "recheck", "recheck_many"])
def test_a_transaction_by_hand_is_refused_with_the_reason(note: Any, change: str) -> None:
    item = save("a")
    changes: dict[str, Callable[[], Any]] = {
        "save": item.save,
        "recheck": lambda: note.recheck(item),
        "recheck_many": lambda: note.recheck_many([item]),
        "delete": lambda: post_delete.send(Item, instance=item, using="default", origin=None),
    }
    transaction.set_autocommit(False)
    try:
        with pytest.raises(TransactionManagementError) as refused:
            changes[change]()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    for words in ("note can't follow", "'default'", "by hand", "Use transaction.atomic()"):
        assert words in str(refused.value)
    assert passed == [("a", 1)]


@pytest.mark.parametrize("back", [False, True])
def test_a_block_in_a_transaction_by_hand_is_delivered_when_autocommit_is_on_again(
    back: bool,
) -> None:
    transaction.set_autocommit(False)
    try:
        with transaction.atomic():
            save("a")
        assert passed == []
        (transaction.rollback if back else transaction.commit)()
        assert passed == []
    finally:
        transaction.set_autocommit(True)
    assert passed == ([] if back else [("a", 1)])


# Commands and threads


class Command(BaseCommand):
    """A command as projects have them."""

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--fail", action="store_true")

    def handle(self, *, fail: bool, **options: Any) -> None:
        save("autocommit")
        with transaction.atomic():
            save("block")
            if fail:
                raise Undo


class InTransaction(Command):
    """A command in a transaction as a whole."""

    @transaction.atomic
    def handle(self, *, fail: bool, **options: Any) -> None:
        super().handle(fail=fail, **options)
        assert passed == []


def test_a_management_command_is_as_any_code() -> None:
    call_command(Command())
    assert passed == [("autocommit", 1), ("block", 1)]
    with pytest.raises(Undo):
        call_command(Command(), fail=True)
    assert passed[2:] == [("autocommit", 1)]
    passed.clear()
    with pytest.raises(Undo):
        call_command(InTransaction(), fail=True)
    assert passed == []
    call_command(InTransaction())
    assert passed == [("autocommit", 1), ("block", 1)]


def test_each_thread_has_its_own_transaction() -> None:
    inside, go_on = threading.Barrier(3, timeout=20), threading.Event()
    item = save("row")
    passed.clear()

    def work(back: bool) -> None:
        try:
            inside.wait()
            assert go_on.wait(20)
            with transaction.atomic():
                Item.objects.select_for_update().get(pk=item.pk).save()
                transaction.set_rollback(back)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(work, back) for back in (True, False)]
        inside.wait()
        with transaction.atomic(durable=True):
            Group.objects.count()
            assert passed == []
        go_on.set()
        for future in futures:
            future.result(20)
    assert passed == [("row", 1)], "of the one that committed, in spite of the others"


# What it costs


@only_bytes
def test_a_thousand_saves_of_a_row_are_one_event_and_two_round_trips(wire: Wire) -> None:
    with transaction.atomic():
        item = save("a")
        for number in range(999):
            with transaction.atomic(savepoint=number % 10 == 0):
                item.save()
        assert wire.heard() == []
    assert passed == [("a", 1000)]
    assert wire.heard() == HOLD


@only_bytes
def test_a_thousand_rows_for_the_worker_are_a_handful_of_round_trips(
    wire: Wire, server: Server, settings: Any
) -> None:
    settings.RECHECK = {**settings.RECHECK, "DISPATCH": "worker"}
    with transaction.atomic():
        rows = [save(str(number)) for number in range(1000)]
        for row in rows[:100]:
            row.save()
    assert len(wire.heard()) <= 5
    assert passed == []
    assert views.counts(store.current())["note"].due == 1000
    worker.drain(limit=20)
    assert {count for _, count in passed} <= {1, 2}
    with server.client as client:  # of this module alone
        client.flushall()
