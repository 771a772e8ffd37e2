"""One item in Redis as a value, and the real scripts as the functions between such values.

A transition puts the state on the server, runs the script there, and reads the state back. It is
remembered by (state, command), so millions of steps of a search are some thousands on the server.
Time stands still: the scripts' clock is a constant. Leases end because the search ends them, and
what lies in the future (LATER) comes because the search lets it come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import cache
from hashlib import sha1
from typing import Any, NamedTuple

import redis

from django_recheck import conf, connection, store
from django_recheck.exceptions import RecordError
from django_recheck.namespace import Lane
from django_recheck.records import PAUSE, Grant, Item, Record, pack

NOW = 1_000_000_000
LEASE = 30_000
WAIT = 1000
"""First and longest backoff, delay, and what a peek puts off, in ms."""
LATER = NOW + WAIT
CLOCK = "redis.call('TIME')"
FIXED = "{'1000000', '0'}"
FENCE = 10**12
"""The clock in microseconds: the first fence."""
ITEM = Item("r", "1")
LANE = Lane("r", "{search}")
KEYS = (*LANE.keys, LANE.lock(ITEM), "{search}:fence", LANE.minutes)
EVENT = pack([b"event", b"", b"", b"x"])
OTHER = pack([b"other", b"", b"", b"x"])
"""An event of another kind, which isn't merged with the first."""


class State(NamedTuple):
    """All that Redis holds of the item. The lock is its token; every lock must have a TTL."""

    lock: str | None = None
    ttl: bool = True
    record: bytes | None = None
    running: int | None = None
    due: int | None = None
    dead: int | None = None
    lane: bool = False
    fence: int = 0
    paused: bool = False

    @property
    def empty(self) -> bool:
        """Whether nothing is left of the item."""
        indexes = (self.running, self.due, self.dead)
        return (
            self.lock is None
            and self.record is None
            and indexes == (None,) * 3
            and self.lane == self.paused
        )

    @property
    def parsed(self) -> Record | None:
        """The record, read as the client reads it."""
        return parse(self.record) if self.record is not None else None

    @property
    def ripe(self) -> bool:
        """Whether a drain's look at the indexes names the item now."""
        scores = (self.running, self.due)
        return not self.paused and any(score is not None and score <= NOW for score in scores)

    @property
    def waiting(self) -> bool:
        """Whether something of the item lies in the future, but for a lease that goes on."""
        leased = self.lock is not None and self.ttl
        running = self.running is not None and self.running > NOW and not leased
        record = self.record is not None and later(self.record) != self.record
        return running or record or (self.due is not None and self.due > NOW)

    def later(self) -> State:
        """Return what the clock makes of it: what lay in the future is there."""
        leased = self.lock is not None and self.ttl
        return self._replace(
            record=None if self.record is None else later(self.record),
            running=self.running if leased or self.running is None else NOW,
            due=self.due if self.due is None else NOW,
        )


Command = tuple[str, tuple[Any, ...]]
Reply = tuple[Any, ...]
Patch = Callable[[str, str], str]


class Machine:
    """The transition function.

    Args:
        client: A server of its own: it is flushed before every step.
        patch: Changes a script's text, to switch a rule off: gets its name and text.
    """

    def __init__(self, client: redis.Redis, patch: Patch = lambda name, text: text) -> None:
        self.client = client
        self.known: dict[tuple[State, Command], tuple[State, Reply]] = {}
        self.shas: dict[str, str] = {}
        for name in ("request", "enqueue", "peek", "claim", "finish", "renew", "tend"):
            self.learn(name, patch(name, connection.script(name).text))

    def learn(self, name: str, text: str) -> None:
        """Load a script, with the constant for its clock."""
        assert text.count(CLOCK) == 1, "the clock stands in one place"
        self.shas[name] = str(self.client.script_load(text.replace(CLOCK, FIXED)))

    def run(self, wanted: Sequence[tuple[State, Command]]) -> None:
        """Work out transitions that aren't known yet."""
        missing = [pair for pair in dict.fromkeys(wanted) if pair not in self.known]
        for start in range(0, len(missing), 100):
            part = missing[start : start + 100]
            with self.client.pipeline(transaction=False) as pipe:
                for state, command in part:
                    self._ask(pipe, state, command)
                replies = pipe.execute(raise_on_error=False)
            size = len(replies) // len(part)
            for index, pair in enumerate(part):
                self.known[pair] = read(replies[size * index : size * (index + 1)])

    def step(self, state: State, command: Command) -> tuple[State, Reply]:
        """Return the state after a command, and its reply."""
        if (state, command) not in self.known:
            self.run([(state, command)])
        return self.known[state, command]

    def _ask(self, pipe: Any, state: State, command: Command) -> None:
        put(pipe, state, KEYS, ITEM.text)
        name, arguments = command
        keys: Sequence[str] = KEYS
        if name == "renew":
            keys = (KEYS[5], *KEYS[:2])
        else:
            arguments = ("r", *arguments)
        if name == "tend":
            arguments = (*arguments[:-1], sha1(arguments[-1].encode()).hexdigest())
        pipe.execute_command("EVALSHA", self.shas[name], len(keys), *keys, *arguments)
        look(pipe, KEYS, ITEM.text)


