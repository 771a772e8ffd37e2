"""Every schedule keeps the promises.

``RECHECK_SEARCH=deep`` searches further: minutes instead of seconds.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

import pytest
import redis

from . import machine as commands
from .machine import WAIT, Machine
from .search import Search
from .worlds import Budget, Client, Rules


class Case(NamedTuple):
    """Who takes part, with how many commits each; what may happen; the receiver's settings."""

    who: dict[str, tuple[int, ...]]
    budget: Budget = Budget()
    rules: Rules = Rules()

    @property
    def clients(self) -> tuple[Client, ...]:
        """The clients, besides a first drain."""
        return tuple(Client(role, n) for role, commits in self.who.items() for n in commits)

    def __str__(self) -> str:
        who = " ".join(f"{role}{list(commits)}" for role, commits in self.who.items())
        spent = {name: left for name, left in self.budget._asdict().items() if left}
        happens = " ".join(f"{name}={'any' if n < 0 else n}" for name, n in spent.items())
        return f"{who} {happens or 'nothing interferes'}"


COUNTED = Rules(counts_passes=True)
TWICE = Rules(attempts=2)
SHALLOW = [
    Case({"inline": (2, 2)}, rules=COUNTED),
    Case({"inline": (1, 1, 1)}, rules=COUNTED),
    Case({"bulk": (2,), "inline": (1,), "worker": (1,)}, rules=COUNTED),
    Case({"inline": (1, 1, 1)}, Budget(lapses=1)),
    Case({"inline": (2, 1)}, Budget(lapses=1, deaths=1)),
    Case({"worker": (2,), "inline": (1,)}, Budget(lapses=1, deaths=1)),
    Case({"inline": (2, 1)}, Budget(replies=1, copies=1)),
    Case({"inline": (1, 1)}, Budget(lapses=1, copies=1)),
    Case({"bulk": (1,), "worker": (1,)}, Budget(lapses=1, replies=1)),
    Case({"inline": (2, 1)}, Budget(lapses=1, renewals=1)),
    Case({"inline": (2, 1)}, Budget(flushes=1, deaths=1)),
    Case({"inline": (2, 1)}, Budget(evictions=2)),
    Case({"inline": (2, 1)}, Budget(evictions=1, deaths=1)),
    Case({"inline": (1, 1)}, Budget(deletions=1, renewals=1, deaths=1)),
    Case({"inline": (2, 1)}, Budget(persists=1, deaths=1)),
    Case({"inline": (1,), "bulk": (1,)}, Budget(lapses=1, deaths=1)),
    Case({"worker": (1,), "drain": (0,)}, Budget(lapses=2, deaths=1), TWICE),
    Case({"worker": (1,), "inline": (1,), "drain": (0,)}, Budget(lapses=1, stops=1)),
    Case({"worker": (1,), "drain": (0,)}, Budget(stops=1, copies=1, lapses=1, deaths=1)),
    Case({"inline": (1, 1)}, Budget(outages=1, lapses=1)),
    Case({"inline": (2, 1)}, Budget(failures=3), Rules(attempts=2, counts_failures=True)),
    Case({"inline": (1, 1)}, Budget(stops=1, hurries=1, lapses=1)),
    Case({"inline": (2, 1)}, Budget(owns=1, failures=1)),
    Case({"delayed": (2,), "inline": (1,)}, Budget(lapses=1), Rules(delay=WAIT)),
    Case({"inline": (2, 1)}, Budget(pauses=2)),
    Case({"inline": (1,), "worker": (1,)}, Budget(pauses=1, lapses=1, deaths=1)),
    Case({"inline": (2, 1)}, Budget(pauses=1, failures=2), Rules(attempts=2, counts_failures=True)),
    Case({"inline": (2, 1)}, Budget(releases=1, deaths=1)),
    Case({"inline": (1, 1)}, Budget(releases=1, renewals=1)),
    Case({"inline": (1, 1)}, Budget(releases=1, copies=1)),
    Case({"inline": (1, 1)}, Budget(releases=1, evictions=1)),
    Case({"inline": (2, 1)}, Budget(retries=2, failures=2), TWICE),
    Case({"inline": (1, 1)}, Budget(retries=1, copies=1, stops=1)),
    Case({"delayed": (1,), "inline": (1,)}, Budget(retries=1), Rules(delay=WAIT)),
    Case({"inline": (2, 1)}, Budget(discards=1, failures=2), TWICE),
    Case({"inline": (1,), "worker": (1,)}, Budget(discards=1, copies=1, deaths=1)),
    Case({"inline": (1, 1)}, Budget(releases=1, discards=1)),
    # What happens again and again, without an end, must end in sight.
    Case({"inline": (1, 1)}, Budget(deaths=-1), TWICE),
    Case({"worker": (1,), "drain": (0,)}, Budget(lapses=-1, deaths=-1), TWICE),
    Case({"inline": (1,)}, Budget(lapses=-1, failures=-1, deletions=-1), TWICE),
]
DEEP = [
    Case({"inline": (1, 1, 1)}, Budget(lapses=2, deaths=1)),
    Case({"inline": (2, 2)}, Budget(lapses=1, deaths=1, deletions=1)),
    Case({"inline": (1, 1)}, Budget(lapses=1, replies=1, copies=1)),
    Case({"inline": (2, 1)}, Budget(lapses=1, copies=1, renewals=1)),
    Case({"inline": (1, 1)}, Budget(copies=2, lapses=1)),
    Case({"inline": (2, 1)}, Budget(lapses=1, flushes=1, evictions=1)),
    Case({"inline": (1, 1)}, Budget(outages=1, flushes=1, lapses=1)),
    Case({"inline": (1,), "bulk": (1,)}, Budget(outages=1, deaths=1, lapses=1)),
    Case({"inline": (1,), "bulk": (1,)}, Budget(lapses=1, deaths=1, evictions=1)),
    Case({"inline": (1, 1), "drain": (0,)}, Budget(lapses=2, renewals=1)),
    Case({"worker": (2,), "inline": (1,), "drain": (0,)}, Budget(lapses=1, deaths=1)),
    Case({"inline": (1,), "worker": (1,)}, Budget(lapses=1, deaths=1, failures=1, stops=1), TWICE),
    Case({"inline": (2, 1)}, Budget(owns=1, failures=1, lapses=1)),
    Case(
        {"delayed": (1,), "worker": (1,)}, Budget(lapses=1, copies=1, deaths=1), Rules(delay=WAIT)
    ),
    Case({"inline": (1, 1)}, Budget(lapses=-1), TWICE),
    Case({"inline": (2, 1)}, Budget(pauses=2, lapses=1, deaths=1)),
    Case({"inline": (1, 1)}, Budget(pauses=1, copies=1, lapses=1)),
    Case({"delayed": (1,), "inline": (1,)}, Budget(pauses=1, failures=1), Rules(delay=WAIT)),
    Case({"worker": (1,), "drain": (0,)}, Budget(lapses=-1, deaths=-1, failures=-1), TWICE),
    Case({"inline": (1, 1)}, Budget(releases=1, renewals=1, lapses=1)),
    Case({"inline": (1, 1)}, Budget(releases=2, lapses=1, deaths=1)),
    Case({"inline": (1, 1)}, Budget(releases=1, discards=1, pauses=1)),
    Case({"inline": (1, 1)}, Budget(releases=1, retries=1, discards=1, failures=1), TWICE),
    Case({"inline": (1, 1)}, Budget(discards=1, evictions=1, lapses=1)),
]
CASES = SHALLOW + (DEEP if os.environ.get("RECHECK_SEARCH") == "deep" else [])


