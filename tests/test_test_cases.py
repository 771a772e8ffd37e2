"""Receivers in every kind of test that projects write: where there is a commit, and where not."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, ClassVar
from urllib.request import urlopen

import pytest
from django.db import connections, transaction
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.test import (
    LiveServerTestCase,
    SimpleTestCase,
    TestCase,
    TransactionTestCase,
    override_settings,
)
from django.urls import path

from django_recheck import receivers, recheck, store, views, worker
from tests.app.models import Item
from tests.loops import wait_for

Capture = Callable[..., AbstractContextManager[list[Callable[[], Any]]]]


def view(request: HttpRequest, name: str) -> HttpResponse:
    with transaction.atomic():
        save(name)
    return HttpResponse("ok")


urlpatterns = [path("<name>", view)]


def save(name: str) -> Item:
    return Item.objects.create(name=name)


def follow() -> list[Any]:
    """Connect a receiver, and return what it notes."""
    passed: list[Any] = []

    @receiver(post_save, sender=Item)
    @recheck(name="note")
    def note(sender: Any, instance: Item, recheck_pass: Any, **kwargs: Any) -> None:
        passed.append((instance.name, recheck_pass.event_count))

    return passed


@contextmanager
def following() -> Iterator[list[Any]]:
    """Connect one for as long as the block runs, and what the block connects."""
    before = list(post_save.receivers)
    try:
        yield follow()
    finally:
        post_save.receivers[:] = before
        post_save.sender_receivers_cache.clear()
        receivers.registry.pop("note", None)  # set up for a class, no test's end removes it


def nothing_is_left() -> bool:
    return views.counts(store.current()) == {}


# Captures: each of these works with TestCase's and with pytest-django's


def any_number_of_times(capture: Capture, passed: list[Any]) -> None:
    for number in range(5):
        with capture(execute=True) as callbacks:
            item = save(str(number))
            item.save()
            assert len(passed) == number
        assert passed[-1] == (str(number), 2)
        assert len(callbacks) == 2, "they stay in the list when they have run"
    assert len(passed) == 5


def nested(capture: Capture, passed: list[Any]) -> None:
    with capture(execute=True):
        save("outer")
        for name in "ab":
            with capture(execute=True):
                save(name)
                with capture(execute=True):
                    save(name * 2)
        save("last")
        assert [name for name, _ in passed] == ["aa", "a", "bb", "b"]
    assert [name for name, _ in passed[4:]] == ["outer", "last"]
    assert {count for _, count in passed} == {1}


def the_same_row_in_each(capture: Capture, passed: list[Any]) -> None:
    with capture(execute=True):
        item = save("a")
        with capture(execute=True):
            item.save()
        assert passed == [("a", 1)]
    assert passed == [("a", 1)] * 2


def savepoints(capture: Capture, passed: list[Any]) -> None:
    with capture(execute=True):
        with transaction.atomic():
            save("a")
        with suppress(LookupError), transaction.atomic():
            save("dropped")
            raise LookupError
        assert passed == []
    assert passed == [("a", 1)]


def not_executed(capture: Capture, passed: list[Any]) -> None:
    with capture() as callbacks:
        save("a")
        save("b")
    assert passed == []
    for callback in callbacks * 2:
        callback()
    assert passed == [("a", 1), ("b", 1)], "once, however often they are called"


def not_captured(capture: Capture, passed: list[Any]) -> None:
    before = save("before")
    with capture(execute=True):
        save("a")
    before.save()
    with capture(execute=True):
        save("b")
    assert passed == [("a", 1), ("b", 1)]


def an_error_in_the_block(capture: Capture, passed: list[Any]) -> None:
    with suppress(LookupError), capture(execute=True):
        save("lost")
        raise LookupError
    with capture(execute=True):
        save("a")
    assert passed[-1] == ("a", 1)


def with_what_a_pass_saves(capture: Capture, passed: list[Any]) -> None:
    """A callback that registers another one is captured, too."""

    @receiver(post_save, sender=Item)
    @recheck(name="writes")
    def writes(sender: Any, instance: Item, **kwargs: Any) -> None:
        if len(instance.name) < 3:
            with transaction.atomic():
                save(instance.name + "a")

    with capture(execute=True):
        save("a")
    assert sorted(passed) == [("a", 1), ("aa", 1), ("aaa", 1)]


def drained(capture: Capture, passed: list[Any]) -> None:
    worker_only = {"CACHE": "recheck", "DISPATCH": "worker"}
    with override_settings(RECHECK=worker_only):
        with capture(execute=True):
            save("a").save()
        assert passed == []
        assert worker.drain().items == 1
    assert passed == [("a", 2)]


CAPTURING = [
    any_number_of_times,
    nested,
    the_same_row_in_each,
    savepoints,
    not_executed,
    not_captured,
    an_error_in_the_block,
    with_what_a_pass_saves,
    drained,
]


class CaptureTests(TestCase):
    """In one test after the other, on one transaction each."""

    def test_c44_captures(self) -> None:
        for capturing in CAPTURING:
            with self.subTest(capturing.__name__), following() as passed:
                capturing(self.captureOnCommitCallbacks, passed)
                assert nothing_is_left()


@pytest.mark.parametrize("capturing", CAPTURING, ids=lambda capturing: capturing.__name__)
def test_c44_captures_of_pytest_django(
    db: None, django_capture_on_commit_callbacks: Any, capturing: Callable[..., None]
) -> None:
    capturing(django_capture_on_commit_callbacks, follow())
    assert nothing_is_left()


class DatabasesTests(TestCase):
    """A capture is one database's."""

    databases = {"default", "other"}  # noqa: RUF012 - as Django has it

    def test_each_database_is_captured_by_itself(self) -> None:
        passed = follow()
        with self.captureOnCommitCallbacks(execute=True):
            save("default")
            Item.objects.using("other").create(name="other")
        assert passed == [("default", 1)]
        with self.captureOnCommitCallbacks(using="other", execute=True):
            Item.objects.using("other").create(name="captured")
        assert passed == [("default", 1), ("captured", 1)]


