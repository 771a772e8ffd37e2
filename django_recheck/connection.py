"""The way to Redis, below the store: the cache's client, scripts by digest, one bounded resend."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from hashlib import sha1
from pathlib import Path
from typing import Any, Final, TypeVar

from django_redis import get_redis_connection
from redis.client import NEVER_DECODE
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

T = TypeVar("T")
Call = tuple[Sequence[str], Sequence[Any]]
"""A script's KEYS and ARGV."""
RAW: Final[dict[str, Any]] = {NEVER_DECODE: True}
"""Asks for bytes, whatever the cache's options say: what stands in Redis need not be UTF-8."""


class Script:
    """A Lua script with what it shares put in front, and its digest."""

    def __init__(self, name: str, *parts: str) -> None:
        folder = Path(__file__).parent / "scripts"
        self.name = name
        self.text = "".join((folder / f"{part}.lua").read_text("utf-8") for part in (*parts, name))
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()


@functools.cache
def script(name: str) -> Script:
    """Return a script by its name; the files are read at first use, not at import."""
    parts = {
        "renew": ("record",),
        "enqueue": ("record", "item", "minutes"),
        "peek": ("record", "item", "places"),
        "pause": ("record", "item"),
    }
    return Script(name, *parts.get(name, ("record", "item", "places", "minutes", "lock")))


class Connection:
    """The raw client of a django-redis cache, always of its primary: replicas decide nothing.

    Args:
        alias: The cache's alias.
    """

    def __init__(self, alias: str) -> None:
        self.alias = alias

    @property
    def client(self) -> Any:
        """The client, asked for anew each time: django-redis keeps it, and it may be replaced."""
        return get_redis_connection(self.alias, write=True)

    def send(self, command: Callable[[Any], T]) -> tuple[T, bool]:
        """Run a command, once more after a lost connection or a demoted primary.

        A timeout isn't tried again: one wait for a server that hangs is enough.

        Returns:
            The reply, and whether it was sent twice (the first may have worked all the same).
        """
        client = self.client
        try:
            return command(client), False
        except RedisConnectionError:
            pass
        except ReadOnlyError:
            client.connection_pool.disconnect()
        return command(client), True

    def call(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> tuple[Any, bool]:
        """Run one script; a server that doesn't know it any more learns it in passing."""
        this = script(name)

        def command(client: Any) -> Any:
            try:
                return client.execute_command("EVALSHA", this.sha, len(keys), *keys, *args, **RAW)
            except NoScriptError:
                return client.execute_command("EVAL", this.text, len(keys), *keys, *args, **RAW)

        return self.send(command)

    def call_many(self, name: str, calls: Sequence[Call], *, raising: bool = True) -> list[Any]:
        """Run one script with many sets of keys in one round trip.

        Returns:
            The replies; where ``raising`` is off, a ``ResponseError`` for a call that failed.
        """
        this = script(name)
        words = [("EVALSHA", this.sha, len(keys), *keys, *args) for keys, args in calls]

        def command(client: Any) -> list[Any]:
            replies = _replies(client, words)
            if any(isinstance(reply, NoScriptError) for reply in replies):
                client.execute_command("SCRIPT LOAD", this.text)
                replies = _replies(client, words)
            return _raised(replies, raising)

        return self.send(command)[0] if calls else []

    def ask(self, *commands: Sequence[Any], raising: bool = True) -> list[Any]:
        """Run plain commands in one round trip.

        Returns:
            The replies, texts as bytes; where ``raising`` is off, a ``ResponseError`` for what
            failed.
        """
        return self.send(lambda client: _raised(_replies(client, commands), raising))[0]


def _replies(client: Any, commands: Sequence[Sequence[Any]]) -> list[Any]:
    with client.pipeline(transaction=False) as pipe:
        for words in commands:
            pairs = {"withscores": True} if words[0] == "ZRANGE" else {}
            pipe.execute_command(*words, **RAW, **pairs)
        replies: list[Any] = pipe.execute(raise_on_error=False)
        return replies


def _raised(replies: list[Any], raising: bool) -> list[Any]:
    for reply in replies:
        if isinstance(reply, Exception) and (raising or type(reply) is not ResponseError):
            raise reply
    return replies


def unwelcome(error: Exception) -> bool:
    """Return whether a server doesn't let this user in."""
    return isinstance(error, (AuthenticationError, AuthorizationError, NoPermissionError))


def full(error: Exception) -> bool:
    """Return whether a server has no memory left for what was to be written."""
    return "used memory > 'maxmemory'" in str(error)


def failure(error: Exception) -> str:
    """Return a clause that says how a server failed: whether it is away, or refuses."""
    said = f"{type(error).__name__}: {error}"
    if unwelcome(error):
        return f"refuses this user: {said}"
    refused = isinstance(error, (ResponseError, BusyLoadingError))
    return f"refuses: {said}" if refused else f"doesn't answer: {said}"


def text(value: bytes | None) -> str:
    """Return what stands in Redis as text, "" for nothing."""
    return (value or b"").decode("utf-8", "replace")
