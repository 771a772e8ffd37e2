"""What is asked for without a signal: rows and keys given by hand, and the events they stand for.

A key given by hand becomes the one that a signal would give: ``"65"`` and 65 are one row's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.core.signals import setting_changed
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db.models import Field, ForeignKey, Model, signals

from . import connected, context, relations, travel
from .events import Events, from_signal
from .keys import Concern, field_at, item_text, primary_key, root_of, to_python
from .outage import Ready
from .passes import depth_here
from .records import Item

if TYPE_CHECKING:
    from .receivers import Receiver

OF_ROWS = (signals.post_save, signals.pre_delete, signals.post_delete, signals.m2m_changed)
"""Signals whose instance is surely a row of a model that they are connected for."""


class ByHand:
    """What a receiver follows, looked up once for all rows and keys of one call."""

    def __init__(self, receiver: Receiver[..., Any]) -> None:
        self.receiver = receiver
        self.signals = connected.signals_of(receiver)
        senders = {s: connected.senders_of(s, receiver) for s in self.signals}
        self._saves = senders.get(signals.post_save, [])
        found = (m for s in self.signals for m in self._of_rows(s, senders[s]))
        self.models: list[type[Model]] = list(dict.fromkeys(found))
        self._alike: dict[str, Events] = {}
        self._fields: dict[str, list[Field[Any, Any] | None]] = {}
        self._any_model = any(None in senders.get(signal, ()) for signal in OF_ROWS)
        self._known = bool(senders) and all(
            signal in OF_ROWS and None not in models for signal, models in senders.items()
        )

    def follows(self, model: type[Model]) -> bool:
        """Return whether it is connected for a model's rows, or for all models'."""
        kinds = (followed._meta.concrete_model or followed for followed in self.models)
        return self._any_model or any(issubclass(model, kind) for kind in kinds)

    def _of_rows(self, signal: Any, senders: list[type[Model] | None]) -> Iterator[type[Model]]:
        """Yield the models whose rows an event may be about; the relation's own side for many."""
        for sender in filter(None, senders):
            if signal is not signals.m2m_changed:
                yield sender
                continue
            for field in relations.fields_through(sender):
                yield field.model
                if callable(self.receiver.key) or self.receiver.keys is not None:
                    yield field.related_model

    def alias(self, using: str | None, target: Any) -> str:
        """Return the database that something asked for is about: by default where a row is saved.

        Raises:
            ValueError: There is no such database.
        """
        if using is None and isinstance(target, Model):
            using = router.db_for_write(type(target), instance=target)  # not where it was read
        if using is None:
            return DEFAULT_DB_ALIAS
        if using not in connections:
            raise ValueError(f"{self.receiver.name}: DATABASES has no {using!r}.")
        return using

    def wanted(self, target: Any, using: str) -> list[Ready]:
        """Return the items that a row concerns, or the one of a key."""
        if not isinstance(target, Model):
            return [self.of_key(target, using)]
        named = self.named(self.sender_of(target), target, using)
        events = from_signal(self.receiver, named["signal"], named, depth_here())
        return [Ready(self.receiver, item, events) for item in self.receiver.items(named, using)]

    def of_key(self, key: Any, using: str) -> Ready:
        """Return the item of a key."""
        text = item_text(self.key_of(key), using, context.capture())
        events = self._alike.get(using)
        if events is None:
            events = self.event_of(Concern.parse(text))
        if not self.receiver.has_default_key:  # no row is known, and all keys' events are the same
            self._alike[using] = events
        return Ready(self.receiver, Item(self.receiver.name, text), events)

    def sender_of(self, row: Model) -> type[Model]:
        """Return the model as which a row is followed: its own, or one that it is a child of.

        Raises:
            TypeError: The receiver follows other models.
            ValueError: It was never saved.
        """
        name, label = self.receiver.name, row._meta.label
        if None in (row.pk if isinstance(row.pk, tuple) else (row.pk,)):
            raise ValueError(f"{name}: this {label} has no primary key: save it first.")
        kinds: list[type] = [kind for kind in type(row).__mro__ if kind in self.models]
        kinds += [m for m in self.models if isinstance(row, m._meta.concrete_model or m)]
        if not kinds and self._known:
            labels = ", ".join(model._meta.label for model in self.models)
            raise TypeError(
                f"{name} follows {labels}, and this is a row of {label}: "
                "pass a row of its own, or a key as key=."
            )
        return kinds[0] if kinds else type(row)

    def key_of(self, key: Any) -> Any:
        """Return a key as a signal would give it; what a callable returns is nobody's to convert.

        Raises:
            TypeError: It doesn't say which row is meant.
            ValueError: The field that the key is a value of can't have it.
        """
        if self.receiver.has_default_key:
            return self._row(key)
        if not isinstance(self.receiver.key, str):
            return key
        path = self.receiver.key
        found, wrong = [], None
        if path not in self._fields:
            self._fields[path] = [field_at(model, path) for model in self.models] or [None]
        for field in self._fields[path]:
            try:
                found.append(key if field is None else self._value(field, key))
            except ValueError as error:
                wrong = wrong or error
        if wrong and not found:
            raise wrong
        same = [value for value in found if type(value) is type(key) and value == key]
        if not same and len({(type(value), value) for value in found}) > 1:
            raise ValueError(
                f"{self.receiver.name}: {key!r:.200} is another key for each of its models: "
                "pass the instance."
            )
        return (same or found)[0]

    def _row(self, key: Any) -> Any:
        """Return the row that a default key is, with nothing but its primary key."""
        if isinstance(key, Model):
            self.sender_of(key)
            return key
        name, roots = self.receiver.name, {root_of(model) for model in self.models}
        if len(roots) > 1 or (not roots and {*self.signals} - {setting_changed}):
            labels = ", ".join(model._meta.label for model in self.models)
            raise TypeError(
                f"{name} follows {labels or 'no model of its own'}: "
                f"pass the instance instead of key={key!r:.200}."
            )
        for root in roots:
            return self._instance(root, DEFAULT_DB_ALIAS, self._value(primary_key(root), key))
        return key

    def _value(self, field: Field[Any, Any], key: Any) -> Any:
        """Return a key as a field's value: a text read, a number or UUID written, else as it is."""
        if isinstance(field, ForeignKey) and isinstance(key, field.target_field.model):
            key = getattr(key, field.target_field.attname)
        try:
            value = to_python(field, key)
        except (ValidationError, TypeError, ValueError) as error:
            raise self._unfit(field, key, *getattr(error, "messages", ())) from None
        pairs = zip(value, key, strict=True) if isinstance(value, tuple) else ((value, key),)
        if not all(_same(*pair) for pair in pairs):
            raise self._unfit(field, key)
        return value

    def _unfit(self, field: Field[Any, Any], key: Any, *why: str) -> ValueError:
        said = f"{self.receiver.name}: {key!r:.200} can't be its key, which is a value of {field}"
        return ValueError(": ".join((said, *why[:1])).rstrip(".") + ".")

    @staticmethod
    def _instance(model: type[Model], using: str, pk: Any) -> Model:
        return travel.Row(model, using, travel.key_values(model, pk)).restored()

    def event_of(self, concern: Concern) -> Events:
        """Return the event of a key that nothing else is known of."""
        models, instance = self.models, None
        if self.receiver.has_default_key and isinstance(concern.typed, dict):
            (label,) = concern.typed
            rooted = (model for model in models if root_of(model)._meta.label_lower == label)
            models = sorted(rooted, key=lambda model: len(model.__mro__))[:1]
            model = models[0] if models else travel.sender_named(label)
            if model is not None:
                instance = self._instance(model, concern.using, concern.key)
        sender = models[0] if len(models) == 1 else None
        named = self.named(sender, instance, concern.using)
        depth = depth_here()
        return from_signal(self.receiver, named["signal"], named, depth, key_alone=True)

    def named(self, sender: Any, instance: Model | None, using: str | None) -> dict[str, Any]:
        """Return what the receiver gets without a signal: as a save, where it follows saves."""
        named = {"signal": None, "sender": sender, "instance": instance, "using": using}
        if self._saves and (sender is None or sender in self._saves or None in self._saves):
            save = {"signal": signals.post_save, "created": False, "raw": False}
            named |= {**save, "update_fields": None}
        return named


def _same(value: Any, key: Any) -> bool:
    """Return whether a field's value is what was given, but for being read or written."""
    if isinstance(key, bool) or value is None:
        return False
    written = isinstance(value, str) and isinstance(key, (int, UUID))
    return isinstance(key, str) or written or bool(value == key)
