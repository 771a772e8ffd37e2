"""A receiver that always outlives its lease ends dead, also if only heals ever meet it."""

from __future__ import annotations

import pytest

from django_recheck import conf, store, views
from django_recheck.records import Grant, Item, pack

ITEM = Item("r", "1")
EVENT = pack([b"event", b"", b"", b"x"])
OPTIONS = conf.Options("r", {"TTL": 5, "MAX_ATTEMPTS": 3})


def time_passes(current: store.Store) -> None:
    """Let a lease and a backoff end: no lock, and what is owed is owed now."""
    lane = current.lane_of(ITEM)
    client = current.client
    client.delete(lane.lock(ITEM))
    record = client.hget(lane.keys[0], ITEM.text)
    head, newline, body = record.partition(b"\n")
    words = head.split(b" ")
    words[6] = b"%d" % min(int(words[6]), 1)
    client.hset(lane.keys[0], ITEM.text, b" ".join(words) + newline + body)
    for index in lane.keys[1:3]:
        if client.zscore(index, ITEM.text) is not None:
            client.zadd(index, {ITEM.text: 1})


def test_heals_that_take_over_from_each_other_end_dead() -> None:
    """Two drains take turns; each finds its lease gone, and its heal ends the other's hold."""
    current = store.Store("recheck", "recheck", 1)
    current.enqueue([store.Entry(ITEM, 1, EVENT, OPTIONS)])
    slow = current.claim(ITEM, OPTIONS)
    assert isinstance(slow, Grant)
    for _ in range(10):
        time_passes(current)
        other = current.claim(ITEM, OPTIONS)
        if other == "DEAD":
            break
        assert isinstance(other, Grant)
        time_passes(current)
        assert current.finish(slow, "ok", OPTIONS)[0] == "LOST"
        if current.request(ITEM, EVENT, 1, OPTIONS, heal=1) == "DEAD":
            break
        slow = other
    else:
        pytest.fail("it goes round for ever")
    (view,) = views.items(current, [ITEM])
    assert view.state == "dead"
    assert view.record is not None
    assert "within its lease" in view.record.error
    assert isinstance(current.request(ITEM, EVENT, 1, OPTIONS), Grant), "an event buys a pass"
