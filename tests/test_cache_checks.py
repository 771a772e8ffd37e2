"""The system checks of the cache that RECHECK names. They connect to nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core import checks
from django.core.checks import CheckMessage
from django.test import override_settings
from django_redis.pool import ConnectionFactory

from tests.test_checks import found, the_one

REDIS = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}


def with_cache(**cache: Any) -> list[CheckMessage]:
    """Run the checks with one cache, called ``mine``, and RECHECK naming it."""
    recheck_settings = {"CACHE": "mine"}
    with override_settings(CACHES={"mine": cache}, RECHECK=recheck_settings):
        return checks.run_checks(tags=["recheck"])


def test_e005_no_such_alias() -> None:
    message = the_one(found(CACHE="redis"), "E005")
    assert "'redis'" in message.msg
    assert "'default', 'recheck'" in message.msg
    assert message.hint == "Write RECHECK[\"CACHE\"] = 'recheck'."


def test_e005_shows_no_password_where_an_alias_should_be() -> None:
    message = the_one(found(CACHE="redis://:secret@host:6379/0"), "E005")
    assert "secret" not in str(message)


@pytest.mark.parametrize(
    "backend",
    [
        "django.core.cache.backends.locmem.LocMemCache",
        "django.core.cache.backends.dummy.DummyCache",
        "django.core.cache.backends.redis.RedisCache",
    ],
)
def test_c28_e006_a_cache_that_isnt_django_redis(backend: str) -> None:
    message = the_one(with_cache(BACKEND=backend, LOCATION="redis://127.0.0.1:1/0"), "E006")
    assert "'mine'" in message.msg
    assert backend.rpartition(".")[2] in message.msg
    assert str(message.hint).startswith(
        'Write CACHES["recheck"] = {"BACKEND": "django_redis.cache.'
    )
    assert str(message.hint).endswith(' and RECHECK["CACHE"] = "recheck".')


@pytest.mark.parametrize(
    "client", ["django_redis.client.ShardClient", "tests.test_cache_checks.ShardsOfOurs"]
)
def test_c28_e007_a_client_class_that_gives_no_raw_client(client: str) -> None:
    message = the_one(with_cache(**REDIS, OPTIONS={"CLIENT_CLASS": client}), "E007")
    assert "'mine'" in message.msg
    assert client.rpartition(".")[2] in message.msg
    assert "CLIENT_CLASS" in str(message.hint)


class ShardsOfOurs:
    """A client class that never heard of raw clients."""


@pytest.mark.parametrize("client", ["DefaultClient", "HerdClient", "SentinelClient"])
def test_c28_client_classes_that_give_one(client: str) -> None:
    assert with_cache(**REDIS, OPTIONS={"CLIENT_CLASS": f"django_redis.client.{client}"}) == []


@pytest.mark.parametrize(
    "cache",
    [
        {"BACKEND": "no.such.Cache"},
        {},
        {**REDIS, "OPTIONS": {"CLIENT_CLASS": "django_redis.client.NoSuchClient"}},
    ],
)
def test_e021_backend_or_client_class_cant_be_imported(cache: dict[str, Any]) -> None:
    assert "'mine'" in the_one(with_cache(**cache), "E021").msg


@pytest.mark.parametrize(
    ("location", "words"),
    [
        (None, "is missing"),
        ("", "is missing"),
        ([], "is missing"),
        (("127.0.0.1", 6379), "is no URL of a Redis server: '127.0.0.1'"),
        (6379, "is of type int, and must be a URL"),
        ([{"host": "127.0.0.1", "password": "s3cret"}], "is of type dict, and must be a URL"),
        ("127.0.0.1:6379", "is no URL of a Redis server: '127.0.0.1:6379'"),
        ("127.0.0.1:6379,redis://127.0.0.1:1", "is no URL of a Redis server: '127.0.0.1:6379'"),
        ("http://127.0.0.1/0", "is no URL of a Redis server: 'http://127.0.0.1/0'"),
        ("http://user:s3cret@127.0.0.1/0", "is no URL of a Redis server."),
        ("user:s3cret@127.0.0.1/0", "is no URL of a Redis server."),
        ("127.0.0.1?password=s3cret", "is no URL of a Redis server."),
        ("redis://:pa/s3cret@127.0.0.1:6379/0", "is no URL of a Redis server."),
        ("redis://user:pa@ss/s3cret@127.0.0.1:6379/1", "has something else than a database number"),
        ("redis://127.0.0.1/shop", "has something else than a database number after the server: "),
        ("redis://127.0.0.1:port/0", "is no URL of a Redis server: 'redis://127.0.0.1:port/0'"),
    ],
)
def test_e022_a_location_that_leads_nowhere(location: Any, words: str) -> None:
    message = the_one(with_cache(**{**REDIS, "LOCATION": location}), "E022")
    assert message.msg.startswith(f"CACHES['mine']['LOCATION'] {words}")
    assert not re.search("s3cret|'pa'", str(message))
    assert "redis://user:password@host:6379/1" in str(message.hint)


@pytest.mark.parametrize(
    "location",
    [
        "rediss://127.0.0.1:1/0",
        "redis://127.0.0.1:1",
        "redis://user:pa@ss@127.0.0.1:1/3/",
        "unix:///run/redis.sock",
        ["redis://:a,b@127.0.0.1:1", "redis://127.0.0.1:2"],
        "redis://127.0.0.1:1,redis://127.0.0.1:2",
    ],
)
def test_locations_that_lead_somewhere(location: Any) -> None:
    assert with_cache(**{**REDIS, "LOCATION": location}) == []


class Factory(ConnectionFactory):  # type: ignore[misc]
    """A factory that understands other places."""


def test_a_factory_may_understand_other_places() -> None:
    path = f"{__name__}.Factory"
    options = {"CONNECTION_FACTORY": path}
    assert with_cache(BACKEND=REDIS["BACKEND"], LOCATION="cluster://a", OPTIONS=options) == []
    with override_settings(DJANGO_REDIS_CONNECTION_FACTORY=path):
        assert with_cache(BACKEND=REDIS["BACKEND"], LOCATION="cluster://a") == []
        the_one(with_cache(BACKEND=REDIS["BACKEND"]), "E022")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"CONNECTION_POOL_CLASS": "no.such.Pool"}, "ModuleNotFoundError"),
        ({"CONNECTION_POOL_KWARGS": {"no_such_option": 1}}, "TypeError"),
        ({"CONNECTION_FACTORY": "no.such.Factory"}, "ModuleNotFoundError"),
        ({"SERIALIZER": "no.such.Serializer"}, "ModuleNotFoundError"),
        (
            {"SOCKET_TIMEOUT": "5"},
            "ImproperlyConfigured: Socket timeout should be float or integer",
        ),
    ],
)
def test_e024_options_that_make_no_client(options: dict[str, Any], words: str) -> None:
    message = the_one(with_cache(**REDIS, OPTIONS=options), "E024")
    assert message.msg.startswith(f"The cache 'mine' makes no client: {words}")
    assert "OPTIONS of CACHES['mine']" in str(message.hint)


def test_another_cache_that_may_do_is_named() -> None:
    caches = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}, "r": REDIS}
    with override_settings(CACHES=caches, RECHECK={}):
        message = the_one(checks.run_checks(tags=["recheck"]), "E006")
    assert message.hint == "Write RECHECK[\"CACHE\"] = 'r'."


@pytest.mark.parametrize("prefix", ["{shop}", "sh{op", "shop}"])
def test_e008_braces_in_the_key_prefix(prefix: str) -> None:
    message = the_one(with_cache(**REDIS, KEY_PREFIX=prefix), "E008")
    assert "CACHES['mine']['KEY_PREFIX']" in message.msg
    assert message.hint == "Write 'KEY_PREFIX': 'shop'."
