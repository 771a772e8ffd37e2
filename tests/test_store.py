"""The store on a real server: replies, connections, names, views."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured

from django_recheck import claims, conf, connection, store, views
from django_recheck.records import Grant, Item, pack

EVENT = pack([b"name", b"c", b"", "body é".encode()])
OPTIONS = conf.Options("r", {"TTL": 5})
POOLS: dict[str, dict[str, Any]] = {
    "bytes": {},
    "text": {"decode_responses": True},
    "resp3": {"protocol": 3},
}


@pytest.fixture(params=["bytes", "text", "resp3"])
def current(request: pytest.FixtureRequest, settings: Any) -> Iterator[store.Store]:
    """The store through clients that decode and that don't, under a KEY_PREFIX of their own."""
    cache = dict(settings.CACHES["recheck"])
    extra = POOLS[request.param]
    options = dict(cache.get("OPTIONS", {}))
    options["CONNECTION_POOL_KWARGS"] = {**options.get("CONNECTION_POOL_KWARGS", {}), **extra}
    # A pool is shared by URL: another query string, another pool.
    cache |= {"OPTIONS": options, "LOCATION": f"{cache['LOCATION']}?client_name={request.param}"}
    cache["KEY_PREFIX"] = f"{cache.get('KEY_PREFIX', '')}{request.param}"
    settings.CACHES = {**settings.CACHES, f"recheck-{request.param}": cache}
    settings.RECHECK = {**settings.RECHECK, "CACHE": f"recheck-{request.param}"}
    current = store.current()
    yield current
    keys = list(current.client.scan_iter(f"*{cache['KEY_PREFIX']}:*"))
    if keys:
        current.client.delete(*keys)


def granted(reply: Grant | str) -> Grant:
    assert isinstance(reply, Grant), reply
    return reply


def test_a_whole_hold(current: store.Store) -> None:
    item = Item("r", '"é"')
    first = granted(current.request(item, EVENT, 1, OPTIONS))
    assert (first.number, first.count, first.attempts, first.events) == (1, 1, 0, EVENT)
    assert current.request(item, EVENT, 2, OPTIONS) == "COALESCED"
    (view,) = views.items(current, [item])
    assert (view.state, view.holder) == ("running", first.token)
    assert view.lease_left is not None
    assert view.lease_left <= 5
    assert view.record is not None
    assert (view.record.count, view.record.newer_count) == (1, 2)
    following, resent = current.finish(first, "ok", OPTIONS)
    second = granted(following)
    assert (second.number, second.count, second.fence, resent) == (2, 2, first.fence, False)
    assert current.finish(second, "ok", OPTIONS) == ("DONE", False)
    (view,) = views.items(current, [item])
    assert (view.state, view.record, view.holder) == ("idle", None, None)


def test_failure_delay_and_death(current: store.Store) -> None:
    item, options = Item("r", "1"), conf.Options("r", {"MAX_ATTEMPTS": 2, "BACKOFF": (60, 60)})
    grant = granted(current.request(item, EVENT, 1, options))
    assert current.finish(grant, "failed", options, error="Boom\né") == ("FAILED", False)
    (view,) = views.page(current, "r", "due")
    assert view.record is not None
    assert view.record.error == "Boom\né"
    assert current.claim(item, options) == "LATER"
    grant = granted(current.request(item, EVENT, 1, options))
    assert (grant.attempts, grant.count) == (1, 2)
    assert current.finish(grant, "failed", options, error="again") == ("DEAD", False)
    assert views.counts(current)["r"] == views.Counts(running=0, due=0, dead=1, oldest_due=None)
    grant = granted(current.request(item, EVENT, 1, options))
    assert current.finish(grant, "ok", options) == ("DONE", False)


def test_enqueue_peek_claim(current: store.Store) -> None:
    items = [Item("r", str(number)) for number in range(450)]
    words = current.enqueue([store.Entry(item, 1, EVENT, OPTIONS) for item in items])
    assert words == ["PENDING"] * 450
    found, problems = current.peek(["r"], 500, 60)
    assert problems == {}
    assert sorted(found, key=lambda item: int(item.text)) == items
    assert current.peek(["r"], 500, 60) == ([], {}), "put off, so that workers don't fight"
    grants = [granted(current.claim(item, OPTIONS)) for item in items[:3]]
    assert current.claim(items[0], OPTIONS) == "HELD"
    assert current.renew(grants, [5] * 3) == [True] * 3
    for grant in grants:
        assert current.finish(grant, "ok", OPTIONS)[0] == "DONE"
    assert current.renew(grants, [5] * 3) == [False] * 3