def put(pipe: Any, state: State, keys: Sequence[str], item: str, *, beside: bool = False) -> None:
    """Put an item's state on the server, alone there or beside others."""
    record = b"" if state.record is None else state.record
    lock = (item, state.lock or "", LEASE if state.ttl else 0, record)
    rest = ("r" if state.lane else "", state.fence, int(state.paused), int(beside))
    pipe.execute_command("EVAL", PUT, len(keys), *keys, *lock, *(x or 0 for x in state[3:6]), *rest)


def look(pipe: Any, keys: Sequence[str], item: str) -> None:
    """Ask for an item's state: what ``read`` reads, behind the reply to a command."""
    hashed, running, due, dead, lanes, lock, fence, _ = keys
    pipe.get(lock)
    pipe.pttl(lock)
    pipe.hget(hashed, item)
    for index in (running, due, dead):
        pipe.zscore(index, item)
    pipe.sismember(lanes, "r")
    pipe.get(fence)
    pipe.hexists(hashed, PAUSE)


PUT = """
if ARGV[11] == '0' then redis.call('FLUSHDB') end
local item, lock, ttl, record = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
if lock ~= '' then redis.call('SET', KEYS[6], lock) end
if lock ~= '' and ttl > 0 then redis.call('PEXPIRE', KEYS[6], ttl) end
if record ~= '' then redis.call('HSET', KEYS[1], item, record) end
for i = 2, 4 do
  if ARGV[i + 3] ~= '0' then redis.call('ZADD', KEYS[i], ARGV[i + 3], item) end
end
if ARGV[8] ~= '' then redis.call('SADD', KEYS[5], ARGV[8]) end
if ARGV[9] ~= '0' then redis.call('SET', KEYS[7], ARGV[9]) end
if ARGV[10] ~= '0' then redis.call('HSET', KEYS[1], '\\255paused', 1) end
"""


def read(replies: list[Any]) -> tuple[State, Reply]:
    """Return the state, and the command's reply."""
    put, reply, lock, ttl, record, running, due, dead, lane, fence, paused = replies
    for answer in (put, reply):
        if isinstance(answer, Exception):
            raise answer
    scores = [None if score is None else int(score) for score in (running, due, dead)]
    if scores[0] is not None and scores[0] > NOW:
        scores[0] = LATER  # what is left of a lease is the real clock's business
    state = State(
        lock=None if lock is None else lock.decode(),
        ttl=lock is None or ttl > 0,
        record=record,
        running=scores[0],
        due=scores[1],
        dead=scores[2],
        lane=bool(lane),
        fence=int(fence or 0),
        paused=bool(paused),
    )
    words = tuple(x.decode() if isinstance(x, bytes) and i != 6 else x for i, x in enumerate(reply))
    return state, words


@cache
def parse(record: bytes) -> Record:
    """Read a record as the client reads it, and remember that."""
    return Record.parse(record)


@cache
def kinds(events: bytes) -> int:
    """Return the kinds of events in a packed list, as bits."""
    return (b"event" in events) + 2 * (b"other" in events)


