"""What of a signal's arguments crosses Redis, and how it comes back. JSON only, never pickle.

A name that comes out of Redis is looked up among what this process has loaded already; nothing is
imported for it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.apps import AppConfig, apps
from django.core.exceptions import ValidationError
from django.db.models import Field, Model, signals
from django.db.models.base import ModelState
from django.dispatch import Signal

from .exceptions import EventError
from .keys import as_json

SIGNALS: dict[str, Signal] = {
    name: getattr(signals, name)
    for name in (
        "post_save",
        "pre_delete",
        "post_delete",
        "m2m_changed",
        "post_migrate",
    )
}
"""Django's own, by the names that stand in records."""

STAYS_BEHIND: dict[str, frozenset[str]] = {
    "pre_delete": frozenset({"origin"}),
    "post_delete": frozenset({"origin"}),
    "post_migrate": frozenset({"app_config", "apps", "plan", "stdout"}),
    "django.core.signals:setting_changed": frozenset({"value"}),
    "django.contrib.auth.signals:user_logged_in": frozenset({"request"}),
    "django.contrib.auth.signals:user_logged_out": frozenset({"request"}),
    "django.contrib.auth.signals:user_login_failed": frozenset({"request", "credentials"}),
    "django_recheck.signals:receiver_failed": frozenset({"error"}),
    "django_recheck.signals:dead": frozenset({"error"}),
}
"""Arguments of known signals that can't travel; the receiver gets None for them."""
NOTHING = ""
"""Stands for an argument that stayed behind because ``data=`` has seen it."""


@functools.cache
def signal_name(signal: Signal | None) -> str:
    """Return the name by which a signal is found again: module and attribute, "" without one."""
    for name, known in SIGNALS.items():
        if known is signal:
            return name
    found = [
        f"{path}:{attribute}"
        for path, module in list(sys.modules.items())
        for attribute, value in list(getattr(module, "__dict__", {}).items())
        if value is signal and signal is not None
    ]
    return min(found, key=lambda path: (".signals:" not in path, len(path), path), default="")


def signal_named(name: str) -> Signal | None:
    """Return the signal of that name, None if this process has none."""
    if name in SIGNALS:
        return SIGNALS[name]
    module, _, attribute = name.partition(":")
    found = _loaded(module, attribute)
    return found if isinstance(found, Signal) else None


def _loaded(module: str, attribute: str) -> Any:
    """Return what a module has, past any ``__getattr__`` of it that imports what is asked for."""
    return getattr(sys.modules.get(module), "__dict__", {}).get(attribute)


def sender_name(sender: Any) -> str:
    """Return the name by which a sender is found again, "" for what has none.

    It is a model's label, another class's path, ``=`` and a text, or ``@`` and an app's label.
    """
    if isinstance(sender, type):
        if issubclass(sender, Model):
            return str(sender._meta.label_lower)
        return f"{sender.__module__}:{sender.__qualname__}"
    if isinstance(sender, str):
        return f"={sender}"
    return f"@{sender.label}" if isinstance(sender, AppConfig) else ""


def sender_named(name: str) -> Any:
    """Return the sender of that name, None if this process has none."""
    if name.startswith("="):
        return name[1:]
    if name.startswith("@"):
        return apps.app_configs.get(name[1:])
    module, colon, attribute = name.partition(":")
    if colon:
        found = _loaded(module, attribute)
        return found if isinstance(found, type) else None
    try:
        return apps.get_model(name) if name else None
    except (LookupError, ValueError):
        return None


def field_values(instance: Model, names: Iterable[str]) -> dict[str, Any]:
    """Return a row's primary key, its foreign keys and the named fields, as JSON.

    Fields that aren't loaded stay out: an event costs no query.

    Raises:
        EventError: A named field's value can't be written as JSON, nor as Django's serializers do.
    """
    values = {}
    for field in _travelling(type(instance), tuple(names)):
        if field.attname in instance.__dict__:
            value = instance.__dict__[field.attname]
            if hasattr(value, "resolve_expression"):
                continue  # F("stock") - 1: only the database knows
            try:
                values[field.attname] = _out(field, instance, value)
            except (TypeError, ValueError, ValidationError):
                raise EventError(
                    f"The field {field} can't be carried: {type(value).__name__} is no JSON."
                ) from None
    return values


