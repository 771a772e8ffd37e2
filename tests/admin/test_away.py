"""Redis away, or settings that are wrong: one sentence on every page, and never an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client

from django_recheck import Receiver, store
from django_recheck.admin.locks import CHUNK
from tests.admin.pages import LIST, address, does, field, seen, words
from tests.servers import apart
from tests.status import held
from tests.test_redis_away import forbidden, full, never_answered, refused, unknown_here

pytestmark = pytest.mark.django_db
ACTIONS = ("recheck", "release", "retry", "delete_selected", "pause", "resume")
WAYS = {
    refused: "Redis doesn't answer: ConnectionError",
    never_answered: "Redis doesn't answer: TimeoutError",
    unknown_here: "Redis refuses this user: ",
}
PAGES = (
    *(LIST, f"{LIST}?state=dead&receiver=totals", f"{LIST}?q=7", f"{LIST}?p=3"),
    *(address(), address("1", "nobody")),
)


@pytest.fixture(params=WAYS, ids=lambda way: str(way.__name__))
def why(request: pytest.FixtureRequest, settings: Any) -> Iterator[str]:
    with request.param() as found:
        away(settings, found.url, 0.05 if request.param is never_answered else 5)
        yield WAYS[request.param]


def away(settings: Any, url: str, patience: float = 5) -> None:
    cache = {**settings.CACHES["recheck"], "LOCATION": url}
    cache["OPTIONS"] = {"SOCKET_TIMEOUT": patience, "SOCKET_CONNECT_TIMEOUT": patience}
    settings.CACHES = {**settings.CACHES, url: cache}
    settings.RECHECK = {**settings.RECHECK, "CACHE": url}


def said(client: Client, url: str, action: str, chosen: str, **more: Any) -> str:
    data = {"action": action, "_selected_action": chosen, **more}
    response = client.post(url, data)
    assert response.status_code == 302, (action, response.status_code)
    response = client.get(response["Location"])
    assert response.status_code == 200
    (message,) = response.context["messages"]
    return str(message)


def test_every_page_says_why_and_is_empty(
    totals: Receiver[..., Any], boss: Client, why: str
) -> None:
    for url in PAGES:
        page = seen(boss, url)
        assert words(page).count(why) == 1, url
        assert "s3cret" not in page
        assert not field(page, "_selected_action")
    history = words(seen(boss, address(view="history")))
    assert "have a change history" in history


def test_every_action_says_why(totals: Receiver[..., Any], boss: Client, why: str) -> None:
    for action in ACTIONS:
        for url in (LIST, address()):
            found = said(boss, url, action, "=0a1b totals 7", post="yes")
            assert found.startswith(why), (action, url)
            assert "s3cret" not in found
        everything = {"select_across": "1", "as_of": "1", "index": "0"}
        assert said(boss, LIST, action, "totals 7", **everything).startswith(why)
    assert said(boss, LIST, "delete_selected", "totals 7").startswith(why), "where it asks first"
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("way", [forbidden, full], ids=["forbidden", "full"])
def test_what_can_only_be_looked_at_is_shown(
    totals: Receiver[..., Any], boss: Client, settings: Any, way: Any
) -> None:
    with way() as found:
        away(settings, found.url)
        assert "Nothing is known of it" in words(seen(boss, address()))
        (chosen,) = field(seen(boss, address()), "_selected_action")
        message = said(boss, address(), "recheck", chosen)
        assert "Redis refuses" in message or "OOM" in message
        assert "s3cret" not in message


def test_what_was_done_before_it_went_away_is_told(
    totals: Receiver[..., Any], boss: Client, settings: Any
) -> None:
    """It goes away between two chunks, of which there are as many as it takes."""
    with apart(settings) as server:
        for key in range(CHUNK + 100):
            held(totals, str(key))
        page = seen(boss)

        def ending(execute: Any, sql: str, *rest: Any) -> Any:
            if "django_admin_log" in sql and "INSERT" in sql:
                server.end()
            return execute(sql, *rest)

        with connection.execute_wrapper(ending):
            everything = {"select_across": "1", "as_of": field(page, "as_of")[0]}
            message = does(boss, "release", LIST, page, **everything)
    assert message.startswith(f"{CHUNK} locks are released.")
    assert "Redis doesn't answer: ConnectionError" in message
    assert LogEntry.objects.count() == CHUNK


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"TTL": "long"}, "RECHECK['TTL']"),
        ({"CACHE": "nowhere"}, "nowhere"),
        ({"CACHE": "default"}, "django-redis"),
    ],
)
def test_wrong_settings_are_told_of(
    boss: Client, settings: Any, wrong: dict[str, Any], why: str
) -> None:
    settings.RECHECK = {**settings.RECHECK, **wrong}
    for url in PAGES:
        assert why in words(seen(boss, url))
    for action in ACTIONS:
        assert why in said(boss, LIST, action, "totals 7", post="yes")


def test_what_another_shard_count_holds_is_told_of(
    totals: Receiver[..., Any], boss: Client, settings: Any
) -> None:
    with apart(settings):
        held(totals)
        settings.RECHECK = {**settings.RECHECK, "SHARDS": 2}
        store.forget()
        assert "RECHECK['SHARDS'] is 2, but Redis holds items in 1" in words(seen(boss))
        assert "RECHECK['SHARDS'] is 2" in words(seen(boss, address()))
        assert "RECHECK['SHARDS'] is 2" in said(boss, LIST, "release", "=0a1b totals 7")
