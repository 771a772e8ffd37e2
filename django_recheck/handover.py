"""Items that older code recorded, under another name or another kind of key: given to today's.

Run as they are they would have a lock of their own, beside that of the same row's new events.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from django.db.models import Model

from . import context, store
from .events import Call, Events
from .keys import Concern, field_at, root_of
from .outbox import table
from .records import Grant, Item

if TYPE_CHECKING:
    from .receivers import Receiver

logger = logging.getLogger("django_recheck")


def heir(receiver: Receiver[..., Any], grant: Grant) -> Item | None:
    """Return the item that this code would have recorded, None if that is the very same.

    Whether a callable's key is of another kind nobody can tell: such an item keeps its own.
    """
    text = _text_of_today(receiver, grant) or grant.item.text
    item = Item(receiver.name, text)
    return None if item == grant.item else item


def give(receiver: Receiver[..., Any], grant: Grant, to: Item) -> None:
    """Record what an item's holder has to do for another item, and let go of it.

    In this order: who dies in between leaves it owed twice. What isn't taken is tried again as a
    pass that failed.

    Raises:
        RedisError: Redis doesn't answer. The lease ends, and the item is found again.
    """
    error = ""
    try:
        if receiver.options.durable and table.installed():
            table.move(grant.item, to)
        entry = store.Entry(to, grant.count, grant.events, receiver.options)
        (answer,) = store.current().enqueue([entry])
        error = "" if answer in ("PENDING", "COALESCED") else str(answer)
    except table.FAULTS as raised:
        error = str(raised)
    if error:
        names = {"receiver": grant.item.receiver, "key": grant.item.text}
        text = "%s %s: can't be given to %s %s: %s"
        logger.warning(text, *names.values(), to.receiver, to.text, error, extra=names)
    word = "failed" if error else "ok"
    store.current().finish(grant, word, receiver.options, last=True, error=error)


def _text_of_today(receiver: Receiver[..., Any], grant: Grant) -> str:
    """Return the text of the item that a row's event has by now, if its key is of another kind."""
    if receiver.keys is not None or callable(receiver.key):
        return ""
    try:
        concern = Concern.parse(grant.item.text)
        newest = Events.parse(grant.count, grant.events).groups[-1]
        if receiver.has_default_key and _is_of(concern.typed, newest.model):
            return ""  # most are, and the rest costs a tenth of a drain
        call = Call.of(newest, concern.using)
        known = call.row and (not receiver.key or field_at(call.row.model, receiver.key))
        if not known:
            return ""
        with context.restore(concern.context):
            (item,) = receiver.items(call.named(), concern.using)
        same = _kind(Concern.parse(item.text).typed) == _kind(concern.typed)
        return "" if same else item.text
    except Exception:  # whatever it is, the pass meets it too, and tells
        return ""


def _is_of(typed: Any, model: type[Model] | None) -> bool:
    """Return whether a key is a row of a model, as the default key is."""
    return (
        isinstance(typed, dict) and model is not None and root_of(model)._meta.label_lower in typed
    )


def _kind(typed: Any) -> Any:
    """Return what of a key doesn't depend on the row: its types, and the model of an instance."""
    if isinstance(typed, list):
        return [*map(_kind, typed)]
    return [*typed] if isinstance(typed, dict) else type(typed)
