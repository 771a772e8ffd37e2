"""What ``check --deploy`` asks the server. All of it reads; a check writes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, Final

from django.conf import settings as django_settings
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from redis.connection import parse_url
from redis.exceptions import NoPermissionError, NoScriptError, RedisError, ResponseError

from . import conf, soundness, store, views, worker
from .connection import RAW, failure, script, text, unwelcome
from .messages import message
from .meta import digits
from .receivers import registry
from .records import FORMAT, Item
from .survey import OVERDUE

COMMANDS: Final = (
    *("DEL @", "EXISTS @", "EXPIRE @ 1", "GET @", "HDEL @ f", "HEXISTS @ f", "HGET @ f"),
    *("HGETALL @", "HINCRBY @ f 1", "HKEYS @", "HSET @ f v", "HSETNX @ f v", "PEXPIRE @ 1"),
    *("PTTL @",),
    *("SADD @ m", "SET @ v PX 1", "SISMEMBER @ m", "SMEMBERS @", "SREM @ m", "TIME", "ZADD @ 0 m"),
    *("ZCARD @", "ZCOUNT @ 0 0", "ZRANGE @ 0 0", "ZRANGEBYSCORE @ 0 0", "ZREM @ m", "ZSCORE @ m"),
)
"""What scripts and views use on the keys of a shard; @ stands for the key."""
CHANNEL_COMMANDS: Final = ("PUBLISH @ m",)
"""What is used on the channel that wakes those who watch."""
META_COMMANDS: Final = ("HGET @ f", "HMGET @ f", "HSET @ f v", "HSETNX @ f v")
"""What is used on the key that is there once for all shards."""

# Replies the commands that this user may not use on the key, or else on the channel. The flag makes
# the server refuse every write, after it has looked at the user's rights: so this is a dry run.
DRY_RUN: Final = """#!lua flags=no-writes
local refused = {}
local at = KEYS[1] or table.remove(ARGV, 1)
for _, line in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(line, '%S+') do words[#words + 1] = word == '@' and at or word end
  local reply = redis.pcall(unpack(words))
  local said = type(reply) == 'table' and reply.err or 'WRONGTYPE'
  if not (string.find(said, 'read%-only script') or string.find(said, 'WRONGTYPE')) then
    refused[#refused + 1] = words[1]
  end
end
return refused
"""


def check_dispatch() -> list[CheckMessage]:
    """Look for receivers that are called in the signal. Needs no server."""
    dispatch_of = soundness.dispatch_of
    found = [n for n, (*_, r) in registry.items() if dispatch_of(r.options.value) == "immediate"]
    if dispatch_of(conf.get) == "immediate":
        found = ["RECHECK"]
    if not found:
        return []
    text = f"DISPATCH is 'immediate' in {', '.join(found)}: no lock, no recheck, no commit awaited."
    return [message("W106", text, "That is for tests: write 'inline' or 'worker' here.")]


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
        hint = "Correct its LOCATION and OPTIONS, or the class of your own that connects."
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
    text = f"The server of the cache {current.alias!r} {failure(error).rstrip('.')}. "
    text += "Nothing else of it was checked."
    if unwelcome(error):
        hint = "Write the user and password that it knows: LOCATION redis://user:password@host:6379"
        hint += "/1, with what is special in a password percent-encoded, or OPTIONS['PASSWORD']."
    elif isinstance(error, ResponseError):
        hint = "Correct the cache's LOCATION and OPTIONS, or what the server allows."
    else:
        hint = "Start it, or correct host, port and TLS in the cache's LOCATION and OPTIONS."
    return message("W101", text, hint)


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
        yield from _hints(current)
    except NoPermissionError as error:
        hint = "Allow this user EVAL, EVALSHA and SCRIPT LOAD: ACL SETUSER <user> +@scripting."
        yield message("E102", f"This user may not run scripts: {error}", hint)
    except ResponseError as error:
        hint = "Use a server on which EVAL, EVALSHA and SCRIPT LOAD aren't switched off."
        yield message("E102", f"The server runs no scripts: {error}", hint)


def _rights(current: store.Store) -> Iterator[CheckMessage]:
    """Try each command on a key of the first shard that is never there, and on meta."""
    nobody = current.lane("", 0).lock(Item("", ""))
    hint = f"Allow it: ACL SETUSER <user> {_allowed(current)}."
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


def _allowed(current: store.Store) -> str:
    """Return all that a user needs, as ACL SETUSER takes it."""
    keys = f"~{{{current.base}:* ~{current.meta}* &{current.hints}"
    return f"{keys} +@read +@write +@scripting +time +publish +subscribe +unsubscribe"


def _hints(current: store.Store) -> Iterator[CheckMessage]:
    """Try to subscribe, which changes nothing, and a dry run of the rest."""
    refused: list[str] = []
    try:
        with closing(current.client.pubsub()) as subscription:
            subscription.subscribe(current.hints)
            subscription.get_message(timeout=5)
    except (ResponseError, AttributeError, NotImplementedError) as error:
        refused.append(f"SUBSCRIBE ({error})" if str(error) else "SUBSCRIBE")
    with suppress(ResponseError):  # Redis 6.2, whose scripts know no flags
        asked = (DRY_RUN, 0, current.hints, *CHANNEL_COMMANDS)
        refused += map(text, current.client.execute_command("EVAL", *asked, **RAW))
    if refused:
        said = f"This user may not use {', '.join(refused)} on the channel {current.hints!r}: "
        said += "recheck_run --watch works all the same, and sees an event up to 5 s later."
        yield message("W111", said, f"Allow it: ACL SETUSER <user> {_allowed(current)}.")


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
        hint = "Add an alias to CACHES for the locks alone, with another database number or server "
        hint += 'in its LOCATION, and name it in RECHECK["CACHE"].'
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
