"""However many processes run, and whichever are killed: no more items at once than have a place."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.servers import Server, running

ROOT: Final = Path(__file__).parent.parent.parent
ROLES: Final = ("writer", "writer", "writer", "writer", "drain", "drain")
PLACES: Final = 2
DEATHS: Final = 6


class Line(NamedTuple):
    """What a process has written down; times in ns of the machine's clock."""

    what: str
    pid: int
    key: int
    at: int
    until: int


class Fleet:
    """Some processes, replaced as they are killed."""

    def __init__(self, server: Server, folder: Path, concurrency: int) -> None:
        self.server = server
        self.log = folder / "log"
        self.log.touch()
        self.concurrency = concurrency
        self.killed: dict[int, int] = {}
        self.processes = {number: self.start(role) for number, role in enumerate(ROLES)}

    def start(self, role: str) -> subprocess.Popen[bytes]:
        """Start one."""
        command = [sys.executable, "-m", "tests.places.process", role, self.log, self.concurrency]
        settings = {"DJANGO_SETTINGS_MODULE": "tests.settings"}
        environment = os.environ | settings | {"RECHECK_TEST_REDIS_URL": self.server.url}
        return subprocess.Popen(list(map(str, command)), cwd=ROOT, env=environment)

    def lines(self) -> list[Line]:
        """Return what was written down so far."""
        whole = self.log.read_text().rpartition("\n")[0].splitlines()
        rows = (line.split() for line in whole)
        return [Line(what, *map(int, rest)) for what, *rest in rows]

    def passes(self) -> set[int]:
        """Return the pids of those that are in a pass."""
        found: set[int] = set()
        for line in self.lines():
            if line.what in ("began", "ended"):
                (found.add if line.what == "began" else found.discard)(line.pid)
        return found - self.killed.keys()

    def ended(self) -> int:
        """Return how many passes have ended."""
        return self.log.read_bytes().count(b"ended ")

    def ready(self) -> bool:
        """Return whether all are at work."""
        pids = {process.pid for process in self.processes.values()}
        return pids <= {line.pid for line in self.lines()}

    def kill(self, number: int) -> None:
        """Kill one, and start another in its stead."""
        process = self.processes[number]
        process.kill()
        process.wait()
        self.killed[process.pid] = time.monotonic_ns()
        self.processes[number] = self.start(ROLES[number])

    def end(self, role: str) -> None:
        """Let those of a role end in order."""
        mine = [self.processes.pop(n) for n in list(self.processes) if ROLES[n] == role]
        for process in mine:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(20) for process in mine] == [0] * len(mine)


@contextmanager
def fleet(folder: Path, concurrency: int) -> Iterator[Fleet]:
    with running() as server:
        found = Fleet(server, folder, concurrency)
        try:
            yield found
        finally:
            for process in found.processes.values():
                process.kill()
                process.wait()


def until(happened: Callable[[], Any]) -> None:
    end = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def spans(fleet: Fleet) -> list[tuple[int, int]]:
    """Return when passes ran under a lease that surely went on: after it others may have begun."""
    open_ones: dict[tuple[int, int], Line] = {}
    found = []
    for line in fleet.lines():
        if line.what == "began":
            open_ones[line.pid, line.key] = line
        elif line.what == "ended":
            began = open_ones.pop((line.pid, line.key))
            found.append((began.at, min(line.at, began.until)))
    for (pid, _), began in open_ones.items():
        found.append((began.at, min(fleet.killed[pid], began.until)))
    return found


def most_at_once(found: list[tuple[int, int]]) -> int:
    """Return how many there were at the same moment, at most."""
    ends = sorted([(end, -1) for _, end in found] + [(start, 1) for start, _ in found])
    most = now = 0
    for _, step in ends:
        now += step
        most = max(most, now)
    return most


def covered(lines: list[Line]) -> bool:
    """Return whether a pass of each key has begun after its last event was sent, and has ended."""
    began: dict[tuple[int, int], int] = {}
    last = dict.fromkeys({line.key for line in lines}, 0)
    for line in lines:
        if line.what == "began":
            began[line.pid, line.key] = line.at
        elif line.what == "ended":
            last[line.key] = max(last[line.key], began[line.pid, line.key])
    return all(last[line.key] >= line.at for line in lines if line.what == "event")


def test_no_more_run_at_once_than_there_are_places(tmp_path: Path) -> None:
    with fleet(tmp_path, PLACES) as found, found.server.client as client:
        until(found.ready)
        for number in range(DEATHS):
            ended = found.ended() + 30
            until(lambda: found.ended() >= ended)  # noqa: B023 - it is called here
            pids = {process.pid: n for n, process in found.processes.items()}
            until(lambda: found.passes() & pids.keys())  # noqa: B023 - it is called here
            busy = [pids[pid] for pid in found.passes() & pids.keys()]
            found.kill(random.choice(busy) if busy and number % 3 else number % len(ROLES))
        until(found.ready)
        found.end("writer")
        until(lambda: not client.keys("*:state:*"))
        found.end("drain")
        lines, passes = found.lines(), spans(found)
    assert most_at_once(passes) == PLACES
    assert sum(line.what == "event" for line in lines) > 100
    assert covered(lines), "an event that no pass has got"


def test_without_a_limit_more_would_run(tmp_path: Path) -> None:
    """So that the test above can tell the difference."""
    with fleet(tmp_path, 0) as found:
        until(lambda: len(found.lines()) > 300)
        until(lambda: most_at_once(spans_so_far(found)) > PLACES)


def spans_so_far(fleet: Fleet) -> list[tuple[int, int]]:
    """Return the passes of a fleet that goes on: those that run don't count."""
    now = time.monotonic_ns()
    fleet.killed = dict.fromkeys((line.pid for line in fleet.lines()), now)
    return spans(fleet)


@pytest.mark.parametrize(
    ("found", "most"),
    [([], 0), ([(0, 5), (5, 9)], 1), ([(0, 5), (4, 9)], 2), ([(0, 9), (1, 2), (3, 4)], 2)],
)
def test_the_count_itself(found: list[tuple[int, int]], most: int) -> None:
    assert most_at_once(found) == most
