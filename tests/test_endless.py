"""Items that trigger each other for ever: they back off, are reported, and end dead, in sight."""

from __future__ import annotations

import contextvars
import logging
import time
from typing import Any

import pytest
from django.db.models.signals import post_save
from django.dispatch import Signal, receiver

from django_recheck import Outcome, Receiver, current_pass, outage, recheck, store, views, worker
from django_recheck.events import DEEPEST, Events, Group
from tests.app.models import Group as Row
from tests.servers import apart

pytestmark = pytest.mark.django_db(transaction=True)
ATTEMPTS = 3
SOON = (0.001, 0.004)


class Pair:
    """Two receivers of custom signals, each of which sends the other's."""

    def __init__(self, dispatch: str) -> None:
        self.ping, self.pong = Signal(), Signal()
        self.passes: list[str] = []
        self.limit = 1000
        options: dict[str, Any] = {
            "key": lambda **_: 1,
            "dispatch": dispatch,
            "backoff": SOON,
            "max_attempts": ATTEMPTS,
        }

        @receiver(self.ping)
        @recheck(name="ping", **options)
        def on_ping(sender: Any, **kwargs: Any) -> None:
            self.passes.append("ping")
            if len(self.passes) < self.limit:
                self.pong.send(sender=None)

        @receiver(self.pong)
        @recheck(name="pong", **options)
        def on_pong(sender: Any, **kwargs: Any) -> None:
            self.passes.append("pong")
            if len(self.passes) < self.limit:
                self.ping.send(sender=None)

        self.receivers = (on_ping, on_pong)

    def drain(self) -> None:
        """Drain until nothing is owed."""
        until = time.monotonic() + 30
        while any(c.due or c.running for c in views.counts(store.current()).values()):
            assert time.monotonic() < until
            worker.drain()


@pytest.fixture
def pair() -> Pair:
    return Pair("worker")


def dead() -> int:
    return sum(found.dead for found in views.counts(store.current()).values())


