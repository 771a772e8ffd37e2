"""The search's own server, which it flushes before every step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.servers import running


@pytest.fixture(scope="package")
def laboratory() -> Iterator[redis.Redis]:
    """A client of a server that nobody else uses."""
    with running() as server, server.client as client:
        yield client
