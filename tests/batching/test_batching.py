"""``batch()``: many transactions, one word an item at the end."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction
from django.db.models.signals import post_save
from django.dispatch import Signal, receiver

from django_recheck import Outcome, Receiver, batch, batching, recheck, worker
from tests.app.models import Group, Item

from . import fill, waiting

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


def test_c65_many_transactions_are_one_event_of_each_item(
    total: Receiver[..., Any], calls: list[Any], groups: list[Group]
) -> None:
    with batch():
        fill(groups)
        assert (calls, waiting()) == ([], {})
    assert calls == [(group.pk, 3) for group in groups]
    assert waiting() == {}


def test_without_a_transaction_the_event_says_that_it_waits(
    total: Receiver[..., Any], calls: list[Any], groups: list[Group]
) -> None:
    with batch():
        row = Item(pk=1, group=groups[0])
        answers: Any = post_save.send(Item, instance=row, created=True)
        assert answers == [(total, Outcome.AFTER_COMMIT)]
        assert total.recheck(key=groups[0].pk) is Outcome.AFTER_COMMIT
        assert calls == []
    assert calls == [(groups[0].pk, 2)]


def test_what_is_rolled_back_is_no_event(
    total: Receiver[..., Any], calls: list[Any], groups: list[Group]
) -> None:
    with batch():
        fill(groups[:1], 1)
        with transaction.atomic():
            fill(groups)
            transaction.set_rollback(True)
    assert calls == [(groups[0].pk, 1)]


def test_inside_of_another_the_outer_one_delivers(
    total: Receiver[..., Any], calls: list[Any], groups: list[Group]
) -> None:
    with batch():
        fill(groups[:1], 1)
        with batch():
            fill(groups[:1], 1)
        with pytest.raises(ZeroDivisionError), batch():
            fill(groups[:1], 1 // 0)
        assert (calls, waiting()) == ([], {})
    assert calls == [(groups[0].pk, 2)]


def test_a_transaction_that_outlives_it_delivers_at_its_own_commit(
    total: Receiver[..., Any], calls: list[Any], groups: list[Group]
) -> None:
    with transaction.atomic():
        with batch():
            fill(groups)
        assert (calls, waiting()) == ([], {})
    assert calls == [(group.pk, 3) for group in groups]


def test_at_its_end_in_an_open_transaction_passes_wait_for_that_one(
    total: Receiver[..., Any], calls: list[Any], groups: list[Group]
) -> None:
    with transaction.atomic(using="other"):
        with batch():
            fill(groups)
        assert (calls, waiting()) == ([], {"total": 2})
    assert sorted(calls) == [(group.pk, 3) for group in groups]


def test_more_items_than_it_keeps_are_recorded_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    probe, seen = Signal(), []

    @receiver(probe)
    @recheck(key=lambda number, **_: number, name="many")
    def many(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        seen.append(recheck_pass.key)

    monkeypatch.setattr(batching, "LARGEST", 10)
    with batch():
        for number in range(25):
            probe.send(sender=None, number=number)
        assert (seen, waiting()) == ([], {"many": 22})
    assert seen == [22, 23, 24]
    worker.drain()
    assert sorted(seen) == list(range(25))


def test_in_bulk_is_recorded_at_once(total: Receiver[..., Any], calls: list[Any]) -> None:
    with batch():
        assert total.recheck_many([1, 2, 3]) == 3
        assert waiting() == {"total": 3}
    assert calls == []


def test_own_events_stay_with_their_pass(groups: list[Group]) -> None:
    seen = []

    @receiver(post_save, sender=Group)
    @recheck(name="touch")
    def touch(sender: Any, instance: Group, recheck_pass: Any, **kwargs: Any) -> None:
        seen.append((instance.pk, recheck_pass.number))
        with batch():
            instance.save()

    groups[0].save()
    assert seen == [(groups[0].pk, 1), (groups[0].pk, 2)]
    assert waiting() == {}


def test_what_a_pass_batches_is_delivered_when_its_block_ends(
    total: Receiver[..., Any], calls: list[Any], groups: list[Group]
) -> None:
    seen = []

    @receiver(post_save, sender=Group)
    @recheck(name="fill", dispatch="worker")
    def refill(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        with batch():
            fill(groups)
            seen.append(list(calls))

    groups[0].save()
    worker.drain()
    assert seen == [[]]
    assert calls == [(group.pk, 3) for group in groups]
