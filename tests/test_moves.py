"""Moves of single scripts of which no schedule, and no receiver, tells the difference."""

from __future__ import annotations

from typing import Any

import pytest

from django_recheck import conf, store, views
from django_recheck.records import Grant, Item, pack
from tests.servers import of_the_run

EVENT = pack([b"name", b"", b"", b"body"])
OTHER = pack([b"other", b"", b"", b"body"])
OPTIONS = conf.Options("r", {"TTL": 5, "MAX_ATTEMPTS": 2, "BACKOFF": (60, 60)})
ONCE = conf.Options("r", {"MAX_ATTEMPTS": 1})
ITEM = Item("r", "1")


@pytest.fixture
def current() -> store.Store:
    return store.current()


def granted(reply: Grant | str) -> Grant:
    assert isinstance(reply, Grant), reply
    return reply


def stored(current: store.Store) -> Any:
    """Return the item's record as it stands there."""
    return current.client.hget(current.lane_of(ITEM).keys[0], ITEM.text)


def end_lease(current: store.Store) -> None:
    """Let the lease end: the lock is gone, and the index says when."""
    lane = current.lane_of(ITEM)
    current.client.delete(lane.lock(ITEM))
    current.client.zadd(lane.keys[1], {ITEM.text: 1})


def copies_come_late(script: str, grant: Grant) -> Any:
    """Run a script as the server has it, once more with the grant's token."""
    current = store.current()
    rest = {"claim": (5000, 5, 1, 1, 0), "request": (5000, 1, EVENT, 0, 1, 1, 5, 0)}[script]
    reply, _ = current.call(
        script, current.keys_of(ITEM), (ITEM.receiver, ITEM.text, grant.token, *rest)
    )
    return reply


def test_a_late_copy_of_a_claim_is_nobodys_lease(current: store.Store) -> None:
    current.enqueue([store.Entry(ITEM, 1, EVENT, OPTIONS)])
    grant = granted(current.claim(ITEM, OPTIONS))
    end_lease(current)
    before = stored(current)
    assert copies_come_late("claim", grant) == [b"HELD"]
    assert stored(current) == before
    assert granted(current.claim(ITEM, OPTIONS)).attempts == 1, "one death"


def test_a_late_copy_of_a_request_is_nobodys_lease(current: store.Store) -> None:
    grant = granted(current.request(ITEM, EVENT, 1, OPTIONS))
    end_lease(current)
    assert copies_come_late("request", grant) == [b"PENDING", 0]
    (view,) = views.items(current, [ITEM])
    assert (view.state, view.holder) == ("running", None), "a drain takes it over at once"
    assert current.peek(["r"], 10, 5)[0] == [ITEM]
    assert granted(current.claim(ITEM, OPTIONS)).count == 2


def test_a_holder_doesnt_give_up_a_lock_that_is_anothers(current: store.Store) -> None:
    grant = granted(current.request(ITEM, EVENT, 1, OPTIONS))
    with of_the_run().client as client:
        client.set(current.lane_of(ITEM).lock(ITEM), "another:1:ab", px=5000)
        assert current.finish(grant, "ok", OPTIONS) == ("LOST", False)
        assert client.get(current.lane_of(ITEM).lock(ITEM)) == b"another:1:ab"


def test_what_is_given_up_owes_nothing_also_after_anothers_heal(current: store.Store) -> None:
    grant = granted(current.request(ITEM, EVENT, 1, OPTIONS))
    assert current.request(ITEM, EVENT, 1, OPTIONS, heal=1) == "COALESCED"
    assert current.finish(grant, "failed", OPTIONS, error="x") == ("DEAD", False)
    assert current.claim(ITEM, OPTIONS) == "LATER"
    (view,) = views.items(current, [ITEM])
    assert (view.state, view.holder) == ("dead", None)


def test_what_is_given_back_is_to_be_had_at_once_and_then_later(current: store.Store) -> None:
    grant = granted(current.request(ITEM, EVENT, 1, conf.Options("r", {})))
    seconds, _ = current.client.time()
    assert current.finish(grant, "back", OPTIONS) == ("PENDING", False)
    (view,) = views.items(current, [ITEM])
    assert view.score is not None
    assert view.score >= seconds, "due since now, not since ever"
    again = granted(current.claim(ITEM, OPTIONS))
    assert (again.attempts, again.takeover) == (1, False)
    assert current.finish(again, "back", conf.Options("r", {})) == ("PENDING", False)
    assert current.claim(ITEM, OPTIONS) == "LATER"


@pytest.mark.parametrize("newer", [True, False])
def test_a_newer_event_keeps_a_heal_from_giving_up(current: store.Store, newer: bool) -> None:
    granted(current.request(ITEM, EVENT, 1, OPTIONS))
    if newer:
        current.enqueue([store.Entry(ITEM, 1, EVENT, OPTIONS)])
    end_lease(current)
    expected = "PENDING" if newer else "DEAD"
    assert current.request(ITEM, EVENT, 1, OPTIONS, heal=2) == expected
    assert current.claim(ITEM, OPTIONS) == "LATER", "backing off, or dead"


@pytest.mark.parametrize("newer", [True, False])
def test_a_newer_event_keeps_a_takeover_from_giving_up(current: store.Store, newer: bool) -> None:
    granted(current.request(ITEM, EVENT, 1, ONCE))
    if newer:
        current.enqueue([store.Entry(ITEM, 1, EVENT, ONCE)])
    end_lease(current)
    assert (current.claim(ITEM, ONCE) == "DEAD") is not newer
    (view,) = views.items(current, [ITEM])
    assert view.record is not None
    assert view.record.error == ("" if newer else "No pass of 1 finished within its lease.")


