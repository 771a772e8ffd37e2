"""Tests as they are written with pytest and pytest-django."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from django_recheck.testing import drain, event_during_pass, immediate, override, recorded
from tests.app.models import Friend, Group, Item, Watched

from .receivers import count_names, refresh_total, remember
from .unittest_style import meet


def second_pass() -> None:
    group = Group.objects.create()
    with event_during_pass(refresh_total, partial(Item.objects.create, group=group, value=20)):
        meet()
        Item.objects.create(group=group, value=1)
    assert Group.objects.get().total == 21


def test_a_second_pass_in_db(db: None) -> None:
    second_pass()


def test_a_second_pass_in_transactional_db(transactional_db: None) -> None:
    second_pass()


@pytest.mark.django_db
@immediate()
def test_immediate() -> None:
    Item.objects.create(group=Group.objects.create(), value=3)
    assert Group.objects.get().total == 3


@override(RECEIVERS={"total": {"DISPATCH": "worker"}})
def test_a_drain_of_captured_commits(db: None, django_capture_on_commit_callbacks: Any) -> None:
    group = Group.objects.create()
    for value in (1, 20):
        with django_capture_on_commit_callbacks(execute=True):
            Item.objects.create(group=group, value=value)
    assert [(one.key, one.event_count) for one in recorded(refresh_total)] == [(group.pk, 2)]
    assert drain().passes == 1
    assert Group.objects.get().total == 21


def test_a_delay(transactional_db: None) -> None:
    Watched.objects.create(name="four")
    assert drain().passes == 0
    assert drain(delayed=True).passes == 1
    assert recorded(count_names) == []
    assert Watched.objects.get().value == 4


@pytest.mark.django_db(transaction=True)
def test_broken_remember() -> None:
    friend = Friend.objects.create(name="a")
    with event_during_pass(remember, Friend(pk=friend.pk, name="Anna").save):
        friend.save()
    assert Group.objects.get().total == len("Anna")
