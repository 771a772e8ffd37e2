"""A receiver that keeps a group's total, two groups, and a server of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db.models.signals import post_save
from django.dispatch import receiver

from django_recheck import Receiver, recheck
from tests.app.models import Group, Item
from tests.servers import Server, apart


@pytest.fixture
def calls() -> list[Any]:
    return []


@pytest.fixture
def total(calls: list[Any]) -> Receiver[..., Any]:
    @receiver(post_save, sender=Item)
    @recheck(key="group_id", name="total")
    def total(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append((recheck_pass.key, recheck_pass.event_count))

    return total


@pytest.fixture
def groups() -> list[Group]:
    return [Group.objects.create(name=name) for name in "ab"]


@pytest.fixture
def server(settings: Any) -> Iterator[Server]:
    """A server that may be stopped."""
    with apart(settings, BREAKER=600) as server:
        yield server
