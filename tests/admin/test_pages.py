"""Pages of a hundred thousand: two round trips each, and no more is read than is shown (C54)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from django_recheck import Receiver, store
from tests.admin.pages import LIST, act, address, does, field, marks, seen, words
from tests.servers import Server, running
from tests.status import EVENT, held
from tests.test_round_trips import Wire

pytestmark = pytest.mark.django_db
MANY = 100_000
SLOW = {"SCAN", "HSCAN", "ZSCAN", "KEYS", "HGETALL", "HVALS", "HKEYS", "EVALSHA"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


class PageWire(Wire):
    """A wire that keeps the second round trip's replies back until it has so many commands.

    A long pipeline is answered while it is being written; so it is seen to wait for no reply.
    """

    second = 1

    def _carry(self, source: Any, talk: Any) -> None:
        self.least = self.second if len(self.turns) > 1 else 1
        super()._carry(source, talk)

    def pages(self, look: Callable[[], str]) -> tuple[str, list[list[str]]]:
        """Return a page and its round trips; it is looked at twice, to learn how long they are."""
        self.second = 1
        self.heard()
        look()
        self.second = sum(map(len, self.heard()[1:]))
        page = look()
        self.second = 1
        return page, self.heard()


@pytest.fixture
def wire(settings: Any, server: Server) -> Iterator[PageWire]:
    """The wire of a process that has used Redis before."""
    wire = PageWire(server)
    url = f"redis://127.0.0.1:{wire.port}/0"
    settings.CACHES = {**settings.CACHES, url: {**settings.CACHES["recheck"], "LOCATION": url}}
    settings.RECHECK = {**settings.RECHECK, "CACHE": url, "PREFIX": f"test-{wire.port}"}
    store.current().check_format()
    yield wire
    store.current().client.connection_pool.disconnect()
    wire.close()


def filled(server: Server, index: int, many: int = MANY) -> None:
    """Let items wait (2), or be dead (3), since when they are as old in seconds as they are many.

    Item 0 is the oldest.
    """
    lane = store.current().lane("totals", 0)
    record = b"1 - 7 0 1 0 1 0 1 1 0 0 0 1\n0:0:%d:%s" % (len(EVENT), EVENT)
    with server.client as client:
        now = int(client.time()[0]) * 1000
        client.hset(lane.keys[0], mapping=dict.fromkeys(range(many), record))
        client.zadd(lane.keys[index], {n: now - 1000 * (many - n) for n in range(many)})
        client.sadd(lane.keys[4], "totals")


def keys(page: str) -> list[str]:
    return [mark.rpartition(" ")[2] for mark in marks(page)]


def test_every_page_costs_two_and_reads_no_more_than_it_shows(
    totals: Receiver[..., Any], boss: Client, wire: PageWire, server: Server
) -> None:
    filled(server, 2)
    grants = [held(totals, f'"held {n}"') for n in range(2)]
    wire.heard()
    pages: dict[str, list[str]] = {
        "?state=pending": [*map(str, range(100))],
        "?state=pending&p=1000": [*map(str, range(99_900, 100_000))],
        "?state=pending&receiver=totals&p=701": [*map(str, range(70_000, 70_100))],
        "?q=70000": ["70000"],
        "?q=nowhere": [],
        "": ['0"', '1"'],
    }
    for query, expected in pages.items():
        page, turns = wire.pages(partial(seen, boss, LIST + query))
        assert keys(page) == expected, query
        first, second = turns
        asked = first + second
        hours = asked.count("HGETALL")
        assert hours == ("receiver=" not in query), "the numbers of an hour, for the chart"
        assert not (SLOW - {"HGETALL"}).intersection(asked)
        guesses = 20 if "q=" in query else 0
        assert len(grants) <= second.count("HGET") <= len(grants) + (guesses or len(expected))
        assert "100000" in words(page)
    _, (first, second) = wire.pages(partial(seen, boss, address("70000")))
    assert second.count("HGET") == 1


def test_the_first_page_of_a_process_costs_one_more(
    totals: Receiver[..., Any], boss: Client, wire: PageWire
) -> None:
    store.forget()
    wire.heard()
    seen(boss, LIST)
    assert [turn[0] for turn in wire.heard()] == ["HMGET", "TIME", "ZCARD"]
    seen(boss, address())
    assert len(wire.heard()) == 2


def test_a_page_beyond_the_end_shows_the_first(
    totals: Receiver[..., Any], boss: Client, wire: PageWire, server: Server
) -> None:
    """A page that has become the only one meanwhile is shown; Django starts anew elsewhere."""
    filled(server, 3, 50)
    assert len(keys(seen(boss, f"{LIST}?state=dead&p=2"))) == 50
    filled(server, 3, 150)
    response = boss.get(f"{LIST}?state=dead&p=9")
    assert response.status_code == 302
    assert response["Location"].endswith("?e=1")
    for query in (
        "p=-1",
        "p=x",
        "all=",
        "o=1.2.3",
        "state=x",
        "receiver=%00",
        "moment__gt=1",
        "e=1",
    ):
        assert boss.get(f"{LIST}?{query}", follow=True).status_code == 200, query


def test_all_pages_are_chosen_as_the_page_has_shown_them(
    totals: Receiver[..., Any], boss: Client, wire: PageWire, server: Server
) -> None:
    filled(server, 3, 1200)
    url = f"{LIST}?state=dead"
    page = seen(boss, url)
    assert "Select all 1200 locks" in words(page)
    lane = store.current().lane("totals", 0)
    with server.client as client:
        now = int(client.time()[0]) * 1000 + 60_000
        client.zadd(lane.keys[3], {"3": now}, xx=True)  # it died again
        client.zadd(lane.keys[3], {"new": now})  # it died since
        client.hset(lane.keys[0], "new", client.hget(lane.keys[0], "1"))
        client.zrem(lane.keys[3], "4")
        client.hdel(lane.keys[0], "4")  # it was discarded
    held(totals, "5")
    everything = {"select_across": "1", "as_of": field(page, "as_of")[0]}
    asked = act(boss, "delete_selected", page, url, **everything).content.decode()
    assert "Discard 1199 locks, with their events?" in words(asked), "as it is now"
    assert "and 1149 more" in words(asked)
    names = ("_selected_action", "action", "post", "select_across", "as_of")

    def retried(execute: Any, sql: str, *rest: Any) -> Any:
        """Another person retries one, while the first chunk is done."""
        if "django_admin_log" in sql and "INSERT" in sql:
            with server.client as client:
                client.zrem(lane.keys[3], "900")
                client.zadd(lane.keys[2], {"900": 1})
        return execute(sql, *rest)

    with connection.execute_wrapper(retried):
        response = boss.post(url, {name: field(asked, name) for name in names})
    (said,) = boss.get(response["Location"]).context["messages"]
    assert str(said) == (
        "1196 locks are discarded, with their events. "
        "Left alone: 3 have changed since the page was shown."
    )
    with server.client as client:
        assert sorted(client.hkeys(lane.keys[0])) == [b"3", b"5", b"900", b"new"]


def test_without_the_moment_nothing_is_done_to_all(
    totals: Receiver[..., Any], boss: Client, wire: PageWire, server: Server
) -> None:
    filled(server, 2, 3)
    for as_of in ({}, {"as_of": ""}, {"as_of": "nan"}, {"as_of": "x"}):
        said = does(
            boss, "delete_selected", f"{LIST}?state=pending", post="yes", select_across="1", **as_of
        )
        assert said == "Left alone: 3 have changed since the page was shown."


@pytest.mark.parametrize("action", ["recheck", "pause"])
def test_all_that_is_searched_or_narrowed_is_chosen(
    totals: Receiver[..., Any], boss: Client, wire: PageWire, server: Server, action: str
) -> None:
    filled(server, 2, 250)
    for query, number in (("state=pending&receiver=totals", 250), ("q=7", 1)):
        url = f"{LIST}?{query}"
        page = seen(boss, url)
        everything = {"select_across": "1", "as_of": field(page, "as_of")[0]}
        said = does(boss, action, url, page, **everything)
        if action == "recheck":
            assert said.startswith(
                f"Passes of {number} locks" if number > 1 else "A pass of 1 lock"
            )
        else:
            assert "1 receiver is paused" in said or "1 needed no change" in said
