"""Worlds that differ in names alone are one: tokens, fences and like clients are numbered anew.

The scripts compare tokens and fences, and whether counts of events are 0; nothing else depends on
which they are. That makes the worlds finite, and a schedule that goes on for ever a circle.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from .machine import FENCE, Command, State, named
from .people import fences_seen, renamed
from .worlds import Client, World

ATTEMPTS = 9
"""Attempts beyond which all are the same."""
TOKENS = {"request": 1, "claim": 1, "finish": 1, "release": 1, "renew": 1}
FENCES = {"finish": 2, "release": 2, "renew": 2}


class Names(NamedTuple):
    """The new names of a world."""

    tokens: dict[str, str]
    fences: dict[str, str]
    turns: list[int]
    """How many tokens each client has, by its new place."""


def canonical(world: World) -> tuple[World, tuple[int, ...]]:
    """Return the world under its canonical names, and which client is which: old by new."""
    clients = world.clients
    order = tuple(
        sorted(range(len(clients)), key=[_rank(client) for client in clients].__getitem__)
    )
    names = _names(world, order)
    redis = _state(world.redis, names)
    renamed = tuple([_client(clients[old], new, names) for new, old in enumerate(order)])
    late = world.late
    if late:
        late = tuple(sorted(_command(command, names) for command in late))
    return world._replace(redis=redis, clients=renamed, late=late), order


def _rank(client: Client) -> tuple[object, ...]:
    role, commits, phase, _, _, _, *flags, command = client
    return role, commits, phase, flags, command is not None


def _names(world: World, order: tuple[int, ...]) -> Names:
    redis, commands = world.redis, list(world.late)
    known, seen = set(), {str(redis.fence)}
    for client in world.clients:
        if client.token:
            known.add(client.token)
            seen.add(client.fence)
        if client.command:
            commands.append(client.command)
    for name, arguments in commands:
        if name in TOKENS:
            known.add(arguments[TOKENS[name]])
        if name in FENCES:
            seen.add(arguments[FENCES[name]])
        if name == "tend":
            seen |= fences_seen(arguments[-1])
    there, fence = named(redis.record) if redis.record is not None else ("-", "0")
    seen.add(fence)
    seen -= {"0", ""}
    turns = [0] * len(order)
    tokens = {"-": "-", "": ""}
    for token in sorted(known):
        new = order.index(int(token.partition(".")[0]))
        tokens[token] = f"{new}.{turns[new]}"
        turns[new] += 1
    strangers = 0
    for gone in (redis.lock, there):  # of somebody who is gone
        if gone is not None and gone not in tokens:
            tokens[gone] = f"x.{strangers}"
            strangers += 1
    low = FENCE if redis.fence else FENCE - len(seen)
    fences = {fence: str(low + rank) for rank, fence in enumerate(sorted(seen, key=int))}
    fences["0"], fences[""] = "0", ""
    return Names(tokens, fences, turns)


def _state(redis: State, names: Names) -> State:
    record, lock = redis.record, redis.lock
    if record is not None:
        token, fence = named(record)
        record = renumbered(record, names.tokens[token], names.fences[fence])
    lock = lock if lock is None else names.tokens[lock]
    fence_ = int(names.fences[str(redis.fence)])
    if lock == redis.lock and record == redis.record and fence_ == redis.fence:
        return redis
    return redis._replace(lock=lock, record=record, fence=fence_)


def _client(client: Client, index: int, names: Names) -> Client:
    turns, command = names.turns[index], client.command
    if not client.token and command is None:
        return client if client.turns == turns else client._replace(turns=turns)
    return client._replace(
        turns=turns,
        token=names.tokens[client.token],
        fence=names.fences[client.fence],
        command=command if command is None else _command(command, names),
    )


def _command(command: Command, names: Names) -> Command:
    name, arguments = command
    changed = list(arguments)
    if name == "tend":
        changed[-1] = renamed(arguments[-1], names.tokens, names.fences, renumbered)
    if name in TOKENS:
        changed[TOKENS[name]] = names.tokens[arguments[TOKENS[name]]]
    if name in FENCES:
        changed[FENCES[name]] = names.fences[arguments[FENCES[name]]]
    return name, tuple(changed)


@cache
def renumbered(record: bytes, token: str, fence: str) -> bytes:
    """Return a record under a canonical token and fence."""
    head, _, body = record.partition(b"\n")
    words = head.split(b" ")
    words[1:3] = token.encode(), fence.encode()
    words[4] = b"%d" % min(int(words[4]), ATTEMPTS)
    words[-2:] = (b"%d" % min(int(word), 1) for word in words[-2:])
    return b" ".join(words) + b"\n" + body
