"""What of a signal crosses Redis: names, arguments, field values. JSON only, nothing imported."""

from __future__ import annotations

import datetime
import decimal
import sys
import types
from typing import Any

import pytest
from django.apps import AppConfig, apps
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.dispatch import Signal
from django.test import RequestFactory
from hypothesis import example, given
from hypothesis import strategies as st

from django_recheck import EventError, Outcome, recheck, store, travel, worker
from django_recheck.events import Events, Group
from django_recheck.keys import dumps
from django_recheck.records import Item as Key
from tests.app.models import Child, Item, Named, ProxyItem

happened = Signal()
db = pytest.mark.django_db(transaction=True, databases=["default", "other"])
Calls = list[dict[str, Any]]


class Sender:
    """Sends a custom signal."""


@pytest.fixture
def calls() -> Calls:
    """What the receiver of the test was called with."""
    return []


@pytest.fixture
def note(calls: Calls) -> Any:
    @recheck(name="travelled", key=lambda **_: 1)
    def note(**kwargs: Any) -> None:
        calls.append(kwargs)

    happened.connect(note)
    yield note
    happened.disconnect(note)


def send(**arguments: Any) -> Outcome:
    outcome: Any
    ((_, outcome),) = happened.send(sender=Sender, **arguments)
    assert isinstance(outcome, Outcome)
    return outcome


# Names


@pytest.mark.parametrize(
    ("signal", "name"),
    [
        (post_save, "post_save"),
        (m2m_changed, "m2m_changed"),
        (user_logged_in, "django.contrib.auth.signals:user_logged_in"),
        (happened, f"{__name__}:happened"),
    ],
)
def test_a_signal_is_found_by_its_name(signal: Signal, name: str) -> None:
    assert travel.signal_name(signal) == name
    assert travel.signal_named(name) is signal


def test_a_signal_that_no_module_has_has_no_name() -> None:
    assert travel.signal_name(Signal()) == travel.signal_name(None) == ""
    assert travel.signal_named("") is None


@pytest.mark.parametrize(
    ("sender", "name"),
    [
        (Item, "tests_app.item"),
        (ProxyItem, "tests_app.proxyitem"),
        (Named.items.through, "tests_app.named_items"),
        (Sender, f"{__name__}:Sender"),
        ("a text: any", "=a text: any"),
        (apps.get_app_config("tests_app"), "@tests_app"),
    ],
)
def test_a_sender_is_found_by_its_name(sender: Any, name: str) -> None:
    assert travel.sender_name(sender) == name
    assert travel.sender_named(name) == sender


@pytest.mark.parametrize("sender", [None, 7, Sender()], ids=["none", "number", "object"])
def test_what_nobody_can_find_has_no_name(sender: Any) -> None:
    assert travel.sender_name(sender) == ""
    assert travel.sender_named("") is None


HOSTILE = [
    *("os:system", "builtins:eval", "antigravity:geohash", "sys:modules", "tests_app.nothing"),
    *("os.system", "a.b.c", ".", ":", "::", "os:", ":system", f"{__name__}:Sender.__init__"),
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_finds_nothing(name: str) -> None:
    before = set(sys.modules)
    assert travel.signal_named(name) is None
    assert travel.sender_named(name) is None
    assert set(sys.modules) == before


def test_a_name_imports_nothing_lazily_either(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    lazy = types.ModuleType("lazy")
    lazy.__getattr__ = asked.append  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "lazy", lazy)
    assert travel.signal_named("lazy:anything") is None
    assert travel.sender_named("lazy:Anything") is None
    assert asked == []


@given(st.text() | st.tuples(st.sampled_from(sorted(sys.modules)), st.text()).map(":".join))
def test_any_name_finds_a_signal_or_nothing(name: str) -> None:
    assert isinstance(travel.signal_named(name), Signal | None)
    assert isinstance(travel.sender_named(name), type | AppConfig | str | None)


@db
def test_an_event_of_unknown_names_is_delivered_without_them(note: Any, calls: Calls) -> None:
    group = Group(
        dumps(["os:system", "", "os:system"]), False, False, "", dumps([None, None, {}, {}, None])
    )
    entry = store.Entry(Key(note.name, "1"), 1, Events(1, (group,)).packed(), note.options)
    store.current().enqueue([entry])
    assert worker.drain().outcomes == {Outcome.RAN: 1}
    assert calls == [{"signal": None, "sender": None}]


# Arguments of custom signals

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda found: st.lists(found, max_size=3) | st.dictionaries(st.text(), found, max_size=3),
    max_leaves=8,
)


@given(JSON)
@example(1234567890123456789)
@example([])
@example({})
def test_json_arrives_as_it_was_sent(value: Any) -> None:
    assert travel.arguments_out("", {"value": value}) == ({"value": value}, {})


@db
def test_json_arrives_in_the_receiver(note: Any, calls: Calls) -> None:
    assert send(number=1234567890123456789, empty=[], words={"a": [None, 1.5, "ß"]}) is Outcome.RAN
    assert calls == [
        {
            "signal": happened,
            "sender": Sender,
            "number": 1234567890123456789,
            "empty": [],
            "words": {"a": [None, 1.5, "ß"]},
        }
    ]


