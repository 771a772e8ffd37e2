"""An async receiver that is cancelled is over before its lock is given up, and loses no event."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import transaction
from django.db.models.signals import post_save
from django.dispatch import Signal, receiver

from django_recheck import Outcome, Receiver, recheck, store, views, worker
from tests.app.models import Item
from tests.loops import run, until, wait_for

pytestmark = pytest.mark.django_db(transaction=True)
SOON = (0.001, 0.001)
Body = Callable[["Struck"], Awaitable[None]]


class TimeLimit(Exception):
    """What a worker's soft time limit raises, wherever the thread is."""


class Struck:
    """A receiver of one item whose first pass is interrupted, and what was seen of it."""

    def __init__(self, body: Body, **options: Any) -> None:
        self.signal = Signal()
        self.log: list[str] = []
        self.attempts: list[tuple[int, int]] = []
        self.inside = threading.Event()
        self.go_on = threading.Event()

        @receiver(self.signal)
        @recheck(key=lambda **_: 1, name="struck", backoff=SOON, **options)
        async def struck(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
            self.attempts.append((recheck_pass.attempt, recheck_pass.event_count))
            if len(self.attempts) > 1:
                return
            self.log.append("begins")
            try:
                await body(self)
            finally:
                self.log.append("ends, held" if held() else "ends, without its lock")

        self.receiver: Receiver[..., Any] = struck

    async def stay(self) -> None:
        """Be inside until the pass is interrupted."""
        self.inside.set()
        await asyncio.sleep(60)

    def drained(self) -> None:
        """Drain what is left, and find the event there, and the attempt counted."""
        wait_for(lambda: worker.drain().items)
        assert self.attempts == [(1, 1), (2, 1)]
        assert views.counts(store.current()) == {}


def held() -> bool:
    return views.counts(store.current())["struck"].running == 1


@pytest.fixture
def strike() -> Iterator[Callable[[BaseException], None]]:
    """Raise something in the main thread, in the middle of what it does."""
    raised: list[BaseException] = []

    def raise_it(number: int, frame: FrameType | None) -> None:
        if raised:
            raise raised.pop()

    def strike(error: BaseException) -> None:
        raised.append(error)
        while raised:  # a signal just before a wait doesn't end it
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            time.sleep(0.01)

    before = signal.signal(signal.SIGUSR1, raise_it)
    yield strike
    signal.signal(signal.SIGUSR1, before)


# What a receiver may do when it is cancelled


async def simply(struck: Struck) -> None:
    await struck.stay()


async def in_a_timeout(struck: Struck) -> None:
    async with asyncio.timeout(60):
        await struck.stay()


async def in_a_group(struck: Struck) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(struck.stay())
        group.create_task(asyncio.sleep(60))


async def with_an_end_of_its_own(struck: Struck) -> None:
    try:
        await struck.stay()
    finally:
        await asyncio.sleep(0.05)
        assert held()


async def with_a_query_at_the_end(struck: Struck) -> None:
    try:
        await struck.stay()
    finally:
        await Item.objects.acreate(name="written at the end")
        await sync_to_async(held)()


BODIES = [simply, in_a_timeout, in_a_group, with_an_end_of_its_own, with_a_query_at_the_end]
bodies = pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)


async def catching(struck: Struck) -> None:
    """Catch the first cancellation, as code does that takes it for its own, and stay."""
    try:
        await struck.stay()
    except asyncio.CancelledError:
        struck.log.append("catches")
    struck.go_on.set()
    await asyncio.sleep(60)


# The sending task is cancelled


@bodies
@pytest.mark.parametrize("robust", [False, True])
def test_a_cancelled_sender_cancels_the_pass_and_waits_for_its_end(
    body: Body, robust: bool
) -> None:
    struck = Struck(body)

    async def send() -> None:
        send = struck.signal.asend_robust if robust else struck.signal.asend
        sending = asyncio.create_task(send(sender=None))
        await until(struck.inside.is_set)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert struck.log[-1] == "ends, held"
        await until(lambda: not held())

    run(send())
    assert struck.log == ["begins", "ends, held"]
    struck.drained()


def test_a_time_limit_of_the_sender_is_a_cancellation() -> None:
    struck = Struck(simply)

    async def send() -> None:
        async with asyncio.timeout(None) as limit:
            sending = asyncio.ensure_future(struck.signal.asend(sender=None))
            await until(struck.inside.is_set)
            limit.reschedule(0)
            await sending

    with pytest.raises(TimeoutError):
        run(send())
    assert struck.log == ["begins", "ends, held"]
    struck.drained()


