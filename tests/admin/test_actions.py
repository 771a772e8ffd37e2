"""What people do to locks, from the list and from an item's page, and what they are told."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.test import Client

from django_recheck import Outcome, Receiver, recheck, store, views, worker
from django_recheck.records import Item
from tests.admin.pages import LIST, act, address, dead, does, field, marks, seen, words
from tests.status import EVENT, held

pytestmark = pytest.mark.django_db(transaction=True)
DEAD = f"{LIST}?state=dead"
OWED = f"{LIST}?state=pending"


def view(text: str = "7", receiver: str = "totals") -> views.View:
    (found,) = views.items(store.current(), [Item(receiver, text)])
    return found


def history() -> list[tuple[str, int, str]]:
    entries = LogEntry.objects.order_by("pk")
    return [(each.object_repr, each.action_flag, each.get_change_message()) for each in entries]


@pytest.mark.parametrize("url", [LIST, address()])
def test_a_lock_is_released_and_its_holder_finds_out(
    totals: Receiver[..., Any], boss: Client, url: str
) -> None:
    grant = held(totals)
    said = does(boss, "release", url)
    assert said == (
        "1 lock is released. Its holder finds out when it renews its lease or ends its pass, "
        "and one more pass follows."
    )
    assert view().state == "due"
    assert store.current().renew([grant], [30]) == [False]
    assert history() == [("totals 7", CHANGE, "Released the lock.")]
    assert worker.drain().outcomes == {Outcome.RAN: 1}


@pytest.mark.parametrize("url", [LIST, address()])
def test_what_is_another_hold_by_now_is_left_alone(
    totals: Receiver[..., Any], boss: Client, url: str
) -> None:
    grant = held(totals)
    page = seen(boss, url)
    assert store.current().finish(grant, "ok", totals.options) == ("DONE", False)
    gone = does(boss, "release", url, page)
    assert gone == "Left alone: 1 isn't there any more."
    second = held(totals)
    said = does(boss, "release", url, page)
    assert said == "Left alone: 1 has changed since the page was shown."
    assert store.current().renew([second], [30]) == [True]
    assert history() == []


def test_every_action_compares_what_it_acts_on(totals: Receiver[..., Any], boss: Client) -> None:
    """Events that have come since make what waits, or is dead, another thing than was seen."""
    url = address("13")
    for state, actions in (("later", ("recheck", "delete_selected")), ("dead", ("retry",))):
        totals.recheck_many([13])
        worker.drain()
        assert (view("13").state == "dead") is (state == "dead")
        page = seen(boss, url)
        store.current().enqueue([store.Entry(Item("totals", "13"), 1, EVENT, totals.options)])
        for action in actions:
            said = does(boss, action, url, page, post="yes")
            assert said in (
                "Left alone: 1 has changed since the page was shown.",
                "Left alone: 1 isn't dead.",
            )
    held(totals)
    page = seen(boss)
    does(boss, "release")
    held(totals)
    said = does(boss, "recheck", LIST, page)
    assert said == "Left alone: 1 has changed since the page was shown."


def test_a_message_counts_what_happened_and_what_did_not(
    totals: Receiver[..., Any], boss: Client
) -> None:
    grants = [held(totals, str(key)) for key in range(5)]
    page = seen(boss)
    assert len(marks(page)) == 5
    for grant in grants[:2]:
        store.current().finish(grant, "ok", totals.options)
    held(totals, "1")
    said = does(boss, "release", LIST, page)
    assert said.startswith("3 locks are released. Their holders find out")
    assert said.endswith(
        "Left alone: 1 has changed since the page was shown; 1 isn't there any more."
    )
    assert sorted(name for name, *_ in history()) == ["totals 2", "totals 3", "totals 4"]


@pytest.mark.parametrize("url", [DEAD, address("13")])
def test_dead_is_retried(totals: Receiver[..., Any], boss: Client, url: str) -> None:
    dead(totals)
    assert does(boss, "retry", url) == "1 dead lock is tried again by the next drain."
    assert view("13").state == "due"
    assert history() == [("totals 13", CHANGE, "Let it be tried again.")]
    assert worker.drain().outcomes == {Outcome.FAILED: 1}, "and not given up: it begins anew"


def test_only_dead_is_retried_as_such(totals: Receiver[..., Any], boss: Client) -> None:
    totals.recheck_many([8])
    held(totals)
    assert does(boss, "retry", LIST) == "Left alone: 1 is running."
    assert does(boss, "retry", OWED) == "Left alone: 1 isn't dead."


@pytest.mark.parametrize("url", [DEAD, address("13")])
def test_discarding_asks_first(totals: Receiver[..., Any], boss: Client, url: str) -> None:
    dead(totals)
    asked = act(boss, "delete_selected", seen(boss, url), url)
    assert asked.status_code == 200
    page = asked.content.decode()
    assert "Discard 1 lock, with its events?" in words(page)
    assert "totals 13" in words(page)
    assert view("13").state == "dead", "not yet"
    response = boss.post(url, {name: field(page, name) for name in CONFIRMED})
    assert response.status_code == 302
    shown = boss.get(response["Location"])
    assert shown.status_code == 200
    assert [str(m) for m in shown.context["messages"]] == ["1 lock is discarded, with its events."]
    assert views.counts(store.current()) == {}
    assert history() == [("totals 13", DELETION, "Discarded it, with its events.")]


CONFIRMED = ("_selected_action", "action", "post")


def test_what_got_events_since_it_was_confirmed_is_kept(
    totals: Receiver[..., Any], boss: Client
) -> None:
    dead(totals)
    page = act(boss, "delete_selected", seen(boss, DEAD), DEAD).content.decode()
    totals.recheck_many([13])
    response = boss.post(DEAD, {name: field(page, name) for name in CONFIRMED})
    (said,) = boss.get(response["Location"]).context["messages"]
    assert str(said) == "Left alone: 1 has changed since the page was shown."
    assert view("13").record is not None


def test_what_runs_is_not_discarded(totals: Receiver[..., Any], boss: Client) -> None:
    held(totals)
    assert does(boss, "delete_selected", post="yes") == "Left alone: 1 is running."


@pytest.mark.parametrize("url", [LIST, address()])
def test_a_holder_is_asked_to_go_again(totals: Receiver[..., Any], boss: Client, url: str) -> None:
    grant = held(totals)
    said = does(boss, "recheck", url)
    assert said == "A pass of 1 lock is owed now: its holder or the next drain runs it."
    again, _ = store.current().finish(grant, "ok", totals.options)
    assert not isinstance(again, str)
    assert history() == [("totals 7", CHANGE, "Asked for a pass.")]


def test_what_backs_off_is_tried_now(totals: Receiver[..., Any], boss: Client) -> None:
    totals.recheck_many([13])
    worker.drain()
    assert worker.drain().outcomes == {}
    said = does(boss, "recheck", f"{LIST}?state=later")
    assert said.startswith("A pass of 1 lock is owed now")
    assert worker.drain().outcomes == {Outcome.FAILED: 1}


def test_of_what_nothing_is_known_a_pass_is_asked_for(boss: Client) -> None:
    passes = []

    @recheck(name="slow", key="order_id", delay=3600)
    def slow(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        passes.append(recheck_pass.key)

    page = seen(boss, address("65", "slow"))
    assert "Nothing is known of it, and nothing is owed." in words(page)
    assert does(boss, "recheck", address("65", "slow")).startswith("A pass of 1 lock is owed now")
    assert worker.drain().outcomes == {Outcome.RAN: 1}, "its delay is not waited for"
    assert passes == [65]


def test_of_a_receiver_that_is_not_here_no_pass_can_be_asked_for(
    totals: Receiver[..., Any], boss: Client
) -> None:
    store.current().request(Item("elsewhere", "1"), EVENT, 1, totals.options)
    said = does(boss, "recheck")
    assert said == "Left alone: 1 is of a receiver that this process doesn't have."


@pytest.mark.parametrize("url", [LIST, address()])
def test_a_receiver_is_paused_and_goes_on(
    totals: Receiver[..., Any], boss: Client, url: str
) -> None:
    held(totals)
    assert does(boss, "pause", url) == "1 receiver is paused: its events are recorded, and wait."
    assert does(boss, "pause", url) == "Left alone: 1 needed no change."
    totals.recheck_many([8])
    assert worker.drain().outcomes == {}
    assert "Paused receivers" in words(seen(boss))
    assert does(boss, "resume", url) == "1 receiver goes on: the next drain runs what waits."
    assert worker.drain().outcomes == {Outcome.RAN: 1}
    assert history() == [
        ("totals", CHANGE, "Paused the receiver."),
        ("totals", CHANGE, "Let the receiver go on."),
    ]


def test_a_receiver_that_has_nothing_is_paused_above_the_list(
    totals: Receiver[..., Any], boss: Client
) -> None:
    url = f"{LIST}?receiver=totals"
    for action, then in (("pause", "Resume totals"), ("resume", "Pause totals")):
        page = seen(boss, url)
        assert field(page, "action") == [action]
        chosen = field(page, "_selected_action")
        assert boss.post(url, {"action": action, "_selected_action": chosen}).status_code == 302
        assert then in words(seen(boss, url))
    response = boss.get(str(LogEntry.objects.latest("pk").get_admin_url()))
    assert response["Location"] == url, "what it was about"


def test_the_history_of_an_item_is_on_its_page(totals: Receiver[..., Any], boss: Client) -> None:
    held(totals)
    does(boss, "release")
    assert address(view="history") in seen(boss, address())
    assert "Released the lock." in words(seen(boss, address(view="history")))
