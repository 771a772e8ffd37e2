"""What users get for their own suites: drains, and what is recorded."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction
from django.db.models.signals import post_save
from django.db.transaction import TransactionManagementError
from django.dispatch import receiver

from django_recheck import Outcome, Receiver, recheck, records, store
from django_recheck.exceptions import RecordError
from django_recheck.testing import drain, override, recorded
from tests.app.models import Item

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


@db
def test_recorded_tells_what_waits_runs_and_was_given_up(
    settings: Any, note: Receiver[..., Any]
) -> None:
    def told() -> list[Any]:
        return [(r.key, r.state, r.event_count, r.attempts) for r in recorded(note)]

    assert recorded(note) == []
    with override(DISPATCH="worker"):
        first = Item.objects.create(value=1)
        first.save()
        note.recheck_many([2, -3])
    assert told() == [(1, "pending", 2, 0), (-3, "pending", 1, 0), (2, "pending", 1, 0)]
    assert recorded(note)[0].signals == {"post_save"}
    with override(MAX_ATTEMPTS=1):
        drain(raising=False)
    assert told() == [(-3, "dead", 1, 1)]
    store.current().request(item_of(5), b"", 1, note.options)
    first.value = 5
    first.save()
    assert told() == [(5, "running", 1, 0), (-3, "dead", 1, 1)]


@pytest.mark.parametrize("given", [None, "note", len])
def test_only_a_decorated_receiver_has_something_recorded(given: Any) -> None:
    with pytest.raises(TypeError, match="Give a receiver that @recheck decorates, not"):
        recorded(given)


@db
def test_a_drain_says_what_it_did_and_raises_what_failed(
    note: Receiver[..., Any], calls: list[Any]
) -> None:
    note.recheck_many([1, 2])
    done = drain()
    assert (done.items, done.passes, done.failed) == (2, 2, 0)
    assert done.outcomes == {Outcome.RAN: 2}
    note.recheck_many([3, -4, 5])
    with pytest.raises(ValueError, match="as asked") as raised:
        drain()
    assert raised.value.__notes__ == ["In a drain: note -4: failed."]
    assert sorted(calls) == [-4, 1, 2, 3, 5]
    assert drain().items == 0, "it isn't ripe again yet"


@db
def test_a_drain_runs_what_is_delayed_and_backs_off_only_when_it_is_asked_to(
    note: Receiver[..., Any], calls: list[Any]
) -> None:
    with override(DELAY=60):
        note.recheck_many([1, -2])
        assert drain().items == 0
        done = drain(delayed=True, raising=False)
    assert (done.items, done.failed, sorted(calls)) == (2, 1, [-2, 1])
    assert drain().items == 0
    assert drain(delayed=True, raising=False).failed == 1
    assert recorded(note)[0].attempts == 2


@db
def test_what_a_delayed_pass_asks_for_is_run_too(
    note: Receiver[..., Any], calls: list[Any]
) -> None:
    @recheck(name="chain", key="value", delay=60)
    def chain(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append(recheck_pass.key)
        note.recheck_many([recheck_pass.key * 10])
        if recheck_pass.key < 3:
            chain.recheck(key=recheck_pass.key + 1)
        chain.recheck(key=1)

    chain.recheck(key=1)
    done = drain(delayed=True)
    assert calls == [1, 10, 2, 20, 3, 30]
    assert done.passes == 6
    assert [one.key for one in recorded(chain)] == [1], "once before its time, not for ever"


@db
def test_a_drain_leaves_a_paused_receiver_alone(note: Receiver[..., Any]) -> None:
    note.recheck_many([1])
    store.current().pause(["note"])
    assert drain(delayed=True).items == 0


@db
def test_a_drain_in_a_transaction_is_refused() -> None:
    with transaction.atomic(), pytest.raises(TransactionManagementError, match="can't run inside"):
        drain()


@db
def test_what_redis_holds_and_cant_be_used_fails_a_drain(note: Receiver[..., Any]) -> None:
    lane = next(iter(store.current().lanes(["note"])))
    store.current().ask(("SET", lane.keys[2], "no index"))
    with pytest.raises(AssertionError, match="note: its keys in Redis can't be read"):
        drain()
    assert drain(raising=False).problems


@db
def test_an_item_that_is_given_up_without_an_error_fails_a_drain(note: Receiver[..., Any]) -> None:
    note.recheck_many([1])
    lane = next(iter(store.current().lanes(["note"])))
    store.current().ask(("HSET", lane.keys[0], "1", "broken"))
    with pytest.raises(RecordError, match="note 1: The record is broken"):
        recorded(note)
    with pytest.raises(AssertionError, match="note 1: dead"):
        drain()
