"""A figure: the median of paired rounds with its spread, and what it is to reach."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

COLUMNS: Final = "{:42} {:26} {:2} {:>10} {:>19} {:>12}  {}"
HEAD: Final = COLUMNS.format(
    "work", "against", "on", "median", "quartiles", "to reach", "ours / theirs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table."""

    work: str
    against: str = ""
    place: str = ""
    """Where it ran: P or S, see ``places``; "" where that makes no difference."""
    unit: str = ""
    """"" for a ratio."""
    median: float
    low: float
    high: float
    """Quartiles."""
    most: float | None = None
    least: float | None = None
    detail: str = ""
    """The same in absolute numbers, to compare nothing with."""

    @classmethod
    def of(cls, samples: Sequence[float], **others: Any) -> Figure:
        """Make a figure of what the rounds gave."""
        several = [*samples] if len(samples) > 1 else [*samples] * 2
        low, median, high = statistics.quantiles(several, n=4, method="inclusive")
        return cls(median=median, low=low, high=high, **others)

    @property
    def goal(self) -> str:
        """What is to be reached, and whether it was."""
        if self.most is not None:
            return f"{'' if self.median <= self.most else 'no: '}≤ {_short(self.most)}"
        if self.least is not None:
            return f"{'' if self.median >= self.least else 'no: '}≥ {_short(self.least)}"
        return ""

    @property
    def share(self) -> float | None:
        """How much of what is to be reached it is: 1 or more is reached. None if nothing is."""
        return self._share(self.median)

    @property
    def shares(self) -> tuple[float, float]:
        """The same of its quartiles, the worse one first."""
        low, high = sorted(self._share(value) or 0.0 for value in (self.low, self.high))
        return low, high

    def _share(self, value: float) -> float | None:
        if self.most:
            return self.most / value if value > 0 else math.inf
        return value / self.least if self.least else None

    def row(self) -> str:
        """Return its line of the table."""
        spread = f"{_short(self.low)} - {_short(self.high)}"
        median = f"{_short(self.median)} {self.unit or 'x'}"
        cells = (self.work, self.against, self.place, median, spread, self.goal, self.detail)
        return COLUMNS.format(*cells).rstrip()

    def markdown(self) -> str:
        """Return its line of a table in Markdown."""
        work = " / ".join(filter(None, (self.work, self.against)))
        spread = f"{_short(self.low)} to {_short(self.high)}"
        cells = (work, self.place, f"{_short(self.median)} {self.unit or 'x'}", spread, self.goal)
        return f"| {' | '.join(cells)} |"

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> Figure:
        """Make a figure of what ``--json`` printed of it."""
        return cls(**{name: value for name, value in read.items() if name != "benchmark"})

    def as_json(self) -> dict[str, Any]:
        """Return what ``--json`` prints of it."""
        return asdict(self)


MARKDOWN: Final = """| work / against | on | median | quartiles | to reach |
|---|---|---|---|---|"""


def _short(number: float) -> str:
    """Return a number in three digits or so."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def spoken(seconds: float) -> str:
    """Return a duration in its fitting unit."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
