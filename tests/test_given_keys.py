"""Which keys and rows may be given by hand, and which are refused in one sentence."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.signals import user_logged_in
from django.contrib.sessions.models import Session
from django.core.signals import setting_changed
from django.db.models import Model
from django.db.models.signals import m2m_changed, post_save
from django.dispatch import Signal

from django_recheck import (
    EventError,
    Outcome,
    Receiver,
    recheck,
    store,
    views,
)
from tests.app.models import (
    Child,
    GrandChild,
    Group,
    Item,
    Membership,
    Named,
    Priced,
    ProxyItem,
    Seat,
    Team,
)

HALL = uuid.UUID("12345678-1234-5678-1234-567812345678")


def follow(*models: type[Model] | None, **options: Any) -> Receiver[..., Any]:
    """Make a receiver of models' saves, whose passes wait."""

    @recheck(**{"name": "asked", "dispatch": "worker", **options})
    def asked(sender: Any, **kwargs: Any) -> None: ...

    for model in models:
        post_save.connect(asked, sender=model)
    return asked


def recorded() -> list[str]:
    """Return the items that stand in Redis."""
    return sorted(view.item.text for view in views.page(store.current(), "asked", "due"))


# A key given by hand is the one that a signal would give


@pytest.mark.parametrize(
    ("model", "path", "key", "text"),
    [
        (Item, None, "65", '{"tests_app.item":65}'),
        (ProxyItem, None, "65", '{"tests_app.item":65}'),
        (GrandChild, None, "65", '{"tests_app.group":65}'),
        (
            Named,
            None,
            str(HALL),
            '{"tests_app.named":{"uuid":"12345678-1234-5678-1234-567812345678"}}',
        ),
        (Named, None, HALL, '{"tests_app.named":{"uuid":"12345678-1234-5678-1234-567812345678"}}'),
        (Priced, None, "1.50", '{"tests_app.priced":"1.5"}'),
        (Priced, None, Decimal("1.5"), '{"tests_app.priced":"1.5"}'),
        (
            Seat,
            None,
            (str(HALL), "7"),
            '{"tests_app.seat":[{"uuid":"12345678-1234-5678-1234-567812345678"},7]}',
        ),
        (Seat, "pk", [str(HALL), "7"], '[{"uuid":"12345678-1234-5678-1234-567812345678"},7]'),
        (Item, "group", "65", "65"),
        (Item, "group_id", "65", "65"),
        (Item, "group_id", 65, "65"),
        (Item, "group_id", 65.0, "65"),
        (Item, "group", Group(pk=65), "65"),
        (Item, "group", GrandChild(id=65, pk=65), "65"),
        (Item, "group.child.extra", "65", "65"),
        (Item, "pk", "65", "65"),
        (Item, "name", 65, '"65"'),
        (GrandChild, "child_ptr", "65", "65"),
        (Membership, "team", Team(pk=1, code="x"), '"x"'),
        (Membership, "team", 65, '"65"'),
        (Item, "name.strip", 65, "65"),
        (Item, "group.nothing", "65", '"65"'),
        (None, "pk", "65", '"65"'),
    ],
)
def test_a_key_has_the_type_that_the_path_ends_in(
    model: type[Model], path: str | None, key: Any, text: str
) -> None:
    asked = follow(model, key=path)
    assert asked.recheck(key=key) is Outcome.PENDING
    assert recorded() == [text]
    assert asked.recheck_many([] if isinstance(key, Model) else [key]) in (0, 1)
    assert recorded() == [text]


@pytest.mark.parametrize(
    ("models", "key", "text"),
    [
        ([Group, Item], "65", "65"),
        ([Group, Session], 65, "65"),
        ([Group, Session], "65", '"65"'),
        ([Group, Session], HALL, f'"{HALL}"'),
        ([Group, Named], 65, "65"),
        ([Group, Named], "65", "65"),
        ([Group, Named], str(HALL), '{"uuid":"12345678-1234-5678-1234-567812345678"}'),
        ([Group, Seat], "65", "65"),
        ([Group, None], "65", "65"),
    ],
)
def test_of_several_models_fields_those_count_that_can_have_the_key(
    models: list[Any], key: Any, text: str
) -> None:
    follow(*models, key="pk").recheck(key=key)
    assert recorded() == [text]


def test_a_key_that_is_another_for_each_model_is_refused() -> None:
    asked = follow(Named, Group, key="pk")
    with pytest.raises(ValueError, match=r"^asked: '(65){16}' is another key for each of its mod"):
        asked.recheck(key="65" * 16)
    assert recorded() == []


# What can't be meant is refused in one sentence, and nothing is recorded of it


@pytest.mark.parametrize(
    ("model", "path", "key", "words"),
    [
        (
            Item,
            None,
            "abc",
            r"'abc' .* value of tests_app\.Item\.id: “abc” value must be an integer\.",
        ),
        (Item, None, 1.5, r"1\.5 can't be its key, which is a value of tests_app\.Item\.id\."),
        (Item, None, True, "True can't be its key"),
        (Item, None, (1,), r"\(1,\) can't be its key"),
        (Item, None, HALL, "UUID.* can't be its key"),
        (Child, None, "abc", r"'abc' .* value of tests_app\.Group\.id: "),
        (Named, None, "abc", "“abc” is not a valid UUID"),
        (Named, None, 65, "65 can't be its key"),
        (Seat, None, 7, r"7 can't be its key, which is a value of tests_app\.Seat\.pk\."),
        (Seat, None, "ab", "'ab' can't be its key"),
        (Seat, "pk", (HALL,), "can't be its key"),
        (Seat, "pk", (HALL, 7.5), "can't be its key"),
        (Item, "group", "abc", r"'abc' .* value of tests_app\.Item\.group: "),
        (Item, "group", Item(pk=5), "can't be its key"),
        (Item, "group", Group(), "None can't be its key"),
        (Item, "name", ("a",), r"\('a',\) can't be its key"),
        (Item, "name", b"a", "b'a' can't be its key"),
    ],
)
def test_a_key_that_the_field_cant_have(
    model: type[Model], path: str | None, key: Any, words: str
) -> None:
    asked = follow(model, key=path)
    with pytest.raises(ValueError, match=f"^asked: .*{words}") as refused:
        asked.recheck(key=key)
    assert str(refused.value).endswith(".")
    if not isinstance(key, Model):
        with pytest.raises(ValueError, match=words):
            asked.recheck_many([key])
    assert recorded() == []


