"""Items that are ripe, handed out one by one to the threads of a drain."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from . import dispatch, receivers, store
from .records import Item, clock

logger = logging.getLogger("django_recheck")

BATCH: Final = 250
"""The most items that one look at a lane names, and that are claimed at once."""
SHARE: Final = 0.05
"""Seconds of passes that are claimed at once."""
SLOW: Final = 0.05
"""Seconds from which on a pass is slow: what was named beside it is given back to other workers."""
PUT_OFF: Final = 5.0
"""Seconds for which other workers don't see what this one has looked at."""


class Ripe:
    """What the last look has named and no thread has taken yet.

    It names one item of each lane, and twice as many each time while the passes turn out quick.

    Args:
        names: Receivers to look at.
        looked: Called after each look that Redis answered.
    """

    def __init__(self, names: Sequence[str], looked: Callable[[], Any]) -> None:
        self.names = names
        self._problems: dict[str, str] = {}
        self._looked = looked
        self._items: deque[Item] = deque()
        self._until = 0.0
        self._size = self._following = 1
        self._seconds = 0.0
        self._mutex = threading.Lock()

    def take(self) -> Item | None:
        """Return an item that no other thread gets, None if nothing is ripe."""
        with self._mutex:
            if not self._items:
                self._look()
            return self._items.popleft() if self._items else None

    def beside(self) -> list[Item]:
        """Return what was named besides, as much as is claimed at once."""
        with self._mutex:
            return [self._items.popleft() for _ in range(min(self._size - 1, len(self._items)))]

    def put_back(self, items: Sequence[Item]) -> None:
        """Take back items that aren't run after all."""
        with self._mutex:
            self._items.extendleft(reversed(items))

    def _look(self) -> None:
        dispatch.record_owed()
        self._until = clock() + PUT_OFF
        found = ((name, receivers.named(name)) for name in self.names)
        places = {name: receiver.options.concurrency for name, receiver in found if receiver}
        self._size = self._following
        items, problems = store.current().peek(self.names, self._size, PUT_OFF, places)
        self._items.extend(_interleaved(items))
        logger.debug("looked at %d receivers: %d items to run", len(self.names), len(items))
        room = int(SHARE / max(self._seconds, SHARE / BATCH))
        self._following = max(1, min(room, 2 * self._size))
        self._problems |= problems
        self._looked()

    def collect(self) -> dict[str, str]:
        """Hand out why receivers' keys couldn't be read, since it was last asked."""
        with self._mutex:
            found, self._problems = self._problems, {}
        return found

    def took(self, seconds: float) -> None:
        """Say how long an item has taken."""
        self._seconds = max(seconds, 0.9 * self._seconds)
        if seconds > SLOW:
            self.alone()

    def alone(self) -> None:
        """Name and claim one item at a time from now on; twice as many at each further look."""
        self._size = self._following = 1
        self.give_back()

    def give_back(self) -> None:
        """Let all workers see what was named and not taken; they do by themselves after a while."""
        with self._mutex:
            items = list(self._items)
            self._items.clear()
        if items and clock() < self._until:
            store.current().give_back(items)


def _interleaved(items: Iterable[Item]) -> list[Item]:
    """Return items so that receivers take turns: a long lane doesn't hold the others up."""
    places: Counter[str] = Counter()
    ranked = []
    for item in items:
        ranked.append((places[item.receiver], item))
        places[item.receiver] += 1
    return [item for _, item in sorted(ranked, key=lambda pair: pair[0])]
