"""Several items of one lane that has a few places: who runs, who waits, and whether it ends.

The search of one item sees no neighbours. Here each item is such a state, and they share the lane.
What a client reads and writes is left to that search; here an event is covered or it isn't.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import redis

from . import circles, machine
from .canonical import renumbered
from .machine import ITEM, KEYS, LANE, NOW, Command, Reply, State
from .worlds import Violation

MORE, ROUND = "more run than there are places", "it goes round for ever"
LEFT, UNCOVERED = "something waits for ever", "an event that no pass has got"
CAP = 2


class Client(NamedTuple):
    """A process: a writer of one item that runs its passes inline, or a drain."""

    item: int
    """A writer's own item, what a drain has claimed; -1 for none."""
    events: int = 0
    """How many a writer will still send."""
    drains: bool = False
    phase: str = "rest"
    """rest | pass | lost"""
    named: tuple[int, ...] = ()
    """What a look has named and wasn't claimed yet."""
    token: str = ""
    fence: str = "0"
    number: int = 0
    covers: bool = False
    """Whether no event has come since its pass was granted."""
    out: bool = False
    """Its lease has ended: it may run beside those that have a place."""


class World(NamedTuple):
    """One moment."""

    items: tuple[State, ...]
    clients: tuple[Client, ...]
    owed: tuple[bool, ...]
    """Of each item, whether it has an event that no pass has covered."""
    lapses: int = 0
    deaths: int = 0


Step = tuple[str, Command | None, Callable[[tuple[State, ...], Reply], World]]


