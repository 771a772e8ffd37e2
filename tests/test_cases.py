"""Faults from public reports, forced on the real scripts through the real store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.exceptions import ConnectionError as RedisConnectionError

from django_recheck import conf, store, views
from django_recheck.records import Grant, Item, Record, pack
from tests.servers import free_port, running

EVENT = pack([b"name", b"", b"", b"body"])
OPTIONS = conf.Options("r", {"TTL": 5})
ITEM = Item("r", "1")


class Stumbling:
    """A client that loses the reply of the next command: it was done, and nobody heard of it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.loses = False

    def execute_command(self, *words: Any, **options: Any) -> Any:
        """Do it, and perhaps lose the reply."""
        reply = self.client.execute_command(*words, **options)
        if self.loses:
            self.loses = False
            raise RedisConnectionError("the reply got lost")
        return reply

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)


class StumblingStore(store.Store):
    """A store whose client may lose replies."""

    stumbling: Stumbling | None = None

    @property
    def client(self) -> Any:
        """The client that loses replies."""
        if self.stumbling is None:
            self.stumbling = Stumbling(super().client)
        return self.stumbling

    def lose_a_reply(self) -> None:
        """Lose the reply of the next command."""
        assert self.client.ping()
        self.client.loses = True


@pytest.fixture
def current() -> StumblingStore:
    stumbling = StumblingStore("recheck", "recheck", 1)
    stumbling.check_format()
    return stumbling


def granted(reply: Grant | str) -> Grant:
    assert isinstance(reply, Grant), reply
    return reply


def end_lease(current: store.Store) -> None:
    """Let the lease end: the lock is gone, and the index says when."""
    lane = current.lane_of(ITEM)
    current.client.delete(lane.lock(ITEM))
    current.client.zadd(lane.keys[1], {ITEM.text: 1})


def test_c01_an_event_between_the_last_look_and_the_release(current: store.Store) -> None:
    grant = granted(current.request(ITEM, EVENT, 1, OPTIONS))
    # The holder has looked at its work for the last time; the event comes now, and is refused.
    assert current.request(ITEM, EVENT, 1, OPTIONS) == "COALESCED"
    again = granted(current.finish(grant, "ok", OPTIONS)[0])
    assert (again.number, again.count) == (2, 1)
    assert current.finish(again, "ok", OPTIONS)[0] == "DONE"
    # The holder has released; the event comes now, and is granted.
    assert isinstance(current.request(ITEM, EVENT, 1, OPTIONS), Grant)


def test_c14_a_resent_request_gets_the_same_answer(current: StumblingStore) -> None:
    current.lose_a_reply()
    grant = granted(current.request(ITEM, EVENT, 1, OPTIONS))
    (view,) = views.items(current, [ITEM])
    assert view.holder == grant.token
    assert view.record is not None
    assert (grant.number, grant.count, view.record.newer_count) == (1, 1, 0)


def test_c14_a_resent_claim_gets_the_same_answer(current: StumblingStore) -> None:
    current.enqueue([store.Entry(ITEM, 1, EVENT, OPTIONS)])
    current.lose_a_reply()
    grant = granted(current.claim(ITEM, OPTIONS))
    assert (grant.number, grant.count) == (1, 1)


def test_c15_a_resent_finish_has_no_effect_beyond_the_first(current: StumblingStore) -> None:
    grant = granted(current.request(ITEM, EVENT, 1, OPTIONS))
    current.request(ITEM, EVENT, 1, OPTIONS)
    current.lose_a_reply()
    following, resent = current.finish(grant, "ok", OPTIONS)
    again = granted(following)
    assert (again.number, resent) == (2, True)
    current.lose_a_reply()
    assert current.finish(again, "ok", OPTIONS) == ("LOST", True), "done already; the runner knows"
    assert views.counts(current) == {}


def test_c17_an_expired_holder_leaves_the_new_owners_lock_alone(current: store.Store) -> None:
    old = granted(current.request(ITEM, EVENT, 1, OPTIONS))
    end_lease(current)
    new = granted(current.request(ITEM, EVENT, 1, OPTIONS))
    assert (new.takeover, new.count, new.attempts) == (True, 2, 1)
    before = current.client.get(current.lane_of(ITEM).lock(ITEM))
    assert current.finish(old, "ok", OPTIONS)[0] == "LOST"
    assert current.renew([old, new], [5, 5]) == [False, True]
    assert current.client.get(current.lane_of(ITEM).lock(ITEM)) == before
    assert current.finish(new, "ok", OPTIONS)[0] == "DONE"


def test_a_lapsed_lease_that_nobody_took_over_is_still_ours(current: store.Store) -> None:
    grant = granted(current.request(ITEM, EVENT, 1, OPTIONS))
    end_lease(current)
    assert current.renew([grant], [5]) == [True]
    end_lease(current)
    assert current.finish(grant, "ok", OPTIONS)[0] == "DONE"


