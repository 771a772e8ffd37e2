"""Promise 7, on the wire: what a hold, an event and a transaction cost in round trips.

Between the clients and the server stands a proxy that reads along. A round trip is one turn: what
a client writes until it is answered, be it one command or a pipeline of many.
"""

from __future__ import annotations

import queue
import re
import selectors
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from django.db import connections, transaction
from django.db.models.signals import post_save
from django.dispatch import receiver

from django_recheck import Outcome, Receiver, recheck, store, worker
from django_recheck.survey import survey
from django_recheck.views import Part
from tests.app.models import Item
from tests.servers import Server, free_port, running

pytestmark = pytest.mark.django_db(transaction=True)

SETTING_UP: Final = {"AUTH", "CLIENT", "HELLO", "SELECT"}
"""What a new connection says before its first command: not a hold's cost."""
HOLD: Final = [["EVALSHA"], ["EVALSHA"]]
"""A hold of one pass: request and finish."""


class Talk:
    """One connection: what its client has said, and whether it was answered."""

    SIZE = re.compile(rb"[*$](\d+)\r\n")

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.turn: list[str] | None = None
        self.rest = b""
        self.replies = b""

    def commands(self, data: bytes) -> Iterator[str]:
        """Read the client's part of the protocol: arrays of bulk strings."""
        self.rest += data
        while head := self.SIZE.match(self.rest):
            at, words = head.end(), []
            for _ in range(int(head[1])):
                size = self.SIZE.match(self.rest, at)
                if size is None or size.end() + int(size[1]) + 2 > len(self.rest):
                    return
                at = size.end() + int(size[1]) + 2
                words.append(self.rest[size.end() : at - 2])
            self.rest = self.rest[at:]
            yield words[0].decode()


