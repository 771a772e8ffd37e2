"""What is asked for without a signal: rows and keys given by hand."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.dispatch import receiver

from django_recheck import (
    Outcome,
    passes,
    recheck,
    records,
    store,
    views,
    worker,
)
from django_recheck.by_hand import ByHand
from django_recheck.events import Events
from django_recheck.keys import Concern, item_text
from tests.app.models import (
    Child,
    Group,
    Item,
    Named,
    ProxyItem,
    Seat,
    Team,
)
from tests.test_given_keys import follow, recorded

db = pytest.mark.django_db(transaction=True, databases=["default", "other"])
HALL = uuid.UUID("12345678-1234-5678-1234-567812345678")


@db
def test_by_hand_and_by_signal_it_is_one_item() -> None:
    by_path, by_row = follow(Item, key="group_id", name="path"), follow(Item, name="row")
    group = Group.objects.create(name="g")
    item = Item.objects.create(group_id=str(group.pk), name="a")
    for asked, key in [(by_path, group.pk), (by_row, item.pk)]:
        assert asked.recheck(key=str(key)) is Outcome.PENDING
        (view,) = views.page(store.current(), asked.name, "due")
        assert view.record is not None
        assert view.record.count + view.record.newer_count == 2


@db
@pytest.mark.parametrize(("path", "of"), [(None, '{"tests_app.seat":%s}'), ("pk", "%s")])
def test_the_parts_of_a_composite_key_have_their_fields_types(path: str | None, of: str) -> None:
    asked = follow(Seat, key=path)
    Seat.objects.create(hall=str(HALL), number="7")
    asked.recheck(key=(HALL, 7))
    assert recorded() == [of % f'[{{"uuid":"{HALL}"}},7]']


@db
def test_c34_a_text_that_was_assigned_is_the_fields_value_for_a_path_alone() -> None:
    seen: list[Any] = []

    def key(instance: Item, **kwargs: Any) -> Any:
        seen.append(instance.group_id)
        return instance.group_id

    follow(Item, key="group", name="path")
    follow(Item, key=key)
    group = Group.objects.create(name="g")
    item = Item.objects.create(group=group, name="a")
    item.group_id = str(group.pk)
    item.save()
    assert seen == [group.pk, str(group.pk)]
    assert recorded() == [f'"{group.pk}"', str(group.pk)]
    (view,) = views.page(store.current(), "path", "due")
    assert view.item.text == str(group.pk)


@db
@pytest.mark.parametrize(
    ("wrong", "error"),
    [("abc", ValueError), (None, ValueError), (Group(pk=1), TypeError), (Item(), ValueError)],
)
@pytest.mark.parametrize("before", [2, 2001])
def test_what_stands_before_a_wrong_one_is_recorded(
    before: int, wrong: Any, error: type[Exception]
) -> None:
    asked, taken = follow(Item), []

    def targets() -> Iterator[Any]:
        for target in (*range(before), wrong, -1):
            taken.append(target)
            yield target

    with pytest.raises(error):
        asked.recheck_many(targets())
    assert taken[-1] is wrong
    assert views.counts(store.current())["asked"].due == before
    rest = transaction.atomic()
    with pytest.raises(error), rest:
        asked.recheck_many([-2, wrong])
    assert views.counts(store.current())["asked"].due == before, "rolled back with the caller"


@db
def test_none_is_ignored_among_keys_as_in_an_event() -> None:
    Item.objects.bulk_create([Item(name="a"), Item(name="b", group=Group.objects.create())])
    groups = Item.objects.values_list("group", flat=True)
    assert follow(Item, key="group_id").recheck_many(groups) == 1
    assert recorded() == [str(Group.objects.get().pk)]


@db
def test_a_childs_row_comes_as_its_connected_parent_saved() -> None:
    calls = []

    @receiver(post_save, sender=Group)
    @recheck(name="parents")
    def note(sender: Any, instance: Group, created: bool, **kwargs: Any) -> None:
        calls.append((sender, type(instance), created, kwargs["signal"]))

    child = Child.objects.create(name="a")
    assert note.recheck(child) is Outcome.RAN
    assert note.recheck(key=str(child.pk)) is Outcome.RAN
    assert calls == [(Group, Child, False, post_save), (Group, Group, False, post_save)]


@db
def test_several_models_of_one_table_have_one_key() -> None:
    calls = []

    @receiver(post_save, sender=ProxyItem)
    @receiver(post_save, sender=Item)
    @recheck(name="one-table")
    def note(sender: Any, instance: Item, created: bool, **kwargs: Any) -> None:
        calls.append((sender, type(instance), instance.pk))

    Item.objects.bulk_create([Item(pk=1, name="a")])
    assert note.recheck(key="1") is Outcome.RAN
    assert calls == [(Item, Item, 1)]


@db
@pytest.mark.parametrize("path", ["group_id", None])
def test_a_key_alone_has_no_data(path: str | None) -> None:
    seen = []

    @receiver(post_save, sender=Item)
    @recheck(name="with-data", key=path, data=lambda instance, **_: {"is": instance.value})
    def note(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        seen.append(recheck_pass.data)

    Item.objects.bulk_create([Item(pk=1, name="a", value=5, group=Group.objects.create(pk=1))])
    assert note.recheck(key=1) is Outcome.RAN
    assert note.recheck(Item.objects.get()) is Outcome.RAN
    assert seen == [None, {"is": 5}]
    assert note.recheck(key=0) is (Outcome.RAN if path else Outcome.GONE)


@db
def test_a_key_of_several_models_comes_as_a_save_too() -> None:
    calls = []

    @receiver(post_save, sender=Team)
    @receiver(post_save, sender=Item)
    @recheck(name="of-both", key="group")
    def note(sender: Any, created: bool, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append((sender, created, recheck_pass.key))

    assert note.recheck(key="7") is Outcome.RAN
    assert calls == [(None, False, 7)]


@db
@pytest.mark.parametrize("lost", [False, True])
def test_a_lost_event_of_several_models_finds_its_row(lost: bool) -> None:
    calls = []

    @receiver(post_save, sender=Group)
    @receiver(post_save, sender=Item)
    @recheck(name="of-two")
    def note(sender: Any, instance: Any, created: bool, **kwargs: Any) -> None:
        calls.append((sender, instance))

    group = Group.objects.create(name="g")
    del calls[:]
    (text,) = {ready.item.text for ready in ByHand(note).wanted(group, "default")}
    events = note.event_of(Concern.parse(text))
    assert calls == []
    prepared = passes.prepare(
        note, records.Item("of-two", text), Events(0, ()) if lost else events, None
    )
    assert prepared is not None
    assert (prepared.named["sender"], prepared.named["instance"]) == (Group, group)


@db
def test_many_to_many_changes_are_of_the_relations_own_side() -> None:
    asked, named = follow(), Named.objects.create()
    m2m_changed.connect(asked, sender=Named.items.through)
    assert asked.recheck(named) is Outcome.PENDING
    assert asked.recheck(key=str(named.pk)) is Outcome.PENDING
    assert recorded() == [item_text(named)]
    with pytest.raises(TypeError, match=r"follows tests_app\.Named"):
        asked.recheck(Item(pk=1))


@db
def test_recheck_by_hand_and_by_key() -> None:
    calls = []

    @receiver([post_save, post_delete], sender=Item)
    @recheck(name="by-hand")
    def note(sender: Any, instance: Item, signal: Any, **kwargs: Any) -> None:
        calls.append((sender, instance.pk, signal))

    Item.objects.bulk_create([Item(name="a"), Item(name="b")])
    first, second = Item.objects.order_by("pk")
    assert note.recheck(first) is Outcome.RAN
    assert note.recheck(key=second.pk) is Outcome.RAN
    assert note.recheck(key=0) is Outcome.GONE
    assert calls == [(Item, first.pk, post_save), (Item, second.pk, post_save)]


@db
def test_recheck_many_records_and_never_runs() -> None:
    calls = []

    @receiver(post_save, sender=Item)
    @recheck(name="many")
    def note(sender: Any, instance: Item, **kwargs: Any) -> None:
        calls.append(instance.pk)

    Item.objects.bulk_create([Item(name=str(n)) for n in range(5)])
    rows = list(Item.objects.all())
    assert note.recheck_many(rows) == 5
    assert note.recheck_many([rows[0].pk]) == 1
    assert calls == []
    assert worker.drain().items == 5
    assert sorted(calls) == sorted(row.pk for row in rows)


@db
def test_by_hand_a_receiver_of_saves_gets_what_saves_have() -> None:
    calls = []

    @receiver(post_save, sender=Item)
    @recheck(name="needs-created", key="group")
    def note(sender: Any, instance: Item | None, created: bool, **kwargs: Any) -> None:
        calls.append((sender, instance, created, kwargs["update_fields"]))

    Item.objects.bulk_create([Item(name="a", group=Group.objects.create(name="g"))])
    item = Item.objects.get()
    assert note.recheck(item) is Outcome.RAN
    assert note.recheck(key=item.group_id) is Outcome.RAN
    assert calls == [(Item, item, False, None), (Item, None, False, None)]


@db
def test_by_hand_a_bare_key_of_several_models_is_refused() -> None:
    @receiver(post_save, sender=Item)
    @receiver(post_save, sender=Group)
    @recheck(name="several")
    def note(sender: Any, **kwargs: Any) -> None: ...

    with pytest.raises(TypeError, match=r"tests_app\.Group.*pass the instance"):
        note.recheck(key=1)
