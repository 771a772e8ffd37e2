"""A watch as a process: signals, exit codes, the health file, and a Redis that goes away."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from django_recheck import store, views
from tests.servers import apart, running
from tests.watch.process import Run, noted
from tests.watch.watching import until

pytestmark = pytest.mark.django_db(transaction=True)
Start = Callable[..., Run]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Run the command, with ``--watch``."""
    begun: list[Run] = []

    def start(*words: str, **streams: Any) -> Run:
        begun.append(Run(tmp_path, "--watch", *words, **streams))
        return begun[-1]

    yield start
    for run in begun:
        run.close()


def last_drain_noted() -> None:
    """Wait until some watch has looked."""
    until(store.current().last_drain)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_idle_watch(start: Start, number: signal.Signals) -> None:
    run = start()
    last_drain_noted()
    run.send(number)
    out, error, code = run.ended()
    assert (out, code) == ("0 items, 0 passes, 0 failed\n", 0)
    assert error.startswith(f"{number.name}: the running pass is finished")
    assert "Traceback" not in error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_c56_the_first_signal_drains(start: Start, number: signal.Signals) -> None:
    receive = noted()
    receive.recheck_many(["slow1", "slow2", "slow3"])
    run = start("--threads", "2", "--json")
    until(lambda: len(list(run.folder.glob("began-*"))) == 2)
    run.send(number)
    assert run.said().startswith(number.name)
    (run.folder / "go").touch()
    out, error, code = run.ended()
    assert '"items": 2, "passes": 2, "failed": 0, "outcomes": {"ran": 2}' in out
    assert (error, code) == ("", 0)
    assert len(list(run.folder.glob("ran-*"))) == 2
    current = store.current()
    assert views.counts(current)["noted"].due == 1
    (view,) = views.page(current, "noted", "due")
    assert view.score is not None
    assert view.score <= current.now(), "the rest is given back: others see it at once"


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (signal.SIGINT, signal.SIGINT, -signal.SIGINT),
        (signal.SIGTERM, signal.SIGTERM, -signal.SIGTERM),
        (signal.SIGTERM, signal.SIGINT, -signal.SIGINT),
    ],
)
def test_c56_the_second_signal_ends_it_at_once(
    start: Start, first: signal.Signals, second: signal.Signals, code: int
) -> None:
    noted().recheck_many(["slow1", "slow2"])
    run = start("--threads", "2")
    run.until("began-slow1", "began-slow2")
    run.send(first)
    run.said()
    run.send(second)
    assert run.ended() == ("", "", code)
    assert not list(run.folder.glob("ran-*"))
    counts = views.counts(store.current())["noted"]
    assert counts.running == 2, "not lost: their leases will end"


def test_events_are_run_while_it_goes_on(start: Start) -> None:
    receive, run = noted(), start()
    last_drain_noted()
    for key in "abc":
        receive.recheck_many([key])
        run.until(f"ran-{key}")
    run.send(signal.SIGTERM)
    assert run.ended()[0] == "3 items, 3 passes, 0 failed\n"


def test_a_failed_pass_is_told_and_is_no_reason_to_restart_a_watch(start: Start) -> None:
    noted().recheck_many(["bad"])
    run = start()
    run.until("began-bad")
    until(lambda: views.counts(store.current())["noted"].dead)
    run.send(signal.SIGTERM)
    out, error, code = run.ended()
    assert (out, code) == ("1 items, 1 passes, 1 failed\n", 0)
    assert "noted bad: given up until a new event comes" in error.replace('"', "")


def test_a_limit_ends_it(start: Start) -> None:
    noted().recheck_many(["a", "b", "c"])
    out, _, code = start("--limit", "2").ended()
    assert (out, code) == ("2 items, 2 passes, 0 failed\n", 0)


def test_the_health_file_is_touched_at_each_look(start: Start, tmp_path: Path) -> None:
    path, receive = tmp_path / "health", noted()
    run = start("--health-file", str(path))
    last_drain_noted()
    for key in "ab":
        os.utime(path, (0, 0))
        receive.recheck_many([key])
        run.until(f"ran-{key}")
        until(lambda: path.stat().st_mtime > 0)


def test_it_goes_on_when_redis_is_back(start: Start, settings: Any) -> None:
    with apart(settings, BREAKER=0) as server:
        receive = noted()
        run = start("--threads", "2", env={"RECHECK_TEST_REDIS_URL": server.url})
        last_drain_noted()
        server.end(signal.SIGKILL)
        assert run.said().startswith("Redis doesn't answer: ConnectionError: ")
        server.start()
        assert run.said() == "Redis is back, and what is owed is run.\n"
        receive.recheck_many(["a"])
        run.until("ran-a")
        run.send(signal.SIGTERM)
        out, error, code = run.ended()
    assert (out, code) == ("1 items, 1 passes, 0 failed\n", 0)
    assert len(error.splitlines()) == 1, "nothing but what the signal does"


def test_it_can_be_stopped_while_redis_is_away(start: Start) -> None:
    run = start(env={"RECHECK_TEST_REDIS_URL": "redis://127.0.0.1:1/0"})
    assert run.said().startswith("Redis doesn't answer: ConnectionError: ")
    run.send(signal.SIGTERM)
    out, error, code = run.ended()
    assert (out, code) == ("0 items, 0 passes, 0 failed\n", 0)
    assert "Traceback" not in error


def test_it_cannot_work_where_it_is_refused(start: Start) -> None:
    with running(requirepass="another") as server:
        url = server.url.replace(":another@", ":wr0ng@")
        out, error, code = start(env={"RECHECK_TEST_REDIS_URL": url}).ended()
    assert (out, code) == ("", 2)
    assert error.startswith("CommandError: Redis refuses this user: AuthenticationError")
    assert "wr0ng" not in error


def test_it_tells_of_each_look(start: Start) -> None:
    run = start("-v3")
    assert re.search(r" looked at \d+ receivers: 0 items to run\n$", run.said())
    assert re.search(r" the next look is in \d\.\d+ s, or at an event\n$", run.said())
    run.send(signal.SIGTERM)
    assert run.ended()[2] == 0
