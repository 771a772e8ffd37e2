"""``event_during_pass``: a second pass for certain, and receivers that don't cope with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from django.db.models import Sum
from django.db.models.signals import post_save
from django.db.transaction import TransactionManagementError
from django.test import TestCase
from redis.exceptions import RedisError

from django_recheck import Receiver, current_pass, recheck
from django_recheck.testing import event_during_pass, immediate, override, recorded
from tests.app.models import Group, Item

both = pytest.mark.parametrize(
    "mode",
    [
        pytest.param("commits", marks=pytest.mark.django_db(transaction=True)),
        pytest.param("never commits", marks=pytest.mark.django_db),
    ],
)
"""As a TransactionTestCase, and as a TestCase."""
db = pytest.mark.django_db(transaction=True)


def total_of(group_id: int) -> int:
    found = Item.objects.filter(group=group_id).aggregate(total=Sum("value"))["total"]
    return int(found or 0)


def good(recheck_pass: Any, **kwargs: Any) -> None:
    Group.objects.filter(pk=recheck_pass.key).update(total=total_of(recheck_pass.key))


async def good_async(recheck_pass: Any, **kwargs: Any) -> None:
    found = Item.objects.filter(group=recheck_pass.key)
    total = (await found.aaggregate(total=Sum("value")))["total"]
    await Group.objects.filter(pk=recheck_pass.key).aupdate(total=total)


cache: dict[int, Any] = {}


def remembers_the_first_total(recheck_pass: Any, **kwargs: Any) -> None:
    total = cache.setdefault(recheck_pass.key, total_of(recheck_pass.key))
    Group.objects.filter(pk=recheck_pass.key).update(total=total)


def remembers_the_first_instance(instance: Any, recheck_pass: Any, **kwargs: Any) -> None:
    first = cache.setdefault(recheck_pass.key, instance)
    Group.objects.filter(pk=recheck_pass.key).update(total=first.value)


def works_once(recheck_pass: Any, **kwargs: Any) -> None:
    if recheck_pass.number == 1:
        good(recheck_pass)


def adds_up(instance: Any, recheck_pass: Any, **kwargs: Any) -> None:
    group = Group.objects.get(pk=recheck_pass.key)
    group.total += instance.value
    group.save()


def keep_total(func: Callable[..., Any], **options: Any) -> Receiver[..., Any]:
    cache.clear()
    decorated = recheck(name="total", key="group_id", **options)(func)
    post_save.connect(decorated, sender=Item)
    return decorated


def proved(total: Receiver[..., Any], group: Group, values: tuple[int, ...] = (20, 300)) -> bool:
    """Do what a user's test does; return whether the total is right after two passes."""

    def change() -> None:
        for value in values:
            Item.objects.create(group=group, value=value)

    with event_during_pass(total, change) as passes:
        Item.objects.create(group=group, value=1)
    assert [run.number for run in passes] == [1, 2]
    assert [run.event_count for run in passes] == [1, len(values)]
    assert recorded(total) == []
    group.refresh_from_db()
    return group.total == 1 + sum(values)


@both
@pytest.mark.parametrize("func", [good, good_async])
def test_a_receiver_that_rebuilds_copes(mode: str, func: Any) -> None:
    assert proved(keep_total(func), Group.objects.create())


@both
@pytest.mark.parametrize(
    "func", [remembers_the_first_total, remembers_the_first_instance, works_once, adds_up]
)
def test_a_receiver_that_doesnt_rebuild_is_found_out(mode: str, func: Any) -> None:
    assert not proved(keep_total(func), Group.objects.create())


@db
@pytest.mark.parametrize(
    "options",
    [
        {"dispatch": "worker"},
        {"dispatch": "immediate"},
        {"delay": 60, "max_wait": 70},
        {"max_passes": 1},
        {"inline_budget": 0},
    ],
)
def test_whatever_the_receivers_options_are_two_passes_run_at_once(options: Any) -> None:
    total = keep_total(good, **options)
    assert proved(total, Group.objects.create())
    assert (total.func, total.options.value(next(iter(options)).upper())) == (
        good,
        next(iter(options.values())),
    )


@both
def test_it_runs_in_a_suite_that_is_immediate(mode: str) -> None:
    total = keep_total(good)
    with immediate():
        assert proved(total, Group.objects.create())


@both
def test_the_change_comes_from_elsewhere_and_not_out_of_the_pass(mode: str) -> None:
    total, group = keep_total(good), Group.objects.create()
    seen: list[Any] = []

    def change() -> None:
        seen.append(current_pass())
        Item.objects.create(group=group, value=2)

    with event_during_pass(total, change) as passes:
        Item.objects.create(group=group, value=1)
    assert seen == [None]
    assert [run.grant.own for run in passes if run.grant] == [False, False]


