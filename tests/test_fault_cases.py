"""Cases of shared trouble: who is killed, what is flushed, what waits, what fails by thousands."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.models.signals import post_save
from django.dispatch import receiver

from django_recheck import Outcome, recheck, store, views, worker
from tests.app.models import Item
from tests.test_runner import KEY, Subject, elsewhere, levels, look


@pytest.fixture
def subject() -> Subject:
    return Subject()


def until(condition: Callable[[], object]) -> None:
    """Wait for something that another process, thread or the clock does."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it didn't happen"
        time.sleep(0.01)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_c03_what_came_during_a_failing_pass_keeps_its_database() -> None:
    seen = []

    @receiver(post_save, sender=Item)
    @recheck(name="failing", backoff=(0.001, 0.001))
    def failing(sender: Any, instance: Item, recheck_pass: Any, **kwargs: Any) -> None:
        seen.append((recheck_pass.event_count, instance._state.db, kwargs["using"]))
        if len(seen) == 1:
            elsewhere(save)
            raise ValueError

    def save() -> None:
        Item.objects.using("other").get().save()
        connections.close_all()

    Item.objects.using("other").create(name="a")
    until(lambda: worker.drain().items)
    assert seen == [(1, "other", "other"), (2, "other", "other")]
    assert views.counts(store.current()) == {}


@pytest.fixture
def killed(subject: Subject) -> Subject:
    """The item whose holder, another process, was killed in its first pass a moment ago."""
    read, write = os.pipe()
    parent = os.getpid()

    def stay(recheck_pass: Any) -> None:
        if os.getpid() != parent:
            os.write(write, b"here")
            signal.pause()

    subject.does(stay, ttl=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads are there, and idle
        child = os.fork()
    if not child:
        subject.send()
        os._exit(1)
    assert os.read(read, 4) == b"here"
    os.close(read)
    os.close(write)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return subject


def test_c05_a_killed_holders_events_and_the_newer_ones_are_taken_over(killed: Subject) -> None:
    assert killed.send() is Outcome.COALESCED
    assert worker.drain().items == 0, "not before its lease is over"
    until(lambda: worker.drain().items)
    assert killed.seen == [(1, 2, 2)], "both events, and the death counts as an attempt"
    assert look().state == "idle"


def test_c06_what_is_pending_has_no_end_and_stands_in_an_index(killed: Subject) -> None:
    assert killed.send() is Outcome.COALESCED
    view, current = look(), store.current()
    assert view.record is not None
    assert (view.state, view.record.count, view.record.newer_count) == ("running", 1, 1)
    lane = current.lane_of(KEY)
    assert [current.client.pttl(key) for key in lane.keys if current.client.exists(key)] == [-1] * 3


def test_c21_a_killed_holder_blocks_its_key_for_a_lease_and_no_longer(killed: Subject) -> None:
    assert 0 < (look().lease_left or 0) <= 2
    until(lambda: look().holder is None)
    assert killed.send() is Outcome.RAN
    assert killed.seen == [(1, 2, 2)]


def test_c07_a_pass_that_begins_ends_the_window_of_a_delay() -> None:
    counts = []

    @recheck(name="delayed", key="value", delay=0.05, max_wait=0.3)
    def delayed(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        counts.append(recheck_pass.event_count)
        if len(counts) == 1:
            elsewhere(lambda: delayed.recheck(key=1))

    delayed.recheck(key=1)
    until(lambda: worker.drain().items)
    (view,) = views.page(store.current(), "delayed", "due")
    assert view.record is not None
    assert view.record.ready == view.record.first + 50, "a window of its own"
    until(lambda: worker.drain().items)
    assert counts == [1, 1]


@pytest.mark.parametrize("longest", [1, 5])
def test_c09_a_longest_wait_that_isnt_above_the_delay_is_refused(longest: float) -> None:
    with pytest.raises(ImproperlyConfigured, match="must be above DELAY"):
        recheck(delay=5, max_wait=longest)


def test_c10_a_retry_and_new_events_are_one_item(subject: Subject) -> None:
    def fail_at_first(recheck_pass: Any) -> None:
        if len(subject.seen) == 1:
            raise ValueError

    held = subject.does(fail_at_first)
    assert subject.send() is Outcome.FAILED
    held.recheck_many([1, 1])
    held.recheck_many([1])
    assert views.counts(store.current())[KEY.receiver].due == 1
    assert worker.drain().outcomes == {Outcome.RAN: 1}
    assert subject.seen == [(1, 1, 1), (1, 3, 2)]


def test_c26_a_holder_finds_out_that_all_was_cleared(
    subject: Subject, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def clear(recheck_pass: Any) -> None:
        if len(subject.seen) == 1:
            caches["recheck"].clear()

    subject.does(clear)
    assert subject.send() is Outcome.LEASE_LOST
    assert subject.seen == [(1, 1, 1), (1, 0, 2)], "one more pass, and no crash"
    assert levels(caplog) == [logging.WARNING]
    assert look().state == "idle"


LEAVING = """
import django
django.setup()
import atexit
import threading
from django.dispatch import Signal
from django_recheck import recheck, store

probe = Signal()

@recheck(key=lambda **_: 1, name="leaving", ttl=1)
def leaving(sender, **kwargs):
    print("ran", flush=True)

probe.connect(leaving)
probe.send(sender=None)
atexit.register(probe.send, sender=None)
threading.Thread(target=probe.send, kwargs={"sender": None}).start()
HOW
"""


@pytest.mark.parametrize("how", ["", "import sys; sys.exit(3)", "del probe, leaving, store"])
def test_c27_the_interpreter_ends_without_a_word(how: str) -> None:
    """Whatever still lives then: the thread that renews leases, a hold in an exit handler."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", LEAVING.replace("HOW", how)],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = [line for line in done.stderr.splitlines() if "aren't renewed" not in line]
    assert (done.returncode, said) == (3 if "exit" in how else 0, [])
    assert done.stdout.count("ran") >= 2


def test_c62_many_that_fail_are_warnings_and_then_one_error_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    number = 100

    @recheck(name="failing", key="value", backoff=(0.001, 0.001), max_attempts=3)
    def failing(sender: Any, **kwargs: Any) -> None:
        raise ValueError

    failing.recheck_many(range(number))
    current = store.current()
    with caplog.at_level(logging.INFO):
        until(lambda: not worker.drain().items and not views.counts(current)["failing"].due)
    assert views.counts(current)["failing"].dead == number
    assert levels(caplog).count(logging.WARNING) == 2 * number
    assert levels(caplog).count(logging.ERROR) == number
    assert len(levels(caplog)) == 3 * number


def test_a_receiver_that_always_outlives_its_lease_is_given_up(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    """With two workers that take over from each other; without its rule this goes on for ever."""

    def outlive(recheck_pass: Any) -> None:
        def taken_or_given_up() -> bool:
            view = look()
            assert view.record is not None
            return view.state == "dead" or int(view.record.fence) != recheck_pass.fence

        until(taken_or_given_up)

    held = subject.does(outlive, ttl=1, max_hold=0, max_attempts=3, backoff=(0.01, 0.01))
    held.recheck_many([1])
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            worker.drain()
            time.sleep(0.01)
        connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: look().state == "dead")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert look().state == "dead", "and so it stays"
    assert 2 <= len(subject.seen) <= 3, "takeovers and heals count alike"
    assert levels(caplog).count(logging.ERROR) == 1
    assert "the receiver failed" not in caplog.text, "each has outlived its lease"
