"""The public names as a type checker sees them: the examples of README and docs, typed.

Nothing here is run. ``mypy --strict`` reads it, and reports an ignored error that isn't one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, assert_type

from django.db.models import Model, Sum
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver
from django.test import TestCase
from shop.models import Order, OrderLine, Product

from django_recheck import (
    EventError,
    LockLost,
    Outcome,
    Pass,
    Receiver,
    RecheckError,
    current_pass,
    recheck,
)
from django_recheck.routers import PassRouter
from django_recheck.testing import (
    Recorded,
    drain,
    event_during_pass,
    immediate,
    isolated,
    override,
    recorded,
)

# Bare


@recheck
def bare(sender: type[Product], instance: Product, **kwargs: Any) -> int:
    return instance.pk


class Bare(Protocol):
    """The signature that ``bare`` was written with."""

    def __call__(self, sender: type[Product], instance: Product, **kwargs: Any) -> int: ...


bare_func: Bare = bare.func
assert_type(bare.func(Product, Product()), int)
bare.func(Product, Order())  # type: ignore[arg-type]
assert_type(bare(Product, Product()), Outcome)
bare(Product, 5)  # type: ignore[arg-type]

# With options


@recheck(key="order_id", name="order-total", ttl=60, backoff=(1, 60), max_wait=None)
def optioned(sender: type[OrderLine], recheck_pass: Pass, **kwargs: Any) -> None:
    assert_type(recheck_pass.number, int)


class Optioned(Protocol):
    """The signature that ``optioned`` was written with."""

    def __call__(self, sender: type[OrderLine], recheck_pass: Pass, **kwargs: Any) -> None: ...


optioned_func: Optioned = optioned.func
recheck(tll=60)  # type: ignore[call-overload]
recheck(ttl="60")  # type: ignore[call-overload]
recheck(key=42)  # type: ignore[call-overload]
recheck("order_id")  # type: ignore[call-overload]

# Under @receiver


@receiver([post_save, post_delete], sender=OrderLine)
@recheck(key="order_id", name="order-total")
def refresh_order_total(sender: Any, recheck_pass: Pass, **kwargs: Any) -> None:
    order_id = recheck_pass.key
    lines = OrderLine.objects.filter(order_id=order_id)
    total = lines.aggregate(total=Sum("price"))["total"] or 0
    Order.objects.filter(pk=order_id).update(total=total)


class Refresh(Protocol):
    """The signature that ``refresh_order_total`` was written with."""

    def __call__(self, sender: Any, recheck_pass: Pass, **kwargs: Any) -> None: ...


refresh_func: Refresh = refresh_order_total.func
refresh_receiver: Receiver[..., None] = refresh_order_total


@receiver(post_save, sender=Product)
@recheck
def under_receiver(sender: Any, instance: Product, **kwargs: Any) -> None: ...


assert_type(under_receiver.func(None, Product()), None)
under_receiver.func(None, "tea")  # type: ignore[arg-type]

# Keys and the other callables


def both_orders(instance: OrderLine, **kwargs: Any) -> set[int]:
    return instance.whereabouts()


def some_key(sender: Any, instance: Model, **kwargs: Any) -> tuple[int, str] | None:
    return None


@recheck(keys=both_orders)
def of_both(sender: Any, **kwargs: Any) -> None: ...


@recheck(
    key=some_key,
    former_names=["shop.signals.of_one"],
    carry=("price",),
    data=lambda instance, **kwargs: {"total": instance.total},
    queryset=lambda rows: rows.select_related("order"),
)
async def of_one(sender: Any, **kwargs: Any) -> None: ...


def no_keys(instance: OrderLine, **kwargs: Any) -> int:
    return instance.order_id


recheck(keys=no_keys)  # type: ignore[arg-type]

# By hand


def by_hand(line: OrderLine, order_ids: Iterable[int]) -> None:
    assert_type(refresh_order_total.recheck(line), Outcome)
    assert_type(refresh_order_total.recheck(key=42), Outcome)
    assert_type(refresh_order_total.recheck(key=(7, "de"), using="archive"), Outcome)
    assert_type(refresh_order_total.recheck_many(order_ids), int)
    refresh_order_total.recheck(42)  # type: ignore[arg-type]
    refresh_order_total.recheck_many(42)  # type: ignore[arg-type]
    assert_type(refresh_order_total.name, str)
    assert_type(refresh_order_total.options.ttl, float)


# In a pass


def in_a_pass() -> None:
    run = current_pass()
    assert_type(run, Pass | None)
    run.ensure_held()  # type: ignore[union-attr]
    if run is None:
        return
    assert_type(run.number, int)
    assert_type(run.event_count, int)
    assert_type(run.merged, tuple[tuple[str, str, str], ...])
    assert_type(run.signals, frozenset[str])
    assert_type(run.attempt, int)
    assert_type(run.fence, int)
    assert_type(run.gone, bool)
    assert_type(run.deadline, float)
    assert_type(run.lost, bool)
    try:
        run.ensure_held()
    except LockLost as error:
        base: RecheckError = error
        raise base from None


not_an_event: type[TypeError] = EventError


def attention(outcome: Outcome) -> bool:
    match outcome:
        case Outcome.FAILED | Outcome.DEAD | Outcome.LEASE_LOST:
            return True
        case _:
            return False


# Tests of one's own


def in_a_test(line: OrderLine) -> None:
    with isolated(), override(TTL=5), immediate():
        line.save()
    assert_type(drain(delayed=True).passes, int)
    assert_type(drain(raising=False).outcomes[Outcome.RAN], int)
    assert_type(recorded(refresh_order_total), list[Recorded])
    with event_during_pass(refresh_order_total, line.save) as passes:
        assert_type(passes, list[Pass])
    event_during_pass(refresh_order_total)  # type: ignore[call-arg]
    recorded(refresh_func)  # type: ignore[arg-type]


@isolated()
@override(DISPATCH="inline")
class SomeTests(TestCase):
    @immediate()
    def test_it(self) -> None: ...


assert_type(SomeTests(), SomeTests)
some_router: str | None = PassRouter().db_for_read(Order)

decorate: Callable[[Callable[..., None]], Receiver[..., None]] = recheck(name="later")
