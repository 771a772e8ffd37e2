"""The server that the checks look at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import Server, running


@pytest.fixture(scope="package")
def _server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def server(_server: Server) -> Iterator[Server]:
    """A server of this module alone, empty and as it was configured."""
    yield _server
    with _server.client as client:
        client.flushall()
        client.config_set("maxmemory-policy", "noeviction")
