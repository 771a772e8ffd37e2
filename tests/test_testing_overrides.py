"""What users get for their own suites: other settings for a while, a prefix for each test."""

from __future__ import annotations

import unittest
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.db.models.signals import post_save
from django.dispatch import receiver

from django_recheck import Receiver, conf, outage, recheck, records, store, views
from django_recheck.testing import immediate, isolated, override, recorded
from tests.app.models import Item
from tests.servers import of_the_run, running

db = pytest.mark.django_db(transaction=True)


@pytest.fixture
def calls() -> list[Any]:
    return []


@pytest.fixture
def note(calls: list[Any]) -> Receiver[..., Any]:
    @receiver(post_save, sender=Item)
    @recheck(name="note", key="value", backoff=(60, 60))
    def note(sender: Any, instance: Any, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append(recheck_pass.key)
        if recheck_pass.key < 0:
            raise ValueError("as asked")

    return note


def item_of(key: int) -> records.Item:
    return records.Item("note", str(key))


# override


def test_an_override_changes_what_it_names_and_nothing_else(settings: Any) -> None:
    settings.RECHECK = {**settings.RECHECK, "TTL": 7, "MAX_PASSES": 3}
    with override(TTL=5):
        assert (conf.get("TTL"), conf.get("MAX_PASSES"), conf.get("CACHE")) == (5, 3, "recheck")
        with override(MAX_PASSES=4):
            assert (conf.get("TTL"), conf.get("MAX_PASSES")) == (5, 4)
    assert (conf.get("TTL"), conf.get("MAX_PASSES")) == (7, 3)


def test_an_override_leaves_what_receivers_have_beside_it(
    settings: Any, note: Receiver[..., Any]
) -> None:
    settings.RECHECK = {**settings.RECHECK, "RECEIVERS": {"note": {"TTL": 7, "DELAY": 2}}}
    with override(RECEIVERS={"note": {"TTL": 5}}):
        assert (note.options.ttl, note.options.delay) == (5, 2)
    assert (note.options.ttl, note.options.delay) == (7, 2)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"TLT": 5}, r"RECHECK\['TLT'\]: there is no such setting. Did you mean 'TTL'\?"),
        ({"TTL": 0}, r"RECHECK\['TTL'\] is 0: it must be a number of seconds .*, at least 1"),
        ({"RECEIVERS": {"nota": {}}}, "there is no such receiver. Did you mean 'note'?"),
        ({"RECEIVERS": {"note": {"REFRESH": False}}}, "REFRESH can't be set here"),
        ({"RECEIVERS": {"note": {"DELAI": 1}}}, "Did you mean 'DELAY'?"),
        ({"RECEIVERS": 5}, "must be a dict of dicts"),
    ],
)
def test_an_override_says_what_the_checks_say(
    note: Receiver[..., Any], changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=sentence), override(**changes):
        pass
    assert conf.get("TTL") == 30


def seen(case: type[unittest.TestCase]) -> list[Any]:
    """Run a class's tests, and return what each put down."""
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert result.errors == result.failures == []
    return vars(case)["seen"]  # type: ignore[no-any-return]


def test_a_class_is_overridden_from_its_set_up_on_and_a_derived_one_goes_before() -> None:
    @override(TTL=5, MAX_PASSES=5)
    class Base(unittest.TestCase):
        seen: list[Any]

        @classmethod
        def setUpClass(cls) -> None:
            super().setUpClass()
            cls.seen = [conf.get("TTL")]

        def test_it(self) -> None:
            self.seen.append((conf.get("TTL"), conf.get("MAX_PASSES")))

    @override(TTL=8)
    @override(TTL=7, MAX_ATTEMPTS=7)
    class Derived(Base):
        def test_it(self) -> None:
            super().test_it()
            self.seen.append(conf.get("MAX_ATTEMPTS"))

    assert seen(Derived) == [7, (7, 5), 7]
    assert seen(Base) == [5, (5, 5)]
    assert conf.get("TTL") == 30


