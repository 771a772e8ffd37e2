"""huey with Redis, no results kept."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final

from .marks import noop

_library: Any = import_module("huey")
huey = _library.RedisHuey(
    "bench", url=os.environ["RECHECK_TEST_REDIS_URL"], results=False, immediate=False
)
task = huey.task()(noop)
COMMAND: Final = (
    *("-m", "huey.bin.huey_consumer", f"{__name__}.huey"),
    *("--workers", "1", "--worker-type", "thread", "--quiet"),
)


def enqueue(number: int) -> None:
    """Enqueue tasks."""
    for each in range(number):
        task(each)
