"""The lease of a hold: renewed while it works, lost, not inherited."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.dispatch import Signal, receiver

from django_recheck import LockLost, Outcome, lease, outage, recheck, store
from django_recheck.events import Events
from django_recheck.records import Grant
from tests.servers import of_the_run, running
from tests.test_runner import KEY, Subject, elsewhere, end_lease, levels, look, taken_over


@pytest.fixture
def subject() -> Subject:
    return Subject()


@pytest.fixture(autouse=True)
def renewer(monkeypatch: pytest.MonkeyPatch) -> lease.Renewer:
    """A renewer of the test's own, which has no thread yet."""
    fresh = lease.Renewer()
    monkeypatch.setattr(lease, "renewer", fresh)
    return fresh


def until(condition: Callable[[], Any]) -> None:
    """Wait for something that another thread or the server does."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it didn't happen"
        time.sleep(0.01)


def holder() -> str | None:
    """Return the token in the lock."""
    return look().holder


def lease_left() -> float:
    """Return for how many seconds the lock still lasts."""
    return look().lease_left or 0.0


# Renewed


def test_a_hold_longer_than_its_ttl_stays_held(subject: Subject) -> None:
    def stay(recheck_pass: Any) -> None:
        if recheck_pass.number > 1:
            return
        token, first = holder(), recheck_pass.deadline
        assert token is not None
        until(lambda: holder() != token or recheck_pass.deadline > first + 1.2)
        assert holder() == token, "more than a TTL later"
        assert not recheck_pass.lost
        assert elsewhere(subject.send) is Outcome.COALESCED

    subject.does(stay, ttl=1)
    assert subject.send() is Outcome.RAN
    assert len(subject.seen) == 2


def test_a_further_pass_is_renewed_as_the_first_was(subject: Subject) -> None:
    def stay(recheck_pass: Any) -> None:
        if recheck_pass.number == 1:
            elsewhere(subject.send)
            return
        first = recheck_pass.deadline
        until(lambda: recheck_pass.lost or recheck_pass.deadline > first + 0.2)
        lost.append(recheck_pass.lost)

    lost: list[bool] = []
    subject.does(stay, ttl=1)
    assert subject.send() is Outcome.RAN
    assert lost == [False]


def test_a_shorter_lease_is_renewed_in_its_own_time(subject: Subject) -> None:
    """The thread is waiting for the time of a longer one."""
    shorter, lost = Signal(), []

    @receiver(shorter)
    @recheck(name="shorter", key=lambda **_: 1, ttl=1)
    def stay(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        first = recheck_pass.deadline
        until(lambda: recheck_pass.deadline > first + 0.2 or recheck_pass.lost)
        lost.append(recheck_pass.lost)

    subject.does(lambda p: shorter.send(sender=None), ttl=30)
    assert subject.send() is Outcome.RAN
    assert lost == [False]


def test_a_young_lease_is_left_alone_when_the_thread_looks_for_another(subject: Subject) -> None:
    younger = Signal()

    outer: list[Any] = []

    @receiver(younger)
    @recheck(name="younger", key=lambda **_: 1, ttl=30)
    def stay(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        granted, first = recheck_pass.grant.deadline, outer[0].deadline
        until(lambda: outer[0].deadline > first + 0.5)
        assert recheck_pass.grant.deadline == granted
        outer.append(recheck_pass)

    def within(recheck_pass: Any) -> None:
        outer.append(recheck_pass)
        younger.send(sender=None)

    subject.does(within, ttl=1)
    assert subject.send() is Outcome.RAN
    assert len(outer) == 2, "it saw the other renewed"


def test_beyond_max_hold_a_pass_isnt_renewed_and_its_hold_ends(subject: Subject) -> None:
    def stay(recheck_pass: Any) -> None:
        if len(subject.seen) == 1:
            assert elsewhere(subject.send) is Outcome.COALESCED
            until(lambda: recheck_pass.lost and holder() is None)

    subject.does(stay, ttl=1, max_hold=1.1)
    assert subject.send() is Outcome.REQUEUED
    assert look().state == "due"


def calls() -> int:
    """Return how many scripts the server has run."""
    with of_the_run().client as client:
        return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])


def test_c19_after_the_hold_nothing_is_renewed_and_the_thread_ends(
    subject: Subject, renewer: lease.Renewer
) -> None:
    subject.does(lambda p: None, ttl=1)
    for _ in range(2):
        subject.send()
        before, thread = calls(), renewer._thread
        assert thread is not None
        assert thread.daemon, "a process that ends doesn't wait for it"
        thread.join(20)
        assert renewer._thread is None
        assert calls() == before


def test_a_max_hold_within_the_ttl_needs_no_thread(
    subject: Subject, renewer: lease.Renewer
) -> None:
    subject.does(lambda p: None, ttl=5, max_hold=5)
    assert subject.send() is Outcome.RAN
    assert renewer._thread is None


def test_c17_renewal_compares_first(subject: Subject) -> None:
    def overtaken(recheck_pass: Any) -> None:
        grants.append(taken_over())
        until(lambda: recheck_pass.lost)

    grants: list[Grant] = []
    subject.does(overtaken, ttl=1)
    assert subject.send() is Outcome.LEASE_LOST
    assert holder() == grants[0].token
    assert lease_left() > 20, "the other's lease, not cut down to ours"


@pytest.mark.parametrize("trouble", ["server", "settings"])
def test_c18_renewal_tries_on_until_the_lease_ends(
    subject: Subject, settings: Any, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    with running() as server:
        cache = {**settings.CACHES["recheck"], "LOCATION": server.url}
        cache["OPTIONS"] = {"SOCKET_TIMEOUT": 0.2}
        settings.CACHES = {**settings.CACHES, "own": cache}
        sound = settings.RECHECK = {**settings.RECHECK, "CACHE": "own"}
        assert server.process is not None
        process = server.process

        def stay(recheck_pass: Any) -> None:
            first = recheck_pass.deadline
            if trouble == "server":
                process.send_signal(signal.SIGSTOP)
            else:
                settings.RECHECK = {"SHARDS": "many"}
            until(lambda: "trying on" in caplog.text)
            process.send_signal(signal.SIGCONT)
            settings.RECHECK = sound
            until(lambda: recheck_pass.deadline > first + 0.5 or recheck_pass.lost)
            assert not recheck_pass.lost

        subject.does(stay, ttl=6)
        assert subject.send() is Outcome.RAN


def test_ensure_held_extends_on_the_server_or_says_that_it_is_lost(subject: Subject) -> None:
    def ask(recheck_pass: Any) -> None:
        current = store.current()
        current.client.pexpire(current.lane_of(KEY).lock(KEY), 5000)
        recheck_pass.ensure_held()
        assert lease_left() > 20
        end_lease()
        recheck_pass.ensure_held()
        assert holder() is not None, "nobody had taken it over: it is ours again"
        taken_over()
        with pytest.raises(LockLost, match="another's by now"):
            recheck_pass.ensure_held()
        lost.append(recheck_pass.lost)

    lost: list[bool] = []
    subject.does(ask, ttl=30)
    assert subject.send() is Outcome.LEASE_LOST
    assert lost == [True]


# Not inherited


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_c20_a_forked_child_owns_nothing(subject: Subject, renewer: lease.Renewer) -> None:
    """Nor does it finish the hold, nor hang: who had taken the locks isn't there in the child."""
    parent, taken, forked = os.getpid(), threading.Event(), threading.Event()

    def take() -> None:
        with renewer._changed, outage._mutex:
            taken.set()
            assert forked.wait(20)

    def fork(recheck_pass: Any) -> None:
        if recheck_pass.number > 1:
            return
        thread, token = threading.Thread(target=take), holder()
        thread.start()
        assert taken.wait(20)
        if child := os.fork():
            forked.set()
            thread.join()
            assert os.waitpid(child, 0)[1] == 0
            assert holder() == token is not None
            return
        signal.alarm(20)  # rather than for ever
        with pytest.raises(LockLost):
            recheck_pass.ensure_held()
        assert lease.renewer is not renewer
        assert lease.renewer._thread is None
        assert subject.send() is Outcome.COALESCED
        asked.append(recheck_pass)

    asked: list[Any] = []
    held, outcome = subject.does(fork), None
    try:
        outcome = subject.send()
    finally:
        if os.getpid() != parent:
            outage.owe(outage.Ready(held, KEY, Events(0, ())))
            os._exit(0 if asked and outcome is Outcome.LEASE_LOST else 1)
    assert outcome is Outcome.RAN
    assert subject.seen == [(1, 1, 1), (2, 1, 1)], "the child's event wasn't lost with it"


