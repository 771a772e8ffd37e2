"""What happens to the clients and to Redis: leases end, holders die, copies arrive, data goes."""

from __future__ import annotations

from collections.abc import Iterator

from . import machine, people
from .machine import Command, Reply, State
from .worlds import HOLDING, UNLOCKED, Apply, Client, Move, World, alter, rested, spend

NOBODY = -1
KEYS = ("record", "running", "due", "dead", "lane", "fence")
"""What is evicted: the lock is what a person deletes."""


def moves(world: World) -> Iterator[Move]:
    """Yield every step of the environment."""
    redis = world.redis
    holder = _holder(world)
    if redis.waiting:
        late = tuple(people.later(command) for command in world.late)
        yield _move("time passes", world._replace(redis=redis.later(), late=late))
    if redis.lock is not None:
        yield from _lock(world, holder)
    if redis.paused:
        goes_on = redis._replace(paused=False, lane=redis.record is not None)
        yield _move("a person lets it go on", world._replace(redis=goes_on))
    elif world.budget.pauses:
        pauses = redis._replace(paused=True, lane=True)
        yield _move("a person pauses it", spend(world, "pauses")._replace(redis=pauses))
    if world.budget.deaths:
        for index, client in enumerate(world.clients):
            if client.phase not in ("rest", "committed"):
                dead = _died(spend(world, "deaths"), index)
                yield Move(index, "dies", None, _becomes(dead))
    for number, command in enumerate(world.late):
        left = world._replace(late=(*world.late[:number], *world.late[number + 1 :]))
        if command[0] == "tend":
            yield from _tends(left, command, holder)
            continue
        apply: Apply = lambda s, r, w=left: w._replace(redis=s)  # type: ignore[misc]  # noqa: E731
        yield Move(NOBODY, f"a late {command[0]} arrives", command, apply)
    yield from _looks(world)
    if world.budget.flushes and not redis.empty:
        spent = spend(world, "flushes")
        yield _move("FLUSHDB", _taken(spent, State(), holder, out=True))
    if world.budget.evictions:
        spent = spend(world, "evictions")
        for name in KEYS:
            if getattr(redis, name):
                gone = {"lane": False, "fence": 0}.get(name)
                left_over = redis._replace(**{name: gone})  # type: ignore[arg-type]
                if name in ("lane", "fence", "dead"):
                    yield _move(f"{name} is evicted", spent._replace(redis=left_over))
                else:
                    after = _taken(spent, left_over, holder, out=False)
                    yield _move(f"{name} is evicted", after)


def _move(label: str, after: World) -> Move:
    return Move(NOBODY, label, None, _becomes(after))


def _becomes(world: World) -> Apply:
    return lambda state, reply: world


def _holder(world: World) -> int | None:
    """Return the living client whose hold the lock or the record names."""
    record = world.redis.parsed
    names = {world.redis.lock, record.token if record else None}
    for index, client in enumerate(world.clients):
        if client.token in names and client.phase in (*HOLDING, "looked", "resend"):
            return index
    return None


def _lock(world: World, holder: int | None) -> Iterator[Move]:
    redis, budget = world.redis, world.budget
    ended = None if redis.running is None else machine.NOW
    over = redis._replace(lock=None, running=ended)
    if redis.ttl and holder is None:
        yield _move("nobody's lease ends", world._replace(redis=over))
    elif redis.ttl and holder is not None and budget.lapses:
        client = world.clients[holder]._replace(lapsed=True, out=True)
        after = alter(spend(world, "lapses"), holder, client, redis=over)
        yield Move(holder, "'s lease ends", None, _becomes(after))
    if budget.deletions:
        freed = spend(world, "deletions")._replace(redis=redis._replace(lock=None, ttl=True))
        if holder is not None:
            freed = alter(freed, holder, world.clients[holder]._replace(out=True))
        yield _move("a person deletes the lock", freed)
    if budget.persists and redis.ttl:
        kept = spend(world, "persists")._replace(redis=redis._replace(ttl=False))
        yield _move("the lock loses its TTL", kept)


def _looks(world: World) -> Iterator[Move]:
    """A person sees the item, and means to do something about it."""
    redis = world.redis
    running = redis.lock is not None or redis.running is not None
    for what in people.DOES if redis.record is not None or running else ():
        if getattr(world.budget, people.DOES[what]) and running == (what == "release"):
            late = tuple(sorted((*world.late, machine.tend(what, redis))))
            after = spend(world, people.DOES[what])._replace(late=late)
            yield _move(f"a person looks, and means to {what} it", after)


def _tends(left: World, command: Command, holder: int | None) -> Iterator[Move]:
    what, sight = command[1][1:]

    def applied(world: World) -> Apply:
        def apply(state: State, reply: Reply) -> World:
            after = world._replace(redis=state)
            if reply[0] != "DONE":
                return after
            if what == "release" and holder is not None:
                return alter(after, holder, after.clients[holder]._replace(out=True))
            if what == "discard" and sight != people.OUTDATED:  # as asked: until the next event
                known = machine.kinds(left.redis.record or b"")
                return after._replace(excused=True, missing=after.missing & ~known)
            return after

        return apply

    yield Move(NOBODY, f"a person's {what} arrives", command, applied(left))
    if left.budget.copies:
        copied = spend(left, "copies")._replace(late=tuple(sorted((*left.late, command))))
        yield Move(NOBODY, f"a person's {what} arrives, a copy too", command, applied(copied))


def _died(world: World, index: int) -> World:
    """A client is gone. What only it could have said is lost, as documented."""
    client = world.clients[index]
    excused = world.excused or client.alone or client.phase in (*UNLOCKED, "owing")
    if not world.fresh:
        excused = excused or _alone_knows(world, client)
    return alter(world, index, rested(client), excused=excused, bare=world.bare or excused)


def _alone_knows(world: World, client: Client) -> bool:
    """Whether a stale last word may be its own, and nobody else knows of that."""
    record = world.redis.parsed
    if record is not None and record.token == client.token:
        return False
    if client.phase == "resend":
        return client.command is not None and client.command[0] == "finish" and client.out
    return client.phase in ("written", "looked", "lost", "lost again")


def _taken(world: World, redis: State, holder: int | None, *, out: bool) -> World:
    """Data goes. A living holder finds out and asks for one more pass; without one it is lost."""
    if holder is None:
        return world._replace(redis=redis, bare=True, excused=True)
    client = world.clients[holder]
    client = client._replace(alone=True, out=client.out or out)
    return alter(world, holder, client, redis=redis, bare=True)
