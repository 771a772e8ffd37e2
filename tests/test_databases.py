"""Several databases at once: each commit is its own, and no pass runs while one is open."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.models.signals import post_save
from django.dispatch import receiver

from django_recheck import Outcome, recheck, store, views, worker
from tests.app.models import Item

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])
BOTH = ("default", "other")
ENDINGS = list(itertools.product([True, False], repeat=2))
"""Whether each of two commits."""
in_both_orders = pytest.mark.parametrize(("outer", "inner"), [BOTH, BOTH[::-1]])

passed: list[str] = []


@pytest.fixture(autouse=True)
def _note() -> Iterator[None]:
    passed.clear()

    @receiver(post_save, sender=Item)
    @recheck(name="note")
    def note(sender: Any, instance: Item, using: str, **kwargs: Any) -> None:
        assert not any(c.in_atomic_block for c in connections.all(initialized_only=True))
        assert instance._state.db == using
        assert Item.objects.using(using).filter(pk=instance.pk).exists()
        passed.append(f"{instance.name} of {using}")

    yield
    assert views.counts(store.current()) == {}


def save(name: str, using: str) -> Item:
    return Item.objects.using(using).create(name=name)


def owed() -> int:
    counts = views.counts(store.current())
    return counts["note"].due if counts else 0


@in_both_orders
@pytest.mark.parametrize(("outer_ends", "inner_ends"), ENDINGS)
def test_c39_each_commits_or_rolls_back_by_itself(
    outer: str, inner: str, outer_ends: bool, inner_ends: bool
) -> None:
    with transaction.atomic(using=outer):
        save("a", outer)
        with transaction.atomic(using=inner):
            save("b", inner)
            save("c", outer)
            transaction.set_rollback(not inner_ends, using=inner)
        assert (passed, owed()) == ([], int(inner_ends)), "committed, and recorded"
        save("d", outer)
        transaction.set_rollback(not outer_ends, using=outer)
    ours = [f"{name} of {outer}" for name in "acd"] if outer_ends else []
    theirs = [f"b of {inner}"] if inner_ends else []
    if not outer_ends:  # nothing has committed that it could follow
        assert (passed, owed()) == ([], len(theirs))
        worker.drain()
    assert sorted(passed) == sorted(ours + theirs)


def test_an_error_that_goes_through_both_leaves_nothing() -> None:
    outer, inner = BOTH

    def fail() -> None:
        with transaction.atomic(using=outer), transaction.atomic(using=inner):
            save("a", outer)
            save("b", inner)
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert (passed, owed()) == ([], 0)


@in_both_orders
def test_one_row_of_each_with_the_same_key_is_two_items(outer: str, inner: str) -> None:
    with transaction.atomic(using=outer), transaction.atomic(using=inner):
        for using in (outer, inner):
            Item.objects.using(using).create(pk=7, name="same").save()
    assert sorted(passed) == ["same of default", "same of other"]


@in_both_orders
def test_blocks_may_end_in_the_order_in_which_they_began(outer: str, inner: str) -> None:
    first, second = transaction.atomic(using=outer), transaction.atomic(using=inner)
    with ExitStack() as stack:
        first.__enter__()
        stack.enter_context(second)
        save("a", outer)
        save("b", inner)
        first.__exit__(None, None, None)
        assert (passed, owed()) == ([], 1), "the other one is open"
    assert sorted(passed) == sorted([f"a of {outer}", f"b of {inner}"])


@in_both_orders
def test_a_savepoint_that_is_rolled_back_leaves_the_others_event_to_a_drain(
    outer: str, inner: str
) -> None:
    with transaction.atomic(using=outer):
        with transaction.atomic(using=outer):
            save("a", outer)
            with transaction.atomic(using=inner):
                save("b", inner)
            transaction.set_rollback(True, using=outer)
        save("c", outer)
    assert (passed, owed()) == ([f"c of {outer}"], 1)
    assert worker.drain().items == 1
    assert passed[1:] == [f"b of {inner}"]


def test_a_transaction_that_only_reads_is_open_too() -> None:
    outer, inner = BOTH
    with transaction.atomic(using=outer):
        Item.objects.using(outer).count()
        save("a", inner)
        assert (passed, owed()) == ([], 1)
    assert passed == [f"a of {inner}"]


def test_by_hand_the_database_may_be_named() -> None:
    outer, inner = BOTH

    @recheck(key=lambda **_: 1, name="by-hand")
    def by_hand(recheck_pass: Any, **kwargs: Any) -> None:
        passed.append(f"{recheck_pass.key} of {kwargs['using']}")

    with transaction.atomic(using=inner):
        assert by_hand.recheck(key=1, using=inner) is Outcome.AFTER_COMMIT
        assert by_hand.recheck(key=1, using=outer) is Outcome.PENDING
        assert by_hand.recheck_many([2, 3], using=inner) == 2
    assert sorted(passed) == ["1 of default", "1 of other"]
    assert worker.drain().items == 2
    assert passed[2:] == [f"{key} of {inner}" for key in (2, 3)]


def test_a_transaction_within_a_pass_is_its_own() -> None:
    outer, inner = BOTH
    seen: list[Any] = []

    @receiver(post_save, sender=Item)
    @recheck(name="writes")
    def writes(sender: Any, instance: Item, using: str, **kwargs: Any) -> None:
        if using == outer:
            with transaction.atomic(using=inner):
                save("from the pass", inner)
                seen.append(list(passed))
        else:
            seen.append(instance.name)

    with transaction.atomic(using=outer):
        save("a", outer)
    assert f"from the pass of {inner}" in passed
    assert "from the pass" in seen
    assert f"from the pass of {inner}" not in seen[0]
