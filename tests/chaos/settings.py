"""Settings of a chaos run: short leases, a short patience with Redis, a database of its own."""

from __future__ import annotations

from tests.storm import settings as base
from tests.storm.settings import *  # noqa: F403

TTL = 1.0
PATIENCE = {"SOCKET_TIMEOUT": 0.5, "SOCKET_CONNECT_TIMEOUT": 0.5}
# Copies: these settings are imported by tests, too, whose own ones they leave alone.
CACHES = {**base.CACHES, "recheck": {**base.CACHES["recheck"], "OPTIONS": PATIENCE}}
RECHECK = {
    **base.RECHECK,
    "TTL": TTL,
    "BREAKER": 0.3,
    "BACKOFF": (0.05, 0.5),
    "MAX_ATTEMPTS": 1000,  # what is killed again and again would end dead otherwise
}
