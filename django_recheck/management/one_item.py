"""``--key``: a drain of one item alone, and why there was nothing to run."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from django_recheck import lookup, store, survey
from django_recheck.board import Row, busy
from django_recheck.records import Item
from django_recheck.worker import Drain


def meant(names: Sequence[str], key: str) -> list[Item]:
    """Return the items that a key of a receiver may mean, likeliest first.

    Args:
        names: The receiver's name, and its former ones.
        key: As a person types it.
    """
    return [Item(name, text) for name in names for text in lookup.texts(name, key)]


class OneItem(Drain):
    """What is ripe of the items that somebody means."""

    def __init__(self, items: Sequence[Item], **options: Any) -> None:
        super().__init__([items[0].receiver], **options)
        self._items = deque(items)

    def _take(self) -> Item | None:
        return self._items.popleft() if self._items else None


def state(items: Sequence[Item]) -> str:
    """Say where the item stands that is meant, and what it waits for."""
    names = dict.fromkeys(item.receiver for item in items)
    found = survey.survey(store.current(), names, items=lambda _: items, others=False)
    view = next((view for view in found.items if view.state != "idle"), found.items[0])
    numbers = found.numbers[view.item.receiver]
    taken = busy(numbers, view.item)
    return Row.of(view, found.now, paused=numbers.paused, busy=taken).waits_for()
