"""Events: merged the same way in Python and in Lua, out and in again, and what the row decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from django.db import transaction
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver
from hypothesis import example, given, settings
from hypothesis import strategies as st

from django_recheck import Outcome, Receiver, connection, recheck, worker
from django_recheck.events import Events, Group
from django_recheck.exceptions import RecordError
from tests.app.models import Group as Parent
from tests.app.models import Item
from tests.servers import of_the_run

SCRIPTS = Path(connection.__file__).parent / "scripts"
GROUPS = st.builds(
    Group,
    name=st.sampled_from(["a", "b", "ç", ""]),
    created=st.booleans(),
    raw=st.booleans(),
    varying=st.sampled_from(["", "[1]", "[2]", "*"]),
    body=st.text(max_size=8) | st.from_regex(r"[0-9]{0,5}\[.{0,3}", fullmatch=True),
)
EVENTS = st.lists(GROUPS, max_size=4, unique_by=lambda group: group.name).map(
    lambda groups: Events(len(groups), tuple(groups))
)
EMPTY = Events(0, ())


@pytest.fixture(scope="module")
def merge_in_lua() -> Iterator[Callable[[bytes, bytes], bytes]]:
    with of_the_run().client as client:
        text = (SCRIPTS / "record.lua").read_text() + "return merge(ARGV[1], ARGV[2])"
        run = client.register_script(text)
        yield lambda older, newer: cast(bytes, run(args=[older, newer]))


@given(EVENTS, EVENTS, EVENTS)
def test_merging_is_associative(a: Events, b: Events, c: Events) -> None:
    assert c.after(b.after(a)) == c.after(b).after(a)
    assert a.after(EMPTY) == EMPTY.after(a) == a


@given(EVENTS, EVENTS)
def test_a_merger_never_claims_less_than_its_parts(a: Events, b: Events) -> None:
    merged = b.after(a)
    assert merged.count == a.count + b.count
    names = [group.name for group in merged.groups]
    assert sorted(names) == sorted({g.name for g in (*a.groups, *b.groups)})
    for part in (*a.groups, *b.groups):
        (whole,) = (group for group in merged.groups if group.name == part.name)
        assert whole.created >= part.created
        assert whole.raw <= part.raw
        assert whole.varying in (part.varying, "*")
    for newest in b.groups:
        (whole,) = (group for group in merged.groups if group.name == newest.name)
        assert whole.depth == min(g.depth for g in (*a.groups, *b.groups) if g.name == whole.name)
        assert whole.body.endswith(newest.body.lstrip("0123456789"))
    assert names[len(names) - len(b.groups) :] == [group.name for group in b.groups]


@settings(max_examples=300, deadline=None)
@given(EVENTS, EVENTS)
@example(EMPTY, EMPTY)
@example(Events(1, (Group("a", True, True, "[1]", "ß"),)), EMPTY)
@example(EMPTY, Events(1, (Group("ç", False, False, "", "日本"),)))
def test_lua_merges_as_python_does(merge_in_lua: Any, older: Events, newer: Events) -> None:
    merged = merge_in_lua(older.packed(), newer.packed())
    assert Events.parse(1, merged).groups == newer.after(older).groups


@given(st.binary(min_size=1, max_size=30) | EVENTS.map(lambda events: events.packed()[1:]))
def test_what_is_broken_gives_way_in_a_merger(merge_in_lua: Any, broken: bytes) -> None:
    sound = Events(1, (Group("a", True, False, "", "{}"),)).packed()
    try:
        Events.parse(1, broken)
    except RecordError:
        assert merge_in_lua(broken, sound) == sound
        assert merge_in_lua(sound, broken) == sound


@given(EVENTS)
def test_out_and_in_again(events: Events) -> None:
    assert Events.parse(events.count, events.packed()) == events


Calls = list[Any]
db = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@pytest.fixture
def calls() -> Calls:
    return []


def grouped(calls: Calls, **options: Any) -> Receiver[..., Any]:
    @receiver([post_save, post_delete], sender=Item)
    @recheck(**{"name": "grouped", "key": "group", "dispatch": "worker", **options})
    def grouped(sender: Any, instance: Any, recheck_pass: Any, signal: Any, **kwargs: Any) -> None:
        calls.append((recheck_pass.key, instance, recheck_pass.gone, signal, kwargs, recheck_pass))

    return grouped


@db
def test_created_and_update_fields_after_merging(calls: Calls) -> None:
    grouped(calls)
    group = Parent.objects.create(name="g")
    with transaction.atomic():
        item = Item.objects.create(group=group, name="a")
        item.save(update_fields=["name"])
    item.save(update_fields=["value"])
    assert worker.drain().items == 1
    ((_, _, _, signal, kwargs, recheck_pass),) = calls
    assert signal is post_save
    assert (kwargs["created"], kwargs["raw"], kwargs["update_fields"]) == (True, False, None)
    assert (recheck_pass.event_count, recheck_pass.merged) == (3, ())


@db
def test_raw_only_if_all_were(calls: Calls) -> None:
    grouped(calls)
    for raws in ([True, True], [True, False], [False, True]):
        item = Item(group=Parent.objects.create(name="g"), name="a")
        for raw in raws:
            item.save_base(raw=raw)
    worker.drain()
    assert sorted(call[4]["raw"] for call in calls) == [False, False, True]


@db
def test_equal_update_fields_survive_a_merger(calls: Calls) -> None:
    item = Item.objects.create(group=Parent.objects.create(name="g"), name="a")
    grouped(calls)
    item.save(update_fields=["name", "value"])
    item.save(update_fields=["value", "name"])
    worker.drain()
    assert calls[0][4]["update_fields"] == frozenset({"name", "value"})


@db
def test_c58_a_grouped_key_is_called_although_its_newest_row_vanished(calls: Calls) -> None:
    grouped(calls)
    group = Parent.objects.create(name="g")
    Item.objects.create(group=group, name="sibling")
    newest = Item.objects.create(group=group, name="newest")
    Item.objects.filter(pk=newest.pk)._raw_delete("default")
    worker.drain()
    ((key, instance, gone, _, _, recheck_pass),) = calls
    assert (key, gone) == (group.pk, True)
    assert (instance.pk, instance.group_id) == (newest.pk, group.pk)
    assert recheck_pass.event_count == 2


@db
def test_only_a_default_key_is_gone(calls: Calls) -> None:
    grouped(calls, key=None)
    item = Item.objects.create(name="a")
    Item.objects.filter(pk=item.pk)._raw_delete("default")
    tally = worker.drain()
    assert tally.outcomes[Outcome.GONE] == 1
    assert calls == []


@db
def test_a_deleted_row_comes_with_its_last_known_values(calls: Calls) -> None:
    grouped(calls, key=None, carry=["name"])
    group = Parent.objects.create(name="g")
    item = Item.objects.create(group=group, name="a")
    pk = item.pk
    item.delete()
    worker.drain()
    ((key, instance, gone, signal, _, _),) = calls
    assert (key, gone, signal) == (pk, True, post_delete)
    assert (instance.pk, instance.group_id, instance.name) == (pk, group.pk, "a")
    assert instance.get_deferred_fields() == {"value"}, "nothing else lies about in Redis"


@db
def test_a_delete_among_the_events_is_heard_although_a_save_came_after(calls: Calls) -> None:
    grouped(calls, key=None)
    item = Item.objects.create(name="a")
    pk = item.pk
    item.delete()
    Item.objects.create(pk=pk, name="again")
    Item.objects.filter(pk=pk)._raw_delete("default")
    worker.drain()
    ((key, instance, gone, signal, _, recheck_pass),) = calls
    assert (key, instance.pk, gone, signal) == (pk, pk, True, post_delete)
    assert recheck_pass.signals == {"post_save", "post_delete"}


@db
def test_c36_any_other_key_is_called_when_its_row_is_deleted(calls: Calls) -> None:
    grouped(calls, key="name")
    item = Item.objects.create(group=Parent.objects.create(name="g"), name="the key")
    pk = item.pk
    item.delete()
    worker.drain()
    ((key, instance, gone, signal, _, _),) = calls
    assert (key, gone, signal) == ("the key", True, post_delete)
    assert (instance.pk, instance.name) == (pk, "the key")


@db
@pytest.mark.parametrize("key", [None, "group"])
def test_a_row_that_is_there_again_is_delivered_as_a_save(calls: Calls, key: str | None) -> None:
    item = Item.objects.create(group=Parent.objects.create(name="g"), name="a")
    grouped(calls, key=key)
    pk, group = item.pk, item.group
    item.delete()
    Item.objects.bulk_create([Item(pk=pk, group=group, name="again")])
    worker.drain()
    ((_, instance, gone, signal, kwargs, _),) = calls
    assert (instance.name, gone, signal) == ("again", False, post_save)
    assert (kwargs["created"], kwargs["raw"], kwargs["update_fields"]) == (False, False, None)


@db
def test_the_save_that_came_before_the_delete_is_delivered_if_the_row_is_there(
    calls: Calls,
) -> None:
    grouped(calls, key=None)
    item = Item.objects.create(name="a")
    pk = item.pk
    item.delete()
    Item.objects.bulk_create([Item(pk=pk, name="again")])
    worker.drain()
    ((_, instance, gone, signal, kwargs, recheck_pass),) = calls
    assert (instance.name, gone, signal, kwargs["created"]) == ("again", False, post_save, True)
    assert [merged[0] for merged in recheck_pass.merged] == ["post_delete"]


@db
def test_a_siblings_save_says_nothing_of_a_row_that_is_there_again(calls: Calls) -> None:
    grouped(calls, data=lambda instance, **_: instance.name)
    group = Parent.objects.create(name="g")
    item = Item.objects.create(group=group, name="a")
    Item.objects.create(group=group, name="sibling")
    pk = item.pk
    item.delete()
    Item.objects.bulk_create([Item(pk=pk, group=group, name="again")])
    worker.drain()
    ((_, instance, gone, signal, kwargs, recheck_pass),) = calls
    assert (instance.name, gone, signal, kwargs["created"]) == ("again", False, post_save, False)
    assert recheck_pass.data == "a"
    assert [merged[0] for merged in recheck_pass.merged] == ["post_save", "post_delete"]


@db
def test_who_hears_only_of_deletes_hears_of_one_although_the_row_is_there(calls: Calls) -> None:
    item = Item.objects.create(name="a")
    note = grouped(calls, key=None)
    post_save.disconnect(note, sender=Item)
    pk = item.pk
    item.delete()
    Item.objects.bulk_create([Item(pk=pk, name="again")])
    worker.drain()
    assert [(call[0], call[2], call[3]) for call in calls] == [(pk, False, post_delete)]


@db
def test_c59_a_row_that_left_the_key_is_known_by_its_event(calls: Calls) -> None:
    grouped(calls)
    first, second = (Parent.objects.create(name=name) for name in "ab")
    item = Item.objects.create(group=first, name="a")
    Item.objects.filter(pk=item.pk).update(group=second)
    worker.drain()
    ((key, instance, gone, _, _, _),) = calls
    assert (key, gone, instance.group_id) == (first.pk, True, first.pk)


@db
def test_c59_both_groups_of_a_moved_row_are_called(calls: Calls) -> None:
    first, second = (Parent.objects.create(name=name) for name in "ab")
    item = Item.objects.create(group=first, name="a")
    grouped(calls, key=None, keys=lambda instance, **_: {first.pk, instance.group_id})
    item.group = second
    item.save()
    worker.drain()
    found = {key: (instance.group_id, gone) for key, instance, gone, *_ in calls}
    assert found == {first.pk: (second.pk, False), second.pk: (second.pk, False)}


@db
def test_a_row_is_read_where_it_was_written(calls: Calls) -> None:
    grouped(calls, key=None)
    item = Item.objects.using("other").create(name="there")
    Item.objects.create(pk=item.pk, name="here")
    worker.drain()
    found = {call[4]["using"]: (call[1].name, call[1]._state.db) for call in calls}
    assert found == {"default": ("here", "default"), "other": ("there", "other")}


@db
def test_c49_every_pass_reads_its_row(calls: Calls) -> None:
    grouped(calls)
    item = Item.objects.create(group=Parent.objects.create(name="g"), name="before")
    Item.objects.filter(pk=item.pk).update(name="after")
    worker.drain()
    assert calls[0][1].name == "after"


@db
def test_without_refresh_nothing_is_read(calls: Calls, django_assert_num_queries: Any) -> None:
    grouped(calls, refresh=False, carry=["name"])
    item = Item.objects.create(group=Parent.objects.create(name="g"), name="before")
    Item.objects.filter(pk=item.pk).update(name="after")
    with django_assert_num_queries(0):
        worker.drain()
        assert calls[0][1].name == "before"


@db
def test_queryset_shapes_the_read(calls: Calls, django_assert_num_queries: Any) -> None:
    grouped(calls, queryset=lambda rows: rows.select_related("group"))
    Item.objects.create(group=Parent.objects.create(name="g"), name="a")
    with django_assert_num_queries(1):
        worker.drain()
        assert calls[0][1].group.name == "g"


@db
def test_data_travels(calls: Calls) -> None:
    grouped(calls, data=lambda instance, **_: {"was": instance.name})
    item = Item.objects.create(group=Parent.objects.create(name="g"), name="then")
    Item.objects.filter(pk=item.pk).update(name="now")
    worker.drain()
    assert calls[0][5].data == {"was": "then"}
