"""The clients and the world around one item, step by step; what Redis does is the machine's.

Writers commit and send their event; whoever is granted reads the row, writes what is derived from
it, and finishes. A drain claims what the indexes name. The environment ends leases, kills holders,
loses replies, delivers copies of commands late, and takes data away. All of it in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from . import machine
from .machine import Command, Reply, State

CAP = 2
"""MAX_PASSES of the search."""
HOLDING = ("granted", "read", "written")


class Client(NamedTuple):
    """A process: a writer with commits to come, or a drain."""

    name: str
    commits: int = 0
    phase: str = "rest"
    """rest | committed | resend | granted | read | written | lost"""
    token: str = ""
    fence: str = ""
    number: int = 0
    value: int = 0
    """The version that its pass has read."""
    turns: int = 0
    """Acquisitions so far: a token is never used twice."""
    lapsed: bool = False
    """Its own clock says that the lease is over."""
    out: bool = False
    """Its lock was taken from it while it holds: it may overlap with another."""
    alone: bool = False
    """What Redis knew of its item was taken away: it alone can ask for one more pass."""
    command: Command | None = None
    """What it is about to send once more."""


class Budget(NamedTuple):
    """How often the environment may still interfere."""

    lapses: int = 0
    deaths: int = 0
    replies: int = 0
    copies: int = 0
    flushes: int = 0
    evictions: int = 0
    releases: int = 0
    renewals: int = 0


class World(NamedTuple):
    """One moment."""

    redis: State
    clients: tuple[Client, ...]
    budget: Budget
    version: int = 0
    """Commits so far; what a pass reads."""
    derived: int = 0
    """What the last writer wrote."""
    late: tuple[Command, ...] = ()
    """Copies of commands that may still arrive."""
    bare: bool = False
    """Redis lost data, so a pass may be without its event."""
    lost: bool = False
    """Something is lost that only the outbox could keep: nothing more is asked of this world."""


Apply = Callable[[State, Reply], World]


class Move(NamedTuple):
    """One step: what it is called, the command it sends if any, and what comes of the reply."""

    label: str
    command: Command | None
    apply: Apply


class Violation(AssertionError):
    """A promise that a schedule breaks."""


@dataclass(frozen=True)
class Rules:
    """The client's rules, each of which can be switched off."""

    heals: bool = True
    reads_under_lock: bool = True
    flags_in_one_step: bool = True
    looks_in_one_step: bool = True
    """Whether ``finish`` looks at the flag itself; else the client did, a step before."""


def moves(world: World, rules: Rules) -> Iterator[Move]:
    """Yield every step that somebody can take."""
    for index in range(len(world.clients)):
        yield from _client_moves(world, index, rules)
    yield from _environment(world)


def _with(world: World, index: int, client: Client, **changes: object) -> World:
    clients = (*world.clients[:index], client, *world.clients[index + 1 :])
    return world._replace(clients=clients, **changes)  # type: ignore[arg-type]


def _spend(world: World, what: str) -> World:
    left = getattr(world.budget, what) - 1
    return world._replace(budget=world.budget._replace(**{what: left}))


