"""Items that a drain claims in one trip: none waits beside a slow pass, none falls with another."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from django_recheck import (
    Outcome,
    Receiver,
    ahead,
    granted,
    recheck,
    ripe,
    store,
    views,
    worker,
)
from django_recheck.granted import Granted
from django_recheck.records import Grant, Item
from tests.app.models import Group

pytestmark = pytest.mark.django_db(transaction=True)


def receiver(body: Callable[[Any], Any], **options: Any) -> Receiver[..., Any]:
    @recheck(name="many", key=lambda **_: 1, dispatch="worker", **options)
    def many(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        body(recheck_pass.key)

    return many


def claimed(many: Receiver[..., Any], number: int) -> list[tuple[Grant, Receiver[..., Any]]]:
    many.recheck_many(range(number))
    wanted = [(Item("many", str(key)), many.options) for key in range(number)]
    grants = store.current().claim_many(wanted)
    return [(grant, many) for grant in grants if isinstance(grant, Grant)]


def counts() -> tuple[int, int]:
    """Return how many items run and how many are due."""
    found = views.counts(store.current())["many"]
    return found.running, found.due


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_what_waits_beside_a_slow_pass_is_run_by_another_worker() -> None:
    slow, over, others = threading.Event(), threading.Event(), list[int]()

    def body(key: int) -> None:
        if threading.current_thread() is first and len(others) == 30:
            slow.set()
            assert over.wait(20)
        others.append(key)

    def drain() -> None:
        try:
            worker.drain()
        finally:
            connections.close_all()

    first = threading.Thread(target=drain)
    many = receiver(body)
    many.recheck_many(range(200))
    first.start()
    try:
        assert slow.wait(20)
        until(lambda: counts()[0] == 1)  # the slow one alone: the rest was given back
        worker.drain()
        until(lambda: len(others) == 199 or not worker.drain().items)
        left = counts()
    finally:
        over.set()
        first.join()
    assert left[0] == 1, "only the slow one was left"
    worker.drain()
    assert sorted(others) == [*range(200)], "each was run, and once"


def test_what_is_given_back_was_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    many = receiver(lambda key: None)
    monkeypatch.setattr(granted, "PATIENCE", 60)
    held = Granted(claimed(many, 3))
    assert counts() == (3, 0)
    taken = held.take()
    assert taken
    held.close()
    assert (counts(), held.returned) == ((1, 2), 2)
    again = store.current().claim(Item("many", "1"), many.options)
    assert isinstance(again, Grant)
    assert (again.attempts, again.count, again.events) == (0, 1, taken[0].events)


def test_what_isnt_begun_is_given_back_in_time() -> None:
    held = Granted(claimed(receiver(lambda key: None), 3))
    assert held.take()
    until(lambda: counts() == (1, 2))
    assert held.take() is None


def test_what_raises_on_the_way_strands_nothing() -> None:
    class Stopped(Exception): ...

    def progress(item: Item, ended: Any) -> None:
        if ended.outcome is Outcome.DEAD:
            raise Stopped

    many, current = receiver(lambda key: None), store.current()
    many.recheck_many(range(7))
    current.client.hset(current.keys_of(Item("many", "3"))[0], "3", "broken")
    with pytest.raises(Stopped):
        worker.drain(progress=progress)
    assert counts() == (0, 3), "those that were claimed beside it"


def test_without_a_thread_for_that_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    grants = claimed(receiver(lambda key: None), 3)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    held = Granted(grants)
    assert counts() == (1, 2)
    assert held.take() == grants[0]


def test_what_failed_before_is_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may kill its process, and each takeover is an attempt of all that were held with it."""
    many = receiver(lambda key: None, backoff=(0.001, 0.001))
    for grant, _ in claimed(many, 2):
        store.current().finish(grant, "failed", many.options)
    time.sleep(0.01)
    monkeypatch.setattr(granted, "PATIENCE", 60)
    held = Granted(claimed(many, 4))
    keys = [taken[0].item.text for taken in iter(held.take, None)]
    assert keys in (["2", "3", "0"], ["2", "3", "1"])
    assert held.returned == 1


def test_one_that_was_lost_meanwhile_is_owed_a_pass() -> None:
    many, current, item = receiver(lambda key: None), store.current(), Item("many", "1")
    held = Granted(claimed(many, 2))
    state, running, *_, lock, _, _ = current.keys_of(item)
    current.client.hdel(state, "1")
    current.client.zrem(running, "1")
    current.client.delete(lock)
    held.close()
    (view,) = views.items(current, [item])
    assert (view.state, view.record and view.record.attempts) == ("due", 2)


