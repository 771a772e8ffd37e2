"""Programs of transactions: what can be written in one, and how a random one is made.

A program is data, so that a failing one is printed, and hypothesis can make it smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TypeAlias

DATABASES = ("default", "other")
ROWS = 3
DEEPEST = 5


@dataclass(frozen=True)
class Event:
    """A signal about a row of a database."""

    kind: str
    """``"save"`` or ``"delete"`` through the ORM, or ``"send"``: a signal of its own, no query."""
    using: str
    row: int


@dataclass(frozen=True)
class Raise:
    """An exception, caught by the next ``Catch`` outside of it."""


@dataclass(frozen=True)
class RollBack:
    """``set_rollback(True)`` where a transaction is open: its block ends without an exception."""

    using: str


@dataclass(frozen=True)
class Catch:
    """Catches whatever its steps raise."""

    body: Steps


@dataclass(frozen=True)
class Atomic:
    """``transaction.atomic()``."""

    using: str
    savepoint: bool
    durable: bool
    body: Steps


@dataclass(frozen=True)
class Capture:
    """``captureOnCommitCallbacks()``; those of ``"by hand"`` are called after the block's end."""

    using: str
    how: str
    """``"execute"``, ``"by hand"`` or ``"drop"``."""
    body: Steps


@dataclass(frozen=True)
class Foreign:
    """Another app's ``on_commit`` callback; its steps run when it is called."""

    using: str
    robust: bool
    body: Steps


Step: TypeAlias = Event | Raise | RollBack | Catch | Atomic | Capture | Foreign
Steps: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True)
class Program:
    """Steps, and where they run."""

    testcase: bool
    """Inside of transactions that count as a TestCase's own, and that never commit."""
    body: Steps


def random_program(chance: Random) -> Program:
    """Make a program. The same state of ``chance`` makes the same one."""
    testcase = chance.random() < 0.4
    return Program(testcase, _Maker(chance, chance.randint(5, 25)).block(0, frozenset()))


class _Maker:
    def __init__(self, chance: Random, steps: int) -> None:
        self.chance = chance
        self.left = steps

    def block(self, depth: int, opened: frozenset[str], *, outer: bool = True) -> Steps:
        """Make some steps.

        Args:
            depth: How many blocks are around them.
            opened: Databases that have a transaction open there.
            outer: Whether they run here, not in a callback some time.
        """
        steps: list[Step] = []
        for _ in range(self.chance.randint(1 if depth else 2, 6 if outer else 2)):
            if self.left <= 0:
                break
            self.left -= 1
            steps.append(self._step(depth, opened, outer))
        if self.chance.random() < (0.2 if depth else 0):
            steps.append(Raise())
        return tuple(steps)

    def _step(self, depth: int, opened: frozenset[str], outer: bool) -> Step:
        chance = self.chance
        using = chance.choice(DATABASES)
        kinds = ["event"] * 5
        if depth < DEEPEST:
            kinds += ["atomic"] * 4 + ["caught"] * 3 + ["capture"] * 2 + ["foreign"] * 2
        kind = chance.choice(kinds)
        if kind == "event":
            return Event(chance.choice(("save", "delete", "send")), using, chance.randrange(ROWS))
        if using in opened and chance.random() < 0.05:
            return RollBack(using)
        if kind == "caught":
            return Catch((self._atomic(using, depth, opened, outer),))
        if kind == "foreign":
            return Foreign(using, chance.random() < 0.5, self.block(depth + 1, opened, outer=False))
        if kind == "capture":
            how = chance.choice(("execute", "execute", "by hand", "drop"))
            return Capture(using, how, self.block(depth + 1, opened, outer=outer))
        return self._atomic(using, depth, opened, outer)

    def _atomic(self, using: str, depth: int, opened: frozenset[str], outer: bool) -> Atomic:
        durable = outer and using not in opened and self.chance.random() < 0.3
        body = self.block(depth + 1, opened | {using}, outer=outer)
        return Atomic(using, self.chance.random() < 0.6, durable, body)
