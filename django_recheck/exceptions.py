"""The exceptions that this package raises of its own."""

from __future__ import annotations

from redis.exceptions import RedisError


class RecheckError(Exception):
    """Base of this package's own exceptions."""


class LockLost(RecheckError):
    """The lease of the running pass is over, and the item may be another's."""


class EventError(RecheckError, TypeError):
    """An event can't be recorded: its key or its arguments can't travel."""


class EndlessTriggers(RecheckError):
    """So many passes led to one another that their receivers seem to trigger each other."""


class RedisAway(RecheckError, RedisError):
    """Redis failed a moment ago and isn't asked again before BREAKER seconds are over."""


class RecordError(RecheckError):
    """What Redis holds for an item can't be used: broken, or another version's."""


class NewerRecord(RecordError):
    """A newer version of this package wrote the item's record, which is left alone."""

    def __init__(self, text: str = "") -> None:
        told = "a newer version of django-recheck wrote this item's record, which is left alone"
        super().__init__(text or told)
