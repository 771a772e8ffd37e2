"""The text forms that Python and the Lua scripts share, read on both sides of a real server."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from django_recheck import conf, connection, store, views
from django_recheck.events import Events
from django_recheck.exceptions import RecordError
from django_recheck.records import FORMAT, Grant, Item, Record, new_token, pack, unpack
from tests.servers import of_the_run

SCRIPTS = Path(connection.__file__).parent / "scripts"
OPTIONS = conf.Options("r", {"TTL": 30, "MAX_ATTEMPTS": 3, "BACKOFF": (60, 60)})
BYTES = st.binary(max_size=40)
TEXTS = st.text(max_size=20)
on_the_server = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def events(*names: str) -> bytes:
    """Return the packed events of some groups."""
    return pack(part for name in names for part in (name.encode(), b"c", b"", b"body " * 3))


def stored(item: Item) -> bytes:
    """Return an item's record as it stands there."""
    current = store.current()
    text: bytes = current.client.hget(current.lane_of(item).keys[0], item.text)
    return text


def fresh() -> Item:
    """Return an item that nothing is known of."""
    return Item("r", secrets.token_hex(8))


def granted(reply: Grant | str) -> Grant:
    assert isinstance(reply, Grant), reply
    return reply


# Netstrings


@given(st.lists(BYTES))
def test_netstrings_are_read_back(texts: list[bytes]) -> None:
    assert unpack(pack(texts)) == texts


@given(BYTES | st.lists(BYTES).map(pack).map(lambda packed: packed[:-1]))
def test_what_is_no_list_of_netstrings_is_refused(packed: bytes) -> None:
    with suppress(RecordError):
        assert pack(unpack(packed)) == packed or b"0" in packed  # "01:a" is read, too


@on_the_server
@given(st.lists(BYTES, min_size=1, max_size=5))
def test_lua_reads_and_writes_the_same_netstrings(texts: list[bytes]) -> None:
    text = (SCRIPTS / "record.lua").read_text() + (
        "local packed, at, found = '', 1, {} "
        "for _, text in ipairs(ARGV) do packed = packed .. net(text) end "
        "for i = 1, #ARGV do found[i], at = take(packed, at) end "
        "return {packed, found}"
    )
    with of_the_run().client as client:
        packed, found = client.eval(text, 0, *texts)
    assert packed == pack(texts)
    assert found == texts


# What the scripts write


def test_a_record_in_each_state_reads_as_it_was_written() -> None:
    item, current = fresh(), store.current()
    grant = granted(current.request(item, events("one"), 2, OPTIONS))
    assert current.request(item, events("two"), 3, OPTIONS) == "COALESCED"
    held = Record.parse(stored(item))
    assert (held.token, held.fence, held.passes) == (grant.token, grant.fence, 1)
    assert (held.working, held.newer) == (events("one"), events("two"))
    assert (held.count, held.newer_count, held.attempts, held.own) == (2, 3, 0, 0)
    assert held.since <= held.first == held.last == held.owed
    assert (held.ready, held.newer_own, held.error) == (0, 0, "")

    assert current.finish(grant, "failed", OPTIONS, error="Zerbrochen: ß\n:,") == ("FAILED", False)
    failed = Record.parse(stored(item))
    assert (failed.token, failed.passes, failed.attempts) == ("-", 0, 1)
    assert (failed.working, failed.newer) == (b"", events("one", "two"))
    assert (failed.count, failed.newer_count, failed.error) == (0, 5, "Zerbrochen: ß\n:,")
    assert 40_000 <= failed.owed - failed.last <= 61_000

    current.enqueue([store.Entry(item, 1, events("one"), conf.Options("r", {"DELAY": 10}))])
    delayed = Record.parse(stored(item))
    assert delayed.ready - delayed.last == 10_000
    assert (delayed.newer_count, delayed.owed) == (6, failed.owed)


@on_the_server
@given(BYTES, BYTES, st.integers(1, 10**9), TEXTS)
def test_bytes_and_numbers_survive_the_scripts(
    working: bytes, newer: bytes, count: int, error: str
) -> None:
    item, current = fresh(), store.current()
    grant = granted(current.request(item, working, count, OPTIONS))
    assert (grant.events, grant.count) == (working, count)
    current.enqueue([store.Entry(item, 1, newer, OPTIONS)])
    record = Record.parse(stored(item))
    assert (record.working, record.newer, record.count) == (working, newer, count)
    assert current.finish(grant, "failed", OPTIONS, error=error)[0] == "FAILED"
    record = Record.parse(stored(item))
    assert (record.error, record.newer_count) == (error, count + 1)


def test_a_fence_keeps_all_its_digits() -> None:
    """Numbers beyond 14 digits don't go through Lua's ``tostring``."""
    current, item = store.current(), fresh()
    fence = f"{current.lane_of(item).tag}:fence"
    current.client.set(fence, 8_999_999_999_999_999)
    grant = granted(current.request(item, events("a"), 1, OPTIONS))
    assert grant.fence == Record.parse(stored(item)).fence == "9000000000000000"
    assert current.client.get(fence) == b"9000000000000000"


def test_a_token_says_who_and_is_one_word() -> None:
    host, pid, bits = new_token().rsplit(":", 2)
    assert host
    assert int(pid) == os.getpid()
    assert len(bytes.fromhex(bits)) == 16
    assert len(new_token().split()) == 1


# What else may stand there


HELD = b"1 host:1:ab 17 3 0 1700000000000 0 0 0 0 1 0 1 1\n"
SOUND = (
    b"1 - 5 0 0 0 1 0 1 1 0 0 0 2\n" + pack([b"", b"", events("a")]),
    HELD + pack([b"error", events("a"), b""]),
    HELD + pack([b"", events("a"), b"no events"]),
    HELD + pack([b"", b"no events", events("a")]),
)


