"""The system checks of receivers: names, keys, signals, decorator order."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pytest
from django.contrib.auth.signals import user_logged_in, user_login_failed
from django.contrib.contenttypes.fields import GenericForeignKey
from django.core.checks import CheckMessage
from django.core.signals import request_finished
from django.db import connection, models
from django.db.models import Model
from django.db.models.signals import (
    class_prepared,
    m2m_changed,
    post_delete,
    post_init,
    post_migrate,
    post_save,
    pre_init,
    pre_save,
)
from django.dispatch import Signal, receiver
from django.test.utils import CaptureQueriesContext, isolate_apps

import django_recheck.receiver_checks
from django_recheck import keys, recheck
from tests.app.models import Child, Group, Item, Named, ProxyItem
from tests.test_checks import found, the_one


def test_e010_two_receivers_of_one_name() -> None:
    for _ in range(2):
        recheck(name="twin")(lambda sender, **kwargs: None)
    message = the_one(found(), "E010")
    assert "2 receivers are called 'twin'" in message.msg
    assert "test_e010_two_receivers_of_one_name" in message.msg


def test_e010_a_nested_receiver_made_twice() -> None:
    def follow(model: type[Model]) -> None:
        @receiver(post_save, sender=model)
        @recheck
        def note(sender: Any, **kwargs: Any) -> None: ...

    follow(Item)
    assert found() == []
    follow(Group)
    the_one(found(), "E010")


def test_e019_a_former_name_is_anothers_name() -> None:
    recheck(name="a")(lambda sender, **kwargs: None)
    recheck(name="b", former_names=["a"])(lambda sender, **kwargs: None)
    message = the_one(found(), "E019")
    assert message.msg == "b was called 'a', and so is or was a."


def test_e019_a_former_name_is_anothers_former_name() -> None:
    recheck(name="a", former_names=["old"])(lambda sender, **kwargs: None)
    recheck(name="b", former_names=["old"])(lambda sender, **kwargs: None)
    assert [message.id for message in found()] == ["django_recheck.E019"] * 2


def keyed(model: type[Model] | None, **options: Any) -> list[CheckMessage]:
    """Run the checks with one receiver of a model's saves and deletes."""

    @receiver([post_save, post_delete], sender=model)
    @recheck(name="keyed", **options)
    def note(sender: Any, **kwargs: Any) -> None: ...

    return found()


@pytest.mark.parametrize(
    ("model", "key", "words", "hint"),
    [
        (Item, "groupid", "Item has no 'groupid'", "Did you mean 'group_id'?"),
        (Item, "group.nmae", "Group has no 'nmae'", "Did you mean 'name'?"),
        (ProxyItem, "group.id.nmae", None, None),
        (Child, "extras", "Child has no 'extras'", "Did you mean 'extra'?"),
        (Item, "order.customer", "Item has no 'order'", "The names are "),
    ],
)
def test_e013_a_key_that_its_sender_doesnt_have(
    model: type[Model], key: str, words: str | None, hint: str | None
) -> None:
    messages = keyed(model, key=key)
    if words is None:
        the_one(messages, "W001")  # what a value of a column has, nobody knows
        return
    message = the_one(messages, "E013")
    assert words in message.msg
    assert str(message.hint).startswith(str(hint))


def test_e013_one_of_several_senders() -> None:
    for sender in (Item, Group):
        receiver(post_save, sender=sender)(
            recheck(key="group_id", name=f"of-{sender.__name__}")(lambda sender, **kwargs: None)
        )
    message = the_one(found(), "E013")
    assert "of-Group" in message.msg


def test_e013_without_a_sender_it_follows_all_models() -> None:
    message = the_one(keyed(None, key="group_id"), "E013")
    assert "follows all models" in message.msg
    assert "sender=" in str(message.hint)


def test_a_key_that_all_models_have_needs_no_sender() -> None:
    assert keyed(None, key="pk") == []


@pytest.mark.parametrize(
    ("model", "key"),
    [
        (Group, "item_set"),
        (Named, "items"),
        (Item, "save"),
        (Item, "from_db"),
        (Item, "group.item_set"),
        (Child, "item_set"),
    ],
)
def test_e014_a_key_that_is_no_single_value(model: type[Model], key: str) -> None:
    assert "no value that can be a key" in the_one(keyed(model, key=key), "E014").msg


@pytest.mark.parametrize(
    ("model", "name", "fault"),
    [
        (Item, "valu", True),
        (Named, "items", True),
        (Group, "item_set", True),
        (Item, "pk", True),
        (Item, "group", False),
        (Item, "group_id", False),
        (ProxyItem, "value", False),
        (Child, "name", False),
    ],
)
def test_e015_carrying_a_field_that_isnt_there(model: type[Model], name: str, fault: bool) -> None:
    messages = keyed(model, carry=[name])
    if fault:
        assert f"carries {name!r}" in the_one(messages, "E015").msg
    else:
        assert messages == []


@pytest.mark.parametrize(
    ("key", "queries"),
    [
        ("pk", 0),
        ("group", 0),
        ("group_id", 0),
        ("name", 0),
        ("value.real", 0),
        ("group_id.real", 0),
        ("group.pk", 1),
        ("group.name", 1),
        ("group.child", 2),
        ("group.child.extra", 2),
    ],
)
@pytest.mark.django_db
def test_w001_is_said_of_the_keys_that_query(key: str, queries: int) -> None:
    Item.objects.create(group=Child.objects.create(name="g"), name="a")
    row = Item.objects.get()
    with CaptureQueriesContext(connection) as seen:
        keys.follow(key, {"instance": row})
    assert len(seen) == queries
    messages = keyed(Item, key=key)
    if queries:
        message = the_one(messages, "W001")
        assert "'group'" in message.msg
        assert "key='group'" in str(message.hint)
    else:
        assert messages == []