def test_a_sender_cancelled_twice_cancels_twice() -> None:
    struck = Struck(catching)

    async def send() -> None:
        sending = asyncio.create_task(struck.signal.asend(sender=None))
        await until(struck.inside.is_set)
        sending.cancel()
        await until(struck.go_on.is_set)
        assert held()
        assert not sending.done()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending

    run(send())
    assert struck.log == ["begins", "catches", "ends, held"]
    struck.drained()


def test_a_loop_that_ends_cancels_the_pass_and_waits_for_its_end() -> None:
    struck = Struck(with_a_query_at_the_end)

    async def leave() -> None:
        struck.sending = asyncio.create_task(  # type: ignore[attr-defined]
            struck.signal.asend(sender=None)
        )
        await until(struck.inside.is_set)

    run(leave())
    wait_for(lambda: not held())
    assert struck.log == ["begins", "ends, held"]
    struck.drained()


def test_a_cancelled_save_in_a_transaction_keeps_its_event_and_all_callbacks() -> None:
    inside, attempts, later = threading.Event(), [], []

    @receiver(post_save, sender=Item)
    @recheck(name="saved", backoff=SOON)
    async def saved(sender: Any, instance: Item, recheck_pass: Any, **kwargs: Any) -> None:
        attempts.append((recheck_pass.attempt, instance.name))
        if not inside.is_set():
            inside.set()
            await asyncio.sleep(60)

    def save() -> None:
        with transaction.atomic():
            Item.objects.create(name="a")
            transaction.on_commit(lambda: later.append(1))

    async def main() -> None:
        saving = asyncio.create_task(sync_to_async(save)())
        await until(inside.is_set)
        saving.cancel()
        await asyncio.wait([saving])

    run(main())
    assert (Item.objects.count(), later) == (1, [1]), "and no callback is left out"
    wait_for(lambda: worker.drain().items)
    assert attempts == [(1, "a"), (2, "a")]


def test_a_receiver_that_cancels_itself_has_failed() -> None:
    async def cancel(struck: Struck) -> None:
        raise asyncio.CancelledError

    struck = Struck(cancel)
    ((_, outcome),) = struck.signal.send(sender=None)
    assert outcome is Outcome.FAILED  # type: ignore[comparison-overlap]
    struck.drained()


# The sending thread is struck


def striking(struck: Struck, strike: Callable[[BaseException], None], *errors: Any) -> None:
    """Strike the main thread whenever the receiver has said that it is there."""

    def run() -> None:
        for error, there in zip(errors, [struck.inside, struck.go_on], strict=False):
            assert there.wait(20)
            strike(error)

    threading.Thread(target=run).start()


def here(struck: Struck) -> Any:
    return struck.receiver.recheck(key=1)


def in_a_drain_of_a_loop(struck: Struck) -> Any:
    """Run the pass in the thread of a running loop."""
    struck.receiver.recheck_many([1])

    async def drain() -> Any:
        (outcome,) = worker.drain(limit=1).outcomes
        return outcome

    return run(drain())


places = pytest.mark.parametrize("place", [here, in_a_drain_of_a_loop])


@bodies
@places
def test_a_struck_thread_cancels_the_pass_and_waits_for_its_end(
    body: Body, place: Callable[[Struck], Any], strike: Any
) -> None:
    struck = Struck(body)
    striking(struck, strike, TimeLimit())
    assert place(struck) is Outcome.FAILED
    assert struck.log == ["begins", "ends, held"]
    struck.drained()


@places
@pytest.mark.parametrize("second", [TimeLimit, KeyboardInterrupt])
@pytest.mark.parametrize("first", [TimeLimit, KeyboardInterrupt])
def test_each_further_strike_cancels_again_and_what_ends_the_process_is_raised(
    first: Any, second: Any, place: Callable[[Struck], Any], strike: Any
) -> None:
    struck = Struck(catching)
    striking(struck, strike, first(), second())
    if KeyboardInterrupt in (first, second):
        with pytest.raises(KeyboardInterrupt):
            place(struck)
    else:
        assert place(struck) is Outcome.FAILED
    assert struck.log == ["begins", "catches", "ends, held"]
    struck.drained()


def test_a_query_of_a_receiver_that_is_struck_is_struck(strike: Any) -> None:
    """A thread that waits for a receiver runs what that one calls by sync_to_async()."""

    async def query(struck: Struck) -> None:
        def stay() -> None:
            struck.inside.set()
            time.sleep(60)

        await sync_to_async(stay)()

    struck = Struck(query)
    striking(struck, strike, TimeLimit())
    assert here(struck) is Outcome.FAILED
    assert struck.log == ["begins", "ends, held"]
    struck.drained()