def test_the_examples_are_sound() -> None:
    for text in SOUND:
        Record.parse(text)


@pytest.mark.parametrize("text", SOUND[2:])
def test_what_can_be_read_of_a_dead_holders_events_is_taken_over(text: bytes) -> None:
    current, item = store.current(), fresh()
    put(item, text, 1, None)
    grant = granted(current.claim(item, OPTIONS))
    assert (grant.takeover, grant.events, grant.count) == (True, events("a"), 2)
    assert current.finish(grant, "ok", OPTIONS) == ("DONE", False)


def test_a_newer_format_is_told_from_a_broken_one() -> None:
    text = b"%d something else\n" % (FORMAT + 1)
    with pytest.raises(RecordError, match=f"has format {FORMAT + 1}, this version reads {FORMAT}"):
        Record.parse(text)
    for broken in (b"", b"0 x\n", b"one\n", b"-2 x\n", text.replace(b" ", b"")):
        with pytest.raises(RecordError, match="broken"):
            Record.parse(broken)


@st.composite
def corrupted(draw: st.DrawFn) -> bytes:
    """A sound record with a part cut out, put in, doubled, or made enormous."""
    text = draw(st.sampled_from(SOUND))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 12)))
        put = draw(st.sampled_from([b"", b"9" * 19, b"9" * 400, b" ", b"\n", b"4:a", text]) | BYTES)
        text = text[:start] + put + text[end:]
    return text


@given(corrupted() | BYTES)
def test_a_broken_record_is_a_record_error(text: bytes) -> None:
    with suppress(RecordError):
        record = Record.parse(text)
        Events.parse(record.newer_count, record.newer)


def put(item: Item, text: bytes, index: int | None, token: str | None) -> None:
    """Put a record there, an entry of an index, and a lock."""
    current = store.current()
    lane = current.lane_of(item)
    current.client.hset(lane.keys[0], item.text, text)
    current.client.sadd(lane.keys[4], lane.receiver)
    if index is not None:
        current.client.zadd(lane.keys[index], {item.text: 1})
    if token is not None:
        current.client.set(lane.lock(item), token, px=60_000)


def shown(item: Item) -> list[tuple[Item, str]]:
    """Return what a page shows of an item."""
    return [(view.item, view.seen) for view in views.items(store.current(), [item])]


@on_the_server
@given(corrupted(), st.sampled_from([None, 1, 2, 3]), st.booleans(), st.data())
def test_no_script_fails_on_a_broken_record(
    text: bytes, index: int | None, locked: bool, data: st.DataObject
) -> None:
    """Each says one of its words, the page can be shown, and no lock is left without an end."""
    current, item = store.current(), fresh()
    token = "host:1:ab"
    put(item, text, index, token if locked else None)
    grant = Grant(item, token, "17", 3, 1, 1, False, b"", False, 0.0)
    grants = [grant]
    moves: dict[str, Any] = {
        "request": lambda: current.request(item, events("b"), 1, OPTIONS),
        "heal": lambda: current.request(item, events("b"), 1, OPTIONS, heal=1),
        "enqueue": lambda: current.enqueue([store.Entry(item, 1, events("b"), OPTIONS)])[0],
        "claim": lambda: current.claim(item, OPTIONS),
        "ok": lambda: current.finish(grants[-1], "ok", OPTIONS)[0],
        "failed": lambda: current.finish(grants[-1], "failed", OPTIONS, error="e")[0],
        "back": lambda: current.finish(grants[-1], "back", OPTIONS)[0],
        "renew": lambda: current.renew(grants[-1:], [30])[0],
        "release": lambda: current.release(shown(item))[0],
        "retry": lambda: current.retry(shown(item))[0],
        "discard": lambda: current.discard(shown(item))[0],
    }
    for name in data.draw(st.lists(st.sampled_from(sorted(moves)), min_size=1, max_size=5)):
        try:
            reply = moves[name]()
        except RecordError:  # of a newer version: left alone
            assert stored(item) == text
            continue
        assert reply != "CHANGED", "nobody else was there"
        if isinstance(reply, Grant):
            grants.append(reply)
        views.items(current, [item])
    assert current.client.pttl(current.lane_of(item).lock(item)) != -1


@on_the_server
@given(corrupted())
def test_the_next_event_heals_a_broken_record(text: bytes) -> None:
    assume(not text.split(b" ", 1)[0].strip().isdigit() or text.startswith(b"1 "))
    current, item = store.current(), fresh()
    put(item, text, 2, None)
    reply = current.request(item, events("b"), 1, OPTIONS)
    grant = reply if isinstance(reply, Grant) else granted(current.claim(item, OPTIONS))
    assert Events.parse(grant.count, grant.events).groups[-1].name == "b"
    following, _ = current.finish(grant, "ok", OPTIONS)
    if isinstance(following, Grant):  # its numbers were too large to be written: once more
        following, _ = current.finish(following, "ok", OPTIONS)
    assert following in ("DONE", "PENDING")
    (view,) = views.items(current, [item])
    assert (view.state, view.holder) in (("idle", None), ("due", None))


def test_a_wrong_type_is_an_error_before_anything_is_written() -> None:
    current, item = store.current(), fresh()
    lane = current.lane_of(item)
    current.client.set(lane.keys[2], "no zset")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        current.request(item, events("a"), 1, OPTIONS)
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        current.claim(item, OPTIONS)
    (answer,) = current.enqueue([store.Entry(item, 1, events("a"), OPTIONS)])
    assert isinstance(answer, redis.ResponseError)
    others = [key for key in (*lane.keys, lane.lock(item)) if key != lane.keys[2]]
    assert current.client.exists(*others) == 0
