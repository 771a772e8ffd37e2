"""Keys and items: what a lock is about, as one canonical text that can be read back.

A key is an int, a str, a UUID, a saved model instance, or a tuple of these.
Its text is JSON, so ``42`` and ``"42"`` are two keys, and ``redis-cli`` shows what is meant.
An item's text is the key's, then the database's alias and the captured context where they aren't
the default.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import NoneType
from typing import Any, Final
from uuid import UUID

from django.apps import apps
from django.core.exceptions import ValidationError
from django.db import DEFAULT_DB_ALIAS
from django.db.models import CompositePrimaryKey, Field, Model
from django.db.models.fields.related_descriptors import ReverseOneToOneDescriptor

from .exceptions import EventError, RecordError

MOST: Final = 10**1000
"""Whole numbers from here on are no keys: Python doesn't write all of them."""


_canonical: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True)
"""Made once: ``json.dumps()`` makes one for every call that wants another form than its own."""


def dumps(value: Any) -> str:
    """Return canonical JSON: ASCII, no spaces, sorted."""
    return _canonical.encode(value)


def as_json(value: Any) -> Any:
    """Return what JSON gives back of a value: tuples as lists, everything else as it was.

    Raises:
        TypeError: It is no JSON.
        ValueError: It contains itself, or a dict of it has keys that aren't texts.
    """
    if type(value) in (str, bool, NoneType) or (type(value) is int and abs(value) < MOST):
        return value  # most are, and there is nothing to find out
    text = json.dumps(value)
    if not _keyed_by_texts(value):
        raise ValueError("JSON's objects have only texts as keys")
    return json.loads(text)


def _keyed_by_texts(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(k, str) and _keyed_by_texts(v) for k, v in value.items())
    return not isinstance(value, (list, tuple)) or all(map(_keyed_by_texts, value))


def root_of(model: type[Model]) -> type[Model]:
    """Return the model whose table gives the primary key: past proxies and multi-table children."""
    model = model._meta.concrete_model or model
    while model._meta.pk.remote_field and getattr(
        model._meta.pk.remote_field, "parent_link", False
    ):
        model = model._meta.pk.remote_field.model
    return model


def primary_key(model: type[Model]) -> Field[Any, Any]:
    """Return the field whose ``to_python`` gives a model's key its one type."""
    return root_of(model)._meta.pk


def typed(value: Any) -> Any:
    """Return a key as JSON that keeps its type.

    Raises:
        EventError: It has a type that no key may have.
    """
    if isinstance(value, Model):
        root = root_of(type(value))
        if value.pk is None:
            raise EventError(
                f"A {value._meta.label} that was never saved can't be a key: it has no primary key."
            )
        pk = _one_type(primary_key(type(value)), value.pk)
        if isinstance(pk, Decimal):
            pk = pk.normalize()  # 1.5 and 1.50 are one row
        known = pk if isinstance(pk, (int, str, UUID, tuple)) else str(pk)
        return {root._meta.label_lower: typed(known)}
    if isinstance(value, UUID):
        return {"uuid": str(value)}
    if isinstance(value, tuple):
        return [typed(part) for part in value]
    if isinstance(value, str):
        return str.__str__(value)  # the text that it equals, also where an enum's str() has another
    if isinstance(value, int) and not isinstance(value, bool):
        if abs(value) >= MOST:
            raise EventError("A key can't be a whole number of more than 1,000 digits.")
        return int(value)
    raise EventError(
        f"A key can't be {value!r:.200} ({type(value).__name__}): it is an int, a str, a UUID, "
        "a saved model instance, a tuple of these, or None to ignore the event."
    )


def untyped(value: Any) -> Any:
    """Return the key that ``typed`` made JSON of; a model instance's is its primary key."""
    if isinstance(value, list):
        return tuple(map(untyped, value))
    if isinstance(value, dict):
        ((kind, inner),) = value.items()
        if kind == "uuid":
            return UUID(inner)
        return primary_key(apps.get_model(kind)).to_python(untyped(inner))
    return value


