"""Requests under ASGI: when their passes come, that the loop goes on, and clients that hang up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.asgi import get_asgi_application
from django.core.signals import request_finished
from django.db import connections, transaction
from django.db.models.signals import post_save
from django.dispatch import Signal, receiver
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import AsyncClient
from django.urls import path

from django_recheck import Outcome, current_pass, recheck, store, views, worker
from tests.app.models import Item
from tests.loops import beating, run, until, wait_for

pytestmark = pytest.mark.django_db(transaction=True)
SOON = (0.001, 0.001)

log: list[str] = []
probe = Signal()


async def awaits(request: HttpRequest) -> HttpResponse:
    await Item.objects.acreate(name="a")
    log.append("view ends")
    return HttpResponse("ok")


async def waits(request: HttpRequest) -> HttpResponse:
    await sync_to_async(transaction.atomic(Item.objects.create))(name="a")
    log.append("view ends")
    return HttpResponse("ok")


async def sends(request: HttpRequest) -> HttpResponse:
    found = await probe.asend(sender=None)
    log.append("view ends")
    return HttpResponse(", ".join(str(outcome) for _, outcome in found))


def synchronous(request: HttpRequest) -> HttpResponse:
    Item.objects.create(name="a").save()
    log.append("view ends")
    return HttpResponse("ok")


async def streams(request: HttpRequest) -> StreamingHttpResponse:
    async def rows() -> AsyncIterator[str]:
        for name in "ab":
            await Item.objects.acreate(name=name)
            yield name

    return StreamingHttpResponse(rows())


VIEWS: list[Callable[..., Any]] = [awaits, waits, sends, synchronous, streams]
urlpatterns = [path(view.__name__, view) for view in VIEWS]


@pytest.fixture(autouse=True)
def _site(settings: Any) -> Iterator[None]:
    settings.ROOT_URLCONF = __name__
    log.clear()
    before = list(request_finished.receivers)
    yield
    request_finished.receivers[:] = before
    request_finished.sender_receivers_cache.clear()
    probe.receivers.clear()


class Visitor:
    """A client at the other end of Django's ASGI application, which may hang up.

    Args:
        view: The view that it asks for.
    """

    def __init__(self, view: Callable[..., Any]) -> None:
        self.path = f"/{view.__name__}"
        self.gone = asyncio.Event()
        self.said: list[Mapping[str, Any]] = []
        self._asked = False

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request"}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Mapping[str, Any]) -> None:
        self.said.append(message)

    async def ask(self) -> bytes:
        """Send the request, and return what is answered, nothing if the client hung up."""
        scope = {"type": "http", "method": "GET", "path": self.path, "query_string": b""}
        scope |= {"headers": [(b"host", b"testserver")]}
        await get_asgi_application()(scope, self.receive, self.send)
        return b"".join(message.get("body", b"") for message in self.said)


def follow(name: str, **options: Any) -> None:
    """Connect a receiver, sync or async, that says what it sees."""

    def see(instance: Item) -> None:
        assert not connections["default"].in_atomic_block
        log.append(f"{Item.objects.get(pk=instance.pk).name} passed")

    if name == "sync":

        @receiver(post_save, sender=Item)
        @recheck(name=name)
        def sync(sender: Any, instance: Item, **kwargs: Any) -> None:
            see(instance)
    else:

        @receiver(post_save, sender=Item)
        @recheck(name=name)
        async def coroutine(sender: Any, instance: Item, **kwargs: Any) -> None:
            await sync_to_async(see)(instance)


kinds = pytest.mark.parametrize("kind", ["sync", "async"])


@kinds
@pytest.mark.parametrize(
    ("view", "atomic"),  # ATOMIC_REQUESTS is for synchronous views
    [(awaits, False), (waits, False), (synchronous, False), (synchronous, True)],
)
def test_the_pass_comes_after_the_commit_and_before_the_response(
    kind: str, view: Callable[..., Any], atomic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", atomic)
    follow(kind)

    async def ask() -> None:
        assert (await AsyncClient().get(f"/{view.__name__}")).content == b"ok"
        log.append("answered")
        assert await Visitor(view).ask() == b"ok"

    run(ask())
    passes = ["a passed"] * (2 if view is synchronous and not atomic else 1)
    one = ["view ends", *passes] if atomic else [*passes, "view ends"]
    assert log == [*one, "answered", *one]
    assert views.counts(store.current()) == {}


@kinds
def test_a_stream_runs_its_passes_as_it_goes(kind: str) -> None:
    follow(kind)
    assert run(Visitor(streams).ask()) == b"ab"
    assert log == ["a passed", "b passed"]


def test_many_requests_at_once_are_each_their_own_and_the_loop_goes_on() -> None:
    keys: list[Any] = []
    together = threading.Barrier(4, timeout=20)

    async def main() -> Any:
        async with beating() as heart:

            @receiver(post_save, sender=Item)
            @recheck(name="many")
            def many(sender: Any, instance: Item, recheck_pass: Any, **kwargs: Any) -> None:
                together.wait()  # each in its request's thread
                assert heart.goes_on()
                assert current_pass() is recheck_pass
                keys.append(instance.pk)

            return await asyncio.gather(*(Visitor(awaits).ask() for _ in range(4)))

    assert run(main()) == [b"ok"] * 4
    assert len(set(keys)) == 4


def test_requests_for_one_item_coalesce() -> None:
    numbers: list[int] = []
    go_on = threading.Event()

    @receiver(probe)
    @recheck(key=lambda **_: 1, name="one")
    async def one(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        numbers.append(recheck_pass.number)
        await until(go_on.is_set)

    async def main() -> None:
        first = asyncio.create_task(Visitor(sends).ask())
        await until(lambda: numbers)
        others = await asyncio.gather(*(Visitor(sends).ask() for _ in range(5)))
        assert others == [str(Outcome.COALESCED).encode()] * 5
        go_on.set()
        assert await first == str(Outcome.RAN).encode()

    run(main())
    assert numbers == [1, 2]


# Who hangs up


@pytest.mark.parametrize("view", [sends, awaits, waits, synchronous])
def test_a_pass_is_cancelled_with_its_request_and_tried_again(view: Callable[..., Any]) -> None:
    inside, attempts = threading.Event(), []

    def held() -> bool:
        return any(counts.running for counts in views.counts(store.current()).values())

    @receiver([probe, post_save])
    @recheck(name="cancelled", key=lambda **_: 1, backoff=SOON, refresh=False)
    async def cancelled(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        attempts.append(recheck_pass.attempt)
        if recheck_pass.attempt == 1:
            inside.set()
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.01)
                log.append("ends, held" if held() else "ends, without its lock")

    async def main() -> None:
        visitor = Visitor(view)
        asking = asyncio.create_task(visitor.ask())
        await until(inside.is_set)
        visitor.gone.set()
        await asking
        await until(lambda: not held())

    run(main())
    assert log[0] == "ends, held"
    wait_for(lambda: worker.drain().items or not views.counts(store.current()))
    assert attempts[:2] == [1, 2]
    assert views.counts(store.current()) == {}
    assert Item.objects.count() == (0 if view is sends else 1), "what was committed stays"


def test_a_sync_receiver_goes_on_to_its_end_when_its_request_is_over() -> None:
    inside, go_on = threading.Event(), threading.Event()

    @receiver(post_save, sender=Item)
    @recheck(name="goes-on")
    def goes_on(sender: Any, instance: Item, **kwargs: Any) -> None:
        inside.set()
        assert go_on.wait(20)
        log.append(f"{instance.name} passed")

    async def main() -> None:
        visitor = Visitor(awaits)
        asking = asyncio.create_task(visitor.ask())
        await until(inside.is_set)
        visitor.gone.set()
        threading.Timer(0.05, go_on.set).start()
        await asking

    run(main())
    wait_for(lambda: not views.counts(store.current()))
    assert log == ["a passed"]


def test_a_receiver_of_the_requests_end_runs_once_a_request() -> None:
    @receiver(request_finished)
    @recheck(name="finished", key=lambda **_: 1)
    async def finished(sender: Any, **kwargs: Any) -> None:
        log.append("finished")

    assert run(Visitor(awaits).ask()) == b"ok"
    assert log == ["view ends", "finished"]
