"""System checks of settings and cache. They connect to nothing.

What only the server knows is asked by ``check --deploy``, in ``deploy_checks``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, register
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from django_redis.cache import RedisCache
from django_redis.client import ShardClient

from . import conf, deploy_checks
from .deploy_checks import message
from .receivers import named, registry


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
