"""What stands above the list: numbers, times, and what somebody should look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .. import worker
from ..chart import chart
from ..outbox import shown, table
from ..records import Item
from ..remarks import remarks, span
from ..screen import plain
from .locks import Look
from .wanted import primary_key

STATES = {
    "running": gettext_lazy("Running"),
    "pending": gettext_lazy("Pending"),
    "later": gettext_lazy("Delayed or backing off"),
    "dead": gettext_lazy("Dead"),
}
"""What the indexes tell apart. The list opens on the first."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A receiver that can be paused, or goes on."""

    name: str
    paused: bool

    @property
    def pk(self) -> str:
        """What names it among the locks of an action."""
        return primary_key(Item(self.name, ""))

    @property
    def action(self) -> str:
        """What may be done to it."""
        return "resume" if self.paused else "pause"

    @property
    def label(self) -> str:
        """What the button says."""
        said = _("Resume %(receiver)s") if self.paused else _("Pause %(receiver)s")
        return said % {"receiver": plain(self.name[:80])}


class Summary:
    """What is told of all items, or of one receiver's.

    Args:
        look: What was read.
        tending: Whether the reader may pause receivers.
    """

    def __init__(self, look: Look, *, tending: bool) -> None:
        self.look = look
        self.tending = tending
        self.found = look.survey

    @cached_property
    def _outbox(self) -> shown.Found[str]:
        return shown.receivers(None if len(self.found.numbers) > 1 else self.found.numbers)

    def number(self, state: str, receiver: str | None = None) -> int:
        """Return how many items are in a state, of all receivers or of one."""
        numbers = self.found.numbers
        counted = numbers.values() if receiver is None else [numbers[receiver]]
        return sum(getattr(each, state) for each in counted)

    @property
    def as_of(self) -> str:
        """When it was read: who chooses all pages means what there was then."""
        return repr(self.found.now)

    @property
    def numbers(self) -> list[tuple[str, str, int]]:
        """Each state, its name for people, and how many items are in it."""
        return [(state, str(label), self.number(state)) for state, label in STATES.items()]

    @property
    def news(self) -> str:
        """The numbers in a line, for those who hear what has changed."""
        return ", ".join(f"{label}: {number}" for _, label, number in self.numbers)

    @property
    def chart(self) -> str:
        """Events and passes of the last hour, of all receivers; they aren't counted apart."""
        return chart(self.found.minutes) if self.found.minutes else ""

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield times: what they are, and how long ago or for how long."""
        now = self.found.now
        oldest = min((n.oldest for n in self.found.numbers.values() if n.oldest), default=None)
        if oldest is not None:
            yield _("Oldest waiting"), span(max(0.0, now - oldest))
        if holds := [row.held_for for row in self.look.holds if row.held_for is not None]:
            yield _("Longest hold"), span(max(holds))
        drained = self.found.drained
        ago = _("%(span)s ago") % {"span": span(max(0.0, now - (drained or 0)))}
        yield _("Last drain"), _("never") if drained is None else ago
        if paused := [name for name, each in self.found.numbers.items() if each.paused]:
            yield _("Paused receivers"), ", ".join(map(plain, paused))
        if table.installed():
            rows = sum((each for each in self._outbox.waiting.values()), shown.NONE)
            said = _("%(rows)s, the oldest %(span)s old") if rows.rows else "%(rows)s"
            yield _("Outbox rows"), said % {"rows": rows.rows, "span": span(rows.age)}

    def remarks(self) -> list[str]:
        """Return what somebody should look at."""
        return list(remarks(self.found, self._outbox))

    @property
    def lanes(self) -> list[Lane]:
        """The receivers to pause or let go on: paused ones, and the one that is looked at."""
        numbers = self.found.numbers if self.tending else {}
        alone = len(numbers) == 1
        return [Lane(name, n.paused) for name, n in numbers.items() if n.paused or alone]

    @property
    def strangers(self) -> list[str]:
        """The receivers of which Redis holds items, and that this process doesn't have."""
        return sorted(self.found.numbers.keys() - set(worker.known_names()))