def item_text(key: Any, using: str = DEFAULT_DB_ALIAS, context: Any = None) -> str:
    """Return the canonical text of an item.

    Args:
        key: The key, as a receiver's key callable may return it.
        using: The database that the event came from.
        context: What ``CONTEXT`` captured, JSON or None.

    Raises:
        EventError: The key has a type that no key may have.

    >>> item_text((7, "de"))
    '[7,"de"]'
    >>> item_text(7, "archive")
    '7 "archive"'
    """
    parts = [dumps(typed(key))]
    if using != DEFAULT_DB_ALIAS or context is not None:
        parts.append(dumps(using))
    if context is not None:
        parts.append(dumps(context))
    return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Concern:
    """What an item's text says: the raw key, the database and the context."""

    typed: Any
    """The key as JSON that keeps its type."""
    key: Any
    """As the receiver's key gave it; a model instance is its primary key."""
    using: str
    context: Any

    @classmethod
    def parse(cls, text: str) -> Concern:
        """Read an item's text.

        Raises:
            RecordError: It is no item's text, or names a model that this process doesn't have.
        """
        typed, using, context = _parts(text)
        try:
            key = untyped(typed)
        except Exception as error:  # whatever stands in Redis, and whatever to_python makes of it
            raise _unreadable(text, error) from error
        return cls(typed, key, using, context)


def database_of(text: str) -> str:
    """Return the database that an item's events come from, also where its model isn't known.

    Raises:
        RecordError: It is no item's text.

    >>> database_of('7 "archive"')
    'archive'
    """
    _, using, _ = _parts(text)
    return using


def _parts(text: str) -> tuple[Any, str, Any]:
    """Return the key as JSON, the database and the context."""
    decoder, at, values = json.JSONDecoder(), 0, []
    try:
        while at < len(text):
            value, at = decoder.raw_decode(text, at)
            values.append(value)
            at += 1
        using = values[1] if len(values) > 1 else DEFAULT_DB_ALIAS
        if not 1 <= len(values) <= 3 or not isinstance(using, str):
            raise ValueError("an item has a key, a database and a context")
    except (ValueError, RecursionError) as error:
        raise _unreadable(text, error) from error
    return values[0], using, values[2] if len(values) > 2 else None


def _unreadable(text: str, error: Exception) -> RecordError:
    return RecordError(f"The item {text[:200]!r} can't be read: {error}")


def follow(path: str, named: Mapping[str, Any]) -> Any:
    """Return what a key path leads to, from the instance on, or from the arguments without one.

    A path that ends in a foreign key takes its column, which needs no query.
    """
    value: Any = named.get("instance")
    parts = path.split(".")
    for number, part in enumerate(parts, 1):
        if value is None and part in named:
            value = named[part]
        elif isinstance(value, Model):
            value = _attribute(value, part, last=number == len(parts))
        else:
            value = getattr(value, part)
        if value is None:
            return None
    return value


def _attribute(instance: Model, name: str, *, last: bool) -> Any:
    for field in instance._meta.concrete_fields:
        if name == field.attname or (name == field.name and last):
            return _one_type(field, getattr(instance, field.attname))
    value = getattr(instance, name)
    return _one_type(instance._meta.pk, value) if name == "pk" else value


def field_at(model: type[Model], path: str) -> Field[Any, Any] | None:
    """Return the field whose value a key path leads to, None if that isn't a field's."""
    *relations, last = path.split(".")
    for part in relations:
        if (target := beyond(model, part)) is None:
            return None
        model = target
    fields = [f for f in model._meta.concrete_fields if last in (f.name, f.attname)]
    return model._meta.pk if last == "pk" else next(iter(fields), None)


def beyond(model: type[Model], name: str) -> type[Model] | None:
    """Return the model that a relation to one row leads to, None if it is no such relation."""
    for field in model._meta.concrete_fields:
        if field.name == name and field.is_relation:
            return field.related_model
    found = inspect.getattr_static(model, name, None)
    return found.related.related_model if isinstance(found, ReverseOneToOneDescriptor) else None


def to_python(field: Field[Any, Any], value: Any) -> Any:
    """Return a value as it comes out of the database, a composite key's part by part.

    Raises:
        ValidationError: The field can't have it.
        TypeError, ValueError: A composite key has other parts.
    """
    if isinstance(field, CompositePrimaryKey):
        if not isinstance(value, (tuple, list)):
            raise TypeError
        parts: tuple[Any, ...] = field.fields
        pairs = zip(parts, value, strict=True)
        return tuple(part.to_python(inner) for part, inner in pairs)
    return field.to_python(value)


def _one_type(field: Field[Any, Any], value: Any) -> Any:
    """Return a value as it comes out of the database: "5" and 5 are one key of a number's field."""
    if value is None or hasattr(value, "resolve_expression"):
        return value
    try:
        return to_python(field, value)
    except ValidationError as error:
        raise EventError(f"{value!r} of {field} can't be a key: {error.messages[0]}") from error