@pytest.mark.django_db
@pytest.mark.parametrize("captured", [False, True])
def test_other_callbacks_of_the_commit_run_once(captured: bool) -> None:
    total, group = keep_total(good), Group.objects.create()
    ran: list[int] = []

    def create(value: int) -> None:
        with transaction.atomic():
            Item.objects.create(group=group, value=value)
            transaction.on_commit(partial(ran.append, value))

    def block() -> None:
        with event_during_pass(total, partial(create, 2)) as passes:
            create(1)
        assert len(passes) == 2

    if captured:
        with TestCase.captureOnCommitCallbacks(execute=True):
            create(0)
            block()
            assert ran == [2, 1]
    else:
        block()
    assert ran == [2, 1, *([0] if captured else [])]


@pytest.mark.django_db(databases=["default", "other"])
def test_it_commits_every_database_of_a_testcase() -> None:
    total, group = keep_total(good), Group.objects.using("other").create()

    def create(value: int) -> None:
        Item.objects.using("other").create(group=group, value=value)

    with event_during_pass(total, partial(create, 2)) as passes:
        create(1)
    assert [run.event_count for run in passes] == [1, 1]


@db
def test_only_the_item_of_the_first_pass_counts() -> None:
    total = keep_total(good)
    one, two = Group.objects.create(), Group.objects.create()
    with event_during_pass(total, lambda: Item.objects.create(group=one, value=2)) as passes:
        Item.objects.create(group=one, value=1)
        Item.objects.create(group=two, value=5)
    assert [run.key for run in passes] == [one.pk, one.pk]
    assert (total_of(one.pk), total_of(two.pk)) == (3, 5)


# What is no proof


@both
def test_no_pass_at_all_is_no_proof(mode: str) -> None:
    with (
        pytest.raises(AssertionError, match="total had no pass: nothing in the block sent it"),
        event_during_pass(keep_total(good), Group.objects.create),
    ):
        Group.objects.create()


@both
def test_a_change_of_another_key_is_no_proof(mode: str) -> None:
    total = keep_total(good)
    one, two = Group.objects.create(), Group.objects.create()
    with (
        pytest.raises(AssertionError, match=f"total had one pass for {one.pk}, not two"),
        event_during_pass(total, lambda: Item.objects.create(group=two)),
    ):
        Item.objects.create(group=one)
    with pytest.raises(AssertionError, match="not two"), event_during_pass(total, lambda: None):
        Item.objects.create(group=one)


def raises(recheck_pass: Any, **kwargs: Any) -> None:
    raise ValueError(f"in pass {recheck_pass.number}")


async def raises_async(recheck_pass: Any, **kwargs: Any) -> None:
    raise ValueError(f"in pass {recheck_pass.number}")


def raises_in_the_second_pass(recheck_pass: Any, **kwargs: Any) -> None:
    if recheck_pass.number == 2:
        raise ValueError("in pass 2")


@both
@pytest.mark.parametrize(
    ("func", "number"), [(raises, 1), (raises_async, 1), (raises_in_the_second_pass, 2)]
)
def test_what_the_receiver_raises_comes_out_of_the_block(mode: str, func: Any, number: int) -> None:
    total, group = keep_total(func), Group.objects.create()
    with pytest.raises(ValueError, match=f"in pass {number}"):
        proved(total, group)
    assert total.func is func


@both
@pytest.mark.parametrize("func", [good, good_async])
def test_what_the_change_raises_comes_out_of_the_block(mode: str, func: Any) -> None:
    total, group = keep_total(func), Group.objects.create()

    def change() -> None:
        raise LookupError("the test's own mistake")

    with pytest.raises(LookupError, match="own mistake"), event_during_pass(total, change):
        Item.objects.create(group=group)
    assert recorded(total) == []


@both
def test_what_the_block_raises_comes_out_of_it(mode: str) -> None:
    total = keep_total(good)
    with (
        pytest.raises(LookupError, match="in the block"),
        event_during_pass(total, lambda: None),
    ):
        raise LookupError("in the block")
    assert total.func is good


@db
def test_it_is_refused_in_a_transaction_which_may_stand_in_its_block() -> None:
    total, group = keep_total(good), Group.objects.create()
    with (
        transaction.atomic(),
        pytest.raises(TransactionManagementError, match="Put the transaction into its block"),
        event_during_pass(total, lambda: None),
    ):
        pass
    with event_during_pass(total, lambda: Item.objects.create(group=group)) as passes:
        with transaction.atomic():
            Item.objects.create(group=group)
        assert len(passes) == 2


def test_it_takes_a_decorated_receiver() -> None:
    with (
        pytest.raises(TypeError, match="that @recheck decorates"),
        event_during_pass(good, lambda: None),  # type: ignore[arg-type]
    ):
        pass


@db
def test_without_redis_it_says_so(settings: Any) -> None:
    total, group = keep_total(good), Group.objects.create()
    settings.CACHES = {
        **settings.CACHES,
        "away": {**settings.CACHES["recheck"], "LOCATION": "redis://127.0.0.1:1/0"},
    }
    with override(CACHE="away"), pytest.raises(RedisError):
        proved(total, group)