@cache
def later(record: bytes) -> bytes:
    """Return a record whose future has come."""
    try:
        parsed = parse(record)
    except RecordError:
        return record
    return write(replace(parsed, owed=min(parsed.owed, NOW), ready=min(parsed.ready, NOW)))


def write(record: Record) -> bytes:
    """Write a record as the scripts do."""
    words = (1, *(getattr(record, field.name) for field in fields(Record)[:13]))
    parts = (record.error.encode(), record.working, record.newer)
    return " ".join(map(str, words)).encode() + b"\n" + pack(parts)


OPTIONS = conf.Options("r", {"TTL": LEASE / 1000})


def request(token: str, events: bytes = EVENT, *, heal: bool = False, attempts: int = 9) -> Command:
    """Return the command of ``Store.request``."""
    return "request", (ITEM.text, token, LEASE, 1, events, int(heal), WAIT, WAIT, attempts, 0)


def enqueue(events: bytes = EVENT, delay: int = 0) -> Command:
    """Return the command of ``Store.enqueue`` for one event."""
    return "enqueue", ("", delay, 10 * delay, ITEM.text, 1, events)


def peek() -> Command:
    """Return the command of ``Store.peek`` for one lane."""
    return "peek", ("", 10, WAIT, 0)


def claim(token: str, attempts: int = 9) -> Command:
    """Return the command of ``Store.claim``."""
    return "claim", (ITEM.text, token, LEASE, attempts, WAIT, WAIT, 0)


def finish(
    token: str,
    fence: str,
    number: int,
    *,
    word: str = "ok",
    last: bool = False,
    attempts: int = 9,
    own: bool = False,
) -> Command:
    """Return the command of ``Store.finish``."""
    mine = (1, EVENT) if own else (0, b"")
    arguments = (token, fence, number, word, LEASE, int(last), attempts, WAIT, WAIT, "", *mine)
    return "finish", (ITEM.text, *arguments, 0, 0, 0, "")


def renew(token: str, fence: str) -> Command:
    """Return the command of ``Store.renew`` for one lease."""
    return "renew", (ITEM.text, token, fence, LEASE)


def tend(what: str, state: State) -> Command:
    """Return the command of ``Store.release``, ``retry`` or ``discard`` for what is seen now."""
    token, fence = named(state.record) if state.record is not None else ("", "")
    if state.lock is not None and state.lock != token:
        token, fence = state.lock, "0"
    running = state.lock is not None or state.running is not None
    return "tend", (ITEM.text, what, f"{token} {fence}" if running else text(state.record))


def text(record: bytes | None) -> str:
    """Return a record as a text, "" for none."""
    return (record or b"").decode("latin-1")


@cache
def named(record: bytes) -> tuple[str, str]:
    """Return a record's token and fence."""
    words = record.split(b" ", 3)
    return (words[1].decode(), words[2].decode()) if len(words) > 3 else ("", "")


class _Recorded(Exception):
    """Carries the arguments of a call instead of sending it."""


def commands_of_the_store() -> dict[str, tuple[Any, ...]]:
    """Return what the real store sends, so that the commands above can be compared with it."""
    sent: dict[str, tuple[Any, ...]] = {}

    class Listening(store.Store):
        def call(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> tuple[Any, bool]:
            sent[name] = tuple(args)
            raise _Recorded

        def call_many(
            self, name: str, calls: Sequence[connection.Call], *, raising: bool = True
        ) -> list[Any]:
            sent[name] = tuple(calls[0][1])
            raise _Recorded

    listening = Listening("recheck", "search", 1)
    grant = Grant(ITEM, "t", "5", 1, 1, 0, False, EVENT, False, 0.0)
    for ask in (
        lambda: listening.request(ITEM, EVENT, 1, OPTIONS),
        lambda: listening.enqueue([store.Entry(ITEM, 1, EVENT, OPTIONS)]),
        lambda: listening.peek(["r"], 10, WAIT / 1000),
        lambda: listening.claim(ITEM, OPTIONS),
        lambda: listening.finish(grant, "ok", OPTIONS),
        lambda: listening.renew([grant], [LEASE / 1000]),
        lambda: listening.release([(ITEM, "")]),
    ):
        try:
            ask()
        except _Recorded:
            continue
    return sent
