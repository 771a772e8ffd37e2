"""Tests as they are written with unittest, for Django's runner; pytest runs them, too."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.test import TestCase, TransactionTestCase, tag

from django_recheck.testing import (
    drain,
    event_during_pass,
    immediate,
    isolated,
    override,
    recorded,
)
from tests.app.models import Friend, Group, Item, Priced, Watched

from .receivers import add_up, count_names, refresh_total, remember


def meet() -> None:
    """Wait until a second process of the suite has come as far, where there is one."""
    if folder := os.environ.get("SUITE_MEETING"):
        (Path(folder) / str(os.getpid())).touch()
        until = time.monotonic() + 60
        while len(list(Path(folder).iterdir())) < 2:
            assert time.monotonic() < until, "no other process came"
            time.sleep(0.01)


@immediate()
class ImmediateTests(TestCase):
    group: Group

    @classmethod
    def setUpTestData(cls) -> None:
        cls.group = Group.objects.create()
        Item.objects.create(group=cls.group, value=1)

    def test_the_total_is_right_from_the_start(self) -> None:
        self.group.refresh_from_db()
        self.assertEqual(self.group.total, 1)

    def test_a_workers_receiver_runs_at_once_too(self) -> None:
        watched = Watched.objects.create(name="four")
        watched.refresh_from_db()
        self.assertEqual(watched.value, 4)


class Common(TestCase):
    """What holds in a TestCase and in a TransactionTestCase."""

    def change(self) -> None:
        Item.objects.create(group_id=1, value=20)

    def test_a_second_pass(self) -> None:
        Group.objects.create(pk=1)
        with event_during_pass(refresh_total, self.change) as passes:
            meet()
            Item.objects.create(group_id=1, value=1)
        self.assertEqual(len(passes), 2)
        self.assertEqual(Group.objects.get().total, 21)

    def test_a_second_pass_of_an_async_receiver(self) -> None:
        watched = Watched.objects.create(name="four")
        with event_during_pass(count_names, Watched(pk=watched.pk, name="fifteen").save) as passes:
            watched.save()
        self.assertEqual([run.number for run in passes], [1, 2])
        watched.refresh_from_db()
        self.assertEqual(watched.value, 7)

    def test_a_drain_of_what_is_recorded(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            Watched.objects.create(pk=1, name="four").save()
        (one,) = recorded(count_names)
        self.assertEqual((one.key, one.state, one.signals), (1, "pending", {"post_save"}))
        meet()
        self.assertEqual(drain().items, 0)
        self.assertEqual(drain(delayed=True).passes, 1)
        self.assertEqual(recorded(count_names), [])
        self.assertEqual(Watched.objects.get().value, 4)

    async def test_in_an_async_test(self) -> None:
        await sync_to_async(self.test_a_second_pass)()
        await Watched.objects.acreate(pk=1, name="four")

        def ask() -> None:
            with self.captureOnCommitCallbacks(execute=True):
                count_names.recheck_many([1])

        with override(RECEIVERS={"count": {"DELAY": 0}}):
            await sync_to_async(ask)()
            done = await sync_to_async(drain)()
        self.assertEqual(done.items, 1)
        self.assertEqual((await Watched.objects.aget()).value, 4)

    @tag("broken")
    def test_broken_remember(self) -> None:
        friend = Friend.objects.create(name="a")
        with event_during_pass(remember, Friend(pk=friend.pk, name="Anna").save):
            friend.save()
        self.assertEqual(Group.objects.get().total, len("Anna"))

    @tag("broken")
    def test_broken_add_up(self) -> None:
        def change() -> None:
            Priced.objects.create(price=20)
            Priced.objects.create(price=300)

        with event_during_pass(add_up, change):
            Priced.objects.create(price=1)
        self.assertEqual(Group.objects.get().total, 321)


@isolated()
class InTestCase(Common):
    def test_nothing_commits_by_itself(self) -> None:
        Item.objects.create(group=Group.objects.create(), value=1)
        self.assertEqual((drain().items, recorded(refresh_total)), (0, []))


@isolated()
class InTransactionTestCase(TransactionTestCase):
    change = Common.change
    captureOnCommitCallbacks: Any = Common.captureOnCommitCallbacks  # noqa: N815
    test_a_second_pass = Common.test_a_second_pass
    test_a_second_pass_of_an_async_receiver = Common.test_a_second_pass_of_an_async_receiver
    test_a_drain_of_what_is_recorded = Common.test_a_drain_of_what_is_recorded
    test_in_an_async_test = Common.test_in_an_async_test
    test_broken_remember = Common.test_broken_remember
    test_broken_add_up = Common.test_broken_add_up


del Common  # it is no test by itself
