"""What the admin shows of rows, and what becomes of them when somebody discards their item."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction
from django.db.models import F
from django.test import Client

from django_recheck import store, views
from django_recheck.outbox import table
from tests.admin.pages import LIST, act, address, does, field, seen, words
from tests.app.models import Item

from .seen import DATABASES, committed_and_not_told, durable, rows, state

pytestmark = pytest.mark.django_db(transaction=True, databases=list(DATABASES))
DEAD = f"{LIST}?state=dead"


@pytest.fixture
def boss(client: Client) -> Client:
    """A client who may do everything."""
    client.force_login(User.objects.create_superuser("boss"))
    return client


@pytest.fixture
def dead() -> str:
    """An item that is given up, with a row of it and one of which Redis hasn't heard."""

    def fail() -> None:
        raise ValueError("on purpose")

    durable([], fail, max_attempts=1)
    with transaction.atomic():
        Item.objects.create(name="a")
    again()
    first, second = rows()
    assert first.item == second.item
    assert state(first) == "dead"
    text: str = first.item
    return text


def again() -> None:
    committed_and_not_told(Item.objects.get().save)


def test_rows_and_the_oldest_ones_age_are_shown(dead: str, boss: Client) -> None:
    table.model().objects.update(created=F("created") - timedelta(seconds=200))
    for url in (LIST, DEAD):
        assert "Outbox rows 2, the oldest 3 min old" in words(seen(boss, url))
    assert "Outbox rows: 2, the oldest 3 min old" in words(seen(boss, address(dead, "durable")))
    table.model().objects.update(created=F("created") - timedelta(seconds=200))
    said = words(seen(boss, LIST))
    assert "Outbox rows older than 5 min, of durable: does recheck_run run?" in said


def test_an_item_that_only_rows_know_is_shown(boss: Client) -> None:
    durable([])
    committed_and_not_told(Item(name="a").save)
    (row,) = rows()
    said = words(seen(boss, address(row.item, "durable")))
    assert "Outbox rows: 1, the oldest 0 s old" in said
    assert "Redis has nothing of it: a drain brings it the rows of the outbox." in said


def test_a_database_that_is_away_is_told(dead: str, boss: Client) -> None:
    def refuse(execute: Any, sql: str, *rest: Any) -> Any:
        if "outbox" in sql:
            raise OperationalError("no route")
        return execute(sql, *rest)

    with connection.execute_wrapper(refuse):
        said = words(seen(boss, LIST))
    assert "The outbox of 'default' couldn't be looked at: no route" in said


@pytest.mark.parametrize("where", ["list", "item"])
def test_who_discards_an_item_discards_its_rows(dead: str, boss: Client, where: str) -> None:
    url = DEAD if where == "list" else address(dead, "durable")
    page = act(boss, "delete_selected", seen(boss, url), url).content.decode()
    data = {name: field(page, name) for name in ("_selected_action", "action", "post")}
    assert len(rows()) == 2, "it asks first"
    response = boss.post(url, data)
    (said,) = boss.get(response["Location"]).context["messages"]
    assert str(said) == "1 lock is discarded, with its events."
    assert rows() == []
    assert views.counts(store.current()) == {}


def test_a_row_that_came_since_the_page_was_shown_keeps_both(dead: str, boss: Client) -> None:
    page = seen(boss, DEAD)
    again()
    said = does(boss, "delete_selected", DEAD, page, post="yes")
    assert said == "Left alone: 1 has changed since the page was shown."
    assert (len(rows()), state(rows()[0])) == (3, "dead")


def test_a_retry_takes_no_row_along(dead: str, boss: Client) -> None:
    assert does(boss, "retry", DEAD) == "1 dead lock is tried again by the next drain."
    assert (len(rows()), state(rows()[0])) == (2, "due")
