"""The checks of ``check --deploy``, each against a real server that has the fault."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core import checks
from django.core.checks import CheckMessage
from django.test import override_settings

from django_recheck import conf, recheck, store
from django_recheck.records import Grant, Item
from tests.servers import Server
from tests.test_checks import said

BACKEND = "django_redis.cache.RedisCache"
LOCMEM = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
TIMEOUTS = {"SOCKET_TIMEOUT": 5, "SOCKET_CONNECT_TIMEOUT": 5}

numbers = itertools.count()


@contextmanager
def using(location: Any, others: dict[str, Any] | None = None, **options: Any) -> Iterator[None]:
    """Put RECHECK on a cache of its own at that place."""
    mine = {"BACKEND": BACKEND, "LOCATION": location, "OPTIONS": {**TIMEOUTS, **options}}
    places = {"default": LOCMEM, **(others or {}), "mine": {**mine, "KEY_PREFIX": "shop"}}
    with override_settings(CACHES=places, RECHECK={"CACHE": "mine"}):
        yield


def fresh(server: Server, database: int = 0) -> str:
    """Return a URL that nobody used yet: django-redis keeps a pool, with its options, for each."""
    return f"redis://127.0.0.1:{server.port}/{database}?client_name=n{next(numbers)}"


def found(**recheck_settings: Any) -> list[CheckMessage]:
    """Run all checks of this app, those that connect as well."""
    with override_settings(RECHECK={"CACHE": "mine", **recheck_settings}):
        return said(checks.run_checks(tags=["recheck"], include_deployment_checks=True))


def pending(name: str, overdue: float, key: int = 1) -> None:
    """Store one item of a receiver whose pass has been owed for so many seconds."""
    current = store.current()
    item = Item(name, str(key))
    current.enqueue([store.Entry(item, 1, b"", conf.Options(name, {}))])
    seconds, _ = current.client.time()
    due = current.lane_of(item).keys[2]
    current.client.zadd(due, {item.text: (seconds - overdue) * 1000})


def lapsed(name: str, ago: float) -> None:
    """Store one item of a receiver whose holder died, its lease over for so many seconds."""
    current, options = store.current(), conf.Options(name, {})
    item = Item(name, "7")
    current.enqueue([store.Entry(item, 1, b"", options)])
    grant = current.claim(item, options)
    assert isinstance(grant, Grant)
    lane = current.lane_of(item)
    seconds, _ = current.client.time()
    current.client.delete(lane.lock(item))
    current.client.zadd(lane.keys[1], {item.text: (seconds - ago) * 1000})


def known(name: str) -> None:
    recheck(name=name)(lambda sender, **kwargs: None)


def drained(ago: float) -> None:
    current = store.current()
    seconds, _ = current.client.time()
    current.client.hset(current.meta, "drained", seconds - ago)
