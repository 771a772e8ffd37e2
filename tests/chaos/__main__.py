"""Chaos: ``python -m tests.chaos --seconds 60``. Real processes, real kills, a real server.

Every half second something bad happens. Every few seconds all comes to rest, and the promises are
checked. The last line is one JSON object; the exit code is 0 only if they held.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from tests.servers import Server, running
from tests.storm.test_storm import database

STEP: Final = 0.5
FAULTS_A_ROUND: Final = 6
FAULTS: Final = {"kill": 8, "stop": 5, "scripts": 1, "pause": 2, "connections": 2, "restart": 2}
"""How often each happens."""


class Run:
    """One run: the processes, the server, and what is done to them.

    Args:
        server: The server; its process is killed and started again.
        folder: Where the processes log.
        seed: Chooses the faults.
        emptying: Whether the server also comes back empty.
    """

    def __init__(self, server: Server, folder: Path, seed: int, emptying: bool) -> None:
        from .process import SLOTS, Board

        self.server = server
        self.folder = folder
        self.chance = random.Random(seed)
        self.weights = {**FAULTS, "empty": 2} if emptying else FAULTS
        self.board = Board()
        self.processes: list[Any] = [None] * SLOTS
        self.spawned = 0
        self.resume: dict[int, float] = {}
        """When each stopped slot goes on."""
        self.exempt: dict[int, int] = {}
        """The pass in which a slot was stopped: it may outlive its lease, and must tell."""
        self.killed: list[tuple[int, int]] = []
        """Slot and time of each kill."""
        self.emptied: list[int] = []
        self.faults: Counter[str] = Counter()
        self.rests = 0

    def spawn(self, slot: int) -> None:
        """Start a slot's process, for the first time or in a killed one's place."""
        from .process import Process, fork

        self.board.may_die[slot] = self.board.parked[slot] = 0
        self.spawned += 1
        live = Process(slot, self.board).live
        self.processes[slot] = fork.Process(target=live, args=(self.folder, self.spawned))
        self.processes[slot].start()

    def go(self, seconds: float) -> None:
        """Let it all happen."""
        for slot in range(len(self.processes)):
            self.spawn(slot)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(FAULTS_A_ROUND):
                time.sleep(STEP)
                self.wake(time.monotonic())
                fault = self.next()
                self.faults[fault] += getattr(self, f"do_{fault}")() is not False
            self.rest()
        self.board.over.value = 1
        for process in self.processes:
            process.join(60)
            assert process.exitcode == 0, f"a process ended with {process.exitcode}"

    def next(self) -> str:
        """Choose a fault; where the server comes back empty, it does so at least once."""
        if "empty" in self.weights and not self.emptied:
            return "empty"
        (fault,) = self.chance.choices(list(self.weights), list(self.weights.values()))
        return fault

    def wake(self, now: float) -> None:
        """Let stopped processes go on whose time has come."""
        for slot in [slot for slot, until in self.resume.items() if until <= now]:
            del self.resume[slot]
            os.kill(self.processes[slot].pid, signal.SIGCONT)

    def do_kill(self) -> bool:
        """Kill somebody who holds a lock; what is stopped first can't leave its pass meanwhile."""
        board = self.board

        def may_die(slot: int) -> bool:
            return bool(board.may_die[slot]) and self.exempt.get(slot) != board.passes[slot]

        if (slot := self.caught(may_die)) is None:
            return False
        os.kill(self.processes[slot].pid, signal.SIGKILL)
        self.processes[slot].join()
        self.killed.append((slot, time.monotonic_ns()))
        self.spawn(slot)
        return True

    def do_stop(self) -> bool:
        """Stop somebody for longer than a lease lasts, who will then write what is old."""
        from .settings import TTL

        if (slot := self.caught(lambda slot: bool(self.board.has_read[slot]))) is None:
            return False
        self.exempt[slot] = self.board.passes[slot]
        self.resume[slot] = time.monotonic() + TTL * (1.2 + self.chance.random())
        return True

    def caught(self, wanted: Callable[[int], bool]) -> int | None:
        """Stop a process that is where it is wanted, and return its slot."""
        slots = [slot for slot in range(len(self.processes)) if slot not in self.resume]
        self.chance.shuffle(slots)
        until = time.monotonic() + STEP
        while time.monotonic() < until:
            for slot in filter(wanted, slots):
                os.kill(self.processes[slot].pid, signal.SIGSTOP)
                if wanted(slot):  # it was still there when it stopped
                    return slot
                os.kill(self.processes[slot].pid, signal.SIGCONT)
            time.sleep(0.001)
        return None

    def do_scripts(self) -> None:
        """Make the server forget its scripts."""
        with self.server.client as client:
            client.script_flush()

    def do_pause(self) -> None:
        """Let the server answer nobody for up to three socket timeouts."""
        with self.server.client as client:
            client.client_pause(self.chance.randrange(50, 1500))

    def do_connections(self) -> None:
        """Cut everybody's connections."""
        with self.server.client as client:
            client.execute_command("CLIENT KILL TYPE normal SKIPME yes")

    def do_restart(self) -> None:
        """Kill the server; it comes back with what it had acknowledged."""
        self.server.end(signal.SIGKILL)
        time.sleep(self.chance.random())
        self.server.start()

    def do_empty(self) -> None:
        """Kill the server; it comes back with nothing."""
        self.server.end(signal.SIGKILL)
        shutil.rmtree(self.server.folder / "appendonlydir", ignore_errors=True)
        self.server.start()
        self.emptied.append(time.monotonic_ns())

    def rest(self) -> None:
        """Let the writers wait, drain until nothing is pending, and look at what is there.

        The last writes are those of holders that outlived their leases, and of passes without a
        lock: no event comes after them that would set them right.
        """
        from .judge import settle
        from .process import WRITERS, fork
        from .settings import TTL

        for _ in range(2):
            self.faults["stop"] += self.do_stop()
        time.sleep(1.1 * TTL)
        self.do_pause()
        self.board.quiet.value = 1
        self.park(slot for slot in range(WRITERS) if slot not in self.resume)
        self.wake(float("inf"))
        self.park(range(WRITERS))
        judge = fork.Process(target=settle, args=(self.board, self.emptied))
        judge.start()
        judge.join(120)
        assert judge.exitcode == 0, "no rest came about"
        self.rests += 1
        self.board.quiet.value = 0

    def park(self, slots: Iterable[int]) -> None:
        """Wait until writers wait."""
        slots, until = list(slots), time.monotonic() + 60
        while not all(self.board.parked[slot] for slot in slots):
            assert time.monotonic() < until, "a writer doesn't come to its end"
            time.sleep(0.01)

    def close(self) -> None:
        """End what is left."""
        for process in filter(None, self.processes):
            process.kill()
            process.join()


def main() -> int:
    """Run as the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("--empty", action="store_true", help="the server also comes back empty")
    options = parser.parse_args()
    lasting = {"appendonly": "yes", "appendfsync": "always"}
    with (
        tempfile.TemporaryDirectory(prefix="recheck-chaos-") as name,
        running(**lasting) as server,
        database("postgres", Path(name)) as where,
    ):
        os.environ |= {"RECHECK_TEST_REDIS_URL": server.url, **where}
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.chaos.settings"
        from . import judge

        judge.prepare()
        run = Run(server, Path(name), options.seed, options.empty)
        try:
            run.go(options.seconds)
            found = judge.judge(run)
        finally:
            run.close()
    report = {"seconds": options.seconds, "seed": options.seed, **found}
    print(json.dumps(report))
    return 0 if report["held"] else 1


if __name__ == "__main__":
    sys.exit(main())