def _client_moves(world: World, index: int, rules: Rules) -> Iterator[Move]:
    client = world.clients[index]
    phase = client.phase
    if phase == "rest" and client.commits:
        committed = client._replace(phase="committed", commits=client.commits - 1)
        if not rules.reads_under_lock:
            committed = committed._replace(value=world.version + 1)
        after = _with(world, index, committed, version=world.version + 1)
        yield Move(f"{client.name} commits", None, lambda s, r: after)
    elif phase == "rest" and client.name == "drain" and world.redis.claimable:
        yield from _sent(world, index, *_acquiring(client, "claim"), rules)
    elif phase == "committed":
        yield from _sent(world, index, *_acquiring(client, "request"), rules)
    elif phase == "lost":
        yield from _sent(world, index, *_acquiring(client, "heal"), rules)
    elif phase == "flag":
        yield from _sent(world, index, client, ("flag", (machine.ITEM.text, machine.EVENT)), rules)
    elif phase == "resend":
        assert client.command is not None
        again = client._replace(command=None)
        yield Move(
            f"{client.name} sends {client.command[0]} again",
            client.command,
            lambda s, r: _answered(world, index, again, s, r, rules),
        )
    elif phase == "granted" and not client.lapsed:
        stale = client.number == 1 and not rules.reads_under_lock and client.name != "drain"
        value = client.value if stale else world.version
        read = client._replace(phase="read", value=value)
        yield Move(f"{client.name} reads", None, lambda s, r: _with(world, index, read))
    elif phase == "read":
        written = client._replace(phase="written")
        after_write = _with(world, index, written, derived=client.value)
        yield Move(f"{client.name} writes", None, lambda s, r: after_write)
        if world.budget.renewals:
            command = machine.renew(client.token, client.fence)
            spent = _spend(world, "renewals")
            yield Move(f"{client.name} renews", command, lambda s, r: spent._replace(redis=s))
            if world.budget.copies:
                late = _spend(spent, "copies")._replace(late=(*world.late, command))
                label = f"{client.name} renews, a copy is under way"
                yield Move(label, command, lambda s, r: late._replace(redis=s))
    elif phase in HOLDING:
        word = "back" if phase == "granted" else "ok"
        last = client.number >= CAP
        if phase == "written" and not rules.looks_in_one_step:
            record = world.redis.parsed
            flagged = record is not None and record.newer_count > 0
            looked = client._replace(phase="looked", lapsed=flagged)
            yield Move(f"{client.name} looks", None, lambda s, r: _with(world, index, looked))
            return
        command = machine.finish(client.token, client.fence, client.number, word=word, last=last)
        yield from _sent(world, index, client, command, rules)
    elif phase == "looked":
        name = "finish" if client.lapsed else "release"
        command = machine.finish(client.token, client.fence, client.number)
        sending = client._replace(lapsed=False)
        yield from _sent(world, index, sending, (name, command[1]), rules)


def _acquiring(client: Client, what: str) -> tuple[Client, Command]:
    token = f"{client.name}.{client.turns}"
    client = client._replace(
        token=token, turns=client.turns + 1, lapsed=False, out=False, alone=False
    )
    if what == "claim":
        return client, machine.claim(token)
    return client, machine.request(token, heal=what == "heal")


def _sent(
    world: World, index: int, client: Client, command: Command, rules: Rules
) -> Iterator[Move]:
    """A command is sent and answered; or its reply is lost; or a copy of it stays under way."""
    label = f"{client.name} sends {command[0]}"
    yield Move(label, command, lambda s, r: _answered(world, index, client, s, r, rules))
    if world.budget.replies:
        resend = client._replace(phase="resend", command=command)
        unheard = _with(_spend(world, "replies"), index, resend)
        yield Move(f"{label}, reply lost", command, lambda s, r: unheard._replace(redis=s))
    if world.budget.copies:
        late = _spend(world, "copies")._replace(late=(*world.late, command))
        yield Move(
            f"{label}, a copy is under way",
            command,
            lambda s, r: _answered(late, index, client, s, r, rules),
        )


def _answered(
    world: World, index: int, client: Client, redis: State, reply: Reply, rules: Rules
) -> World:
    word = reply[0]
    if word in ("GRANTED", "AGAIN"):
        if not reply[6] and not world.bare:
            raise Violation("a pass is granted without its event")
        if reply[2] > CAP:
            raise Violation("a hold has more passes than its cap")
        fence, number = reply[1], reply[2]
        # The deadline counts from the first sending: what lapsed before the answer stays lapsed.
        resent = client.phase == "resend"
        client = client._replace(
            phase="granted",
            fence=fence,
            number=number,
            lapsed=resent and client.lapsed,
            out=resent and client.out,
        )
    elif word == "LOST" and rules.heals:
        client = client._replace(phase="lost")
    elif word == "REFUSED":
        client = client._replace(phase="flag")
    else:
        client = _rested(client)
    after = _with(world, index, client, redis=redis)
    if word != "COALESCED":
        return after
    # A refused event makes lock, record and indexes agree again, whatever was evicted.
    return after._replace(clients=tuple(c._replace(alone=False) for c in after.clients))


