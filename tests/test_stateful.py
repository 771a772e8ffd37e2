"""Whatever happens in whatever order: at rest nothing is stale and nothing is left.

The real client on a real server, in one thread; what runs beside each other is the searches' and
the chaos run's business.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha1
from typing import Any, NoReturn

import pytest
from django.dispatch import Signal
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from django_recheck import (
    Outcome,
    Receiver,
    connection,
    outage,
    receivers,
    recheck,
    store,
    views,
    worker,
)
from django_recheck.records import Grant, Item, pack
from tests.servers import apart
from tests.test_runner import elsewhere

KEYS = st.sampled_from([1, 2, 3])
EVENT = pack([b'["","",""]', b"", b"", b"[null,null,{},{},null]"])
WAYS = ("ok", "fail", "interrupt", "event", "own", "lapse", "taken", "flush", "release")
happened: Counter[str] = Counter()


class Life(RuleBasedStateMachine):
    """A source with versions, and what receivers derive from it."""

    def __init__(self) -> None:
        super().__init__()
        self.client = store.current().client
        self.signal = Signal()
        self.source = dict.fromkeys((1, 2, 3), 0)
        self.derived = dict.fromkeys((1, 2, 3), 0)
        self.ways: list[str] = []
        """What befalls the next passes."""
        self.excused: set[int] = set()
        """Keys of which a flush took what only Redis knew."""
        self.running: set[int] = set()
        self.overlaps: list[int] = []
        """Keys of passes that began in another's. Raised there, that would be a failed pass."""
        self.receiver: Receiver[..., Any] = self.connect()

    def connect(self) -> Receiver[..., Any]:
        receivers.registry.clear()

        @recheck(name="lived", key="value", backoff=(0.001, 0.002), max_attempts=2, max_passes=3)
        def lived(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
            self.live(recheck_pass)

        self.signal.connect(lived)
        return lived

    # What a pass does

    def live(self, run: Any) -> None:
        key, way = run.key, self.ways.pop() if self.ways else "ok"
        happened[way] += 1
        if key in self.running:
            self.overlaps.append(key)
        self.running.add(key)
        try:
            read = self.source[key]
            self.befall(way, key, run)
            self.derived[key] = read
        finally:
            self.running.discard(key)

    def befall(self, way: str, key: int, run: Any) -> None:
        if way == "fail":
            raise ValueError
        if way == "interrupt":
            raise KeyboardInterrupt
        if way == "event":
            self.commit(key)
            elsewhere(lambda: self.send(key))
        elif way == "own" and not run.grant.own:
            self.commit(key)
            self.send(key)
        elif way == "lapse":
            self.lapse(key)
        elif way == "release":
            self.client.delete(self.lock(key))
        elif way == "flush":
            self.forget(but=key)
        elif way == "taken":
            self.lapse(key)
            self.commit(key)
            self.running.discard(key)
            elsewhere(lambda: self.send(key))

    def commit(self, key: int) -> None:
        self.source[key] += 1
        self.excused.discard(key)

    def send(self, key: int) -> Outcome:
        try:
            ((_, outcome),) = self.signal.send(sender=None, value=key)
        except KeyboardInterrupt:
            return Outcome.FAILED
        assert isinstance(outcome, Outcome)
        return outcome

    def lock(self, key: int) -> str:
        item = Item("lived", str(key))
        return store.current().lane_of(item).lock(item)

    def lapse(self, key: int) -> None:
        """Let the lease of whoever holds it be over."""
        self.client.delete(self.lock(key))
        self.client.zadd(self.lane[1], {str(key): 1}, xx=True)

    @property
    def lane(self) -> tuple[str, ...]:
        return store.current().lane("lived", 0).keys

    def forget(self, but: int | None = None) -> None:
        """Lose all that Redis holds; a holder that lives will find out."""
        for view in self.all():
            key = int(view.item.text)
            if key != but and (view.state != "idle" or view.record):
                self.excused.add(key)
        self.client.flushdb()

    def all(self) -> list[views.View]:
        return views.items(store.current(), [Item("lived", str(key)) for key in self.source])

    # What happens

    @rule(key=KEYS, ways=st.lists(st.sampled_from(WAYS), max_size=4))
    def change(self, key: int, ways: list[str]) -> None:
        self.ways = ways
        self.commit(key)
        self.send(key)

    @rule(keys=st.sets(KEYS, min_size=1))
    def change_many(self, keys: set[int]) -> None:
        for key in keys:
            self.commit(key)
        self.receiver.recheck_many(sorted(keys))

    @rule(ways=st.lists(st.sampled_from(WAYS), max_size=4))
    def drain(self, ways: list[str]) -> None:
        self.ways = ways
        try:
            worker.drain()
        except KeyboardInterrupt:
            happened["interrupted drain"] += 1

    @rule(key=KEYS)
    def die(self, key: int) -> None:
        """A holder is killed in its pass."""
        self.commit(key)
        granted = store.current().request(Item("lived", str(key)), EVENT, 1, self.receiver.options)
        happened["death"] += isinstance(granted, Grant)

    @rule(key=KEYS)
    def lease_ends(self, key: int) -> None:
        self.lapse(key)

    @rule(key=KEYS)
    def somebody_releases(self, key: int) -> None:
        self.client.delete(self.lock(key))

    @rule(key=KEYS)
    def somebody_ends_a_hold(self, key: int) -> None:
        (view,) = views.items(store.current(), [Item("lived", str(key))])
        (word,) = store.current().release([(view.item, view.seen)])
        happened["release"] += word == "DONE"

    @rule(key=KEYS)
    def somebody_retries(self, key: int) -> None:
        (view,) = views.items(store.current(), [Item("lived", str(key))])
        (word,) = store.current().retry([(view.item, view.seen)])
        happened["retry"] += word == "DONE"

    @rule()
    def flush(self) -> None:
        self.forget()

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        store.current().pause(["lived"], paused=paused)

    @precondition(lambda self: any(self.source.values()))
    @rule()
    def rest(self) -> None:
        """Let everything end, and compare."""
        self.ways = []
        store.current().pause(["lived"], paused=False)
        for _ in range(50):
            for key in self.source:
                self.lapse(key)
            for index in self.lane[1:3]:
                for name in self.client.zrange(index, 0, -1):
                    self.client.zadd(index, {name: 1})
            worker.drain()
            if not any(view.state in ("running", "due") for view in self.all()):
                break
        else:
            self.broken("it never comes to rest")
        happened["rest"] += 1
        if self.overlaps:
            self.broken(f"{self.overlaps} had two passes at once")
        dead = {int(view.item.text) for view in self.all() if view.state == "dead"}
        happened["dead"] += len(dead)
        for key in set(self.source) - dead - self.excused:
            if self.derived[key] != self.source[key]:
                self.broken(f"{key} is stale at rest")
        if not dead:
            left = {key for key in self.client.scan_iter() if b"meta" not in key}
            if not {key.rpartition(b":")[2] for key in left} <= {b"fence", b"minutes"}:
                self.broken(f"left in Redis: {left}")

    def broken(self, promise: str) -> NoReturn:
        happened["broken"] += 1
        raise AssertionError(promise)

    def teardown(self) -> None:
        if any(self.source.values()):
            self.rest()
        self.client.flushdb()


@pytest.fixture
def own_server(settings: Any) -> Iterator[None]:
    """A server that nobody else uses, as it is flushed."""
    with apart(settings):
        yield
        outage.forget()


def live(*, shrink: bool = True) -> None:
    phases = [Phase.explicit, Phase.generate, *([Phase.shrink] if shrink else [])]
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=120,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            phases=phases,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.usefixtures("own_server")
def test_whatever_happens_nothing_is_stale_at_rest() -> None:
    happened.clear()
    live()
    wanted = (*WAYS, "death", "dead", "rest", "interrupted drain", "release", "retry")
    assert all(happened[what] for what in wanted), f"it was no life: {happened}"


def unrefusing(script: Callable[[str], connection.Script]) -> Callable[[str], connection.Script]:
    """Return the scripts, without the line by which an event on a held item is refused."""

    def changed(name: str) -> connection.Script:
        found = copy.copy(script(name))
        if name == "request":
            line = "if held then return refuse(at, r, LEASE, 'COALESCED') end\n"
            assert line in found.text
            found.text = found.text.replace(line, "")
            found.sha = sha1(found.text.encode()).hexdigest()
        return found

    return changed


@pytest.mark.usefixtures("own_server")
@pytest.mark.parametrize("mutant", ["no refusal", "no heal", "no takeover"])
def test_a_rule_that_is_switched_off_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if mutant == "no refusal":
        monkeypatch.setattr(connection, "script", unrefusing(connection.script))
    elif mutant == "no heal":
        from django_recheck.runner import Hold

        monkeypatch.setattr(Hold, "_heal", lambda self, worked, **how: "PENDING")
    else:
        peek = store.Store.peek
        client = store.current().client

        def blind(self: store.Store, *args: Any) -> Any:
            client.delete(self.lane("lived", 0).keys[1])
            return peek(self, *args)

        monkeypatch.setattr(store.Store, "peek", blind)
    happened.clear()
    with pytest.raises((AssertionError, Flaky)):  # backoffs depend on the clock
        live(shrink=False)
    assert happened["broken"], "a promise, not only a run that can't be repeated"
