"""System checks of receivers: their names, their keys, what they are connected to."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partialmethod
from types import FunctionType
from typing import Any, Final

from django.apps import apps
from django.contrib.auth.signals import user_login_failed
from django.core import signals as core_signals
from django.core.checks import CheckMessage, register
from django.db.backends.signals import connection_created
from django.db.models import Model, signals
from django.db.models.fields.related_descriptors import (
    ReverseManyToOneDescriptor,
    ReverseOneToOneDescriptor,
)
from django.db.models.manager import ManagerDescriptor
from django.db.models.options import Options

from . import arguments, conf, connected, keys, relations, travel
from .messages import message
from .receivers import FORBIDDEN, Receiver, registry

OF_A_ROW = (signals.post_save, signals.pre_delete, signals.post_delete)
"""Signals whose sender is the model of their instance."""
ROWLESS = (
    signals.pre_migrate,
    signals.post_migrate,
    core_signals.request_started,
    core_signals.request_finished,
    core_signals.got_request_exception,
    connection_created,
    user_login_failed,
)
"""Django's own signals that come without a row. Of others nobody knows before they are sent."""
UNFIT = (
    *(ReverseManyToOneDescriptor, ManagerDescriptor, Options),
    *(FunctionType, classmethod, staticmethod, partialmethod),
)
"""What of a model's class is many rows, or a method."""
NO_KEYS: Final = frozenset(
    f"{kind}Field"
    for kind in (
        *("Binary", "Boolean", "Date", "DateTime", "Decimal", "Duration"),
        *("File", "Float", "JSON", "Time"),
    )
)
"""Fields whose values have types that no key may have."""
ABSENT: Final = object()


@register("recheck")
def check_receivers(**kwargs: Any) -> list[CheckMessage]:
    """Check names, keys and connections of all receivers."""
    return [said for found in registry.values() for said in _receivers(found)]


def _receivers(same_name: list[Receiver[..., Any]]) -> Iterator[CheckMessage]:
    if len(same_name) > 1:
        places = " and ".join(f"{r.__module__}.{r.__qualname__}" for r in same_name)
        text = f"{len(same_name)} receivers are called {same_name[0].name!r}: {places}."
        yield message("E010", text, "Give each a name of its own: @recheck(name=...).")
    for receiver in same_name:
        yield from _former(receiver)
        yield from _connections(receiver)


def _former(receiver: Receiver[..., Any]) -> Iterator[CheckMessage]:
    for former in receiver.former_names:
        for name, (*_, other) in registry.items():
            if name != receiver.name and former in (name, *other.former_names):
                text = f"{receiver.name} was called {former!r}, and so is or was {name}."
                yield message("E019", text, f"Take {former!r} out of former_names= of one of them.")


def _connections(receiver: Receiver[..., Any]) -> Iterator[CheckMessage]:
    plain, follows = map(connected.signals_of, (receiver.func, receiver))
    for signal in plain:
        name = _short(signal)
        hint = f"Write it so:\n@receiver({name}, ...)\n@recheck\ndef {receiver.__name__}(...)"
        text = f"{receiver.name}: {name} calls the plain function, without its lock."
        yield message("E017", text, hint)
    models: dict[type[Model] | None, None] = {}
    if not (plain or follows or connected.held_strongly(receiver)):
        hint = "Write it so, in a module that ready() of an app's config imports:\n"
        hint += f"@receiver(post_save, sender=...)\n@recheck\ndef {receiver.__name__}(...)"
        yield message("W002", f"{receiver.name}: no signal calls it.", hint)
    for signal in follows:
        yield from _parameters(receiver, signal)
        name = _short(signal)
        if signal in FORBIDDEN:
            text = f"{receiver.name} follows {name}, which comes before the write."
            yield message("E016", text, f"Write post_save in place of {name}.")
        elif signal in ROWLESS and receiver.has_default_key:
            text = f"{receiver.name} follows {name}, which comes without a row to be the key."
            yield message("E018", text, 'Write @recheck(key=lambda **_: "all"), say.')
        elif signal in OF_A_ROW:
            models |= dict.fromkeys(connected.senders_of(signal, receiver))
        elif signal is signals.m2m_changed:
            throughs = connected.senders_of(signal, receiver)
            models |= dict.fromkeys(f.model for t in throughs for f in relations.fields_through(t))
    for model in models:
        if model is not None:
            yield from _carried(receiver, model)
            yield from _key(receiver, model)
        else:
            yield from _key_of_all(receiver)


