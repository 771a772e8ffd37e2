"""What people saw of the item, and act on at any later time.

In Redis it is a digest; here it is what the digest is of, so that it takes part in renaming.
Records have times in them, so a record that has changed never comes again. The search's clock
stands still; so what was seen of a record that has changed is set to what no record is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import machine
from .machine import Command, State, named
from .worlds import World

DOES = {"release": "releases", "retry": "retries", "discard": "discards"}
"""What people do, and what the budget calls it."""
OUTDATED = "?"


def outdated(world: World) -> World:
    """Return the world in which what was seen, and is there no more, fits nothing."""
    if not any(name == "tend" for name, _ in world.late):
        return world
    return world._replace(late=tuple(_outdated(command, world.redis) for command in world.late))


def _outdated(command: Command, redis: State) -> Command:
    name, arguments = command
    if name != "tend" or arguments[-1] == OUTDATED:
        return command
    if "\n" in arguments[-1]:
        there = arguments[-1] == machine.text(redis.record)
    else:
        record = redis.record
        there = arguments[-1].split(" ")[0] in (redis.lock, record and named(record)[0])
    return command if there else (name, (*arguments[:-1], OUTDATED))


def later(command: Command) -> Command:
    """Return a command after the time in the record that it saw has come."""
    name, arguments = command
    if name != "tend" or "\n" not in arguments[-1]:
        return command
    record = machine.later(arguments[-1].encode("latin-1"))
    return name, (*arguments[:-1], machine.text(record))


def fences_seen(sight: str) -> set[str]:
    """Return the fences in what was seen."""
    if sight == OUTDATED:
        return set()
    return {named(sight.encode("latin-1"))[1] if "\n" in sight else sight.split(" ")[1]}


def renamed(
    sight: str,
    tokens: Mapping[str, str],
    fences: Mapping[str, str],
    rename: Callable[[bytes, str, str], bytes],
) -> str:
    """Return what was seen, under other names."""
    if sight == OUTDATED:
        return sight
    if "\n" not in sight:
        token, fence = sight.split(" ")
        return f"{tokens[token]} {fences[fence]}"
    record = sight.encode("latin-1")
    token, fence = named(record)
    return machine.text(rename(record, tokens[token], fences[fence]))
