"""The checks of ``check --deploy``, each against a real server that has the fault."""

from __future__ import annotations

import itertools
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core import checks
from django.core.cache import caches
from django.core.checks import CheckMessage
from django.core.management import call_command
from django.test import override_settings

from django_recheck import conf, deploy_checks, receivers, recheck, store, worker
from django_recheck.records import Grant, Item
from tests.servers import Server, running

BACKEND = "django_redis.cache.RedisCache"
LOCMEM = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
TIMEOUTS = {"SOCKET_TIMEOUT": 5, "SOCKET_CONNECT_TIMEOUT": 5}

_numbers = itertools.count()


@pytest.fixture(scope="module")
def _server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def server(_server: Server) -> Iterator[Server]:
    """A server of this module alone, empty and as it was configured."""
    yield _server
    with _server.client as client:
        client.flushall()
        client.config_set("maxmemory-policy", "noeviction")


@contextmanager
def using(location: Any, others: dict[str, Any] | None = None, **options: Any) -> Iterator[None]:
    """Put RECHECK on a cache of its own at that place."""
    mine = {"BACKEND": BACKEND, "LOCATION": location, "OPTIONS": {**TIMEOUTS, **options}}
    places = {"default": LOCMEM, **(others or {}), "mine": {**mine, "KEY_PREFIX": "shop"}}
    with override_settings(CACHES=places, RECHECK={"CACHE": "mine"}):
        yield


def fresh(server: Server, database: int = 0) -> str:
    """Return a URL that nobody used yet: django-redis keeps a pool, with its options, for each."""
    return f"redis://127.0.0.1:{server.port}/{database}?client_name=n{next(_numbers)}"


def found(**recheck_settings: Any) -> list[CheckMessage]:
    """Run all checks of this app, those that connect as well."""
    with override_settings(RECHECK={"CACHE": "mine", **recheck_settings}):
        return checks.run_checks(tags=["recheck"], include_deployment_checks=True)


def the_one(messages: list[CheckMessage], number: str) -> CheckMessage:
    """Return the only message there is, which has that id and says what to type."""
    assert [message.id for message in messages] == [f"django_recheck.{number}"], messages
    kind = checks.ERROR if number.startswith("E") else checks.WARNING
    assert messages[0].level == kind
    assert messages[0].hint
    return messages[0]


@pytest.mark.parametrize("options", [{}, {"CONNECTION_POOL_KWARGS": {"decode_responses": True}}])
def test_a_clean_server_gives_no_messages(server: Server, options: dict[str, Any]) -> None:
    with using(fresh(server), **options):
        assert found() == []
        store.current().check_format()
        worker.drain()
        assert found() == []


def test_they_are_registered_for_deploy_only(server: Server) -> None:
    with using("redis://127.0.0.1:1/0"):
        assert checks.run_checks(tags=["recheck"]) == []
        the_one(found(), "W101")


def test_check_deploy_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    with using("redis://127.0.0.1:1/0"):
        call_command("check", deploy=True, tags=["recheck"])
    printed = capsys.readouterr().err
    assert "django_recheck.W101" in printed
    assert "HINT: " in printed


def test_checks_write_nothing(server: Server) -> None:
    def written(client: redis.Redis) -> tuple[Any, ...]:
        keys = sorted(client.keys())
        return client.info("persistence")["rdb_changes_since_last_save"], keys

    with server.client as client, using(fresh(server)):
        before = written(client)
        found()
        assert written(client) == before == (before[0], [])
        pending("waits", overdue=1000)
        lapsed("dies", ago=1000)
        before = written(client)
        assert found() != []
        found(SHARDS=2)
        assert written(client) == before


# Reaching it


def test_w101_nobody_listens() -> None:
    with using("redis://127.0.0.1:1/0"):
        message = the_one(found(), "W101")
    assert "'mine'" in message.msg
    assert "refused" in message.msg


def test_w101_a_server_that_hangs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        port = hanging.getsockname()[1]
        with using(f"redis://127.0.0.1:{port}/0", SOCKET_TIMEOUT=0.1, SOCKET_CONNECT_TIMEOUT=0.1):
            the_one(found(), "W101")


