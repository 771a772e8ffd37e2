"""How a ``batch()`` ends: by an exception, an interrupt, in a fork, in tasks and decorators."""

from __future__ import annotations

import asyncio
import contextvars
import linecache
import os
import sys
import threading
from collections.abc import Generator, Iterator
from types import FrameType
from typing import Any, ClassVar

import pytest
from django.dispatch import Signal, receiver

from django_recheck import (
    Outcome,
    Receiver,
    batch,
    batching,
    dispatch,
    outage,
    recheck,
    store,
    views,
    worker,
)
from tests.app.models import Group
from tests.servers import Server

from . import fill, waiting

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


def test_an_exception_leaves_what_was_committed_recorded(
    total: Receiver[..., Any], calls: list[Any], groups: list[Group]
) -> None:
    def import_some() -> None:
        with batch():
            fill(groups)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        import_some()
    assert (calls, waiting()) == ([], {"total": 2})
    worker.drain()
    assert sorted(calls) == [(group.pk, 3) for group in groups]
    fill(groups[:1], 1)
    assert calls[2:] == [(groups[0].pk, 1)], "the batch is over"


def test_an_exception_isnt_hidden_by_redis_being_away(groups: list[Group], server: Server) -> None:
    probe = Signal()

    for policy in ("raise", "skip", "run"):

        @receiver(probe, weak=False)
        @recheck(key=lambda **_: 1, name=policy, on_redis_error=policy)
        def never(sender: Any, **kwargs: Any) -> None: ...

    server.end()

    def import_some() -> None:
        with batch():
            probe.send(sender=None)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        import_some()
    assert sorted(ready.item.receiver for ready in outage.owing()) == ["raise", "run"]


def test_tasks_and_their_threads_are_in_it_other_threads_arent(
    calls: list[Any],
) -> None:
    probe = Signal()

    @receiver(probe)
    @recheck(key=lambda number, **_: number, name="each")
    def each(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append((recheck_pass.key, recheck_pass.event_count))

    async def task(number: int) -> None:
        for _ in range(20):
            probe.send(sender=None, number=number)
            await asyncio.to_thread(probe.send, sender=None, number=0)

    async def tasks() -> None:
        await asyncio.gather(task(1), task(2))

    with batch():
        asyncio.run(tasks())
        assert calls == []
        stranger = threading.Thread(target=lambda: probe.send(sender=None, number=3))
        context = contextvars.Context()
        context.run(stranger.start)
        stranger.join(20)
        assert calls == [(3, 1)]
    assert sorted(calls[1:]) == [(0, 40), (1, 20), (2, 20)]


def test_a_task_that_outlives_it_delivers_by_itself(calls: list[Any]) -> None:
    probe = Signal()

    @receiver(probe)
    @recheck(key=lambda **_: 1, name="late")
    def late(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append(recheck_pass.event_count)

    with batch():
        left_behind = contextvars.copy_context()
        probe.send(sender=None)
    assert calls == [1]
    answers: Any = left_behind.run(probe.send, sender=None)
    assert answers == [(late, Outcome.RAN)]
    assert calls == [1, 1]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_delivers_its_own_events_alone(calls: list[Any]) -> None:
    probe = Signal()

    @receiver(probe)
    @recheck(key=lambda number, **_: number, name="forked", dispatch="worker")
    def forked(sender: Any, **kwargs: Any) -> None: ...

    child = 0
    try:
        with batch():
            probe.send(sender=None, number=1)
            child = os.fork()
            if not child:
                probe.send(sender=None, number=2)
            else:
                _, status = os.waitpid(child, 0)
                assert status == 0
                assert waiting() == {"forked": 1}
    except BaseException:
        if not child:
            os._exit(1)
        raise
    if not child:
        os._exit(0)
    assert waiting() == {"forked": 2}


def test_it_decorates_a_coroutine_function(total: Receiver[..., Any], calls: list[Any]) -> None:
    @batch()
    async def ask() -> Outcome:
        await asyncio.sleep(0)
        return total.recheck(key=1)

    assert asyncio.run(ask()) is Outcome.AFTER_COMMIT
    assert calls == [(1, 1)]


def test_a_generator_isnt_decorated() -> None:
    async def asynchronous() -> Any:
        yield

    def plain() -> Iterator[None]:
        yield

    for func in (asynchronous, plain):
        with pytest.raises(TypeError, match="Write `with batch"):
            batch()(func)


class Struck(BaseException):
    """What a time limit raises, say, wherever the thread is."""


class Strike:
    """Raises at the n-th line of the modules that care for events.

    But where the line of a ``with`` comes again, at its end: there no signal is looked at.
    """

    HERE: ClassVar = {module.__file__ for module in (batching, dispatch, outage, store)}

    def __init__(self, line: int) -> None:
        self.left = line
        self.withs: set[tuple[FrameType, int]] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in self.HERE:
            return None
        if event == "line" and (frame, frame.f_lineno) not in self.withs:
            self.left -= 1
            source = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            if source.lstrip().startswith("with "):
                self.withs.add((frame, frame.f_lineno))
            if self.left == 0:
                raise Struck
        return self


@pytest.mark.parametrize("first", range(8))
def test_an_interrupt_at_its_end_leaves_the_events_owed_or_recorded(first: int) -> None:
    probe = Signal()

    @receiver(probe)
    @recheck(key=lambda number, **_: number, name="many", dispatch="worker")
    def many(sender: Any, **kwargs: Any) -> None: ...

    for line in range(2 + first, 2000, 8):  # from the first on that stands inside the block's end
        strike = Strike(line)
        try:
            with batch():
                probe.send(sender=None, number=1)
                probe.send(sender=None, number=2)
                sys.settrace(strike)
                sys._getframe().f_trace = None
            sys.settrace(None)
        except Struck:
            sys.settrace(None)
            known = {ready.item.text for ready in outage.owing()}
            known |= {view.item.text for view in views.page(store.current(), "many", "due")}
            assert known == {"1", "2"}, f"struck at line {line}"
            outage.forget()
        worker.drain()
        if strike.left > 0:
            break
    assert line > 50


def test_a_policy_of_another_receiver_is_not_ones_own(
    monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    """A batch that is full says nothing before its end."""
    probe = Signal()
    monkeypatch.setattr(batching, "LARGEST", 1)

    @receiver(probe)
    @recheck(key=lambda **_: 1, name="raising", on_redis_error="raise")
    def raising(sender: Any, **kwargs: Any) -> None: ...

    @receiver(probe)
    @recheck(key=lambda number, **_: number, name="many")
    def many(sender: Any, **kwargs: Any) -> None: ...

    server.end()
    with batch():
        answers: Any = probe.send(sender=None, number=1)
        assert answers == [(raising, Outcome.AFTER_COMMIT), (many, Outcome.AFTER_COMMIT)]
        probe.send(sender=None, number=2)
    assert {ready.item.receiver for ready in outage.owing()} == {"raising", "many"}


def test_it_decorates_and_ends_with_its_generator(
    total: Receiver[..., Any], calls: list[Any], groups: list[Group]
) -> None:
    batch()(fill)(groups)
    assert calls == [(group.pk, 3) for group in groups]

    def rows() -> Generator[int, None, None]:
        with batch():
            fill(groups)
            yield 1

    begun = contextvars.copy_context().run(lambda: rows())
    assert next(begun) == 1
    begun.close()
    assert waiting() == {"total": 2}, "closed, not ended"
