"""The system checks that connect to nothing: each id, its hint, and that they are registered."""

from __future__ import annotations

import re
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

import django_recheck.checks
import django_recheck.deploy_checks
import django_recheck.receiver_checks
from django_recheck import receivers, recheck
from tests.app.models import Item

ROOT = Path(__file__).parent.parent
REDIS = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}


def found(**recheck_settings: Any) -> list[CheckMessage]:
    """Run the checks of this app, under a RECHECK of its own if one is given."""
    if not recheck_settings:
        return checks.run_checks(tags=["recheck"])
    with override_settings(RECHECK={"CACHE": "recheck", **recheck_settings}):
        return checks.run_checks(tags=["recheck"])


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


@pytest.mark.parametrize("value", [None, [("TTL", 5)], "redis://:secret@host/0"])
def test_e001_recheck_is_no_dict(value: Any) -> None:
    with override_settings(RECHECK=value):
        message = the_one(checks.run_checks(tags=["recheck"]), "E001")
    assert "secret" not in str(message)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("TLL", "Did you mean 'TTL'?"),
        ("ttl", "The names are "),
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


# The cache


def with_cache(**cache: Any) -> list[CheckMessage]:
    """Run the checks with one cache, called ``mine``, and RECHECK naming it."""
    recheck_settings = {"CACHE": "mine"}
    with override_settings(CACHES={"mine": cache}, RECHECK=recheck_settings):
        return checks.run_checks(tags=["recheck"])


def test_e005_no_such_alias() -> None:
    message = the_one(found(CACHE="redis"), "E005")
    assert "'redis'" in message.msg
    assert "'default', 'recheck'" in message.msg
    assert "django_redis.cache.RedisCache" in str(message.hint)


def test_e005_shows_no_password_where_an_alias_should_be() -> None:
    message = the_one(found(CACHE="redis://:secret@host:6379/0"), "E005")
    assert "secret" not in str(message)


@pytest.mark.parametrize(
    "backend",
    [
        "django.core.cache.backends.locmem.LocMemCache",
        "django.core.cache.backends.dummy.DummyCache",
        "django.core.cache.backends.redis.RedisCache",
    ],
)
def test_c28_e006_a_cache_that_isnt_django_redis(backend: str) -> None:
    message = the_one(with_cache(BACKEND=backend, LOCATION="redis://127.0.0.1:1/0"), "E006")
    assert "'mine'" in message.msg
    assert backend.rpartition(".")[2] in message.msg
    assert "CACHES['mine']" in str(message.hint)
    assert "django_redis.cache.RedisCache" in str(message.hint)


@pytest.mark.parametrize(
    "client", ["django_redis.client.ShardClient", "tests.test_checks.ShardsOfOurs"]
)
def test_c28_e007_a_client_class_that_gives_no_raw_client(client: str) -> None:
    message = the_one(with_cache(**REDIS, OPTIONS={"CLIENT_CLASS": client}), "E007")
    assert "'mine'" in message.msg
    assert client.rpartition(".")[2] in message.msg
    assert "CLIENT_CLASS" in str(message.hint)


class ShardsOfOurs:
    """A client class that never heard of raw clients."""


@pytest.mark.parametrize("client", ["DefaultClient", "HerdClient", "SentinelClient"])
def test_c28_client_classes_that_give_one(client: str) -> None:
    assert with_cache(**REDIS, OPTIONS={"CLIENT_CLASS": f"django_redis.client.{client}"}) == []


@pytest.mark.parametrize(
    "cache",
    [
        {"BACKEND": "no.such.Cache"},
        {},
        {**REDIS, "OPTIONS": {"CLIENT_CLASS": "django_redis.client.NoSuchClient"}},
    ],
)
def test_e021_backend_or_client_class_cant_be_imported(cache: dict[str, Any]) -> None:
    assert "'mine'" in the_one(with_cache(**cache), "E021").msg


@pytest.mark.parametrize("prefix", ["{shop}", "sh{op", "shop}"])
def test_e008_braces_in_the_key_prefix(prefix: str) -> None:
    message = the_one(with_cache(**REDIS, KEY_PREFIX=prefix), "E008")
    assert "CACHES['mine']['KEY_PREFIX']" in message.msg
    assert message.hint == "Write 'KEY_PREFIX': 'shop'."


# The docs


def ids_in_the_code() -> list[str]:
    """Return the ids that the modules of the checks give their messages, each once."""
    modules = (django_recheck.checks, django_recheck.receiver_checks, django_recheck.deploy_checks)
    code = "".join(Path(str(module.__file__)).read_text("utf-8") for module in modules)
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
