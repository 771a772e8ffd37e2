"""The breadth-first search: every world that some schedule leads to, and what must hold in each."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from . import circles, environment, people
from .canonical import canonical
from .machine import Machine, Reply, State
from .model import Process
from .worlds import HOLDING, Budget, Client, Move, Rules, Violation, World

SUCCESS = ("sends finish: DONE", "sends finish: AGAIN", "sends finish: REQUEUED")
LIMIT = 20_000_000
"""Worlds after which something must be going round for ever."""


@dataclass
class Search:
    """One search.

    Args:
        machine: The scripts.
        clients: Who takes part, besides one drain.
        budget: How often each thing may happen.
        rules: The client's rules.
    """

    machine: Machine
    clients: tuple[Client, ...]
    budget: Budget
    rules: Rules = field(default_factory=Rules)
    ids: dict[World, int] = field(default_factory=dict)
    rests: int = 0

    def __post_init__(self) -> None:
        self.parents = array("i")
        self.steps: dict[tuple[int, str], int] = {}
        self.taken = array("i")
        self.orders: list[tuple[int, ...]] = []
        self.sources, self.targets, self.labels = array("i"), array("i"), array("i")
        self.same: dict[object, object] = {}

    def run(self) -> Search:
        """Visit every world.

        Raises:
            Violation: A promise is broken; its message is the shortest schedule that breaks it.
        """
        members = (*self.clients, Client("drain"))
        start, order = canonical(World(State(), members, self.budget))
        self.first = tuple(f"{members[index].role} {index}" for index in order)
        self._note(start, -1, 0, order)
        frontier = [start]
        while frontier:
            possible = [(world, self._moves(world)) for world in frontier]
            self.machine.run(
                [(w.redis, m.command) for w, found in possible for m in found if m.command]
            )
            frontier = []
            for world, found in possible:
                for move in found:
                    if (after := self._step(world, move)) is not None:
                        frontier.append(after)
        self._check_ends()
        return self

    def _moves(self, world: World) -> list[Move]:
        found = [
            move
            for index in range(len(world.clients))
            for move in Process(world, index, self.rules).moves()
        ]
        found.extend(environment.moves(world))
        return found

    def _step(self, world: World, move: Move) -> World | None:
        redis, reply = world.redis, ()
        source, told = self.ids[world], move.label
        if move.command:
            redis, reply = self.machine.step(world.redis, move.command)
            told = f"{told}: {reply[0]}" if reply else told
        label = self.steps.setdefault((move.who, told), len(self.steps))
        try:
            if move.command:
                _check_state(world.redis, redis, move.command[0], reply)
            after, order = canonical(people.outdated(move.apply(redis, reply)))
            known = self.ids.get(after)
            self.sources.append(source)
            self.labels.append(label)
            if known is not None:
                self.targets.append(known)
                return None
            self.targets.append(len(self.ids))
            self._note(after, source, label, order)
            self._check(after)
        except Violation as violation:
            schedule = [*self._schedule(source), (move.who, told)]
            raise Violation(f"{violation}: {self._told(schedule, source)}") from None
        assert len(self.ids) < LIMIT, "the search doesn't end"
        return after

    def _note(self, world: World, parent: int, label: int, order: tuple[int, ...]) -> None:
        self.ids[world] = len(self.ids)
        self.parents.append(parent)
        self.taken.append(label)
        self.orders.append(self.same.setdefault(order, order))  # type: ignore[arg-type]

    def _check(self, world: World) -> None:
        redis = world.redis
        holding = [c for c in world.clients if c.phase in HOLDING and not c.out]
        if len(holding) > 1:
            raise Violation("two passes overlap")
        if any(client.phase != "rest" for client in world.clients):
            return
        if redis.lock is not None or redis.ripe or redis.waiting or world.excused:
            return
        if redis.paused:
            return  # what waits for a person is no rest
        self.rests += 1
        if redis.dead is not None:
            record = redis.parsed
            if record is None:
                raise Violation("something is left at rest")
            if record.attempts < self.rules.attempts:
                raise Violation("given up too early")
            return
        if not world.fresh:
            raise Violation("stale at rest")
        if world.missing and not world.bare:
            raise Violation("an event that no pass has got")
        if not redis.empty:
            raise Violation("something is left at rest")

    def _check_ends(self) -> None:
        """No schedule goes on for ever.

        One in which others interfere again and again may, but not with passes of which none
        succeeds: failures, takeovers and heals back off and end dead.
        """
        names = list(self.steps)
        graph = circles.Graph(len(self.ids), self.sources, self.targets)
        counted = set(range(len(names)))
        if -1 in self.budget:
            graph.drop({n for n, (_, told) in enumerate(names) if told in SUCCESS}, self.labels)
            counted = {n for n, (_, told) in enumerate(names) if told == "reads"}
        circle = graph.shortest(counted, self.labels)
        if circle:
            start = self.sources[circle[0]]
            steps = [names[self.labels[step]] for step in circle]
            around = "; ".join(told if who < 0 else f"{who} {told}" for who, told in steps)
            told = self._told(self._schedule(start), start)
            raise Violation(f"it goes round for ever: {told}; and then again and again: {around}")

    def _schedule(self, world: int) -> list[tuple[int, str]]:
        """Return the steps to a world: who by its place then, and what."""
        names = list(self.steps)
        found = []
        while self.parents[world] >= 0:
            found.append(names[self.taken[world]])
            world = self.parents[world]
        return found[::-1]

    def _told(self, schedule: list[tuple[int, str]], world: int) -> str:
        orders = []
        while self.parents[world] >= 0:
            orders.append(self.orders[world])
            world = self.parents[world]
        orders.reverse()
        names, told = self.first, []
        for number, (who, label) in enumerate(schedule):
            told.append(label if who < 0 else f"{names[who]} {label}".replace(" 's", "'s"))
            if number < len(orders):
                names = tuple(names[old] for old in orders[number])
        return "; ".join(told)


def _check_state(before: State, after: State, name: str, reply: Reply) -> None:
    word = reply[0] if reply else ""
    begins = (word == "GRANTED" and before.lock != after.lock) or word == "AGAIN"
    if before.paused and begins and before.record != after.record:
        raise Violation("a pass begins although its receiver is paused")
    if name == "finish" and word == "DONE" and not after.empty:
        raise Violation("something is left when all is done")
    if after.record is not None and after.record != before.record and not after.lane:
        raise Violation("a record that no list of lanes leads to")
    if after.lock is not None and not after.ttl:
        refused = word == "HELD" or (name == "request" and word == "COALESCED")
        if before.ttl or before.lock != after.lock or refused:
            raise Violation("a lock without an end")
