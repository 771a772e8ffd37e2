"""The pictures of the docs: ``python -m tests.browser.pictures`` makes them anew.

They show the shop with real holders, and what ``recheck_status`` has really printed. Only the
numbers of the last hour are made up.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.browser.site import LOCKS, ROOT, Site, page_of
from tests.browser.window import Window
from tests.servers import Server, running

IMAGES: Final = ROOT / "docs" / "images"
TERMINAL: Final = """
document.body.outerHTML = `<body style="margin: 0"><pre style="margin: 0; padding: 16px 20px;
    width: fit-content; background: #17202a; color: #e8e8e8;
    font: 15px/1.4 'DejaVu Sans Mono', monospace"></pre>`;
document.querySelector("pre").textContent = arguments[0];
"""
"""Makes a page, none of the site, look like a terminal that shows a text."""
REASONS: Final = (
    "no such host: search",
    "the search server answered 503 after 10 s, and said: too many requests from 10.0.0.7",
    "field 'text' is too long for the index: 40,112 characters, where it takes 32,766",
)


def busy(site: Site) -> None:
    """Let something of each kind be there."""
    for key in (1, 4):
        site.holder(key)
    hand = site.hand()
    hand.tell("change", 4)
    hand.tell("change", 4)
    failing = site.hand()
    for key in (8, 9):
        failing.tell("recheck", "order-total", key)
        failing.tell("fail", "no price")
    for key, reason in enumerate(REASONS, 2):
        failing.tell("recheck", "search-document", key)
        failing.tell("fail", reason)
    for key in (1, 2, 3):
        hand.tell("recheck", "customer-statistics", key)
    site.holder(1, "search-document")


def an_hour(server: Server) -> None:
    """Let the last hour be full of events: nobody waits for one to pass."""
    chance = random.Random("an hour")
    with server.client as client:
        (counted,) = client.scan_iter("*:minutes")
        this = int(time.time()) // 60
        for minute in range(this - 59, this):
            events = int(chance.expovariate(1 / 40))
            client.hset(counted, f"{minute}e", events)
            client.hset(counted, f"{minute}p", int(events * chance.uniform(0.2, 0.6)))


def printed(site: Site, *words: str) -> str:
    """Return what a terminal shows after a command."""
    command = [sys.executable, "testproject/manage.py", *words]
    done = subprocess.run(command, cwd=ROOT, env=site.environment, text=True, capture_output=True)
    return f"$ python manage.py {' '.join(words)}\n{done.stdout}{done.stderr}".rstrip()


def take(window: Window, name: str, path: str, **dress: Any) -> None:
    """Make a picture of a whole page."""
    window.dress(**dress)
    window.open(path)
    bottom = window.run("return document.querySelector('#content').getBoundingClientRect().bottom")
    window.dress(**dress, height=int(bottom) + 30)
    window.driver.save_screenshot(str(IMAGES / f"{name}.png"))


def main() -> None:
    """Make all pictures."""
    IMAGES.mkdir(exist_ok=True)
    with running() as server, tempfile.TemporaryDirectory() as folder:
        site = Site(server, Path(folder))
        window = Window(site)
        try:
            window.until(site.is_up)
            window.be("boss")
            window.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
            window.run("localStorage.setItem('django.admin.navSidebarIsOpen', 'false')")
            printed(site, "recheck_run")
            busy(site)
            an_hour(server)
            take(window, "list", LOCKS)
            take(window, "item", page_of("order-total", "4"))
            take(window, "dark", f"{LOCKS}?state=dead", dark=True)
            take(window, "narrow", LOCKS, width=390)
            window.driver.get("about:blank")
            window.dress()
            window.run(TERMINAL, printed(site, "recheck_status"))
            window.driver.find_element("tag name", "pre").screenshot(str(IMAGES / "terminal.png"))
        finally:
            window.close()
            site.close()


if __name__ == "__main__":
    main()