class SetUpTestDataTests(TestCase):
    """Data of the class is in a transaction of its own, around that of each test."""

    early: ClassVar[Item]
    captured: ClassVar[Item]

    @classmethod
    def setUpTestData(cls) -> None:
        with following() as passed:
            cls.early = save("never")
            with cls.captureOnCommitCallbacks(execute=True):
                cls.captured = save("captured")
        assert passed == [("captured", 1)]

    def check(self) -> None:
        passed = follow()
        with self.captureOnCommitCallbacks(execute=True):
            self.early.save()
            self.captured.save()
        assert passed == [("never", 1), ("captured", 1)], "nothing is left of the set-up"

    def test_one(self) -> None:
        self.check()

    def test_another(self) -> None:
        self.check()


class CommittingTests(TransactionTestCase):
    """Here everything commits, and a capture takes it along all the same."""

    def test_passes_come_with_their_commits(self) -> None:
        passed = follow()
        save("autocommit")
        with transaction.atomic():
            save("block")
            assert passed == [("autocommit", 1)]
        assert passed == [("autocommit", 1), ("block", 1)]
        with suppress(LookupError), transaction.atomic():
            save("dropped")
            raise LookupError
        assert len(passed) == 2
        assert nothing_is_left()

    def test_a_capture_finds_what_was_delivered(self) -> None:
        passed = follow()
        with transaction.atomic():
            with TestCase.captureOnCommitCallbacks() as callbacks:
                save("a")
            assert (len(callbacks), passed) == (1, [])
        assert passed == [("a", 1)]
        callbacks[0]()
        assert passed == [("a", 1)]


@override_settings(ROOT_URLCONF=__name__, STATIC_URL="/static/")
class ServerTests(LiveServerTestCase):
    """The server's threads have connections of their own, and Redis with the test in common."""

    def get(self, name: str) -> None:
        with urlopen(f"{self.live_server_url}/{name}", timeout=20) as response:
            assert response.read() == b"ok"

    def test_a_request_runs_its_passes_before_it_is_answered(self) -> None:
        passed = follow()
        for name in "abc":
            self.get(name)
        assert passed == [("a", 1), ("b", 1), ("c", 1)]
        assert nothing_is_left()

    def test_what_a_request_records_is_drained_by_the_test(self) -> None:
        passed = follow()
        with override_settings(RECHECK={"CACHE": "recheck", "DISPATCH": "worker"}):
            self.get("a")
            assert passed == []
            worker.drain()
        assert passed == [("a", 1)]

    def tearDown(self) -> None:
        connections["default"].close()
        wait_for(nothing_is_left)


class NoDatabaseTests(SimpleTestCase):
    """A receiver of a custom signal needs no database."""

    def test_by_hand_without_a_row(self) -> None:
        keys: list[Any] = []

        @recheck(key=lambda **_: 1, name="no-rows")
        def no_rows(recheck_pass: Any, **kwargs: Any) -> None:
            keys.append(recheck_pass.key)

        no_rows.recheck(key=1)
        assert keys == [1]


def test_unittest_cases_with_a_loop_of_their_own_run_passes_beside_it() -> None:
    keys: list[Any] = []

    class LoopTests(unittest.IsolatedAsyncioTestCase):
        async def test_send(self) -> None:
            @recheck(key=lambda **_: 1, name="in-a-loop")
            async def in_a_loop(recheck_pass: Any, **kwargs: Any) -> None:
                keys.append(recheck_pass.key)

            in_a_loop.recheck(key=1)

    result = unittest.TestResult()
    LoopTests("test_send").run(result)
    assert result.wasSuccessful(), result.errors
    assert keys == [1], "and the loop's end waits for it"