@pytest.mark.django_db
def test_a_path_that_ends_in_a_foreign_key_gives_its_column() -> None:
    child = Child.objects.create(name="g")
    Item.objects.create(group=child, name="a")
    row = Item.objects.get()
    assert keys.follow("group.child.group_ptr", {"instance": row}) == child.pk
    assert keys.follow("group", {"instance": row}) == child.pk


@pytest.mark.parametrize(
    ("key", "number"), [("child", "W001"), ("child.extra", "W001"), ("child.extr", "E013")]
)
def test_w001_a_relation_that_the_row_has_no_column_for(key: str, number: str) -> None:
    message = the_one(keyed(Group, key=key), number)
    assert ("key='id'" in str(message.hint)) == (number == "W001")


@pytest.mark.parametrize(
    ("key", "number"),
    [
        ("shown", None),
        ("kept", None),
        ("kept.anything", None),
        ("annotated", None),
        ("made_at_first", None),
        ("nothing_yet", None),
        ("nowhere", "E013"),
        ("day", "E014"),
        ("day.year", None),
        ("due", "E014"),
        ("objects", "E014"),
        ("_meta", "E014"),
        ("target", "W001"),
        ("target.name", "W001"),
        ("get_state_display", "E014"),
        ("a_class_method", "E014"),
    ],
)
@isolate_apps("django.contrib.contenttypes", attr_name="isolated")
def test_what_a_model_may_have_beside_its_fields(key: str, number: str | None) -> None:
    class Due(Model):
        day = models.DateField(primary_key=True)

        class Meta:
            app_label = "contenttypes"

    class Rich(Model):
        state = models.IntegerField(choices=[(1, "one")])
        content_type = models.ForeignKey("contenttypes.ContentType", models.CASCADE)
        object_id = models.IntegerField()
        target = GenericForeignKey()
        day = models.DateField()
        due = models.ForeignKey("contenttypes.Due", models.CASCADE)
        annotated: int
        nothing_yet = None

        class Meta:
            app_label = "contenttypes"

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.made_at_first = self.annotated = 5

        @property
        def shown(self) -> int:
            return 5

        @cached_property
        def kept(self) -> int:
            return 5

        @classmethod
        def a_class_method(cls) -> int:
            return 5

    note = recheck(key=key, name="rich")(lambda sender, **kwargs: None)
    messages = list(django_recheck.receiver_checks._key(note, Rich))
    assert [str(message.id)[-4:] for message in messages] == ([number] if number else [])
    assert all(message.hint for message in messages)


def test_a_callable_key_and_signals_without_a_row_arent_looked_into() -> None:
    probe = Signal()
    for number, signal in enumerate([probe, m2m_changed, post_migrate, user_logged_in]):
        receiver(signal, sender=Item)(
            recheck(key="order_id", name=f"n{number}")(lambda sender, **kwargs: None)
        )
    assert keyed(Item, key=lambda **_: 5) == []


@pytest.mark.parametrize(
    ("signal", "name"),
    [
        (pre_save, "pre_save"),
        (pre_init, "pre_init"),
        (post_init, "post_init"),
        (class_prepared, "class_prepared"),
    ],
)
def test_e016_signals_before_the_write(signal: Signal, name: str) -> None:
    @receiver(signal, sender=Item)
    @recheck(key="pk")
    def note(sender: Any, **kwargs: Any) -> None: ...

    message = the_one(found(), "E016")
    assert f"follows {name}" in message.msg
    assert "post_save" in str(message.hint)


a_signal = Signal()


@pytest.mark.parametrize("signal", [post_save, a_signal])
def test_e017_the_plain_function_is_connected(signal: Signal) -> None:
    @recheck(name="mine")
    def note(sender: Any, **kwargs: Any) -> None: ...

    signal.connect(note.func)
    message = the_one(found(), "E017")
    name = "post_save" if signal is post_save else "a_signal"
    assert f"mine: {name} calls the plain function" in message.msg
    assert f"@receiver({name}, ...)\n@recheck\ndef note(...)" in str(message.hint)
    signal.disconnect(note.func)
    assert found() == []


def test_e017_the_function_was_decorated_after_it_was_connected_through_another() -> None:
    def note(sender: Any, **kwargs: Any) -> None: ...

    recheck(name="first")(note)
    post_save.connect(note, sender=Item)
    the_one(found(), "E017")


@pytest.mark.parametrize("signal", [post_migrate, request_finished, user_login_failed])
def test_e018_the_default_key_without_a_row(signal: Signal) -> None:
    @receiver(signal)
    @recheck(name="rowless")
    def note(sender: Any, **kwargs: Any) -> None: ...

    message = the_one(found(), "E018")
    assert "@recheck(key=" in str(message.hint)
    signal.disconnect(note)


@pytest.mark.parametrize("signal", [Signal(), user_logged_in, m2m_changed, post_save])
def test_the_default_key_where_a_row_comes_or_may_come(signal: Signal) -> None:
    @receiver(signal)
    @recheck(name="rows")
    def note(sender: Any, **kwargs: Any) -> None: ...

    assert found() == []
    signal.disconnect(note)
