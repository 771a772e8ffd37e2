"""A person pauses a receiver: events are recorded and wait."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from django_recheck import Outcome, Receiver, recheck, store, views, worker
from django_recheck.records import Grant, Item, pack

EVENT = pack([b'["","",""]', b"", b"", b"[null,null,{},{},null]"])


@pytest.fixture
def calls() -> list[Any]:
    return []


@pytest.fixture
def rebuild(calls: list[Any]) -> Receiver[..., Any]:
    @recheck(name="rebuild", key="value")
    def rebuild(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append(recheck_pass.key)

    return rebuild


def test_what_is_paused_waits_and_goes_on(rebuild: Receiver[..., Any], calls: list[Any]) -> None:
    current = store.current()
    held = current.request(Item("rebuild", "7"), EVENT, 1, rebuild.options)
    assert isinstance(held, Grant)
    assert current.pause(["rebuild"]) is True
    assert current.pause(["rebuild"]) is False, "it was"
    rebuild.recheck_many([1, 7])
    assert rebuild.recheck(key=2) is Outcome.PENDING
    assert current.finish(held, "ok", rebuild.options) == ("PENDING", False), "no further pass"
    assert worker.drain().items == 0
    counted = views.counts(current)["rebuild"]
    assert (counted.due, counted.running, counted.paused) == (3, 0, True)
    assert current.pause(["rebuild"], paused=False) is True
    assert worker.drain().items == 3
    assert sorted(calls) == [1, 2, 7]
    assert views.counts(current) == {}, "nothing is left of it"


def test_a_pause_without_items_leaves_nothing_when_it_ends(rebuild: Receiver[..., Any]) -> None:
    current = store.current()
    current.pause(["rebuild"])
    assert views.counts(current) == {"rebuild": views.Counts(paused=True)}
    current.pause(["rebuild"], paused=False)
    assert views.receivers(current) == []


def test_a_key_may_be_the_word_for_it(rebuild: Receiver[..., Any], calls: list[Any]) -> None:
    """A person types ``paused``, which is looked for as a text, too, not only as a key."""
    current = store.current()
    current.pause(["rebuild"])
    rebuild.recheck_many(["paused"])
    call_command("recheck_run", "--receiver", "rebuild", "--key", "paused", stdout=StringIO())
    items = [Item("rebuild", "paused"), Item("rebuild", '"paused"')]
    assert [view.state for view in views.items(current, items)] == ["idle", "due"]
    for what in (current.retry, current.discard, current.release):
        assert what([(items[0], views.items(current, items)[0].seen)]) == ["GONE"]
    assert views.counts(current)["rebuild"].paused
    current.pause(["rebuild"], paused=False)
    call_command("recheck_run", "--receiver", "rebuild", "--key", "paused", stdout=StringIO())
    assert calls == ["paused"]
    assert views.counts(current) == {}