class Places:
    """The search.

    Args:
        laboratory: A server of its own.
        places: How many items may run at once.
        patch: Changes a script's text: gets its name and text.
    """

    def __init__(
        self,
        laboratory: redis.Redis,
        places: int,
        patch: machine.Patch = lambda name, text: text,
    ) -> None:
        self.client = laboratory
        self.places = places
        self.shas = machine.Machine(laboratory, patch).shas
        self.known: dict[tuple[tuple[State, ...], Command], tuple[tuple[State, ...], Reply]] = {}

    def run(self, start: World) -> int:
        """Visit every world, and return how many there are.

        Raises:
            Violation: A promise is broken; its message is the shortest schedule that breaks it.
        """
        start = _canonical(start)
        numbers, ways, frontier = {start: 0}, {start: ""}, [start]
        sources, targets = array("i"), array("i")
        for world in frontier:
            ends = True
            for label, command, apply in self._steps(world):
                items, reply = world.items, ()
                if command:
                    items, reply = self._sent(world.items, command)
                after = _canonical(apply(items, reply))
                if after == world:
                    continue  # a look that finds nothing
                ends = False
                told = f"{ways[world]}; {label}" + (f": {reply[0]}" if reply else "")
                if after not in numbers:
                    numbers[after], ways[after] = len(numbers), told
                    frontier.append(after)
                    self._check(after, told)
                sources.append(numbers[world])
                targets.append(numbers[after])
            if ends:
                _check_end(world, ways[world])
        graph = circles.Graph(len(numbers), sources, targets)
        if circle := graph.shortest({0}, array("i", bytes(4 * len(sources)))):
            way = next(w for world, w in ways.items() if numbers[world] == sources[circle[0]])
            raise Violation(f"{ROUND}: {way}")
        return len(numbers)

    def _check(self, world: World, way: str) -> None:
        running = [client for client in world.clients if client.phase == "pass" and not client.out]
        if len(running) > self.places:
            raise Violation(f"{MORE}: {way}")

    def _steps(self, world: World) -> Iterator[Step]:
        for index, client in enumerate(world.clients):
            who = f"{'drain' if client.drains else 'writer'} {index}"
            for label, command, apply in self._client(world, index, client):
                yield f"{who} {label}", command, apply
            if world.deaths and (client.phase != "rest" or client.named):
                gone = _rested(client)._replace(named=())
                yield f"{who} dies", None, _becomes(_with(world, index, gone), deaths=-1)
            if world.lapses and client.phase == "pass" and not client.out:
                over = _lapsed(world.items, client.item)
                after = _with(world, index, client._replace(out=True))._replace(items=over)
                yield f"{who}'s lease ends", None, _becomes(after, lapses=-1)
        living = {client.token for client in world.clients if client.phase == "pass"}
        for number, state in enumerate(world.items):
            if state.lock is not None and state.lock not in living:
                after = world._replace(items=_lapsed(world.items, number))
                yield "nobody's lease ends", None, _becomes(after)
        if any(state.waiting for state in world.items):
            later = world._replace(items=tuple(state.later() for state in world.items))
            yield "time passes", None, _becomes(later)

    def _client(self, world: World, index: int, client: Client) -> Iterator[Step]:
        token = _unused(world, index)
        if client.phase == "pass":
            last = client.number >= CAP
            command = machine.finish(client.token, client.fence, client.number, last=last)
            yield "ends its pass", self._of(command, client.item), _finished(world, index)
        elif client.phase == "lost":
            command = self._of(machine.request(token, heal=True), client.item)
            yield "heals", command, _granted(world, index, client.item, token)
        elif client.named:
            (number, *rest) = client.named
            looked = _with(world, index, client._replace(named=tuple(rest)))
            command = self._of(machine.claim(token), number)
            yield f"claims {number}", command, _granted(looked, index, number, token)
        elif client.drains:
            command = ("peek", ("", len(world.items), machine.WAIT, self.places))
            yield "looks", command, _named(world, index)
        elif client.events:
            sent = _with(world, index, client._replace(events=client.events - 1))
            command = self._of(machine.request(token), client.item)
            yield "sends an event", command, _granted(sent, index, client.item, token)

    def _of(self, command: Command, number: int) -> Command:
        """Return the command for one of the items, with the places of the lane."""
        name, arguments = command
        rest = arguments[1:-2] if name == "finish" else arguments[1:-1]
        end = (self.places, "") if name == "finish" else (self.places,)
        return name, (str(number), *rest, *end)

    def _sent(self, items: tuple[State, ...], command: Command) -> tuple[tuple[State, ...], Reply]:
        if (items, command) not in self.known:
            self.known[items, command] = self._asked(items, command)
        return self.known[items, command]

    def _asked(self, items: tuple[State, ...], command: Command) -> tuple[tuple[State, ...], Reply]:
        name, arguments = command
        mine = [_keys(number) for number in range(len(items))]
        keys = KEYS if name == "peek" else mine[int(arguments[0])]
        pipe: Any
        with self.client.pipeline(transaction=False) as pipe:
            for number, state in enumerate(items):
                machine.put(pipe, state, mine[number], str(number), beside=number > 0)
            pipe.execute_command("EVALSHA", self.shas[name], len(keys), *keys, "r", *arguments)
            for number in range(len(items)):
                machine.look(pipe, mine[number], str(number))
            replies = pipe.execute()
        answer, looks = replies[len(items)], replies[len(items) + 1 :]
        size = len(looks) // len(items)
        found = [
            machine.read([None, answer, *looks[size * n : size * (n + 1)]])
            for n in range(len(items))
        ]
        return tuple(state for state, _ in found), found[0][1]


def start(*writers: tuple[int, int], drains: int = 1, lapses: int = 0, deaths: int = 0) -> World:
    """Return the first moment.

    Args:
        *writers: For each its item and how many events it sends.
        drains: How many drains there are.
        lapses: How many leases of holders that live may end.
        deaths: How many clients may die.
    """
    clients = (*(Client(*each) for each in writers), *[Client(-1, drains=True)] * drains)
    items = 1 + max(item for item, _ in writers)
    return World((State(),) * items, clients, (False,) * items, lapses, deaths)


def _keys(number: int) -> tuple[str, ...]:
    lock = LANE.lock(ITEM).removesuffix(ITEM.text) + str(number)
    return (*KEYS[:5], lock, *KEYS[6:])


