"""Keys and items: one canonical, typed text for each, which can be read back."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import models, transaction
from django.db.models.signals import post_delete, post_save
from django.dispatch import Signal
from django.utils import translation
from hypothesis import example, given
from hypothesis import strategies as st

from django_recheck import EventError, Outcome, Receiver, recheck, store, views, worker
from django_recheck.exceptions import RecordError
from django_recheck.keys import Concern, item_text
from django_recheck.records import Item as Key
from tests.app.models import Child, Group, Item, Named, ProxyItem

db = pytest.mark.django_db(transaction=True, databases=["default", "other"])
A_UUID = UUID("12345678-1234-5678-1234-567812345678")
Connect = Callable[..., Receiver[..., Any]]


@pytest.fixture
def passes() -> list[Any]:
    """What the passes of the test were called with: ``recheck_pass`` each."""
    return []


@pytest.fixture
def connect(passes: list[Any]) -> Connect:
    def connect(*senders: type[models.Model], **options: Any) -> Receiver[..., Any]:
        @recheck(**{"name": "keyed", **options})
        def keyed(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
            passes.append(recheck_pass)

        for sender in senders:
            post_save.connect(keyed, sender=sender)
            post_delete.connect(keyed, sender=sender)
        return keyed

    return connect


# What is one item, and what are two


@db
def test_c34_a_rows_key_has_the_type_of_its_primary_key(
    connect: Connect, passes: list[Any]
) -> None:
    connect(Item)
    Item.objects.bulk_create([Item(pk=5001, name="a")])
    with transaction.atomic():
        Item(pk="5001", name="from a URL").save()
        Item(pk=5001, name="from a query").save()
    assert [(p.key, type(p.key), p.event_count) for p in passes] == [(5001, int, 2)]


@db
def test_c34_a_callables_types_are_kept(connect: Connect, passes: list[Any]) -> None:
    connect(Item, keys=lambda **_: [11497, "11497", 11497, (11497,), ("11497",)])
    Item.objects.create(name="a")
    assert [p.key for p in passes] == [11497, "11497", (11497,), ("11497",)]
    assert len({p.item for p in passes}) == 4


@db
def test_a_uuid_comes_back_as_one(connect: Connect, passes: list[Any]) -> None:
    connect(Named)
    named = Named.objects.create()
    Named(pk=str(named.pk)).save(force_update=True)
    assert [p.key for p in passes] == [named.pk] * 2
    assert passes[0].item == passes[1].item
    assert item_text(A_UUID) != item_text(str(A_UUID))
    assert Concern.parse(item_text(A_UUID)).key == A_UUID


@db
def test_an_instance_as_key_is_its_primary_key_and_no_mere_number(
    connect: Connect, passes: list[Any]
) -> None:
    connect(Item, keys=lambda instance, **_: [instance.group, (instance.group, "de"), 7])
    group = Group.objects.create(pk=7, name="g")
    Item.objects.create(group=group, name="a")
    assert [p.key for p in passes] == [7, (7, "de"), 7]
    assert [p.item.text for p in passes] == [
        '{"tests_app.group":7}',
        '[{"tests_app.group":7},"de"]',
        "7",
    ]


@db
def test_c47_a_proxy_is_the_same_row(connect: Connect, passes: list[Any]) -> None:
    connect(Item, ProxyItem)
    with transaction.atomic():
        item = Item.objects.create(name="a")
        ProxyItem.objects.get(pk=item.pk).save()
    assert [(p.key, p.event_count) for p in passes] == [(item.pk, 2)]


@db
def test_c47_a_child_and_its_parent_are_one_row(connect: Connect, passes: list[Any]) -> None:
    connect(Group, Child)
    child = Child.objects.create(name="a")
    Group.objects.get(pk=child.pk).save()
    pk = child.pk
    del passes[:]
    child.delete()
    ((key, count, gone),) = [(p.key, p.event_count, p.gone) for p in passes]
    assert (key, count, gone) == (pk, 2, True), "a child's delete sends its parent's, too"
    assert item_text(Child(pk=pk)) == item_text(Group(pk=pk)) == f'{{"tests_app.group":{pk}}}'


@db
def test_c35_the_database_is_part_of_the_item(connect: Connect, passes: list[Any]) -> None:
    connect(Item, key=lambda **_: 1)
    Item.objects.create(name="a")
    Item.objects.using("other").create(name="a")
    assert [(p.item.text, p.key) for p in passes] == [("1", 1), ('1 "other"', 1)]


class Language:
    """The CONTEXT of the next test."""

    def capture(self) -> Any:
        return translation.get_language()

    def restore(self, value: Any) -> AbstractContextManager[Any]:
        return translation.override(value)


@db
def test_the_context_is_part_of_the_item_and_in_force_in_its_pass(settings: Any) -> None:
    settings.RECHECK = {**settings.RECHECK, "CONTEXT": f"{__name__}.Language"}
    spoken = []

    @recheck(name="keyed")
    def keyed(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        spoken.append((recheck_pass.item.text, translation.get_language()))

    post_save.connect(keyed, sender=Item)
    with transaction.atomic():
        for language in ("de", "fr", "de"):
            with translation.override(language):
                Item(pk=1, name="a").save()
    assert spoken == [
        ('{"tests_app.item":1} "default" "de"', "de"),
        ('{"tests_app.item":1} "default" "fr"', "fr"),
    ]


class Objects(Language):
    def capture(self) -> Any:
        return {1: "de"}


def test_a_captured_context_that_is_no_json_is_refused(settings: Any) -> None:
    settings.RECHECK = {**settings.RECHECK, "CONTEXT": f"{__name__}.Objects"}
    with pytest.raises(EventError, match=r"capture\(\) of Objects returned is no JSON: JSON's obj"):
        recheck(name="captured", key=lambda **_: 1)(lambda **_: None).recheck(key=1)


class Colour(str, enum.Enum):  # noqa: UP042 - the older way, whose str() is "Colour.RED"
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    ("special", "plain"),
    [(Colour.RED, "red"), (Number.ONE, 1), ((Colour.RED, Number.ONE), ("red", 1))],
)
def test_what_equals_a_string_or_a_number_is_the_same_key(special: Any, plain: Any) -> None:
    assert item_text(special) == item_text(plain)


# What is no key


@pytest.mark.parametrize(
    "key",
    [True, 1.0, float("nan"), Decimal(1), b"a", [1], {1}, object(), (1, None), (1, (False,))],
    ids=lambda key: type(key).__name__,
)
def test_what_is_no_key_is_refused_in_one_sentence(connect: Connect, key: Any) -> None:
    probe = Signal()
    probe.connect(connect(key=lambda **_: key))
    with pytest.raises(EventError, match=r"^A key can't be ") as refused:
        probe.send(sender=None)
    text = str(refused.value)
    assert text.endswith("or None to ignore the event.")
    assert text.count(". ") == 0
    assert views.counts(store.current()) == {}


def test_a_row_that_was_never_saved_is_no_key(connect: Connect) -> None:
    probe = Signal()
    probe.connect(connect())
    with pytest.raises(EventError, match=r"never saved can't be a key"):
        probe.send(sender=Item, instance=Item(name="a"))


def test_none_ignores_the_event(connect: Connect, passes: list[Any]) -> None:
    probe = Signal()
    probe.connect(connect(key=lambda **_: None))
    outcome: Any
    ((_, outcome),) = probe.send(sender=None)
    assert outcome is Outcome.IGNORED
    assert passes == []


# Out and in again

TEXTS = st.text(st.characters(exclude_categories=()))
KEYS = st.recursive(
    st.integers() | TEXTS | st.uuids(),
    lambda keys: st.lists(keys, max_size=4).map(tuple),
    max_leaves=8,
)
CONTEXTS = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda found: st.lists(found, max_size=3) | st.dictionaries(TEXTS, found, max_size=3),
    max_leaves=6,
)


def typed(key: Any) -> Any:
    """Return a key so that no two types are equal."""
    return tuple(map(typed, key)) if isinstance(key, tuple) else (type(key), key)


@given(KEYS, st.sampled_from(["default", "other"]) | TEXTS, CONTEXTS)
@example((), "default", None)
@example("", "", 0)
def test_an_items_text_is_read_back(key: Any, using: str, context: Any) -> None:
    text = item_text(key, using, context)
    assert text.isascii()
    concern = Concern.parse(text)
    assert typed(concern.key) == typed(key)
    assert (concern.using, concern.context) == (using, context)


@given(KEYS, KEYS)
def test_two_keys_have_two_texts(one: Any, other: Any) -> None:
    assert (item_text(one) == item_text(other)) == (typed(one) == typed(other))


@given(st.dictionaries(TEXTS, st.integers(), min_size=2))
def test_a_contexts_order_makes_no_difference(context: dict[str, int]) -> None:
    backwards = dict(reversed(context.items()))
    assert item_text(1, "default", context) == item_text(1, "default", backwards)


# What stands in Redis may be anything

HOSTILE = [
    "",
    " ",
    "[",
    '"',
    "1 2",
    '1 "default" null 4',
    "{}",
    '{"a":1,"b":2}',
    '{"uuid":"nobody"}',
    '{"uuid":5}',
    '{"os.system":"true"}',
    '{"tests_app.item":"not a number"}',
    '{"tests_app.item":[1]}',
    '{"tests_app.nothing":1}',
    '{"__class__":1}',
    "[" * 100_000,
    "[" * 100_000 + "]" * 100_000,
    '{"uuid":' * 50_000 + "1" + "}" * 50_000,
    "9" * 5000,
    "-",
    "\x00",
    "\ufffd",
    "\ud800",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_item_is_a_record_error(text: str) -> None:
    with pytest.raises(RecordError) as refused:
        Concern.parse(text)
    assert len(str(refused.value)) < 1000


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda found: (
        st.lists(found, max_size=3)
        | st.dictionaries(st.sampled_from(["uuid", "tests_app.item", "x"]), found, max_size=2)
    ),
    max_leaves=6,
)


@given(
    st.text()
    | st.binary().map(lambda packed: packed.decode("utf-8", "replace"))
    | st.lists(JSON.map(json.dumps), max_size=4).map(" ".join)
)
def test_whatever_stands_there_is_read_or_refused(text: str) -> None:
    try:
        concern = Concern.parse(text)
    except RecordError:
        return
    assert isinstance(concern.using, str)


@pytest.mark.parametrize("text", ['{"os.system":"true"}', "\ufffd", '{"uuid":1}', "[[[", "1 {}"])
def test_a_drain_survives_a_hostile_item(connect: Connect, passes: list[Any], text: str) -> None:
    keyed = connect(max_attempts=1)
    item = Key(keyed.name, text)
    current = store.current()
    event = keyed.event_of(Concern.parse("1")).packed()
    current.enqueue([store.Entry(item, 1, event, keyed.options)])
    assert worker.drain().outcomes == {Outcome.DEAD: 1}
    (view,) = views.items(current, [item])
    assert view.state == "dead"
    assert view.record is not None
    assert view.record.error
    assert passes == []
