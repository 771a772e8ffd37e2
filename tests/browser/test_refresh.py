"""The page refreshes by itself: when, when not, and what it leaves as it is."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.site import LOCKS, Site, page_of
from tests.browser.window import Window
from tests.servers import running

STATE, PAUSE = ".recheck-refresh [data-state]", ".recheck-refresh button"
RUNNING = "#recheck-summary [href='?state=running']"


def stays(window: Window, text: str) -> None:
    """Look for some refreshes' time: nothing else is shown."""
    until = time.monotonic() + 1.2
    while time.monotonic() < until:
        assert window.text(RUNNING) == text
        time.sleep(0.1)


def test_it_pauses_and_goes_on(site: Site, window: Window) -> None:
    window.open(LOCKS)
    window.sees("Refreshes by itself.", STATE)
    window.run("document.querySelector(arguments[0]).focus()", PAUSE)
    window.press(Keys.SPACE)
    window.sees("Refreshing is paused.", STATE)
    site.holder(1)
    stays(window, "0")
    window.open(f"{LOCKS}?state=dead")
    window.sees("Refreshing is paused.", STATE)
    assert window.text(PAUSE) == "Resume refreshing"
    site.holder(2)
    stays(window, "1")
    window.click(PAUSE)
    window.sees("Refreshes by itself.", STATE)
    window.sees("2", RUNNING)


def test_it_takes_five_seconds(window: Window) -> None:
    window.dawdle()
    window.open(LOCKS)
    script = "return performance.getEntriesByType('resource')"
    script += ".filter((e) => e.initiatorType === 'fetch').map((e) => e.startTime)"
    window.until(lambda: window.run(script))
    assert 5000 <= window.run(script)[0] < 20_000


def test_focus_folds_and_scrolling_stay(site: Site, window: Window) -> None:
    site.holder(1)
    window.dress(width=390, height=300)
    window.open(LOCKS)
    window.run(
        """
        document.querySelector("#changelist-filter summary").click();
        document.querySelector("#result_list tbody a").focus();
        document.querySelector(".results").scrollLeft = 50;
        scrollTo({top: 200, behavior: "instant"});
        """
    )
    at, top = window.focused(), window.run("return scrollY")
    site.holder(2)
    window.sees("2", RUNNING)
    assert window.focused() == at != "body"
    assert window.run("return document.querySelector('.results').scrollLeft") == 50
    assert window.run("return scrollY") == top
    assert window.run("return [...document.querySelectorAll('details')].map((e) => e.open)") == [
        False,
        True,
    ]
    window.run("document.querySelector('#changelist-filter summary').click()")
    window.open(LOCKS)
    assert window.count("details[open]") == 2, "Django's script still hears of it"


def test_focus_stays_on_what_has_no_name(site: Site, window: Window) -> None:
    window.open(LOCKS)
    window.run("document.querySelectorAll('#changelist-filter summary')[1].focus()")
    site.holder(1)
    window.sees("1", RUNNING)
    script = "return [...document.querySelectorAll('summary')].indexOf(document.activeElement)"
    assert window.run(script) == 1


def test_it_waits_while_somebody_types_or_selects(site: Site, window: Window) -> None:
    window.open(LOCKS)
    window.click("#searchbar")
    window.press("4")
    window.run("document.activeElement.blur()")
    site.holder(1)
    window.sees("Waits while something is selected or typed.", STATE)
    stays(window, "0")
    assert window.run("return document.getElementById('searchbar').value") == "4"
    window.run("document.getElementById('searchbar').value = ''")
    window.sees("1", RUNNING)
    window.sees("Refreshes by itself.", STATE)
    window.run("getSelection().selectAllChildren(document.querySelector('h1'))")
    site.holder(2)
    window.sees("Waits", STATE)
    stays(window, "1")
    window.run("getSelection().removeAllRanges()")
    window.sees("2", RUNNING)


def test_nothing_moves_when_its_text_changes(window: Window) -> None:
    top = "return document.getElementById('recheck-summary').getBoundingClientRect().top"
    for width in (1280, 390):
        window.dress(width=width)
        window.open(LOCKS)
        window.sees("Refreshes by itself.", STATE)
        before = window.run(top)
        window.run("document.getElementById('searchbar').value = '4'")
        window.sees("Waits while something is selected or typed.", STATE)
        assert window.run(top) == before


def test_a_click_is_not_lost(site: Site, window: Window) -> None:
    window.open(LOCKS)
    fold = window.driver.find_element("css selector", "#changelist-filter summary")
    ActionChains(window.driver).click_and_hold(fold).perform()
    site.holder(1)
    stays(window, "0")
    ActionChains(window.driver).release().perform()
    window.sees("1", RUNNING)
    assert window.count("#changelist-filter details[open]") == 1


def test_it_waits_for_who_was_faster_than_the_server(site: Site, window: Window) -> None:
    window.open(LOCKS)
    window.sees("Refreshes by itself.", STATE)
    with site.slow():
        time.sleep(1)  # it has asked meanwhile
        window.click("#searchbar")
        window.press("4")
    stays(window, "0")
    assert window.run("return document.getElementById('searchbar').value") == "4"


def test_a_page_that_nobody_sees_asks_for_nothing(site: Site, window: Window) -> None:
    window.open(LOCKS)
    window.driver.minimize_window()
    assert window.run("return document.hidden")
    site.holder(1)
    stays(window, "0")
    window.driver.maximize_window()
    window.sees("1", RUNNING)


def test_it_says_when_the_server_does_not_answer(site: Site, window: Window) -> None:
    window.open(LOCKS)
    window.sees("Refreshes by itself.", STATE)
    window.connected(False)
    window.sees("The server doesn't answer; trying again.", STATE)
    window.connected(True)
    window.sees("Refreshes by itself.", STATE)


def test_it_says_when_redis_does_not_answer(window: Window, tmp_path: Path) -> None:
    with running() as server, closing(Site(server, tmp_path)) as window.site:
        window.until(window.site.is_up)
        window.be("boss")
        for path, before in ((LOCKS, "1 lock\n"), (page_of("order-total", "1"), "running")):
            if server.process is None:
                server.start()
            window.site.holder(1)
            window.open(path)
            window.sees(before, "#content")
            server.end()
            window.sees("Redis doesn't answer: ", ".messagelist .error")
            window.sees("Refreshes by itself.", STATE)
            assert before not in window.text("#content")


def test_it_stops_where_one_may_see_no_more(site: Site, window: Window) -> None:
    window.open(LOCKS)
    window.be("stranger")
    window.sees("There is nothing to be seen any more", STATE)
    site.holder(1)
    stays(window, "0")


def test_those_who_hear_the_page_are_told_at_times(site: Site, window: Window) -> None:
    window.open(LOCKS)
    first = site.holder(1)
    window.sees("Running: 1", "[data-news]")
    assert window.count(".recheck-refresh [role=status]") == 2
    first.tell("end")
    window.sees("0", RUNNING)
    assert "Running: 1" in window.text("[data-news]"), "not at once again"
