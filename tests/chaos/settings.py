"""Settings of a chaos run: short leases, a short patience with Redis, a database of its own."""

from __future__ import annotations

from tests.storm.settings import *  # noqa: F403
from tests.storm.settings import CACHES, RECHECK

TTL = 1.0
CACHES["recheck"]["OPTIONS"] = {"SOCKET_TIMEOUT": 0.5, "SOCKET_CONNECT_TIMEOUT": 0.5}
RECHECK |= {
    "TTL": TTL,
    "BREAKER": 0.3,
    "BACKOFF": (0.05, 0.5),
    "MAX_ATTEMPTS": 1000,  # what is killed again and again would end dead otherwise
}
