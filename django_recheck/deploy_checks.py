"""What ``check --deploy`` asks the server. All of it reads; a check writes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from redis.connection import parse_url
from redis.exceptions import NoPermissionError, NoScriptError, RedisError, ResponseError

from . import conf, store, views, worker
from .connection import RAW, script, text
from .meta import digits
from .receivers import registry
from .records import FORMAT, Item

OVERDUE: Final = 300
"""Seconds after which something that is due should have been drained."""

COMMANDS: Final = (
    *("DEL @", "EXISTS @", "GET @", "HDEL @ f", "HEXISTS @ f", "HGET @ f", "HSET @ f v"),
    *("HSETNX @ f v", "PEXPIRE @ 1", "PTTL @"),
    *("SADD @ m", "SET @ v PX 1", "SISMEMBER @ m", "SMEMBERS @", "SREM @ m", "TIME", "ZADD @ 0 m"),
    *("ZCARD @", "ZRANGE @ 0 0", "ZRANGEBYSCORE @ 0 0", "ZREM @ m", "ZSCORE @ m"),
)
"""What scripts and views use on the keys of a shard; @ stands for the key."""
META_COMMANDS: Final = ("HGET @ f", "HMGET @ f", "HSET @ f v", "HSETNX @ f v")
"""What is used on the key that is there once for all shards."""

# Replies the commands that this user may not use. The flag makes the server refuse every write,
# after it has looked at the user's rights: so this is a dry run.
DRY_RUN: Final = """#!lua flags=no-writes
local refused = {}
for _, line in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(line, '%S+') do words[#words + 1] = word == '@' and KEYS[1] or word end
  local reply = redis.pcall(unpack(words))
  local said = type(reply) == 'table' and reply.err or 'WRONGTYPE'
  if not (string.find(said, 'read%-only script') or string.find(said, 'WRONGTYPE')) then
    refused[#refused + 1] = words[1]
  end
end
return refused
"""


def hide(text: str) -> str:
    """Return a text without the password that a URL in it may have."""
    return re.sub(r"//\S*@", "//…@", text)


def message(number: str, text: str, hint: str) -> CheckMessage:
    """Return an error (E…) or a warning (W…) of this app."""
    kind = Error if number.startswith("E") else Warning
    return kind(hide(text), hint=hint[0].upper() + hint[1:], id=f"django_recheck.{number}")


def check_dispatch() -> list[CheckMessage]:
    """Look for receivers that are called in the signal. Needs no server."""
    found = [n for n, (*_, r) in registry.items() if _dispatch(r.options.value) == "immediate"]
    if _dispatch(conf.get) == "immediate":
        found = ["RECHECK"]
    if not found:
        return []
    text = f"DISPATCH is 'immediate' in {', '.join(found)}: no lock, no recheck, no commit awaited."
    return [message("W106", text, "That is for tests: write 'inline' or 'worker' here.")]


def _dispatch(value: Callable[[str], Any]) -> Any:
    try:
        return value("DISPATCH")
    except ImproperlyConfigured:
        return None  # another check says so


def check_server() -> list[CheckMessage]:
    """Check the server that the cache names; of one that can't be reached only that is said."""
    try:
        current = store.current()
    except ImproperlyConfigured:
        return []  # another check says so
    try:
        _reach(current.client)
    except (RedisError, OSError) as error:
        return [_unreachable(current, error)]
    except Exception as error:  # whatever a URL, an option or a class of its own may bring about
        text = f"The cache {current.alias!r} gives no client: {type(error).__name__}."
        hint = (
            "Write its LOCATION as redis://user:password@host:6379/1, with what is special in a "
            "password percent-encoded, and look at its OPTIONS."
        )
        return [message("E105", text, hint)]
    found: list[CheckMessage] = [*_sharing(current.alias), *_timeouts(current.client)]
    refused = []
    for question in (_information, _scripting, _stored):
        try:
            found += question(current)
        except ResponseError as error:
            refused.append(str(error))
        except (RedisError, OSError) as error:
            return [_unreachable(current, error)]
    if refused:
        text = f"The server refused to answer, so not all could be checked: {refused[0]}"
        hint = "Allow this user +info +time +@read; if another's data is in the way, write "
        hint += "another RECHECK['PREFIX']."
        found.append(message("W108", text, hint))
    return found


def _reach(client: Any) -> None:
    with suppress(NoPermissionError):  # that is an answer, too
        client.ping()


def _unreachable(current: store.Store, error: Exception) -> CheckMessage:
    text = f"The server of the cache {current.alias!r} can't be reached, and nothing else of it "
    text += f"was checked: {type(error).__name__}: {error}"
    return message("W101", text, "Start it, or correct the cache's LOCATION and OPTIONS.")


def _information(current: store.Store) -> Iterator[CheckMessage]:
    told: dict[str, Any] = {**current.client.info("server"), **current.client.info("memory")}
    version = str(told.get("redis_version", "0"))
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < (6, 2):
        text = f"The server's version is {version}."
        yield message("E101", text, "Update it: to Redis 6.2 or newer, or any Valkey.")
    policy = told.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        text = f"The server's maxmemory-policy is {policy}: it may throw locks and events away."
        hint = "Set maxmemory-policy noeviction there, or use a server of its own."
        yield message("W102", text, hint)


def _scripting(current: store.Store) -> Iterator[CheckMessage]:
    client = current.client
    try:
        client.execute_command("EVAL", "return 1", 0)
        client.execute_command("SCRIPT LOAD", script("request").text)
        client.execute_command("EVALSHA", "0" * 40, 0)  # no script has this digest
    except NoScriptError:
        yield from _rights(current)
    except NoPermissionError as error:
        hint = "Allow this user EVAL, EVALSHA and SCRIPT LOAD: ACL SETUSER <user> +@scripting."
        yield message("E102", f"This user may not run scripts: {error}", hint)
    except ResponseError as error:
        hint = "Use a server on which EVAL, EVALSHA and SCRIPT LOAD aren't switched off."
        yield message("E102", f"The server runs no scripts: {error}", hint)


def _rights(current: store.Store) -> Iterator[CheckMessage]:
    """Try each command on a key of the first shard that is never there, and on meta."""
    nobody = current.lane("", 0).lock(Item("", ""))
    allow = f"~{{{current.base}:* ~{current.meta} +@read +@write +@scripting +time"
    hint = f"Allow it: ACL SETUSER <user> {allow}."
    for key, commands in ((nobody, COMMANDS), (current.meta, META_COMMANDS)):
        try:
            reply = current.client.execute_command("EVAL", DRY_RUN, 1, key, *commands, **RAW)
        except NoPermissionError as error:
            yield message("E106", f"This user may not use the key {key!r}: {error}", hint)
        except ResponseError:
            return  # Redis 6.2, whose scripts know no flags
        else:
            if names := ", ".join(map(text, reply)):
                yield message("E106", f"This user may not use {names} on {key!r}.", hint)


def _stored(current: store.Store) -> Iterator[CheckMessage]:
    """Check what meta says, and what waits."""
    shards, version = map(text, current.ask(("HMGET", current.meta, "shards", "format"))[0])
    if version and not 1 <= digits(version) <= FORMAT:
        said = f"Redis holds items of format {version}, and this version writes {FORMAT}."
        hint = "Update django-recheck here, or give it another RECHECK['PREFIX']."
        yield message("E104", said, hint)
        return
    there = current
    if shards and shards != str(current.shards):
        number = min(max(1, digits(shards)), conf.MOST_SHARDS)
        there = store.Store(current.alias, conf.get("PREFIX"), number)
        if views.receivers(there):
            said = f"RECHECK['SHARDS'] is {current.shards}, and Redis holds items in {number}."
            hint = f"Write {number} again; change it when nothing is running or pending."
            yield message("E103", said, hint)
    yield from _waiting(there)


def _waiting(there: store.Store) -> Iterator[CheckMessage]:
    known, counts = set(worker.known_names()), views.counts(there)
    if problem := next((found.problem for found in counts.values() if found.problem), ""):
        raise ResponseError(problem)
    unknown = sorted(
        n for n, found in counts.items() if n not in known and found.due + found.running
    )
    if unknown:
        said = f"Items wait for receivers that this code doesn't have: {', '.join(unknown)}."
        hint = "Write their names in former_names= of the receivers that took their place."
        yield message("W107", said, hint)
    drained = {n: found for n, found in counts.items() if n in known and not found.paused}
    times = [found.oldest_due for found in drained.values()]
    for name, found in drained.items():
        if found.running:  # a lease that is over waits for a drain, too
            times += [view.score for view in views.page(there, name, "running", size=1)]
    seconds = there.now()
    oldest = min((time for time in times if time is not None), default=seconds)
    last = there.last_drain()
    if seconds - oldest > OVERDUE and (last is None or seconds - last > OVERDUE):
        drain = "never" if last is None else f"{seconds - last:.0f} s ago"
        said = f"A pass has been owed for {seconds - oldest:.0f} s; the last drain ended {drain}."
        hint = "Have cron run it every minute: manage.py recheck_run."
        yield message("W105", said, hint)


def _sharing(alias: str) -> Iterator[CheckMessage]:
    caches, mine = django_settings.CACHES, _database(alias)
    sharing = [other for other in caches if other != alias and mine and _database(other) == mine]
    if alias == "default":
        sharing.insert(0, alias)
    if sharing:
        text = f"Locks and events share a database with the cache {', '.join(map(repr, sharing))}: "
        text += "its clear() is FLUSHDB, and takes them along."
        hint = 'Write an alias of its own, with another database number, in RECHECK["CACHE"].'
        yield message("W103", text, hint)


def _database(alias: str) -> tuple[Any, ...] | None:
    """Return the server and database that a cache's LOCATION means, None if it is no Redis."""
    cache = django_settings.CACHES[alias]
    location, options = cache.get("LOCATION"), cache.get("OPTIONS") or {}
    first = location[0] if isinstance(location, (list, tuple)) and location else location
    try:
        url = parse_url(re.split("[,;]", str(first))[0])  # type: ignore[no-untyped-call]
    except ValueError:
        return None
    found = {**options, **options.get("CONNECTION_POOL_KWARGS", {}), **url}
    defaults = {"path": None, "host": "localhost", "port": 6379, "db": 0}
    return tuple(found.get(name, default) for name, default in defaults.items())


def _timeouts(client: Any) -> Iterator[CheckMessage]:
    pool = getattr(client, "connection_pool", None)  # a cluster's client has several
    # A connection that isn't connected: it knows what redis-py takes where nothing is set.
    if pool is not None and not pool.connection_class(**pool.connection_kwargs).socket_timeout:
        text = "No socket timeout is set: a server that hangs would hang every save."
        hint = 'Write "SOCKET_TIMEOUT": 5, "SOCKET_CONNECT_TIMEOUT": 5 in the cache\'s OPTIONS.'
        yield message("W104", text, hint)
