"""How many items of one receiver run at once: who has a place, who waits, and what that costs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import override_settings

from django_recheck import (
    Outcome,
    Receiver,
    board,
    conf,
    recheck,
    remarks,
    screen,
    store,
    survey,
    views,
    worker,
)
from django_recheck.outbox.shown import Found
from django_recheck.records import Grant, Item, pack

EVENT = pack([b'["","",""]', b"", b"", b"[null,null,{},{},null]"])


@pytest.fixture
def calls() -> list[Any]:
    return []


@pytest.fixture
def search(calls: list[Any]) -> Receiver[..., Any]:
    """A receiver with one place."""

    @recheck(name="search", key="value", concurrency=1)
    def search(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append(recheck_pass.key)

    return search


def options(places: int | None = 1, **given: Any) -> conf.Options:
    upper = {name.upper(): value for name, value in given.items()}
    return conf.Options("search", {"CONCURRENCY": places, **upper})


def request(text: str, *, places: int | None = 1, **given: Any) -> Grant | str:
    return store.current().request(Item("search", text), EVENT, 1, options(places), **given)


def granted(text: str, **given: Any) -> Grant:
    grant = request(text, **given)
    assert isinstance(grant, Grant), grant
    return grant


def finish(grant: Grant, outcome: str = "ok", *, places: int | None = 1) -> Grant | str:
    return store.current().finish(grant, outcome, options(places))[0]


def view(text: str) -> views.View:
    (found,) = views.items(store.current(), [Item("search", text)])
    return found


def attempts(text: str) -> int:
    record = view(text).record
    assert record is not None
    return record.attempts


def end_lease(text: str) -> None:
    """Let a holder be dead for a second."""
    current, item = store.current(), Item("search", text)
    lane = current.lane_of(item)
    current.client.delete(lane.lock(item))
    current.client.zadd(lane.keys[1], {text: (current.now() - 1) * 1000})


def test_who_finds_no_place_waits_and_no_attempt_is_counted(
    search: Receiver[..., Any], calls: list[Any]
) -> None:
    held = granted("1")
    assert search.recheck(key=2) is Outcome.PENDING
    assert search.recheck(key=2) is Outcome.PENDING
    assert (view("2").state, attempts("2"), calls) == ("due", 0, [])
    assert worker.drain().items == 0, "it ends, and doesn't go round in a full lane"
    assert finish(held) == "DONE"
    assert worker.drain().items == 1
    assert calls == [2]
    assert views.counts(store.current()) == {}, "nothing is left"


def test_the_events_of_a_transaction_run_one_after_the_other(
    search: Receiver[..., Any], calls: list[Any]
) -> None:
    search.recheck_many(range(5))
    assert worker.drain().items == 5, "each takes the place that the one before has left"
    assert sorted(calls) == [*range(5)]


def test_without_a_limit_all_run() -> None:
    for number in range(5):
        granted(str(number), places=None)


def test_as_many_as_there_are_places_run() -> None:
    held = [granted(str(number), places=3) for number in range(3)]
    assert request("3", places=3) == "PENDING"
    assert store.current().claim(Item("search", "3"), options(3)) == "LATER"
    assert finish(held[1], places=3) == "DONE"
    granted("4", places=3)
    assert request("5", places=3) == "PENDING"


def test_a_look_names_no_more_than_have_a_place() -> None:
    current = store.current()
    entries = [store.Entry(Item("search", str(n)), 1, EVENT, options(3)) for n in range(10)]
    current.enqueue(entries)
    granted("1", places=3)

    def named(limit: int) -> int:
        return len(current.peek(["search"], limit, 60, {"search": 3})[0])

    assert named(1) == 1, "less is asked for than is free"
    assert named(10) == 2
    granted("2", places=3)
    granted("3", places=3)
    assert named(10) == 0
    assert len(current.peek(["search"], 10, 60)[0]) == 6, "the first one is put off"


def test_a_hold_keeps_its_place_for_what_came_meanwhile() -> None:
    held = granted("1")
    request("2")
    assert request("1") == "COALESCED"
    again = finish(held)
    assert isinstance(again, Grant)
    assert again.number == 2
    once_more = finish(held)
    assert isinstance(once_more, Grant)
    assert once_more.number == 2, "the same answer, and no look for a place"
    assert finish(again) == "DONE"


def test_a_lower_number_takes_effect_when_passes_end() -> None:
    held = [granted(str(number), places=2) for number in range(2)]
    for number in range(2):
        assert request(str(number)) == "COALESCED"
    assert finish(held[0]) == "REQUEUED", "the other one has the place that is left"
    assert isinstance(finish(held[1]), Grant)


def test_a_dead_holders_place_is_free_and_its_item_waits_for_one() -> None:
    granted("1")
    end_lease("1")
    held = granted("2")
    current = store.current()
    assert current.peek(["search"], 10, 60, {"search": 1}) == ([], {}), "no place is free"
    for _ in range(3):
        assert current.claim(Item("search", "1"), options()) == "LATER"
    assert (view("1").state, attempts("1")) == ("due", 1), "the takeover counts, and counts once"
    assert finish(held) == "DONE"
    found = current.claim(Item("search", "1"), options())
    assert isinstance(found, Grant)
    assert found.count == 1, "with the events of the dead holder"


def test_an_event_on_a_dead_holders_item_waits_for_a_place_too() -> None:
    granted("1")
    end_lease("1")
    granted("2")
    assert request("1") == "PENDING"
    assert (view("1").state, attempts("1")) == ("due", 1)


def test_who_comes_back_from_a_lease_that_was_over_has_lost_the_place() -> None:
    slow = granted("1")
    assert request("1") == "COALESCED"
    end_lease("1")
    granted("2")
    assert finish(slow) == "REQUEUED", "a further pass would be one more than there are places"
    assert (view("1").state, view("1").holder) == ("due", None)


def test_a_failure_gives_the_place_up_and_waits_without_one() -> None:
    held = granted("1")
    assert finish(held, "failed") == "FAILED"
    granted("2")
    assert request("1") == "PENDING", "an event ends the backoff, not the line"


def test_a_heal_waits_for_a_place() -> None:
    granted("1")
    assert request("2", heal=1) == "PENDING"
    assert view("2").state == "due"


def test_what_is_dead_waits_for_a_place_once_it_has_got_an_event() -> None:
    current = store.current()
    strict = options(max_attempts=1)
    grant = current.request(Item("search", "1"), EVENT, 1, strict)
    assert isinstance(grant, Grant)
    assert current.finish(grant, "failed", strict)[0] == "DEAD"
    held = granted("2")
    assert request("1") == "PENDING"
    assert view("1").state == "due"
    finish(held)
    assert isinstance(current.claim(Item("search", "1"), options()), Grant)


@pytest.mark.parametrize(("places", "shares"), [(4, [1] * 4), (10, [3, 3, 2, 2]), (3, [1] * 4)])
def test_each_shard_has_its_share(settings: Any, places: int, shares: list[int]) -> None:
    settings.RECHECK = {**settings.RECHECK, "SHARDS": 4, "PREFIX": f"test-shares-{places}"}
    current = store.current()
    held: dict[str, int] = {}
    for number in range(100):
        if isinstance(request(str(number), places=places), Grant):
            tag = current.lane_of(Item("search", str(number))).tag
            held[tag] = held.get(tag, 0) + 1
    assert [held[lane.tag] for lane in current.lanes(["search"])] == shares


def test_who_watches_is_told_of_a_place_that_somebody_waits_for() -> None:
    current = store.current()
    listening = current.client.pubsub(ignore_subscribe_messages=True)
    listening.subscribe(current.hints)

    def told() -> int:
        current.client.publish(current.hints, "end")
        heard = 0
        while (message := listening.get_message(timeout=5)) is None or message["data"] != b"end":
            heard += message is not None
        return heard

    finish(granted("1"))
    assert told() == 0, "nobody waits"
    held = granted("1")
    request("2")
    assert told() == 0, "there is no place"
    finish(held)
    assert told() == 1
    finish(granted("1"), "failed")
    assert told() == 1
    held = granted("2")
    end_lease("2")
    finish(granted("3"))
    assert told() == 1, "what a dead holder left waits, too"
    finish(granted("4", places=None), places=None)
    assert told() == 0, "without a limit nobody waits for a place"
    listening.close()


def row(text: str, name: str = "search") -> board.Row:
    item = Item(name, text)
    found = survey.survey(store.current(), [name], items=lambda _: [item], others=False)
    busy = board.busy(found.numbers[name], item)
    return board.Row.of(found.items[0], found.now, busy=busy)


def test_people_are_told_what_waits_for_a_place(search: Receiver[..., Any]) -> None:
    assert "at once" in row("2").next_event()
    held = granted("1")
    assert "wait for a place: 1 run already" in row("2").next_event()
    assert "flag the holder" in row("1").next_event()
    search.recheck(key=2)
    assert (
        row("2").waits_for() == "A pass is owed, and waits for a place: 1 run already, no more may."
    )
    found = survey.survey(store.current(), ["search"])
    said = "search: 1 wait while 1 run, as many as CONCURRENCY lets."
    assert said in list(remarks.remarks(found, Found({}, {})))
    shown = "\n".join(screen.overview(found, [], [], [], Found({}, {})))
    assert re.search(r"^search +1/1 +1 ", shown, re.MULTILINE)
    end_lease("1")
    assert "next drain runs it" in row("2").waits_for(), "a lease that is over takes no place"
    assert "take over" in row("1").next_event()
    assert finish(held) == "DONE"
    assert "at once" in row("3").next_event()


def test_a_shards_own_places_count(search: Receiver[..., Any], settings: Any) -> None:
    tuned = {"search": {"CONCURRENCY": 2}}
    settings.RECHECK = {**settings.RECHECK, "SHARDS": 2, "PREFIX": "test-told", "RECEIVERS": tuned}
    granted("1", places=2)
    told = {text: "wait for a place" in row(text).next_event() for text in map(str, range(2, 20))}
    first = store.current().lane_of(Item("search", "1"))
    assert told == {t: store.current().lane_of(Item("search", t)) == first for t in told}
    assert len(set(told.values())) == 2


def test_where_nobody_knows_how_many_may_run_nothing_is_said(
    settings: Any,
) -> None:
    recheck(name="search")(lambda sender, **kwargs: None)
    entry = store.Entry(Item("gone", "1"), 1, EVENT, conf.Options("gone", {}))
    store.current().enqueue([entry])
    assert board.places("gone") is None
    with override_settings(RECHECK={**settings.RECHECK, "CONCURRENCY": "many"}):
        assert board.places("search") is None, "on a bad night the rest is wanted all the same"
    assert row("1", "gone").busy == 0
