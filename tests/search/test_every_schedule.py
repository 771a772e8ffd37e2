"""Every schedule keeps the promises, and with any rule switched off some schedule breaks them.

``RECHECK_SEARCH=deep`` searches further: minutes instead of seconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import redis

from django_recheck import connection

from .machine import Machine, commands_of_the_store
from .machine import claim as claim_
from .machine import enqueue as enqueue_
from .machine import finish as finish_
from .machine import renew as renew_
from .machine import request as request_
from .model import Budget, Rules, Violation
from .search import Search

SHALLOW = [
    ((2, 2), Budget()),
    ((1, 1, 1), Budget(lapses=1)),
    ((2, 1), Budget(lapses=1, deaths=1)),
    ((2, 1), Budget(replies=1, copies=1)),
    ((1, 1), Budget(lapses=1, copies=1)),
    ((1, 1), Budget(lapses=1, replies=1)),
    ((2, 1), Budget(lapses=1, renewals=1)),
    ((2, 1), Budget(flushes=1, deaths=1)),
    ((2, 1), Budget(evictions=2, deaths=1)),
    ((2, 1), Budget(releases=1, deaths=1)),
]
DEEP = [
    ((1, 1, 1), Budget(lapses=2, deaths=1)),
    ((1, 1), Budget(lapses=1, replies=1, copies=1)),
    ((2, 1), Budget(lapses=1, copies=1, renewals=1)),
    ((2, 1), Budget(lapses=1, flushes=1, evictions=1)),
    ((2, 2), Budget(lapses=1, deaths=1, releases=1)),
]
SEARCHES = SHALLOW + (DEEP if os.environ.get("RECHECK_SEARCH") == "deep" else [])


@pytest.fixture(scope="module")
def machine(laboratory: redis.Redis) -> Machine:
    return Machine(laboratory)


@pytest.mark.parametrize(("commits", "budget"), SEARCHES, ids=str)
def test_no_schedule_breaks_a_promise(
    machine: Machine,
    commits: tuple[int, ...],
    budget: Budget,
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = Search(machine, commits, budget).run()
    assert done.rests
    with capsys.disabled():
        print(f"\n{len(done.parents)} worlds, {done.steps} steps, {done.rests} rests", end=" ")


def test_the_search_sends_what_the_store_sends() -> None:
    sent = commands_of_the_store()
    mine = {
        "request": request_("t"),
        "enqueue": enqueue_(),
        "claim": claim_("t"),
        "finish": finish_("t", "5", 1),
        "renew": renew_("t", "5"),
    }
    for name, (_, arguments) in mine.items():
        lane = () if name == "renew" else ("r",)
        assert len(sent[name]) == len(lane) + len(arguments), name
        same = [a == b for a, b in zip(sent[name], (*lane, *arguments), strict=True)]
        # The token is new every time, attempts and backoff are this search's own.
        assert same.count(False) <= 4, (name, sent[name], arguments)


def replaced(script: str, old: str, new: str) -> Callable[[str, str], str]:
    """Return a patch of one script; it must apply, once."""

    def patch(name: str, text: str) -> str:
        if name != script and script != "*":
            return text
        assert text.count(old) == 1 or script == "*", f"{old!r} isn't in {name} once"
        return text.replace(old, new)

    return patch


@dataclass(frozen=True)
class Mutant:
    """A rule, switched off, and how much interference it takes to see that."""

    rule: str
    budget: Budget = field(default_factory=Budget)
    commits: tuple[int, ...] = (2, 1)
    patch: Callable[[str, str], str] = lambda name, text: text
    rules: Rules = field(default_factory=Rules)


REFUSED_ONLY = replaced(
    "request",
    "r = r or blank()\nlocal takeover",
    "if held then return {'REFUSED'} end\nr = r or blank()\nlocal takeover",
)
FLAG = """
local r, at = load(ITEM)
if r and r.token ~= '-' then
  add(r, ARGV[3], 1, 0, 0)
  save(ITEM, at, r)
