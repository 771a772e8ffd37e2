"""The way to Redis, below the store: the cache's client, scripts by digest, one bounded resend."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from hashlib import sha1
from pathlib import Path
from typing import Any, TypeVar

from django_redis import get_redis_connection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ReadOnlyError

T = TypeVar("T")
Call = tuple[Sequence[str], Sequence[Any]]
"""A script's KEYS and ARGV."""


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
        "enqueue": ("record", "item"),
        "peek": ("record", "item"),
    }
    return Script(name, *parts.get(name, ("record", "item", "lock")))


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
                return client.execute_command("EVALSHA", this.sha, len(keys), *keys, *args)
            except NoScriptError:
                return client.execute_command("EVAL", this.text, len(keys), *keys, *args)

        return self.send(command)

    def call_many(self, name: str, calls: Sequence[Call]) -> list[Any]:
        """Run one script with many sets of keys in one round trip."""
        this = script(name)

        def command(client: Any) -> list[Any]:
            for _ in range(2):
                with client.pipeline(transaction=False) as pipe:
                    for keys, args in calls:
                        pipe.execute_command("EVALSHA", this.sha, len(keys), *keys, *args)
                    replies: list[Any] = pipe.execute(raise_on_error=False)
                if not any(isinstance(reply, NoScriptError) for reply in replies):
                    break
                client.execute_command("SCRIPT LOAD", this.text)
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
            return replies

        if not calls:
            return []
        return self.send(command)[0]