def test_w101_a_server_that_goes_away_between_two_questions() -> None:
    with pretending(INFO=None) as port, using(f"redis://127.0.0.1:{port}/0"):
        the_one(found(), "W101")


def test_w101_a_wrong_password(server: Server) -> None:
    with using(f"redis://somebody:s3cret@127.0.0.1:{server.port}/0"):
        message = the_one(found(), "W101")
    assert "AuthenticationError" in message.msg
    assert "s3cret" not in str(message)


@pytest.mark.parametrize(
    ("location", "options"),
    [
        ("redis://:pa/s3cret@127.0.0.1:6379/0", {}),
        ("http://user:s3cret@127.0.0.1/0", {}),
        ("redis://127.0.0.1:1/77", {"CONNECTION_POOL_CLASS": "no.such.Pool"}),
        ("redis://127.0.0.1:1/78", {"CONNECTION_POOL_KWARGS": {"no_such_option": 1}}),
        ("", {}),
    ],
)
def test_e105_no_client_can_be_made(location: str, options: dict[str, Any]) -> None:
    with using(location, **options):
        message = the_one(found(), "E105")
        del caches["mine"]  # django-redis 6 would make the client again, to close it
    assert "'mine'" in message.msg
    assert "s3cret" not in str(message)
    assert "pa'" not in message.msg


@pytest.mark.parametrize(
    "mine", [{"CACHE": "default"}, {"CACHE": ""}, {"CACHE": "nobody"}, {"SHARDS": 0}]
)
def test_what_another_check_says_is_not_said_again(mine: dict[str, Any]) -> None:
    with using("redis://127.0.0.1:1/0"), override_settings(RECHECK={"CACHE": "mine", **mine}):
        everything = checks.run_checks(tags=["recheck"], include_deployment_checks=True)
        assert everything == checks.run_checks(tags=["recheck"])
        assert len(everything) == 1


# What the server is


def bulk(text: str) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text.encode())


class Pretender(socketserver.StreamRequestHandler):
    """A server that knows a few commands, each with one answer; None closes the connection."""

    answers: dict[str, bytes | None]

    def handle(self) -> None:
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                size = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(size + 2)[:-2].decode())
            answer = self.answers.get(words[0].upper(), b"-ERR unknown command '%s'\r\n")
            if answer is None:
                return
            self.wfile.write(answer.replace(b"%s", words[0].encode()))


