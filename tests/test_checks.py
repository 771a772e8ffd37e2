"""The system checks that connect to nothing: each id, its hint, and that they are registered."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core import checks
from django.core.checks import CheckMessage
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db.models.signals import (
    post_delete,
    post_save,
)
from django.dispatch import receiver
from django.test import override_settings

import django_recheck
from django_recheck import receivers, recheck
from tests.app.models import Item

ROOT = Path(__file__).parent.parent


def found(**recheck_settings: Any) -> list[CheckMessage]:
    """Run the checks of this app, under a RECHECK of its own if one is given."""
    if not recheck_settings:
        return said(checks.run_checks(tags=["recheck"]))
    with override_settings(RECHECK={"CACHE": "recheck", **recheck_settings}):
        return said(checks.run_checks(tags=["recheck"]))


def said(messages: list[CheckMessage]) -> list[CheckMessage]:
    """Leave out what the settings silence."""
    return [message for message in messages if not message.is_silenced()]


def the_one(messages: list[CheckMessage], number: str) -> CheckMessage:
    """Return the only message there is, which has that id and says what to type."""
    assert [message.id for message in messages] == [f"django_recheck.{number}"], messages
    kind = checks.ERROR if number.startswith("E") else checks.WARNING
    assert messages[0].level == kind
    assert messages[0].hint
    return messages[0]


def test_a_clean_configuration_gives_no_messages() -> None:
    @receiver([post_save, post_delete], sender=Item)
    @recheck(key="group_id", name="clean", carry=["name"], delay=1, former_names=["dirty"])
    def note(sender: Any, **kwargs: Any) -> None: ...

    assert found() == []
    assert found(TTL=5, RECEIVERS={"clean": {"TTL": 10, "MAX_WAIT": 5}}) == []


def test_errors_stop_a_command_and_warnings_dont(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        override_settings(RECHECK={"CACHE": "recheck", "TTL": 0}),
        pytest.raises(SystemCheckError, match=r"django_recheck\.E003"),
    ):
        call_command("check")

    @receiver(post_save, sender=Item)
    @recheck(key="group.name")
    def note(sender: Any, **kwargs: Any) -> None: ...

    call_command("check")
    assert "django_recheck.W001" in capsys.readouterr().err


# RECHECK


@pytest.mark.parametrize(
    "value", [None, [("TTL", 5)], "redis://:secret@host/0", [{"PASSWORD": "secret"}]]
)
def test_e001_recheck_is_no_dict(value: Any) -> None:
    with override_settings(RECHECK=value):
        message = the_one(checks.run_checks(tags=["recheck"]), "E001")
    assert "secret" not in str(message)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("TLL", "Did you mean 'TTL'?"),
        ("ttl", "Did you mean 'TTL'?"),
        ("dispatch", "Did you mean 'DISPATCH'?"),
        ("Max_Passes", "Did you mean 'MAX_PASSES'?"),
        (" max-passes", "Did you mean 'MAX_PASSES'?"),
        ("timeout", "The names are "),
        ("BACK_OFF", "Did you mean 'BACKOFF'?"),
        (5, "The names are "),
    ],
)
def test_e002_unknown_name(name: Any, hint: str) -> None:
    with override_settings(RECHECK={"CACHE": "recheck", name: 5}):
        message = the_one(checks.run_checks(tags=["recheck"]), "E002")
    assert repr(name) in message.msg
    assert str(message.hint).startswith(hint)


def test_e002_unknown_name_for_a_receiver_leads_to_what_can_be_tuned() -> None:
    recheck(name="tuned")(lambda sender, **kwargs: None)
    the_one(found(RECEIVERS={"tuned": {5: 5}}), "E002")
    message = the_one(found(RECEIVERS={"tuned": {"MAXPASSES": 5}}), "E002")
    assert "RECHECK['RECEIVERS']['tuned']['MAXPASSES']" in message.msg
    assert message.hint == "Did you mean 'MAX_PASSES'?"
    message = the_one(found(RECEIVERS={"tuned": {"DURABL": True}}), "E002")
    assert "DURABLE" not in str(message.hint)


def test_e003_wrong_value() -> None:
    message = the_one(found(TTL=True), "E003")
    assert message.msg.startswith("RECHECK['TTL'] is True: it must be a number of seconds")
    assert message.hint == "Write 'TTL': 30, the default, or leave it out."


def test_e003_wrong_value_for_a_receiver() -> None:
    recheck(name="tuned")(lambda sender, **kwargs: None)
    message = the_one(found(RECEIVERS={"tuned": {"BACKOFF": 5}}), "E003")
    assert "RECHECK['RECEIVERS']['tuned']['BACKOFF'] is 5" in message.msg


def test_e003_shows_no_password() -> None:
    message = the_one(found(ON_REDIS_ERROR="redis://user:pa/s@s@host:6379/0"), "E003")
    assert "pa/s" not in message.msg
    assert "redis://…@host:6379/0" in message.msg


class Capturing:
    """A context as it should be."""

    def capture(self) -> Any: ...

    def restore(self, value: Any) -> Any: ...


class Demanding(Capturing):
    """A context that can't be made without arguments."""

    def __init__(self, tenant: str) -> None: ...


