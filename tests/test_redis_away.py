"""Redis away, in every way that it can be: what ON_REDIS_ERROR says holds on all of them."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import transaction
from django.dispatch import Signal, receiver
from redis.exceptions import RedisError

from django_recheck import Outcome, Receiver, RedisAway, outage, recheck, store, views, worker
from tests.servers import Server, apart, running

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Away:
    """A Redis that doesn't take events.

    Args:
        url: Where the cache looks for it.
        mend: Brings it back, at the same place.
    """

    url: str
    mend: Callable[[], Any]


@contextmanager
def refused() -> Iterator[Away]:
    with running() as server:
        server.end()
        yield Away(server.url, server.start)


@contextmanager
def never_answered() -> Iterator[Away]:
    """It accepts connections, and says nothing."""
    with running() as server:
        assert server.process is not None
        server.process.send_signal(signal.SIGSTOP)
        process = server.process
        yield Away(server.url, lambda: process.send_signal(signal.SIGCONT))
        process.send_signal(signal.SIGCONT)


@contextmanager
def read_only() -> Iterator[Away]:
    """A primary that was demoted, as after a failover."""
    with running() as server, server.client as client:
        client.replicaof("127.0.0.1", "1")
        yield Away(server.url, lambda: client.replicaof("NO", "ONE"))


@contextmanager
def loading() -> Iterator[Away]:
    """A server that has just been restarted, and reads its file."""
    with running() as server:
        with server.client as client:
            for number in range(2_000):
                client.set(f"filling-{number}", "x" * 100)
            client.save()
        server.end()
        server.options["key-load-delay"] = "10000"
        server.options["loading-process-events-interval-bytes"] = "1024"
        server.start()
        yield Away(server.url, lambda: _loaded(server))


def _loaded(server: Server) -> None:
    with server.client as client:
        client.config_set("key-load-delay", "0")
        while client.info("persistence")["loading"]:
            pass


@contextmanager
def full() -> Iterator[Away]:
    with running() as server, server.client as client:
        client.config_set("maxmemory", "1")
        yield Away(server.url, lambda: client.config_set("maxmemory", "0"))


@contextmanager
def forbidden() -> Iterator[Away]:
    """The user may look, and not run scripts."""
    with running() as server, server.client as client:
        client.execute_command("ACL SETUSER", "shop", "on", ">s3cret", "~*", "+@all", "-@scripting")
        url = server.url.replace("//", "//shop:s3cret@")
        allow = ("ACL SETUSER", "shop", "+@scripting")
        yield Away(url, lambda: client.execute_command(*allow))


@contextmanager
def unknown_here() -> Iterator[Away]:
    """The password isn't that one."""
    with running() as server, server.client as client:
        client.execute_command("ACL SETUSER", "shop", "on", ">other", "~*", "+@all")
        url = server.url.replace("//", "//shop:s3cret@")
        yield Away(url, lambda: client.execute_command("ACL SETUSER", "shop", ">s3cret"))


WAYS = [refused, never_answered, read_only, loading, full, forbidden, unknown_here]


@pytest.fixture(params=[False, True], ids=["", "ignoring-exceptions"])
def ignoring(request: pytest.FixtureRequest) -> bool:
    """The cache's own IGNORE_EXCEPTIONS, which must change nothing."""
    return bool(request.param)


@pytest.fixture(params=WAYS, ids=lambda way: str(way.__name__))
def away(request: pytest.FixtureRequest, settings: Any, ignoring: bool) -> Iterator[Away]:
    with request.param() as found:
        cache = {**settings.CACHES["recheck"], "LOCATION": found.url}
        timeouts = {"SOCKET_TIMEOUT": 0.3, "SOCKET_CONNECT_TIMEOUT": 0.3}
        cache["OPTIONS"] = {**cache["OPTIONS"], **timeouts, "IGNORE_EXCEPTIONS": ignoring}
        alias = f"away-{found.url}"
        settings.CACHES = {**settings.CACHES, alias: cache}
        settings.RECHECK = {**settings.RECHECK, "CACHE": alias, "BREAKER": 600}
        yield found


