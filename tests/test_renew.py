"""The script that extends leases: only what is still its holder's, and the others all the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from django_recheck import conf, lease, store
from django_recheck.records import Grant, Item, clock
from tests.servers import of_the_run
from tests.test_lease import until
from tests.test_runner import EVENT, KEY, end_lease, look, taken_over


def granted(item: Item) -> Grant:
    grant = store.current().request(item, EVENT, 1, conf.Options(item.receiver, {"TTL": 20}))
    assert isinstance(grant, Grant)
    return grant


def calls() -> int:
    """Return how many scripts the server has run."""
    with of_the_run().client as client:
        return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])


def test_all_leases_are_renewed_in_one_call() -> None:
    held = [lease.Lease(granted(Item(KEY.receiver, str(n))), 60, 3600) for n in range(50)]
    lease.Renewer().renew(held[:1])  # the server may have to learn the script
    before, ends = calls(), [kept.grant.deadline for kept in held[1:]]
    lease.Renewer().renew(held[1:])
    assert calls() == before + 1
    assert all(kept.grant.deadline > end + 20 for kept, end in zip(held[1:], ends, strict=True))


def test_who_is_overtaken_is_told_at_the_next_renewal() -> None:
    """Not only when the lease would have ended."""
    renewer, kept = lease.Renewer(), lease.Lease(granted(KEY), 30, 3600)
    with renewer.keep(kept):
        taken_over()
        renewer.renew([kept])
        assert kept.grant.deadline == 0.0


class Noting(lease.Renewer):
    """Notes when it looks for what is due."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def renew(self, leases: list[lease.Lease]) -> None:
        self.looks += 1
        super().renew(leases)


def test_between_renewals_the_thread_sleeps() -> None:
    renewer, kept = Noting(), lease.Lease(granted(KEY), 1, 3600)
    with renewer.keep(kept):
        end = kept.grant.deadline
        until(lambda: kept.grant.deadline != end)
        assert renewer.looks <= 3
        assert kept.due - clock() > 1 / 4, "a third of its time, when it went well"


def test_a_renewal_that_fails_is_tried_again_after_a_while(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    renewer, kept = Noting(), lease.Lease(granted(KEY), 3, 3600)
    settings.RECHECK = {**settings.RECHECK, "SHARDS": "many"}
    with renewer.keep(kept):
        until(lambda: caplog.text.count("trying on") >= 2)
        assert renewer.looks <= 4


def test_what_was_lost_isnt_asked_for_again() -> None:
    """Who has been told that it is lost isn't told otherwise later."""
    kept = lease.Lease(granted(KEY), 60, 3600)
    kept.grant.deadline, before = 0.0, calls()
    lease.Renewer().renew([kept])
    assert (kept.grant.deadline, calls()) == (0.0, before)


def test_a_lapsed_lease_is_its_holders_only_with_its_fence() -> None:
    """The fence of a lock that its record had disowned is 0, and nobody's."""
    grant = granted(KEY)
    end_lease()
    assert store.current().renew([replace(grant, fence="0")], [30]) == [False]
    assert look().holder is None
    assert store.current().renew([grant], [30]) == [True]
    assert look().holder == grant.token


@pytest.mark.parametrize(("wrong", "mine"), [("lock", False), ("state", False), ("running", True)])
def test_what_stands_in_a_keys_place_doesnt_keep_the_others_from_being_renewed(
    wrong: str, mine: bool
) -> None:
    current = store.current()
    bad, good = granted(Item("bad", "1")), granted(Item("good", "1"))
    lane = current.lane_of(bad.item)
    places: dict[str, Any] = {
        "lock": [lane.lock(bad.item)],
        "state": [lane.keys[0], lane.lock(bad.item)],
        "running": [lane.keys[1]],
    }
    current.client.delete(*places[wrong])
    current.client.rpush(places[wrong][0], "no such thing")
    end = good.deadline
    assert current.renew([bad, good], [60, 60]) == [mine, True]
    assert good.deadline > end + 20
