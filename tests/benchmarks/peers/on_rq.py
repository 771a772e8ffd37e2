"""RQ with its worker that doesn't fork, no results kept."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final

from .marks import noop

_library: Any = import_module("rq")
_redis: Any = import_module("redis")
_url = os.environ["RECHECK_TEST_REDIS_URL"]
queue = _library.Queue("bench", connection=_redis.Redis.from_url(_url))
COMMAND: Final = (
    *("-m", "rq.cli", "worker", "--worker-class", "rq.worker.SimpleWorker"),
    *("--url", _url, "--quiet", "bench"),
)


def enqueue(number: int) -> None:
    """Enqueue tasks."""
    for each in range(number):
        queue.enqueue(noop, each, result_ttl=0)
