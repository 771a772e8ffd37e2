"""System checks of settings, cache and receivers. They connect to nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.db.models import Model, signals
from django.utils.module_loading import import_string
from django_redis.cache import RedisCache
from django_redis.client import ShardClient

from . import conf, connected, travel
from .deploy_checks import check_server
from .receivers import FORBIDDEN, Receiver, named, registry

ROWLESS = (signals.pre_migrate, signals.post_migrate)
"""Model signals that come without an instance."""


def _error(number: str, text: str, hint: str) -> Error:
    return Error(text, hint=hint, id=f"django_recheck.{number}")


@register("recheck")
def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """Check each name and value of ``RECHECK``."""
    return list(_settings())


def _settings() -> Iterator[CheckMessage]:
    mine = getattr(django_settings, "RECHECK", {})
    if not isinstance(mine, Mapping):
        yield _error("E001", "RECHECK isn't a dict.", 'Write RECHECK = {"CACHE": "default"}, say.')
        return
    for name, value in mine.items():
        yield from _value(f"RECHECK[{name!r}]", name, value, conf.SETTINGS)
    tuned = mine.get("RECEIVERS", {})
    if conf.SETTINGS["RECEIVERS"].problem(tuned) is None:
        for receiver, values in tuned.items():
            yield from _tuned(receiver, values)
    yield from _debounce()
    path = mine.get("CONTEXT")
    if path is not None and conf.SETTINGS["CONTEXT"].problem(path) is None:
        yield from _context(path)


def _value(
    where: str, name: str, value: Any, known: Mapping[str, conf.Setting]
) -> Iterator[CheckMessage]:
    if name not in known:
        hint = conf.nearest(str(name), known)
        yield _error(
            "E002", f"{where} is no setting that can stand here.", hint[0].upper() + hint[1:]
        )
    elif problem := known[name].problem(value):
        hint = f"Its default is {known[name].default!r}."
        yield _error("E003", f"{where} {problem}, not {value!r}.", hint)


def _tuned(receiver: str, values: Mapping[str, Any]) -> Iterator[CheckMessage]:
    where = f"RECHECK['RECEIVERS'][{receiver!r}]"
    if named(receiver) is None:
        hint = conf.nearest(receiver, registry) if registry else "no receiver is decorated."
        text = f"{where} names a receiver that doesn't exist."
        yield _error("E011", text, hint[0].upper() + hint[1:])
    tunable = {name: setting for name, setting in conf.SETTINGS.items() if setting.tunable}
    for name, value in values.items():
        yield from _value(f"{where}[{name!r}]", name, value, tunable)


def _debounce() -> Iterator[CheckMessage]:
    """Compare MAX_WAIT with DELAY as each receiver sees them, and in RECHECK itself."""
    seen = {"RECHECK": conf.Options("", {})}
    seen |= {name: receivers[-1].options for name, receivers in registry.items()}
    for name, options in seen.items():
        try:
            problem = conf.debounce_problem(options.value("DELAY"), options.value("MAX_WAIT"))
        except ImproperlyConfigured:
            continue  # one of them is wrong by itself, which was said above
        if problem:
            hint = "Raise MAX_WAIT, or leave it out: it is ten times DELAY then."
            yield _error("E004", f"{name}: {problem}.", hint)
            if name == "RECHECK":
                return


def _context(path: str) -> Iterator[CheckMessage]:
    hint = "Name a class without arguments that has capture() and restore(value)."
    try:
        found = import_string(path)
    except ImportError as error:
        yield _error("E009", f"RECHECK['CONTEXT'] can't be imported: {error}", hint)
        return
    if not (callable(getattr(found, "capture", 0)) and callable(getattr(found, "restore", 0))):
        yield _error("E009", f"RECHECK['CONTEXT'] = {path!r} lacks capture() or restore().", hint)


@register("recheck")
def check_cache(**kwargs: Any) -> list[CheckMessage]:
    """Check that the cache can give what the store needs, without asking it."""
    return list(_cache())


def _cache() -> Iterator[CheckMessage]:
    alias = "default"
    if isinstance(mine := getattr(django_settings, "RECHECK", {}), Mapping):
        alias = mine.get("CACHE", alias)
    if not isinstance(alias, str):
        return
    cache = django_settings.CACHES.get(alias)
    example = f'CACHES[{alias!r}] = {{"BACKEND": "django_redis.cache.RedisCache", "LOCATION": …}}'
    if cache is None:
        known = ", ".join(map(repr, django_settings.CACHES))
        text = f"RECHECK['CACHE'] is {alias!r}, and CACHES has no such alias."
        yield _error("E005", text, f"Name one of {known}, or add {example}.")
        return
    try:
        backend = import_string(cache.get("BACKEND", ""))
        client = import_string(
            cache.get("OPTIONS", {}).get("CLIENT_CLASS", "django_redis.client.DefaultClient")
        )
    except ImportError as error:
        yield _error("E006", f"The cache {alias!r} can't be imported: {error}", f"Write {example}.")
        return
    if not issubclass(backend, RedisCache):
        text = f"The cache {alias!r} is no django-redis cache: {backend.__name__} gives no client."
        yield _error("E006", text, f"Write {example}, or let RECHECK['CACHE'] name another alias.")
    elif issubclass(client, ShardClient):
        text = f"The cache {alias!r} uses {client.__name__}, which can't give a raw client."
        yield _error(
            "E007", text, "Give django-recheck a cache of its own with the default client."
        )
    prefix = str(cache.get("KEY_PREFIX", ""))
    if "{" in prefix or "}" in prefix:
        text = f"The KEY_PREFIX of the cache {alias!r} has braces, Redis Cluster's hash tag."
        yield _error("E008", text, "Take the braces out of KEY_PREFIX.")


@register("recheck")
def check_receivers(**kwargs: Any) -> list[CheckMessage]:
    """Check names, keys and connections of all receivers."""
    return [message for receivers in registry.values() for message in _receivers(receivers)]


def _receivers(same_name: list[Receiver[..., Any]]) -> Iterator[CheckMessage]:
    receiver = same_name[-1]
    if len({other.func for other in same_name}) > 1:
        places = " and ".join(f"{r.__module__}.{r.__qualname__}" for r in same_name)
        hint = "Give each its own, with @recheck(name=...)."
        yield _error("E010", f"Two receivers are called {receiver.name!r}: {places}.", hint)
    for former in receiver.former_names:
        if former in registry:
            text = f"{receiver.name} names {former!r} as a former name, and a receiver has it now."
            yield _error("E010", text, "Take it out of former_names, or rename the other receiver.")
    if connected.signals_of(receiver.func):
        hint = f"Write it so:\n@receiver(...)\n@recheck\ndef {receiver.__name__}(...)"
        yield _error(
            "E017", f"{receiver.name} is connected without its lock, below @recheck.", hint
        )
    for signal in connected.signals_of(receiver):
        yield from _connection(receiver, signal)


def _connection(receiver: Receiver[..., Any], signal: Any) -> Iterator[CheckMessage]:
    name = travel.signal_name(signal) or next(
        (name for name, known in vars(signals).items() if known is signal), "a signal"
    )
    if signal in FORBIDDEN:
        hint = "Connect it to post_save instead."
        yield _error("E016", f"{receiver.name} follows {name}, which comes before the write.", hint)
    elif signal in ROWLESS and receiver.has_default_key:
        hint = "Say what the event is about: @recheck(key=lambda using, **_: using), say."
        yield _error("E018", f"{receiver.name} follows {name}, which comes without a row.", hint)
    elif signal not in ROWLESS and signal is not signals.m2m_changed:
        for model in connected.senders_of(signal, receiver):
            if model is not None:
                yield from _fields(receiver, model)


def _fields(receiver: Receiver[..., Any], model: type[Model]) -> Iterator[CheckMessage]:
    label = model._meta.label
    for name in receiver.carry:
        if _field(model, name) is None:
            hint = conf.nearest(name, (field.name for field in model._meta.concrete_fields))
            text = f"{receiver.name} carries {name!r}, and {label} has no such field."
            yield _error("E015", text, hint[0].upper() + hint[1:])
    if not isinstance(receiver.key, str):
        return
    first, *rest = receiver.key.split(".")
    field = _field(model, first)
    if field is None and not hasattr(model, first):
        hint = conf.nearest(first, (field.attname for field in model._meta.concrete_fields))
        text = f"{receiver.name} has the key {receiver.key!r}, and {label} has no {first!r}."
        yield _error("E013", text, hint[0].upper() + hint[1:])
    elif rest:
        target = getattr(field, "related_model", None)
        if target is not None and _field(target, rest[0]) is None and not hasattr(target, rest[0]):
            text = f"{receiver.name} has the key {receiver.key!r}, and no {rest[0]!r} is there."
            yield _error("E013", text, f"{target._meta.label} has no {rest[0]!r}.")
        elif target is not None:
            yield Warning(
                f"{receiver.name} has the key {receiver.key!r}: each event of {label} queries.",
                hint=f"Use {first!r}, which is in the row, and follow it in the receiver.",
                id="django_recheck.W001",
            )


def _field(model: type[Model], name: str) -> Any:
    by_column = {field.attname: field for field in model._meta.concrete_fields}
    try:
        return by_column.get(name) or model._meta.get_field(name)
    except FieldDoesNotExist:
        return None


register(check_server, "recheck", deploy=True)