class Wire:
    """The proxy.

    Args:
        server: The server to stand in front of.

    Attributes:
        turns: The names of the commands of each round trip.
        to: Where new connections are led.
        least: Replies are kept back until a turn has so many commands: what still gets through
            didn't wait for any of them. (A long pipeline is answered while it is being written.)
    """

    def __init__(self, server: Server) -> None:
        self.turns: list[list[str]] = []
        self.least = 1
        self.port = free_port()
        self.to = ("127.0.0.1", server.port)
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self._selector = selectors.DefaultSelector()
        self._waking, woken = socket.socketpair()
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._selector.register(woken, selectors.EVENT_READ, woken)
        self._open = True
        self._thread = threading.Thread(target=self._run, name="wire")
        self._thread.start()

    def _run(self) -> None:
        while self._open:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._accept()
                elif isinstance(key.data, Talk):
                    self._carry(key.fileobj, key.data)
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _accept(self) -> None:
        client, _ = self._listening.accept()
        talk = Talk(client, socket.create_connection(self.to))
        for end in (talk.client, talk.server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(end, selectors.EVENT_READ, talk)

    def _carry(self, source: Any, talk: Talk) -> None:
        data = source.recv(1 << 16)
        if not data:
            for end in (talk.client, talk.server):
                self._selector.unregister(end)
                end.close()
        elif source is talk.client:
            if talk.turn is None:
                talk.turn = []
                self.turns.append(talk.turn)
            talk.turn += talk.commands(data)
            talk.server.sendall(data)
        else:
            talk.replies += data
        if talk.replies and (talk.turn is None or len(talk.turn) >= self.least):
            talk.client.sendall(talk.replies)
            talk.turn, talk.replies = None, b""

    def heard(self) -> list[list[str]]:
        """Return the round trips since it was last asked."""
        turns, self.turns = self.turns, []
        return [turn for turn in turns if not SETTING_UP.issuperset(turn)]

    def close(self) -> None:
        """Stop carrying."""
        self._open = False
        self._waking.close()
        self._thread.join()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture(params=["bytes", "text", "text-and-key-prefix"])
def cold(request: pytest.FixtureRequest, settings: Any, server: Server) -> Iterator[Wire]:
    """The wire of a process that hasn't used Redis yet."""
    wire = Wire(server)
    cache = {**settings.CACHES["recheck"], "LOCATION": f"redis://127.0.0.1:{wire.port}/0"}
    cache["KEY_PREFIX"] = "shop" if "prefix" in request.param else ""
    decoding = {"decode_responses": "text" in request.param}
    cache["OPTIONS"] = {**cache["OPTIONS"], "CONNECTION_POOL_KWARGS": decoding}
    alias = f"wire-{request.param}-{wire.port}"
    settings.CACHES = {**settings.CACHES, alias: cache}
    prefix = {"PREFIX": f"test-{wire.port}", "ON_REDIS_ERROR": "raise"}
    settings.RECHECK = {**settings.RECHECK, "CACHE": alias, **prefix}
    yield wire
    store.current().client.connection_pool.disconnect()
    wire.close()


@pytest.fixture
def wire(cold: Wire) -> Wire:
    """The wire of a process, and a server, that have done all of it before."""

    @recheck(name="before", key="group")
    def before(sender: Any, **kwargs: Any) -> None: ...

    before.recheck(key=1)
    before.recheck_many([1])
    worker.drain()
    cold.heard()
    return cold


@pytest.fixture(params=[True, False], ids=["refresh", "no-refresh"])
def refresh(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def follow(**options: Any) -> Receiver[..., Any]:
    """Connect a receiver that does nothing."""

    @receiver(post_save, sender=Item)
    @recheck(name="followed", **options)
    def followed(sender: Any, instance: Item, **kwargs: Any) -> None: ...

    return followed


def test_an_uncontended_hold_costs_two(wire: Wire, refresh: bool) -> None:
    follow(refresh=refresh)
    item = Item.objects.create(name="a")
    assert wire.heard() == HOLD
    item.save()
    assert wire.heard() == HOLD


def test_many_holds_cost_two_each(wire: Wire) -> None:
    """The thread that renews leases isn't woken by short ones."""
    follow()
    item = Item.objects.create(name="a")
    for _ in range(50):
        item.save()
    assert wire.heard() == HOLD * 51


def test_the_first_use_of_a_process_costs_one_more(cold: Wire, server: Server) -> None:
    follow()
    with server.client as client:
        client.script_flush()
    item = Item.objects.create(name="a")
    checked, *rest = cold.heard()
    assert checked == ["HSETNX", "HSETNX", "HMGET"], "shards and format"
    assert rest == [["EVALSHA"], ["EVAL"]] * 2, "and the server didn't know the scripts"
    item.save()
    assert cold.heard() == HOLD


def test_an_event_on_a_held_item_costs_one_and_so_does_each_further_pass(
    wire: Wire, refresh: bool
) -> None:
    began: queue.SimpleQueue[int] = queue.SimpleQueue()
    go = threading.Semaphore(0)
    signal = post_save

    @receiver(signal, sender=Item)
    @recheck(name="blocked", refresh=refresh, ttl=600, max_hold=600)  # without renewal
    def blocked(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        began.put(recheck_pass.number)
        assert go.acquire(timeout=20)

    go.release()
    item = Item.objects.create(name="a")
    assert began.get() == 1
    wire.heard()

    def recorded() -> Outcome:
        outcome = blocked.recheck(item)
        assert isinstance(outcome, Outcome)
        return outcome

    with ThreadPoolExecutor(1) as pool:
        try:
            holding = pool.submit(recorded)
            for number in (1, 2, 3):
                assert began.get(timeout=20) == number
                assert len(wire.heard()) == 1, "request, or the finish that says: again"
                assert recorded() is Outcome.COALESCED
                assert wire.heard() == [["EVALSHA"]]
                go.release()
            assert began.get(timeout=20) == 4
            assert wire.heard() == [["EVALSHA"]]
            go.release()
            assert holding.result(20) is Outcome.RAN
            assert wire.heard() == [["EVALSHA"]]
        finally:
            go.release(10)
            pool.submit(connections.close_all).result(20)


def test_own_events_travel_with_the_end_of_the_pass(wire: Wire) -> None:
    @receiver(post_save, sender=Item)
    @recheck(name="own")
    def own(sender: Any, instance: Item, **kwargs: Any) -> None:
        instance.save()

    Item.objects.create(name="a")
    assert wire.heard() == [*HOLD, ["EVALSHA"]], "one further pass, one further trip"


def test_a_failed_pass_costs_no_more(wire: Wire) -> None:
    @receiver(post_save, sender=Item)
    @recheck(name="failing")
    def failing(sender: Any, **kwargs: Any) -> None:
        raise ValueError

    Item.objects.create(name="a")
    assert wire.heard() == HOLD


def test_many_saves_of_one_row_in_a_transaction_cost_what_one_does(
    wire: Wire, refresh: bool
) -> None:
    follow(refresh=refresh)
    with transaction.atomic():
        item = Item.objects.create(name="a")
        for _ in range(20):
            item.save()
        assert wire.heard() == [], "nothing before the commit"
    assert wire.heard() == HOLD


def test_a_transaction_that_rolls_back_costs_nothing(wire: Wire) -> None:
    follow()
    with transaction.atomic():
        Item.objects.create(name="a")
        transaction.set_rollback(True)
    assert wire.heard() == []


def test_several_items_of_a_transaction_are_recorded_in_one(wire: Wire) -> None:
    follow()
    with transaction.atomic():
        for _ in range(5):
            Item.objects.create(name="a")
    assert wire.heard() == [["EVALSHA"], *HOLD * 5]


@pytest.mark.parametrize("dispatch", ["worker", "inline"])
def test_a_thousand_items_of_a_transaction_are_recorded_in_one(wire: Wire, dispatch: str) -> None:
    follow(dispatch=dispatch, inline_budget=0)
    with transaction.atomic():
        for _ in range(1000):
            Item(name="a").save()
        wire.least = 5
    assert wire.heard() == [["EVALSHA"] * 5]


def test_a_thousand_by_hand_are_recorded_in_one(wire: Wire) -> None:
    wire.least = 5
    assert follow().recheck_many(range(1000)) == 1000
    assert wire.heard() == [["EVALSHA"] * 5]


def test_a_page_of_a_hundred_thousand_costs_two_and_reads_no_more(
    wire: Wire, server: Server
) -> None:
    follow(dispatch="worker").recheck_many([0])
    current, names = store.current(), range(100_000)
    state, _, due, *_ = current.lane("followed", 0).keys
    with server.client as client:
        (record,) = client.hvals(state)
        client.hset(state, mapping=dict.fromkeys(names, record))
        client.zadd(due, {name: name + 1 for name in names})
    wire.heard()
    found = survey(current, ["followed", "before"], [Part("running"), Part("due", 70_000, 10)])
    first, second = wire.heard()
    assert (len(first), second.count("HGET")) == (4 + 2 * 2, 10)
    assert [int(view.item.text) for view in found.parts[1]] == [*range(70_000, 70_010)]
    assert found.numbers["followed"].pending == 100_001


def test_without_a_receiver_that_wants_it_redis_isnt_asked(wire: Wire) -> None:
    follow(key=lambda **_: None)
    Item.objects.create(name="a")
    assert wire.heard() == []
