"""Signals of this package's own: what people want to hear of, on a bad night.

They are sent robustly: a receiver of them that raises is logged and changes nothing.
All have ``sender``, the decorated receiver; ``receiver``, its name; ``item``, the item's text as it
stands in logs; ``key``, its raw key, None if it can't be read; and what stands beside each.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from django.dispatch import Signal

from .exceptions import RecordError
from .keys import Concern
from .records import Item

if TYPE_CHECKING:
    from .receivers import Receiver

logger = logging.getLogger("django_recheck")

lease_lost = Signal()
"""A pass outlived its lease, and one more was asked for. ``fence``, ``passes`` of the hold."""
receiver_failed = Signal()
"""The receiver raised. ``error``, the exception; ``attempts`` since the last success."""
requeued = Signal()
"""A hold ended at its cap or budget with a further pass owed. ``passes`` of the hold."""
dead = Signal()
"""An item was given up. ``error``, what the receiver raised, None if it outlived its leases."""
took_over = Signal()
"""An item was taken over from a holder whose lease had ended. ``fence``; ``attempts`` so far."""


def tell(
    signal: Signal,
    level: int,
    text: str,
    receiver: Receiver[..., Any],
    item: Item,
    **details: Any,
) -> None:
    """Log what happened to an item, and send the signal that tells it."""
    named = {"receiver": receiver.name, "item": item.text}
    error = details.get("error")
    extra = {"receiver": receiver.name, "key": item.text}
    logger.log(level, f"%s %s: {text}", *named.values(), extra=extra, exc_info=error)
    try:
        key = Concern.parse(item.text).key
    except RecordError:
        key = None
    signal.send_robust(sender=receiver, key=key, **named, **details)