def test_pages_follow_the_index(current: store.Store) -> None:
    for number in range(5):
        current.enqueue([store.Entry(Item("r", str(number)), 1, EVENT, OPTIONS)])
    pages = [views.page(current, "r", "due", start, 2) for start in (0, 2, 4)]
    assert [[view.item.text for view in page] for page in pages] == [["0", "1"], ["2", "3"], ["4"]]
    assert views.receivers(current) == ["r"]


def test_c24_a_flushed_script_cache_is_not_noticed(current: store.Store) -> None:
    item = Item("r", "1")
    grant = granted(current.request(item, EVENT, 1, OPTIONS))
    current.client.script_flush()
    assert current.renew([grant], [5]) == [True]
    current.client.script_flush()
    assert current.enqueue([store.Entry(item, 1, EVENT, OPTIONS)]) == ["COALESCED"]
    current.client.script_flush()
    assert isinstance(current.finish(grant, "ok", OPTIONS)[0], Grant)


def test_c23_every_lock_has_an_end(current: store.Store) -> None:
    item = Item("r", "1")
    grant = granted(current.request(item, EVENT, 1, OPTIONS))
    lock = current.lane_of(item).lock(item)
    assert 0 < current.client.pttl(lock) <= 5000
    current.client.persist(lock)
    current.request(item, EVENT, 1, OPTIONS)
    assert 0 < current.client.pttl(lock) <= 5000
    current.finish(grant, "ok", OPTIONS)
    assert 0 < current.client.pttl(lock) <= 5000


def test_fences_grow_also_after_a_flush(current: store.Store) -> None:
    fences = []
    for _ in range(3):
        grant = granted(current.request(Item("r", "1"), EVENT, 1, OPTIONS))
        current.finish(grant, "ok", OPTIONS)
        fences.append(int(grant.fence))
        current.client.delete(f"{current.lane('r', 0).tag}:fence")
    assert fences == sorted(set(fences))


def test_scripts_and_heads() -> None:
    folder = Path(connection.__file__).parent / "scripts"
    for path in folder.glob("*.lua"):
        text = path.read_text()
        assert len(text.splitlines()) < 80, path.name
        if path.stem not in ("record", "item", "places", "minutes", "lock"):
            head = text[: text.index("\nlocal ")]
            assert "Promise" in head or path.stem == "peek", path.name
            assert "Repl" in head, path.name
            assert "Twice" in head, path.name


def test_shards_are_written_down_and_compared(settings: Any, current: store.Store) -> None:
    grant = granted(current.request(Item("r", "1"), EVENT, 1, OPTIONS))
    settings.RECHECK = {**settings.RECHECK, "SHARDS": 4}
    with pytest.raises(ImproperlyConfigured, match="set it back to 1"):
        store.current().request(Item("r", "1"), EVENT, 1, OPTIONS)
    assert current.finish(grant, "ok", OPTIONS)[0] == "DONE"
    sharded = store.current()
    assert isinstance(sharded.request(Item("r", "1"), EVENT, 1, OPTIONS), Grant)
    tags = {sharded.lane_of(Item("r", str(number))).tag for number in range(64)}
    assert len(tags) == 4


def test_a_token_is_new_every_time_and_says_who(current: store.Store) -> None:
    import os

    first = granted(current.request(Item("r", "1"), EVENT, 1, OPTIONS))
    second = granted(current.request(Item("r", "2"), EVENT, 1, OPTIONS))
    assert first.token != second.token
    host, pid, bits = first.token.rsplit(":", 2)
    assert host
    assert pid == str(os.getpid())
    assert len(bits) == 32


def test_c32_no_connection_before_the_first_event() -> None:
    code = (
        "import socket, django\n"
        "def refuse(*a, **k): raise AssertionError('connected')\n"
        "socket.socket.connect = refuse\n"
        "django.setup()\n"
        "from django_recheck import recheck\n"
        "from django.core.management import call_command\n"
        "recheck(lambda sender, **kwargs: None)\n"
        "call_command('check')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent.parent,
        env={**__import__("os").environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_no_time_is_shortened_to_nothing() -> None:
    assert [claims.milliseconds(seconds) for seconds in (0, 0.0001, 1, 1.0001)] == [
        0,
        1,
        1000,
        1001,
    ]


def test_the_cache_prefix_comes_first(settings: Any) -> None:
    assert store.current().base.startswith(str(caches["recheck"].key_prefix))