def test_giving_back_twice_is_no_attempt() -> None:
    """Its reply may be lost on the way, and the second copy finds what it asks for."""
    many, current = receiver(lambda key: None), store.current()
    held = claimed(many, 2)
    current.unbegun([grant for grant, _ in held])
    Granted(held).close()
    due = views.page(current, "many", "due")
    assert [view.record and view.record.attempts for view in due] == [0, 0]


def test_what_refuses_to_be_given_back_is_told(caplog: pytest.LogCaptureFixture) -> None:
    many, current = receiver(lambda key: None), store.current()
    held = Granted(claimed(many, 2))
    due = current.keys_of(Item("many", "1"))[2]
    current.client.set(due, "no index")
    held.close()
    assert [record.getMessage()[:6] for record in caplog.records] == ["many 0", "many 1"]


# Rows


@pytest.fixture
def seen() -> list[tuple[int, str]]:
    return []


@pytest.fixture
def following(seen: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(granted, "PATIENCE", 60)  # however slow this machine is
    monkeypatch.setattr(ripe, "SHARE", 60)
    monkeypatch.setattr(ahead, "FRESH", 60)

    def make(**options: Any) -> Receiver[..., Any]:
        @recheck(name="rows", dispatch="worker", **options)
        def rows(sender: Any, instance: Group, **kwargs: Any) -> None:
            seen.append((instance.pk, instance.name))
            if len(seen) == 4:  # the first of four that were claimed together
                last = max(groups, key=lambda group: f"{group.pk}}}")  # in the order of the index
                Group.objects.filter(pk=last.pk).update(name="changed")
                assert rows.recheck(last) is Outcome.COALESCED

        rows.recheck_many(groups)
        return rows

    groups = [Group.objects.create(name="new") for _ in range(7)]
    return make


def rows_read(run: Callable[[], Any]) -> int:
    with CaptureQueriesContext(connection) as queries:
        run()
    return sum("SELECT" in query["sql"] for query in queries)


def test_rows_of_a_batch_are_read_in_one_query(
    following: Callable[..., Any], seen: list[tuple[int, str]]
) -> None:
    following()
    assert rows_read(worker.drain) == 3 + 1, "for one, two and four items; a second pass of one"
    assert len(seen) == 8
    assert seen[-2:] == [(seen[-1][0], "new"), (seen[-1][0], "changed")], "it had the last word"


def test_a_row_that_waited_is_read_again(
    following: Callable[..., Any],
    seen: list[tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ahead, "FRESH", 0)
    following()
    worker.drain()
    assert seen[-2:] == [(seen[-1][0], "changed")] * 2


@pytest.mark.parametrize("way", ["queryset", "context", "refresh"])
def test_some_passes_read_by_themselves(
    following: Callable[..., Any], seen: list[tuple[int, str]], way: str, settings: Any
) -> None:
    options: dict[str, dict[str, Any]] = {
        "queryset": {"queryset": lambda rows: rows.only("name")},
        "refresh": {"refresh": False, "carry": ["name"]},
    }
    if way == "context":
        settings.RECHECK = {**settings.RECHECK, "CONTEXT": "tests.test_granted.Nothing"}
    following(**options.get(way, {}))
    worker.drain()
    last = "new" if way == "refresh" else "changed"
    assert seen[6] == (seen[-1][0], last)


class Nothing:
    """A context without anything in it."""

    def capture(self) -> Any:
        return None

    def restore(self, value: Any) -> Any:
        return nullcontext()


def test_a_killed_workers_batch_is_recovered(monkeypatch: pytest.MonkeyPatch) -> None:
    done, tests = list[int](), os.getpid()

    def body(key: int) -> None:
        done.append(key)
        if os.getpid() != tests and len(done) == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    many = receiver(body, ttl=1)
    monkeypatch.setattr(ripe, "SHARE", 60)  # however slow this machine is
    many.recheck_many(range(20))
    connections.close_all()
    child = os.fork()
    if not child:
        worker.drain()
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert counts() == (3, 13), "it had four at once, and died in the second"

    def drained() -> bool:
        worker.drain()
        return len(done) >= 16

    until(drained)
    assert len({*done}) == len(done) == 16, "each that was left was run, and once"
    assert views.counts(store.current()) == {}
