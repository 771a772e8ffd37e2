"""A watch beside a lane whose places are taken: it sleeps, and is there when one is free."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from django_recheck import conf, store
from django_recheck.records import Grant, Item
from tests.test_drains import EVENT
from tests.watch.watching import Watched, noting, until, watching

pytestmark = pytest.mark.django_db(transaction=True)


def granted(text: str, **options: Any) -> tuple[Grant, conf.Options]:
    """Hold the only place."""
    wanted = conf.Options("watched", {"CONCURRENCY": 1, "TTL": 600, **options})
    grant = store.current().request(Item("watched", text), EVENT, 1, wanted)
    assert isinstance(grant, Grant)
    return grant, wanted


def asleep(watched: Watched) -> bool:
    """Return whether it doesn't look for a while."""
    looks = watched.looks
    time.sleep(0.2)
    return watched.looks == looks


def test_a_free_place_wakes_it() -> None:
    receive, keys = noting(concurrency=1)
    grant, options = granted("1")
    with watching() as watched:
        receive.recheck_many([2, 3])
        until(lambda: watched.looks > 1, "the event wakes it, and it finds no place")
        until(partial(asleep, watched))
        store.current().finish(grant, "ok", options)
        until(lambda: sorted(keys) == [2, 3], "it sleeps for minutes")


def test_a_dead_holders_place_is_free_when_its_lease_is_over() -> None:
    receive, keys = noting(concurrency=1)
    granted("1", TTL=1)
    with watching():
        receive.recheck_many([2])
        until(lambda: sorted(keys) == [1, 2], "it sleeps for minutes")


def test_while_no_place_is_free_it_looks_no_oftener_than_ever() -> None:
    receive, keys = noting(concurrency=1)
    grant, options = granted("1")
    receive.recheck_many(range(2, 50))
    with watching(bound=0.05) as watched:
        seen, began = watched.looks, store.current().now()
        until(lambda: watched.looks >= seen + 10)
        # It waits for nothing before its first look, nor once it has subscribed.
        assert store.current().now() - began >= (10 - 3) * 0.05
        assert keys == []
        store.current().finish(grant, "ok", options)
        until(lambda: len(keys) == 48)