def _rested(client: Client) -> Client:
    return Client(client.name, commits=client.commits, turns=client.turns)


def _holder(world: World) -> int | None:
    """Return the living client whose hold the lock or the record names."""
    record = world.redis.parsed
    names = {world.redis.lock, record.token if record else None}
    for index, client in enumerate(world.clients):
        if client.token in names and client.phase in (*HOLDING, "looked", "resend"):
            return index
    return None


def _environment(world: World) -> Iterator[Move]:
    redis, budget, holder = world.redis, world.budget, _holder(world)
    if redis.lock is not None:
        over = redis._replace(lock=None, running=None if redis.running is None else machine.NOW)
        if holder is None:
            yield Move("nobody's lease ends", None, lambda s, r: world._replace(redis=over))
        elif budget.lapses:
            lapsed = world.clients[holder]._replace(lapsed=True, out=True)
            after = _with(_spend(world, "lapses"), holder, lapsed, redis=over)
            yield Move("a lease ends", None, lambda s, r: after)
        if budget.releases and holder is not None:
            freed = world.clients[holder]._replace(out=True)
            gone = redis._replace(lock=None)
            freed_world = _with(_spend(world, "releases"), holder, freed, redis=gone)
            yield Move("a person deletes the lock", None, lambda s, r: freed_world)
    if budget.deaths:
        for index, client in enumerate(world.clients):
            if client.phase in (*HOLDING, "resend", "lost"):
                dead = _died(_spend(world, "deaths"), index)
                yield Move(f"{client.name} dies", None, lambda s, r, w=dead: w)  # type: ignore[misc]
    for number, command in enumerate(world.late):
        left = world._replace(late=(*world.late[:number], *world.late[number + 1 :]))
        apply: Apply = lambda s, r, w=left: w._replace(redis=s)  # type: ignore[misc]  # noqa: E731
        yield Move(f"a late {command[0]} arrives", command, apply)
    if budget.flushes and not redis.empty:
        yield from _taken("FLUSHDB", _spend(world, "flushes"), State(), holder, out=True)
    if budget.evictions:
        spent = _spend(world, "evictions")
        for name in ("record", "running", "due"):
            if getattr(redis, name) is not None:
                left_over = redis._replace(**{name: None})  # type: ignore[arg-type]
                yield from _taken(f"{name} is evicted", spent, left_over, holder, out=False)


def _died(world: World, index: int) -> World:
    """A client is gone. What only it could have said is lost, as documented."""
    client, record = world.clients[index], world.redis.parsed
    current = record is not None and record.token == client.token
    stale = client.phase in ("written", "lost") and not current
    unsaid = client.phase == "resend" and not current and client.command is not None
    finishing = unsaid and client.command is not None and client.command[0] == "finish"
    lost = world.lost or client.alone or stale or (finishing and client.out)
    return _with(world, index, _rested(client), lost=lost)


def _taken(
    label: str, world: World, redis: State, holder: int | None, *, out: bool
) -> Iterator[Move]:
    """Data goes. A living holder finds out and asks for one more pass; without one it is lost."""
    if holder is None:
        after = world._replace(redis=redis, bare=True, lost=True)
    else:
        client = world.clients[holder]
        client = client._replace(alone=True, out=client.out or out)
        after = _with(world, holder, client, redis=redis, bare=True)
    yield Move(label, None, lambda s, r: after)
