"""Each rule of the protocol, how it is switched off, and what comes of that.

First the seven rules, then those of the rules for scripts and clients. ``masked`` names the rule
that stands in where no schedule shows the difference; UNSEEN names what is about something else
than the order of steps, and the test that sees to it.
"""

from __future__ import annotations

from .machine import WAIT
from .mutant import Mutant, replaced
from .worlds import Budget, Client, Rules

TWO = (Client("inline", 1), Client("inline", 1))
DRAINS = (Client("worker", 1), Client("drain"))
WORKERS = (Client("worker", 1), Client("worker", 1))
DELAYED = (Client("delayed", 2),)
STALE, OVERLAP, LEFT = "stale at rest", "two passes overlap", "something is left when all is done"
MISSED = "an event that no pass has got"
ROUND, NO_EVENT = "it goes round for ever", "a pass is granted without its event"
PAUSED = "a pass begins although its receiver is paused"
ENDLESS, RIPE = "a lock without an end", "a pass is granted before it is ripe"
PASS_AGAIN = "if r.passes == PASS + 1 then return begun('AGAIN', at, r) end\n"
PASS_LOST = "if r.passes ~= PASS then return {'LOST'} end"
RESENT = "if r and held == TOKEN and r.token == TOKEN then return begun('GRANTED', at, r) end\n"
RIPE_CHECK = "PAUSED or due and due > now or full"

