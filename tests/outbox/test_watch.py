"""A drain that goes on finds rows, too: those of dead writers, and what waits for Redis."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.app.models import Item
from tests.servers import apart
from tests.watch.watching import until, watching

from .seen import DATABASES, committed_and_not_told, durable, ripen, rows

pytestmark = pytest.mark.django_db(transaction=True, databases=list(DATABASES))


@pytest.mark.parametrize("threads", [1, 3])
def test_it_runs_what_a_dead_writer_committed_while_it_sleeps(threads: int) -> None:
    calls: list[Any] = []
    durable(calls)
    with watching(threads=threads, bound=0.05) as watched:
        for number in range(2):
            committed_and_not_told(Item(name=str(number)).save)
            ripen()
            until(lambda: rows() == [])
        assert watched.raised is None
    assert len(calls) == 2


def test_it_runs_what_waits_in_the_table_when_redis_is_back(settings: Any) -> None:
    calls: list[Any] = []
    with apart(settings, BREAKER=0) as server:
        durable(calls, durable=False, on_redis_error="outbox")
        with watching(bound=0.05) as watched:
            server.end(signal.SIGKILL)
            Item(name="a").save()
            assert (len(rows()), calls) == (1, [])
            server.start()
            until(lambda: rows() == [] and calls)
            assert watched.raised is None
    assert len(calls) == 1