def _parameters(receiver: Receiver[..., Any], signal: Any) -> Iterator[CheckMessage]:
    """Check that a signal sends all that the receiver and its callables must be called with."""
    callables = {f"{option}=": getattr(receiver, option) for option in ("key", "keys", "data")}
    for what, func in {"": receiver.func, **callables}.items():
        known = arguments.SENT.get(signal)
        if known is None or not callable(func):
            continue
        for name in arguments.missing(func, known if what else {*known, "recheck_pass"}):
            of = f"{what} of {receiver.name}" if what else receiver.name
            text = f"{of} must be called with {name!r}, and {_short(signal)} comes without it."
            yield message("E023", text, f"Give it a default: {name}=None.")


def _short(signal: Any) -> str:
    return travel.signal_name(signal).rpartition(":")[2] or "a signal"


def _columns(model: type[Model]) -> dict[str, Any]:
    """Return a model's fields by the names that an instance has their values under."""
    fields = model._meta.concrete_fields
    return {field.name: field for field in fields} | {field.attname: field for field in fields}


def _carried(receiver: Receiver[..., Any], model: type[Model]) -> Iterator[CheckMessage]:
    columns = _columns(model)
    for name in receiver.carry:
        if name not in columns:
            text = f"{receiver.name} carries {name!r}: {model._meta.label} has no such field."
            yield message("E015", text, conf.nearest(name, columns))


def _key(receiver: Receiver[..., Any], model: type[Model]) -> Iterator[CheckMessage]:
    if not isinstance(receiver.key, str):
        return
    key, label = f"{receiver.name} has the key {receiver.key!r}", model._meta.label
    fault, part, at = _follow(model, receiver.key)
    if fault == "missing":
        text = f"{key}: {at._meta.label} has no {part!r}."
        yield message("E013", text, conf.nearest(part, _columns(at)))
    elif fault == "unfit":
        hint = "Name a field, or write a callable: @recheck(key=lambda instance, **_: ...)."
        yield message(
            "E014", f"{key}: {part!r} of {at._meta.label} is no value that can be a key.", hint
        )
    elif fault == "queries":
        column = part if part in _columns(at) else model._meta.pk.attname
        hint = f"Write key={column!r}, a column of the row, and find the rest in the receiver."
        text = f"{key}: each event of {label} queries for {part!r}, unless it is loaded."
        yield message("W001", text, hint)


def _key_of_all(receiver: Receiver[..., Any]) -> Iterator[CheckMessage]:
    """Check the string key of a receiver that is connected to all models."""
    if not isinstance(receiver.key, str):
        return
    models = apps.get_models(include_auto_created=True)
    without = [m._meta.label for m in models if _follow(m, receiver.key)[0] == "missing"]
    if without:
        text = f"{receiver.name} has the key {receiver.key!r} and follows all models: "
        text += f"{len(without)} of them have no such thing, {without[0]} for one."
        yield message("E013", text, "Connect it with sender=, or write a callable key.")


def _follow(model: type[Model], path: str) -> tuple[str, str, type[Model]]:
    """Walk a key path as ``keys.follow`` will.

    Returns:
        ``"missing"``, ``"unfit"``, ``"queries"`` or ``""``; the part that is it, and where.
    """
    queries = "", "", model
    parts = path.split(".")
    for number, part in enumerate(parts, 1):
        known = _columns(model).get(part)
        found: Any = inspect.getattr_static(model, part, ABSENT)
        target: type[Model] | None = None
        if known is not None:
            if number < len(parts):
                target = keys.beyond(model, part)
            elif number == len(parts) and _last(known).get_internal_type() in NO_KEYS:
                return "unfit", part, model
        elif isinstance(found, ReverseOneToOneDescriptor):
            target = keys.beyond(model, part)
        elif isinstance(found, UNFIT):
            return "unfit", part, model
        elif part in (field.name for field in model._meta.private_fields):
            return "queries", part, model  # a generic foreign key: what follows is anything
        elif found is ABSENT and not _only_on_instances(model, part):
            return "missing", part, model
        if target is None:
            break
        queries = queries if queries[0] else ("queries", part, model)
        model = target
    return queries


def _last(field: Any) -> Any:
    """Return the field whose type a foreign key's column has."""
    while field.remote_field:
        field = field.target_field
    return field


def _only_on_instances(model: type[Model], name: str) -> bool:
    """Return whether instances may have an attribute that the class doesn't have."""
    return hasattr(model, "__getattr__") or any(
        name in inspect.get_annotations(base)
        or name in getattr(getattr(vars(base).get("__init__"), "__code__", None), "co_names", ())
        for base in model.__mro__
    )
