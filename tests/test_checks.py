"""The system checks that connect to nothing: each id, its hint, and that they are registered."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.signals import user_logged_in, user_login_failed
from django.contrib.contenttypes.fields import GenericForeignKey
from django.core import checks
from django.core.checks import CheckMessage
from django.core.management import call_command
from django.core.management.base import SystemCheckError
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
from django.test import override_settings
from django.test.utils import CaptureQueriesContext, isolate_apps

import django_recheck.checks
import django_recheck.deploy_checks
from django_recheck import keys, receivers, recheck
from tests.app.models import Child, Group, Item, Named, ProxyItem

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


# Receivers


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
    assert "no single value" in the_one(keyed(model, key=key), "E014").msg


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
        ("unseen", "E013"),
        ("target", "W001"),
        ("target.name", "W001"),
        ("get_state_display", "E014"),
        ("a_class_method", "E014"),
    ],
)
@isolate_apps("django.contrib.contenttypes", attr_name="isolated")
def test_what_a_model_may_have_beside_its_fields(key: str, number: str | None) -> None:
    class Rich(Model):
        state = models.IntegerField(choices=[(1, "one")])
        content_type = models.ForeignKey("contenttypes.ContentType", models.CASCADE)
        object_id = models.IntegerField()
        target = GenericForeignKey()
        annotated: int

        class Meta:
            app_label = "contenttypes"

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.unseen = self.annotated = 5

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
    messages = list(django_recheck.checks._key(note, Rich))
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


# No connection


@contextmanager
def listening() -> Iterator[tuple[int, list[Any]]]:
    """Listen on a port, and note who connects."""
    seen: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    peer, address = server.accept()
                except OSError:
                    return
                seen.append(address)
                peer.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1], seen
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def django(port: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Django in a process of its own, its cache on that port."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "RECHECK_TEST_REDIS_URL": f"redis://127.0.0.1:{port}/0",
        },
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "import django; django.setup(); import shop.receivers"),
        ("-m", "django", "check"),
        ("-m", "django", "check", "--tag", "recheck"),
    ],
)
def test_c32_setup_and_check_connect_to_nothing(arguments: tuple[str, ...]) -> None:
    with listening() as (port, seen):
        run = django(port, *arguments)
    assert run.returncode == 0, run.stderr
    assert seen == []


def test_c32_check_deploy_is_what_connects() -> None:
    with listening() as (port, seen):
        run = django(port, "-m", "django", "check", "--deploy", "--tag", "recheck")
    assert run.returncode == 0, run.stderr
    assert seen
    assert "django_recheck.W101" in run.stderr


# The docs


def ids_in_the_code() -> list[str]:
    """Return the ids that the modules of the checks give their messages, each once."""
    modules = (django_recheck.checks, django_recheck.deploy_checks)
    code = "".join(Path(str(module.__file__)).read_text("utf-8") for module in modules)
    return sorted(set(re.findall(r'message\(\s*"([EW]\d{3})"', code)))


def test_the_docs_have_a_row_for_every_id_and_no_other() -> None:
    page = (ROOT / "docs" / "reference" / "checks.md").read_text("utf-8")
    rows = re.findall(r"^\| `django_recheck\.([EW]\d{3})` \|", page, re.MULTILINE)
    assert sorted(rows) == ids_in_the_code()


def test_every_id_has_a_test_that_names_it() -> None:
    files = Path(__file__).parent.glob("test_*checks.py")
    tests = "".join(path.read_text("utf-8") for path in files)
    named = re.findall(r"^def test_(?:c\d+_)?([ew]\d{3})_", tests, re.MULTILINE)
    assert {number.upper() for number in named} == set(ids_in_the_code())


def test_the_checks_are_registered_with_the_app() -> None:
    assert apps.is_installed("django_recheck")
    assert "recheck" in checks.registry.registry.tags_available()
