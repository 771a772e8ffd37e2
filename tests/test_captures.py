"""In a TestCase nothing commits: what captures run, what works by hand, and what needs neither."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import call_command
from django.db import transaction
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.test import TestCase, override_settings

from django_recheck import recheck, store, views
from tests.app.models import Item

WORKER = {"RECHECK": {"CACHE": "recheck", "DISPATCH": "worker"}}
IMMEDIATE = {"RECHECK": {"CACHE": "nowhere", "DISPATCH": "immediate"}}


class CaptureTests(TestCase):
    """A TestCase's own transaction is no open transaction; its callbacks run when captured."""

    def setUp(self) -> None:
        self.calls: list[Any] = []

        @receiver(post_save, sender=Item)
        @recheck(name="captured")
        def note(sender: Any, instance: Item, recheck_pass: Any, **kwargs: Any) -> None:
            self.calls.append((instance.name, recheck_pass.event_count))

    def test_c44_captures_deliver_once(self) -> None:
        with self.captureOnCommitCallbacks(execute=True) as outer:
            Item.objects.create(name="a")
            with self.captureOnCommitCallbacks(execute=True):
                Item.objects.create(name="b")
            assert self.calls == [("b", 1)]
        assert self.calls == [("b", 1), ("a", 1)]
        assert len(outer) == 2
        Item.objects.create(name="never committed")
        assert len(self.calls) == 2

    def test_c44_callbacks_may_be_called_by_hand(self) -> None:
        with self.captureOnCommitCallbacks() as callbacks:
            Item.objects.create(name="a")
            Item.objects.create(name="b")
        assert self.calls == []
        for callback in callbacks:
            callback()
        assert self.calls == [("a", 1), ("b", 1)]

    def test_a_drain_leaves_the_tests_transaction_alone(self) -> None:
        with self.captureOnCommitCallbacks(execute=True), override_settings(**WORKER):
            Item.objects.create(name="a")
        call_command("recheck_run", verbosity=0)
        assert self.calls == [("a", 1)]
        assert Item.objects.count() == 1

    def test_c60_immediate_doesnt_call_for_a_receivers_own_save(self) -> None:
        calls = []

        @receiver(post_save, sender=Item)
        @recheck(name="tidy")
        def tidy(sender: Any, instance: Item, **kwargs: Any) -> None:
            calls.append(instance.name)
            instance.name = instance.name.strip()
            instance.save()

        with override_settings(**IMMEDIATE):
            Item.objects.create(name=" a ")
        assert calls == [" a "]

    def test_c60_immediate_needs_no_capture(self) -> None:
        with override_settings(**IMMEDIATE):
            Item.objects.create(name="a")
        assert self.calls == [("a", 1)]
        with self.captureOnCommitCallbacks(execute=True) as callbacks:
            pass
        assert callbacks == []


@pytest.mark.django_db(transaction=True)
def test_c44_a_capture_in_an_open_transaction_runs_nothing_before_the_commit() -> None:
    calls = []

    @receiver(post_save, sender=Item)
    @recheck(name="note")
    def note(sender: Any, instance: Item, **kwargs: Any) -> None:
        calls.append(instance.pk)

    with transaction.atomic():
        before = Item.objects.create(name="before the capture")
        with TestCase.captureOnCommitCallbacks(execute=True):
            captured = Item.objects.create(name="captured")
        assert (calls, views.counts(store.current())["note"].due) == ([], 1)
    assert sorted(calls) == [before.pk, captured.pk]
    assert views.counts(store.current()) == {}
