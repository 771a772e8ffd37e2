"""What is wrong with the cache that ``RECHECK`` names. It is looked at, and not connected to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings as django_settings
from django.core.cache import caches as cache_handler
from django.core.checks import CheckMessage
from django.utils.module_loading import import_string
from redis.connection import parse_url

from .messages import message

EXAMPLE: Final = '{"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://host:6379/1"}'
URL: Final = (
    "Write 'LOCATION': 'redis://user:password@host:6379/1' (or rediss://, unix://), with what is "
    "special in a password percent-encoded."
)


def problems(alias: str) -> Iterator[CheckMessage]:
    """Yield why a cache can't give what the store needs.

    Args:
        alias: Its name in ``CACHES``.
    """
    cache = django_settings.CACHES.get(alias)
    if cache is None:
        known = ", ".join(map(repr, django_settings.CACHES))
        text = f"RECHECK['CACHE'] is {alias!r}: CACHES has no such alias, only {known}."
        yield message("E005", text, _other(alias))
        return
    yield from _classes(alias, cache)
    prefix = str(cache.get("KEY_PREFIX", ""))
    if "{" in prefix or "}" in prefix:
        text = f"CACHES[{alias!r}]['KEY_PREFIX'] has braces, which are Redis Cluster's hash tag."
        bare = prefix.replace("{", "").replace("}", "")
        yield message("E008", text, f"Write 'KEY_PREFIX': {bare!r}.")


def _other(alias: str) -> str:
    """Return a hint at another cache: one that is there and may do, or a new one."""
    for other, cache in django_settings.CACHES.items():
        if other != alias and cache.get("BACKEND") == "django_redis.cache.RedisCache":
            return f'write RECHECK["CACHE"] = {other!r}.'
    return f'write CACHES["recheck"] = {EXAMPLE} and RECHECK["CACHE"] = "recheck".'


def _classes(alias: str, cache: dict[str, Any]) -> Iterator[CheckMessage]:
    from django_redis.cache import RedisCache  # some versions read a setting at import
    from django_redis.client import DefaultClient, ShardClient

    options = cache.get("OPTIONS") or {}
    try:
        backend: Any = import_string(cache.get("BACKEND", ""))
        client: Any = import_string(
            options.get("CLIENT_CLASS", "django_redis.client.DefaultClient")
        )
    except ImportError as error:
        text = f"The cache {alias!r} can't be imported: {error}"
        yield message("E021", text, f"Correct the path, or {_other(alias)}")
        return
    if not (isinstance(backend, type) and issubclass(backend, RedisCache)):
        text = f"The cache {alias!r} is a {backend.__name__}, not one of django-redis."
        yield message("E006", text, _other(alias))
    elif not hasattr(client, "get_client") or issubclass(client, ShardClient):
        text = f"The cache {alias!r} has the client class {client.__name__}: no raw client."
        yield message("E007", text, f"Leave its CLIENT_CLASS out, or {_other(alias)}")
    elif issubclass(client, DefaultClient):
        yield from _client(alias, cache.get("LOCATION"), options)


def _client(alias: str, location: Any, options: dict[str, Any]) -> Iterator[CheckMessage]:
    factory = "CONNECTION_FACTORY" in options  # it may understand places of its own
    factory = factory or hasattr(django_settings, "DJANGO_REDIS_CONNECTION_FACTORY")
    several = isinstance(location, (list, tuple, set))
    first = next(iter(location), None) if several else location
    if isinstance(first, str) and not several:
        first = first.partition(",")[0]
    if fault := _fault(first, any_text=factory):
        yield message("E022", f"CACHES[{alias!r}]['LOCATION'] {fault}.", URL)
        return
    try:
        client = cache_handler.create_connection(alias).client  # type: ignore[attr-defined]
        if not factory:
            known = client.connection_factory
            pool = known.get_connection_pool(known.make_connection_params(first))
            pool.connection_class(**pool.connection_kwargs)  # one that isn't connected
    except Exception as error:  # whatever an option or a class of its own may bring about
        text = f"The cache {alias!r} makes no client: {type(error).__name__}: {error}"
        yield message("E024", text, f"Correct the OPTIONS of CACHES[{alias!r}].")


def _fault(location: Any, *, any_text: bool) -> str | None:
    """Return what is wrong with a place."""
    if not location:
        return "is missing"
    if not isinstance(location, str):
        return f"is of type {type(location).__name__}, and must be a URL, as a string"
    if any_text:
        return None
    shown = "" if "@" in location or "?" in location else f": {location!r}"  # no password
    try:
        parse_url(location)  # type: ignore[no-untyped-call]
        parts = urlsplit(location)
    except ValueError:
        return f"is no URL of a Redis server{shown}"
    if parts.scheme != "unix" and not re.fullmatch(r"/?\d*/?", parts.path):
        return f"has something else than a database number after the server{shown}"
    return None
