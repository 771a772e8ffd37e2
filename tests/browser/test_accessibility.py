"""What axe-core finds on the pages: nothing serious, in light and dark, wide and narrow."""

from __future__ import annotations

from importlib.resources import files
from itertools import product
from typing import Any, Final

from tests.browser.site import LOCKS, Site, page_of
from tests.browser.window import Window

AXE: Final = (files("axe_core_python") / "axe.min.js").read_text("utf-8")
RUN: Final = """
const done = arguments[arguments.length - 1];
const colours = document.getAnimations().map((each) => each.finished);
Promise.allSettled(colours).then(() => axe.run(document, { resultTypes: ["violations"] }))
    .then(({ violations }) => done(
        violations.filter(({ impact }) => ["serious", "critical"].includes(impact))
            .flatMap(({ id, nodes }) => nodes.map(({ target }) => [id, target.join(" ")]))
    ));
"""
"""Looks when all colours have come: those of buttons change by and by."""
OVERFLOWING: Final = """
return [...document.querySelectorAll("#content pre, #content dd, #content .readonly, html")]
    .filter((each) => each.scrollWidth > each.clientWidth && each.clientWidth)
    .map((each) => [each.localName, each.scrollWidth]);
"""
DJANGOS: Final = [["label-title-only", "#searchbar"]]
"""What is Django's own: its search field is labelled by a picture of a lens."""
PAGES: Final = {
    "what is held": LOCKS,
    "what failed": f"{LOCKS}?state=later",
    "what is dead": f"{LOCKS}?state=dead",
    "one receiver, to pause": f"{LOCKS}?receiver=order-total",
    "one that is held": page_of("order-total", "1"),
    "one that is dead": page_of("search-document", "7"),
    "nothing": f"{LOCKS}?state=pending",
}


def found(window: Window) -> list[Any]:
    """Return the serious and critical findings: the rule, and where."""
    if not window.run("return 'axe' in window"):
        window.run(AXE)
    return [each for each in window.driver.execute_async_script(RUN) if each not in DJANGOS]


def look(window: Window, name: str) -> None:
    """Look at a page in light and dark, wide and narrow."""
    for dark, width in product((False, True), (1280, 390)):
        window.dress(dark=dark, width=width)
        assert found(window) == [], (name, dark, width)
        assert window.run(OVERFLOWING) == [], (name, dark, width)


def test_nothing_serious_is_found(site: Site, window: Window) -> None:
    site.holder(1)
    site.hand().tell("change", 1)
    hand = site.hand()
    for name in ("search-document", "order-total"):
        hand.tell("recheck", name, 7)
        hand.tell("fail", "no such host: " + "search" * 30)
    hand.tell("recheck", "customer-statistics", 1)
    window.dawdle()
    for name, path in PAGES.items():
        window.open(path)
        look(window, name)
    window.dress()
    window.open(PAGES["what is dead"])
    window.act("delete_selected")
    window.sees("Discard 1 lock, with its events?")
    look(window, "what is to be discarded")


def test_what_is_serious_would_be_found(window: Window) -> None:
    window.open(LOCKS)
    window.run("document.querySelector('.recheck-refresh button').style.color = '#ccc'")
    assert found(window) == [["color-contrast", 'button[type="button"]']]
