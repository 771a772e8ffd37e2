"""What autocommit leaves open: which rows are written with the change, and what the others tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.dispatch import Signal

from django_recheck import recheck
from django_recheck.outbox import written
from tests.app.models import Item, Named

from .seen import DATABASES, durable, no_table, rows

pytestmark = pytest.mark.django_db(transaction=True, databases=list(DATABASES))


@pytest.fixture
def calls() -> list[Any]:
    return []


def test_what_autocommit_writes_with_the_change(
    calls: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The same on all versions of Django; this is what the page about the outbox says."""
    through, seen = Named.items.through, list[bool]()
    receiver = durable(calls, dispatch="worker")

    def look(**kwargs: Any) -> None:
        seen.append(connection.in_atomic_block)

    m2m_changed.connect(receiver, sender=through)
    for signal, sender in ((post_save, Item), (post_delete, Item), (m2m_changed, through)):
        signal.connect(look, sender=sender)
    old, named = Item.objects.create(name="old"), Named.objects.create()
    found = {}
    ways: dict[str, Callable[[], Any]] = {
        "save": old.save,
        "create": lambda: Item.objects.create(name="a"),
        "get_or_create": lambda: Item.objects.get_or_create(name="b"),
        "update_or_create, a new one": lambda: Item.objects.update_or_create(name="c"),
        "update_or_create": lambda: Item.objects.update_or_create(name="c", defaults={"value": 3}),
        "add": lambda: named.items.add(old),
        "remove": lambda: named.items.remove(old),
        "set": lambda: named.items.set([old]),
        "clear": lambda: named.items.clear(),
        "delete": lambda: Item.objects.get(name="a").delete(),
        "delete of a queryset": lambda: Item.objects.all().delete(),
    }
    for way, make in ways.items():
        written.forget()
        caplog.clear()
        del seen[:]
        before = len(rows())
        make()
        assert len(rows()) > before, f"{way}: it has a row either way"
        warned = "after the change's own commit" in caplog.text
        assert set(seen) == {not warned}, way
        found[way] = not warned
    assert [way for way, within in found.items() if not within] == ["save", "create"]


def test_the_gap_is_told_once_for_each_receiver(
    calls: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    durable(calls)
    for number in range(3):
        Item.objects.create(name=str(number))
    (record,) = [r for r in caplog.records if "own commit" in r.message]
    assert record.levelname == "WARNING"
    assert "transaction.atomic()" in record.message
    assert "ATOMIC_REQUESTS" in record.message


def test_a_signal_of_ones_own_has_a_row_before_redis_hears_of_it(calls: list[Any]) -> None:
    probe, seen = Signal(), []

    @recheck(name="probe", durable=True, key=lambda **_: 1)
    def note(sender: Any, **kwargs: Any) -> None:
        seen.append(len(rows()))

    probe.connect(note)
    probe.send(sender=None)
    assert seen == [1]
    assert rows() == []


def test_without_its_table_an_event_in_autocommit_goes_on(
    calls: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The change is committed: to raise would only lose the event as well."""
    durable(calls, dispatch="worker")
    with no_table():
        Item.objects.create(name="a")
    assert "1 events have no outbox row" in caplog.text
