"""Wrong settings where no system check was run: one error, in the signal, before the commit."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.test import modify_settings, override_settings

from django_recheck import Outcome, Receiver, recheck
from tests.app.models import Item

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).parent.parent
LOCMEM = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
REDIS = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}

WRONG: list[dict[str, Any]] = [
    {"TTL": "soon"},
    {"ttl": 5},
    {"DISPATCH": "celery"},
    {"DISPATCH": "Inline"},
    {"PREFIX": "{a}"},
    {"DELAY": 5, "MAX_WAIT": 5},
    {"CONCURRENCY": 2, "SHARDS": 4},
    {"SHARDS": 4, "RECEIVERS": {"mine": {"CONCURRENCY": 2}}},
    {"CACHE": "nobody"},
    {"CACHE": "default"},
    {"CACHE": "sharded"},
    {"CACHE": "absent"},
    {"CACHE": "nowhere"},
    {"CACHE": "optional"},
    {"CONTEXT": "no.such.Context"},
    {"CONTEXT": "tests.app.models.Item"},
    {"RECEIVERS": []},
    {"RECEIVERS": {"mine": {"BACKOF": (1, 2)}}},
    {"RECEIVERS": {"mine": {"REFRESH": False}}},
]
CACHES: dict[str, Any] = {
    "default": LOCMEM,
    "sharded": {**REDIS, "OPTIONS": {"CLIENT_CLASS": "django_redis.client.ShardClient"}},
    "absent": {**REDIS, "BACKEND": "no.such.Cache"},
    "nowhere": {"BACKEND": REDIS["BACKEND"]},
    "optional": {**REDIS, "OPTIONS": {"CONNECTION_POOL_KWARGS": {"no_such_option": 1}}},
}


@pytest.fixture
def calls() -> list[Any]:
    return []


@pytest.fixture
def mine(calls: list[Any]) -> Receiver[..., Any]:
    @receiver(post_save, sender=Item)
    @recheck(name="mine", key="id")
    def note(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append(recheck_pass.key)

    return note


@pytest.mark.parametrize("wrong", WRONG, ids=str)
@pytest.mark.usefixtures("mine")
def test_it_is_raised_in_the_signal_with_the_checks_own_sentence(
    settings: Any, calls: list[Any], wrong: dict[str, Any]
) -> None:
    settings.CACHES = {**settings.CACHES, **CACHES}
    settings.RECHECK = {"CACHE": "recheck", **wrong}
    said = checks.run_checks(tags=["recheck"])[0]
    with pytest.raises(ImproperlyConfigured) as raised, transaction.atomic():
        Item.objects.create(name="a")
    assert str(raised.value) == f"{said.msg.rstrip('.')}. {said.hint} ({said.id})"
    assert not Item.objects.exists(), "it was raised before the commit"
    assert calls == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda mine: mine.recheck(key=1),
        lambda mine: mine.recheck(Item(pk=1)),
        lambda mine: mine.recheck_many([1]),
        lambda mine: mine.recheck_many([]),
    ],
)
def test_asking_by_hand_is_refused_too(
    mine: Receiver[..., Any], settings: Any, ask: Callable[[Any], Any]
) -> None:
    settings.RECHECK = {"CACHE": "default"}
    with pytest.raises(ImproperlyConfigured, match="not one of django-redis"):
        ask(mine)


class Looked(dict[str, Any]):
    """Caches that count how often somebody looks whether an alias is there."""

    looks = 0

    def get(self, *args: Any) -> Any:
        self.looks += 1
        return super().get(*args)


def test_each_new_value_of_the_settings_is_looked_at_once(
    mine: Receiver[..., Any], settings: Any
) -> None:
    settings.CACHES = first = Looked(settings.CACHES)
    for _ in range(3):
        assert mine.recheck(key=1) is Outcome.RAN
    assert first.looks == 1
    settings.RECHECK = {"CACHE": "recheck", "TTL": 5}
    for _ in range(3):
        assert mine.recheck(key=1) is Outcome.RAN
    assert first.looks == 2
    settings.CACHES = Looked({**first, "default": LOCMEM})
    for _ in range(3):
        assert mine.recheck(key=1) is Outcome.RAN
    assert (first.looks, settings.CACHES.looks) == (2, 1)
    settings.RECHECK = {"CACHE": "default"}
    for _ in range(2):  # what is wrong stays wrong
        with pytest.raises(ImproperlyConfigured):
            mine.recheck(key=1)


def test_anothers_settings_are_anothers_matter(mine: Receiver[..., Any], settings: Any) -> None:
    other = recheck(name="other")(lambda sender, **kwargs: None)
    settings.RECHECK = {"CACHE": "recheck", "RECEIVERS": {"other": {"TTL": 0}}}
    assert mine.recheck(key=1) is Outcome.RAN
    with pytest.raises(ImproperlyConfigured, match=r"'other'.*'TTL'"):
        other.recheck(key=1)


def test_immediate_needs_no_cache(
    mine: Receiver[..., Any], settings: Any, calls: list[Any]
) -> None:
    settings.CACHES = {"default": LOCMEM}
    settings.RECHECK = {"DISPATCH": "immediate"}
    assert checks.run_checks(tags=["recheck"]) == []
    item = Item.objects.create(name="a")
    assert calls == [item.pk]
    settings.RECHECK = {"DISPATCH": "immediate", "TLL": 5}
    with pytest.raises(ImproperlyConfigured, match="'TTL'"):
        item.save()


def test_a_silenced_check_is_silent_here_too(
    mine: Receiver[..., Any], settings: Any, calls: list[Any]
) -> None:
    settings.RECHECK = {"CACHE": "recheck", "SOMETHING_ELSE": 5}
    settings.SILENCED_SYSTEM_CHECKS = ["django_recheck.E002"]
    assert mine.recheck(key=1) is Outcome.RAN


@pytest.mark.usefixtures("mine")
def test_no_password_is_shown() -> None:
    cache = {**REDIS, "LOCATION": "redis://:pa/s3cret@127.0.0.1:6379/0"}
    with (
        override_settings(CACHES={"mine": cache}, RECHECK={"CACHE": "mine"}),
        pytest.raises(ImproperlyConfigured, match="E022") as raised,
    ):
        Item.objects.create(name="a")
    assert not re.search("s3cret|pa/|'pa'", str(raised.value))


@pytest.mark.usefixtures("mine")
def test_an_app_that_isnt_installed_is_missed_at_the_first_signal() -> None:
    with (
        modify_settings(INSTALLED_APPS={"remove": ["django_recheck"]}),
        pytest.raises(ImproperlyConfigured, match=r'Write INSTALLED_APPS = \[..., "django_rech'),
        transaction.atomic(),
    ):
        Item.objects.create(name="a")
    assert not Item.objects.exists()


PROCESS = """
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=[{app}],
    CACHES={{"default": {{"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}}},
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}},
)
django.setup()
from django.dispatch import Signal
from django_recheck import recheck
signal = Signal()
signal.connect(recheck(key=lambda **_: 1, name="mine")(lambda sender, **kwargs: None), weak=False)
signal.send(None)
"""


@pytest.mark.parametrize(
    ("app", "words"),
    [
        ("", 'ImproperlyConfigured: "django_recheck" is missing from INSTALLED_APPS'),
        ("'django_recheck'", "ImproperlyConfigured: The cache 'default' is a LocMemCache, not "),
    ],
)
def test_in_a_process_that_runs_no_checks(app: str, words: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROCESS.format(app=app)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    last = run.stderr.strip().splitlines()[-1]
    assert words in last
