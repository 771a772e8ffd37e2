"""What people do to items: release, retry and discard, on a real server and with real holders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.dispatch import Signal, receiver

from django_recheck import Outcome, Receiver, recheck, store, views, worker
from django_recheck.records import Grant, Item, pack

pytestmark = pytest.mark.django_db(transaction=True)

EVENT = pack([b'["","",""]', b"", b"", b"[null,null,{},{},null]"])
VERBS = ("release", "retry", "discard")


class Subject:
    """A receiver that does what it is told, once."""

    def __init__(self) -> None:
        self.signal = Signal()
        self.attempts: list[int] = []
        self.does: Callable[[], Any] | None = None
        self.fails = False

        @receiver(self.signal)
        @recheck(name="tended", key="value", max_attempts=2, backoff=(60, 60))
        def tended(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
            self.attempts.append(recheck_pass.attempt)
            does, self.does = self.does, None
            if does:
                does()
            if self.fails:
                raise ValueError("as asked")

        self.receiver: Receiver[..., Any] = tended

    def send(self, value: int = 1) -> Outcome:
        ((_, outcome),) = self.signal.send(sender=None, value=value)
        assert isinstance(outcome, Outcome)
        return outcome

    def held(self, value: int = 1) -> Grant:
        """Return a hold of an item by somebody else."""
        item = Item("tended", str(value))
        grant = store.current().request(item, EVENT, 1, self.receiver.options)
        assert isinstance(grant, Grant), grant
        return grant


def view(value: int = 1) -> views.View:
    (found,) = views.items(store.current(), [Item("tended", str(value))])
    return found


def does(verb: str, *shown: views.View) -> list[Any]:
    ask: Any = getattr(store.current(), verb)
    return list(ask([(each.item, each.seen) for each in shown]))


@pytest.fixture
def subject() -> Subject:
    return Subject()


def test_a_released_holder_finds_out_and_its_events_wait(subject: Subject) -> None:
    """It goes the way of a lost lease; a drain, which may come first, has all of its events."""
    shown: list[views.View] = []

    def is_released() -> None:
        subject.receiver.recheck_many([1])
        shown.append(view())
        assert shown[0].state == "running"
        assert does("release", *shown) == ["DONE"]
        after = view()
        assert (after.state, after.holder, after.lease_left) == ("due", None, None)
        assert after.record is not None
        assert (after.record.token, after.record.newer_count) == ("-", 2)
        assert worker.drain().outcomes == {Outcome.RAN: 1}, "by another, meanwhile"

    subject.does = is_released
    assert subject.send() is Outcome.LEASE_LOST
    assert subject.attempts == [1, 2, 2]
    assert does("release", *shown) == ["GONE"], "it runs twice, or late"
    assert views.counts(store.current()) == {}


def test_a_release_meets_only_the_hold_that_was_seen(subject: Subject) -> None:
    first = subject.held()
    shown = view()
    assert store.current().enqueue(
        [store.Entry(first.item, 1, EVENT, subject.receiver.options)]
    ) == ["COALESCED"]
    assert view().seen == shown.seen, "an event doesn't make it another hold"
    again, _ = store.current().finish(first, "ok", subject.receiver.options)
    assert isinstance(again, Grant)
    assert view().seen == shown.seen, "nor does a further pass"
    assert store.current().finish(again, "ok", subject.receiver.options) == ("DONE", False)
    second = subject.held()
    assert does("release", shown) == ["CHANGED"]
    assert store.current().renew([second], [30]) == [True]
    assert does("release", view()) == ["DONE"]
    assert store.current().renew([second], [30]) == [False]
    assert does("release", view()) == ["FREE"], "it is owed, and nobody's"


def test_a_lease_that_is_over_is_released_too(subject: Subject) -> None:
    grant = subject.held()
    current, lane = store.current(), store.current().lane_of(grant.item)
    current.client.delete(lane.lock(grant.item))
    current.client.zadd(lane.keys[1], {"1": 1})
    shown = view()
    assert (shown.state, shown.holder) == ("running", None)
    assert does("retry", shown) == does("discard", shown) == ["RUNNING"]
    assert does("release", shown) == ["DONE"]
    assert worker.drain().outcomes == {Outcome.RAN: 1}


def test_a_lock_that_is_nobodys_is_released(subject: Subject) -> None:
    current, lock = store.current(), store.current().lane("tended", 0).lock(Item("tended", "1"))
    for token in (b"\xff\x00 by hand", b"x" * 100_000, b""):
        current.client.set(lock, token, px=60_000)
        assert does("release", view()) == ["DONE"]
        assert current.client.exists(lock) == 0
        assert worker.drain().outcomes == {Outcome.RAN: 1}, "one pass, in case it meant something"


def test_dead_is_retried_at_once_and_attempts_start_anew(subject: Subject) -> None:
    subject.fails = True
    assert [subject.send(), subject.send()] == [Outcome.FAILED, Outcome.DEAD]
    subject.attempts.clear()
    shown = view()
    assert shown.state == "dead"
    assert worker.drain().items == 0
    assert does("retry", shown) == ["DONE"]
    assert does("retry", shown) == ["CHANGED"], "it runs twice, or late"
    assert worker.drain().outcomes == {Outcome.FAILED: 1}
    record = view().record
    assert record is not None
    assert (view().state, record.attempts, record.newer_count) == ("due", 1, 2)
    assert does("release", view()) == ["FREE"]
    assert does("retry", view()) == ["DONE"], "it backs off for a minute"
    subject.fails = False
    assert worker.drain().outcomes == {Outcome.RAN: 1}
    assert subject.attempts == [1, 1]
    assert does("retry", shown) == ["GONE"]


def test_a_delayed_item_is_retried_before_its_time(subject: Subject) -> None:
    entry = store.Entry(Item("tended", "1"), 1, EVENT, subject.receiver.options, delay=60)
    assert store.current().enqueue([entry]) == ["PENDING"]
    assert worker.drain().items == 0
    assert does("retry", view()) == ["DONE"]
    assert worker.drain().outcomes == {Outcome.RAN: 1}
    assert views.counts(store.current()) == {}


def test_a_discard_takes_nothing_that_wasnt_seen(subject: Subject) -> None:
    subject.receiver.recheck_many([1, 2])
    shown = [view(1), view(2)]
    subject.receiver.recheck_many([2])
    assert does("discard", *shown) == ["DONE", "CHANGED"]
    assert does("discard", *shown) == ["GONE", "CHANGED"]
    assert view(1).record is None
    assert worker.drain().outcomes == {Outcome.RAN: 1}
    assert views.counts(store.current()) == {}, "nothing is left of it"


def test_what_runs_is_neither_retried_nor_discarded(subject: Subject) -> None:
    subject.receiver.recheck_many([1])
    before = view()
    grant = store.current().claim(before.item, subject.receiver.options)
    assert isinstance(grant, Grant)
    for verb in ("retry", "discard"):
        assert does(verb, before) == does(verb, view()) == ["RUNNING"]
    assert store.current().renew([grant], [30]) == [True]


def test_an_entry_without_a_record_can_be_done_away_with(subject: Subject) -> None:
    current = store.current()
    for verb, outcomes in (("discard", {}), ("retry", {Outcome.RAN: 1})):
        current.client.zadd(current.lane("tended", 0).keys[3], {"1": 1})
        assert does(verb, view()) == ["DONE"]
        assert worker.drain().outcomes == outcomes
    assert views.counts(current) == {}


@pytest.mark.parametrize("text", [b"1 broken", b"1 a 7 \xff", b"", b"garbage \x00\xff"])
@pytest.mark.parametrize("index", [2, 3])
def test_a_broken_record_buys_a_pass_or_goes(subject: Subject, text: bytes, index: int) -> None:
    current = store.current()
    lane = current.lane("tended", 0)
    for verb, outcomes in (("discard", {}), ("retry", {Outcome.RAN: 1})):
        current.client.hset(lane.keys[0], "1", text)
        current.client.zadd(lane.keys[index], {"1": 1})
        current.client.sadd(lane.keys[4], "tended")
        assert view().problem
        assert does(verb, view()) == ["DONE"]
        assert worker.drain().outcomes == outcomes
        assert views.counts(current) == {}


def test_a_newer_versions_record_is_left_alone(subject: Subject) -> None:
    current = store.current()
    lane = current.lane("tended", 0)
    current.client.hset(lane.keys[0], "1", b"2 whatever")
    for verb in VERBS:
        assert does(verb, view()) == ["NEWER"]
    assert current.client.hget(lane.keys[0], "1") == b"2 whatever"


def test_nothing_there_is_told(subject: Subject) -> None:
    for verb in VERBS:
        assert does(verb, view()) == ["GONE"]
    assert store.current().retry([]) == []


def test_a_page_of_items_is_one_call_and_a_bad_lane_harms_no_other(subject: Subject) -> None:
    subject.receiver.recheck_many(range(200))
    current = store.current()
    shown = views.page(current, "tended", "due", size=200)
    current.client.set(current.lane("spoilt", 0).keys[3], "no zset")
    spoilt = views.items(current, [Item("spoilt", "1")])
    *words, refused = does("discard", *shown, *spoilt)
    assert words == ["DONE"] * 200
    assert isinstance(refused, redis.ResponseError)
    assert "WRONGTYPE" in str(refused)


def test_what_is_released_or_retried_while_paused_waits(subject: Subject) -> None:
    subject.held()
    store.current().pause(["tended"])
    assert does("release", view()) == ["DONE"]
    assert does("retry", view()) == ["DONE"]
    assert worker.drain().items == 0
    store.current().pause(["tended"], paused=False)
    assert worker.drain().outcomes == {Outcome.RAN: 1}
