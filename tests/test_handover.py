"""Items of another name, or of another kind of key, in one process: to whom they are given."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models.signals import post_save
from django.utils import translation

from django_recheck import (
    Outcome,
    Receiver,
    handover,
    receivers,
    recheck,
    records,
    store,
    views,
    worker,
)
from django_recheck.records import FORMAT
from tests.app.models import Group, Item
from tests.test_keys import Language

pytestmark = pytest.mark.django_db(transaction=True)
Calls = list[tuple[str, Any, bool]]


@pytest.fixture
def calls() -> Calls:
    """Item, key and ``gone`` of each pass."""
    return []


def version(calls: Calls, **options: Any) -> Receiver[..., Any]:
    """Make a version of the receiver the one that there is."""
    receivers.registry.clear()
    post_save.receivers[:] = []
    post_save.sender_receivers_cache.clear()

    @recheck(**{"name": "old", "dispatch": "worker", **options})
    def note(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append((recheck_pass.item.text, recheck_pass.key, recheck_pass.gone))

    post_save.connect(note, sender=Item)
    return note


@pytest.fixture
def item() -> Item:
    group = Group.objects.create(pk=7, name="g")
    Item.objects.bulk_create([Item(pk=1, name="a", group=group)])
    return Item.objects.get()


def test_what_it_is_given_to_merges_with_its_own(calls: Calls, item: Item) -> None:
    version(calls, key="group_id")
    item.save()
    version(calls, key="group_id", name="new", former_names=["old"])
    item.save()
    note, old, heir = (
        receivers.registry["new"][-1],
        records.Item("old", "7"),
        records.Item("new", "7"),
    )
    granted = store.current().claim(old, note.options)
    assert isinstance(granted, records.Grant)
    assert handover.heir(note, granted) == heir
    handover.give(note, granted, heir)
    (view,) = views.items(store.current(), [heir])
    assert view.record is not None
    assert view.record.newer_count == 2
    assert "old" not in views.receivers(store.current())


def test_the_context_goes_along(calls: Calls, item: Item, settings: Any) -> None:
    settings.RECHECK = {**settings.RECHECK, "CONTEXT": "tests.test_keys.Language"}
    assert Language().capture()
    version(calls)
    with translation.override("de"):
        item.save()
    version(calls, key="group_id")
    worker.drain()
    assert calls == [('7 "default" "de"', 7, False)]


@pytest.mark.parametrize(
    ("before", "after", "call"),
    [
        ({"key": "group_id"}, {"key": lambda **_: (7, "de")}, ("7", 7, True)),
        ({"key": lambda **_: "x"}, {"keys": lambda **_: [1]}, ('"x"', "x", True)),
        ({"key": "group_id"}, {"key": "pk"}, ("7", 7, True)),
        ({}, {"key": "group_id.real"}, ('{"tests_app.item":1}', 1, True)),
        ({"key": "group_id"}, {"key": "name"}, ('"a"', "a", False)),
        ({"key": lambda **_: (7, "de")}, {"key": "group_id"}, ("7", 7, False)),
    ],
)
def test_only_a_kind_that_is_surely_another_is_worked_out_anew(
    calls: Calls, item: Item, before: Any, after: Any, call: Any
) -> None:
    version(calls, **before)
    item.save()
    version(calls, **after)
    assert worker.drain().outcomes == {Outcome.RAN: 1}
    assert calls == [call]
    assert views.counts(store.current()) == {}


def test_a_row_that_is_gone_keeps_the_key_that_nobody_can_work_out(calls: Calls) -> None:
    version(calls)
    Item.objects.create(pk=2, name="b")
    Item.objects.all()._raw_delete("default")
    version(calls, key="name")
    assert worker.drain().outcomes == {Outcome.RAN: 1}
    assert calls == [('{"tests_app.item":2}', 2, True)]


def test_a_receiver_that_is_connected_to_nothing_any_more_does_what_is_owed(
    calls: Calls, item: Item
) -> None:
    note = version(calls, key="group_id")
    item.save()
    post_save.disconnect(note, sender=Item)
    item.save()
    assert worker.drain().outcomes == {Outcome.RAN: 1}
    assert calls == [("7", 7, False)]


def test_what_isnt_taken_is_tried_again(
    calls: Calls, item: Item, caplog: pytest.LogCaptureFixture
) -> None:
    version(calls, key="group_id")
    item.save()
    version(calls, key="group_id", name="new", former_names=["old"], backoff=(100, 100))
    current, heir = store.current(), records.Item("new", "7")
    current.client.hset(current.lane_of(heir).keys[0], heir.text, f"{FORMAT + 1} whatever")
    worker.drain()
    (view,) = views.items(current, [records.Item("old", "7")])
    assert (view.state, view.record.attempts if view.record else 0) == ("due", 1)
    assert "old 7: can't be given to new 7: NEWER" in caplog.text
    assert calls == []
