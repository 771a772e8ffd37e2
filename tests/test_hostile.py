"""What somebody else wrote into our keys: reported, left or dead; never executed, never a crash."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.dispatch import Signal, receiver

from django_recheck import Outcome, Receiver, deploy_checks, outage, recheck, store, views, worker
from django_recheck.records import Grant, Item, pack
from tests.servers import running

pytestmark = pytest.mark.django_db(transaction=True)

KINDS = ("state", "running", "due", "dead")
NAMES = (*KINDS, "lanes", "lock", "fence")
Write = Callable[[Any, str], Any]
OTHER_TYPES: dict[str, Write] = {
    "string": lambda client, key: client.set(key, b"\xff{}"),
    "list": lambda client, key: client.rpush(key, "a"),
    "hash": lambda client, key: client.hset(key, "a", "b"),
    "zset": lambda client, key: client.zadd(key, {"a": 1}),
    "stream": lambda client, key: client.xadd(key, {"a": "b"}),
}
OWN_TYPES = {"state": "hash", "lanes": "", "lock": "string", "fence": "string"}
WRONG = [(n, t) for n in NAMES for t in OTHER_TYPES if t != OWN_TYPES.get(n, "zset")]


class Shop:
    """Two receivers: things happen to the keys of the first, and the second must not suffer."""

    def __init__(self) -> None:
        self.signal = Signal()
        self.calls: list[tuple[str, Any]] = []
        self.during: Callable[[], Any] | None = None
        """What happens while its next pass runs."""

        @receiver(self.signal)
        @recheck(name="struck", key="value", backoff=(0.001, 0.001), max_attempts=2)
        def struck(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
            self.calls.append(("struck", recheck_pass.key))
            during, self.during = self.during, None
            if during:
                during()

        @recheck(name="other", key="value", dispatch="worker")
        def other(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
            self.calls.append(("other", recheck_pass.key))

        self.struck: Receiver[..., Any] = struck
        self.other: Receiver[..., Any] = other

    def send(self) -> Outcome:
        ((_, outcome),) = self.signal.send(sender=None, value=1)
        assert isinstance(outcome, Outcome)
        return outcome

    def key(self, name: str) -> str:
        current, item = store.current(), Item("struck", "1")
        lane = current.lane_of(item)
        named = dict(zip((*KINDS, "lanes"), lane.keys, strict=True))
        return {**named, "lock": lane.lock(item), "fence": f"{lane.tag}:fence"}[name]

    def due(self, item: bytes, record: bytes) -> None:
        """Write an item as if it were due."""
        client = store.current().client
        client.hset(self.key("state"), item, record)
        client.zadd(self.key("due"), {item: 1})
        client.sadd(self.key("lanes"), "struck")


@pytest.fixture
def shop() -> Shop:
    return Shop()


def record(events: bytes = b"", **fields: Any) -> bytes:
    """Return a record as the scripts write it, with some of its fields replaced."""
    head = {"token": "-", "fence": 0, "passes": 0, "attempts": 0, "since": 0, "owed": 1}
    head |= dict.fromkeys(("ready", "first", "last", "own", "newer_own", "count"), 0)
    head |= {"newer_count": 1, **fields}
    return (
        b" ".join([b"1", *(str(v).encode() for v in head.values())])
        + b"\n"
        + pack([b"", b"", events])
    )


EVENT = pack([b'["","",""]', b"", b"", b"[null,null,{},{},null]"])


@pytest.mark.parametrize(("name", "kind"), WRONG)
def test_keys_of_another_type_harm_nobody_else(shop: Shop, name: str, kind: str) -> None:
    shop.other.recheck_many([1])
    current = store.current()
    current.client.delete(shop.key(name))
    OTHER_TYPES[kind](current.client, shop.key(name))

    assert shop.send() in (Outcome.UNLOCKED, Outcome.RAN, Outcome.COALESCED)
    assert not outage.breaker.open, "the server is well"
    if name not in ("lanes", "fence"):  # those are a shard's
        tally = worker.drain()
        assert ("other", 1) in shop.calls
        assert set(tally.problems) <= {"struck"}
        views.counts(current, ["struck", "other"])
        for state in views.STATES:
            views.page(current, "struck", state)
        (view,) = views.items(current, [Item("struck", "1")])
        assert view.problem or name == "dead", "its index isn't needed for this answer"
    assert {message.id for message in deploy_checks.check_server()} <= {
        "django_recheck.W103",
        "django_recheck.W108",
    }
    current.client.delete(shop.key(name))
    outage.forget()
    shop.send()
    worker.drain()
    assert shop.calls.count(("struck", 1)) >= 1, "it works again once the key is gone"


@pytest.mark.parametrize("name", ["state", "running", "due"])
def test_a_drain_goes_on_with_the_others_and_says_so(
    shop: Shop, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    shop.other.recheck_many([1])
    store.current().client.set(shop.key(name), "mine")
    if name == "state":
        store.current().client.zadd(shop.key("due"), {"1": 1})
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("recheck_run", "--json", stdout=out)
    assert ended.value.code == 1
    told = json.loads(out.getvalue())
    assert told["outcomes"] == {"ran": 1}
    assert "WRONGTYPE" in told["problems"]["struck"]
    assert [r.levelname for r in caplog.records if "WRONGTYPE" in r.getMessage()] == ["ERROR"]


@pytest.mark.parametrize(
    ("item", "events"),
    [
        (b"1", b"no netstring"),
        (b"1", b"5:a"),
        (b"1", pack([b"name"])),
        (b"1", pack([b"no json", b"", b"", b"[]"])),
        (b"1", pack([b"[[],[],[]]", b"", b"", b"[null,null,{},{},null]"])),
        (b"1", pack([b"{}", b"", b"", b"[null,null,{},{},null]"])),
        (b"1", pack([b'["","",""]', b"", b"", b"[" * 100_000])),
        (b"1", pack([b'["","",""]', b"", b"\xff", b"\xff"])),
        (b"1", pack([b'["","","os:system"]', b"", b"", b'["os.system",{},{},{},null]'])),
        (b"1", pack([b'["","",""]', b"", b"", b'["tests_app.item",{"id":"x"},{},{},null]'])),
        (b"1", pack([b'["","",""]', b"", b"", b'["tests_app.item",[1],{},{},null]'])),
        (b"1", pack([b'["","",""]', b"", b"", b'[null,null,{},{"a":["x",null,{}]},null]'])),
        (b"1", pack([b'["","",""]', b"", b"", b'[null,null,{},{"a":7},null]'])),
        (b"1", pack([b'["","",""]', b"", b"", b'[null,null,{"sender":1},{},null]'])),
        (b"1", pack([b'["m2m_changed","",""]', b"", b"{}", b"[null,null,{},{},null]"])),
        (b"1", b"x" * 3_000_000),
        (b'"\\ud800"', b"x"),
        (b"not json", EVENT),
        (b"", EVENT),
        (b'{"uuid":"no"}', EVENT),
        (b'{"os.system":1}', EVENT),
        (b'{"a":1,"b":2}', EVENT),
        (b'1 "no such database"', EVENT),
        (b"1 2 3 4", EVENT),
        (b"[" * 50_000, EVENT),
        (b"9" * 5_000, EVENT),
    ],
    ids=lambda value: repr(value[:40]),
)
def test_items_and_events_that_cant_be_read_end_dead_in_sight(
    shop: Shop, item: bytes, events: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    shop.due(item, record(events))
    shop.other.recheck_many([1])
    until = time.monotonic() + 20
    while worker.drain().items or views.counts(store.current(), ["struck"])["struck"].due:
        assert time.monotonic() < until
    assert ("other", 1) in shop.calls
    counted = views.counts(store.current(), ["struck"])["struck"]
    if shop.calls != [("other", 1)]:  # odd, but it could be read
        assert counted == views.Counts()
    else:
        assert (counted.due, counted.running, counted.dead) == (0, 0, 1)
        assert "given up" in caplog.text
        (view,) = views.page(store.current(), "struck", "dead")
        assert view.problem or (view.record and view.record.error)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"1",
        b"1 - 0\n",
        b"garbage \xff\x00",
        b"1" * 5_000 + b" x",
        record(EVENT, attempts="9" * 400),
        record(EVENT, owed=-1),
        record(EVENT, token="two words"),
        record(EVENT)[:-1],
        record(EVENT) + b"more",
        record(EVENT, attempts="1e3"),
        record(EVENT, fence="inf"),
    ],
    ids=lambda value: repr(value[:40]),
)
def test_records_that_cant_be_read_are_put_aside_until_a_new_event(shop: Shop, text: bytes) -> None:
    shop.due(b"1", text)
    worker.drain()
    (view,) = views.items(store.current(), [Item("struck", "1")])
    if view.state == "idle":
        assert ("struck", 1) in shop.calls, "it could be read, after all"
    else:
        assert view.state in ("dead", "due")
    shop.send()
    assert shop.calls[-1] == ("struck", 1)
    (view,) = views.items(store.current(), [Item("struck", "1")])
    assert (view.state, view.record, view.holder) == ("idle", None, None)


@pytest.mark.parametrize("number", ["9" * 400, "1e999", "-7", "nan", "", "\xff", str(2**53)])
def test_any_fence_is_followed_by_a_sound_one(shop: Shop, number: str) -> None:
    client = store.current().client
    client.set(shop.key("fence"), number)
    fences = []
    for _ in range(2):
        grant = store.current().request(Item("struck", "1"), EVENT, 1, shop.struck.options)
        assert isinstance(grant, Grant)
        assert store.current().finish(grant, "ok", shop.struck.options)[0] == "DONE"
        fences.append(int(grant.fence))
    assert 10**15 < fences[0] < fences[1] < 2**54


@pytest.mark.parametrize("token", [b"", b"-", b"two words\n", b"\xff" * 9, b"x" * 1_000_000, b"%s"])
@pytest.mark.parametrize("ends", [False, True])
def test_any_lock_is_waited_for_and_no_longer(shop: Shop, token: bytes, ends: bool) -> None:
    current, lock = store.current(), shop.key("lock")
    current.client.set(lock, token, px=60_000 if ends else None)
    for _ in range(2):
        assert shop.send() is Outcome.COALESCED
    assert 0 < current.client.pttl(lock) <= 60_000
    (view,) = views.items(current, [Item("struck", "1")])
    assert view.record is not None, view.problem
    assert (view.state, view.record.newer_count) == ("running", 2)
    current.client.delete(lock)
    current.client.zadd(shop.key("running"), {"1": 1})
    worker.drain()
    assert shop.calls == [("struck", 1)]
    assert views.counts(current) == {}


@pytest.mark.parametrize("decoding", [False, True])
def test_what_is_no_text_is_thrown_away_and_told(shop: Shop, settings: Any, decoding: bool) -> None:
    with running() as server:
        options = {"CONNECTION_POOL_KWARGS": {"decode_responses": decoding}}
        cache = {**settings.CACHES["recheck"], "LOCATION": server.url, "OPTIONS": options}
        settings.CACHES = {**settings.CACHES, "own": cache}
        settings.RECHECK = {**settings.RECHECK, "CACHE": "own"}
        shop.due(b"\xff", record(EVENT))
        shop.due(b"1", record(pack([b'["","",""]', b"", b"\xff", b"\xff"])))
        shop.other.recheck_many([1])
        tally = worker.drain()
        assert tally.outcomes[Outcome.RAN] == 1
        assert "b'\\xff' is no text" in tally.problems["struck"]
        assert shop.send() is Outcome.RAN
        views.page(store.current(), "struck", "dead")
        deploy_checks.check_server()
        store.current().client.connection_pool.disconnect()


@pytest.mark.parametrize("text", [b"\xff", b"many", b"9" * 5000, b"-1", "²".encode()])
@pytest.mark.parametrize("name", ["shards", "format", "drained"])
def test_whatever_stands_in_meta_no_save_breaks(shop: Shop, name: str, text: bytes) -> None:
    current = store.current()
    current.client.hset(current.meta, name, text)
    store.forget()
    assert shop.send() in (Outcome.RAN, Outcome.UNLOCKED)
    assert shop.calls == [("struck", 1)]
    deploy_checks.check_server()
    assert store.current().last_drain() is None


def test_meta_of_another_type_breaks_no_save(shop: Shop) -> None:
    current = store.current()
    current.client.delete(current.meta)
    current.client.set(current.meta, "mine")
    store.forget()
    assert shop.send() is Outcome.UNLOCKED
    assert "W108" in str([message.id for message in deploy_checks.check_server()])


def test_names_of_lanes_are_only_names(shop: Shop) -> None:
    current = store.current()
    for name in (b"\xff", b"", b"no:such:receiver", b"x" * 10_000):
        current.client.sadd(shop.key("lanes"), name)
    worker.drain()
    assert set(views.counts(current)) == {"\ufffd", "", "no:such:receiver", "x" * 10_000}


GAVE_WAY = "its record was broken and gave way to a new event"


@pytest.mark.parametrize("way", ["inline", "many", "refused", "claimed", "own", "capped", "paused"])
def test_a_broken_record_doesnt_give_way_in_silence(
    shop: Shop, way: str, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    current = store.current()
    if way in ("refused", "claimed"):
        current.client.set(shop.key("lock"), "host:1:ab", px=60_000)
    if way not in ("own", "capped"):
        shop.due(b"1", b"1 broken")
    match way:
        case "many":
            shop.struck.recheck_many([1])
        case "claimed":
            assert worker.drain(["struck"]).items == 0
        case "paused":
            current.pause(["struck"])
            assert shop.send() is Outcome.PENDING
        case "capped":
            settings.RECHECK = {**settings.RECHECK, "MAX_PASSES": 1}
            shop.during = lambda: current.client.hset(shop.key("state"), "1", "1 broken")
            assert shop.send() is Outcome.REQUEUED
        case "own":
            shop.during = lambda: current.client.hset(shop.key("state"), "1", "1 broken")
            assert shop.send() is Outcome.RAN
            assert shop.calls == [("struck", 1)] * 2, "one more: a flag may have gone with it"
        case _:
            assert shop.send() is (Outcome.RAN if way == "inline" else Outcome.COALESCED)
    assert [r.levelname for r in caplog.records if GAVE_WAY in r.getMessage()] == ["ERROR"]


def test_huge_items_and_events_are_run_or_put_aside(shop: Shop) -> None:
    text, events = b'"%s"' % (b"x" * 1_000_000), pack([b"n" * 5_000_000, b"", b"", b"[]"])
    shop.due(text, record(EVENT))
    shop.due(b"1", record(events))
    worker.drain()
    worker.drain()  # its second and last attempt may not have been due at once
    assert shop.calls == [("struck", "x" * 1_000_000)]
    (view,) = views.page(store.current(), "struck", "dead")
    assert view.item.text == "1", "no event has such a name"