# A hold is lost


@pytest.mark.parametrize("finishes", [False, True])
def test_a_pass_that_outlived_its_lease_asks_for_one_more(
    subject: Subject, caplog: pytest.LogCaptureFixture, finishes: bool
) -> None:
    grants: list[Grant] = []

    def outlive(recheck_pass: Any) -> None:
        if not grants:
            grants.append(taken_over())
            if finishes:
                assert store.current().finish(grants[0], "ok", held.options)[0] == "DONE"

    held = subject.does(outlive)
    assert subject.send() is Outcome.LEASE_LOST
    assert logging.WARNING in levels(caplog)
    assert "outlived its lease" in caplog.text
    if finishes:
        assert len(subject.seen) == 2, "nobody held it, so the pass came at once"
        assert look().state == "idle"
    else:
        following, _ = store.current().finish(grants[0], "ok", held.options)
        assert isinstance(following, Grant), "its holder was told to go again"
        assert len(subject.seen) == 1


def test_a_lease_that_nobody_took_over_is_still_ours(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    subject.does(lambda p: end_lease())
    assert subject.send() is Outcome.RAN
    assert levels(caplog) == []
    assert look().state == "idle"


def test_without_a_thread_a_hold_goes_on_unrenewed_and_the_next_tries_again(
    subject: Subject, renewer: lease.Renewer, caplog: pytest.LogCaptureFixture
) -> None:
    """A save in an exit handler, say: the interpreter starts no thread any more."""

    class Ending(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't create new thread at interpreter shutdown")

    subject.does(lambda p: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "Thread", Ending)
        assert subject.send() is Outcome.RAN
    assert "aren't renewed" in caplog.text
    assert renewer._leases == set()
    assert subject.send() is Outcome.RAN
    assert renewer._thread is not None


def test_an_async_pass_keeps_its_lease(subject: Subject) -> None:
    seen = []

    @receiver(subject.signal)
    @recheck(name=KEY.receiver, key=lambda **_: 1, ttl=1)
    async def held(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        first = recheck_pass.deadline
        while not recheck_pass.lost and recheck_pass.deadline < first + 1.2:
            await asyncio.sleep(0.01)
        seen.append(recheck_pass.lost)

    assert subject.send() is Outcome.RAN
    assert seen == [False]
