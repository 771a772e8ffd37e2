"""What people do to items and receivers: release, retry, discard; pause and go on.

A person acts on what a page has shown, and that may be a while ago: each call names what was seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from .connection import Call, text
from .meta import Meta
from .records import Item


class Tending(Meta):
    """The part of the store that people use.

    What was seen is ``board.Row.seen``: ``View.seen``, and behind it the outbox rows of the item.
    All items of a call travel in one round trip; each is a step of its own, so a long list holds
    nobody up. A call that is sent again after a lost connection may say ``"CHANGED"``, ``"FREE"``
    or ``"GONE"`` of what its first copy has done.
    """

    def release(self, seen: Sequence[tuple[Item, str]]) -> list[str | Exception]:
        """End the hold of running items: each is pending now, with its events.

        It counts as an attempt. The holder isn't stopped: it finds out when it renews or ends its
        pass, and asks for one more.

        Args:
            seen: Items, each with what was seen of it.

        Returns:
            For each ``"DONE"``, ``"CHANGED"`` (another hold), ``"FREE"`` (nobody holds it),
            ``"GONE"`` (nothing is there), ``"NEWER"`` (of a newer version, left alone), or why its
            receiver's keys can't be used.
        """
        return self._tend("release", seen)

    def retry(self, seen: Sequence[tuple[Item, str]]) -> list[str | Exception]:
        """Let dead or waiting items be tried now, as if they had never failed.

        Returns:
            As for ``release``; ``"RUNNING"`` for what somebody holds, ``"CHANGED"`` for what has
            got events, or failed again, since it was seen.
        """
        return self._tend("retry", seen)

    def discard(self, seen: Sequence[tuple[Item, str]]) -> list[str | Exception]:
        """Forget items with their events and their rows. Nobody works on them until a new event.

        Returns:
            As for ``retry``, ``"CHANGED"`` also for what has got rows; or why the database of an
            item doesn't let its rows be looked at (then nothing is forgotten) or removed (then a
            drain brings it back).
        """
        from .outbox import shown  # what people look at is no part of a start-up

        return shown.discard(seen, partial(self._tend, "discard"))

    def _tend(self, what: str, seen: Sequence[tuple[Item, str]]) -> list[str | Exception]:
        calls: list[Call] = [
            (self.keys_of(item), (item.receiver, item.text, what, told.partition("-")[0]))
            for item, told in seen
        ]
        replies = self.call_many("tend", calls, raising=False)
        return [r if isinstance(r, Exception) else text(r[0]) for r in replies]

    def pause(self, receivers: Iterable[str], *, paused: bool = True) -> bool:
        """Let events of some receivers be recorded and wait, or let them go on. One round trip.

        Args:
            receivers: Their names, former ones too.
            paused: False lets them go on.

        Returns:
            Whether that changed something.
        """
        calls = [(lane.keys, (lane.receiver, "", int(paused))) for lane in self.lanes(receivers)]
        return any(self.call_many("pause", calls))
