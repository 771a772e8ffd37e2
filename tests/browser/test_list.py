"""The list as it is seen: what appears by itself, what stays text, and who sees it."""

from __future__ import annotations

from selenium.webdriver.common.keys import Keys

from tests.browser.site import LOCKS, Site
from tests.browser.window import ROWS, Window

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=1</script>\u202e\x00"'


def test_a_lock_appears_gets_flagged_and_goes_by_itself(site: Site, window: Window) -> None:
    window.open(LOCKS)
    window.sees("0 locks")
    holder = site.holder(1)
    window.sees("running", ROWS)
    row = window.text(ROWS)
    assert "order-total" in row
    assert f":{holder.process.pid}" in row
    assert "flagged" not in row
    assert site.hand().tell("change", 1) == {"done": "change"}
    window.sees("running, flagged", ROWS)
    assert holder.tell("end") == {"passing": 1}, "a second pass, for what came meanwhile"
    window.misses("flagged", ROWS)
    assert holder.tell("end") == {"done": "RAN"}
    window.sees("0 locks")


def test_the_last_hour_is_drawn(site: Site, window: Window) -> None:
    window.open(LOCKS)
    window.sees("0 events", "figcaption")
    holder = site.holder(1)
    site.hand().tell("change", 1)
    holder.tell("end")
    holder.tell("end")
    window.sees("4 events", "figcaption")  # each pass tells the customer's statistics
    window.sees("2 passes", "figcaption")
    height = "return document.querySelector('path.recheck-chart-events').getBBox().height"
    assert window.run(height) > 10


def test_what_failed_says_why(site: Site, window: Window) -> None:
    hand = site.hand()
    for name, came in (("search-document", "DEAD"), ("order-total", "FAILED")):
        hand.tell("recheck", name, 7)
        assert hand.tell("fail", "no such host: search") == {"done": came}
    window.open(f"{LOCKS}?state=dead")
    assert window.texts(f"{ROWS} .field-state") == ["dead"]
    assert window.texts(f"{ROWS} .field-error") == ["ValueError: no such host: search"]
    window.open(f"{LOCKS}?state=later")
    assert window.texts(f"{ROWS} .field-state") == ["backing off"]


def test_what_others_wrote_stays_text(site: Site, window: Window) -> None:
    site.holder(HOSTILE)
    hand = site.hand()
    hand.tell("recheck", "search-document", 7)
    assert hand.tell("fail", HOSTILE * 20) == {"done": "DEAD"}
    for path, column in (("", "key"), ("?state=dead", "error")):
        window.open(LOCKS + path)
        assert "<img src=x onerror=" in window.text(f"{ROWS} .field-{column}")
        assert window.count("#content img[src=x], #content script") == 0
        assert "Locks" in str(window.run("return document.title"))


def test_a_viewer_sees_and_cannot_act(site: Site, window: Window) -> None:
    site.holder(1)
    window.be("viewer")
    window.open(LOCKS)
    window.sees("running", ROWS)
    assert window.count("#changelist-form :is(select, input:not([type=hidden]), button)") == 0


def test_without_permission_there_is_nothing(site: Site, window: Window) -> None:
    window.be("stranger")
    window.open(LOCKS)
    window.sees("403 Forbidden")
    window.open("/")
    assert window.count("[href*=lock]") == 0


def test_a_key_is_found_without_a_mouse(site: Site, window: Window) -> None:
    site.holder(1)
    site.holder("two")
    window.open(LOCKS)
    window.run("document.getElementById('searchbar').focus()")
    window.press('"two"', Keys.ENTER)
    window.sees("1 result", "#toolbar")
    assert window.texts(f"{ROWS} .field-key") == ['"two"']
    window.run("document.querySelector('#result_list tbody a').focus()")
    window.press(Keys.ENTER)
    window.until(lambda: "/change/" in window.driver.current_url)


def test_what_is_violated_would_be_seen(window: Window) -> None:
    window.open(LOCKS)
    window.run("document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\">')")
    *seen, said = window.complaints()
    assert "style-src-attr" in seen[0]
    assert "Content Security Policy" in said
