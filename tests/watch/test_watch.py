"""A watch: what wakes it, what it asks of Redis meanwhile, and what it keeps up."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError

from django_recheck import conf, outage, receivers, store, views
from django_recheck.keys import Concern
from django_recheck.outage import Ready
from django_recheck.records import Grant, Item
from django_recheck.watch import Watch
from tests.app import models
from tests.servers import apart
from tests.test_drains import EVENT
from tests.watch.watching import noting, until, watching

pytestmark = pytest.mark.django_db(transaction=True)


def silent(name: str, text: str, **options: Any) -> None:
    """Record an event of which those who watch aren't told, as one that its own thread runs."""
    wanted = conf.Options(name, {name.upper(): value for name, value in options.items()})
    store.current().enqueue([store.Entry(Item(name, text), 1, EVENT, wanted, here=True)])


# What wakes it


def test_an_event_wakes_it() -> None:
    receive, keys = noting()
    with watching():
        for key in (1, 2, 3):
            receive.recheck_many([key])
            until(partial(keys.__contains__, key), "it sleeps for minutes")


def test_it_wakes_when_something_is_due() -> None:
    _, keys = noting()
    silent("watched", "1", delay=0.3)
    with watching():
        until(lambda: keys == [1], "it sleeps for minutes")


def test_it_wakes_when_a_lease_is_over() -> None:
    _, keys = noting()
    silent("watched", "1")
    options = conf.Options("watched", {"TTL": 1})
    assert isinstance(store.current().claim(Item("watched", "1"), options), Grant)
    with watching():
        until(lambda: keys == [1], "it sleeps for minutes")


def test_without_a_hint_it_looks_every_few_seconds() -> None:
    _, keys = noting()
    with watching(bound=0.1):
        silent("watched", "1")
        until(lambda: keys == [1])


def test_stopping_wakes_it() -> None:
    noting()
    with watching(threads=3) as watched:
        watched.watch.stop()
        watched.ended()
        assert watched.raised is None


# What it does


def test_passes_run_side_by_side_and_one_thread_looks_for_all() -> None:
    meet = threading.Barrier(3, timeout=20)
    receive, keys = noting(body=lambda key: meet.wait())
    with watching(threads=3):
        receive.recheck_many([1, 2, 3])
        until(lambda: sorted(keys) == [1, 2, 3])


def test_who_is_free_looks_while_another_works() -> None:
    go = threading.Event()
    receive, keys = noting(body=lambda key: key == "slow" and go.wait(20))
    with watching(threads=2):
        receive.recheck_many(["slow"])
        until(lambda: views.counts(store.current(), ["watched"])["watched"].running)
        receive.recheck_many(["quick"])
        until(lambda: keys == ["quick"], "the other one is waited for")
        go.set()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_limit_ends_it(threads: int) -> None:
    receive, keys = noting()
    with watching(threads=threads, limit=2) as watched:
        receive.recheck_many([1])
        until(lambda: keys == [1])
        receive.recheck_many([2, 3])
        watched.ended()
    assert len(keys) == watched.watch.tally.items == 2
    assert views.counts(store.current())["watched"].due == 1


def test_stopped_it_ends_the_pass_and_gives_back_the_rest() -> None:
    begun, go = threading.Event(), threading.Event()

    def wait(key: Any) -> None:
        begun.set()
        go.wait(20)

    receive, keys = noting(body=wait)
    receive.recheck_many([1, 2, 3])
    with watching() as watched:
        begun.wait(20)
        watched.watch.stop()
        go.set()
        watched.ended()
        assert len(keys) == 1
    with watching():
        until(lambda: len(keys) == 3, "they are to be had at once")


def test_what_ends_one_thread_ends_all() -> None:
    def leave(key: Any) -> None:
        raise SystemExit(f"of {key}")

    receive, _ = noting(body=leave)
    with watching(threads=3) as watched:
        receive.recheck_many([1])
        watched.ended()
        assert isinstance(watched.raised, SystemExit)


def test_it_cant_work_in_a_transaction() -> None:
    with transaction.atomic(), pytest.raises(TransactionManagementError):
        Watch().run()


def test_an_idle_watch_holds_no_database_connection() -> None:
    receive, keys = noting(body=lambda key: models.Group.objects.count())
    opened: list[Any] = []
    with watching(bound=0.05, looked=lambda: opened.append(connection.connection)):
        receive.recheck_many([1])
        until(lambda: keys == [1])
        opened.clear()
        until(lambda: len(opened) > 1)
        assert opened[-1] is None


# What it keeps up


def test_it_notes_again_and_again_that_somebody_drains() -> None:
    noting()
    current = store.current()
    with watching(bound=0.05, noted=0.1):
        for _ in range(2):
            until(current.last_drain)
            current.client.hdel(current.meta, "drained")
        until(current.last_drain)


def test_a_watch_of_one_receiver_is_no_drain() -> None:
    noting()
    with watching(["watched"], bound=0.01, noted=0.0) as watched:
        until(lambda: watched.looks > 5)
    assert store.current().last_drain() is None, "who would notice that the others' items wait?"


def test_what_is_owed_since_redis_was_away_is_repaid() -> None:
    receive, keys = noting()
    with watching(bound=0.05):
        ready = Ready(receive, Item("watched", "1"), receive.event_of(Concern.parse("1")))
        outage.owe(ready)
        until(lambda: keys == [1])
        until(lambda: not outage.owing())


# What it asks


def commands(monitor: Any, end: str) -> list[str]:
    """Return the commands that clients have sent, up to one that marks the end."""
    found: list[str] = []
    while True:
        told = monitor.next_command()
        if told["client_type"] != "lua":
            found.append(told["command"].split()[0])
            if end in told["command"]:
                return found[:-1]


LOOK = ["EVALSHA", "EVALSHA", "TIME", *["ZRANGE"] * 4]
"""Of two receivers: a script for each, the time, and two questions for each."""
NOTE = ["SMEMBERS", "TIME", "HSET"]


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_an_idle_watch_asks_for_few_commands(settings: Any, threads: int, paused: bool) -> None:
    receivers.registry.clear()
    with apart(settings) as server, server.client as client:
        noting("one")
        noting("two")
        if paused:
            silent("one", "1")
            store.current().pause(["one"])
        with watching(bound=0.1, noted=600, threads=threads) as watched:
            until(lambda: watched.looks > 3)
            with client.monitor() as monitor:
                seen = watched.looks
                until(lambda: watched.looks > seen + 10)  # so that ten of them are over
                with server.client as other:
                    other.echo("enough")
                asked = commands(monitor, "enough")
    begun = asked.index("TIME")
    assert asked[begun + 5 : begun + 5 + 9 * len(LOOK)] == LOOK * 9


def test_a_note_costs_three_more(settings: Any) -> None:
    receivers.registry.clear()
    with apart(settings) as server, server.client as client:
        noting("one")
        noting("two")
        with watching(bound=0.1, noted=0.0) as watched, client.monitor() as monitor:
            seen = watched.looks
            until(lambda: watched.looks > seen + 5)
            with server.client as other:
                other.echo("enough")
            asked = commands(monitor, "enough")
    begun = asked.index("HSET") + 1
    assert asked[begun : begun + 30] == [*LOOK, *NOTE] * 3