end
return {'COALESCED'}
"""
RELEASE_ANYWAY = ("local due = due_at(r)\nif not due then", "local due = due_at(r)\nif true then")
FOUND = [
    Mutant("acquire-or-flag is one step", patch=REFUSED_ONLY, rules=Rules(flags_in_one_step=False)),
    Mutant("again-or-release is one step", rules=Rules(looks_in_one_step=False)),
    Mutant(
        "the flag is cleared when a pass begins",
        patch=replaced(
            "finish",
            "local due = due_at(r)\nif not due",
            "r.newer, r.newer_count, r.owed = '', 0, 0\nlocal due = due_at(r)\nif not due",
        ),
    ),
    Mutant(
        "an expired lease leaves a trace",
        Budget(deaths=1),
        patch=replaced("*", "place(item, at, RUNNING, now + lease)", "place(item, at)"),
    ),
    Mutant(
        "a holder that lost its lease asks for one more pass",
        Budget(lapses=1),
        rules=Rules(heals=False),
    ),
    Mutant("every pass reads the row under the lock", rules=Rules(reads_under_lock=False)),
    Mutant(
        "at the cap the item stays pending",
        commits=(2, 2),
        patch=replaced(
            "finish",
            "if due > now or ARGV[8] == '1' then",
            "if ARGV[8] == '1' then forget(ITEM, at) redis.call('DEL', LOCK) return {'DONE'} end\n"
            "if due > now then",
        ),
    ),
    Mutant(
        "1: finish carries the pass number",
        Budget(copies=1),
        patch=replaced(
            "finish",
            "if r.passes == PASS + 1 then return begun('AGAIN', r) end\n"
            "if r.passes ~= PASS then return {'LOST'} end",
            "",
        ),
    ),
    Mutant(
        "1: finish compares the token",
        Budget(lapses=1),
        patch=replaced(
            "finish",
            "  if held ~= TOKEN then return {'LOST'} end\n",
            "  if held ~= TOKEN then redis.call('DEL', LOCK) return {'LOST'} end\n",
        ),
    ),
    Mutant(
        "3: a refusal puts the item into running",
        Budget(evictions=1, deaths=1),
        patch=replaced("request", "  place(ITEM, at, RUNNING, now + left)\n", ""),
    ),
    Mutant(
        "4: my lock without a record is again",
        Budget(evictions=1),
        patch=replaced(
            "finish",
            "  r = r or blank() --",
            "  if not r then redis.call('DEL', LOCK) return {'DONE'} end\n  r = r or blank() --",
        ),
    ),
    Mutant(
        "8: a killed pass puts its own events back",
        Budget(deaths=1),
        patch=replaced(
            "*", "= merge(r.working, r.newer), r.newer_count + r.count, 0", "= r.newer, 0, 0"
        ),
    ),
]
UNSEEN = {
    "1: a lapsed token is never granted anew": "the fence: what it would finish is another's",
    "1: a resent request gets the same answer": "takeover: it only waits for the lease (C14)",
    "2: all is read before the first write": "needs a full server: test_cases",
    "5: a grant looks whether the item is ripe": "needs delays: test_cases",
    "6: takeovers and heals count as attempts": "needs endless lapses: test_runner",
    "7: no pass begins after its deadline": "the heal of a holder that lost its lease",
    "9: nothing waits long with a lease": "is about time, not about order: test_dispatch",
    "10: one bounded resend": "the search resends as the store does",
}
"""Rules that no schedule of this search shows when off: what masks them, or sees to them."""


@pytest.mark.parametrize("mutant", FOUND, ids=lambda mutant: mutant.rule)
def test_a_rule_switched_off_is_found(laboratory: redis.Redis, mutant: Mutant) -> None:
    mutated = Machine(laboratory, mutant.patch)
    mutated.learn("flag", _prelude() + FLAG)
    finish = connection.script("finish").text
    assert finish.count(RELEASE_ANYWAY[0]) == 1
    mutated.learn("release", finish.replace(*RELEASE_ANYWAY))
    with pytest.raises(Violation) as found:
        Search(mutated, mutant.commits, mutant.budget, mutant.rules).run()
    assert ";" in str(found.value)


MASKED = [
    Mutant(
        "1: a lapsed token is never granted anew",
        Budget(lapses=1, copies=1),
        commits=(1, 1),
        patch=replaced("request", " and r.token ~= TOKEN then", " then"),
    ),
    Mutant(
        "1: a resent request gets the same answer",
        Budget(replies=1, lapses=1),
        commits=(1, 1),
        patch=replaced(
            "request",
            "if r and held == TOKEN and r.token == TOKEN then return begun('GRANTED', r) end",
            "",
        ),
    ),
]


@pytest.mark.parametrize("mutant", MASKED, ids=lambda mutant: mutant.rule)
def test_a_masked_rule_is_what_the_table_says(laboratory: redis.Redis, mutant: Mutant) -> None:
    assert mutant.rule in UNSEEN
    Search(Machine(laboratory, mutant.patch), mutant.commits, mutant.budget).run()


def _prelude() -> str:
    text = connection.script("enqueue").text
    return text[: text.index("-- Events of one lane, recorded without a lock")]
