"""The account of one schedule: its "database", who is in a pass, what was excused, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from .stage import Actor

CAP: Final = 2
"""MAX_PASSES of the schedules."""


class Violation(AssertionError):
    """A promise that a schedule breaks."""


@dataclass
class Commit:
    """One committed change: the key's version, and whether Redis has heard of it."""

    key: str
    version: int
    actor: Actor
    reached: bool = False


@dataclass
class World:
    """The database of a schedule, and the account of what happened in it."""

    source: Counter[str] = field(default_factory=Counter)
    derived: Counter[str] = field(default_factory=Counter)
    commits: list[Commit] = field(default_factory=list)
    passes: list[tuple[str, int]] = field(default_factory=list)
    """Key and fence of every pass; a fence of 0 is a pass without a lock."""
    open: list[tuple[str, int]] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)
    """Fences of leases that ended before their hold did."""
    wrote: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Key and fence of each actor's last write, since its last commit."""
    waived: set[str] = field(default_factory=set)
    """Keys of which a holder wrote after its lease and died before it could say so."""
    faults: int = 0
    orphans: bool = False
    """Something may be held by nobody: after a death, a late copy, two lost replies in a row."""
    broken: list[str] = field(default_factory=list)
    """What a pass has seen broken. If it raised, that would be a failed pass, and no more."""

    def commit(self, actor: Actor, key: str) -> None:
        """Change the source."""
        self.source[key] += 1
        change = Commit(key, self.source[key], actor)
        self.commits.append(change)
        actor.unsent.append(change)

    def died(self, actor: Actor) -> None:
        """Note what a death may excuse."""
        self.orphans = True
        key, fence = self.wrote.get(actor.name, ("", 0))
        if fence in self.ended:
            self.waived.add(key)

    def enter(self, key: str, fence: int) -> None:
        """Let a pass begin. Promises 2 and 4."""
        for other in [f for k, f in self.open if k == key]:
            if fence and other and other not in self.ended:
                self.broken.append(f"two passes of {key} at once: {other} and {fence}")
        if fence and self.passes.count((key, fence)) >= CAP:
            self.broken.append(f"more than {CAP} passes in a hold")
        newest = max((f for k, f in self.passes if k == key), default=0)
        if 0 < fence < newest and fence not in self.ended:
            self.broken.append("a fence that went back")
        self.passes.append((key, fence))
        self.open.append((key, fence))

    def check(self) -> None:
        """Tell what passes have seen.

        Raises:
            Violation: A promise is broken.
        """
        if self.broken:
            raise Violation(self.broken[0])