@pytest.fixture(scope="module")
def machine(laboratory: redis.Redis) -> Machine:
    return Machine(laboratory)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_schedule_breaks_a_promise(
    machine: Machine, case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    began, known = time.monotonic(), len(machine.known)
    done = Search(machine, case.clients, case.budget, case.rules).run()
    assert done.rests
    with capsys.disabled():
        took = time.monotonic() - began
        print(
            f"\n{case}: {len(done.ids)} worlds, {len(done.sources)} steps, {done.rests} rests, "
            f"{len(machine.known) - known} new transitions on the server, {took:.1f} s",
            end=" ",
        )


def test_the_search_sends_what_the_store_sends() -> None:
    sent = commands.commands_of_the_store()
    mine = {
        "request": commands.request("t"),
        "enqueue": commands.enqueue(),
        "peek": commands.peek(),
        "claim": commands.claim("t"),
        "finish": commands.finish("t", "5", 1),
        "renew": commands.renew("t", "5"),
        "tend": commands.tend("release", commands.State(lock="t")),
    }
    for name, (_, arguments) in mine.items():
        lane = () if name == "renew" else ("r",)
        assert len(sent[name]) == len(lane) + len(arguments), name
        same = [a == b for a, b in zip(sent[name], (*lane, *arguments), strict=True)]
        # The token is new every time, attempts and backoff are this search's own.
        assert same.count(False) <= 4, (name, sent[name], arguments)
