"""A watch whose Redis goes away, comes back, or refuses."""

from __future__ import annotations

import signal
from functools import partial
from typing import Any

import pytest
from redis.exceptions import AuthenticationError

from django_recheck import store, views
from django_recheck.watch import Watch
from tests.servers import Server, apart, running
from tests.watch.watching import noting, until, watching

pytestmark = pytest.mark.django_db(transaction=True)


def told(caplog: pytest.LogCaptureFixture, words: str) -> int:
    """Return how often something was logged."""
    return sum(words in record.getMessage() for record in caplog.records)


def place(settings: Any, server: Server, user: str = "") -> None:
    """Have the settings name a server, as a user with a password."""
    url = server.url.replace("//", f"//{user}:s3cret@" if user else "//")
    cache = {**settings.CACHES["recheck"], "LOCATION": url}
    settings.CACHES = {**settings.CACHES, "elsewhere": cache}
    settings.RECHECK = {**settings.RECHECK, "CACHE": "elsewhere"}


@pytest.mark.parametrize("threads", [1, 3])
def test_it_goes_on_when_redis_is_back(
    settings: Any, caplog: pytest.LogCaptureFixture, threads: int
) -> None:
    with apart(settings, BREAKER=0) as server:
        receive, keys = noting()
        with watching(threads=threads) as watched:
            receive.recheck_many([1])
            until(lambda: keys == [1])
            server.end(signal.SIGKILL)
            until(lambda: told(caplog, "Redis doesn't answer: ConnectionError"))
            server.start()
            until(lambda: told(caplog, "Redis is back"))
            for key in (2, 3, 4):
                receive.recheck_many([key])
                until(partial(keys.__contains__, key), "hints don't wake it any more")
            assert watched.raised is None
    assert told(caplog, "Redis doesn't answer") == told(caplog, "Redis is back") == 1
    assert not told(caplog, "No hints"), "nobody forbids them"


@pytest.mark.parametrize("later", [False, True])
def test_it_drains_a_server_that_is_full(
    settings: Any, caplog: pytest.LogCaptureFixture, later: bool
) -> None:
    """What is done is gone, and so it is of use there above all; only no note is taken of it."""
    with apart(settings, BREAKER=0) as server, server.client as client:
        receive, keys = noting()
        receive.recheck_many([1, 2])
        store.current().client.sadd(store.current().lane("gone", 0).keys[4], "gone")
        if later:
            receive.recheck_many([3])
            client.config_set("maxmemory", "1")
        else:
            store.forget()
            client.config_set("maxmemory", "1")
        with watching(bound=0.05, noted=0.05) as watched:
            until(lambda: len(keys) == 2 + later)
            until(lambda: not views.counts(store.current(), ["watched"])["watched"].running)
            looks = watched.looks
            until(lambda: watched.looks > looks + 5)
    assert not told(caplog, "Redis refuses")


def test_it_waits_for_a_redis_that_starts_later(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with apart(settings, BREAKER=0) as server:
        server.end(signal.SIGKILL)
        receive, keys = noting()
        with watching(begun=lambda: told(caplog, "Redis doesn't answer")):
            server.start()
            receive.recheck_many([1])
            until(lambda: keys == [1])


def test_who_is_refused_at_the_start_hears_of_it(settings: Any) -> None:
    with running(requirepass="another") as server:
        place(settings, server, "somebody")
        noting()
        with pytest.raises(AuthenticationError):
            Watch().run()


def test_who_is_refused_later_asks_again(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    with running() as server, server.client as client:
        client.execute_command("ACL SETUSER", "shop", "on", ">s3cret", "+@all", "~*", "&*")
        place(settings, server, "shop")
        receive, keys = noting()
        with watching(bound=0.1):
            client.execute_command("ACL SETUSER", "shop", "-evalsha")
            until(lambda: told(caplog, "Redis refuses this user: NoPermissionError"))
            client.execute_command("ACL SETUSER", "shop", "+evalsha")
            until(lambda: told(caplog, "Redis is back"))
            receive.recheck_many([1])
            until(lambda: keys == [1])


@pytest.mark.parametrize("rules", [["-subscribe", "&*"], ["resetchannels"]])
def test_who_may_not_subscribe_looks_every_few_seconds_and_says_so_once(
    settings: Any, caplog: pytest.LogCaptureFixture, rules: list[str]
) -> None:
    with running() as server, server.client as client:
        client.execute_command("ACL SETUSER", "shop", "on", ">s3cret", "+@all", "~*", *rules)
        place(settings, server, "shop")
        receive, keys = noting()
        with watching(bound=0.05) as watched:
            until(lambda: told(caplog, "No hints of new events"))
            seen = watched.looks
            receive.recheck_many([1])
            until(lambda: keys == [1] and watched.looks > seen + 5)
    assert told(caplog, "No hints of new events") == 1
    assert not told(caplog, "Redis is back")
