"""Signals of every kind reach their receivers: those of rows, of people, of settings."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.core.management import call_command
from django.core.signals import setting_changed
from django.db import connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.db.models.signals import (
    m2m_changed,
    post_delete,
    post_migrate,
    post_save,
    pre_delete,
)
from django.dispatch import Signal, receiver
from django.test import Client, override_settings

from django_recheck import EventError, Outcome, recheck, worker
from tests.app.models import Child, Group, Item, Named

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])
WAYS = pytest.mark.parametrize("dispatch", ["inline", "worker", "immediate"])
KINDS = pytest.mark.parametrize("dispatch", ["inline", "worker"])
happened = Signal()


class Heard:
    """A receiver that notes what its passes were called with."""

    def __init__(self, **options: Any) -> None:
        self.passes: list[Any] = []
        self.calls: list[dict[str, Any]] = []

        @recheck(**{"name": "heard", **options})
        def heard(recheck_pass: Any, **kwargs: Any) -> None:
            self.passes.append(recheck_pass)
            self.calls.append(kwargs)

        self.receiver = heard

    @contextmanager
    def by(self, *signals: Signal, sender: Any = None) -> Iterator[None]:
        """Connect it to signals; what is owed after the block is done."""
        for signal in signals:
            signal.connect(self.receiver, sender=sender)
        try:
            yield
        finally:
            for signal in signals:
                signal.disconnect(self.receiver, sender=sender)
        worker.drain()

    @property
    def keys(self) -> list[tuple[Any, bool]]:
        """The key of each pass, and whether its row was gone."""
        return [(run.key, run.gone) for run in self.passes]


# Deletions


@KINDS
@pytest.mark.parametrize("signal", [pre_delete, post_delete], ids=["pre", "post"])
def test_each_row_that_a_deletion_takes_along_is_told(dispatch: str, signal: Signal) -> None:
    heard, group = Heard(dispatch=dispatch, carry=["name"]), Group.objects.create(name="g")
    items = Item.objects.bulk_create(Item(group=group, name=name) for name in "ab")
    with heard.by(signal, sender=Item):
        group.delete()
    assert sorted(heard.keys) == [(item.pk, True) for item in items]
    assert sorted(call["instance"].name for call in heard.calls) == ["a", "b"]
    assert {(call["signal"], call["sender"], call["origin"]) for call in heard.calls} == {
        (signal, Item, None)
    }


@KINDS
@pytest.mark.parametrize("signal", [pre_delete, post_delete], ids=["pre", "post"])
def test_the_group_of_rows_that_were_taken_along_is_one_key(dispatch: str, signal: Signal) -> None:
    heard, group = Heard(dispatch=dispatch, key="group_id"), Group.objects.create(name="g")
    pk = group.pk
    Item.objects.bulk_create(Item(group=group, name=name) for name in "abc")
    with heard.by(signal, sender=Item):
        group.delete()
    assert heard.keys == [(pk, True)]
    assert heard.passes[0].event_count == 3


def test_all_tables_of_a_child_go_as_one_row() -> None:
    heard, child = Heard(), Child.objects.create(name="c")
    Item.objects.create(group=child, name="a")
    pk = child.pk
    with heard.by(pre_delete, post_delete):
        Group.objects.filter(pk=pk).delete()
    told = [run for run in heard.passes if "group" in run.item.text]
    assert [(run.key, run.gone, run.signals) for run in told] == [
        (pk, True, {"pre_delete", "post_delete"})
    ]


def test_a_deletion_that_was_rolled_back_is_none() -> None:
    heard, item = Heard(), Item.objects.create(name="a")
    with heard.by(pre_delete, post_delete, sender=Item), transaction.atomic():
        item.delete()
        transaction.set_rollback(True)
    assert heard.calls == []


def test_of_a_row_that_is_made_again_a_deletion_alone_is_told_with_the_row() -> None:
    heard, item = Heard(), Item.objects.create(name="a")
    pk = item.pk
    with heard.by(pre_delete, sender=Item), transaction.atomic():
        item.delete()
        Item.objects.create(pk=pk, name="again")
    assert heard.keys == [(pk, False)]


# Several signals


def test_several_signals_of_a_row_are_one_pass() -> None:
    heard, through = Heard(dispatch="worker"), Named.items.through
    with (
        heard.by(post_save, pre_delete, sender=Named),
        heard.by(m2m_changed, sender=through),
        heard.by(happened),
    ):
        named = Named.objects.create()
        named.items.add(Item.objects.create(name="a"))
        happened.send(sender=Named, instance=named)
        pk = named.pk
        named.delete()
    (run,) = heard.passes
    assert (run.key, run.gone, run.event_count) == (pk, True, 5)
    assert run.signals == {"post_save", "m2m_changed", f"{__name__}:happened", "pre_delete"}
    assert [(name, action) for name, action, _ in run.merged] == [
        ("post_save", ""),
        ("m2m_changed", "pre_add"),
        ("m2m_changed", "post_add"),
        (f"{__name__}:happened", ""),
    ]


@WAYS
def test_actions_of_a_relation_before_and_after(dispatch: str) -> None:
    heard = Heard(dispatch=dispatch)
    named, item = Named.objects.create(), Item.objects.create(name="a")
    with heard.by(m2m_changed, sender=Named.items.through):
        named.items.add(item)
        named.items.remove(item)
        item.named_set.add(named)
        named.items.clear()
    told = [call["action"] for call in heard.calls]
    verbs = ("add", "remove", "add", "clear")
    every = [f"{when}_{verb}" for verb in verbs for when in ("pre", "post")]
    if dispatch == "immediate":
        assert told == every
    elif dispatch == "inline":  # both of one transaction are one event, told as the newer
        assert told == [action for action in every if action.startswith("post")]
    else:
        assert told == ["post_clear"]
        merged = [action for _, action, _ in heard.passes[0].merged]
        assert sorted([*merged, *told]) == sorted(set(every))


# Without a sender


@WAYS
@pytest.mark.parametrize("options", [{}, {"key": lambda **_: 1}], ids=["row", "callable"])
def test_a_row_whose_model_is_in_no_app_is_ignored(
    dispatch: str, options: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @receiver([post_save, post_delete])
    @recheck(name="all", dispatch=dispatch, **options)
    def note(sender: Any, **kwargs: Any) -> None:
        raise AssertionError("nobody can find this row again")

    caplog.set_level(logging.DEBUG, "django_recheck")
    call_command("migrate", "shop", "zero", fake=True, verbosity=0)
    call_command("migrate", "shop", fake=True, verbosity=0)
    row = MigrationRecorder(connection).Migration.objects.create(app="a", name="b")
    answers: Any = post_save.send(type(row), instance=row, created=False, using="default")
    row.delete()
    assert dict(answers)[note] is Outcome.IGNORED
    assert {record.getMessage() for record in caplog.records} == {
        "all: ignored: no app has the model migrations.Migration"
    }
    assert worker.drain().items == 0


@WAYS
def test_without_a_sender_every_models_rows_are_heard(dispatch: str) -> None:
    heard = Heard(dispatch=dispatch)
    with heard.by(post_save, post_delete):
        group = Group.objects.create(pk=7, name="g")
        item = Item.objects.create(pk=7, group=group, name="a")
        user = User.objects.create(pk=7, username="ann")
    assert [(run.key, run.item.text) for run in heard.passes] == [
        (7, '{"tests_app.group":7}'),
        (7, '{"tests_app.item":7}'),
        (7, '{"auth.user":7}'),
    ]
    assert [call["instance"] for call in heard.calls] == [group, item, user]
    assert [call["sender"] for call in heard.calls] == [Group, Item, User]


# Databases


def test_post_migrate_has_its_apps_config_as_sender() -> None:
    heard = Heard(key=lambda sender, using, **_: (sender.label, using))
    with heard.by(post_migrate):
        call_command("migrate", verbosity=0)
        call_command("migrate", verbosity=0, database="other")
    found = {key for key, _ in heard.keys}
    assert found >= {("tests_app", "default"), ("shop", "default"), ("shop", "other")}
    assert len(found) == len(heard.keys), "one pass of each app and database"
    by_key = dict(zip((key for key, _ in heard.keys), heard.calls, strict=True))
    call = by_key["shop", "other"]
    assert (call["sender"].label, call["using"], call["interactive"]) == ("shop", "other", True)
    assert {call[name] for name in ("app_config", "apps", "plan", "stdout")} == {None}


# People


@KINDS
def test_who_logs_in_and_out_is_the_key(dispatch: str) -> None:
    heard = Heard(dispatch=dispatch, data=lambda request, **_: request.path)
    ann = User.objects.create_user("ann", password="secret")
    client = Client()
    with heard.by(user_logged_in, user_logged_out):
        assert client.login(username="ann", password="secret")
        worker.drain()
        client.logout()
    assert [key for key, _ in heard.keys] == [ann.pk] * 2
    told = [(c["signal"], c["sender"], c["user"], c["request"]) for c in heard.calls]
    assert told == [(user_logged_in, User, ann, None), (user_logged_out, User, ann, None)]


def test_the_logout_of_somebody_who_wasnt_logged_in_is_ignored() -> None:
    heard = Heard()
    with heard.by(user_logged_out):
        Client().logout()
        answers: Any = user_logged_out.send(sender=None, request=None, user=None)
    assert [outcome for _, outcome in answers if isinstance(outcome, Outcome)] == [Outcome.IGNORED]
    assert heard.calls == []


@KINDS
def test_who_failed_to_log_in_is_known_to_the_key_alone(dispatch: str) -> None:
    heard = Heard(dispatch=dispatch, key=lambda credentials, **_: credentials["username"])
    with heard.by(user_login_failed):
        assert authenticate(None, username="ann", password="wrong") is None
    assert heard.keys == [("ann", False)]
    (call,) = heard.calls
    assert (call["signal"], call["credentials"], call["request"]) == (user_login_failed, None, None)


def test_a_failed_login_without_a_key_says_that_it_needs_one() -> None:
    heard = Heard()
    with heard.by(user_login_failed), pytest.raises(EventError, match="name its subject with key="):
        authenticate(None, username="ann", password="wrong")


# Settings


@WAYS
@pytest.mark.parametrize(
    "value", ["a text", {1, 2}, object(), Item], ids=lambda v: type(v).__name__
)
def test_a_settings_name_is_its_key_and_its_value_is_read(dispatch: str, value: Any) -> None:
    heard = Heard(dispatch=dispatch)
    with heard.by(setting_changed), override_settings(COLOUR=value):
        pass
    assert {key for key, _ in heard.keys} == {"COLOUR"}
    if dispatch != "immediate":
        call = heard.calls[-1]
        assert (call["setting"], call["value"], call["enter"]) == ("COLOUR", None, False)
