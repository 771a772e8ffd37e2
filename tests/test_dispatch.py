"""Who runs the passes: the committing thread within its budget, a worker, or the signal itself."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.db import transaction
from django.db.models.signals import post_save
from django.dispatch import Signal, receiver

from django_recheck import Outcome, current_pass, recheck, store, views, worker
from tests.app.models import Item

pytestmark = pytest.mark.django_db(transaction=True)


def outcomes(signal: Signal, **named: Any) -> list[Any]:
    return [outcome for _, outcome in signal.send(**named)]


def test_inline_runs_in_the_committing_thread() -> None:
    threads = []

    @receiver(post_save, sender=Item)
    @recheck
    def note(sender: Any, **kwargs: Any) -> None:
        threads.append(threading.current_thread())

    with transaction.atomic():
        Item.objects.create(name="a")
        assert threads == []
    assert threads == [threading.current_thread()]


def test_worker_only_records() -> None:
    calls = []

    @receiver(post_save, sender=Item)
    @recheck(dispatch="worker", name="later")
    def note(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append(recheck_pass.event_count)

    item = Item.objects.create(name="a")
    item.save()
    assert calls == []
    assert views.counts(store.current())["later"].due == 1
    assert worker.drain().items == 1
    assert calls == [2]


def test_a_delayed_event_is_recorded_for_later() -> None:
    calls = []
    probe = Signal()

    @receiver(probe)
    @recheck(key=lambda **_: 1, delay=60, name="delayed")
    def note(sender: Any, **kwargs: Any) -> None:
        calls.append(1)

    assert outcomes(probe, sender=None) == [Outcome.PENDING]
    assert worker.drain().items == 0
    (view,) = views.page(store.current(), "delayed", "due")
    assert view.record is not None
    assert view.record.ready - view.record.last == 60_000
    assert calls == []


def test_c60_immediate_needs_neither_redis_nor_commit(settings: Any) -> None:
    settings.RECHECK = {**settings.RECHECK, "CACHE": "nowhere", "DISPATCH": "immediate"}
    calls = []

    @receiver(post_save, sender=Item)
    @recheck
    def note(sender: Any, instance: Item, recheck_pass: Any, created: bool, **kwargs: Any) -> None:
        calls.append((instance, recheck_pass.key, created))
        assert current_pass() is recheck_pass

    with transaction.atomic():
        item = Item.objects.create(name="a")
        assert calls == [(item, item.pk, True)]
        assert calls[0][0] is item


def test_immediate_lets_exceptions_through(settings: Any) -> None:
    settings.RECHECK = {**settings.RECHECK, "DISPATCH": "immediate"}

    @receiver(post_save, sender=Item)
    @recheck
    def note(sender: Any, **kwargs: Any) -> None:
        raise LookupError("as without the decorator")

    with pytest.raises(LookupError):
        Item.objects.create(name="a")


def test_the_outcome_that_needs_most_attention_is_returned() -> None:
    probe = Signal()

    @receiver(probe)
    @recheck(keys=lambda **_: [1, 2, 3])
    def note(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        if recheck_pass.key == 2:
            raise ValueError("this one fails")

    assert outcomes(probe, sender=None) == [Outcome.FAILED]


def test_all_items_are_recorded_before_the_first_pass() -> None:
    waiting = []

    @receiver(post_save, sender=Item)
    @recheck(name="recorded-first")
    def note(sender: Any, **kwargs: Any) -> None:
        counts = views.counts(store.current(), ["recorded-first"])["recorded-first"]
        waiting.append(counts.due + counts.running)

    with transaction.atomic():
        for number in range(3):
            Item.objects.create(name=str(number))
    assert waiting == [3, 2, 1]


def test_what_the_budget_leaves_stays_pending() -> None:
    calls = []

    @receiver(post_save, sender=Item)
    @recheck(inline_budget=0, name="no-budget")
    def note(sender: Any, instance: Item, **kwargs: Any) -> None:
        calls.append(instance.pk)

    with transaction.atomic():
        rows = [Item.objects.create(name=str(number)) for number in range(3)]
    assert calls == []
    assert worker.drain().items == 3
    assert sorted(calls) == [row.pk for row in rows]


def test_raise_exceptions_raises_after_all_has_run(settings: Any) -> None:
    settings.RECHECK = {**settings.RECHECK, "RAISE_EXCEPTIONS": True}
    calls = []

    @receiver(post_save, sender=Item)
    @recheck(name="raises")
    def note(sender: Any, instance: Item, **kwargs: Any) -> None:
        calls.append(instance.name)
        raise ValueError(instance.name)

    def save_two() -> None:
        with transaction.atomic():
            Item.objects.create(name="a")
            Item.objects.create(name="b")

    with pytest.raises(ValueError, match="a"):
        save_two()
    assert calls == ["a", "b"]


def test_in_a_running_loop_the_pass_runs_beside_it() -> None:
    probe, done, threads = Signal(), threading.Event(), []

    @receiver(probe)
    @recheck(key=lambda **_: 1, name="beside")
    def note(sender: Any, **kwargs: Any) -> None:
        threads.append(threading.current_thread())
        done.set()

    async def send() -> list[Outcome]:
        return outcomes(probe, sender=None)

    assert asyncio.run(send()) == [Outcome.PENDING]
    assert done.wait(10)
    assert threads[0] is not threading.current_thread()
    threads[0].join(10)


def test_c51_an_async_receiver_runs_under_send_and_asend() -> None:
    probe, calls = Signal(), []

    @receiver(probe)
    @recheck(key=lambda **_: 1, name="coroutine")
    async def note(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        await asyncio.sleep(0)
        calls.append(current_pass() is recheck_pass)

    assert outcomes(probe, sender=None) == [Outcome.RAN]

    async def send() -> list[Any]:
        return [outcome for _, outcome in await probe.asend(sender=None)]

    assert asyncio.run(send()) == [Outcome.RAN]
    assert calls == [True, True]


def test_c60_immediate_also_by_hand(settings: Any) -> None:
    settings.RECHECK = {**settings.RECHECK, "CACHE": "nowhere", "DISPATCH": "immediate"}
    calls = []

    @receiver(post_save, sender=Item)
    @recheck(name="immediate-by-hand")
    def note(sender: Any, instance: Item, **kwargs: Any) -> None:
        calls.append(instance.pk)

    Item.objects.bulk_create([Item(name="a"), Item(name="b")])
    first, second = Item.objects.order_by("pk")
    assert note.recheck(key=first.pk) is Outcome.RAN
    assert note.recheck(second) is Outcome.RAN
    assert note.recheck(key=0) is Outcome.GONE
    assert note.recheck_many([first, second.pk]) == 2
    assert calls == [first.pk, second.pk] * 2


def test_all_items_of_one_event_are_recorded_before_one_raises(settings: Any) -> None:
    settings.RECHECK = {**settings.RECHECK, "RAISE_EXCEPTIONS": True}
    probe, calls = Signal(), []

    @receiver(probe)
    @recheck(keys=lambda **_: [1, 2], name="several-keys")
    def note(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        counts = views.counts(store.current(), ["several-keys"])["several-keys"]
        calls.append((recheck_pass.key, counts.due + counts.running))
        raise LookupError(recheck_pass.key)

    with pytest.raises(LookupError, match="1"):
        probe.send(sender=None)
    assert [key for key, _ in calls] == [1, 2]
    assert calls[0][1] == 2, "both stood recorded"


@pytest.mark.parametrize("dispatch", ["inline", "worker"])
def test_what_a_newer_version_has_runs_unlocked_and_stays_owed(
    dispatch: str, caplog: pytest.LogCaptureFixture
) -> None:
    probe, calls = Signal(), []

    @receiver(probe)
    @recheck(key="value", dispatch=dispatch, name="older")
    def older(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append((recheck_pass.key, recheck_pass.fence > 0))

    current = store.current()
    records = current.lane("older", 0).keys[0]
    for item in "12":
        current.client.hset(records, item, "2 whatever")
    for _ in range(2):
        assert outcomes(probe, sender=None, value=1) == [Outcome.UNLOCKED]
    assert older.recheck_many([2, 3]) == 2
    assert calls == [(1, False)] * 2
    assert [r.levelname for r in caplog.records if "newer version" in r.getMessage()] == ["ERROR"]

    current.client.hdel(records, "1", "2")  # done there, without these events
    outcomes(probe, sender=None, value=4)
    worker.drain()
    assert sorted(calls[2:]) == [(1, True), (2, True), (3, True), (4, True)]
