"""A primary that is demoted: the next try asks whoever is the primary by then."""

from __future__ import annotations

from typing import Any

from django_recheck import Outcome, store
from tests.servers import running
from tests.test_round_trips import Wire
from tests.test_runner import Subject, look


def test_after_a_failover_new_connections_find_the_new_primary(settings: Any) -> None:
    """The address stays the same; connections that were open still lead to the old one."""
    subject = Subject()
    with running() as old, running() as new, old.client as client:
        wire = Wire(old)
        address = f"redis://127.0.0.1:{wire.port}/0"
        cache = {**settings.CACHES["recheck"], "LOCATION": address}
        settings.CACHES = {**settings.CACHES, "address": cache}
        settings.RECHECK = {**settings.RECHECK, "CACHE": "address"}
        subject.does(lambda p: None)
        try:
            assert subject.send() is Outcome.RAN
            wire.to = ("127.0.0.1", new.port)
            client.replicaof("127.0.0.1", str(new.port))
            assert subject.send() is Outcome.RAN
            assert subject.seen == [(1, 1, 1)] * 2
            assert look().state == "idle"
        finally:
            store.current().client.connection_pool.disconnect()
            wire.close()
