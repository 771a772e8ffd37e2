"""One item in Redis as a value, and the real scripts as the functions between such values.

A transition puts the state on the server, runs the script there, and reads the state back. It is
remembered by (state, command), so millions of steps of a search are some thousands on the server.
Time stands still: the scripts' clock is a constant, and leases end because the search ends them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import redis

from django_recheck import conf, connection, store
from django_recheck.namespace import Lane
from django_recheck.records import Item, Record, pack

NOW = 1_000_000_000
LEASE = 30_000
CLOCK = "redis.call('TIME')"
FIXED = "{'1000000', '0'}"
ITEM = Item("r", "1")
LANE = Lane("r", "{search}")
KEYS = (*LANE.keys, LANE.lock(ITEM), "{search}:fence")
EVENT = pack([b"event", b"", b"", b"x"])


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

    @property
    def empty(self) -> bool:
        """Whether nothing is left of the item."""
        indexes = (self.running, self.due, self.dead)
        return (
            self.lock is None and self.record is None and indexes == (None,) * 3 and not self.lane
        )

    @property
    def parsed(self) -> Record | None:
        """The record, read as the client reads it."""
        return Record.parse(self.record) if self.record is not None else None

    @property
    def claimable(self) -> bool:
        """Whether a drain's look at the indexes names the item."""
        ripe = self.due is not None and self.due <= NOW
        return ripe or (self.running is not None and (self.lock is None or self.running <= NOW))


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
        for name in ("request", "enqueue", "claim", "finish", "renew"):
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
                self.known[pair] = _read(replies[size * index : size * (index + 1)])

    def step(self, state: State, command: Command) -> tuple[State, Reply]:
        """Return the state after a command, and its reply."""
        if (state, command) not in self.known:
            self.run([(state, command)])
        return self.known[state, command]

    def _ask(self, pipe: Any, state: State, command: Command) -> None:
        hashed, running, due, dead, lanes, lock, fence = KEYS
        pipe.execute_command(
            "EVAL", _PUT, 7, *KEYS, ITEM.text, state.lock or "", LEASE if state.ttl else 0,
            b"" if state.record is None else state.record, *(x or 0 for x in state[3:6]),
            "r" if state.lane else "", state.fence,
        )  # fmt: skip
        name, arguments = command
        keys: Sequence[str] = KEYS
        if name == "renew":
            keys = (lock, hashed, running)
        else:
            arguments = ("r", *arguments)
        pipe.execute_command("EVALSHA", self.shas[name], len(keys), *keys, *arguments)
        pipe.get(lock)
        pipe.pttl(lock)
        pipe.hget(hashed, ITEM.text)
        for index in (running, due, dead):
            pipe.zscore(index, ITEM.text)
        pipe.sismember(lanes, "r")
        pipe.get(fence)


_PUT = """
redis.call('FLUSHDB')
local item, lock, ttl, record = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
if lock ~= '' then redis.call('SET', KEYS[6], lock) end
if lock ~= '' and ttl > 0 then redis.call('PEXPIRE', KEYS[6], ttl) end
if record ~= '' then redis.call('HSET', KEYS[1], item, record) end
for i = 2, 4 do
  if ARGV[i + 3] ~= '0' then redis.call('ZADD', KEYS[i], ARGV[i + 3], item) end
end
if ARGV[8] ~= '' then redis.call('SADD', KEYS[5], ARGV[8]) end
if ARGV[9] ~= '0' then redis.call('SET', KEYS[7], ARGV[9]) end
"""


def _read(replies: list[Any]) -> tuple[State, Reply]:
    put, reply, lock, ttl, record, running, due, dead, lane, fence = replies
    for answer in (put, reply):
        if isinstance(answer, Exception):
            raise answer
    scores = [None if score is None else int(score) for score in (running, due, dead)]
    if scores[0] is not None and scores[0] > NOW:
        scores[0] = NOW + LEASE  # what is left of a lease is the real clock's business
    state = State(
        lock=None if lock is None else lock.decode(),
        ttl=lock is None or ttl > 0,
        record=record,
        running=scores[0],
        due=scores[1],
        dead=scores[2],
        lane=bool(lane),
        fence=int(fence or 0),
    )
    words = tuple(x.decode() if isinstance(x, bytes) and i != 6 else x for i, x in enumerate(reply))
    return state, words


OPTIONS = conf.Options("r", {"TTL": LEASE / 1000})


def request(token: str, *, heal: bool = False) -> Command:
    """Return the command of ``Store.request``."""
    return "request", (ITEM.text, token, LEASE, 1, EVENT, int(heal), 0, 0)


def enqueue() -> Command:
    """Return the command of ``Store.enqueue`` for one event."""
    return "enqueue", ("", 0, 0, ITEM.text, 1, EVENT)


def claim(token: str) -> Command:
    """Return the command of ``Store.claim``."""
    return "claim", (ITEM.text, token, LEASE, 9, 0, 0)


def finish(token: str, fence: str, number: int, *, word: str = "ok", last: bool = False) -> Command:
    """Return the command of ``Store.finish``."""
    arguments = (token, fence, number, word, LEASE, int(last), 9, 0, 0, "", 0, b"", 0, 0)
    return "finish", (ITEM.text, *arguments)


def renew(token: str, fence: str) -> Command:
    """Return the command of ``Store.renew`` for one lease."""
    return "renew", (ITEM.text, token, fence, LEASE)


class _Recorded(Exception):
    """Carries the arguments of a call instead of sending it."""


def commands_of_the_store() -> dict[str, tuple[Any, ...]]:
    """Return what the real store sends, so that the commands above can be compared with it."""
    sent: dict[str, tuple[Any, ...]] = {}

    class Listening(store.Store):
        def call(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> tuple[Any, bool]:
            sent[name] = tuple(args)
            raise _Recorded

        def call_many(self, name: str, calls: Sequence[connection.Call]) -> list[Any]:
            sent[name] = tuple(calls[0][1])
            raise _Recorded

    from django_recheck.records import Grant

    listening = Listening("recheck", "search", 1)
    grant = Grant(ITEM, "t", "5", 1, 1, 0, False, EVENT, False, 0.0)
    for ask in (
        lambda: listening.request(ITEM, EVENT, 1, OPTIONS),
        lambda: listening.enqueue([store.Entry(ITEM, 1, EVENT, OPTIONS)]),
        lambda: listening.claim(ITEM, OPTIONS),
        lambda: listening.finish(grant, "ok", OPTIONS),
        lambda: listening.renew([grant], [LEASE / 1000]),
    ):
        try:
            ask()
        except _Recorded:
            continue
    return sent
