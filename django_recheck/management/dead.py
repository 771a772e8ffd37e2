"""``--retry-dead``: let what was given up be tried again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django_recheck import store, views
from django_recheck.records import Item

PAGE = 200


def retry(names: Sequence[str], items: Sequence[Item] | None = None) -> int:
    """Let dead items be tried now, as if they had never failed.

    Args:
        names: The receivers whose items are meant.
        items: Only these, if they are dead.

    Returns:
        How many there were.
    """
    pages = _pages(names) if items is None else [views.items(store.current(), items)]
    return sum(_retried(page) for page in pages)


def _retried(page: Sequence[views.View]) -> int:
    seen = [(view.item, view.seen) for view in page if view.state == "dead"]
    return store.current().retry(seen).count("DONE")


def _pages(names: Sequence[str]) -> Iterator[list[views.View]]:
    """Yield what is dead now, once: what is retried leaves, and what dies meanwhile comes last."""
    current = store.current()
    for name, counted in views.counts(current, names).items():
        left, start = counted.dead, 0
        while left > 0 and (page := views.page(current, name, "dead", start, min(PAGE, left))):
            yield page
            left -= len(page)
            start += sum(v.state == "dead" for v in views.items(current, [v.item for v in page]))