def test_a_grant_looks_whether_the_item_is_ripe(current: store.Store) -> None:
    delayed = conf.Options("r", {"DELAY": 60})
    current.enqueue([store.Entry(ITEM, 1, EVENT, delayed)])
    keys = current.lane_of(ITEM).keys
    current.client.zadd(keys[2], {ITEM.text: 1})
    assert current.peek(["r"], 10, 5)[0] == [ITEM]
    assert current.claim(ITEM, delayed) == "LATER"
    assert current.peek(["r"], 10, 5)[0] == [], "the index is put right, too"


def test_c08_a_delayed_event_never_pushes_beyond_the_longest_wait(current: store.Store) -> None:
    delayed = conf.Options("r", {"DELAY": 60, "MAX_WAIT": 60.02})

    def after_one_more() -> Record:
        current.enqueue([store.Entry(ITEM, 1, EVENT, delayed)])
        (view,) = views.items(current, [ITEM])
        assert view.record is not None
        return view.record

    first = newest = after_one_more()
    assert first.ready == first.first + 60_000
    while newest.last <= first.first + 20:  # by the server's clock
        newest = after_one_more()
    assert (newest.first, newest.ready) == (first.first, first.first + 60_020)
    owed = conf.Options("r", {})
    current.enqueue([store.Entry(ITEM, 1, EVENT, owed)])
    current.enqueue([store.Entry(ITEM, 1, EVENT, delayed)])
    assert current.peek(["r"], 10, 5)[0] == [ITEM], "what is owed now isn't pushed later"


@pytest.fixture
def elsewhere(settings: Any) -> Iterator[Any]:
    """A way to point the store to another server."""

    def use(url: str) -> store.Store:
        settings.CACHES = {
            **settings.CACHES,
            "elsewhere": {**settings.CACHES["recheck"], "LOCATION": url},
        }
        settings.RECHECK = {**settings.RECHECK, "CACHE": "elsewhere"}
        return store.current()

    yield use
    store.forget()


def live_through(current: store.Store) -> None:
    """Call every script."""
    grant = granted(current.request(ITEM, EVENT, 1, OPTIONS))
    current.enqueue([store.Entry(ITEM, 1, EVENT, OPTIONS)])
    assert current.renew([grant], [5]) == [True]
    again = granted(current.finish(grant, "ok", OPTIONS)[0])
    assert current.finish(again, "failed", OPTIONS, error="x")[0] == "FAILED"
    current.enqueue([store.Entry(ITEM, 1, EVENT, OPTIONS)])
    assert ITEM in current.peek(["r"], 10, 5)[0]
    for verb in (current.retry, current.release, current.discard):
        if verb == current.release:
            granted(current.claim(ITEM, OPTIONS))
        assert verb([(view.item, view.seen) for view in views.items(current, [ITEM])]) == ["DONE"]


def test_c25_the_keys_of_a_call_are_in_one_slot(elsewhere: Any) -> None:
    bus = str(free_port())
    with running(cluster_enabled="yes", cluster_port=bus) as server, server.client as client:
        client.execute_command("CLUSTER ADDSLOTS", *range(16384))
        until = time.monotonic() + 20
        while str(client.execute_command("CLUSTER INFO")).find("ok", 0, 30) < 0:
            assert time.monotonic() < until
            time.sleep(0.01)
        live_through(elsewhere(server.url))


def test_c25_scripts_touch_only_keys_that_they_were_given(current: store.Store) -> None:
    given: set[str] = set()

    class Noting(store.Store):
        def call(self, name: str, keys: Any, args: Any) -> Any:
            given.update(keys)
            return super().call(name, keys, args)

        def call_many(self, name: str, calls: Any, *, raising: bool = True) -> Any:
            for keys, _ in calls:
                given.update(keys)
            return super().call_many(name, calls, raising=raising)

    noting = Noting("recheck", "recheck", 1)
    left = [conf.Options("r", {"DELAY": 60}), OPTIONS]
    for number, options in enumerate(left):
        noting.enqueue([store.Entry(Item("r", f"9{number}"), 1, EVENT, options)])
    noting.request(Item("r", "99"), EVENT, 1, OPTIONS)
    live_through(noting)
    there = {key.decode() for key in current.client.scan_iter(f"*{current.base}*")}
    assert there - {current.meta} <= given


def test_a_full_server_leaves_nothing_half_done(elsewhere: Any) -> None:
    with running() as server, server.client as client:
        current = elsewhere(server.url)
        current.check_format()
        client.config_set("maxmemory", "1")
        with pytest.raises(redis.ResponseError, match="maxmemory"):
            client.set("anything", "else")
        live_through(current)
        assert views.counts(current) == {}
