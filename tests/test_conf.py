"""The RECHECK settings: what each may be, which of several counts, and that they are read live."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_recheck import conf, recheck, store

ROOT = Path(__file__).parent.parent

NO_NUMBERS: list[Any] = [True, "5", None, [], math.nan, math.inf, -math.inf, 10**400, Decimal(5)]
NO_COUNTS: list[Any] = [0, -1, True, 1.0, "1", None]
NO_TEXTS: list[Any] = ["", None, 5, b"text", ["text"]]
NO_FLAGS: list[Any] = [0, 1, None, "True"]

GOOD: dict[str, list[Any]] = {
    "CACHE": ["default", "recheck"],
    "PREFIX": ["recheck", "a:b"],
    "SHARDS": [1, 16],
    "CONTEXT": [None, "tenants.Context"],
    "TTL": [1, 1.0, 30, 1e9],
    "MAX_HOLD": [0, 0.5, 3600],
    "MAX_PASSES": [1, 10],
    "INLINE_BUDGET": [0, 5.0],
    "MAX_ATTEMPTS": [1, 5],
    "BACKOFF": [(1, 300), [0.1, 0.1]],
    "DISPATCH": ["inline", "worker", "immediate"],
    "DELAY": [0, 0.001, 60],
    "MAX_WAIT": [None, 0.001, 60],
    "CONCURRENCY": [None, 1, 4],
    "ON_REDIS_ERROR": ["run", "raise", "skip", "outbox"],
    "BREAKER": [0, 5],
    "REFRESH": [True, False],
    "DURABLE": [True, False],
    "RAISE_EXCEPTIONS": [True, False],
    "RECEIVERS": [{}, {"name": {}}, {"name": {"TTL": 5}}],
}
BAD: dict[str, list[Any]] = {
    "CACHE": NO_TEXTS,
    "PREFIX": [*NO_TEXTS, "{tag}", "a{", "a}"],
    "SHARDS": [*NO_COUNTS, 16385],
    "CONTEXT": ["", "nodots", 5, object],
    "TTL": [*NO_NUMBERS, 0, 0.999, -1, 1e10],
    "MAX_HOLD": [*NO_NUMBERS, -0.1],
    "MAX_PASSES": NO_COUNTS,
    "INLINE_BUDGET": [*NO_NUMBERS, -1],
    "MAX_ATTEMPTS": NO_COUNTS,
    "BACKOFF": [None, 5, (1,), (1, 2, 3), (0, 1), (2, 1), (-1, 1), (True, 5), (1, math.inf), "12"],
    "DISPATCH": ["celery", "django_tasks", "a.dotted.path", "", None, True, 5],
    "DELAY": [*NO_NUMBERS, -1],
    "MAX_WAIT": [value for value in NO_NUMBERS if value is not None] + [0, -1],
    "CONCURRENCY": [value for value in NO_COUNTS if value is not None],
    "ON_REDIS_ERROR": ["RUN", "", None, True, 5],
    "BREAKER": [*NO_NUMBERS, -1],
    "REFRESH": NO_FLAGS,
    "DURABLE": NO_FLAGS,
    "RAISE_EXCEPTIONS": NO_FLAGS,
    "RECEIVERS": [None, [], "name", {"name": 5}, {"name": [("TTL", 5)]}],
}


def each(table: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    return [(name, value) for name, values in table.items() for value in values]


def values_are_wrong() -> list[str]:
    """Return what the system check finds wrong with values."""
    found = checks.run_checks(tags=["recheck"])
    return [message.msg for message in found if message.id == "django_recheck.E003"]


def test_every_setting_is_tried() -> None:
    assert set(GOOD) == set(BAD) == set(conf.SETTINGS)


@pytest.mark.parametrize(("name", "value"), each(GOOD))
def test_what_a_setting_may_be(name: str, value: Any) -> None:
    with override_settings(RECHECK={name: value}):
        assert conf.get(name) == value
        assert values_are_wrong() == []


@pytest.mark.parametrize(("name", "value"), each(BAD))
def test_what_a_setting_may_not_be(name: str, value: Any) -> None:
    with override_settings(RECHECK={name: value}):
        with pytest.raises(ImproperlyConfigured, match=rf"RECHECK\['{name}'\] is .*: it must "):
            conf.get(name)
        (wrong,) = values_are_wrong()
        assert wrong.startswith(f"RECHECK['{name}'] is ")


@pytest.mark.parametrize(("name", "setting"), conf.SETTINGS.items())
def test_every_default_is_a_value_that_may_be_set(name: str, setting: conf.Setting) -> None:
    assert setting.problem(setting.default) is None
    with override_settings(RECHECK={}):
        assert conf.get(name) == setting.default


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("DISPATCH", "celery", "no other way to dispatch"),
        ("DISPATCH", "shop.dispatch.queue", "no other way to dispatch"),
    ],
)
def test_what_this_version_lacks_is_said_in_one_sentence(name: str, value: Any, words: str) -> None:
    with override_settings(RECHECK={name: value}):
        (said,) = values_are_wrong()
    assert words in said
    assert "this version has no" in said
    assert said.count(".") == 1 + str(value).count(".")


def test_a_bad_setting_hurts_where_it_is_used_and_nowhere_else() -> None:
    with override_settings(RECHECK={"TTL": "soon"}):
        assert conf.get("DELAY") == 0
        with pytest.raises(ImproperlyConfigured, match="'soon'"):
            conf.Options("any", {}).ttl  # noqa: B018 - reading it raises


@pytest.mark.parametrize("value", [None, [], "TTL=5", 5])
def test_recheck_must_be_a_dict(value: Any) -> None:
    with override_settings(RECHECK=value), pytest.raises(ImproperlyConfigured, match="a dict"):
        conf.get("TTL")


def test_without_recheck_in_the_settings_the_defaults_hold() -> None:
    with override_settings():
        del django_settings.RECHECK
        assert conf.get("TTL") == 30


OPTIONS = {
    "ttl": 7,
    "max_hold": 70,
    "max_passes": 3,
    "inline_budget": 0.5,
    "max_attempts": 2,
    "backoff": (2, 4),
    "dispatch": "worker",
    "delay": 3,
    "max_wait": 5,
    "concurrency": 2,
    "on_redis_error": "skip",
}
OTHERS = {
    "ttl": 8,
    "max_hold": 80,
    "max_passes": 4,
    "inline_budget": 0.6,
    "max_attempts": 3,
    "backoff": (3, 5),
    "dispatch": "immediate",
    "delay": 2,
    "max_wait": 9,
    "concurrency": 4,
    "on_redis_error": "raise",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_receivers_goes_before_the_decorator_before_recheck_before_the_default(name: str) -> None:
    upper = name.upper()
    options: Any = {name: OPTIONS[name]}
    bare, given = recheck(name="bare"), recheck(name="given", **options)

    def note(sender: Any, **kwargs: Any) -> None: ...

    plain, decorated = bare(note).options, given(note).options
    tuned = {"bare": {upper: OTHERS[name]}, "given": {upper: OTHERS[name]}}
    with override_settings(RECHECK={}):
        default = conf.Options("x", {}).max_wait if name == "max_wait" else conf.get(upper)
        assert getattr(plain, name) == default
        assert getattr(decorated, name) == OPTIONS[name]
    with override_settings(RECHECK={upper: OTHERS[name]}):
        assert getattr(plain, name) == OTHERS[name]
        assert getattr(decorated, name) == OPTIONS[name]
    with override_settings(RECHECK={upper: conf.SETTINGS[upper].default, "RECEIVERS": tuned}):
        assert getattr(plain, name) == OTHERS[name]
        assert getattr(decorated, name) == OTHERS[name]


def test_operators_tune_and_cant_switch_off_correctness() -> None:
    tuned = {name for name, setting in conf.SETTINGS.items() if setting.tunable}
    options = {name for name, setting in conf.SETTINGS.items() if setting.option}
    assert options - tuned == {"REFRESH", "DURABLE"}
    assert tuned <= options
    with override_settings(RECHECK={"RECEIVERS": {"mine": {"REFRESH": False}}}):
        assert conf.Options("mine", {}).refresh is True


def test_a_wrong_value_in_receivers_says_where_it_stands() -> None:
    with (
        override_settings(RECHECK={"RECEIVERS": {"mine": {"TTL": True}}}),
        pytest.raises(ImproperlyConfigured, match=r"RECHECK\['RECEIVERS'\]\['mine'\]\['TTL'\]"),
    ):
        conf.Options("mine", {}).ttl  # noqa: B018 - reading it raises


@pytest.mark.parametrize(
    ("delay", "max_wait", "seconds"), [(0, None, 0), (2, None, 20), (2, 2.5, 2.5), (0, 5, 5)]
)
def test_max_wait_is_ten_times_delay_unless_set(
    delay: float, max_wait: float | None, seconds: float
) -> None:
    with override_settings(RECHECK={"DELAY": delay, "MAX_WAIT": max_wait}):
        assert conf.Options("mine", {}).max_wait == seconds


@pytest.mark.parametrize("max_wait", [1, 2])
def test_max_wait_must_be_above_delay_however_they_come_together(max_wait: float) -> None:
    together = {"DELAY": 2, "RECEIVERS": {"mine": {"MAX_WAIT": max_wait}}}
    with (
        override_settings(RECHECK=together),
        pytest.raises(ImproperlyConfigured, match=r"'mine': MAX_WAIT .* must be above DELAY"),
    ):
        conf.Options("mine", {}).max_wait  # noqa: B018 - reading it raises


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("TLL", "did you mean 'TTL'?"),
        ("MAX_PASS", "did you mean 'MAX_PASSES'?"),
        ("RECIEVERS", "did you mean 'RECEIVERS'?"),
        ("xyz", "the names are BACKOFF, BREAKER, "),
    ],
)
def test_an_unknown_name_leads_to_the_nearest(name: str, words: str) -> None:
    assert conf.nearest(name, conf.SETTINGS).startswith(words)


def test_c33_settings_are_read_live() -> None:
    @recheck(name="live")
    def note(sender: Any, **kwargs: Any) -> None: ...

    with override_settings(RECHECK={"CACHE": "recheck", "TTL": 5, "PREFIX": "one"}):
        first = store.current()
        assert (note.options.ttl, first.base.rpartition(":")[2]) == (5, "one")
        with override_settings(RECHECK={"CACHE": "recheck", "TTL": 6, "PREFIX": "two"}):
            assert (note.options.ttl, store.current().base.rpartition(":")[2]) == (6, "two")
        assert store.current() is first
    changing: dict[str, Any] = {"TTL": 7, "RECEIVERS": {"live": {"MAX_PASSES": 2}}}
    with override_settings(RECHECK=changing):
        assert (note.options.ttl, note.options.max_passes) == (7, 2)
        changing["TTL"] = 8
        assert note.options.ttl == 8
        changing["RECEIVERS"]["live"]["MAX_PASSES"] = 3
        assert note.options.max_passes == 3
        changing["BACKOFF"] = [1, 2]
        assert note.options.backoff[1] == 2
        changing["BACKOFF"][1] = 3
        assert note.options.backoff[1] == 3
        changing["TTL"] = "wrong"
        with pytest.raises(ImproperlyConfigured, match="TTL"):
            _ = note.options.ttl


@pytest.mark.django_db
def test_c33_settings_are_never_written() -> None:
    @recheck(name="written", ttl=5, dispatch="worker")
    def note(sender: Any, **kwargs: Any) -> None: ...

    mine = {"CACHE": "recheck", "RECEIVERS": {"written": {"TTL": 9}}}
    before = copy.deepcopy(mine)
    names = set(dir(django_settings))
    with override_settings(RECHECK=mine):
        checks.run_checks(tags=["recheck"], include_deployment_checks=True)
        note.recheck(key=1)
        assert note.options.ttl == 9
        assert django_settings.RECHECK is mine
    assert mine == before
    assert conf.SETTINGS["RECEIVERS"].default == {}
    assert set(dir(django_settings)) == names


def test_c33_nothing_is_read_at_import() -> None:
    program = (
        "import importlib, pkgutil, django_recheck as package\n"
        "apart = {'models', 'admin'}  # Django reads them, where the app is listed\n"
        "for _, name, _ in pkgutil.walk_packages(package.__path__, 'django_recheck.', id):\n"
        "    if not apart.intersection(name.split('.')):\n"
        "        importlib.import_module(name)\n"
        "from django.conf import settings\n"
        "print(settings.configured)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stdout.strip()) == (0, "False"), run.stderr


def test_what_only_tests_and_people_need_isnt_imported_at_start_up() -> None:
    """``django.test`` has ``unittest`` and templates in tow: half of what an import would cost."""
    program = (
        "import sys\n"
        "from django.conf import settings\n"
        "settings.configure(INSTALLED_APPS=['django.contrib.contenttypes', 'django_recheck'])\n"
        "import django\n"
        "django.setup()\n"
        "import django_recheck.receivers\n"
        "late = {f'django_recheck.{n}' for n in ('worker', 'views', 'screen', 'deploy_checks')}\n"
        "print(*({'django.test', 'unittest'} | late) & {*sys.modules})\n"
    )
    environment = {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (run.returncode, run.stdout.strip()) == (0, ""), run.stderr
