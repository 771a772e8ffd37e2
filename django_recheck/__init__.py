"""Signal receivers that run once at a time for each key, and again for what came meanwhile."""

from .batching import batch
from .decorator import recheck
from .exceptions import EventError, LockLost, RecheckError, RedisAway
from .outcome import Outcome
from .passes import Pass, current_pass
from .receivers import Receiver

__all__ = [
    "EventError",
    "LockLost",
    "Outcome",
    "Pass",
    "Receiver",
    "RecheckError",
    "RedisAway",
    "batch",
    "current_pass",
    "recheck",
]
