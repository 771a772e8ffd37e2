"""Rows of items that were claimed together, read in one query for each receiver and model.

All were granted before: a change that comes after a row was read finds its item held, and leads to
one more pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from django.db.models import Model

from . import conf
from .events import Events
from .keys import Concern
from .receivers import Receiver
from .records import Grant, Item
from .travel import Row, sender_named

FRESH: Final = 0.05
"""Seconds after which a row is read again as its pass begins: that spares most further passes."""


def rows(held: Iterable[tuple[Grant, Receiver[..., Any]]]) -> dict[Item, Model]:
    """Read the rows of some items, each for the first pass of its hold.

    Those stay out whose pass must read by itself: in a context, through ``queryset=``, or after
    its rows of the outbox.
    """
    if conf.get("CONTEXT"):
        return {}
    wanted: dict[tuple[str, type[Model], str], dict[Any, Item]] = defaultdict(dict)
    try:
        for grant, receiver in held:
            options = receiver.options
            alone = options.durable or not options.refresh or receiver.queryset is not None
            if not alone and (row := _row(grant)) is not None:
                alike = wanted[receiver.name, row.model, row.using]
                alike.setdefault(row.pk, grant.item)  # no two passes have the same instance
        return {
            items[pk]: found
            for (_, model, using), items in wanted.items()
            if len(items) > 1
            for pk, found in model._base_manager.using(using).in_bulk(items).items()
        }
    except Exception:  # whatever it is, the pass that it is about meets it, too, and tells
        return {}


def _row(grant: Grant) -> Row | None:
    """Return the row that an item's newest event is about, None if that is none."""
    groups = Events.parse(grant.count, grant.events).groups
    if not groups:
        return None
    label, values, *_ = groups[-1].content
    model = sender_named(label) if label else None
    if model is None or len(model._meta.pk_fields) > 1:
        return None
    return Row(model, Concern.parse(grant.item.text).using, values)
