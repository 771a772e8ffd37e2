"""Keys are canonical and typed, and items can be read back."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_recheck import EventError
from django_recheck.exceptions import RecordError
from django_recheck.keys import Concern, item_text
from tests.app.models import Child, Group, Item, Named, ProxyItem

KEYS = st.recursive(
    st.integers() | st.text(st.characters(codec="utf-8")) | st.uuids(),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=5,
)
CONTEXTS = st.none() | st.dictionaries(st.text(max_size=5), st.integers(), max_size=2)


@given(KEYS, st.sampled_from(["default", "other", 'odd "alias"']), CONTEXTS)
def test_an_items_text_reads_back(key: Any, using: str, context: Any) -> None:
    assert Concern.parse(item_text(key, using, context)) == Concern(key, using, context)


@given(KEYS, KEYS)
def test_c34_different_keys_have_different_texts(a: Any, b: Any) -> None:
    assert (item_text(a) == item_text(b)) == (a == b and type(a) is type(b))


def test_c34_keys_are_typed_and_canonical() -> None:
    assert item_text(42) == "42"
    assert item_text("42") == '"42"'
    assert item_text((1, "a")) == '[1,"a"]'
    assert item_text(UUID(int=1)) != item_text(str(UUID(int=1)))
    assert item_text({"b": 1, "a": 2}["b"]) == "1"


def test_c34_a_row_is_one_key_however_its_primary_key_came() -> None:
    assert item_text(Item(pk="5001")) == item_text(Item(pk=5001)) == '{"tests_app.item":5001}'
    assert Concern.parse('{"tests_app.item":5001}').key == 5001
    named = Named()
    assert item_text(named) == item_text(Named(pk=str(named.pk)))
    assert Concern.parse(item_text(named)).key == named.pk


def test_c47_proxies_and_children_are_their_roots_row() -> None:
    assert item_text(ProxyItem(pk=1)) == item_text(Item(pk=1))
    assert item_text(Child(pk=1)) == item_text(Group(pk=1))
    assert item_text(Item(pk=1)) != item_text(Group(pk=1))


@pytest.mark.parametrize("key", [1.5, True, b"a", None, object(), [1], {"a": 1}, (1, 2.0)])
def test_other_types_are_refused_in_one_sentence(key: Any) -> None:
    with pytest.raises(EventError, match=r"A key can't be .*: return an int, a str, a UUID"):
        item_text(key)


def test_a_row_that_was_never_saved_is_no_key() -> None:
    with pytest.raises(EventError, match=r"never saved can't be a key"):
        item_text(Item(name="new"))


def test_alias_and_context_are_part_of_the_item() -> None:
    texts = {item_text(1), item_text(1, "other"), item_text(1, "default", {"schema": "a"})}
    assert len(texts) == 3


@given(st.text(max_size=40))
def test_whatever_stands_in_redis_is_read_or_refused(text: str) -> None:
    with suppress(RecordError):
        Concern.parse(text)


@pytest.mark.parametrize("text", ["", "{}", '{"a.b":1}', '{"uuid":"x"}', "[" * 5000, "1 2"])
def test_hostile_items_are_refused(text: str) -> None:
    with pytest.raises(RecordError):
        Concern.parse(text)