class Forgetful:
    """A context that can't restore."""

    def capture(self) -> Any: ...


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("DISPATCH", "Inline", "is 'Inline': it must be 'inline', or else one of 'worker', 'imm"),
        ("DISPATCH", "WORKERS", "is 'WORKERS': it must be 'worker', or else one of 'inline', "),
        (
            "ON_REDIS_ERROR",
            "Raise",
            "is 'Raise': it must be 'raise', or else one of 'run', 'skip', 'outbox'",
        ),
        ("BACKOFF", (0, 0), "is (0, 0): it must begin with a wait above 0 seconds, such as"),
        ("BACKOFF", (300, 1), "is (300, 1): it must name the first wait, then the longest"),
        ("BACKOFF", 5, "is 5: it must be a pair of seconds"),
        ("DELAY", -1, "is -1: it must be a number of seconds (int or float), 0 or more"),
        ("TTL", 1e10, "is 10000000000.0: it must be at most 1,000,000,000 seconds"),
        ("TTL", timedelta(seconds=5), "is of type timedelta: it must be a number of seconds"),
        ("TTL", "30", "is '30': it must be a number of seconds (int or float)"),
        ("CACHE", {"LOCATION": "x", "PASSWORD": "s3cret"}, "is of type dict: it must be the alias"),
        ("CONTEXT", Forgetful, "is the class Forgetful: it must be None or the dotted path"),
        ("MAX_WAIT", 0, "is 0: it must be None or a number of seconds (int or float) above 0"),
        ("RECEIVERS", {"a": {}, "b": 60}, "must be a dict of dicts, and what it has for 'b' is 60"),
        ("CACHE", "redis://h/0?password=s3cret&db=1", "CACHES has no such alias"),
    ],
)
def test_odd_values_get_a_clear_text(name: str, value: Any, words: str) -> None:
    (message,) = found(**{name: value})
    assert words in message.msg
    assert "s3cret" not in str(message)


def test_e003_braces_in_the_prefix() -> None:
    message = the_one(found(PREFIX="{tenant}"), "E003")
    assert "without braces" in message.msg


def test_e003_all_that_is_wrong_is_said_at_once() -> None:
    messages = found(TTL=0, DELAY="1", DISPATCH="celery", RECEIVERS=[], CONTEXT="x")
    assert [message.id for message in messages] == ["django_recheck.E003"] * 5


def test_e004_max_wait_not_above_delay_in_recheck_is_said_once() -> None:
    recheck(name="one")(lambda sender, **kwargs: None)
    message = the_one(found(DELAY=5, MAX_WAIT=5), "E004")
    assert message.msg == "RECHECK: MAX_WAIT (5 s) must be above DELAY (5 s)."
    assert "above 5" in str(message.hint)


def test_e004_max_wait_not_above_delay_where_a_receiver_puts_them_together() -> None:
    recheck(name="decorated", delay=5)(lambda sender, **kwargs: None)
    assert "decorated: " in the_one(found(MAX_WAIT=4), "E004").msg
    tuned = {"decorated": {"MAX_WAIT": 5}}
    assert "decorated: " in the_one(found(RECEIVERS=tuned), "E004").msg
    assert found(RECEIVERS={"decorated": {"MAX_WAIT": 6}}) == []
    assert found(MAX_WAIT=4, RECEIVERS={"decorated": {"DELAY": 3}}) == []


def test_e004_is_silent_where_one_of_them_is_wrong_by_itself() -> None:
    the_one(found(DELAY=5, MAX_WAIT=-1), "E003")