@contextmanager
def pretending(**answers: bytes | None) -> Iterator[int]:
    """Run a pretender, and give its port."""
    known = {"PING": b"+PONG\r\n", "CLIENT": b"+OK\r\n", "HELLO": b"%1\r\n+proto\r\n:3\r\n"}
    known |= {"HMGET": b"*2\r\n" + 2 * bulk(""), "SMEMBERS": b"*0\r\n"}
    known |= {"TIME": b"*2\r\n:5\r\n:5\r\n", "HGET": bulk("5")}
    handler = type("Handler", (Pretender,), {"answers": known | answers})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as tcp:
        tcp.daemon_threads = True
        thread = threading.Thread(target=tcp.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield tcp.server_address[1]
        tcp.shutdown()
        thread.join(10)


@pytest.mark.parametrize("version", ["5.0.14", "6.0.16", "6.1.241", "2.8"])
def test_e101_a_version_that_is_too_old(version: str) -> None:
    with (
        pretending(INFO=bulk(f"redis_version:{version}\r\n"), EVAL=b":1\r\n") as port,
        using(f"redis://127.0.0.1:{port}/0"),
    ):
        messages = found()
    assert messages[0].id == "django_recheck.E101"
    assert version in messages[0].msg
    assert "6.2" in str(messages[0].hint)


@pytest.mark.parametrize("version", ["6.2.0", "6.2.0-rc1", "7.2.4", "8.0", "255.255.255"])
def test_versions_that_are_new_enough(version: str) -> None:
    with (
        pretending(INFO=bulk(f"redis_version:{version}\r\n"), EVAL=b":1\r\n") as port,
        using(f"redis://127.0.0.1:{port}/0"),
    ):
        the_one(found(), "E102")


def test_w102_a_policy_that_evicts(server: Server) -> None:
    with server.client as client:
        client.config_set("maxmemory-policy", "volatile-lru")
    with using(fresh(server)):
        assert "volatile-lru" in the_one(found(), "W102").msg


# What its user may do


def user(server: Server, *rules: str) -> str:
    """Make a user with these rights, and return its URL."""
    name = f"user{next(_numbers)}"
    with server.client as client:
        client.execute_command("ACL SETUSER", name, "on", ">s3cret", *rules)
    return f"redis://{name}:s3cret@127.0.0.1:{server.port}/0"


@pytest.mark.django_db(transaction=True)
def test_the_rights_that_the_hint_names_suffice(server: Server) -> None:
    with using(user(server, "~*", "+@all", "-time")):
        hint = str(found()[0].hint)
    rules = hint.removeprefix("Allow it: ACL SETUSER <user> ").rstrip(".").split()
    with using(user(server, *rules, "+info", "+hello")):
        assert found() == []
        note = recheck(name="rights", dispatch="worker")(lambda sender, **kwargs: None)
        note.recheck_many([1, 2])
        assert worker.drain().items == 2
        assert found() == []


def test_no_ping_is_an_answer_too(server: Server) -> None:
    with using(user(server, "~*", "+@all", "-ping")):
        assert found() == []


@pytest.mark.parametrize("rule", ["-@scripting", "-eval", "-evalsha", "-script|load"])
def test_e102_scripting_isnt_allowed(server: Server, rule: str) -> None:
    with using(user(server, "~*", "+@all", rule)):
        message = the_one(found(), "E102")
    assert "+@scripting" in str(message.hint)


def test_e102_a_server_without_scripts() -> None:
    with (
        pretending(INFO=bulk("redis_version:7.0.0\r\n")) as port,
        using(f"redis://127.0.0.1:{port}/0"),
    ):
        assert "unknown command" in the_one(found(), "E102").msg


@pytest.mark.parametrize("rule", ["-hset", "-zadd", "-sadd", "-set", "-pexpire", "-zrangebyscore"])
def test_e106_a_command_isnt_allowed(server: Server, rule: str) -> None:
    with using(user(server, "~*", "+@all", rule)):
        messages = found()
    assert {message.id for message in messages} == {"django_recheck.E106"}
    assert f"may not use {rule[1:].upper()} on " in messages[0].msg
    assert "+@write" in str(messages[0].hint)


def test_e106_our_keys_arent_allowed(server: Server) -> None:
    with using(user(server, "~other:*", "~shop:recheck:meta", "+@all")):
        assert {message.id for message in found()} == {"django_recheck.E106", "django_recheck.W108"}
    with using(user(server, "~{shop:recheck:*", "+@all")):
        messages = found()
    assert {message.id for message in messages} == {"django_recheck.E106", "django_recheck.W108"}
    assert "'shop:recheck:meta'" in messages[0].msg


def test_every_command_of_scripts_and_views_is_tried() -> None:
    package = Path(str(deploy_checks.__file__)).parent
    used = set()
    for path in package.glob("scripts/*.lua"):
        used |= {part.split("'")[0] for part in path.read_text("utf-8").split("redis.call('")[1:]}
    text = "".join((package / name).read_text("utf-8") for name in ("store.py", "views.py"))
    for name in ("exists", "get", "hget", "hmget", "hset", "hsetnx", "pttl", "smembers", "time"):
        if f".{name}(" in text:
            used.add(name.upper())
    for name in ("zcard", "zrange", "zscore"):
        if f"pipe.{name}(" in text:
            used.add(name.upper())
    tried = {line.split()[0] for line in (*deploy_checks.COMMANDS, *deploy_checks.META_COMMANDS)}
    assert tried == used


def test_w108_info_is_refused(server: Server) -> None:
    with using(user(server, "~*", "+@all", "-info")):
        message = the_one(found(), "W108")
    assert "info" in message.msg.lower()


# What it holds


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
        ids = [message.id for message in found(DISPATCH="immediate")]
    assert sorted(map(str, ids)) == ["django_recheck.W101", "django_recheck.W106"]


def test_a_wrong_dispatch_is_no_crash(server: Server) -> None:
    with using(fresh(server)):
        the_one(found(DISPATCH="celery"), "E003")
