"""Async receivers, and receivers in event loops: who runs them, in which pass, and what waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import DatabaseError, connections, transaction
from django.db.models.signals import post_save
from django.db.transaction import TransactionManagementError
from django.dispatch import Signal, receiver

from django_recheck import Outcome, Pass, current_pass, recheck, store, views, worker
from tests.app.models import Item
from tests.loops import beating, run, until, wait_for

pytestmark = pytest.mark.django_db(transaction=True)
IMMEDIATE = {"CACHE": "nowhere", "DISPATCH": "immediate"}


@pytest.fixture
def probe() -> Signal:
    return Signal()


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    assert views.counts(store.current()) == {}
    assert current_pass() is None


# The ways to send


async def request(signal: Signal, **named: Any) -> Any:
    """Send in a thread of its own, as requests do with Django's handler."""
    async with ThreadSensitiveContext():
        return await signal.asend(sender=None, **named)


async def in_a_loop(send: Callable[[], Any]) -> Any:
    return send()


SENDING: dict[str, Callable[[Signal], Any]] = {
    "send": lambda signal: signal.send(sender=None),
    "send_robust": lambda signal: signal.send_robust(sender=None),
    "send in a loop": lambda signal: run(in_a_loop(lambda: signal.send(sender=None))),
    "send_robust in a loop": lambda signal: run(in_a_loop(lambda: signal.send_robust(sender=None))),
    "asend": lambda signal: run(signal.asend(sender=None)),
    "asend_robust": lambda signal: run(signal.asend_robust(sender=None)),
}


@pytest.mark.parametrize("way", SENDING)
def test_c51_every_receiver_is_run_by_every_way_to_send(probe: Signal, way: str) -> None:
    passes: dict[str, Any] = {}

    def note(name: str, recheck_pass: Pass) -> None:
        assert current_pass() is recheck_pass
        passes[name] = recheck_pass

    @receiver(probe)
    @recheck(key=lambda **_: 1, name="sync")
    def one(sender: Any, recheck_pass: Pass, **kwargs: Any) -> None:
        note("sync", recheck_pass)

    @receiver(probe)
    @recheck(key=lambda **_: 1, name="async")
    async def other(sender: Any, recheck_pass: Pass, **kwargs: Any) -> None:
        await asyncio.sleep(0)
        note("async", recheck_pass)

    @receiver(probe)
    def plain(sender: Any, **kwargs: Any) -> str:
        assert current_pass() is None
        return "plain"

    found = dict(SENDING[way](probe))
    beside = way.endswith("in a loop")
    expected = Outcome.PENDING if beside else Outcome.RAN
    assert found == {one: expected, other: expected, plain: "plain"}
    wait_for(lambda: passes.keys() == {"sync", "async"} and not views.counts(store.current()))


def test_plain_async_receivers_run_beside_ours(probe: Signal) -> None:
    @receiver(probe)
    @recheck(key=lambda **_: 1, name="ours")
    async def ours(sender: Any, **kwargs: Any) -> None: ...

    @receiver(probe)
    async def plain(sender: Any, **kwargs: Any) -> str:
        assert current_pass() is None
        return "plain"

    expected = {ours: Outcome.RAN, plain: "plain"}
    assert dict(probe.send(sender=None)) == expected
    assert dict(run(probe.asend(sender=None))) == expected


@pytest.mark.parametrize("robust", [False, True])
def test_a_receiver_that_raises_has_failed_and_is_tried_again(probe: Signal, robust: bool) -> None:
    attempts = []

    @receiver(probe)
    @recheck(key=lambda **_: 1, name="fails", backoff=(0.001, 0.001))
    async def fails(sender: Any, recheck_pass: Pass, **kwargs: Any) -> None:
        attempts.append(recheck_pass.attempt)
        if len(attempts) == 1:
            raise LookupError

    send = probe.asend_robust if robust else probe.asend
    assert run(send(sender=None)) == [(fails, Outcome.FAILED)]
    wait_for(lambda: worker.drain().items)
    assert attempts == [1, 2]


@pytest.mark.parametrize("atomic", [False, True])
def test_rows_saved_in_a_loop_are_read_by_the_pass_after_the_commit(atomic: bool) -> None:
    names = []

    @receiver(post_save, sender=Item)
    @recheck(name="saved")
    async def saved(sender: Any, instance: Item, **kwargs: Any) -> None:
        found = await Item.objects.aget(pk=instance.pk)
        names.append((instance.name, found.name, connections["default"].in_atomic_block))

    def save() -> None:
        with transaction.atomic():
            Item.objects.create(name="a").save()
            assert names == []

    async def main() -> None:
        if atomic:
            await sync_to_async(save)()
        else:
            item = await Item.objects.acreate(name="a")
            item.name = "b"
            await item.asave()

    run(main())
    assert names == ([("a", "a", False)] if atomic else [("a", "a", False), ("b", "b", False)])


# Nothing blocks the loop