def test_e025_fewer_places_than_shards_in_recheck_is_said_once() -> None:
    recheck(name="one")(lambda sender, **kwargs: None)
    message = the_one(found(SHARDS=4, CONCURRENCY=3), "E025")
    assert message.msg == "RECHECK: CONCURRENCY (3) must be at least SHARDS (4)."
    assert "4 or more" in str(message.hint)
    assert found(SHARDS=4, CONCURRENCY=4) == []


def test_e025_fewer_places_than_shards_of_one_receiver() -> None:
    recheck(name="decorated", concurrency=3)(lambda sender, **kwargs: None)
    assert "decorated: " in the_one(found(SHARDS=4), "E025").msg
    assert found(SHARDS=4, RECEIVERS={"decorated": {"CONCURRENCY": None}}) == []
    tuned = {"decorated": {"CONCURRENCY": 2}}
    assert "decorated: " in the_one(found(SHARDS=4, CONCURRENCY=8, RECEIVERS=tuned), "E025").msg


def test_e025_is_silent_where_one_of_them_is_wrong_by_itself() -> None:
    the_one(found(SHARDS=4, CONCURRENCY=0), "E003")


an_object = Capturing()


@pytest.mark.parametrize("path", ["no.such.Context", f"{__name__}.Missing", "a.", "tests..x"])
def test_e009_context_cant_be_imported(path: str) -> None:
    assert "can't be imported" in the_one(found(CONTEXT=path), "E009").msg


def test_e009_whatever_its_module_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recheck_broken_context.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    message = the_one(found(CONTEXT="recheck_broken_context.Context"), "E009")
    assert "ZeroDivisionError" in message.msg


@pytest.mark.parametrize("name", ["Forgetful", "Demanding", "an_object", "found"])
def test_e020_context_cant_capture_and_restore(name: str) -> None:
    the_one(found(CONTEXT=f"{__name__}.{name}"), "E020")


def test_a_context_as_it_should_be() -> None:
    assert found(CONTEXT=f"{__name__}.Capturing") == []


def test_e011_no_such_receiver() -> None:
    recheck(name="stock-level")(lambda sender, **kwargs: None)
    message = the_one(found(RECEIVERS={"stocklevels": {"TTL": 5}}), "E011")
    assert "'stocklevels'" in message.msg
    assert message.hint == "Did you mean 'stock-level'?"


def test_e011_settings_under_a_former_name_have_no_effect() -> None:
    recheck(name="new", former_names=["old"])(lambda sender, **kwargs: None)
    message = the_one(found(RECEIVERS={"old": {"TTL": 5}}), "E011")
    assert message.hint == "It is called 'new' now: write that."


def test_e011_without_any_receiver() -> None:
    receivers.registry.clear()
    assert the_one(found(RECEIVERS={"any": {}}), "E011").hint == "No receiver has a name."


@pytest.mark.parametrize(
    ("name", "value", "place"),
    [
        ("REFRESH", False, "in the decorator"),
        ("DURABLE", True, "in the decorator"),
        ("BREAKER", 5, "in RECHECK itself"),
        ("SHARDS", 4, "in RECHECK itself"),
    ],
)
def test_e012_not_for_operators_to_tune(name: str, value: Any, place: str) -> None:
    recheck(name="tuned")(lambda sender, **kwargs: None)
    message = the_one(found(RECEIVERS={"tuned": {name: value}}), "E012")
    assert place in str(message.hint)


# The docs


def ids_in_the_code() -> list[str]:
    """Return the ids that the modules of the checks give their messages, each once."""
    package = Path(str(django_recheck.__file__)).parent
    code = "".join(path.read_text("utf-8") for path in package.rglob("*.py"))
    return sorted(set(re.findall(r'message\(\s*"([EW]\d{3})"', code)))


def test_the_docs_have_a_row_for_every_id_and_no_other() -> None:
    page = (ROOT / "docs" / "reference" / "checks.md").read_text("utf-8")
    rows = re.findall(r"^\| `django_recheck\.([EW]\d{3})` \|", page, re.MULTILINE)
    assert sorted(rows) == ids_in_the_code()


def test_every_id_has_a_test_that_names_it() -> None:
    files = Path(__file__).parent.rglob("test_*checks.py")
    tests = "".join(path.read_text("utf-8") for path in files)
    named = re.findall(r"^def test_(?:c\d+_)?([ew]\d{3})_", tests, re.MULTILINE)
    assert {number.upper() for number in named} == set(ids_in_the_code())


def test_the_checks_are_registered_with_the_app() -> None:
    assert apps.is_installed("django_recheck")
    assert "recheck" in checks.registry.registry.tags_available()
