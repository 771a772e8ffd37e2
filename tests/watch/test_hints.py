"""Who is told that a pass is owed: those who watch, and only of times earlier than they know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.db.models.signals import post_save
from django.dispatch import receiver

from django_recheck import Receiver, conf, recheck, store, views, worker
from django_recheck.records import Item, pack
from tests.app import models
from tests.servers import running

EVENT = pack([b'["","",""]', b"", b"", b"[null,null,{},{},null]"])


class Listener:
    """Somebody who watches."""

    def __init__(self) -> None:
        current = store.current()
        self._listening = current.client.pubsub(ignore_subscribe_messages=True)
        self._listening.subscribe(current.hints)
        self._heard = 0

    def heard(self) -> int:
        """Return how often it was told since it was last asked."""
        store.current().client.publish(store.current().hints, "end")
        told = 0
        while True:
            message = self._listening.get_message(timeout=5)
            if message and message["data"] == b"end":
                return told
            told += message is not None

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


def enqueue(*texts: str, **options: Any) -> None:
    wanted = conf.Options("told", {name.upper(): value for name, value in options.items()})
    store.current().enqueue([store.Entry(Item("told", text), 1, EVENT, wanted) for text in texts])


def test_an_event_that_nobody_runs_here_is_told_once_for_its_lane(listener: Listener) -> None:
    enqueue("1", "2", "3")
    assert listener.heard() == 1
    enqueue("1", "4")
    assert listener.heard() == 0, "something is ripe already"
    store.current().peek(["told"], 10, 5)
    enqueue("5")
    assert listener.heard() == 1, "what was ripe has been seen"


def test_a_delayed_event_is_told_if_it_comes_first(listener: Listener) -> None:
    enqueue("1", delay=60)
    assert listener.heard() == 1
    enqueue("2", delay=90)
    enqueue("1", delay=60)
    assert listener.heard() == 0
    enqueue("3", delay=30)
    assert listener.heard() == 1
    enqueue("2")
    assert listener.heard() == 1, "it is owed now"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("dispatch", "told"), [("inline", 0), ("worker", 1)])
def test_events_are_told_unless_their_own_thread_runs_them(
    listener: Listener, dispatch: str, told: int
) -> None:
    @receiver(post_save, sender=models.Group)
    @recheck(name="told", dispatch=dispatch)
    def receive(sender: Any, **kwargs: Any) -> None: ...

    for rows in (1, 3):
        with transaction.atomic():
            for _ in range(rows):
                models.Group.objects.create(name="a")
        assert listener.heard() == told
        worker.drain()
        listener.heard()


@pytest.mark.django_db(transaction=True)
def test_what_is_asked_for_in_bulk_is_told_whoever_runs_it(listener: Listener) -> None:
    asked = _receiver()
    asked.recheck_many([1, 2])
    assert listener.heard() == 1


def _receiver() -> Receiver[..., Any]:
    @recheck(name="told", key="group")
    def told(sender: Any, **kwargs: Any) -> None: ...

    return told


def test_who_may_not_tell_records_all_the_same(settings: Any) -> None:
    with running() as server, server.client as client:
        allowed = ["+@all", "-publish", "~*", "resetchannels"]
        client.execute_command("ACL SETUSER", "shop", "on", ">s3cret", *allowed)
        url = server.url.replace("//", "//shop:s3cret@")
        cache = {**settings.CACHES["recheck"], "LOCATION": url}
        settings.CACHES = {**settings.CACHES, "silent": cache}
        settings.RECHECK = {**settings.RECHECK, "CACHE": "silent"}
        enqueue("1")
        current = store.current()
        current.give_back([Item("told", "1")])
        assert views.counts(current)["told"].due == 1
