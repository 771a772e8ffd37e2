"""What Redis holds, how it is reached, and what is meant for tests."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis
from django.test import override_settings

from django_recheck import deploy_checks, receivers, recheck, store
from django_recheck.records import Item
from tests.deploy_checks import (
    BACKEND,
    LOCMEM,
    TIMEOUTS,
    drained,
    found,
    fresh,
    known,
    lapsed,
    pending,
    using,
)
from tests.servers import Server
from tests.test_checks import the_one

# What it holds


@pytest.mark.parametrize("stored", [2, 4])
def test_e103_another_number_of_shards(server: Server, stored: int) -> None:
    known("mine")
    with using(fresh(server)):
        with override_settings(RECHECK={"CACHE": "mine", "SHARDS": stored}):
            pending("mine", overdue=0)
        message = the_one(found(), "E103")
        assert f"holds items in {stored}" in message.msg
        assert f"Write {stored} again" in str(message.hint)
        assert found(SHARDS=stored) == []


def test_e103_what_waits_in_the_shards_as_stored_is_seen(server: Server) -> None:
    known("mine")
    with using(fresh(server)):
        with override_settings(RECHECK={"CACHE": "mine", "SHARDS": 2}):
            lanes = ((key, store.current().lane_of(Item("mine", str(key)))) for key in range(99))
            last = next(key for key, lane in lanes if lane.tag.endswith(":1}"))
            pending("mine", overdue=1000, key=last)
        ids = [message.id for message in found()]
    assert ids == ["django_recheck.E103", "django_recheck.W105"]


def test_another_number_of_shards_is_free_to_choose_while_nothing_is_held(server: Server) -> None:
    with using(fresh(server)):
        store.current().check_format()
        assert found(SHARDS=8) == []


@pytest.mark.parametrize("version", ["2", "9.1", "x"])
def test_e104_records_of_a_newer_version(server: Server, version: str) -> None:
    with using(fresh(server)):
        store.current().check_format()
        store.current().client.hset(store.current().meta, "format", version)
        assert f"format {version}," in the_one(found(), "E104").msg


def test_w105_overdue_and_nobody_ever_drained(server: Server) -> None:
    known("mine")
    with using(fresh(server)):
        pending("mine", overdue=600)
        message = the_one(found(), "W105")
    assert "600 s" in message.msg or "601 s" in message.msg
    assert "never" in message.msg
    assert "manage.py recheck_run" in str(message.hint)


def test_w105_overdue_and_the_last_drain_is_long_ago(server: Server) -> None:
    known("mine")
    with using(fresh(server)):
        pending("mine", overdue=400)
        drained(ago=350)
        assert "s ago" in the_one(found(), "W105").msg


def test_w105_a_dead_holders_item_waits_for_a_drain_too(server: Server) -> None:
    known("mine")
    with using(fresh(server)):
        lapsed("mine", ago=400)
        the_one(found(), "W105")


@pytest.mark.parametrize(("overdue", "drain"), [(600, 10), (100, None), (-600, None)])
def test_not_overdue_or_somebody_drains(
    server: Server, overdue: float, drain: float | None
) -> None:
    known("mine")
    with using(fresh(server)):
        pending("mine", overdue=overdue)
        if drain is not None:
            drained(ago=drain)
        assert found() == []


def test_w107_items_of_a_receiver_that_isnt_here(server: Server) -> None:
    with using(fresh(server)):
        pending("gone", overdue=1000)
        message = the_one(found(), "W107")
        assert "gone" in message.msg
        assert "former_names" in str(message.hint)
        recheck(name="here", former_names=["gone"])(lambda sender, **kwargs: None)
        the_one(found(), "W105")


def test_dead_items_wait_for_nobody(server: Server) -> None:
    with using(fresh(server)):
        pending("gone", overdue=1000)
        current = store.current()
        lane = current.lane("gone", 0)
        current.client.zrem(lane.keys[2], "1")
        current.client.zadd(lane.keys[3], {"1": time.time() * 1000})
        assert found() == []


def test_w108_a_key_of_another_type(server: Server) -> None:
    with using(fresh(server)):
        store.current().client.set(store.current().meta, "a text")
        assert "WRONGTYPE" in the_one(found(), "W108").msg


# How it is reached


def test_w103_the_default_cache_itself(server: Server) -> None:
    place = {"BACKEND": BACKEND, "LOCATION": fresh(server), "OPTIONS": TIMEOUTS}
    with override_settings(CACHES={"default": place}):
        message = the_one(found(CACHE="default"), "W103")
    assert "'default'" in message.msg
    assert "FLUSHDB" in message.msg


@pytest.mark.parametrize(
    ("other", "shares"),
    [
        ({"BACKEND": BACKEND, "LOCATION": "redis://:s3cret@127.0.0.1:{port}/0"}, True),
        ({"BACKEND": BACKEND, "LOCATION": "redis://127.0.0.1:{port}"}, True),
        ({"BACKEND": BACKEND, "LOCATION": ["redis://127.0.0.1:{port}", "redis://b/1"]}, True),
        ({"BACKEND": BACKEND, "LOCATION": "redis://127.0.0.1:{port}/0,redis://b/1"}, True),
        ({"BACKEND": BACKEND, "LOCATION": "redis://127.0.0.1:{port}/1"}, False),
        ({"BACKEND": BACKEND, "LOCATION": "redis://127.0.0.1/0"}, False),
        (
            {
                "BACKEND": BACKEND,
                "LOCATION": "redis://127.0.0.1:{port}",
                "OPTIONS": {"CONNECTION_POOL_KWARGS": {"db": 3}},
            },
            False,
        ),
        (
            {
                "BACKEND": "django.core.cache.backends.redis.RedisCache",
                "LOCATION": "redis://127.0.0.1:{port}",
            },
            True,
        ),
        (
            {
                "BACKEND": "django.core.cache.backends.redis.RedisCache",
                "LOCATION": "redis://127.0.0.1:{port}",
                "OPTIONS": {"db": 2},
            },
            False,
        ),
        (LOCMEM, False),
        ({**LOCMEM, "LOCATION": "a-name"}, False),
    ],
)
def test_w103_a_database_that_another_cache_has_too(
    server: Server, other: dict[str, Any], shares: bool
) -> None:
    def here(place: Any) -> Any:
        return place.format(port=server.port) if isinstance(place, str) else list(map(here, place))

    if "LOCATION" in other:
        other = {**other, "LOCATION": here(other["LOCATION"])}
    with using(fresh(server), others={"pages": other}):
        messages = found()
    if shares:
        message = the_one(messages, "W103")
        assert "'pages'" in message.msg
        assert "s3cret" not in str(message)
    else:
        assert messages == []


def test_w103_only_the_first_of_several_places_counts(server: Server) -> None:
    place = f"redis://127.0.0.1:{server.port}/1,redis://127.0.0.1/2"
    with using(fresh(server, 1), others={"pages": {"BACKEND": BACKEND, "LOCATION": place}}):
        the_one(found(), "W103")


def test_places_that_only_a_factory_of_its_own_understands_arent_compared() -> None:
    with using("cluster://somewhere"):
        assert list(deploy_checks._sharing("mine")) == []


def test_w104_no_socket_timeout(server: Server) -> None:
    with using(fresh(server), CONNECTION_POOL_KWARGS={"socket_timeout": None}):
        message = the_one(found(), "W104")
    assert "SOCKET_TIMEOUT" in str(message.hint)


def test_redis_pys_own_default_counts(server: Server) -> None:
    with using(fresh(server), SOCKET_TIMEOUT=None, SOCKET_CONNECT_TIMEOUT=None):
        messages = found()
    connection: Any = redis.Connection
    assert bool(messages) == (connection().socket_timeout is None)


def test_a_socket_timeout_may_come_from_anywhere(server: Server) -> None:
    with using(fresh(server) + "&socket_timeout=3", SOCKET_TIMEOUT=None):
        assert found() == []
    kwargs = {"socket_timeout": 3}
    with using(fresh(server), SOCKET_TIMEOUT=None, CONNECTION_POOL_KWARGS=kwargs):
        assert found() == []


# What is meant for tests


def test_w106_immediate_for_all(server: Server) -> None:
    known("mine")
    with using(fresh(server)):
        message = the_one(found(DISPATCH="immediate"), "W106")
    assert "in RECHECK" in message.msg
    assert "'inline'" in str(message.hint)


def test_w106_immediate_for_one(server: Server) -> None:
    known("tuned")
    recheck(name="decorated", dispatch="immediate")(lambda sender, **kwargs: None)
    with using(fresh(server)):
        message = the_one(found(RECEIVERS={"tuned": {"DISPATCH": "immediate"}}), "W106")
    assert "tuned" in message.msg
    assert "decorated" in message.msg


def test_w106_needs_no_server() -> None:
    receivers.registry.clear()
    with using("redis://127.0.0.1:1/0"):
        the_one(found(DISPATCH="immediate"), "W106")


def test_a_wrong_dispatch_is_no_crash(server: Server) -> None:
    with using(fresh(server)):
        the_one(found(DISPATCH="celery"), "E003")
