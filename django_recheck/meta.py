"""What Redis holds once for a namespace: its shard count and format, the last drain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured

from . import conf
from .connection import Call, Connection, text
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
        self._known = False

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
        if self._known:
            return

        *_, stored = self.ask(
            ("HSETNX", self.meta, "shards", self.shards),
            ("HSETNX", self.meta, "format", FORMAT),
            ("HMGET", self.meta, "shards", "format"),
        )
        shards, version = map(text, stored)
        if not 1 <= digits(version) <= FORMAT:
            raise ImproperlyConfigured(
                f"Redis holds items of format {version}, this version of django-recheck "
                f"writes {FORMAT}: update it, or give it another RECHECK['PREFIX']."
            )
        if shards != str(self.shards):
            self._reshard(min(max(1, digits(shards)), conf.MOST_SHARDS))
        self._known = True

    def _reshard(self, stored: int) -> None:
        """Take the new shard count if nothing is stored under the old one."""
        lanes = [self.lane("", shard).keys[-1] for shard in range(stored)]
        if any(self.ask(*(("EXISTS", key) for key in lanes))):
            raise ImproperlyConfigured(
                f"RECHECK['SHARDS'] is {self.shards}, but Redis holds items in {stored}: "
                f"set it back to {stored}, and change it when nothing is running or pending."
            )
        self.ask(("HSET", self.meta, "shards", self.shards))

    def first_in_an_hour(self, what: str) -> bool:
        """Say whether nobody has reported something for an hour; whoever asks reports it now."""
        return bool(self.ask(("SET", f"{self.meta}:{what}", 1, "NX", "EX", 3600))[0])

    def drained(self) -> None:
        """Write down, by the server's clock, that a drain has come to its end."""
        self.ask(("HSET", self.meta, "drained", self.now()))

    def now(self) -> int:
        """Return the server's time in seconds."""
        return int(self.ask(("TIME",))[0][0])

    def last_drain(self) -> int | None:
        """Return when a drain last came to its end, by the server's clock; None if none did."""
        return digits(text(self.ask(("HGET", self.meta, "drained"))[0])) or None
