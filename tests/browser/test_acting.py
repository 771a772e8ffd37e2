"""What a person does to locks, and what their holders find out."""

from __future__ import annotations

from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.site import LOCKS, Site, Talk, page_of
from tests.browser.window import ROWS, Window

MESSAGES = ".messagelist"


@pytest.fixture
def dead(site: Site) -> Talk:
    """A process whose pass of a search document was the last."""
    hand = site.hand()
    hand.tell("recheck", "search-document", 7)
    assert hand.tell("fail", "no such host: search") == {"done": "DEAD"}
    return hand


def drained(site: Site, window: Window) -> dict[str, Any]:
    """Let a process do what is owed, when it is; return what it says of its first pass."""
    hand, said = site.hand(), [{"done": 0}]

    def began() -> bool:
        said.append(hand.tell("drain"))
        return "passing" in said[-1]

    window.until(began)
    return said[-1]


def test_a_released_holder_finds_out_and_one_more_pass_follows(site: Site, window: Window) -> None:
    holder = site.holder(1)
    window.open(LOCKS)
    window.act("release")
    window.sees("1 lock is released. Its holder finds out", MESSAGES)
    assert window.texts(ROWS) == []
    assert holder.tell("end") == {"done": "LEASE_LOST"}
    assert drained(site, window) == {"passing": 1}, "the stale one hasn't the last word"


def test_a_dead_one_is_retried_from_its_page(site: Site, window: Window, dead: Talk) -> None:
    window.open(f"{LOCKS}?state=dead")
    window.click(f"{ROWS} .field-key a")
    window.sees("Given up (attempts: 1)")
    window.sees("raise ValueError(*rest)\nValueError: no such host: search", "pre")
    window.click("button[value=retry]")
    window.sees("pending", ".recheck-badge")
    assert drained(site, window) == {"passing": 7}
    window.sees("running", ".recheck-badge")
    window.sees("Pass 1 runs in process")


def test_a_dead_one_is_discarded_once_a_person_is_sure(
    site: Site, window: Window, dead: Talk
) -> None:
    window.open(f"{LOCKS}?state=dead")
    window.act("delete_selected")
    window.sees("Discard 1 lock, with its events?")
    window.click(".cancel-link")
    window.sees("dead", f"{ROWS} .field-state")
    window.open(f"{LOCKS}?state=dead")
    window.act("delete_selected")
    window.sees("Discard 1 lock, with its events?")
    window.click("#content [type=submit]")
    window.sees("1 lock is discarded", MESSAGES)
    assert window.texts(ROWS) == []


def test_what_has_changed_meanwhile_is_left_alone(site: Site, window: Window, dead: Talk) -> None:
    window.open(f"{LOCKS}?state=dead")
    window.click(f"{ROWS} .action-select")
    dead.tell("recheck", "search-document", 7)
    assert dead.tell("fail", "a newer event") == {"done": "DEAD"}
    window.sees("Waits while something is selected or typed.")
    window.click("#changelist-form option[value=retry]")
    window.click("#changelist-form button[name=index]")
    window.sees("Left alone: 1 has changed since the page was shown.", MESSAGES)


def test_rows_are_counted_and_chosen_after_a_refresh(site: Site, window: Window) -> None:
    window.open(LOCKS)
    holder = site.holder(1)
    window.sees("0 of 1 selected")
    window.click("#action-toggle")
    window.sees("1 of 1 selected")
    assert holder.tell("end") == {"done": "RAN"}
    window.sees("Waits while something is selected or typed.")
    assert window.count(f"{ROWS} .action-select:checked") == 1, "a selection stays"
    window.click("#action-toggle")
    window.sees("0 locks")


def test_a_receiver_is_paused_and_goes_on(site: Site, window: Window) -> None:
    window.open(f"{LOCKS}?receiver=order-total")
    window.click(".recheck-lane button")
    window.sees("1 receiver is paused: its events are recorded, and wait.", MESSAGES)
    hand = site.hand()
    assert hand.tell("recheck", "order-total", 1) == {"done": "PENDING"}
    window.open(f"{LOCKS}?state=pending")
    window.sees("paused", f"{ROWS} .field-state")
    window.click(".recheck-lane button")
    window.sees("1 receiver goes on", MESSAGES)
    assert drained(site, window) == {"passing": 1}


def test_all_of_it_goes_without_a_mouse(site: Site, window: Window) -> None:
    holder = site.holder(1)
    window.open(page_of("order-total", "1"))
    window.run("document.querySelector('button[value=recheck]').focus()")
    window.press(Keys.TAB)
    assert window.focused() == "button release"
    site.hand().tell("change", 1)
    window.sees("flagged", ".recheck-badge")
    assert window.focused() == "button release", "after a refresh, too"
    window.press(Keys.ENTER)
    window.sees("1 lock is released", MESSAGES)
    assert holder.tell("end") == {"done": "LEASE_LOST"}


def test_a_viewer_finds_nothing_to_act_with(site: Site, window: Window, dead: Talk) -> None:
    window.be("viewer")
    window.open(page_of("search-document", "7"))
    window.sees("Given up (attempts: 1)")
    assert window.count("#content-main button:not(.recheck-refresh button)") == 0


def test_an_item_page_follows_its_item(site: Site, window: Window) -> None:
    window.open(page_of("order-total", "1"))
    window.sees("idle", ".recheck-badge")
    holder = site.holder(1)
    window.sees("running", ".recheck-badge")
    window.sees("Pass 1 runs in process", "[data-news]")
    holder.tell("end")
    window.sees("idle", ".recheck-badge")
