"""Celery with Redis, no results kept, without what a cluster of workers tells one another."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final

from .marks import noop

_library: Any = import_module("celery")
app = _library.Celery("bench", broker=os.environ["RECHECK_TEST_REDIS_URL"])
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)
task = app.task(noop, name="noop")
COMMAND: Final = (
    *("-m", "celery", "-A", f"{__name__}:app", "worker", "--pool", "solo", "--concurrency", "1"),
    *("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"),
)


def enqueue(number: int) -> None:
    """Enqueue tasks."""
    for each in range(number):
        task.delay(each)