SEVEN = [
    Mutant(
        "acquire-or-flag is one step",
        patch=replaced(
            "request",
            "r = r or blank()\nlocal takeover",
            "if held then return {'REFUSED'} end\nr = r or blank()\nlocal takeover",
        ),
        rules=Rules(flags_in_one_step=False),
        breaks=STALE,
    ),
    Mutant("again-or-release is one step", rules=Rules(looks_in_one_step=False), breaks=STALE),
    Mutant(
        "the flag is cleared when a pass begins",
        patch=replaced(
            "finish",
            "local due = due_at(r)\nif not due",
            "r.newer, r.newer_count, r.owed = '', 0, 0\nlocal due = due_at(r)\nif not due",
        ),
        breaks=STALE,
    ),
    Mutant(
        "an expired lease leaves a trace",
        Budget(deaths=1),
        patch=replaced("*", "place(item, at, RUNNING, now + lease)", "place(item, at)"),
        breaks=STALE,
    ),
    Mutant(
        "a holder that lost its lease asks for one more pass",
        Budget(lapses=1),
        rules=Rules(heals=False),
        breaks=STALE,
    ),
    Mutant(
        "every pass reads the row under the lock",
        rules=Rules(reads_under_lock=False),
        breaks=STALE,
    ),
    Mutant(
        "at the cap the item stays pending",
        clients=(Client("inline", 2), Client("inline", 2)),
        patch=replaced(
            "finish",
            "if due > now or PAUSED or ARGV[8] == '1' or full(at, tonumber(ARGV[17])) then",
            "if ARGV[8] == '1' then forget(ITEM, at) redis.call('DEL', LOCK) return {'DONE'} end\n"
            "if due > now then",
        ),
        breaks=MISSED,
    ),
]
TEN = [
    Mutant(
        "1: finish carries the pass number",
        Budget(copies=1),
        patch=replaced("finish", PASS_AGAIN + PASS_LOST, ""),
        breaks=OVERLAP,
    ),
    Mutant(
        "1: a stored n+1 repeats again",
        Budget(replies=1),
        patch=replaced("finish", PASS_AGAIN, ""),
        masked="the heal, and the lease's end: the item only waits for it",
    ),
    Mutant(
        "1: finish compares the token",
        Budget(lapses=1, deaths=1),
        patch=replaced("finish", "not r or r.token ~= TOKEN or r.fence ~= ARGV[4]", "not r"),
        breaks=STALE,
    ),
    Mutant(
        "1: finish compares the fence",
        Budget(lapses=1, copies=1),
        clients=TWO,
        patch=replaced("finish", " or r.fence ~= ARGV[4]", ""),
        breaks=STALE,
    ),
    Mutant(
        "1: a finish that isn't mine writes nothing",
        Budget(lapses=1),
        patch=replaced(
            "finish",
            "  if held ~= TOKEN then return {'LOST'} end\n",
            "  if held ~= TOKEN then redis.call('DEL', LOCK) return {'LOST'} end\n",
        ),
        breaks=OVERLAP,
    ),
    Mutant(
        "1: renew compares first",
        Budget(lapses=1, copies=1, renewals=1),
        clients=TWO,
        patch=replaced("renew", "if mine then", "mine = true\n  if mine then"),
        breaks=NO_EVENT,
    ),
    Mutant(
        "1: a lapsed token is never granted anew",
        Budget(lapses=1, copies=1),
        clients=TWO,
        patch=replaced("request", " and r.token ~= TOKEN then", " then"),
        masked="the fence: what its holder would finish is another hold",
    ),
    Mutant(
        "1: a resent request gets the same answer",
        Budget(replies=1, lapses=1),
        clients=TWO,
        patch=replaced("request", RESENT, ""),
        masked="the lease's end: the item only waits for it (C14)",
    ),
    Mutant(
        "1: a resent claim gets the same answer",
        Budget(replies=1, lapses=1),
        clients=DRAINS,
        patch=replaced("claim", RESENT, ""),
        masked="the lease's end: the item only waits for it (C14)",
    ),
    Mutant(
        "3: a refusal puts the item into running",
        Budget(evictions=1, deaths=1),
        patch=replaced("*", "  place(ITEM, at, RUNNING, now + left)\n", ""),
        breaks=STALE,
    ),
    Mutant(
        "3: a refusal takes the item out of due and dead",
        Budget(evictions=1, lapses=1),
        clients=DRAINS,
        patch=replaced(
            "*",
            "place(ITEM, at, RUNNING, now + left)",
            "redis.call('ZADD', RUNNING, now + left, ITEM)",
        ),
        breaks=ROUND,
    ),
    Mutant(
        "3: a refusal gives the lock an end",
        Budget(persists=1),
        patch=replaced("*", "    redis.call('PEXPIRE', LOCK, lease)\n", ""),
        breaks=ENDLESS,
    ),
    Mutant(
        "3: a grant clears due and dead",
        Budget(lapses=1),
        clients=DRAINS,
        patch=replaced(
            "*",
            "place(item, at, RUNNING, now + lease)",
            "redis.call('ZADD', RUNNING, now + lease, item)",
        ),
        masked="claim, which looks again, and done, which clears all",
    ),
    Mutant(
        "3: done clears all",
        patch=replaced("*", "  redis.call('HDEL', STATE, item)\n", ""),
        breaks=LEFT,
    ),
    Mutant(
        "4: my lock without a record is again",
        Budget(evictions=1),
        patch=replaced(
            "finish",
            "  r = r or blank() --",
            "  if not r then forget(ITEM, at) redis.call('DEL', LOCK) return {'DONE'} end\n"
            "  r = r or blank() --",
        ),
        breaks=STALE,
    ),
    Mutant(
        "5: a grant looks whether the item is ripe",
        clients=DELAYED,
        patch=replaced("claim", RIPE_CHECK, "PAUSED or full"),
        rules=Rules(delay=WAIT),
        breaks=RIPE,
    ),
    Mutant(
        "5: an entry without a record is removed",
        Budget(evictions=1),
        patch=replaced("claim", " else forget(ITEM, at) end", " end"),
        breaks=ROUND,
    ),
    Mutant(
        "6: takeovers count as attempts",
        Budget(deaths=-1),
        patch=replaced("claim", "  r.attempts = r.attempts + 1\n", ""),
        rules=Rules(attempts=2),
        breaks=ROUND,
    ),
    Mutant(
        "6: heals count as attempts",
        Budget(lapses=-1),
        clients=DRAINS,
        patch=replaced("request", "r.attempts = math.max(r.attempts + 1, TRIED)", ""),
        rules=Rules(attempts=2),
        masked="takeovers: a heal that repeats itself meets one",
    ),
    Mutant(
        "6: a heal that takes over may end dead",
        Budget(lapses=-1),
        clients=DRAINS,
        patch=replaced(
            "request",
            "if HEAL and (takeover or TRIED > 1) and nothing_newer",
            "if false and nothing_newer",
        ),
        rules=Rules(attempts=2),
        breaks=ROUND,
    ),
    Mutant(
        "6: success resets",
        Budget(failures=2),
        patch=replaced(
            "finish",
            "r.attempts, r.error, r.working, r.count, r.own = 0, '', '', 0, 0",
            "r.working, r.count, r.own = '', 0, 0",
        ),
        rules=Rules(attempts=2, counts_failures=True),
        breaks="given up too early",
    ),
    Mutant(
        "6: a heal is not newer",
        Budget(lapses=-1),
        clients=DRAINS,
        patch=replaced("request", "HEAL and 0 or tonumber(ARGV[5])", "tonumber(ARGV[5])"),
        rules=Rules(attempts=2),
        breaks=ROUND,
    ),
    Mutant(
        "8: a killed pass puts its own events back",
        Budget(deaths=1),
        patch=replaced(
            "*", "= merge(r.working, r.newer), r.newer_count + r.count, 0", "= r.newer, 0, 0"
        ),
        breaks=NO_EVENT,
    ),
    Mutant(
        "8: a failed pass puts its own events back",
        Budget(failures=1),
        patch=replaced(
            "*", "= merge(r.working, r.newer), r.newer_count + r.count, 0", "= r.newer, 0, 0"
        ),
        breaks=NO_EVENT,
    ),
    Mutant(
        "8: an event that takes over takes the dead holder's along",
        Budget(deaths=1),
        clients=(Client("inline", 1), Client("worker", 1)),
        patch=replaced("request", "  put_back(r)\n  r.attempts", "  r.attempts"),
        breaks=MISSED,
    ),
    Mutant(
        "10: a finish without an answer is healed",
        Budget(outages=1, lapses=1),
        clients=TWO,
        rules=Rules(heals_the_unknown=False),
        breaks=STALE,
    ),
    Mutant(
        "what ran without the lock owes a pass under it",
        Budget(outages=1),
        clients=TWO,
        rules=Rules(owes_after_the_run=False),
        breaks=STALE,
    ),
    Mutant(
        "a request begins nothing that is paused",
        Budget(pauses=1),
        patch=replaced("request", "if PAUSED or full", "if full"),
        breaks=PAUSED,
    ),
    Mutant(
        "a finish begins nothing that is paused",
        Budget(pauses=1),
        patch=replaced("finish", "due > now or PAUSED or", "due > now or"),
        breaks=PAUSED,
    ),
    Mutant(
        "a claim begins nothing that is paused",
        Budget(pauses=1),
        clients=(Client("worker", 1),),
        patch=replaced("claim", "PAUSED or due and due > now", "due and due > now"),
        breaks=PAUSED,
    ),
    Mutant(
        "a person discards what was seen, and nothing newer",
        Budget(discards=1),
        clients=WORKERS,
        patch=replaced("tend", "if redis.sha1hex(text) ~= SEEN then", "if false then"),
        breaks=STALE,
    ),
    Mutant(
        "a person discards nothing that runs",
        Budget(discards=1),
        clients=WORKERS,
        patch=replaced(
            "tend",
            "if running and WHAT ~= 'release' then return {'RUNNING'} end\n",
            "",
        ),
        masked="the comparison: what runs now isn't what was seen",
    ),
    Mutant(
        "a look puts off what it names, and keeps it",
        Budget(deaths=1),
        patch=replaced("peek", "    redis.call('ZADD', index, now + ARGV[4], item)\n", ""),
        breaks=STALE,
    ),
]
UNSEEN = {
    "2: all is read before the first write": "needs a full server: test_cases",
    "7: no pass begins after its deadline": "passes of the search begin late, too: the heal",
    "9: nothing waits long with a lease": "is about time, not about order: test_dispatch",
    "10: one bounded resend": "the search resends, or doesn't, as a reply or an answer is lost",
}