def _with(world: World, index: int, client: Client) -> World:
    clients = (*world.clients[:index], client, *world.clients[index + 1 :])
    return world._replace(clients=clients)


def _becomes(world: World, **spent: int) -> Callable[[tuple[State, ...], Reply], World]:
    after = world._replace(**{name: getattr(world, name) + by for name, by in spent.items()})
    return lambda items, reply: after


def _rested(client: Client) -> Client:
    item = -1 if client.drains else client.item
    return Client(item, client.events, client.drains, named=client.named)


def _lapsed(items: tuple[State, ...], number: int) -> tuple[State, ...]:
    state = items[number]
    running = state.running if state.running is None else NOW
    return (*items[:number], state._replace(lock=None, running=running), *items[number + 1 :])


def _unused(world: World, index: int) -> str:
    """Return a token of a client that nobody knows any more."""
    about = {client.token for client in world.clients}
    for state in world.items:
        about |= {state.lock or "", machine.named(state.record)[0] if state.record else ""}
    return next(f"{index}.{turn}" for turn in range(99) if f"{index}.{turn}" not in about)


def _named(world: World, index: int) -> Callable[[tuple[State, ...], Reply], World]:
    def apply(items: tuple[State, ...], reply: Reply) -> World:
        named = world.clients[index]._replace(named=tuple(map(int, reply)))
        return _with(world, index, named)._replace(items=items)

    return apply


def _granted(
    world: World, index: int, item: int, token: str
) -> Callable[[tuple[State, ...], Reply], World]:
    def apply(items: tuple[State, ...], reply: Reply) -> World:
        client, after = world.clients[index], world._replace(items=items)
        if not client.drains and client.phase == "rest":  # it was an event
            owed = tuple(was or number == item for number, was in enumerate(world.owed))
            others = [c._replace(covers=c.covers and c.item != item) for c in world.clients]
            after = after._replace(owed=owed, clients=tuple(others))
        if reply[0] != "GRANTED":
            return _with(after, index, _rested(client))
        held = client._replace(item=item, phase="pass", token=token, fence=reply[1])
        return _with(after, index, held._replace(number=reply[2], covers=True, out=False))

    return apply


def _finished(world: World, index: int) -> Callable[[tuple[State, ...], Reply], World]:
    def apply(items: tuple[State, ...], reply: Reply) -> World:
        client, owed = world.clients[index], world.owed
        if reply[0] == "LOST":
            lost = client._replace(phase="lost", token="", fence="0", covers=False, out=False)
            return _with(world, index, lost)._replace(items=items)
        if client.covers:
            owed = tuple(was and number != client.item for number, was in enumerate(owed))
        after = _rested(client)
        if reply[0] == "AGAIN":
            after = client._replace(number=reply[2], covers=True, out=False)
        return _with(world, index, after)._replace(items=items, owed=owed)

    return apply


def _check_end(world: World, way: str) -> None:
    if any(world.owed):
        raise Violation(f"{UNCOVERED}: {way}")
    if not all(state.empty for state in world.items):
        raise Violation(f"{LEFT}: {way}")


def _canonical(world: World) -> World:
    """Return the world with its fences numbered anew, and counts as far as they matter."""
    seen = {str(world.items[0].fence)} | {client.fence for client in world.clients}
    seen |= {machine.named(state.record)[1] for state in world.items if state.record}
    seen -= {"0", ""}
    fences = {fence: str(machine.FENCE + rank) for rank, fence in enumerate(sorted(seen, key=int))}
    fences["0"] = "0"
    items = tuple(
        state._replace(
            record=renumbered(state.record, *_renamed(state.record, fences))
            if state.record
            else None,
            fence=int(fences[str(state.fence)]),
        )
        for state in world.items
    )
    clients = tuple(client._replace(fence=fences[client.fence]) for client in world.clients)
    return world._replace(items=items, clients=clients)


def _renamed(record: bytes, fences: dict[str, str]) -> tuple[str, str]:
    token, fence = machine.named(record)
    return token, fences[fence]
