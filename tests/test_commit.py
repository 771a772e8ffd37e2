"""Events are delivered after the commit of the database that they come from, once."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections, transaction
from django.db.models.signals import post_delete, post_save
from django.dispatch import Signal, receiver
from django.test import TestCase

from django_recheck import Outcome, Receiver, recheck, store, views, worker
from tests.app.models import Group, Item

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@pytest.fixture
def calls() -> list[Any]:
    return []


@pytest.fixture
def note(calls: list[Any]) -> Receiver[..., Any]:
    @receiver([post_save, post_delete], sender=Item)
    @recheck(name="note")
    def note(sender: Any, instance: Item, recheck_pass: Any, **kwargs: Any) -> None:
        open_ = [c.alias for c in connections.all() if c.in_atomic_block]
        calls.append((instance.pk, recheck_pass.event_count, kwargs["using"], open_))

    return note


def stored() -> dict[str, views.Counts]:
    return views.counts(store.current())


def test_c37_work_starts_after_the_commit(note: Receiver[..., Any], calls: list[Any]) -> None:
    with transaction.atomic():
        item = Item.objects.create(name="a")
        with transaction.atomic():
            item.save()
        assert calls == []
    assert calls == [(item.pk, 2, "default", [])]


def test_c38_nothing_is_in_redis_before_the_commit(
    note: Receiver[..., Any], calls: list[Any]
) -> None:
    with transaction.atomic():
        Item.objects.create(name="a")
        assert stored() == {}
        transaction.set_rollback(True)
    assert (calls, stored()) == ([], {})


def test_c40_a_savepoint_takes_only_its_own_events(
    note: Receiver[..., Any], calls: list[Any]
) -> None:
    with transaction.atomic():
        kept = Item.objects.create(name="kept")
        with transaction.atomic():
            Item.objects.create(name="undone")
            transaction.set_rollback(True)
    assert [call[0] for call in calls] == [kept.pk]


def test_c41_the_key_is_taken_when_the_signal_fires(
    note: Receiver[..., Any], calls: list[Any]
) -> None:
    item = Item.objects.create(name="a")
    pk = item.pk
    del calls[:]
    with transaction.atomic():
        item.delete()
        assert item.pk is None
    assert [call[0] for call in calls] == [pk]


@pytest.mark.parametrize(("mine", "open_one"), [("other", "default"), ("default", "other")])
def test_c42_the_signals_own_database_counts(
    note: Receiver[..., Any], calls: list[Any], mine: str, open_one: str
) -> None:
    with transaction.atomic(using=mine):
        item = Item.objects.using(mine).create(name="a")
        with transaction.atomic(using=open_one):
            pass
        assert calls == [], "the other database's commit isn't ours"
    assert calls == [(item.pk, 1, mine, [])]


def test_c39_no_pass_runs_while_another_database_is_in_a_transaction(
    note: Receiver[..., Any], calls: list[Any]
) -> None:
    with transaction.atomic(using="default"):
        Group.objects.create(name="holds the transaction open")
        with transaction.atomic(using="other"):
            item = Item.objects.using("other").create(name="a")
        assert calls == []
        assert stored()["note"].due == 1, "recorded, so that nothing can lose it any more"
    assert calls == [(item.pk, 1, "other", [])]
    assert stored() == {}


def test_what_a_rollback_elsewhere_keeps_from_running_stays_pending(
    note: Receiver[..., Any], calls: list[Any]
) -> None:
    with transaction.atomic(using="default"):
        Item.objects.using("other").create(name="a")
        transaction.set_rollback(True, using="default")
    assert calls == []
    assert worker.drain().items == 1
    assert len(calls) == 1


def test_the_same_row_of_two_databases_is_two_items(
    note: Receiver[..., Any], calls: list[Any]
) -> None:
    Item.objects.using("default").create(pk=1, name="a")
    Item.objects.using("other").create(pk=1, name="a")
    assert [(call[0], call[2]) for call in calls] == [(1, "default"), (1, "other")]


def test_c43_other_callbacks_that_raise_stop_nothing(
    note: Receiver[..., Any], calls: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise LookupError("another app's")

    later = []
    with transaction.atomic():
        transaction.on_commit(fail, robust=True)
        Item.objects.create(name="a")
        transaction.on_commit(lambda: later.append(1))
    assert len(calls) == 1
    assert later == [1]


def test_c43_a_receiver_that_raises_stops_no_callback(caplog: pytest.LogCaptureFixture) -> None:
    later = []

    @receiver(post_save, sender=Item)
    @recheck(name="fails")
    def fails(sender: Any, **kwargs: Any) -> None:
        raise LookupError("ours")

    with transaction.atomic():
        Item.objects.create(name="a")
        transaction.on_commit(lambda: later.append(1))
    assert later == [1]
    assert "LookupError: ours" in caplog.text


def test_a_thousand_saves_of_a_row_are_one_delivery(
    note: Receiver[..., Any], calls: list[Any]
) -> None:
    item = Item.objects.create(name="a")
    del calls[:]
    with transaction.atomic():
        for _ in range(1000):
            item.save()
    assert calls == [(item.pk, 1000, "default", [])]


def test_autocommit_switched_off_by_hand_is_refused(note: Receiver[..., Any]) -> None:
    transaction.set_autocommit(False)
    try:
        with pytest.raises(transaction.TransactionManagementError, match="switched off by hand"):
            Item.objects.create(name="a")
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


def test_a_custom_signal_opens_no_connection() -> None:
    probe, calls = Signal(), []

    @receiver(probe)
    @recheck(key=lambda **_: 1, name="no-database")
    def run(sender: Any, **kwargs: Any) -> None:
        calls.append(1)

    connections["default"].close()
    outcome: Any
    ((_, outcome),) = probe.send(sender=None)
    assert outcome is Outcome.RAN
    assert connections["default"].connection is None


class CaptureTests(TestCase):
    """A TestCase's own transaction is no open transaction; its callbacks run when captured."""

    def test_c44_captures_deliver_once(self) -> None:
        calls: list[Any] = []

        @receiver(post_save, sender=Item)
        @recheck(name="captured")
        def note(sender: Any, instance: Item, recheck_pass: Any, **kwargs: Any) -> None:
            calls.append((instance.name, recheck_pass.event_count))

        with self.captureOnCommitCallbacks(execute=True) as outer:
            Item.objects.create(name="a")
            with self.captureOnCommitCallbacks(execute=True):
                Item.objects.create(name="b")
            assert calls == [("b", 1)]
        assert calls == [("b", 1), ("a", 1)]
        assert len(outer) == 2
        Item.objects.create(name="never committed")
        assert len(calls) == 2
