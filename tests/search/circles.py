"""Circles in a graph of worlds: schedules that go on for ever."""

from __future__ import annotations

from array import array
from collections.abc import Sequence, Set


class Graph:
    """Worlds by number, and the steps between them.

    Args:
        worlds: How many worlds there are.
        sources: Where each step starts.
        targets: Where each step leads.
    """

    def __init__(self, worlds: int, sources: Sequence[int], targets: Sequence[int]) -> None:
        self.worlds = worlds
        self.sources = sources
        self.targets = targets
        self.steps: Sequence[int] = range(len(sources))

    def drop(self, labels: Set[int], of: Sequence[int]) -> None:
        """Leave out the steps with some labels."""
        self.steps = array("i", (step for step in self.steps if of[step] not in labels))

    def shortest(self, labels: Set[int], of: Sequence[int]) -> list[int]:
        """Return a short circle through a step with one of some labels, empty if there is none."""
        left = self._circling()
        if not left:
            return []
        leaving: dict[int, list[int]] = {}
        for step in self.steps:
            if self.sources[step] in left and self.targets[step] in left:
                leaving.setdefault(self.sources[step], []).append(step)
        best: list[int] = []
        for step in (step for steps in leaving.values() for step in steps):
            if of[step] in labels:
                circle = self._around(step, leaving)
                if circle and (not best or len(circle) < len(best)):
                    best = circle
        return best

    def _circling(self) -> set[int]:
        """Return the worlds on circles or between two: ends and beginnings are taken away."""
        gone = self._taken_away(self.sources, self.targets, set())
        gone |= self._taken_away(self.targets, self.sources, gone)
        return set(range(self.worlds)) - gone

    def _taken_away(self, ones: Sequence[int], others: Sequence[int], gone: set[int]) -> set[int]:
        steps = [s for s in self.steps if ones[s] not in gone and others[s] not in gone]
        count = array("i", bytes(4 * self.worlds))
        beside: dict[int, list[int]] = {}
        for step in steps:
            count[ones[step]] += 1
            beside.setdefault(others[step], []).append(ones[step])
        ended = [world for world in range(self.worlds) if not count[world]]
        for world in ended:
            for one in beside.get(world, ()):
                count[one] -= 1
                if not count[one]:
                    ended.append(one)
        return set(ended)

    def _around(self, first: int, leaving: dict[int, list[int]]) -> list[int]:
        """Return a step and the shortest way from its end back to its start, if there is one."""
        came = {self.targets[first]: -1}
        frontier = [self.targets[first]]
        for world in frontier:
            if world == self.sources[first]:
                found = []
                while (step := came[world]) >= 0:
                    found.append(step)
                    world = self.sources[step]
                return [first, *reversed(found)]
            for step in leaving.get(world, ()):
                if self.targets[step] not in came:
                    came[self.targets[step]] = step
                    frontier.append(self.targets[step])
        return []
