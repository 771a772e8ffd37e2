"""``manage.py recheck_run`` as a process: signals, exit codes, and what it can't work with."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_recheck import store, views
from tests.servers import running

pytestmark = pytest.mark.django_db(transaction=True)

SLOW = """
import django, os, sys
django.setup()
from django.core.management import call_command
from django_recheck import recheck
import time, pathlib

folder = pathlib.Path(sys.argv[1])

@recheck(name="slow", key="group", dispatch="worker", max_attempts=1)
def slow(sender, recheck_pass, **kwargs):
    folder.joinpath("pid").write_text(str(os.getpid()))
    folder.joinpath("began").touch()
    while not folder.joinpath("go").exists():
        try:
            time.sleep(0.01)
        except BaseException:  # as bad code does: it doesn't even let itself be interrupted
            pass
    folder.joinpath("ended").touch()
    if sys.argv[2] == "fails":
        raise ValueError("as asked")

slow.recheck_many([1, 2])
call_command("recheck_run")
"""


class Run:
    """A drain in a process of its own, whose receiver works until it is told to go on."""

    def __init__(self, folder: Path, way: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            ["sh", "-c", '"$0" "$@"; echo "status $?"', sys.executable, "-c", SLOW, folder, way],
            cwd=Path(__file__).parent.parent,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        until = time.monotonic() + 30
        while not (folder / "began").exists():
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < until
            time.sleep(0.01)
        self.pid = int((folder / "pid").read_text())

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def said(self) -> str:
        """Wait for a line on the standard error."""
        assert self.process.stderr is not None
        assert select.select([self.process.stderr], [], [], 20)[0], "it says nothing"
        return self.process.stderr.readline()

    def ended(self) -> tuple[list[str], str]:
        """Wait for its end; return the lines it printed, and what it said on the standard error."""
        out, error = self.process.communicate(timeout=20)
        return out.splitlines(), error

    def close(self) -> None:
        if self.process.poll() is None:
            self.send(signal.SIGKILL)
            self.process.communicate(timeout=20)


@pytest.fixture(params=["works"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path, request.param)
    yield run
    run.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_finishes_the_pass_and_says_so(run: Run, number: signal.Signals) -> None:
    run.send(number)
    said = run.said()
    assert said.startswith(f"{number.name}: the running pass is finished, the rest is left to the ")
    assert said.endswith("A second one stops at once.\n")
    (run.folder / "go").touch()
    assert run.ended() == (["1 items, 1 passes, 0 failed", "status 0"], "")
    assert (run.folder / "ended").exists()
    assert views.counts(store.current())["slow"].due == 1
    assert store.current().last_drain() is None, "it didn't come to its end"


@pytest.mark.parametrize("run", ["fails"], indirect=True)
def test_a_pass_that_failed_counts_though_it_was_stopped(run: Run) -> None:
    run.send(signal.SIGTERM)
    run.said()
    (run.folder / "go").touch()
    assert run.ended()[0] == ["1 items, 1 passes, 1 failed", "status 1"]


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        (signal.SIGINT, signal.SIGINT, 130),
        (signal.SIGTERM, signal.SIGTERM, 143),
        (signal.SIGINT, signal.SIGTERM, 143),
    ],
)
def test_c56_the_second_signal_ends_it_at_once(
    run: Run, first: signal.Signals, second: signal.Signals, status: int
) -> None:
    run.send(first)
    run.said()
    run.send(second)
    out, error = run.ended()
    assert out == [f"status {status}"]
    assert "Traceback" not in error
    assert not (run.folder / "ended").exists()
    counts = views.counts(store.current())["slow"]
    assert (counts.due, counts.running) == (1, 1), "not lost: its lease will end"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"CACHE": "default"}, "not one of django-redis"),
        ({"CACHE": "nobody"}, "CACHES has no such alias"),
        ({"ttl": 5}, "Did you mean 'TTL'?"),
    ],
)
def test_it_cant_work_with_wrong_settings_though_nobody_ran_the_checks(
    settings: Any, wrong: dict[str, Any], words: str
) -> None:
    settings.RECHECK = {**settings.RECHECK, **wrong}
    with pytest.raises(CommandError) as raised:
        call_command("recheck_run")  # which skips them
    assert words in str(raised.value)
    assert raised.value.returncode == 2


def test_it_says_whether_redis_is_away_or_refuses(settings: Any) -> None:
    cache = settings.CACHES["recheck"]
    with running(requirepass="s3cret") as server:
        for location, words in (
            ("redis://127.0.0.1:1/0", "Redis doesn't answer: ConnectionError: "),
            (f"redis://127.0.0.1:{server.port}/0", "Redis refuses this user: Authentic"),
            (f"redis://:wr0ng@127.0.0.1:{server.port}/0", "Redis refuses this user: Authentic"),
        ):
            settings.CACHES = {"default": {**cache, "LOCATION": location}}
            settings.RECHECK = {}
            store.forget()
            with pytest.raises(CommandError) as raised:
                call_command("recheck_run")
            assert str(raised.value).startswith(words)
            assert "wr0ng" not in str(raised.value)
            assert raised.value.returncode == 2
