"""The breadth-first search: every world that some schedule leads to, and what must hold in each."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import model
from .machine import Machine, State
from .model import HOLDING, Budget, Client, Rules, Violation, World

LIMIT = 3_000_000
"""Worlds after which something must be going round for ever."""


@dataclass
class Search:
    """One search.

    Args:
        machine: The scripts.
        commits: Commits of each writer.
        budget: How often the environment may interfere.
        rules: The client's rules.
    """

    machine: Machine
    commits: tuple[int, ...]
    budget: Budget
    rules: Rules = field(default_factory=Rules)
    parents: dict[World, tuple[World, str] | None] = field(default_factory=dict)
    steps: int = 0
    rests: int = 0

    def run(self) -> Search:
        """Visit every world.

        Raises:
            Violation: A promise is broken; its message is the shortest schedule that breaks it.
        """
        writers = tuple(Client(f"w{n}", commits=k) for n, k in enumerate(self.commits))
        start = World(State(), (*writers, Client("drain")), self.budget)
        self.parents[start] = None
        frontier = [start]
        while frontier:
            possible = [(world, list(model.moves(world, self.rules))) for world in frontier]
            self.machine.run(
                [(w.redis, m.command) for w, found in possible for m in found if m.command]
            )
            frontier = []
            for world, found in possible:
                for move in found:
                    self._step(world, move, frontier)
        return self

    def _step(self, world: World, move: model.Move, frontier: list[World]) -> None:
        self.steps += 1
        redis, reply = world.redis, ()
        if move.command:
            redis, reply = self.machine.step(world.redis, move.command)
        try:
            after = _canonical(move.apply(redis, reply))
            if after in self.parents:
                return
            self.parents[after] = (world, move.label)
            self._check(after)
        except Violation as violation:
            schedule = [*self._schedule(world), move.label]
            raise Violation(f"{violation}: {'; '.join(schedule)}") from None
        assert len(self.parents) < LIMIT, "the search doesn't end"
        if not after.lost:
            frontier.append(after)

    def _check(self, world: World) -> None:
        if world.lost:
            return
        holding = [c for c in world.clients if c.phase in HOLDING and not c.out]
        if len(holding) > 1:
            raise Violation("two passes overlap")
        if any(client.phase != "rest" for client in world.clients):
            return
        if world.redis.lock is not None or world.redis.claimable:
            return
        self.rests += 1
        if world.derived != world.version:
            raise Violation("stale at rest")
        if not world.redis.empty:
            raise Violation("something is left at rest")

    def _schedule(self, world: World) -> list[str]:
        labels = []
        while (step := self.parents[world]) is not None:
            world, label = step
            labels.append(label)
        return labels[::-1]


def _canonical(world: World) -> World:
    """Forget what can't matter any more, so that equal worlds are equal."""
    holding = any(c.phase not in ("rest", "committed") for c in world.clients)
    if not holding:
        redis = world.redis._replace(fence=0) if world.redis.empty else world.redis
        return world._replace(redis=redis)
    return world
