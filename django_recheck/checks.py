"""System checks of settings, cache and receivers. They connect to nothing.

What only the server knows is asked by ``check --deploy``, in ``deploy_checks``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partialmethod
from types import FunctionType
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.contrib.auth.signals import user_login_failed
from django.core import signals as core_signals
from django.core.checks import CheckMessage, register
from django.core.exceptions import ImproperlyConfigured
from django.db.backends.signals import connection_created
from django.db.models import Model, signals
from django.db.models.fields.related_descriptors import (
    ReverseManyToOneDescriptor,
    ReverseOneToOneDescriptor,
)
from django.utils.module_loading import import_string
from django_redis.cache import RedisCache
from django_redis.client import ShardClient

from . import conf, connected, deploy_checks, travel
from .deploy_checks import message
from .receivers import FORBIDDEN, Receiver, named, registry

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
UNFIT = (ReverseManyToOneDescriptor, FunctionType, classmethod, staticmethod, partialmethod)
"""What of a model's class is many rows, or a method."""


@register("recheck")
def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """Check each name and value of ``RECHECK``."""
    return list(_settings())


def _settings() -> Iterator[CheckMessage]:
    mine = getattr(django_settings, "RECHECK", {})
    if not isinstance(mine, Mapping):
        text = f"RECHECK is {mine!r}, and must be a dict."
        yield message("E001", text, 'Write RECHECK = {"CACHE": "default"}, or leave it out.')
        return
    for name, value in mine.items():
        if name in conf.SETTINGS:
            yield from _value(f"RECHECK[{name!r}]", name, value)
        else:
            hint = conf.nearest(str(name), conf.SETTINGS)
            yield message("E002", f"RECHECK[{name!r}]: there is no such setting.", hint)
    tuned = mine.get("RECEIVERS", {})
    if conf.SETTINGS["RECEIVERS"].problem(tuned) is None:
        for receiver, values in tuned.items():
            yield from _tuned(receiver, values)
    yield from _debounce()
    path = mine.get("CONTEXT")
    if path is not None and conf.SETTINGS["CONTEXT"].problem(path) is None:
        yield from _context(path)


def _value(where: str, name: str, value: Any) -> Iterator[CheckMessage]:
    setting = conf.SETTINGS[name]
    if problem := setting.problem(value):
        hint = f"Write {name!r}: {setting.default!r}, the default, or leave it out."
        yield message("E003", f"{where} is {value!r}: it {problem}.", hint)


def _tuned(receiver: Any, values: Mapping[str, Any]) -> Iterator[CheckMessage]:
    where = f"RECHECK['RECEIVERS'][{receiver!r}]"
    if receiver not in registry:
        if renamed := named(receiver):
            hint = f"It is called {renamed.name!r} now: write that."
        else:
            hint = conf.nearest(str(receiver), registry) if registry else "no receiver has a name."
        yield message("E011", f"{where}: there is no such receiver.", hint)
    tunable = [name for name, setting in conf.SETTINGS.items() if setting.tunable]
    for name, value in values.items():
        here = f"{where}[{name!r}]"
        if name in tunable:
            yield from _value(here, name, value)
        elif name in conf.SETTINGS:
            place = "in the decorator" if conf.SETTINGS[name].option else "in RECHECK itself"
            text = f"{here}: {name} can't be set here, only {', '.join(tunable)}."
            yield message("E012", text, f"Say it {place}.")
        else:
            yield message(
                "E002", f"{here}: there is no such setting.", conf.nearest(str(name), tunable)
            )


def _debounce() -> Iterator[CheckMessage]:
    """Compare MAX_WAIT with DELAY in RECHECK itself, and as each receiver sees them."""
    general = _pair(conf.get)
    pairs = {name: _pair(found[-1].options.value) for name, found in registry.items()}
    for where, pair in [("RECHECK", general), *pairs.items()]:
        if pair is None or (pair == general and where != "RECHECK"):
            continue
        if problem := conf.debounce_problem(*pair):
            hint = f"Write a MAX_WAIT above {pair[0]:g}, or leave it out: it is 10 * DELAY then."
            yield message("E004", f"{where}: {problem}.", hint)


def _pair(value: Callable[[str], Any]) -> tuple[float, float | None] | None:
    try:
        return value("DELAY"), value("MAX_WAIT")
    except ImproperlyConfigured:
        return None  # one of them is wrong by itself, and that is said already


def _context(path: str) -> Iterator[CheckMessage]:
    hint = "Name a class that takes no arguments and has capture() and restore(value)."
    try:
        found = import_string(path)
    except Exception as error:  # whatever that module raises
        text = f"RECHECK['CONTEXT'] can't be imported: {type(error).__name__}: {error}"
        yield message("E009", text, hint)
        return
    methods = (getattr(found, name, None) for name in ("capture", "restore"))
    if not (all(map(callable, methods)) and _needs_nothing(found)):
        text = f"RECHECK['CONTEXT'] is {path!r}: it can't capture and restore."
        yield message("E020", text, hint)