@pytest.mark.parametrize("way", ["asend", "send", "asave", "atomic"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_pass_lets_the_loop_go_on(probe: Signal, way: str, is_async: bool) -> None:
    seen: list[bool] = []

    async def main() -> None:
        async with beating() as heart:
            if is_async:

                @recheck(key=lambda **_: 1, name="long")
                async def long(sender: Any, **kwargs: Any) -> None:
                    seen.append(await asyncio.to_thread(heart.goes_on))
            else:

                @recheck(key=lambda **_: 1, name="long")
                def long(sender: Any, **kwargs: Any) -> None:
                    seen.append(heart.goes_on())

            probe.connect(long)
            post_save.connect(long, sender=Item)
            if way == "asend":
                await probe.asend(sender=None)
            elif way == "send":
                probe.send(sender=None)
            elif way == "asave":
                await Item.objects.acreate(name="a")
            else:
                await sync_to_async(transaction.atomic(Item.objects.create))(name="a")
            await until(lambda: seen)

    run(main())
    assert seen == [True]


def test_an_event_on_a_held_item_lets_the_loop_go_on(probe: Signal) -> None:
    numbers, go_on = [], threading.Event()

    @receiver(probe)
    @recheck(key=lambda **_: 1, name="held")
    async def held(sender: Any, recheck_pass: Pass, **kwargs: Any) -> None:
        numbers.append(recheck_pass.number)
        await until(go_on.is_set)

    async def main() -> None:
        first = asyncio.create_task(request(probe))
        await until(lambda: numbers)
        assert await request(probe) == [(held, Outcome.COALESCED)]
        go_on.set()
        assert await first == [(held, Outcome.RAN)]

    run(main())
    assert numbers == [1, 2]


# Each task and each thread has its own pass


async def everywhere(expected: Pass | None) -> None:
    """Look from the task, from its children, and from threads that it asks."""

    async def child() -> None:
        await asyncio.sleep(0)
        assert current_pass() is expected

    await asyncio.gather(child(), child())
    assert await asyncio.to_thread(current_pass) is expected
    assert await sync_to_async(current_pass)() is expected
    assert current_pass() is expected


def test_passes_at_the_same_time_are_each_their_own(probe: Signal) -> None:
    inside: set[int] = set()

    @receiver(probe)
    @recheck(key="value", name="parallel")
    async def parallel(sender: Any, recheck_pass: Pass, **kwargs: Any) -> None:
        inside.add(recheck_pass.key)
        await until(lambda: len(inside) == 3)
        await everywhere(recheck_pass)

    async def one(value: int) -> Any:
        found = await request(probe, value=value)
        await everywhere(None)
        return found

    async def main() -> Any:
        return await asyncio.gather(*map(one, range(3)))

    assert run(main()) == [[(parallel, Outcome.RAN)]] * 3


def test_a_pass_within_a_pass_gives_it_back(probe: Signal) -> None:
    passes = []

    @receiver(probe)
    @recheck(key="value", name="nested")
    async def nested(sender: Any, recheck_pass: Pass, **kwargs: Any) -> None:
        passes.append((recheck_pass.key, recheck_pass.number))
        if recheck_pass.key == 1 and recheck_pass.number == 1:
            assert await request(probe, value=2) == [(nested, Outcome.RAN)]
            await everywhere(recheck_pass)
            assert await request(probe, value=1) == [(nested, Outcome.COALESCED)]
            await everywhere(recheck_pass)

    assert run(request(probe, value=1)) == [(nested, Outcome.RAN)]
    assert passes == [(1, 1), (2, 1), (1, 2)]


# Immediately, in a running loop


def test_what_an_async_receiver_has_open_beside_a_loop_is_closed(
    probe: Signal, settings: Any
) -> None:
    settings.RECHECK = {**settings.RECHECK, **IMMEDIATE}
    used = []

    def query() -> None:
        Item.objects.count()
        used.append(connections["default"])

    @receiver(probe)
    @recheck(key=lambda **_: 1, name="queries")
    async def queries(sender: Any, **kwargs: Any) -> None:
        await sync_to_async(query)()

    for _ in range(3):
        run(in_a_loop(lambda: probe.send(sender=None)))
    assert len(used) == 3
    assert [connection.connection for connection in used] == [None] * 3


def test_a_transaction_that_it_leaves_open_there_is_told(probe: Signal, settings: Any) -> None:
    settings.RECHECK = {**settings.RECHECK, **IMMEDIATE}

    def leave() -> None:
        transaction.atomic().__enter__()
        Item.objects.create(name="a")

    @receiver(probe)
    @recheck(key=lambda **_: 1, name="leaves")
    async def leaves(sender: Any, **kwargs: Any) -> None:
        await sync_to_async(leave)()

    with pytest.raises(TransactionManagementError, match="'default' open, which was rolled back"):
        run(in_a_loop(lambda: probe.send(sender=None)))
    assert not Item.objects.exists()


def test_errors_come_out_of_the_sending_as_they_are(probe: Signal, settings: Any) -> None:
    settings.RECHECK = {**settings.RECHECK, **IMMEDIATE}
    error = DatabaseError("the receiver's")

    @receiver(probe)
    @recheck(key=lambda **_: 1, name="raises")
    async def raises(sender: Any, **kwargs: Any) -> None:
        raise error from LookupError()

    sending: list[Callable[[], Awaitable[Any]]] = [
        lambda: in_a_loop(lambda: probe.send(sender=None)),
        lambda: probe.asend(sender=None),
    ]
    for send in sending:
        with pytest.raises(DatabaseError) as raised:
            run(send())  # type: ignore[arg-type]
        assert raised.value is error
        assert isinstance(error.__cause__, LookupError)


def test_a_time_limit_of_the_sender_is_one_also_immediately(probe: Signal, settings: Any) -> None:
    settings.RECHECK = {**settings.RECHECK, **IMMEDIATE}
    inside, ended = threading.Event(), []

    @receiver(probe)
    @recheck(key=lambda **_: 1, name="stays")
    async def stays(sender: Any, **kwargs: Any) -> None:
        inside.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(current_pass())

    async def main() -> None:
        async with asyncio.timeout(None) as limit:
            sending = asyncio.ensure_future(probe.asend(sender=None))
            await until(inside.is_set)
            limit.reschedule(0)
            await sending

    with pytest.raises(TimeoutError):
        run(main())
    assert len(ended) == 1