def test_a_takeover_doesnt_wait_for_a_delayed_event(current: store.Store) -> None:
    granted(current.request(ITEM, EVENT, 1, OPTIONS))
    current.enqueue([store.Entry(ITEM, 1, EVENT, conf.Options("r", {"DELAY": 60}))])
    end_lease(current)
    again = granted(current.claim(ITEM, OPTIONS))
    assert (again.takeover, again.count) == (True, 2)


def test_what_is_given_up_keeps_what_its_receiver_raised(current: store.Store) -> None:
    grant = granted(current.request(ITEM, EVENT, 1, OPTIONS))
    assert current.finish(grant, "failed", OPTIONS, error="Boom")[0] == "FAILED"
    granted(current.request(ITEM, EVENT, 1, OPTIONS))
    end_lease(current)
    assert current.claim(ITEM, OPTIONS) == "DEAD"
    (view,) = views.items(current, [ITEM])
    assert view.record is not None
    assert view.record.error == "Boom"


def test_newer_events_dont_push_a_pass_behind_the_others(current: store.Store) -> None:
    def due() -> tuple[float | None, int]:
        current.enqueue([store.Entry(ITEM, 1, EVENT, OPTIONS)])
        (view,) = views.items(current, [ITEM])
        assert view.record is not None
        return view.score, view.record.last

    first, since = newest, last = due()
    while last == since:  # by the server's clock
        newest, last = due()
    assert newest == first


def test_a_look_names_so_many_and_dead_holders_items_first(current: store.Store) -> None:
    for number in range(3):
        current.enqueue([store.Entry(Item("r", f"due{number}"), 1, EVENT, OPTIONS)])
    current.client.zadd(current.lane_of(ITEM).keys[1], {f"held{number}": 1 for number in range(3)})
    found = [item.text for item in current.peek(["r"], 4, 60)[0]]
    assert found == ["held0", "held1", "held2", "due0"]
    assert [item.text for item in current.peek(["r"], 4, 60)[0]] == ["due1", "due2"]


def test_what_is_held_stands_in_running_until_its_leases_end(current: store.Store) -> None:
    lock = current.lane_of(ITEM).lock(ITEM)

    def ends() -> float:
        (view,) = views.items(current, [ITEM])
        assert view.state == "running"
        assert view.score is not None
        assert view.lease_left is not None
        seconds, micros = current.client.time()
        assert abs(view.score - seconds - micros / 1e6 - view.lease_left) < 1
        return float(view.lease_left)

    grant = granted(current.request(ITEM, EVENT, 1, OPTIONS))
    assert 4 < ends() <= 5
    current.client.pexpire(lock, 3000)
    assert current.request(ITEM, EVENT, 1, OPTIONS) == "COALESCED"
    assert ends() <= 3, "events don't keep a dead holder's lease alive"
    current.client.persist(lock)
    assert current.request(ITEM, EVENT, 1, OPTIONS) == "COALESCED"
    assert 4 < ends() <= 5
    current.client.pexpire(lock, 3000)
    granted(current.finish(grant, "ok", OPTIONS)[0])
    assert 4 < ends() <= 5, "a lease for each pass"


def test_a_lane_is_known_as_long_as_it_has_items(current: store.Store) -> None:
    grants = [granted(current.request(Item("r", n), EVENT, 1, OPTIONS)) for n in "12"]
    current.finish(grants[0], "ok", OPTIONS)
    assert views.receivers(current) == ["r"]
    current.finish(grants[1], "ok", OPTIONS)
    assert views.receivers(current) == []


def test_a_heal_revives_nothing_that_was_given_up(current: store.Store) -> None:
    grant = granted(current.request(ITEM, EVENT, 1, ONCE))
    assert current.finish(grant, "failed", ONCE, error="x") == ("DEAD", False)
    assert current.request(ITEM, OTHER, 1, ONCE, heal=1) == "LATER"
    assert current.claim(ITEM, ONCE) == "LATER"
    (view,) = views.items(current, [ITEM])
    assert view.state == "dead"
    again = granted(current.request(ITEM, EVENT, 1, ONCE))
    assert again.events == OTHER + EVENT, "the heal's own events weren't lost"


def test_a_first_heal_has_its_pass_whatever_the_most_attempts(current: store.Store) -> None:
    grant = granted(current.request(ITEM, EVENT, 1, ONCE, heal=1))
    assert (grant.attempts, grant.count) == (1, 0)


def test_an_event_that_takes_over_has_its_pass_whatever_the_most_attempts(
    current: store.Store,
) -> None:
    granted(current.request(ITEM, EVENT, 1, ONCE))
    end_lease(current)
    grant = granted(current.request(ITEM, EVENT, 1, ONCE))
    assert (grant.takeover, grant.attempts, grant.count) == (True, 1, 2)


def test_a_heal_counts_as_an_attempt(current: store.Store) -> None:
    grant = granted(current.request(ITEM, EVENT, 1, OPTIONS))
    many = conf.Options("r", {"MAX_ATTEMPTS": 9, "BACKOFF": (60, 60)})
    assert current.finish(grant, "failed", many, error="x") == ("FAILED", False)
    assert current.request(ITEM, EVENT, 1, many, heal=1) == "PENDING"
    (view,) = views.items(current, [ITEM])
    assert view.record is not None
    assert view.record.attempts == 2
