"""The checks of ``check --deploy``: they connect, read, and write nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from redis.exceptions import NoPermissionError, RedisError

from . import conf, store, views
from .connection import script
from .receivers import registry

OVERDUE: Final = 300
"""Seconds after which something that is due should have been drained."""


def check_server(**kwargs: Any) -> list[CheckMessage]:
    """Check the server that the cache names. Wrong settings are another check's business."""
    try:
        current = store.current()
        client = current.client
        information = {**client.info("server"), **client.info("memory")}
    except (ImproperlyConfigured, NotImplementedError, KeyError, AttributeError, ImportError):
        return []
    except (RedisError, OSError) as error:
        hint = "Start it, or correct the cache's LOCATION. Nothing else of it was checked."
        text = (
            f"Redis can't be asked through the cache {conf.get('CACHE')!r}: {type(error).__name__}."
        )
        return [Warning(text, hint=hint, id="django_recheck.W101")]
    try:
        return [
            *_version(information),
            *_scripting(client),
            *_memory(information),
            *_sharing(current.alias),
            *_shards(current),
            *_timeouts(client),
            *_immediate(),
            *_draining(current),
        ]
    except (RedisError, OSError) as error:
        hint = "Look whether this user may run INFO, EVALSHA, HMGET, SMEMBERS, ZCARD and ZRANGE."
        return [
            Warning(f"Redis didn't answer a question: {error}", hint=hint, id="django_recheck.W101")
        ]


def _version(information: dict[str, Any]) -> Iterator[CheckMessage]:
    version = str(information.get("redis_version", "0"))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < (6, 2):
        hint = "Update to Redis 6.2 or any Valkey."
        yield Error(
            f"The server has version {version}, too old for this.",
            hint=hint,
            id="django_recheck.E101",
        )


def _scripting(client: Any) -> Iterator[CheckMessage]:
    hint = "Allow this user EVALSHA, EVAL and SCRIPT LOAD: the ACL category @scripting."
    try:
        if client.execute_command("EVAL", "return redis.call('TIME')[1]", 0) is None:
            yield Error("The server runs no scripts.", hint=hint, id="django_recheck.E102")
        client.execute_command("SCRIPT LOAD", script("request").text)
    except NoPermissionError as error:
        yield Error(f"This user may not run scripts: {error}", hint=hint, id="django_recheck.E102")


def _memory(information: dict[str, Any]) -> Iterator[CheckMessage]:
    policy = information.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        text = f"The server's maxmemory-policy is {policy}: it may throw locks and events away."
        yield Warning(
            text, hint="Use a server with maxmemory-policy noeviction.", id="django_recheck.W102"
        )


def _sharing(alias: str) -> Iterator[CheckMessage]:
    caches = django_settings.CACHES
    place = caches[alias].get("LOCATION")
    if alias == "default" or caches.get("default", {}).get("LOCATION") == place:
        text = "Locks and events share the database of the default cache: cache.clear() wipes them."
        hint = 'Give them an alias of their own, with another database number, in RECHECK["CACHE"].'
        yield Warning(text, hint=hint, id="django_recheck.W103")


def _shards(current: store.Store) -> Iterator[CheckMessage]:
    stored = current.client.hget(current.meta, "shards")
    if stored is None:
        return
    number = stored.decode() if isinstance(stored, bytes) else str(stored)
    if number != str(current.shards) and _holds(current, number):
        text = f"RECHECK['SHARDS'] is {current.shards}, and Redis holds items in {number}."
        hint = f"Set it back to {number}, and change it when nothing is running or pending."
        yield Error(text, hint=hint, id="django_recheck.E103")


def _holds(current: store.Store, shards: str) -> bool:
    stored = int(shards) if shards.isdigit() else 1
    return bool(views.receivers(store.Store(current.alias, conf.get("PREFIX"), stored)))


def _timeouts(client: Any) -> Iterator[CheckMessage]:
    pool = getattr(client, "connection_pool", None)
    given = getattr(pool, "connection_kwargs", {})
    if pool is not None and not given.get("socket_timeout"):
        text = "No socket timeout is set: a server that hangs would hang every save."
        hint = 'Set SOCKET_TIMEOUT and SOCKET_CONNECT_TIMEOUT in the cache\'s "OPTIONS".'
        yield Warning(text, hint=hint, id="django_recheck.W104")


def _immediate() -> Iterator[CheckMessage]:
    names = [name for name, found in registry.items() if found[-1].options.dispatch == "immediate"]
    if names:
        text = f"DISPATCH is 'immediate' for {', '.join(names)}: no lock, no recheck, no commit."
        yield Warning(
            text, hint="That is for tests: use 'inline' or 'worker' here.", id="django_recheck.W106"
        )


def _draining(current: store.Store) -> Iterator[CheckMessage]:
    counts = views.counts(current)
    now, last = time.time(), views.last_drain(current)
    due = [found.oldest_due for found in counts.values() if found.oldest_due is not None]
    if due and now - min(due) > OVERDUE and (last is None or now - last > OVERDUE):
        text = f"Something has been pending for {now - min(due):.0f} s, and nobody drains."
        yield Warning(
            text, hint="Run manage.py recheck_run from cron every minute.", id="django_recheck.W105"
        )
    known = {n for found in registry.values() for r in found for n in (r.name, *r.former_names)}
    if unknown := sorted(set(counts) - known):
        text = f"Items wait for receivers that this code doesn't have: {', '.join(unknown)}."
        hint = "Name the old one in former_names= of the receiver that took its place."
        yield Warning(text, hint=hint, id="django_recheck.W107")
