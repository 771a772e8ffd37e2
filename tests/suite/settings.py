"""Settings of the sample suite: all its processes share one Redis and one KEY_PREFIX."""

from __future__ import annotations

from tests.settings import *  # noqa: F403
from tests.settings import CACHES

CACHES = CACHES | {"recheck": CACHES["recheck"] | {"KEY_PREFIX": "suite"}}