def test_c66_two_that_trigger_each_other_end_dead(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    pair.ping.send(sender=None)
    pair.drain()
    assert len(pair.passes) == DEEPEST + ATTEMPTS + 1, "the first one's event came from outside"
    assert dead() == 1
    reports = [r for r in caplog.records if "passes led to one another, and" in r.getMessage()]
    assert [r.levelno for r in reports] == [logging.WARNING] * (ATTEMPTS + 1)
    (view,) = [v for n in ("ping", "pong") for v in views.page(store.current(), n, "dead")]
    assert view.record is not None
    assert "24 passes led to one another" in view.record.error


def test_the_waits_between_them_double(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.ping.send(sender=None)
    pair.drain()
    waits = [r.args[3] for r in caplog.records if isinstance(r.args, tuple) and len(r.args) == 4]
    assert waits == [0.001, 0.002, 0.004, 0.004]


def test_c66_an_event_from_outside_begins_anew(pair: Pair) -> None:
    pair.ping.send(sender=None)
    pair.drain()
    (name,) = [n for n, c in views.counts(store.current()).items() if c.dead]
    pair.limit = 0
    before = len(pair.passes)
    (here,) = (r for r in pair.receivers if r.name == name)
    assert here.recheck(key=1) is Outcome.PENDING
    pair.drain()
    assert (pair.passes[before:], dead()) == ([name], 0)


def test_one_chain_of_many_items_runs_to_its_end(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []
    last = DEEPEST + ATTEMPTS

    @recheck(name="chain", key="value", dispatch="worker", backoff=SOON, max_attempts=ATTEMPTS)
    def chain(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        seen.append(recheck_pass.key)
        if recheck_pass.key < last:
            chain.recheck(key=recheck_pass.key + 1)

    chain.recheck(key=0)
    until = time.monotonic() + 30
    while len(seen) <= last:
        assert time.monotonic() < until
        worker.drain()
    assert seen == list(range(last + 1))
    assert (dead(), views.counts(store.current())) == (0, {})


def test_inline_an_endless_chain_is_no_endless_recursion() -> None:
    seen: list[int] = []

    @receiver(post_save, sender=Row)
    @recheck(name="rows", backoff=(60, 60))
    def rows(sender: Any, instance: Row, **kwargs: Any) -> None:
        seen.append(instance.pk)
        Row.objects.create(name="another")

    Row.objects.create(name="first")
    assert len(seen) == DEEPEST + 1
    assert views.counts(store.current())["rows"].due == 1


def test_inline_an_outer_hold_takes_the_event_of_an_inner_one() -> None:
    pair = Pair("inline")
    pair.ping.send(sender=None)
    assert pair.passes == ["ping", "pong"] * 2
    assert views.counts(store.current()) == {}


def test_a_pass_of_events_from_within_and_without_begins_anew(pair: Pair) -> None:
    """Its depth is the least of them: merged in either order, and in Redis as well as here."""

    def event(depth: str, name: str) -> Events:
        return Events(1, (Group(name, False, False, "", f"{depth}[null,null,{{}},{{}},null]"),))

    inner, outer = event("7", "a"), event("", "b")
    assert (inner.depth, outer.depth) == (7, 0)
    assert inner.after(outer).depth == outer.after(inner).depth == 0
    assert event("", "a").after(inner).depth == inner.after(event("", "a")).depth == 0
    assert event("12", "a").after(inner).groups == inner.after(event("12", "a")).groups
    assert event("8", "b").after(inner).depth == 7


def test_an_event_from_outside_isnt_hidden_by_a_deeper_one_that_comes_after_it() -> None:
    """Merged in Redis: the chain's event for 26 finds another's, and the pass is both's."""
    seen: list[int] = []

    @recheck(name="chain", key="value", dispatch="worker", backoff=SOON, max_attempts=ATTEMPTS)
    def chain(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        seen.append(recheck_pass.key)
        if recheck_pass.key == DEEPEST + ATTEMPTS:
            stranger = contextvars.Context()
            stranger.run(chain.recheck, key=recheck_pass.key + 1)
        if recheck_pass.key < 2 * DEEPEST:
            chain.recheck(key=recheck_pass.key + 1)

    chain.recheck(key=0)
    until = time.monotonic() + 30
    while len(seen) <= 2 * DEEPEST and not dead():
        assert time.monotonic() < until
        worker.drain()
    assert seen == list(range(2 * DEEPEST + 1))


def test_what_outlives_its_pass_is_outside() -> None:
    probe, left = Signal(), []

    @receiver(probe)
    @recheck(name="left", key=lambda **_: 1, dispatch="worker")
    def leave(sender: Any, **kwargs: Any) -> None:
        left.append(contextvars.copy_context())

    probe.send(sender=None)
    worker.drain()
    assert left[0].run(current_pass) is None
    left[0].run(probe.send, sender=None)
    (view,) = views.page(store.current(), "left", "due")
    assert view.record is not None
    assert Events.parse(1, view.record.newer).depth == 0


def test_while_redis_is_away_an_endless_chain_stays_owed(settings: Any) -> None:
    probe, seen = Signal(), []

    @receiver(probe)
    @recheck(name="away", key=lambda number, **_: number)
    def away(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        seen.append(recheck_pass.key)
        if recheck_pass.key < 100:
            probe.send(sender=None, number=recheck_pass.key + 1)

    with apart(settings, BREAKER=600) as server:
        server.end()
        probe.send(sender=None, number=0)
    assert seen == list(range(DEEPEST + 1))
    assert len(outage.owing()) == DEEPEST + 2


@pytest.mark.parametrize("prefix", ["x", "-1", "99999999999999999999", ""])
def test_a_depth_that_cant_be_read_is_none(prefix: str) -> None:
    assert Group("a", False, False, "", f"{prefix}[null]").depth == 0


def test_recheck_many_carries_the_depth() -> None:
    seen: list[int] = []

    @recheck(name="many", key="value", dispatch="worker", backoff=(60, 60))
    def many(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        seen.append(recheck_pass.key)
        again.recheck_many([recheck_pass.key + 1])

    again: Receiver[..., Any] = many
    many.recheck_many([0])
    worker.drain()
    assert seen == list(range(DEEPEST + 1))
