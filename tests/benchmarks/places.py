"""Where processes run. Unpinned on two cores, a round trip takes one time or three, by chance.

P: the server on one core and its clients on another, both kept awake. S: all of them on one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

CORES: Final = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
AWAKE: Final = """
import os, sys
os.sched_setaffinity(0, [int(sys.argv[1])])
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(100_000): pass
"""
"""Keeps a core from sleeping, and gives way to everything else that wants to run there."""


def possible(places: Sequence[str]) -> list[str]:
    """Return those of some places that this machine has; one without a name if it has none."""
    return [place for place in places if not place or len(CORES) > 1] or [""]


@contextmanager
def at(place: str, server: int) -> Iterator[None]:
    """Put a server, by its process id, and this process with its later children in their places."""
    if not place:
        yield
        return
    os.sched_setaffinity(server, CORES[:1])
    os.sched_setaffinity(0, CORES[-1:] if place == "P" else CORES[:1])
    awake = [
        subprocess.Popen([sys.executable, "-S", "-c", AWAKE, str(core)])
        for core in ((CORES[0], CORES[-1]) if place == "P" else ())
    ]
    try:
        yield
    finally:
        for process in awake:
            process.kill()
            process.wait()
        for pid in (server, 0):
            os.sched_setaffinity(pid, CORES)
