"""Whatever lock, record and indexes say about each other, the next event or drain puts it right."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import redis

from django_recheck.records import Record

from . import machine, people
from .machine import EVENT, NOW, Command, Machine, Reply, State

IDLE = Record("-", "0", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "", b"", b"")
PENDING = replace(IDLE, owed=NOW, first=NOW, last=NOW, newer_count=1, newer=EVENT)
RECORDS = {
    "absent": None,
    "pending": PENDING,
    "delayed": replace(PENDING, owed=0, ready=machine.LATER),
    "given up": replace(PENDING, owed=0, first=0, last=0, attempts=9),
    "running": replace(IDLE, token="a", fence="7", passes=1, count=1, working=EVENT),
    "running and flagged": replace(
        PENDING, token="a", fence="7", passes=1, count=1, working=EVENT, newer=EVENT
    ),
    "nothing owed": IDLE,
    "broken": b"1 garbage",
}
LOCKS = {"free": None, "the record's": "a", "another's": "b"}
TTLS = (True, False)
RUNNING = (None, NOW - 1, machine.LATER)
DUE = (None, NOW, machine.LATER)
DEAD = (None, NOW)


def text(record: Record | bytes | None) -> bytes | None:
    """Write a record as the scripts do."""
    return machine.write(record) if isinstance(record, Record) else record


def states() -> list[State]:
    """Return every combination."""
    found = []
    for record, lock, ttl, running, due, dead in itertools.product(
        RECORDS.values(), LOCKS.values(), TTLS, RUNNING, DUE, DEAD
    ):
        if lock is None and not ttl:
            continue
        stored = text(record)
        lane = stored is not None
        found.append(State(lock, ttl, stored, running, due, dead, lane))
    return found


class Drain:
    """A drain and the time that passes, until nothing is to be had any more."""

    def __init__(self, laboratory: Machine) -> None:
        self.laboratory = laboratory
        self.passes = 0
        self.turns = itertools.count()

    def finish(self, state: State, token: str, reply: Reply) -> State:
        """Run a granted hold to its end."""
        while reply[0] in ("GRANTED", "AGAIN"):
            self.passes += 1
            command = machine.finish(token, reply[1], reply[2])
            state, reply = self.laboratory.step(state, command)
        return state

    def run(self, state: State) -> State:
        """Let all leases and delays end, and claim what a look at the indexes names."""
        for _ in range(10):
            if state.lock is not None:
                over = state.running if state.running is None else NOW
                state = state._replace(lock=None, ttl=True, running=over)
            state = state.later()
            state, named = self.laboratory.step(state, machine.peek())
            assert bool(named) == (state.running is not None or state.due is not None)
            if not named:
                return state
            token = f"drain{next(self.turns)}"
            state, reply = self.laboratory.step(state, machine.claim(token))
            state = self.finish(state, token, reply)
        raise AssertionError("the drain doesn't come to an end")


@pytest.fixture(scope="module")
def laboratory(laboratory: redis.Redis) -> Machine:
    return Machine(laboratory)


def test_the_next_event_heals_every_combination(laboratory: Machine) -> None:
    found = states()
    assert len(found) >= 576
    laboratory.run([(state, machine.request("new")) for state in found])
    for state in found:
        drain = Drain(laboratory)
        after, reply = laboratory.step(state, machine.request("new"))
        assert after.lock is None or after.ttl, "every lock has an end"
        if reply[0] == "COALESCED":
            assert after.running is not None
            assert (after.due, after.dead) == (None, None)
        after = drain.run(drain.finish(after, "new", reply))
        assert drain.passes, (state, reply)
        assert after.empty, (state, reply, after)


def test_the_next_recorded_event_and_a_drain_heal_every_combination(laboratory: Machine) -> None:
    for state in states():
        drain = Drain(laboratory)
        after, _ = laboratory.step(state, machine.enqueue())
        after = drain.run(after)
        assert drain.passes, state
        assert after.empty, (state, after)


def test_a_holder_that_finishes_leaves_no_combination_worse(laboratory: Machine) -> None:
    for state in states():
        if state.lock is None:
            continue
        drain = Drain(laboratory)
        command: Command = machine.finish(state.lock, "7", 1)
        after, reply = laboratory.step(state, command)
        after = drain.finish(after, state.lock, reply)
        after, reply = laboratory.step(after, machine.request("new"))
        after = drain.run(drain.finish(after, "new", reply))
        assert after.empty, (state, after)


def test_a_drain_alone_heals_what_an_index_names(laboratory: Machine) -> None:
    for state in states():
        named = state.running is not None or state.due is not None
        drain = Drain(laboratory)
        after = drain.run(state)
        if state.record == b"1 garbage":
            assert not named or after.dead is not None, "broken: put aside as dead"
        elif named and state.dead is None:
            assert after.empty, (state, after)
        assert after.lock is None
        assert after.running is None
        assert after.due is None


@pytest.mark.parametrize("what", people.DOES)
def test_what_a_person_does_to_a_combination_leaves_it_whole(
    laboratory: Machine, what: str
) -> None:
    for state in states():
        after, reply = laboratory.step(state, machine.tend(what, state))
        running = state.lock is not None or state.running is not None
        there = state.record is not None or state.due is not None or state.dead is not None
        if not running and not there:
            assert reply == ("GONE",)
        elif running != (what == "release"):
            assert reply == ("RUNNING" if running else "FREE",)
        else:
            assert reply == ("DONE",), state
            assert after.empty if what == "discard" else after.ripe
            assert laboratory.step(after, machine.tend(what, state))[0] == after, "once"
        if reply != ("DONE",):
            assert after == state
            continue
        drain = Drain(laboratory)
        assert drain.run(after).empty, state
        assert drain.passes == (what != "discard"), state


@pytest.mark.parametrize(
    "command",
    [
        *(machine.request("new"), machine.enqueue(), machine.claim("c")),
        *(machine.finish("a", "7", 1), machine.tend("release", State(lock="a"))),
    ],
    ids=lambda command: command[0],
)
def test_a_newer_versions_record_is_left_alone(laboratory: Machine, command: Command) -> None:
    for lock, running, due, dead in itertools.product((None, "a", "b"), RUNNING, DUE, DEAD):
        state = State(lock, True, b"2 whatever", running, due, dead, lane=True)
        after, reply = laboratory.step(state, command)
        assert reply[0] == ("LOST" if command[0] == "finish" else "NEWER")
        assert after == state