def test_functions_can_be_overridden_sync_and_async() -> None:
    @override(TTL=5)
    def plain() -> Any:
        return conf.get("TTL")

    @override(TTL=6)
    async def coroutine() -> Any:
        return conf.get("TTL")

    assert plain() == 5
    pending = coroutine()
    assert conf.get("TTL") == 30
    with pytest.raises(StopIteration) as ended:
        pending.send(None)
    assert ended.value.value == 6
    assert conf.get("TTL") == 30


@pytest.mark.parametrize("kind", [override, immediate, isolated])
def test_a_class_that_is_no_testcase_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"unittest.TestCase"):

        @kind()
        class Plain: ...


# immediate


@db
def test_immediate_also_goes_for_receivers_with_a_dispatch_of_their_own(
    settings: Any, calls: list[Any]
) -> None:
    @receiver(post_save, sender=Item)
    @recheck(name="worker's", dispatch="worker")
    def work(sender: Any, **kwargs: Any) -> None:
        calls.append("worker's")

    @receiver(post_save, sender=Item)
    @recheck(name="tuned")
    def tuned(sender: Any, **kwargs: Any) -> None:
        calls.append("tuned")

    settings.RECHECK = {"CACHE": "nowhere", "RECEIVERS": {"tuned": {"DISPATCH": "worker"}}}
    with immediate(), transaction.atomic():
        Item.objects.create(name="a")
        assert calls == ["worker's", "tuned"]
    assert tuned.options.dispatch == "worker"


# isolated


def keys() -> set[str]:
    with of_the_run().client as client:
        return {key.decode() for key in client.scan_iter("*test-*")}


@db
@pytest.mark.parametrize("shards", [1, 3])
def test_isolated_tests_leave_nothing_and_meet_nobody(
    note: Receiver[..., Any], calls: list[Any], shards: int
) -> None:
    note.recheck_many([1])  # a site's own, under the prefix of the settings
    before, prefixes = keys(), set()
    for _ in range(2):
        with isolated(), override(SHARDS=shards):
            prefixes.add(conf.get("PREFIX"))
            assert recorded(note) == []
            note.recheck_many([1, 2, 3, -4])
            store.current().pause(["note"])
            store.current().first_in_an_hour("unknown:gone")
            assert isinstance(store.current().claim(item_of(3), note.options), str)
            store.current().pause(["note"], paused=False)
            store.current().claim(item_of(3), note.options)
            store.current().pause(["note"])
            (running,) = views.page(store.current(), "note", "running")
            assert running.holder
            assert len(keys()) > len(before)
        assert keys() == before
    assert len(prefixes) == 2
    assert [one.key for one in recorded(note)] == [1]


def test_isolated_tests_that_dont_use_redis_need_none(settings: Any) -> None:
    settings.RECHECK = {"CACHE": "default"}
    with isolated():
        assert conf.get("PREFIX").startswith("test-")


@db
def test_what_an_isolated_test_owes_to_a_stopped_redis_ends_with_it(
    settings: Any, note: Receiver[..., Any], calls: list[Any]
) -> None:
    with running() as server:
        caches = {**settings.CACHES}
        caches["away"] = {**caches["recheck"], "LOCATION": server.url}
        settings.CACHES = caches
        with isolated(), override(CACHE="away"):
            Item.objects.create(value=1)
        with override(CACHE="away"), isolated():
            Item.objects.create(value=1)
            server.end()
            Item.objects.create(value=2)
            assert calls == [1, 1, 2]
            assert outage.owing()
            assert outage.breaker.open
    assert not outage.owing()
    assert not outage.breaker.open


def test_a_class_has_a_prefix_for_each_test() -> None:
    @isolated()
    class Case(unittest.TestCase):
        seen: list[Any] = []  # noqa: RUF012

        def setUp(self) -> None:
            self.seen.append(conf.get("PREFIX"))

        def test_one(self) -> None:
            assert conf.get("PREFIX") == self.seen[-1]

        def test_two(self) -> None:
            assert conf.get("PREFIX") == self.seen[-1]

    one, two = seen(Case)
    assert one != two
    assert conf.get("PREFIX") == "recheck"
