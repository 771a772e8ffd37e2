"""``manage.py recheck_status`` on a terminal: what others wrote, and ``--watch``."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from django_recheck import Receiver, conf, screen, store
from django_recheck.records import Grant, Item
from tests.servers import Server
from tests.status import EVENT, held, receiver, started, status


@pytest.fixture
def totals() -> Receiver[..., Any]:
    return receiver()


HOSTILE = "\x1b[2J\x07\u202e\r\n\x00é漢字"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_what_others_wrote_is_only_text(totals: Receiver[..., Any], encoding: str) -> None:
    current = store.current()
    names = [f"r{HOSTILE}", "r" * 3000, "漢字" * 60, "struck"]
    for name in names:
        options, lane = conf.Options(name, {"MAX_ATTEMPTS": 9}), current.lane(name, 0)
        for number, key in enumerate((HOSTILE, "k" * 3000, "漢字" * 60, "1")):
            grant = current.request(Item(name, key), EVENT, 1, options)
            assert isinstance(grant, Grant)
            if number:
                current.finish(grant, "failed", options, error=f"E: {key}{HOSTILE}")
            if number == 2:
                current.client.zrem(lane.keys[2], key)
                current.client.zadd(lane.keys[3], {key: 1})
        current.client.set(lane.lock(Item(name, "lock")), HOSTILE * 100)
        current.client.zadd(lane.keys[1], {"lock": 1, b"\xff": 2})
    environment = {"PYTHONIOENCODING": encoding}
    looks = [status(env=environment)]
    looks += [
        status("--receiver", "struck", "--key", key, env=environment) for key in ("1", "lock")
    ]
    for out, error, _ in looks:
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out + error)
        lines = out.splitlines()
        assert max(map(screen.columns, lines)) <= 80 or encoding == "ascii", lines
    assert r"\x1b[2J\x07\u202e\r\n" in looks[0][0]
    json.loads(status("--json")[0])


# --watch


class Terminal:
    """The command on a terminal."""

    def __init__(self, *words: str, **streams: Any) -> None:
        self.end, theirs = pty.openpty()
        self.process = started(*words, stdout=theirs, **streams)
        os.close(theirs)

    def until(self, text: str) -> str:
        """Read on until something new has been drawn, and return what was."""
        seen, until = "", time.monotonic() + 30
        while text not in seen:
            assert time.monotonic() < until, seen
            if select.select([self.end], [], [], 0.1)[0]:
                seen += os.read(self.end, 65536).decode()
        return seen

    def stopped(self) -> tuple[str, int]:
        """Press Ctrl-C; return what is said on the standard error, and the exit code."""
        self.process.send_signal(signal.SIGINT)
        _, error = self.process.communicate(timeout=20)
        return error, self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate(timeout=20)
        os.close(self.end)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def test_watch_redraws_until_ctrl_c(totals: Receiver[..., Any], terminals: list[Terminal]) -> None:
    terminal = Terminal("--watch")
    terminals.append(terminal)
    assert terminal.until("Nothing is held, owed or dead.").startswith("\x1b[H")
    grant = held(totals)
    terminal.until("The longest hold is ")
    totals.recheck(key=13)
    totals.recheck(key=13)
    terminal.until("ValueError: no order 13")
    store.current().finish(grant, "ok", totals.options)
    assert terminal.stopped() == ("", 1), "as the last look was"


def test_watch_goes_on_when_redis_is_back(terminals: list[Terminal]) -> None:
    server = Server().start()
    try:
        terminal = Terminal("--watch", env={"RECHECK_TEST_REDIS_URL": server.url})
        terminals.append(terminal)
        terminal.until("Nothing is held")
        server.end()
        terminal.until("Redis doesn't answer: ")
        server.start()
        terminal.until("Nothing is held")
        assert terminal.stopped() == ("", 0)
    finally:
        server.close()


def test_watch_into_a_pipe_has_no_orders_for_a_terminal(totals: Receiver[..., Any]) -> None:
    totals.recheck_many([1])
    process = started("--watch", "--json")
    try:
        assert process.stdout is not None
        looks = [process.stdout.readline() for _ in range(2)]
        assert [json.loads(look)["receivers"]["totals"]["pending"] for look in looks] == [1, 1]
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=20)
        assert (error, process.returncode) == ("", 0)
    finally:
        process.kill()
        process.communicate()
