"""One process of a fleet: ``python -m tests.places.process ROLE LOG CONCURRENCY``.

A ``writer`` sends events whose passes it runs inline; a ``drain`` watches. Both write down, in a
line each, when a pass begins, until when its lease goes surely on, and when it ends; writers also
which events Redis has taken. SIGTERM ends them after their pass.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

KEYS: Final = 20


class Process:
    """What both have.

    Args:
        log: Where all processes write, a line at a time.
        concurrency: How many items may run at once, None for any number.
    """

    def __init__(self, log: Path, concurrency: int | None) -> None:
        from django_recheck import recheck

        self.log = os.open(log, os.O_WRONLY | os.O_APPEND)
        self.random = random.Random()
        options: dict[str, Any] = {"concurrency": concurrency, "ttl": 1, "max_hold": 1}
        patient: dict[str, Any] = {"max_attempts": 10_000, "backoff": (0.01, 0.05)}

        @recheck(name="placed", key="value", **options, **patient)
        def placed(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
            ends = int(recheck_pass.deadline * 1e9)
            self.write("began", recheck_pass.key, time.monotonic_ns(), ends)
            time.sleep(self.random.choice((0.001, 0.005, 0.02)))
            self.write("ended", recheck_pass.key, time.monotonic_ns(), 0)

        self.receiver = placed

    def write(self, what: str, key: int, at: int, until: int) -> None:
        """Write a line, which no other process can break up."""
        os.write(self.log, f"{what} {os.getpid()} {key} {at} {until}\n".encode())


def main() -> None:
    """Do what the role does until SIGTERM."""
    import django

    django.setup()
    from django_recheck.watch import Watch

    role, log, concurrency = sys.argv[1:]
    process = Process(Path(log), int(concurrency) or None)
    if role == "drain":
        watch = Watch()
        signal.signal(signal.SIGTERM, lambda *_: watch.stop())
        process.write("ready", 0, 0, 0)
        watch.run(threads=2)
        return
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    process.write("ready", 0, 0, 0)
    while not over.is_set():
        key, at = process.random.randrange(KEYS), time.monotonic_ns()
        process.receiver.recheck(key=key)
        process.write("event", key, at, 0)
        time.sleep(0.003)  # or they would go round without end where all places are taken


if __name__ == "__main__":
    main()
