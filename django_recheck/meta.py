"""What Redis holds once for a namespace: its shard count and format, the last drain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from redis.exceptions import NoPermissionError, ResponseError

from . import conf
from .connection import Call, Connection, full, text
from .namespace import Namespace
from .records import FORMAT


def digits(text: str) -> int:
    """Return a number that stands in Redis, 0 if it is none."""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else 0


class Meta(Connection, Namespace):
    """One namespace in one Redis, and what is stored of it as a whole.

    Args:
        alias: The django-redis cache whose connection is used.
        prefix: ``RECHECK["PREFIX"]``, behind the cache's own KEY_PREFIX.
        shards: How many hash tags the items are spread over.
    """

    def __init__(self, alias: str, prefix: str, shards: int) -> None:
        Connection.__init__(self, alias)
        Namespace.__init__(
            self, ":".join(filter(None, (str(caches[alias].key_prefix), prefix))), shards
        )
        self.told: set[str] = set()
        """Keys that say for an hour what somebody was told of."""
        self.known = False
        """Whether this process has used it: what format Redis holds is asked first."""
        self.fits = False
        """Whether what this process looks at has the settings' format."""

    def call(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> tuple[Any, bool]:
        self.check_format()
        return super().call(name, keys, args)

    def call_many(self, name: str, calls: Sequence[Call], *, raising: bool = True) -> list[Any]:
        self.check_format()
        return super().call_many(name, calls, raising=raising)

    def check_format(self) -> None:
        """Write the shard count down at the first use of all, compare it at this process's first.

        Raises:
            ImproperlyConfigured: Redis holds items of another SHARDS or of a newer format.
        """
        if self.known:
            return

        stored = self._written()
        if not self._fits(*map(text, stored)):
            self.ask(("HSET", self.meta, "shards", self.shards))
        self.known = True

    def _written(self) -> list[bytes | None]:
        """Return the shard count and the format, as they stand there or are written now."""
        look = ("HMGET", self.meta, "shards", "format")
        try:
            *_, stored = self.ask(
                ("HSETNX", self.meta, "shards", self.shards),
                ("HSETNX", self.meta, "format", FORMAT),
                look,
            )
        except ResponseError as error:
            if not full(error):
                raise
            (stored,) = self.ask(look)
            if not all(stored):
                raise
        return list(stored)

    def look_at_format(self) -> None:
        """Compare as ``check_format`` does, and write nothing: for those that only look.

        Raises:
            ImproperlyConfigured: Redis holds items of another SHARDS or of a newer format.
        """
        if not (self.known or self.fits):
            (stored,) = self.ask(("HMGET", self.meta, "shards", "format"))
            self.fits = self._fits(*map(text, stored))

    def _fits(self, shards: str, version: str) -> bool:
        """Return whether the shard count stands there; another one that nothing needs doesn't."""
        if version and not 1 <= digits(version) <= FORMAT:
            raise ImproperlyConfigured(
                f"Redis holds items of format {version}, this version of django-recheck "
                f"writes {FORMAT}: update it, or give it another RECHECK['PREFIX']."
            )
        if not shards or shards == str(self.shards):
            return True
        stored = min(max(1, digits(shards)), conf.MOST_SHARDS)
        lanes = [self.lane("", shard).keys[-1] for shard in range(stored)]
        if any(self.ask(*(("EXISTS", key) for key in lanes))):
            raise ImproperlyConfigured(
                f"RECHECK['SHARDS'] is {self.shards}, but Redis holds items in {stored}: "
                f"set it back to {stored}, and change it when nothing is running or pending."
            )
        return False

    def first_in_an_hour(self, what: str) -> bool:
        """Say whether nobody has reported something for an hour; whoever asks reports it now."""
        return bool(self.untold([what]))

    def untold(self, names: Sequence[str]) -> list[str]:
        """Return of what nobody has told for an hour: whoever asks tells of it now.

        On a full server it isn't known, and nobody does.
        """
        keys = [f"{self.meta}:{name}" for name in names]
        self.told.update(keys)
        replies = self._note(*(("SET", key, 1, "NX", "EX", 3600) for key in keys)) if keys else []
        return [name for name, first in zip(names, replies, strict=True) if first]

    def drained(self) -> None:
        """Write down, by the server's clock, that a drain has come to its end."""
        self._note(("HSET", self.meta, "drained", int(self.now())))

    def _note(self, *commands: Sequence[Any]) -> list[Any]:
        """Write what only people read. A full server takes no notes, and must be drained, too."""
        try:
            return self.ask(*commands)
        except ResponseError as error:
            if not full(error):
                raise
            return [None] * len(commands)

    def now(self) -> float:
        """Return the server's time in seconds."""
        seconds, micros = self.ask(("TIME",))[0]
        return int(seconds) + int(micros) / 1e6

    def hint(self) -> None:
        """Tell those who watch that something may be ripe. What isn't allowed isn't done."""
        with suppress(NoPermissionError):
            self.ask(("PUBLISH", self.hints, ""))

    def last_drain(self) -> int | None:
        """Return when a drain last came to its end, by the server's clock; None if none did."""
        return digits(text(self.ask(("HGET", self.meta, "drained"))[0])) or None
