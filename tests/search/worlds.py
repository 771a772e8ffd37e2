"""One moment of one item: Redis, the clients around it, and what may still happen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from .machine import Command, Reply, State

CAP = 2
"""MAX_PASSES of the search."""
HOLDING = ("granted", "read", "written")
UNLOCKED = ("unlocked", "unlocked read")


class Client(NamedTuple):
    """A process: one that commits, or a drain."""

    role: str
    """inline (request) | bulk (enqueue, then claim) | worker (enqueue) | delayed | drain"""
    commits: int = 0
    phase: str = "rest"
    """rest | committed | recorded | peeked | resend | granted | read | written | lost |
    lost again | unlocked | unlocked read | owing"""
    turns: int = 0
    """Tokens of its own that are still about: a token is never used twice."""
    token: str = ""
    fence: str = ""
    number: int = 0
    events: bytes = b""
    """What its pass, or the last one that began, has got."""
    covers: int = 0
    """Kinds of events in its pass of which none has come since it was granted."""
    fresh: bool = False
    """Whether what its pass has read is still the newest."""
    own: int = 0
    """1: its pass has caused an event of its own; 2: only such an event caused its pass."""
    healed: bool = False
    """It has asked for a heal in this hold."""
    lapsed: bool = False
    """Its own clock says that the lease is over."""
    out: bool = False
    """Its lock was taken from it while it holds: it may overlap with another."""
    alone: bool = False
    """What Redis knew of its item was taken away: it alone can ask for one more pass."""
    command: Command | None = None
    """What it is about to send once more."""


class Budget(NamedTuple):
    """How often each thing may still happen; -1 for any number of times."""

    lapses: int = 0
    deaths: int = 0
    replies: int = 0
    """Replies that are lost, with the command sent again."""
    copies: int = 0
    """Copies of commands that arrive at any later time."""
    outages: int = 0
    """Commands without an answer, also when sent again; they may have worked."""
    flushes: int = 0
    evictions: int = 0
    deletions: int = 0
    """Locks that a person deletes."""
    releases: int = 0
    """Holds that a person sees, and ends at any later time."""
    retries: int = 0
    """Items that a person sees, and wants to be tried at any later time."""
    discards: int = 0
    """Items that a person sees, and discards at any later time."""
    persists: int = 0
    """Locks that lose their TTL."""
    renewals: int = 0
    failures: int = 0
    stops: int = 0
    """Passes that are interrupted and given back."""
    pauses: int = 0
    """Times that a person pauses the receiver, and lets it go on."""
    hurries: int = 0
    """Holds that are over budget before the cap."""
    owns: int = 0
    """Events of the item that its own pass causes."""


class World(NamedTuple):
    """One moment."""

    redis: State
    clients: tuple[Client, ...]
    budget: Budget
    fresh: bool = True
    """Whether what was last written was read after the last commit."""
    late: tuple[Command, ...] = ()
    """Copies of commands that may still arrive."""
    missing: int = 0
    """Kinds of events that no pass has covered yet."""
    bare: bool = False
    """Data was lost, so a pass may be without its event."""
    excused: bool = False
    """Something is lost that only the outbox or a fence could keep: until the next event."""
    passes: int = 0
    """Passes beyond the commits made; counted only where nothing interferes."""
    failures: int = 0
    """Failures since the last success; counted only where nothing else interferes."""


Apply = Callable[[State, Reply], World]


class Move(NamedTuple):
    """One step: whose, what it is called, the command sent if any, what comes of the reply."""

    who: int
    label: str
    command: Command | None
    apply: Apply


class Violation(AssertionError):
    """A promise that a schedule breaks."""


@dataclass(frozen=True)
class Rules:
    """The client's rules, each of which can be switched off, and the receiver's settings."""

    heals: bool = True
    reads_under_lock: bool = True
    flags_in_one_step: bool = True
    looks_in_one_step: bool = True
    """Whether ``finish`` looks at the flag itself; else the client did, a step before."""
    heals_the_unknown: bool = True
    """Whether a ``finish`` without an answer is healed."""
    owes_after_the_run: bool = True
    """Whether an unlocked pass asks for one under the lock when it has ended, not before."""
    attempts: int = 9
    delay: int = 0
    counts_passes: bool = False
    counts_failures: bool = False


def alter(world: World, index: int, client: Client, **changes: object) -> World:
    """Return the world with another client, and other changes."""
    clients = (*world.clients[:index], client, *world.clients[index + 1 :])
    return world._replace(clients=clients, **changes)  # type: ignore[arg-type]


def spend(world: World, what: str) -> World:
    """Return the world with one thing less to happen."""
    left: int = getattr(world.budget, what)
    if left < 0:
        return world
    return world._replace(budget=world.budget._replace(**{what: left - 1}))


def rested(client: Client) -> Client:
    """Return a client whose hold is over."""
    return Client(client.role, client.commits, turns=client.turns)


def commit(world: World) -> World:
    """Return the world with a new version of the row: nothing that was read is the newest."""
    clients = tuple(c._replace(fresh=False) if c.fresh else c for c in world.clients)
    return world._replace(clients=clients, fresh=False)
