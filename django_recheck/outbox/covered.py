"""What a pass covers: the rows that stand there when it begins, removed when it has succeeded.

Exactly those: a row that another transaction adds meanwhile, whatever its number, waits for the
next pass.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.db import Error

from ..events import Events
from ..keys import database_of
from ..records import Item
from . import table

if TYPE_CHECKING:
    from ..receivers import Receiver

logger = logging.getLogger("django_recheck")


def read(receiver: Receiver[..., Any], item: Item, events: Events) -> tuple[list[int], Events]:
    """Read an item's rows, before its pass reads anything else.

    Args:
        receiver: Whose pass it is.
        item: The item.
        events: What Redis knows of its events.

    Returns:
        The rows' primary keys, and the events with those that Redis never heard of: a deletion,
        say, whose writer has died.

    Raises:
        RecordError: The item or a row can't be read.
        Error: The database refuses.
    """
    if not (receiver.options.durable and table.installed()):
        return [], events
    try:
        rows = list(table.rows_of(item).order_by("pk").values_list("pk", "events"))
    except Error:
        if table.has_table(database_of(item.text)):
            raise
        return [], events  # it isn't migrated yet: the pass has nothing to remove
    merged = events
    for _, packed in rows:
        told = Events.parse(0, bytes(packed))
        # Where no pass reads what is newest, rows tell: they are in the order of the commits, for
        # who changes the same row waits for the one before.
        merged = merged.after(told) if receiver.options.refresh else told.after(merged)
    return [pk for pk, _ in rows], Events(events.count, merged.groups)


def remove(item: Item, rows: Sequence[int]) -> None:
    """Remove the rows that a successful pass has covered; what fails here is covered once more."""
    try:
        table.remove(database_of(item.text), rows)
    except table.FAULTS as error:
        text = "%s %s: its outbox rows stay, and lead to one more pass: %s"
        names = {"receiver": item.receiver, "key": item.text}
        logger.warning(text, *names.values(), error, extra=names)
