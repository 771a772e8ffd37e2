"""Task queues that people might use instead, each with one process and one thread.

Every module here has ``enqueue(number)`` and ``COMMAND``, the worker's command line after Python.
Their tasks, and ours, do nothing but count themselves: see ``marks``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

NAMES: Final = ("huey", "dramatiq", "celery", "rq")
PATIENCE: Final = 120.0


def installed() -> list[str]:
    """Return the names of those that are there."""
    return [name for name in NAMES if find_spec(name)]


def peer(name: str) -> Any:
    """Return a peer's module."""
    return import_module(f"{__name__}.on_{name}")


def seconds_each(command: Sequence[str], number: int, *, cpu: bool) -> float:
    """Start a worker for tasks that wait already, and end it when it has done them.

    Args:
        command: After Python, of one that calls ``marks.noop`` for each task.
        number: How many tasks wait.
        cpu: Count the time of the processor in worker and server, not the clock's.

    Returns:
        Seconds for each task from the first tenth on: its start-up isn't counted.

    Raises:
        RuntimeError: It didn't do them.
    """
    with tempfile.TemporaryDirectory(prefix="recheck-bench-") as folder:
        marks, log = Path(folder) / "marks", Path(folder) / "log"
        more = {"RECHECK_BENCH_MARKS": str(marks), "RECHECK_BENCH_NUMBER": str(number)}
        more["RECHECK_BENCH_CPU"] = "1" if cpu else ""
        with log.open("wb") as said:
            worker = subprocess.Popen(
                [sys.executable, *command],
                env={**os.environ, **more},
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        until = time.monotonic() + PATIENCE
        try:
            while not marks.exists():
                if time.monotonic() > until or worker.poll():
                    said_last = log.read_text("utf-8", "replace")[-1000:]
                    raise RuntimeError(f"{command} didn't do its tasks:\n{said_last}")
                time.sleep(0.02)
            return float(marks.read_text())
        finally:
            worker.terminate()
            worker.wait(PATIENCE)
