"""``recheck_many()``: whatever can be gone through, in as much memory as one batch needs."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from django.db import transaction
from django.db.models.signals import post_save
from django.dispatch import receiver

from django_recheck import Receiver, recheck, store, views, worker
from tests.app.models import Item

pytestmark = pytest.mark.django_db(transaction=True)
BATCH = 500


@pytest.fixture(autouse=True)
def smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make batches small."""
    monkeypatch.setattr(store, "CHUNK", BATCH // 10)


@pytest.fixture
def keys() -> list[Any]:
    """The keys of all passes."""
    return []


@pytest.fixture
def follow(keys: list[Any]) -> Receiver[..., Any]:
    @receiver(post_save, sender=Item)
    @recheck(name="many", dispatch="worker")
    def follow(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        keys.append(recheck_pass.key)

    return follow


def due() -> int:
    found = views.counts(store.current())
    return found["many"].due if found else 0


@pytest.fixture
def items() -> list[Item]:
    return [Item.objects.create(name=str(n)) for n in range(7)]


KINDS: dict[str, Callable[[list[Item]], Iterable[Any]]] = {
    "queryset": lambda items: Item.objects.all(),
    "sliced": lambda items: Item.objects.order_by("pk")[:7],
    "prefetching": lambda items: Item.objects.prefetch_related("group"),
    "pks": lambda items: Item.objects.values_list("pk", flat=True),
    "iterator": lambda items: Item.objects.iterator(),
    "rows": lambda items: items,
    "texts": lambda items: [str(item.pk) for item in items],
    "generator": lambda items: (item.pk for item in items),
    "set": lambda items: {item.pk for item in items},
    "raw": lambda items: Item.objects.raw(f"select * from {Item._meta.db_table}"),
    "twice": lambda items: [*items, *items],
}


@pytest.mark.parametrize("kind", KINDS)
def test_c50_whatever_can_be_gone_through(
    follow: Receiver[..., Any], keys: list[Any], items: list[Item], kind: str
) -> None:
    worker.drain()
    keys.clear()
    assert follow.recheck_many(KINDS[kind](items)) == 7
    worker.drain()
    assert sorted(keys) == [item.pk for item in items]


@pytest.mark.parametrize("kind", ["keys", "queryset"])
def test_memory_is_that_of_a_batch(follow: Receiver[..., Any], kind: str) -> None:
    number = 3 * BATCH
    if kind == "queryset":
        Item.objects.bulk_create(Item(name="a" * 50) for _ in range(number))

    def targets(number: int) -> Iterable[Any]:
        return range(number) if kind == "keys" else Item.objects.order_by("pk")[:number]

    def peak(number: int) -> int:
        gc.collect()
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        assert follow.recheck_many(targets(number)) == number
        return tracemalloc.get_traced_memory()[1] - before

    tracemalloc.start()
    try:
        peak(BATCH)  # what is made once isn't counted
        one, three = peak(BATCH), peak(number)
    finally:
        tracemalloc.stop()
    assert three < 1.3 * one
    assert due() == number


def test_a_batch_is_recorded_before_the_next_one_is_asked_for(follow: Receiver[..., Any]) -> None:
    seen = []

    def targets() -> Iterator[int]:
        for number in range(2 * BATCH + 1):
            if number % BATCH == 0:
                seen.append(due())
            yield number

    assert follow.recheck_many(targets()) == 2 * BATCH + 1
    assert seen == [0, BATCH, 2 * BATCH]


def test_in_a_transaction_nothing_is_recorded_before_its_commit(
    follow: Receiver[..., Any], items: list[Item]
) -> None:
    worker.drain()
    with transaction.atomic():
        assert follow.recheck_many(Item.objects.all()) == 7
        with transaction.atomic():
            follow.recheck_many([10**6])
            transaction.set_rollback(True)
        assert due() == 0
    assert due() == 7
