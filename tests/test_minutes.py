"""Events and passes of each minute of the last hour: what is counted, once, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from redis.exceptions import ResponseError

from django_recheck import conf, store, views
from django_recheck.outbox.shown import Found
from django_recheck.records import Grant, Item, pack
from django_recheck.screen import overview
from django_recheck.survey import MINUTES, Survey, survey
from tests.servers import running

EVENT = pack([b'["","",""]', b"", b"", b"[null,null,{},{},null]"])
OPTIONS = conf.Options("counted", {"BACKOFF": (60, 60)})
ITEM = Item("counted", "1")


def counted() -> tuple[int, int]:
    """Return the events and the passes of the last two minutes: one may have begun meanwhile."""
    minutes = survey(store.current(), []).minutes
    assert len(minutes) == MINUTES
    assert all(pair == (0, 0) for pair in minutes[:-2])
    (events, passes), (more, further) = minutes[-2:]
    return events + more, passes + further


def request(text: str = "1", **given: Any) -> Grant | str:
    return store.current().request(Item("counted", text), EVENT, 1, OPTIONS, **given)


def granted(reply: Grant | str) -> Grant:
    assert isinstance(reply, Grant), reply
    return reply


def enqueue(*texts: str, count: int = 1) -> None:
    store.current().enqueue([store.Entry(Item("counted", t), count, EVENT, OPTIONS) for t in texts])


def test_events_and_passes_are_counted() -> None:
    current = store.current()
    assert counted() == (0, 0)
    grant = granted(request())
    assert counted() == (1, 1)
    assert request() == "COALESCED"
    assert counted() == (2, 1), "an event on a held item"
    grant = granted(current.finish(grant, "ok", OPTIONS)[0])
    assert counted() == (2, 2), "a further pass"
    assert current.finish(grant, "failed", OPTIONS)[0] == "FAILED"
    assert counted() == (2, 2)
    enqueue("1", "2", "3", count=5)
    assert counted() == (17, 2), "a transaction's events of an item"
    granted(current.claim(Item("counted", "2"), OPTIONS))
    assert counted() == (17, 3)
    assert current.claim(Item("counted", "2"), OPTIONS) == "HELD"
    assert counted() == (17, 3)


def test_what_was_claimed_and_given_back_unbegun_is_no_pass() -> None:
    current = store.current()
    enqueue("1", "2")
    found = current.claim_many([(Item("counted", text), OPTIONS) for text in ("1", "2")])
    assert counted() == (2, 2)
    grants = [grant for grant in found if isinstance(grant, Grant)]
    assert current.unbegun(grants[1:]) == []
    assert counted() == (2, 1)
    assert current.unbegun(grants[1:]) == [], "a copy that comes late finds what it asks for"
    assert counted() == (2, 1)
    assert isinstance(current.claim(grants[1].item, OPTIONS), Grant)
    assert current.unbegun(grants[1:]) == grants[1:], "not the caller's any more"
    assert counted() == (2, 2)


def test_a_holds_own_events_are_counted() -> None:
    current = store.current()
    grant = granted(request())
    again = granted(current.finish(grant, "ok", OPTIONS, own=(2, EVENT))[0])
    assert counted() == (3, 2)
    current.finish(again, "failed", OPTIONS, own=(1, EVENT))
    assert counted() == (4, 2)


def test_what_waits_for_a_person_is_counted_as_it_comes() -> None:
    store.current().pause(["counted"])
    assert request() == "PENDING"
    assert counted() == (1, 0)


def test_a_heal_is_no_event() -> None:
    assert isinstance(request(heal=1), Grant)
    assert counted() == (0, 1)


def test_copies_that_write_nothing_count_nothing() -> None:
    current = store.current()
    grant = granted(request())
    args = (ITEM.receiver, ITEM.text, grant.token, 5000, 1, EVENT, 0, 1, 1, 5, 0)
    assert current.call("request", current.keys_of(ITEM), args)[0][0] == b"GRANTED"
    assert counted() == (1, 1)
    request()
    for _ in range(2):
        granted(current.finish(grant, "ok", OPTIONS, own=(1, EVENT))[0])
        assert counted() == (3, 2)
    again = granted(current.finish(grant, "ok", OPTIONS)[0])
    current.finish(again, "ok", OPTIONS)
    assert current.finish(again, "ok", OPTIONS, own=(1, EVENT))[0] == "LOST"
    assert counted() == (3, 2)


def test_all_shards_are_summed(settings: Any) -> None:
    settings.RECHECK = {**settings.RECHECK, "SHARDS": 4, "PREFIX": "test-minutes"}
    enqueue(*map(str, range(20)))
    for number in range(20):
        granted(request(str(number)))
    assert counted() == (40, 20)


@pytest.fixture
def hash_key() -> str:
    return store.current().lane("", 0).minutes


def this_minute() -> int:
    return int(store.current().now()) // 60


def test_it_is_gone_after_an_hour_and_holds_no_more_than_that(hash_key: str) -> None:
    client = store.current().client
    this = this_minute()
    ages = [*range(1, 59), 61, 62, 1000, -2, -1000]
    client.hset(hash_key, mapping={f"{this - age}{kind}": 7 for age in ages for kind in "ep"})
    client.hset(hash_key, mapping={"hostile": 1, f"{this}": 1, "": 1, "1e999e": "x"})
    granted(request())
    left = {name.decode() for name in client.hkeys(hash_key)}
    kept = {f"{this - age}{kind}" for age in range(1, 59) for kind in "ep"}
    assert kept <= left
    assert len(left - kept) == 2, "this minute's event and pass"
    assert 3500 < client.ttl(hash_key) <= 3600
    minutes = survey(store.current(), []).minutes
    assert sum(events for events, _ in minutes) == 1 + 7 * len(range(1, 59))


@pytest.mark.parametrize("spoil", ["no hash", "no number", "the greatest number"])
def test_what_stands_there_harms_nobody(hash_key: str, spoil: str) -> None:
    current = store.current()
    if spoil == "no hash":
        current.client.set(hash_key, "hostile")
    else:
        value = "hostile" if spoil == "no number" else 2**63 - 1
        for minute in range(this_minute(), this_minute() + 2):
            current.client.hset(hash_key, mapping={f"{minute}e": value, f"{minute}p": value})
    grant = granted(request())
    assert request() == "COALESCED"
    again = granted(current.finish(grant, "ok", OPTIONS)[0])
    assert current.finish(again, "ok", OPTIONS)[0] == "DONE"
    enqueue("1")
    assert views.counts(current)["counted"].due == 1
    assert len(survey(current, []).minutes) == MINUTES


def test_who_may_not_count_works_all_the_same(settings: Any) -> None:
    with running() as server, server.client as client:
        denied = ["-hincrby", "-hkeys", "-expire"]
        client.execute_command("ACL SETUSER", "shop", "on", ">s3cret", "+@all", *denied, "~*", "&*")
        url = server.url.replace("//", "//shop:s3cret@")
        cache = {**settings.CACHES["recheck"], "LOCATION": url}
        settings.CACHES = {**settings.CACHES, "uncounted": cache}
        settings.RECHECK = {**settings.RECHECK, "CACHE": "uncounted"}
        with pytest.raises(ResponseError, match="permission"):
            store.current().client.hincrby("a", "b", 1)
        assert store.current().finish(granted(request()), "ok", OPTIONS)[0] == "DONE"
        assert counted() == (0, 0)
        client.connection_pool.disconnect()


def test_the_screen_draws_an_hour_in_bars_of_one_scale() -> None:
    minutes = [(0, 0)] * MINUTES
    found = survey(store.current(), [])
    assert "last hour" not in "\n".join(drawn(replace(found, minutes=minutes)))
    minutes[0], minutes[30], minutes[-1] = (1000, 1), (500, 500), (0, 7)
    title, events, passes = drawn(replace(found, minutes=minutes))[-3:]
    assert title == "last hour" + " " * 65 + "in all"
    assert events == "events    █" + " " * 29 + "▄" + " " * 29 + "      1500"
    assert passes == "passes    ▁" + " " * 29 + "▄" + " " * 28 + "▁" + "       508"


def drawn(found: Survey) -> list[str]:
    nothing: Found[str] = Found({}, {})
    return [line for line in overview(found, [], [], [], nothing) if line]
