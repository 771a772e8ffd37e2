"""The checks of what receivers are connected to: who calls them, and with what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import authenticate, get_user_model
from django.contrib.auth.signals import user_logged_in
from django.core.management.sql import emit_post_migrate_signal
from django.core.signals import request_finished
from django.db.models.signals import m2m_changed, post_delete, post_migrate, post_save
from django.dispatch import Signal, receiver
from django.test import override_settings
from django.utils.functional import SimpleLazyObject

from django_recheck import arguments, receivers, recheck
from tests.app.models import Group, Item, Named
from tests.test_checks import found, the_one

custom = Signal()


@pytest.fixture
def loud(settings: Any) -> None:
    """Let W002 be heard."""
    settings.SILENCED_SYSTEM_CHECKS = []


@pytest.mark.usefixtures("loud")
def test_w002_a_receiver_that_no_signal_calls() -> None:
    @recheck(name="alone")
    def note(sender: Any, **kwargs: Any) -> None: ...

    message = the_one(found(), "W002")
    assert message.msg == "alone: no signal calls it."
    assert "@receiver(post_save, sender=...)\n@recheck\ndef note(...)" in str(message.hint)
    assert "ready()" in str(message.hint)


def wake_up() -> None:
    raise AssertionError("the check woke a lazy object up")


lazy = SimpleLazyObject(wake_up)  # whoever looks for signals in modules meets it here


@pytest.mark.usefixtures("loud")
@pytest.mark.parametrize("signal", [post_save, request_finished, custom])
@pytest.mark.parametrize("weak", [True, False])
def test_a_receiver_that_some_signal_calls(signal: Signal, weak: bool) -> None:
    note = recheck(name="called", key=lambda **_: 1)(lambda sender, **kwargs: None)
    signal.connect(note, weak=weak)
    assert found() == []
    signal.disconnect(note)
    the_one(found(), "W002")


@pytest.mark.usefixtures("loud")
def test_what_calls_the_plain_function_is_said_once() -> None:
    @recheck(name="plain")
    def note(sender: Any, **kwargs: Any) -> None: ...

    post_save.connect(note.func, sender=Item)
    the_one(found(), "E017")


@pytest.mark.usefixtures("loud")
def test_the_test_project_is_quiet() -> None:
    assert receivers.registry["order-total"]
    assert found() == []


def needs_created(sender: Any, created: bool, **kwargs: Any) -> None: ...
def needs_origin(sender: Any, instance: Any, *, origin: Any, **kwargs: Any) -> None: ...
def needs_plan(sender: Any, plan: Any, **kwargs: Any) -> None: ...
def needs_action(sender: Any, action: str, recheck_pass: Any, **kwargs: Any) -> None: ...
def needs_pass(recheck_pass: Any, **kwargs: Any) -> int:
    return 1


def needs_nothing(sender: Any, created: bool | None = None, *args: Any, **kwargs: Any) -> None: ...


@pytest.mark.parametrize(
    ("signals", "func", "name", "signal"),
    [
        ([post_save], needs_created, None, None),
        ([post_save, post_delete], needs_created, "created", "post_delete"),
        ([m2m_changed], needs_created, "created", "m2m_changed"),
        ([post_save, post_delete], needs_origin, "origin", "post_save"),
        ([post_delete], needs_origin, None, None),
        ([post_migrate], needs_plan, "plan", "post_migrate"),
        ([m2m_changed], needs_action, None, None),
        ([post_save], needs_action, "action", "post_save"),
        ([user_logged_in], needs_action, "action", "user_logged_in"),
        ([post_save, post_delete, m2m_changed], needs_pass, None, None),
        ([post_save, post_delete, m2m_changed], needs_nothing, None, None),
        ([custom], needs_created, None, None),
    ],
)
def test_e023_a_parameter_that_a_signal_doesnt_send(
    signals: list[Signal], func: Callable[..., None], name: str | None, signal: str | None
) -> None:
    note = recheck(name="note", key=lambda **_: 1)(func)
    for one in signals:
        one.connect(note)
    messages = found()
    for one in signals:
        one.disconnect(note)
    if name is None:
        assert messages == []
        return
    message = the_one(messages, "E023")
    assert message.msg == f"note must be called with {name!r}, and {signal} comes without it."
    assert message.hint == f"Give it a default: {name}=None."


@pytest.mark.parametrize("option", ["key", "keys", "data"])
@pytest.mark.parametrize("func", [needs_pass, needs_created])
def test_e023_a_callables_parameter(option: str, func: Callable[..., Any]) -> None:
    options: dict[str, Any] = {option: func}

    @receiver(post_delete, sender=Item)
    @recheck(name="note", **options)
    def note(sender: Any, recheck_pass: Any, **kwargs: Any) -> None: ...

    assert f"{option}= of note must be called with" in the_one(found(), "E023").msg


@pytest.mark.django_db(transaction=True)
def test_what_is_said_of_djangos_signals_is_what_they_send(client: Any) -> None:
    sent: dict[Signal, list[set[str]]] = {}

    def note(signal: Signal, **named: Any) -> None:
        sent.setdefault(signal, []).append({"signal", *named})

    for signal in arguments.SENT:
        signal.connect(note)
    item = Item.objects.create(name="a", group=Group.objects.create(name="g"))
    named = Named.objects.create()
    named.items.add(item)
    named.items.clear()
    item.delete()
    emit_post_migrate_signal(verbosity=0, interactive=False, db="default")
    with override_settings(SOMETHING=1):
        pass
    user = get_user_model().objects.create_user("me", password="it")
    client.force_login(user)
    client.logout()
    authenticate(username="me", password="wrong")
    for signal in arguments.SENT:
        signal.disconnect(note)
    assert len(sent) >= 9
    for signal, all_sent in sent.items():
        assert set.intersection(*all_sent) >= arguments.SENT[signal]  # 6.1 sends more
