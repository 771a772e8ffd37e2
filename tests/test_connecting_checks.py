"""Which checks connect: those of ``check --deploy``, and no others."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@contextmanager
def listening() -> Iterator[tuple[int, list[Any]]]:
    """Listen on a port, and note who connects."""
    seen: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    peer, address = server.accept()
                except OSError:
                    return
                seen.append(address)
                peer.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1], seen
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def django(port: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Django in a process of its own, its cache on that port."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "RECHECK_TEST_REDIS_URL": f"redis://127.0.0.1:{port}/0",
        },
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "import django; django.setup(); import shop.receivers"),
        ("-m", "django", "check"),
        ("-m", "django", "check", "--tag", "recheck"),
    ],
)
def test_c32_setup_and_check_connect_to_nothing(arguments: tuple[str, ...]) -> None:
    with listening() as (port, seen):
        run = django(port, *arguments)
    assert run.returncode == 0, run.stderr
    assert seen == []


def test_c32_check_deploy_is_what_connects() -> None:
    with listening() as (port, seen):
        run = django(port, "-m", "django", "check", "--deploy", "--tag", "recheck")
    assert run.returncode == 0, run.stderr
    assert seen
    assert "django_recheck.W101" in run.stderr
