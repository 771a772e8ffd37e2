"""Which rows a many-to-many change is about, where Django's signal names only one of them.

Added from the other side, a change concerns each of the rows that hold the relation, and a
symmetrical one concerns both ends.
A clear doesn't say whom it concerns, so this is looked up before it happens.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.db.models import ForeignKey, ManyToManyField, Model, QuerySet
from django.db.models.base import ModelState

from . import travel

if TYPE_CHECKING:
    from .receivers import Receiver

Named = Mapping[str, Any]

_cleared: weakref.WeakKeyDictionary[ModelState, dict[Any, frozenset[Any]]] = (
    weakref.WeakKeyDictionary()
)
"""Who was there before a clear, by the state of the instance that both its signals have."""


def fields_through(through: Any) -> list[ManyToManyField[Any, Any]]:
    """Return the relations that a through model makes, on the models that declare them."""
    return [
        field
        for model in apps.get_models()
        for field in model._meta.local_many_to_many
        if field.remote_field.through is through
    ]


def concerned(receiver: Receiver[..., Any], named: Named, using: str) -> list[Named]:
    """Return one call for each row that a change concerns, all seen from the relation's own side.

    A callable key gets the change as Django tells it, once, but for ``pk_set``: on a clear it is
    who was there.

    Args:
        receiver: Whose key it is for.
        named: What ``m2m_changed`` was sent with.
        using: The database of the change.
    """
    instance, model = named.get("instance"), named.get("model")
    if not isinstance(instance, Model) or not isinstance(model, type):
        return [named]
    reverse = bool(named.get("reverse"))
    owner: type[Model] = model if reverse else type(instance)
    through: Any = named.get("sender")
    fields = (f for f in owner._meta.many_to_many if f.remote_field.through is through)
    field = next(fields, None)
    if not isinstance(field, ManyToManyField):
        return [named]  # of a package that sends the signal for a relation of its own
    both = bool(field.remote_field.symmetrical)
    plain = receiver.has_default_key or isinstance(receiver.key, str)
    if plain and not (reverse or both):
        return [named]
    ends = _End(field, reverse, using)
    named = {**named, "pk_set": _pk_set(named, instance, ends)}
    if not plain or named["pk_set"] is None:
        return [named]
    mirrored = list(ends.mirrored(receiver, named, instance))
    return [named, *mirrored] if both else mirrored


def _pk_set(named: Named, instance: Model, ends: _End) -> Iterable[Any] | None:
    """Return who is concerned: as sent, or on a clear who is there before it."""
    if named["action"] == "pre_clear":
        found = frozenset(ends.others_of(instance))
        _cleared.setdefault(instance._state, {})[ends.key] = found
        return set(found)
    if named["action"] == "post_clear":
        there = _cleared.get(instance._state, {}).get(ends.key)
        return None if there is None else set(there)
    return named.get("pk_set")


class _End:
    """A relation as it looks from the row that the signal names."""

    def __init__(self, field: ManyToManyField[Any, Any], reverse: bool, using: str) -> None:
        self.through: Any = field.remote_field.through
        names: Any = (field.m2m_field_name(), field.m2m_reverse_field_name())
        self.near, self.far = (names[1], names[0]) if reverse else names
        self.using = using
        self.key = self.through, self.near

    def _field(self, name: str) -> ForeignKey[Any, Any]:
        field: ForeignKey[Any, Any] = self.through._meta.get_field(name)
        return field

    def others_of(self, instance: Model) -> Iterable[Any]:
        """Return the keys of all rows at the other end."""
        rows: QuerySet[Any] = self.through._base_manager.using(self.using)
        far = self._field(self.far).attname
        return rows.filter(**{self.near: instance}).values_list(far, flat=True)

    def mirrored(
        self, receiver: Receiver[..., Any], named: Named, instance: Model
    ) -> Iterator[Named]:
        """Yield the change as each row at the other end would tell it."""
        mine = getattr(instance, self._field(self.near).target_field.attname)
        for row in self._rows(receiver, sorted(named["pk_set"], key=str)):
            yield {
                **named,
                "instance": row,
                "reverse": False,
                "model": type(instance),
                "pk_set": {mine},
                "action": named["action"].replace("clear", "remove"),  # it loses this one alone
            }

    def _rows(self, receiver: Receiver[..., Any], keys: list[Any]) -> Iterable[Model]:
        """Return rows by their keys: with all values only where the receiver's event needs them."""
        target = self._field(self.far).target_field
        model: type[Model] = target.model
        known = target.primary_key and not target.remote_field
        if known and receiver.has_default_key and not (receiver.carry or receiver.data):
            values = ({target.attname: key} for key in keys)
            return [travel.Row(model, self.using, value).restored() for value in values]
        rows = model._base_manager.using(self.using).filter(**{f"{target.name}__in": keys})
        return rows.iterator()
