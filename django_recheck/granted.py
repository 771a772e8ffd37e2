"""Items that a drain has claimed in one trip: run one by one, and given back beside a slow pass.

Those that wait hold their locks, so they mustn't wait for long: no key waits behind another one's
slow pass while another worker is idle.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from django.db.models import Model

from . import ahead, outage, store
from .receivers import Receiver
from .records import Grant, Item, clock

logger = logging.getLogger("django_recheck")

Held = tuple[Grant, Receiver[..., Any]]
PATIENCE: Final = 0.1
"""Seconds after which what isn't begun is given back, in the middle of another one's pass."""


class Granted:
    """Grants that one thread has and runs, each once; what it doesn't begin is given back.

    Args:
        grants: In the order of their claims. What failed before, or killed its process, comes last
            and is run alone: it takes none along should it do so again.
    """

    def __init__(self, grants: Iterable[Held]) -> None:
        self._left = deque(sorted(grants, key=lambda held: held[0].attempts))
        fresh = [held for held in self._left if not held[0].attempts]
        self._mutex = threading.Lock()
        self._timer = threading.Timer(PATIENCE, self.give_back)
        self._timer.daemon = True
        self.returned = 0
        """How many were given back."""
        if len(self._left) > 1:
            try:
                self._timer.start()
            except RuntimeError:  # no thread is to be had: nobody would look after the rest
                self._keep_one()
        self._rows, self._read = ahead.rows(fresh), clock()

    def take(self) -> Held | None:
        """Return the next one to run, None if there is none."""
        with self._mutex:
            held = self._left.popleft() if self._left else None
        if held and held[0].attempts:
            self.give_back()
        return held

    def row(self, item: Item) -> Model | None:
        """Hand out the row of an item, None if its pass must read it."""
        row = self._rows.pop(item, None)
        return row if clock() - self._read < ahead.FRESH else None

    def give_back(self) -> None:
        """Let others have what isn't begun. Where Redis doesn't answer its leases end."""
        with self._mutex:
            left = [*self._left]
            self._left.clear()
            self.returned += len(left)
        try:
            self._give_back(left)
        except outage.FAULTS as error:
            logger.warning("%d items couldn't be given back: %s", len(left), error)

    @staticmethod
    def _give_back(left: Sequence[Held]) -> None:
        current, options = store.current(), {grant.item: r.options for grant, r in left}
        for grant in current.unbegun([grant for grant, _ in left]):
            tried = max(2, grant.attempts + 1)  # the pass is for others
            current.request(grant.item, grant.events, 1, options[grant.item], heal=tried)

    def close(self) -> None:
        """Give back what is left, and look after nothing any more."""
        self._timer.cancel()
        self.give_back()

    def _keep_one(self) -> None:
        first = self._left.popleft()
        self.give_back()
        self._left.append(first)
