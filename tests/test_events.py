"""Events: merged the same way in Python and in Lua, out and in again, and what the row decides."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from django.db import transaction
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.dispatch import Signal, receiver
from hypothesis import given, settings
from hypothesis import strategies as st

from django_recheck import EventError, Outcome, Receiver, connection, recheck, worker
from django_recheck.events import Events, Group
from django_recheck.records import pack
from tests.app.models import Group as Parent
from tests.app.models import Item, Named
from tests.servers import of_the_run

GROUPS = st.builds(
    Group,
    name=st.sampled_from(["a", "b", "ç"]),
    created=st.booleans(),
    raw=st.booleans(),
    varying=st.sampled_from(["", "[1]", "[2]", "*"]),
    body=st.text(max_size=8),
)


def one(group: Group) -> Events:
    return Events(1, (group,))


EVENTS = st.lists(st.builds(one, GROUPS), min_size=1, max_size=4).map(lambda found: _merged(found))


def _merged(found: list[Events]) -> Events:
    first, *rest = found
    for newer in rest:
        first = newer.after(first)
    return first


@pytest.fixture(scope="module")
def merge_in_lua() -> Any:
    text = connection.script("renew").text
    text = text[: text.index("-- Compare and extend")] + "return merge(ARGV[1], ARGV[2])"
    with of_the_run().client as client:
        run = client.register_script(text)
        yield lambda older, newer: run(args=[older, newer])


@given(EVENTS, EVENTS, EVENTS)
def test_merging_is_associative(a: Events, b: Events, c: Events) -> None:
    assert c.after(b.after(a)) == c.after(b).after(a)


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
    assert merged.groups[-1].body == b.groups[-1].body


@settings(max_examples=300, deadline=None)
@given(EVENTS, EVENTS)
def test_lua_merges_as_python_does(merge_in_lua: Any, older: Events, newer: Events) -> None:
    merged = merge_in_lua(older.packed(), newer.packed())
    assert Events.parse(1, merged).groups == newer.after(older).groups


@given(st.binary(max_size=30))
def test_broken_events_are_replaced_by_newer_ones(merge_in_lua: Any, broken: bytes) -> None:
    newer = one(Group("a", True, False, "", "{}")).packed()
    try:
        Events.parse(1, broken)
    except Exception:
        assert merge_in_lua(broken, newer) == newer


@given(EVENTS)
def test_out_and_in_again(events: Events) -> None:
    assert Events.parse(events.count, events.packed()) == events


Calls = list[Any]
db = pytest.mark.django_db(transaction=True)


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
def test_a_row_that_is_there_again_is_delivered_as_a_save(calls: Calls) -> None:
    item = Item.objects.create(name="a")
    grouped(calls, key=None)
    pk = item.pk
    item.delete()
    Item.objects.bulk_create([Item(pk=pk, name="again")])
    worker.drain()
    ((_, instance, gone, signal, kwargs, _),) = calls
    assert (instance.name, gone, signal) == ("again", False, post_save)
    assert kwargs["created"] is False


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
def test_every_pass_reads_its_row(calls: Calls) -> None:
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


@db
def test_m2m_changed_travels() -> None:
    calls: Calls = []

    @receiver(m2m_changed, sender=Named.items.through)
    @recheck(name="m2m", dispatch="worker")
    def note(sender: Any, instance: Any, action: str, pk_set: Any, **kwargs: Any) -> None:
        calls.append((sender, instance, action, pk_set))

    item, named = Item.objects.create(name="a"), Named.objects.create()
    named.items.add(item)
    worker.drain()
    assert calls == [(Named.items.through, named, "post_add", {item.pk})]


@db
def test_arguments_of_custom_signals(calls: Calls) -> None:
    probe = Signal()

    @receiver(probe)
    @recheck(name="custom", key=lambda number, **_: number)
    def note(sender: Any, number: int, item: Any, words: Any, **kwargs: Any) -> None:
        calls.append((number, item, words))

    item = Item.objects.create(name="before")
    Item.objects.filter(pk=item.pk).update(name="after")
    probe.send(sender=None, number=1, item=item, words=["a", None, 1.5])
    assert calls == [(1, item, ["a", None, 1.5])]
    assert calls[0][1].name == "after"
    with pytest.raises(EventError, match=r"argument 'words' .* neither JSON nor a saved model"):
        probe.send(sender=None, number=1, item=item, words={1, 2})


def test_a_record_reads_as_the_scripts_wrote_it() -> None:
    assert pack([b"", b"ab"]) == b"0:2:ab"
    text = connection.script("renew").text
    text = text[: text.index("-- Compare and extend")] + "return take(ARGV[1], 1)"
    with of_the_run().client as client, pytest.raises(redis.ResponseError, match="broken"):
        client.eval(text, 0, "9:short")