@db
def test_a_saved_row_arrives_read_again(note: Any, calls: Calls) -> None:
    item, gone = (Item.objects.create(name="before") for _ in range(2))
    there = Item.objects.using("other").create(pk=item.pk, name="there")
    child, named = Child.objects.create(name="child"), Named.objects.create()
    Item.objects.filter(pk=item.pk).update(name="after")
    Item.objects.filter(pk=gone.pk)._raw_delete("default")
    send(item=item, there=there, gone=gone, child=child, named=named)
    (got,) = calls
    assert got["item"] is not item
    assert (got["item"], got["item"].name) == (item, "after")
    assert (got["there"].name, got["there"]._state.db) == ("there", "other")
    assert got["gone"] is None
    assert (got["child"], type(got["child"])) == (child, Child)
    assert got["named"] == named


ODD = [
    {1, 2},
    b"bytes",
    object(),
    len,
    Sender,
    datetime.date(2024, 2, 29),
    decimal.Decimal("1.50"),
    Item(name="never saved"),
    [Item(pk=1)],
    Item.objects.all(),
    {"deep": [{1: "a"}]},
]
"""What can't travel."""


@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
def test_what_is_neither_is_refused_by_name_with_a_way_out(note: Any, value: Any) -> None:
    within = value[0] if isinstance(value, list) else value
    why = "only texts as keys" if isinstance(value, dict) else f"type {type(within).__name__} is"
    with pytest.raises(EventError) as refused:
        send(fine=1, odd=value)
    text = str(refused.value)
    assert text.startswith(f"The argument 'odd' of {__name__}:happened can't travel: ")
    assert "it is neither JSON nor a saved model instance (" in text
    assert why in text
    assert text.endswith("Send what can, or give the receiver what it needs with data=.")
    assert store.current().client.exists(*store.current().lane(note.name, 0).keys) == 0


@db
@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
def test_with_data_what_is_neither_arrives_as_none(value: Any, calls: Calls) -> None:
    @recheck(name="data", key=lambda **_: 1, data=lambda odd, **_: type(odd).__name__)
    def note(recheck_pass: Any, **kwargs: Any) -> None:
        calls.append({**kwargs, "data": recheck_pass.data})

    happened.connect(note)
    try:
        assert send(fine=1, odd=value) is Outcome.RAN
    finally:
        happened.disconnect(note)
    rest = {"signal": happened, "sender": Sender}
    assert calls == [{**rest, "fine": 1, "odd": None, "data": type(value).__name__}]


# What stays behind


def test_the_table_names_arguments_of_signals_that_exist() -> None:
    for name, arguments in travel.STAYS_BEHIND.items():
        assert isinstance(travel.signal_named(name), Signal), name
        assert arguments


@pytest.mark.parametrize(
    ("signal", "argument"),
    [
        (s, argument)
        for s, arguments in travel.STAYS_BEHIND.items()
        for argument in sorted(arguments)
    ],
)
def test_what_stays_behind_arrives_as_none(signal: str, argument: str) -> None:
    arguments = {argument: object(), "other": 1}
    assert travel.arguments_out(signal, arguments) == ({argument: None, "other": 1}, {})
    with pytest.raises(EventError):
        travel.arguments_out("", arguments)


@db
def test_a_delete_arrives_without_its_origin(calls: Calls) -> None:
    @recheck(name="deleted")
    def note(**kwargs: Any) -> None:
        calls.append(kwargs)

    post_delete.connect(note, sender=Item)
    item = Item.objects.create(name="a")
    Item.objects.filter(pk=item.pk).delete()
    ((got),) = calls
    assert got.pop("instance").pk == item.pk
    assert got == {"signal": post_delete, "sender": Item, "origin": None, "using": "default"}


@db
def test_m2m_changed_arrives_from_both_sides(calls: Calls) -> None:
    @recheck(name="m2m", dispatch="worker")
    def note(**kwargs: Any) -> None:
        calls.append(kwargs)

    through, (first, second) = Named.items.through, (Item(name=name) for name in "ab")
    m2m_changed.connect(note, sender=through)
    Item.objects.bulk_create([first, second])
    named, same, differs = (Named.objects.create() for _ in range(3))
    first.named_set.add(named)  # the one that holds the relation
    same.items.add(first)
    same.items.remove(first)
    same.items.add(first)
    differs.items.add(first)
    differs.items.add(second)
    worker.drain()
    assert {(call["instance"], call["action"]): call["pk_set"] for call in calls} == {
        (named, "post_add"): {first.pk},
        (same, "post_add"): {first.pk},
        (differs, "post_add"): None,
    }
    assert {(call["sender"], call["model"]) for call in calls} == {(through, Item)}


@db
def test_a_login_has_its_user_as_key_and_what_data_takes_along(calls: Calls) -> None:
    @recheck(name="login", data=lambda request, **_: request.META["REMOTE_ADDR"])
    def note(recheck_pass: Any, **kwargs: Any) -> None:
        calls.append({**kwargs, "key": recheck_pass.key, "data": recheck_pass.data})

    user = User.objects.create(username="ann")
    user_logged_in.connect(note)
    try:
        user_logged_in.send(sender=User, request=RequestFactory().get("/"), user=user)
    finally:
        user_logged_in.disconnect(note)
    (got,) = calls
    assert (got["key"], got["user"], got["request"]) == (user.pk, user, None)
    assert (got["signal"], got["sender"], got["data"]) == (user_logged_in, User, "127.0.0.1")
