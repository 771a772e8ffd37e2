"""Passes that can't run here and now: beside a running loop, or after another database's commit."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections, transaction
from django.dispatch import Signal, receiver

from django_recheck import Outcome, elsewhere, recheck, store, views
from tests.app.models import Group
from tests.test_runner import Subject, look

BURST = 200


@pytest.fixture
def subject() -> Subject:
    return Subject()


def test_a_burst_in_a_loop_takes_no_more_threads_than_the_loops_pool() -> None:
    probe, ran = Signal(), []
    inside, most = set(), set()

    @receiver(probe)
    @recheck(key=lambda number, **_: number, name="burst")
    def note(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        inside.add(recheck_pass.key)
        most.add(len(inside))
        ran.append(recheck_pass.key)
        inside.remove(recheck_pass.key)

    async def burst() -> int:
        found: list[Any] = [probe.send(sender=None, number=n)[0][1] for n in range(BURST)]
        assert found == [Outcome.PENDING] * BURST
        return threading.active_count()

    before = threading.active_count()
    assert asyncio.run(burst()) <= before + elsewhere.MOST + 1, "the renewing thread is one more"
    assert sorted(ran) == list(range(BURST)), "asyncio.run() has waited for all of them"
    assert max(most) <= elsewhere.MOST


def test_passes_that_wait_for_others_of_the_pool_find_a_thread_there() -> None:
    probe = Signal()
    ran: list[int] = []

    @receiver(probe)
    @recheck(key=lambda number, **_: number, name="waiting", inline_budget=60)
    def wait(sender: Any, loop: Any, recheck_pass: Any, **kwargs: Any) -> None:
        told = asyncio.run_coroutine_threadsafe(asyncio.to_thread(ran.append, 1), loops[0])
        told.result(20)

    loops: list[asyncio.AbstractEventLoop] = []

    async def burst() -> None:
        loops.append(asyncio.get_running_loop())
        for number in range(40):
            probe.send(sender=None, number=number, loop=None)
        while len(ran) < 40:
            await asyncio.sleep(0.005)

    asyncio.run(asyncio.wait_for(burst(), 60))


def test_what_waits_longer_than_its_budget_stays_pending() -> None:
    probe, ran = Signal(), []

    @receiver(probe)
    @recheck(key=lambda number, **_: number, name="slow", inline_budget=0.3)
    def slow(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        ran.append(recheck_pass.key)
        time.sleep(0.1)

    async def burst() -> None:
        for number in range(100):
            probe.send(sender=None, number=number)

    asyncio.run(burst())
    assert 0 < len(ran) < 50
    assert views.counts(store.current())["slow"].due == 100 - len(ran)


def test_without_a_thread_in_the_loops_pool_passes_stay_pending(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    subject.does(lambda p: None)

    async def send() -> list[Outcome]:
        await asyncio.get_running_loop().shutdown_default_executor()
        return [subject.send(), subject.send()]

    assert asyncio.run(send()) == [Outcome.PENDING] * 2
    assert caplog.text.count("stay pending beside the event loop") == 2
    assert (look().state, subject.seen) == ("due", [])


@pytest.mark.django_db(transaction=True)
def test_beside_a_loop_a_pass_has_the_senders_context_and_leaves_no_connection(
    subject: Subject,
) -> None:
    language = contextvars.ContextVar("language", default="")
    found: list[Any] = []

    def look_around(recheck_pass: Any) -> None:
        User.objects.exists()
        found.append((language.get(), connections["default"]))

    subject.does(look_around)

    async def send() -> None:
        language.set("de")
        subject.send()

    asyncio.run(send())
    ((spoken, connection),) = found
    assert (spoken, connection.connection) == ("de", None)


def test_what_a_pass_beside_a_loop_raises_is_logged(
    subject: Subject, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.RECHECK = {**settings.RECHECK, "RAISE_EXCEPTIONS": True}

    def fail(recheck_pass: Any) -> None:
        raise LookupError("mine")

    subject.does(fail)

    async def send() -> Outcome:
        return subject.send()

    assert asyncio.run(send()) is Outcome.PENDING
    assert "beside an event loop raised LookupError('mine')" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_a_pass_beside_a_loop_leaves_no_database_connection_open(subject: Subject) -> None:
    used: list[Any] = []

    def ask(recheck_pass: Any) -> None:
        Group.objects.count()
        used.append(connections["default"])

    async def send() -> Outcome:
        return subject.send()

    subject.does(ask)
    assert asyncio.run(send()) is Outcome.PENDING
    assert [connection.connection for connection in used] == [None]
    assert used[0] is not connections["default"]


LAST_WORDS = """
import django
django.setup()
import asyncio, logging
from django.dispatch import Signal
from django_recheck import recheck

logging.getLogger("asyncio").setLevel("ERROR")  # a busy machine's slow steps are none of ours
probe = Signal()

@recheck(key=lambda **_: 1, name="last")
async def last(sender, **kwargs):
    await asyncio.sleep(0.1)
    await asyncio.to_thread(print, "ran", flush=True)

probe.connect(last)

async def main():
    probe.send(sender=None)

asyncio.run(main())
"""


def test_a_scripts_last_event_is_run_before_the_interpreter_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", LAST_WORDS],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_pass_that_raises_after_anothers_commit_stops_no_callback_behind_it(
    subject: Subject, settings: Any
) -> None:
    settings.RECHECK = {**settings.RECHECK, "RAISE_EXCEPTIONS": True}
    later: list[int] = []

    def fail(recheck_pass: Any) -> None:
        raise LookupError

    subject.does(fail)
    with transaction.atomic(using="other"):
        assert subject.send() is Outcome.PENDING
        transaction.on_commit(lambda: later.append(1), using="other")
    assert (len(subject.seen), later) == (1, [1])
