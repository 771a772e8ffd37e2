"""What people see of the outbox wherever items are shown, and what a discard takes along."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, connections, transaction
from django.db.models import F
from django.test import override_settings

from django_recheck import board, receivers, store, views, worker
from django_recheck.outbox import shown, table
from django_recheck.records import Item as Subject
from tests.app.models import Item

from .seen import (
    DATABASES,
    committed_and_not_told,
    durable,
    no_table,
    ripen,
    rows,
    state,
    statements,
)

pytestmark = pytest.mark.django_db(transaction=True, databases=list(DATABASES))


@pytest.fixture
def calls() -> list[Any]:
    return []


def changed(using: str = "default") -> Subject:
    """Commit a change of a new row of which Redis doesn't hear; return the item."""
    committed_and_not_told(lambda: Item.objects.using(using).create(name="a"), using)
    row = rows(using)[-1]
    return Subject(row.receiver, row.item)


def failing(**options: Any) -> Any:
    def fail() -> None:
        raise ValueError("on purpose")

    return durable([], fail, **{"max_attempts": 1, **options})


def dead() -> Subject:
    """Let a durable receiver fail for good; return the item."""
    failing()
    with transaction.atomic():
        Item.objects.create(name="a")
    (row,) = rows()
    assert state(row) == "dead"
    return Subject(row.receiver, row.item)


def again(subject: Subject) -> None:
    """Commit another change of the item of which Redis doesn't hear."""
    committed_and_not_told(lambda: Item.objects.get().save())


def row_of(subject: Subject) -> board.Row:
    """Return what a page shows of an item."""
    (view,) = views.items(store.current(), [subject])
    waiting = shown.items([subject]).waiting
    return board.Row.of(view, 0, outbox=waiting.get(subject, shown.NONE))


def grow_old(seconds: float = 600, using: str = "default") -> None:
    table.model().objects.using(using).update(created=F("created") - timedelta(seconds=seconds))


def status(*words: str) -> tuple[str, int]:
    """Return what ``recheck_status`` prints, and its exit code."""
    out, code = StringIO(), 0
    try:
        call_command("recheck_status", *words, stdout=out)
    except SystemExit as end:
        code = int(end.code or 0)
    return out.getvalue(), code


def refuse(*rest: Any) -> Any:
    raise OperationalError("no route to postgres://u:s3cret@host")


# Numbers


def test_rows_of_all_databases_are_counted_by_receiver(calls: list[Any]) -> None:
    assert shown.receivers() == shown.Found({}, {})
    durable(calls)
    first, _, other = changed(), changed(), changed("other")
    oldest = rows()[0].created
    found = shown.receivers()
    assert found.problems == {}
    waiting = found.waiting["durable"]
    assert (waiting.rows, waiting.oldest) == (3, oldest)
    assert 0 <= (waiting.age or -1) < 60
    assert shown.receivers(["nobody"]).waiting == {}
    told = shown.items([first, other, Subject("durable", "none"), Subject("durable", '{"spoilt')])
    assert {item: each.rows for item, each in told.waiting.items()} == {first: 1, other: 1}


def test_a_database_that_is_away_is_told_and_the_others_are_counted(calls: list[Any]) -> None:
    durable(calls)
    here, there = changed(), changed("other")
    with transaction.atomic(using="other"):
        with connections["other"].execute_wrapper(refuse):
            found, told = shown.receivers(), shown.items([here, there])
        assert Item.objects.using("other").count() == 1, "the transaction goes on"
    assert found.waiting["durable"].rows == 1
    assert list(told.waiting) == [here]
    for problems in (found.problems, told.problems):
        assert [*problems] == ["other"]
        assert "no route" in str(problems["other"])


def test_it_costs_a_query_a_database_however_many_are_asked_for(calls: list[Any]) -> None:
    durable(calls)
    wanted = [changed() for _ in range(5)]
    shown.receivers()
    for ask in (shown.receivers, lambda: shown.items(wanted)):
        assert len(statements("default", ask)) == 1


def test_where_there_is_no_table_or_no_app_nothing_waits(calls: list[Any], settings: Any) -> None:
    durable(calls)
    item = changed()
    without = override_settings(INSTALLED_APPS=settings.INSTALLED_APPS[:-1])
    for gone in (no_table(), without):
        table._known.clear()
        with gone:
            assert shown.receivers() == shown.Found({}, {})
            assert shown.items([item]) == shown.Found({}, {})


# On the screen


def test_the_screen_tells_rows_and_age(calls: list[Any]) -> None:
    durable(calls)
    changed()
    changed("other")
    grow_old(100)
    out, code = status()
    assert code == 0
    assert "\noutbox                               rows  oldest\n" in out
    assert "\ndurable                                 2   100 s\n" in out
    assert "Nothing is held" not in out
    assert out == status("--receiver", "durable")[0]
    durable([], name="another")
    assert "outbox" not in status("--receiver", "another")[0]


def test_old_rows_are_an_alert(calls: list[Any]) -> None:
    durable(calls)
    item = changed()
    grow_old()
    out, code = status()
    assert code == 1
    assert "Outbox rows older than 5 min, of durable: does recheck_run run?" in out
    assert status("--receiver", "durable", "--key", item.text)[1] == 1


def test_rows_of_a_receiver_that_isnt_here_are_told(calls: list[Any]) -> None:
    durable(calls, name="renamed")
    item = changed()
    del receivers.registry["renamed"]
    out, code = status()
    assert code == 0
    assert "renamed: 1 items wait for this receiver, which isn't in this process" in out
    out, _ = status("--receiver", "renamed", "--key", item.text)
    assert "outbox    1 rows" in out


