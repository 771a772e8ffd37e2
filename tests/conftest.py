"""What all tests share: every test leaves Redis, the registry and the signals as it found them."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.db import connections
from django.db.models import signals
from django.dispatch import Signal

from django_recheck import outage, receivers, store, undrained
from tests.servers import of_the_run

WATCHED = [signal for signal in vars(signals).values() if isinstance(signal, Signal)]
POSTGRES = os.environ.get("RECHECK_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432")

_left_out: set[tuple[str, str]] = set()
"""Markers, and tests that were left out for them."""


def _postgres_is_there() -> bool:
    try:
        import psycopg

        with psycopg.connect(f"{POSTGRES}/postgres", connect_timeout=3):
            return True
    except (ImportError, OSError, psycopg.Error):
        return False


def _chromium_is_there() -> bool:
    return all(map(shutil.which, ("chromium", "chromedriver")))


SERVICES = {
    "postgres": (
        _postgres_is_there,
        f"a PostgreSQL server (RECHECK_TEST_POSTGRES={POSTGRES} doesn't answer)",
    ),
    "browser": (_chromium_is_there, "the commands chromium and chromedriver"),
}
"""By marker: whether it is there, and what it is."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a service on a machine without it; in CI that is a failure."""
    for marker, (is_there, _) in SERVICES.items():
        wanting = [item for item in items if item.get_closest_marker(marker)]
        if wanting and not os.environ.get("CI") and not is_there():
            _left_out.update((marker, item.nodeid) for item in wanting)
            config.hook.pytest_deselected(items=wanting)
            items[:] = [item for item in items if item not in wanting]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell xdist's controller, which collects nothing itself."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = sorted(_left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear what a worker left out."""
    _left_out.update(map(tuple, getattr(node, "workeroutput", {}).get("left_out", ())))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line for each service what was left out."""
    for marker, number in sorted(Counter(marker for marker, _ in _left_out).items()):
        terminalreporter.write_line(f"left out: {number} tests that need {SERVICES[marker][1]}")


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """Undo what a test registers, connects, writes to Redis or remembers of an outage."""
    known = {name: list(named) for name, named in receivers.registry.items()}
    connected = [(signal, list(signal.receivers)) for signal in WATCHED]
    yield
    receivers.registry.clear()
    receivers.registry.update(known)
    for signal, before in connected:
        signal.receivers[:] = before
        signal.sender_receivers_cache.clear()
    outage.forget()
    undrained.forget()
    store.forget()
    with of_the_run().client as client:
        try:
            if keys := list(client.scan_iter("*test-*", count=1000)):
                client.delete(*keys)
        except redis.ConnectionError:
            pass
    for connection in connections.all(initialized_only=True):
        blocks = connection.atomic_blocks if connection.in_atomic_block else []
        assert all(getattr(block, "_from_testcase", False) for block in blocks)