@pytest.mark.parametrize("key", [1.5, b"a", True, {"a": 1}])
def test_what_is_no_key_for_a_callable(key: Any) -> None:
    with pytest.raises(EventError, match=r"^A key can't be .*: it is an int, a str"):
        follow(Item, key=lambda **_: 1).recheck(key=key)
    assert recorded() == []


@pytest.mark.parametrize(
    ("args", "named", "error", "words"),
    [
        ((), {}, TypeError, r"takes a saved row or key=, and got neither\."),
        ((None,), {"key": None}, TypeError, "got neither"),
        ((Item(pk=1),), {"key": 1}, TypeError, "got both"),
        ((5,), {}, TypeError, r"a saved row, not int: pass a key as key=, and several to rec"),
        (("65",), {}, TypeError, "a saved row, not str"),
        ((Item,), {}, TypeError, "a saved row, not ModelBase"),
        (([Item(pk=1)],), {}, TypeError, "a saved row, not list"),
        (
            (Group(pk=1),),
            {},
            TypeError,
            r"follows tests_app\.Item, and this is a row of tests_app\.G",
        ),
        (
            (Item(name="new"),),
            {},
            ValueError,
            r"this tests_app\.Item has no primary key: save it f",
        ),
        ((), {"key": Item(name="new")}, ValueError, "has no primary key"),
        ((), {"key": Group(pk=1)}, TypeError, r"follows tests_app\.Item"),
        ((), {"key": 1, "using": "nowhere"}, ValueError, r"DATABASES has no 'nowhere'\."),
        ((Item(pk=1),), {"using": "nowhere"}, ValueError, "DATABASES has no 'nowhere'"),
    ],
)
def test_what_recheck_cant_take(args: Any, named: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"^asked.* {words}"):
        follow(Item).recheck(*args, **named)
    assert recorded() == []


def test_a_composite_key_that_isnt_whole_is_no_saved_rows() -> None:
    with pytest.raises(ValueError, match=r"Seat has no primary key"):
        follow(Seat).recheck(Seat(hall=HALL))


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ("12", r"'12' is none: write a single one in brackets\."),
        (b"12", "b'12' is none"),
        (3, "int is none"),
        (None, "NoneType is none"),
        (Item(pk=1), "Item is none"),
        (Item.objects, "Manager is none"),
    ],
)
def test_what_recheck_many_cant_take(targets: Any, words: str) -> None:
    with pytest.raises(TypeError, match=f"^asked: recheck_many.* takes rows or keys.*{words}"):
        follow(Item).recheck_many(targets)
    assert recorded() == []


# Which models a receiver follows


@pytest.mark.parametrize(
    ("model", "row"),
    [
        (Item, ProxyItem(pk=1)),
        (ProxyItem, Item(pk=1)),
        (Group, Child(id=1, pk=1)),
        (Group, GrandChild(id=1, pk=1)),
        (Child, GrandChild(id=1, pk=1)),
        (None, Item(pk=1)),
    ],
)
def test_children_and_proxies_are_rows_of_a_model(model: type[Model] | None, row: Model) -> None:
    assert follow(model).recheck(row) is Outcome.PENDING
    assert len(recorded()) == 1


def test_a_parents_row_is_none_of_the_childs() -> None:
    with pytest.raises(TypeError, match=r"follows tests_app\.Child"):
        follow(Child).recheck(Group(pk=1))


def test_a_callables_many_to_many_may_be_either_side() -> None:
    asked = follow(key=lambda instance, **_: str(instance.pk))
    m2m_changed.connect(asked, sender=Named.items.through)
    assert asked.recheck(Item(pk=1)) is Outcome.PENDING
    with pytest.raises(TypeError, match=r"tests_app\.Named, tests_app\.Item, and this is"):
        asked.recheck(Group(pk=1))


def test_a_custom_signal_may_be_about_any_row() -> None:
    probe, asked = Signal(), follow(Item)
    probe.connect(asked, sender=Item)
    assert asked.recheck(Group(pk=1)) is Outcome.PENDING
    assert recorded() == ['{"tests_app.group":1}']


@pytest.mark.parametrize("signal", [post_save, user_logged_in, Signal()])
def test_a_bare_key_of_no_known_model_is_refused(signal: Signal) -> None:
    asked = follow()
    signal.connect(asked)
    try:
        with pytest.raises(TypeError, match=r"asked follows no model of its own: pass the inst"):
            asked.recheck(key=5)
    finally:
        signal.disconnect(asked)


def test_a_setting_and_a_receiver_that_follows_nothing_take_a_key_as_it_stands() -> None:
    asked = follow()
    asked.recheck(key=5)
    setting_changed.connect(asked)
    asked.recheck(key="DEBUG")
    setting_changed.disconnect(asked)
    assert recorded() == ['"DEBUG"', "5"]