def test_one_item_is_explained_with_its_rows(calls: list[Any]) -> None:
    durable(calls)
    item = changed()
    words = ("--receiver", "durable", "--key", item.text)
    out, code = status(*words)
    assert code == 0
    assert "state     idle" in out
    assert "outbox    1 rows, the oldest 0 s old" in out
    assert "Redis has nothing of it: a drain brings it the rows of the outbox." in out
    told = json.loads(status(*words, "--json")[0])
    assert told["outbox"].pop("age") < 60
    assert told["outbox"] == {"rows": 1, "problems": {}}
    ripen()
    worker.drain()
    told = json.loads(status(*words, "--json")[0])
    assert told["outbox"] == {"rows": 0, "age": None, "problems": {}}


def test_json_tells_rows_of_receivers_and_of_listed_items() -> None:
    item = dead()
    again(item)
    told = json.loads(status("--json")[0])
    assert told["outbox"]["problems"] == {}
    assert told["outbox"]["receivers"]["durable"]["rows"] == 2
    (listed,) = told["dead"]
    assert listed["outbox"]["rows"] == 2
    assert 0 <= listed["outbox"]["age"] < 60


def test_a_database_that_is_away_is_an_alert(calls: list[Any]) -> None:
    durable(calls)
    item = changed("other")
    words = ("--receiver", "durable", "--key", item.text)
    with connections["other"].execute_wrapper(refuse):
        for asked in ((), words):
            out, code = status(*asked)
            assert code == 1
            assert "The outbox of 'other' couldn't be looked at: no route to" in out
            assert "s3cret" not in out
        assert "s3cret" not in status(*words, "--json")[0]
        told = json.loads(status("--json")[0])
    assert "no route" in told["outbox"]["problems"]["other"]


# Given up


def test_a_discarded_item_takes_its_rows_along() -> None:
    item = dead()
    again(item)
    assert len(rows()) == 2
    assert store.current().discard([(item, row_of(item).seen)]) == ["DONE"]
    assert rows() == []
    ripen()
    worker.drain()
    assert views.counts(store.current()) == {}


def test_a_row_that_wasnt_seen_isnt_given_up() -> None:
    """Its event is news, whether or not Redis has heard of it."""
    item = dead()
    before = row_of(item)
    again(item)
    for seen in (before.seen, before.view.seen):
        assert store.current().discard([(item, seen)]) == ["CHANGED"]
    assert (state(rows()[0]), len(rows())) == ("dead", 2)
    assert store.current().retry([(item, before.seen)]) == ["DONE"], "that concerns Redis alone"


def test_a_row_that_comes_meanwhile_isnt_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    item, current = dead(), store.current()
    seen, tend = row_of(item).seen, type(current)._tend

    def meanwhile(*asked: Any) -> Any:
        again(item)
        return tend(*asked)

    monkeypatch.setattr(type(current), "_tend", meanwhile)
    assert current.discard([(item, seen)]) == ["DONE"]
    assert len(rows()) == 1
    ripen()
    assert worker.drain().items == 1


def test_who_dies_in_between_leaves_rows_and_a_drain_brings_the_item_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    item, current = dead(), store.current()
    seen = row_of(item).seen

    def die(*rest: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(table, "remove", die)
        with pytest.raises(KeyboardInterrupt):
            current.discard([(item, seen)])
    assert (state(rows()[0]), len(rows())) == ("idle", 1)
    assert "a drain brings it the rows" in row_of(item).waits_for()
    assert worker.drain().items == 0
    ripen()
    worker.drain()
    assert row_of(item).state is board.State.DEAD
    assert current.discard([(item, row_of(item).seen)]) == ["DONE"]
    assert rows() == []


def test_rows_that_redis_knows_nothing_of_can_be_given_up(calls: list[Any]) -> None:
    durable(calls)
    item, other = changed(), changed("other")
    seen = [(each, row_of(each).seen) for each in (item, other)]
    assert store.current().discard(seen) == ["DONE", "DONE"]
    assert rows() == rows("other") == []
    assert store.current().discard([(item, row_of(item).seen)]) == ["GONE"]


def test_what_runs_keeps_its_rows(calls: list[Any]) -> None:
    def look() -> None:
        item = Subject(rows()[0].receiver, rows()[0].item)
        calls.append(store.current().discard([(item, row_of(item).seen)]))
        assert len(rows()) == 1

    durable([], look)
    with transaction.atomic():
        Item.objects.create(name="a")
    assert calls == [["RUNNING"]]


def test_where_the_database_is_away_nothing_is_forgotten() -> None:
    item = dead()
    seen = row_of(item).seen
    with connection.execute_wrapper(refuse):
        (refused,) = store.current().discard([(item, seen)])
    assert isinstance(refused, OperationalError)
    assert row_of(item).seen == seen


def test_where_rows_cant_be_removed_that_is_said() -> None:
    def keep(execute: Any, sql: str, *rest: Any) -> Any:
        return refuse() if sql.startswith("DELETE") else execute(sql, *rest)

    item = dead()
    with connection.execute_wrapper(keep):
        (refused,) = store.current().discard([(item, row_of(item).seen)])
    assert isinstance(refused, OperationalError)
    assert (state(rows()[0]), len(rows())) == ("idle", 1), "a drain brings it back"


def test_an_item_of_a_database_that_isnt_in_the_settings_has_no_rows() -> None:
    item = Subject("durable", '1 "elsewhere"')
    assert shown.items([item]) == shown.Found({}, {})
    assert store.current().discard([(item, row_of(item).seen)]) == ["GONE"]