@functools.lru_cache(1024)
def _travelling(model: type[Model], names: tuple[str, ...]) -> tuple[Field[Any, Any], ...]:
    named, keys = set(names), pk_fields(model)
    return tuple(
        field
        for field in model._meta.concrete_fields
        if field in keys or field.remote_field or named & {field.name, field.attname}
    )


def _out(field: Field[Any, Any], instance: Model, value: Any) -> Any:
    """Return a field's value as ``to_python`` takes it back: JSON, or the serializers' text."""
    try:
        return as_json(value)
    except TypeError:
        text = as_json(field.value_to_string(instance))
        if field.to_python(text) != value:
            raise
        return text


def pk_fields(model: type[Model]) -> list[Field[Any, Any]]:
    """Return the columns of a primary key: several of a composite key, and a child's parents'."""
    fields = list(model._meta.pk_fields)
    while (link := fields[-1].remote_field) and getattr(link, "parent_link", False):
        fields += link.model._meta.pk_fields
    return fields


def key_values(model: type[Model], key: Any) -> dict[str, Any]:
    """Return a primary key's value by its columns."""
    own = model._meta.pk_fields
    if len(own) > 1:
        return {field.attname: part for field, part in zip(own, key, strict=True)}
    return {field.attname: key for field in pk_fields(model)}


@dataclass(frozen=True, slots=True)
class Row:
    """A row that an event was about: where it is, and what the event carried of it."""

    model: type[Model]
    using: str
    values: Mapping[str, Any]

    @property
    def pk(self) -> Any:
        """Its primary key, a tuple where it is a composite one."""
        own = self.model._meta.pk_fields
        parts = tuple(field.to_python(self.values[field.attname]) for field in own)
        return parts if len(own) > 1 else parts[0]

    def read(self, shape: Callable[[Any], Any] | None = None) -> Model | None:
        """Read it again, past custom default managers and from where the event wrote.

        Args:
            shape: The receiver's ``queryset=``, given the queryset and returning one.

        Returns:
            The row, None if it is gone.

        Raises:
            TypeError: The shape makes something else of a row.
        """
        rows = self.model._base_manager.using(self.using)
        found = [*(shape(rows) if shape else rows).filter(pk=self.pk)[:1]]  # first() would sort
        if found and not isinstance(found[0], Model):
            raise TypeError(f"queryset= must give model instances, not {type(found[0]).__name__}.")
        return found[0] if found else None

    def restored(self) -> Model:
        """Return an instance that has just these values; other fields count as not loaded.

        Without ``__init__``: one that looks at fields would load them, of a row that is gone.
        """
        instance = self.model.__new__(self.model)
        instance._state = ModelState()
        instance._state.adding, instance._state.db = False, self.using
        for field in self.model._meta.concrete_fields:
            if field.attname in self.values:
                setattr(instance, field.attname, field.to_python(self.values[field.attname]))
        return instance


def arguments_out(
    signal: str, arguments: Mapping[str, Any], *, dropping: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a signal's arguments into plain JSON, and references to models and saved rows.

    Args:
        signal: Its name.
        arguments: What it was sent with.
        dropping: Give None for what is neither, as the receiver's ``data=`` has seen it.

    Raises:
        EventError: An argument is neither.
    """
    plain: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    for name, value in arguments.items():
        if name in STAYS_BEHIND.get(signal, ()):
            plain[name] = None
        elif isinstance(value, Model) and value.pk is not None:
            rows[name] = [value._meta.label_lower, value._state.db, field_values(value, ())]
        elif isinstance(value, type) and issubclass(value, Model):
            rows[name] = [value._meta.label_lower]
        else:
            try:
                plain[name] = as_json(value)
            except (TypeError, ValueError) as error:
                if dropping:
                    rows[name] = [NOTHING]
                    continue
                raise EventError(
                    f"The argument {name!r} of {signal or 'the signal'} can't travel: "
                    f"it is neither JSON nor a saved model instance ({error}). "
                    "Send what can, or give the receiver what it needs with data=."
                ) from None
    return plain, rows


def referred(label: str, *where: Any) -> Any:
    """Return the model that an argument refers to, or read the row of it; None if it is gone."""
    model = sender_named(label)
    return Row(model, *where).read() if where and model is not None else model
