"""Reaching the server, what it is, and what its user may do."""

from __future__ import annotations

import re
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core import checks
from django.core.cache import caches
from django.core.management import call_command
from django.test import override_settings
from django_redis.pool import ConnectionFactory

from django_recheck import deploy_checks, receivers, recheck, store, worker
from tests.deploy_checks import found, fresh, lapsed, numbers, pending, using
from tests.servers import Server, running
from tests.test_checks import the_one


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
    assert "'mine' doesn't answer: ConnectionError: " in message.msg
    assert "Start it" in str(message.hint)


def test_w101_a_server_that_hangs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        port = hanging.getsockname()[1]
        with using(f"redis://127.0.0.1:{port}/0", SOCKET_TIMEOUT=0.1, SOCKET_CONNECT_TIMEOUT=0.1):
            the_one(found(), "W101")


def test_w101_a_server_that_goes_away_between_two_questions() -> None:
    with pretending(INFO=None) as port, using(f"redis://127.0.0.1:{port}/0"):
        the_one(found(), "W101")


@pytest.mark.parametrize("who", ["", "somebody:s3cret@", ":s3cret@"])
def test_w101_a_user_that_it_doesnt_know(who: str) -> None:
    with (
        running(requirepass="another") as server,
        using(f"redis://{who}127.0.0.1:{server.port}/0"),
    ):
        message = the_one(found(), "W101")
    assert "'mine' refuses this user: AuthenticationError" in message.msg
    assert "user and password" in str(message.hint)
    assert "s3cret" not in str(message)


def test_w101_a_database_that_it_doesnt_have(server: Server) -> None:
    with using(f"redis://127.0.0.1:{server.port}/99"):
        message = the_one(found(), "W101")
    assert "'mine' refuses: ResponseError: DB index is out of range. Nothing " in message.msg
    assert "LOCATION" in str(message.hint)


class Factory(ConnectionFactory):  # type: ignore[misc]
    """A connection factory that can't connect."""

    def connect(self, url: str) -> Any:
        raise ValueError(f"no cluster at {url}")


def test_e105_no_client_can_be_made() -> None:
    with using("cluster://:pa/s3cret@127.0.0.1", CONNECTION_FACTORY=f"{__name__}.Factory"):
        message = the_one(found(), "E105")
        del caches["mine"]  # django-redis 6 would make the client again, to close it
    assert "'mine'" in message.msg
    assert "s3cret" not in str(message)


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
    name = f"user{next(numbers)}"
    with server.client as client:
        client.execute_command("ACL SETUSER", name, "on", ">s3cret", "&*", *rules)
    return f"redis://{name}:s3cret@127.0.0.1:{server.port}/0"


@pytest.mark.django_db(transaction=True)
def test_the_rights_that_the_hint_names_suffice(server: Server) -> None:
    with using(user(server, "~*", "+@all", "-time")):
        hint = str(found()[0].hint)
    rules = hint.removeprefix("Allow it: ACL SETUSER <user> ").rstrip(".").split()
    with using(user(server, "resetchannels", *rules, "+info", "+hello")):
        assert found() == []
        note = recheck(name="rights", dispatch="worker")(lambda sender, **kwargs: None)
        note.recheck_many([1, 2])
        assert worker.drain().items == 2
        assert found() == []
        gone = recheck(name="gone", dispatch="worker")(lambda sender, **kwargs: None)
        gone.recheck_many([1])
        del receivers.registry["gone"]
        assert worker.drain().unknown == {"gone": 1}


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


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        (["&*", "-subscribe"], "SUBSCRIBE"),
        (["&*", "-publish"], "PUBLISH"),
        (["resetchannels"], "PUBLISH"),
        (["resetchannels", "&other:*"], "SUBSCRIBE"),
    ],
)
def test_w111_hints_arent_allowed(server: Server, rules: list[str], refused: str) -> None:
    """As of a user of Redis 7, who may use no channel unless it is told."""
    with using(user(server, "~*", "+@all", *rules)):
        message = the_one(found(), "W111")
        assert refused in message.msg
        assert "'shop:recheck:hints'" in message.msg
        allowed = str(message.hint).removeprefix("Allow it: ACL SETUSER <user> ").rstrip(".")
    with using(user(server, "resetchannels", *allowed.split(), "+info", "+hello")):
        assert found() == []


def test_nobody_hears_that_hints_were_tried(server: Server) -> None:
    with using(fresh(server)):
        current = store.current()
        with closing(current.client.pubsub(ignore_subscribe_messages=True)) as listening:
            listening.subscribe(current.hints)
            assert found() == []
            current.client.publish(current.hints, "end")
            heard = None
            while heard is None:  # it is confirmed that we listen
                heard = listening.get_message(timeout=5)
            assert heard["data"] == b"end"


def test_every_command_of_scripts_and_views_is_tried() -> None:
    package = Path(str(deploy_checks.__file__)).parent
    used = set()
    for path in package.glob("scripts/*.lua"):
        used |= set(re.findall(r"redis\.p?call\('(\w+)'", path.read_text("utf-8")))
    files = ("meta.py", "store.py", "survey.py", "views.py")
    text = "".join((package / name).read_text("utf-8") for name in files)
    used |= set(re.findall(r'[^t]\("([A-Z]{3,})"', text))  # not conf.get("…")
    asked = deploy_checks.COMMANDS, deploy_checks.META_COMMANDS, deploy_checks.CHANNEL_COMMANDS
    assert {line.split()[0] for lines in asked for line in lines} == used


def test_w108_info_is_refused(server: Server) -> None:
    with using(user(server, "~*", "+@all", "-info")):
        message = the_one(found(), "W108")
    assert "info" in message.msg.lower()
