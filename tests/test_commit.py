"""Events are delivered after the commit of the database that they come from, once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.models.signals import post_delete, post_save
from django.dispatch import Signal, receiver

from django_recheck import Outcome, Receiver, recheck, store, views, worker
from tests.app.models import Group, Item
from tests.servers import of_the_run

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


def seen_from_outside(pk: int) -> bool:
    """Say whether another connection sees a row."""

    def look() -> bool:
        try:
            return Item.objects.filter(pk=pk).exists()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(look).result(20)


def test_c37_work_starts_after_the_commit(note: Receiver[..., Any], calls: list[Any]) -> None:
    seen = []

    @receiver(post_save, sender=Item)
    @recheck(name="from-outside")
    def look(sender: Any, instance: Item, **kwargs: Any) -> None:
        seen.append(seen_from_outside(instance.pk))

    with transaction.atomic():
        item = Item.objects.create(name="a")
        with transaction.atomic():
            item.save()
        assert calls == seen == []
    assert calls == [(item.pk, 2, "default", [])]
    assert seen == [True]


@pytest.mark.parametrize("back", [False, True])
def test_c38_redis_hears_nothing_before_the_commit(
    note: Receiver[..., Any], calls: list[Any], back: bool
) -> None:
    with of_the_run().client as client:
        client.ping()

        def commands() -> int:
            return int(client.info("stats")["total_commands_processed"])

        with transaction.atomic():
            before = commands()
            item = Item.objects.create(name="a")
            item.save()
            item.delete()
            with transaction.atomic():
                Item.objects.create(name="b")
            assert commands() == before + 1, "the asking itself"
            transaction.set_rollback(back)
        assert (commands() == before + 2) is back
    assert len(calls) == (0 if back else 2)
    assert stored() == {}


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


@pytest.mark.parametrize("own_block", [False, True])
@pytest.mark.parametrize(("mine", "open_one"), [("other", "default"), ("default", "other")])
def test_c39_no_pass_runs_while_another_database_is_in_a_transaction(
    note: Receiver[..., Any], calls: list[Any], mine: str, open_one: str, own_block: bool
) -> None:
    with transaction.atomic(using=open_one):
        Group.objects.using(open_one).create(name="holds the transaction open")
        with transaction.atomic(using=mine) if own_block else nullcontext():
            item = Item.objects.using(mine).create(name="a")
        assert calls == []
        assert stored()["note"].due == 1, "recorded, so that nothing can lose it any more"
    assert calls == [(item.pk, 1, mine, [])]
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


def misconfigured(settings: Any) -> None:
    settings.RECHECK = {**settings.RECHECK, "PREFIX": "{braces}"}


def away(settings: Any) -> None:
    cache = {**settings.CACHES["recheck"], "LOCATION": "redis://127.0.0.1:1/0"}
    settings.CACHES = {**settings.CACHES, "away": cache}
    settings.RECHECK = {**settings.RECHECK, "CACHE": "away", "BREAKER": 0}


@pytest.mark.parametrize("policy", ["run", "skip"])
@pytest.mark.parametrize("fault", [misconfigured, away])
def test_c43_whatever_is_wrong_with_ours_stops_no_callback(
    settings: Any, caplog: pytest.LogCaptureFixture, fault: Callable[[Any], None], policy: str
) -> None:
    calls, later = [], []

    @receiver(post_save, sender=Item)
    @recheck(name="wrong", on_redis_error=policy)
    def wrong(sender: Any, instance: Item, **kwargs: Any) -> None:
        calls.append(instance.pk)

    with transaction.atomic():
        item = Item.objects.create(name="a")
        transaction.on_commit(lambda: later.append(1))
        fault(settings)
    assert later == [1]
    assert caplog.records
    assert calls == ([item.pk] if (fault, policy) == (away, "run") else [])


def test_what_ran_unlocked_is_owed_one_pass_when_redis_is_back(settings: Any) -> None:
    calls, here = [], settings.RECHECK

    @receiver(post_save, sender=Item)
    @recheck(name="owed")
    def owed(sender: Any, instance: Item, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append((instance.pk, recheck_pass.fence > 0))

    away(settings)
    first, second = (Item.objects.create(name=name) for name in "ab")
    assert calls == [(first.pk, False), (second.pk, False)], "once each, as long as it is away"
    settings.RECHECK = here
    third = Item.objects.create(name="c")
    assert calls[2:] == [(third.pk, True), (first.pk, True), (second.pk, True)]
    assert stored() == {}


@pytest.mark.parametrize("own_block", [False, True])
def test_raise_exceptions_raise_in_the_block_that_commits(settings: Any, own_block: bool) -> None:
    settings.RECHECK = {**settings.RECHECK, "RAISE_EXCEPTIONS": True}

    @receiver(post_save, sender=Item)
    @recheck(name="fails", backoff=(60, 60))
    def fails(sender: Any, instance: Item, **kwargs: Any) -> None:
        raise LookupError(instance.name)

    def save_two() -> None:
        with transaction.atomic(using="other"):
            with transaction.atomic() if own_block else nullcontext():
                Item.objects.create(name="tried when the other one commits")
            Item.objects.using("other").create(name="b")

    with pytest.raises(LookupError, match="b"):
        save_two()
    assert Item.objects.using("other").count() == 1, "the commit is done"
    assert stored()["fails"].due == 2, "and nothing is lost"


def test_a_thousand_saves_of_a_row_are_one_delivery(
    note: Receiver[..., Any], calls: list[Any]
) -> None:
    item = Item.objects.create(name="a")
    del calls[:]
    with of_the_run().client as client:
        before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
        with transaction.atomic():
            for _ in range(1000):
                item.save()
        after = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert calls == [(item.pk, 1000, "default", [])]
    assert after - before == 2


def test_a_thousand_rows_are_recorded_in_a_few_commands() -> None:
    @receiver(post_save, sender=Item)
    @recheck(name="note", dispatch="worker")
    def note(sender: Any, **kwargs: Any) -> None: ...

    Item.objects.create(name="makes the script known")
    with of_the_run().client as client:
        before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
        with transaction.atomic():
            for _ in range(1000):
                Item.objects.create(name="a")
        after = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert stored()["note"].due == 1001
    assert after - before == 1000 / store.CHUNK


def test_autocommit_switched_off_by_hand_is_refused(note: Receiver[..., Any]) -> None:
    transaction.set_autocommit(False)
    try:
        with pytest.raises(transaction.TransactionManagementError, match="switched off by hand"):
            Item.objects.create(name="a")
        with pytest.raises(transaction.TransactionManagementError, match="switched off by hand"):
            note.recheck_many([1])
        assert views.counts(store.current()) == {}
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


def test_a_database_with_autocommit_switched_off_counts_as_open(
    note: Receiver[..., Any], calls: list[Any]
) -> None:
    transaction.set_autocommit(False, using="other")
    try:
        Item.objects.create(name="a")
        assert (calls, stored()["note"].due) == ([], 1)
    finally:
        transaction.rollback(using="other")
        transaction.set_autocommit(True, using="other")
    assert worker.drain().items == len(calls) == 1


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
