"""dramatiq with Redis, in its own configuration."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final

from .marks import noop

_library: Any = import_module("dramatiq")
_brokers: Any = import_module("dramatiq.brokers.redis")
broker = _brokers.RedisBroker(url=os.environ["RECHECK_TEST_REDIS_URL"])
_library.set_broker(broker)
actor = _library.actor(noop)
COMMAND: Final = ("-m", "dramatiq", __name__, "--processes", "1", "--threads", "1")


def enqueue(number: int) -> None:
    """Enqueue tasks."""
    for each in range(number):
        actor.send(each)
