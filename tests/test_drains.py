"""What a drain finds on its way: holders that die again, servers and databases that go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from redis.exceptions import NoPermissionError, ResponseError

from django_recheck import Outcome, Receiver, conf, recheck, store, views, worker
from django_recheck.records import Grant, Item, pack
from tests.app import models
from tests.servers import apart, running
from tests.test_worker import end_lease

EVENT = pack([b'["","",""]', b"", b"", b"[null,null,{},{},null]"])
ITEM = Item("drained", "1")


def drained(body: Callable[[Any], Any], **options: Any) -> Receiver[..., Any]:
    """Return a receiver that is known to drains alone."""

    @recheck(name=ITEM.receiver, key="value", dispatch="worker", backoff=(60, 60), **options)
    def receive(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        body(recheck_pass)

    return receive


def due_in(current: store.Store) -> float:
    """Return in how many seconds the item is due."""
    (view,) = views.items(current, [ITEM])
    assert (view.state, view.holder) == ("due", None)
    assert view.score is not None
    seconds, micros = current.client.time()
    return float(view.score - seconds - micros / 1e6)


def test_what_kills_its_holders_waits_ever_longer() -> None:
    current = store.current()
    options = conf.Options("drained", {"BACKOFF": (100, 350), "MAX_ATTEMPTS": 9})
    current.enqueue([store.Entry(ITEM, 1, EVENT, options)])
    assert isinstance(current.claim(ITEM, options), Grant)
    end_lease(ITEM)
    again = current.claim(ITEM, options)
    assert isinstance(again, Grant), "the first death may have been an accident"
    assert (again.takeover, again.attempts) == (True, 1)
    for longest in (100, 200, 350, 350):
        end_lease(ITEM)
        assert current.claim(ITEM, options) == "LATER"
        assert 0.74 * longest < due_in(current) <= longest
        assert current.claim(ITEM, options) == "LATER"
        assert isinstance(current.request(ITEM, EVENT, 1, options), Grant)


def test_a_delay_doesnt_cut_the_backoff_of_a_failure_short() -> None:
    current, options = store.current(), conf.Options("drained", {"BACKOFF": (60, 60)})
    grant = current.request(ITEM, EVENT, 1, options)
    assert isinstance(grant, Grant)
    delayed = conf.Options("drained", {"DELAY": 0.001})
    current.enqueue([store.Entry(ITEM, 1, EVENT, delayed)])
    assert current.finish(grant, "failed", options, error="x")[0] == "FAILED"
    assert due_in(current) > 40
    assert current.claim(ITEM, options) == "LATER"


def test_receivers_take_turns() -> None:
    """A long lane doesn't hold the others up."""
    turns: list[str] = []

    def named(name: str) -> Receiver[..., Any]:
        @recheck(name=name, key="value", dispatch="worker")
        def receive(sender: Any, **kwargs: Any) -> None:
            turns.append(name)

        return receive

    named("long").recheck_many(range(8))
    named("short").recheck_many(range(2))
    worker.drain(["long", "short"])
    assert turns == ["long", "short"] * 2 + ["long"] * 6


def test_dead_holders_of_an_unknown_receiver_are_counted_too() -> None:
    """But not where a drain was asked for some receivers alone."""
    current, options = store.current(), conf.Options("stranger", {})
    for text in "12":
        current.enqueue([store.Entry(Item("stranger", text), 1, EVENT, options)])
    assert isinstance(current.claim(Item("stranger", "1"), options), Grant)
    assert worker.drain().unknown == {"stranger": 2}
    assert worker.drain([]).unknown == {}


def test_a_name_that_is_no_text_is_thrown_away() -> None:
    drained(lambda p: None)
    current = store.current()
    lane = current.lane_of(ITEM)
    for index in lane.keys[1:4]:
        current.client.zadd(index, {b"\xff": 1})
    current.client.hset(lane.keys[0], b"\xff", "what")
    assert "thrown away" in worker.drain().problems[ITEM.receiver]
    assert not current.client.exists(*lane.keys[:4])


def test_what_is_wrong_with_the_server_ends_the_drain(settings: Any) -> None:
    """It isn't one item that can't be run."""
    with running() as server, server.client as client:
        kinds = ("meta*", "lanes", "state:*", "running:*", "due:*", "dead:*", "minutes")
        allowed = [f"~*:{kind}" for kind in kinds]  # and no locks
        client.execute_command("ACL SETUSER", "shop", "on", ">s3cret", "+@all", *allowed)
        url = server.url.replace("//", "//shop:s3cret@")
        cache = {**settings.CACHES["recheck"], "LOCATION": url}
        settings.CACHES = {**settings.CACHES, "without-locks": cache}
        settings.RECHECK = {**settings.RECHECK, "CACHE": "without-locks"}
        drained(lambda p: None).recheck_many([1, 2])
        with pytest.raises(NoPermissionError):
            worker.drain()


@pytest.mark.django_db(transaction=True)
def test_a_database_connection_that_was_dropped_fails_one_pass() -> None:
    """The next item's has one of its own, as the next request would."""

    def ask(recheck_pass: Any) -> None:
        models.Group.objects.count()
        if recheck_pass.key == 1:
            if connection.vendor == "postgresql":
                models.Group.objects.raw("SELECT pg_terminate_backend(pg_backend_pid()), 1 AS id")[
                    0
                ]
            elif connection.vendor == "mysql":
                with connection.cursor() as cursor:
                    cursor.execute("KILL CONNECTION_ID()")
            assert connection.connection is not None
            connection.connection.close()
        models.Group.objects.count()

    drained(ask).recheck_many([1, 2, 3])
    assert worker.drain().outcomes == {Outcome.FAILED: 1, Outcome.RAN: 2}


@pytest.mark.django_db
def test_a_drain_in_a_testcase_leaves_its_transaction_alone(
    django_capture_on_commit_callbacks: Any,
) -> None:
    group = models.Group.objects.create(name="before")
    seen = []

    def look(recheck_pass: Any) -> None:
        seen.append(models.Group.objects.filter(pk=group.pk).exists())

    with django_capture_on_commit_callbacks(execute=True):
        drained(look).recheck_many([1])
    assert worker.drain().outcomes == {Outcome.RAN: 1}
    assert seen == [True]


def test_a_full_server_is_drained_by_who_has_just_begun(settings: Any) -> None:
    """The note that it was drained isn't taken, and who has never heard of the server reads it."""
    with apart(settings) as server, server.client as client:
        receive = drained(lambda recheck_pass: None)
        receive.recheck_many([1, 2])
        client.config_set("maxmemory", "1")
        store.forget()
        assert worker.drain().outcomes == {Outcome.RAN: 2}
        assert store.current().last_drain() is None
        assert views.counts(store.current()) == {}


def test_a_full_server_that_was_never_used_says_so(settings: Any) -> None:
    with apart(settings) as server, server.client as client:
        client.config_set("maxmemory", "1")
        with pytest.raises(ResponseError, match="maxmemory"):
            worker.drain([ITEM.receiver])