class Subject:
    """A receiver of one item, and what its passes saw."""

    def __init__(
        self, body: Callable[[], Any] = lambda: None, name: str = "subject", **options: Any
    ) -> None:
        self.signal = Signal()
        self.passes: list[tuple[bool, int]] = []
        """Whether it had the lock, and how many events it covered."""

        @receiver(self.signal)
        @recheck(name=name, key="value", **options)
        def held(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
            self.passes.append((recheck_pass.fence > 0, recheck_pass.event_count))
            body()

        self.receiver: Receiver[..., Any] = held

    def send(self, value: int = 1) -> Outcome:
        ((_, outcome),) = self.signal.send(sender=None, value=value)
        assert isinstance(outcome, Outcome)
        return outcome


def test_c29_run_runs_once_unlocked_and_once_more_when_it_is_back(
    away: Away, caplog: pytest.LogCaptureFixture
) -> None:
    subject, later = Subject(), Subject(name="later", dispatch="worker")
    for either in (subject, later):
        assert [either.send(), either.send()] == [Outcome.UNLOCKED] * 2
        assert either.passes == [(False, 1)] * 2
        assert either.receiver.recheck_many([2]) == 1
        assert len(either.passes) == 2, "nobody asked to run it here"
        with transaction.atomic():
            for value in (3, 4, 4):
                either.send(value)
        assert either.passes[2:] == [(False, 1), (False, 2)]
    assert {record.levelname for record in caplog.records} == {"ERROR"}
    assert outage.breaker.open
    assert outage.collect() == [], "the server is left alone"

    away.mend()
    outage.breaker.close()
    subject.send()
    worker.drain()
    for either, more in ((subject, 1), (later, 0)):
        counts = [count for held, count in either.passes if held]
        assert sum(counts) == 6 + more, "every event is covered by a pass under the lock"
    assert views.counts(store.current()) == {}


def test_c29_skip_and_raise_run_nothing(away: Away, caplog: pytest.LogCaptureFixture) -> None:
    skipping = Subject(name="skipping", on_redis_error="skip")
    assert [skipping.send(), skipping.send()] == [Outcome.IGNORED] * 2
    assert skipping.receiver.recheck_many([1, 2]) == 2
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3
    raising = Subject(name="raising", on_redis_error="raise")
    for ask in (raising.send, lambda: raising.receiver.recheck_many([1])):
        outage.breaker.close()
        with pytest.raises(RedisError) as first:
            ask()
        assert not isinstance(first.value, RedisAway), "it is redis-py's own"
        with pytest.raises(RedisAway, match="left alone for now"):
            ask()
    with pytest.raises(RedisError):
        worker.drain()
    assert skipping.passes == raising.passes == []
    outage.breaker.close()
    assert outage.collect() == []


def test_c61_one_wait_then_the_breaker(settings: Any) -> None:
    """A server that hangs costs one socket timeout, not one for each save."""
    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=50) as silent:
        port = silent.getsockname()[1]
        cache = {**settings.CACHES["recheck"], "LOCATION": f"redis://127.0.0.1:{port}/0"}
        cache["OPTIONS"] = {**cache["OPTIONS"], "SOCKET_TIMEOUT": 0.3}
        settings.CACHES = {**settings.CACHES, "silent": cache}
        settings.RECHECK = {**settings.RECHECK, "CACHE": "silent", "BREAKER": 600}
        subject = Subject()
        for _ in range(20):
            assert subject.send() is Outcome.UNLOCKED
        silent.setblocking(False)
        while True:
            try:
                connections.append(silent.accept()[0])
            except BlockingIOError:
                break
    assert len(connections) == 1
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("trouble", ["killed", "demoted", "flushed", "connections", "scripts"])
def test_c31_trouble_in_the_middle_of_a_hold(settings: Any, trouble: str) -> None:
    """What can be mended by one more try isn't seen; what can't leaves the pass owed."""
    with apart(settings, BREAKER=600) as server, server.client as client:

        def strike() -> None:
            if len(subject.passes) > 1:
                return
            if trouble == "killed":
                server.end(signal.SIGKILL)
            elif trouble == "demoted":
                client.replicaof("127.0.0.1", "1")
            elif trouble == "flushed":
                client.flushall()
            elif trouble == "connections":
                client.execute_command("CLIENT KILL TYPE normal SKIPME yes")
            else:
                client.script_flush()

        subject = Subject(strike, ttl=1)
        expected = {"flushed": Outcome.LEASE_LOST}
        expected |= dict.fromkeys(("killed", "demoted"), Outcome.PENDING)
        assert subject.send() is expected.get(trouble, Outcome.RAN)
        if trouble == "killed":
            server.start()
        elif trouble == "demoted":
            client.replicaof("NO", "ONE")
        outage.breaker.close()
        subject.send(2)
        until = time.monotonic() + 20
        while views.counts(store.current()):  # a lease that couldn't be given up has to end
            worker.drain()
            assert time.monotonic() < until
        assert len(subject.passes) == (3 if trouble in expected else 2)
