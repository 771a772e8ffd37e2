"""What people see of items: their states, who holds them, and sentences that come true."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest

from django_recheck import Outcome, Receiver, board, conf, recheck, store, survey, views, worker
from django_recheck.board import State
from django_recheck.records import Grant, Item, pack

EVENT = pack([b'["","",""]', b"", b"", b"[null,null,{},{},null]"])
ITEM = Item("shown", "1")
SLOW = {"backoff": (60, 60), "max_attempts": 2}


def shown(**options: Any) -> Receiver[..., Any]:
    """Return a receiver that fails when its item is 13."""

    @recheck(name="shown", key="value", **{**SLOW, **options})
    def shown(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        if recheck_pass.key == 13:
            raise ValueError("thirteen\nof all numbers")

    return shown


def row(text: str = "1", *, paused: bool = False) -> board.Row:
    current = store.current()
    (view,) = views.items(current, [Item("shown", text)])
    return board.Row.of(view, survey.survey(current, []).now, paused=paused)


def held(receiver: Receiver[..., Any]) -> Grant:
    grant = store.current().request(ITEM, EVENT, 3, receiver.options)
    assert isinstance(grant, Grant), grant
    return grant


def end_lease(seconds: float = 1) -> None:
    """Let the lease be over for some seconds."""
    current, lane = store.current(), store.current().lane_of(ITEM)
    current.client.delete(lane.lock(ITEM))
    ended = (survey.survey(current, []).now - seconds) * 1000
    current.client.zadd(lane.keys[1], {ITEM.text: ended})


def test_a_hold_is_told_with_holder_and_age() -> None:
    receiver = shown()
    assert row().state is State.IDLE
    held(receiver)
    found = row()
    assert (found.state, found.receiver, found.key) == (State.RUNNING, "shown", "1")
    assert (found.host, found.pid) == (socket.gethostname(), os.getpid())
    assert (found.passes, found.working, found.waiting, found.attempts) == (1, 3, 0, 0)
    assert found.held_for is not None
    assert 0 <= found.held_for < 20
    assert found.lease_left is not None
    assert 0 < found.lease_left <= 30
    assert (found.overdue, found.lapsed, found.reason) == (False, False, "")
    assert "Pass 1 runs in process" in found.waits_for()
    receiver.recheck_many([1])
    found = row()
    assert (found.state, found.waiting) == (State.FLAGGED, 1)
    assert "one more follows" in found.waits_for()


def test_a_lease_that_is_over_waits_for_a_drain() -> None:
    held(shown())
    end_lease()
    found = row()
    assert (found.state, found.lapsed, found.overdue) == (State.RUNNING, True, False)
    assert "takes it over" in found.waits_for()
    end_lease(survey.OVERDUE + 1)
    assert row().overdue
    assert not row(paused=True).overdue, "that is a person's wish"


def test_what_waits_is_told_apart() -> None:
    receiver, current = shown(), store.current()
    receiver.recheck_many([1])
    assert (row().state, row().waiting, row(paused=True).state) == (
        State.PENDING,
        1,
        State.PAUSED,
    )
    assert "paused" in row(paused=True).waits_for()
    assert current.peek(["shown"], 10, 5)[0] == [ITEM]
    assert row().state is State.PENDING, "a drain has looked at it, and puts its index ahead"
    later = store.Entry(Item("shown", "2"), 1, EVENT, receiver.options, delay=60)
    current.enqueue([later])
    found = row("2")
    assert found.state is State.DELAYED
    assert found.due is not None
    assert 50 < found.due - found.now <= 60
    receiver.recheck(key=13)
    found = row("13")
    assert (found.state, found.attempts, found.reason) == (
        State.BACKING_OFF,
        1,
        "ValueError: thirteen",
    )
    assert "attempts so far: 1" in found.waits_for()
    receiver.recheck(key=13)
    found = row("13")
    assert (found.state, found.attempts) == (State.DEAD, 2)
    assert "Given up" in found.waits_for()
    assert found.since is not None
    assert found.now - 20 < found.since <= found.now


def test_overdue_is_what_nobody_has_drained_for_long() -> None:
    current = store.current()
    lane = current.lane_of(ITEM)
    for ago, overdue in ((survey.OVERDUE - 60, False), (survey.OVERDUE + 1, True)):
        owed = int((survey.survey(current, []).now - ago) * 1000)
        text = b"1 - 0 0 0 0 %d 0 0 0 0 0 0 1\n" % owed + pack([b"", b"", EVENT])
        current.client.hset(lane.keys[0], "1", text)
        current.client.zadd(lane.keys[2], {"1": owed})
        assert row().overdue is overdue
        counted = survey.survey(current, ["shown"]).numbers["shown"]
        assert (counted.pending, counted.overdue) == (1, int(overdue))
    current.pause(["shown"])
    assert survey.survey(current, ["shown"]).numbers["shown"].overdue == 0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("No pass of 3 finished within its lease.", "No pass of 3 finished within its lease."),
        ('le "x.py", line 3, in f\n    raise\nKeyError: 1\n', "KeyError: 1"),
        ('  File "x.py", line 3, in f\n    raise x\n    ^^^^\nKeyError: 1\n\nnote', "KeyError: 1"),
        (
            "  + Exception Group Traceback (most recent call last):\n"
            '  |   File "x.py", line 3, in f\n  |     raise\n'
            "  | ExceptionGroup: all (1 sub-exception)\n  +-+---------------- 1 ----\n"
            "    | ValueError: 2\n",
            "ExceptionGroup: all (1 sub-exception)",
        ),
    ],
)
def test_the_line_that_says_what_was_raised(text: str, line: str) -> None:
    receiver = shown(max_attempts=9)
    grant = held(receiver)
    store.current().finish(grant, "failed", receiver.options, error=text)
    assert row().reason == line


def test_no_password_of_an_error_is_shown() -> None:
    receiver = shown()
    grant, said = (
        held(receiver),
        "OSError: redis://shop:s3cret@cache:6379/0 password=s3cret is away",
    )
    store.current().finish(grant, "failed", receiver.options, error=said)
    assert "cache:6379" in row().reason
    assert "s3cret" not in row().reason + row().error


def test_a_lock_of_somebody_else_and_one_without_an_end() -> None:
    shown()
    current, lock = store.current(), store.current().lane_of(ITEM).lock(ITEM)
    current.client.set(lock, "by hand")
    found = row()
    assert (found.state, found.host, found.lapsed) == (State.RUNNING, None, False)
    assert "doesn't know" in found.waits_for()
    assert "flag the holder" in found.next_event()


@pytest.mark.parametrize("text", [b"1 broken", b"2 of a newer version", b"\xff"])
def test_what_cant_be_read_says_why(text: bytes) -> None:
    shown()
    current, lane = store.current(), store.current().lane_of(ITEM)
    current.client.hset(lane.keys[0], "1", text)
    current.client.zadd(lane.keys[3], {"1": 1})
    found = row()
    assert found.state is State.DEAD
    assert found.reason
    assert found.reason in found.waits_for()
    assert ("not be recorded" in found.next_event()) is text.startswith(b"2")


# What the next event would do: each sentence is said, then the event comes.


def test_next_nothing_is_known() -> None:
    receiver = shown()
    assert row().next_event() == "It would run at once, in the thread that commits it."
    assert receiver.recheck(key=1) is Outcome.RAN


def test_next_it_is_held() -> None:
    receiver = shown(max_passes=1)
    held(receiver)
    assert "this hold has had its passes" in row().next_event()
    assert shown().recheck(key=1) is Outcome.COALESCED
    assert "flag the holder" in row().next_event()


def test_next_its_lease_is_over() -> None:
    receiver = shown()
    held(receiver)
    end_lease()
    assert "take over from the holder" in row().next_event()
    assert receiver.recheck(key=1) is Outcome.RAN


@pytest.mark.parametrize("dead", [False, True])
def test_next_it_waits_or_was_given_up(dead: bool) -> None:
    receiver = shown()
    for _ in range(1 + dead):
        receiver.recheck(key=13)
    assert "at once, in the thread that commits it, and cover" in row("13").next_event()
    assert receiver.recheck(key=13) is Outcome.DEAD


def test_next_it_is_paused() -> None:
    receiver = shown()
    store.current().pause(["shown"])
    assert "the receiver is paused" in row(paused=True).next_event(paused=True)
    assert receiver.recheck(key=1) is Outcome.PENDING


def test_next_a_worker_runs_it() -> None:
    receiver = shown(dispatch="worker")
    assert "by the next drain" in row().next_event()
    assert receiver.recheck(key=1) is Outcome.PENDING
    assert worker.drain().items == 1


def test_next_it_is_delayed() -> None:
    receiver = shown(delay=60)
    assert "after 60 s without another" in row().next_event()
    assert receiver.recheck(key=1) is Outcome.PENDING
    assert row().state is State.DELAYED
    store.current().retry([(ITEM, row().view.seen)])
    assert "owed already" in row().next_event()
    receiver.recheck(key=1)
    assert row().state is State.PENDING


def test_next_without_redis_or_without_a_receiver() -> None:
    shown(dispatch="immediate")
    assert "without Redis" in row().next_event()
    (view,) = views.items(store.current(), [Item("gone", "1")])
    assert "no such receiver" in board.Row.of(view, 0).next_event()

    @recheck(name="heir", key="value", former_names=["gone"])
    def heir(sender: Any, **kwargs: Any) -> None: ...

    assert "heir, the receiver's name today" in board.Row.of(view, 0).next_event()


# Surveys


def test_numbers_of_all_receivers_and_of_those_that_nobody_knows() -> None:
    receiver, current = shown(), store.current()
    held(receiver)
    receiver.recheck_many([2, 3])
    receiver.recheck(key=13)
    other = conf.Options("other", {})
    current.enqueue([store.Entry(Item("other", "1"), 1, EVENT, other)])
    parts = [views.Part("running"), views.Part("due"), views.Part("due", newest=True)]
    found = survey.survey(current, ["shown"], parts)
    mine = found.numbers["shown"]
    assert (mine.running, mine.lapsed, mine.pending, mine.later, mine.dead) == (1, 0, 2, 1, 0)
    assert mine.oldest is not None
    assert found.now - 20 < mine.oldest <= found.now
    assert found.numbers["other"].pending == 1
    running, due, newest = ([view.item for view in part] for part in found.parts)
    assert running == [ITEM]
    assert due[-1] == newest[0] == Item("shown", "13"), "it backs off"
    assert (
        {*due} == {*newest} == {Item("shown", t) for t in ("2", "3", "13")} | {Item("other", "1")}
    )
    alone = survey.survey(current, ["other"], parts, others=False)
    assert list(alone.numbers) == ["other"]
    assert found.drained is None
    worker.drain()
    assert survey.survey(current, []).drained is not None


@pytest.mark.parametrize("shards", [1, 4])
def test_pages_follow_each_other_over_all_shards(settings: Any, shards: int) -> None:
    settings.RECHECK = {**settings.RECHECK, "SHARDS": shards, "PREFIX": f"shards-{shards}"}
    shown().recheck_many(range(25))
    current = store.current()
    pages = [views.page(current, "shown", "due", start, 10) for start in (0, 10, 20, 30)]
    assert [len(page) for page in pages] == [10, 10, 5, 0]
    assert {view.item.text for page in pages for view in page} == {str(n) for n in range(25)}
    assert survey.survey(current, ["shown"]).numbers["shown"].pending == 25


@pytest.mark.parametrize("key", range(5))
def test_keys_of_another_type_are_told_and_harm_no_other(key: int) -> None:
    shown().recheck_many([1])
    current = store.current()
    struck = current.lane("struck", 0).keys[key]
    current.client.delete(struck)
    current.client.set(struck, "mine")
    found = survey.survey(current, ["struck", "shown"], [views.Part(s) for s in views.STATES])
    assert found.numbers["shown"].pending == 1
    assert bool(found.numbers["struck"].problem) is (key < 4)