def _needs_nothing(found: Any) -> bool:
    try:
        inspect.signature(found).bind()
    except TypeError:
        return False
    except ValueError:
        pass  # it has no signature to look at
    return True


@register("recheck")
def check_cache(**kwargs: Any) -> list[CheckMessage]:
    """Check that the cache can give what the store needs, without asking it."""
    alias = _alias()
    if alias is None:
        return []
    found = list(_cache(alias))
    prefix = str(django_settings.CACHES.get(alias, {}).get("KEY_PREFIX", ""))
    if "{" in prefix or "}" in prefix:
        text = f"CACHES[{alias!r}]['KEY_PREFIX'] has braces, which are Redis Cluster's hash tag."
        bare = prefix.replace("{", "").replace("}", "")
        found.append(message("E008", text, f"Write 'KEY_PREFIX': {bare!r}."))
    return found


def _alias() -> str | None:
    """Return the cache that is named, None if that setting is wrong by itself."""
    try:
        alias: str = conf.get("CACHE")
    except ImproperlyConfigured:
        return None
    return alias


def _cache(alias: str) -> Iterator[CheckMessage]:
    cache = django_settings.CACHES.get(alias)
    example = '{"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://host:6379/1"}'
    other = 'or let RECHECK["CACHE"] name another alias.'
    if cache is None:
        known = ", ".join(map(repr, django_settings.CACHES))
        text = f"RECHECK['CACHE'] is {alias!r}: CACHES has no such alias, only {known}."
        yield message("E005", text, f'Write CACHES["recheck"] = {example}, {other}')
        return
    options = cache.get("OPTIONS") or {}
    try:
        backend: Any = import_string(cache.get("BACKEND", ""))
        client: Any = import_string(
            options.get("CLIENT_CLASS", "django_redis.client.DefaultClient")
        )
    except ImportError as error:
        text = f"The cache {alias!r} can't be imported: {error}"
        yield message("E021", text, f"Write CACHES[{alias!r}] = {example}, {other}")
        return
    if not (isinstance(backend, type) and issubclass(backend, RedisCache)):
        text = f"The cache {alias!r} is a {backend.__name__}, not one of django-redis."
        yield message("E006", text, f"Write CACHES[{alias!r}] = {example}, {other}")
    elif not hasattr(client, "get_client") or issubclass(client, ShardClient):
        text = f"The cache {alias!r} has the client class {client.__name__}: no raw client."
        yield message("E007", text, f"Leave CLIENT_CLASS out of CACHES[{alias!r}], {other}")


@register("recheck", deploy=True)
def check_server(**kwargs: Any) -> list[CheckMessage]:
    """Ask the server, if the cache is one that has a server."""
    alias = _alias()
    return [] if alias is None or any(_cache(alias)) else deploy_checks.check_server()


@register("recheck", deploy=True)
def check_dispatch(**kwargs: Any) -> list[CheckMessage]:
    """Look for what is meant for tests."""
    return deploy_checks.check_dispatch()


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
    for signal in connected.signals_of(receiver.func):
        name = _short(signal)
        hint = f"Write it so:\n@receiver({name}, ...)\n@recheck\ndef {receiver.__name__}(...)"
        text = f"{receiver.name}: {name} calls the plain function, without its lock."
        yield message("E017", text, hint)
    models: dict[type[Model] | None, None] = {}
    for signal in connected.signals_of(receiver):
        name = _short(signal)
        if signal in FORBIDDEN:
            text = f"{receiver.name} follows {name}, which comes before the write."
            yield message("E016", text, f"Write post_save in place of {name}.")
        elif signal in ROWLESS and receiver.has_default_key:
            text = f"{receiver.name} follows {name}, which comes without a row to be the key."
            yield message("E018", text, 'Write @recheck(key=lambda **_: "all"), say.')
        elif signal in OF_A_ROW:
            models |= dict.fromkeys(connected.senders_of(signal, receiver))
    for model in models:
        if model is not None:
            yield from _carried(receiver, model)
            yield from _key(receiver, model)
        else:
            yield from _key_of_all(receiver)


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
        yield message("E014", f"{key}: {part!r} of {at._meta.label} is no single value.", hint)
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
        found: Any = inspect.getattr_static(model, part, None)
        target: type[Model] | None = None
        if known is not None:
            if number < len(parts) and known.is_relation and part == known.name:
                target = known.related_model
        elif isinstance(found, ReverseOneToOneDescriptor):
            target = found.related.related_model
        elif isinstance(found, UNFIT):
            return "unfit", part, model
        elif part in (field.name for field in model._meta.private_fields):
            return "queries", part, model  # a generic foreign key: what follows is anything
        elif found is None and not _only_on_instances(model, part):
            return "missing", part, model
        if target is None:
            break
        queries = queries if queries[0] else ("queries", part, model)
        model = target
    return queries


def _only_on_instances(model: type[Model], name: str) -> bool:
    """Return whether instances may have an attribute that the class doesn't have."""
    bases = (vars(base) for base in model.__mro__)
    return hasattr(model, "__getattr__") or any(
        name in base.get("__annotations__", ()) for base in bases
    )
