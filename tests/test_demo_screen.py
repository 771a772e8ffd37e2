"""The demo as somebody sees it: its bar and table on a terminal, and the site that it serves."""

from __future__ import annotations

import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from http.cookiejar import CookieJar
from typing import Any
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from tests.test_demo import MANAGE, Shop, ended, eventually, line, shop

__all__ = ["shop"]  # a fixture


@pytest.fixture
def screen() -> Iterator[tuple[int, int]]:
    """The two ends of a terminal, ours first."""
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)


def said(end: int) -> str:
    """Read a terminal until nobody has its other end any more."""
    found = b""
    while True:
        try:
            found += os.read(end, 65536)
        except OSError:
            return found.decode()


def test_a_live_bar_for_each_run_and_then_a_table(shop: Shop, screen: tuple[int, int]) -> None:
    ours, theirs = screen
    arguments = ("demo", "--events", "40", "--processes", "2")
    demo = subprocess.Popen(
        [sys.executable, str(MANAGE), *arguments],
        env=shop.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        start_new_session=True,
    )
    shop.started.append(demo)
    os.close(theirs)
    drawn = said(ours)
    out, _ = demo.communicate(timeout=60)
    assert demo.returncode == 0
    for title in ("a plain lock that drops", "the recipe as published", "@recheck"):
        steps = re.findall(rf"{title}: +(\d+)%.*?stale=(\d+)", drawn)
        assert len({percent for percent, _ in steps}) > 1, drawn
    assert steps[-1][1] == "0"
    head, *rows = out.splitlines()[:4]
    assert head.split() == ["events", "passes", "coalesced", "stale", "seconds"]
    cells = [re.split(r" {2,}", row) for row in rows]
    assert [row[0] for row in cells] == [
        "a plain lock that drops",
        "the recipe as published",
        "@recheck",
    ]
    assert {row[1] for row in cells} == {"40"}
    assert cells[-1][4] == "0"
    assert "counted from\nthe database" in out
    with sqlite3.connect(shop.var / "demo.sqlite3") as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def log_in(url: str, user: str, password: str) -> str:
    """Log in to an admin at the root of a site; return its first page."""
    jar = CookieJar()
    opener: Any = build_opener(HTTPCookieProcessor(jar))
    with opener.open(f"{url}login/?next=/", timeout=20):
        (token,) = (cookie.value for cookie in jar if cookie.name == "csrftoken")
    form = {"username": user, "password": password, "csrfmiddlewaretoken": token, "next": "/"}
    with opener.open(f"{url}login/", urlencode(form).encode(), timeout=20) as page:
        return str(page.read().decode())


def test_the_site_is_served_with_a_user_until_ctrl_c(shop: Shop) -> None:
    demo = shop.start("demo", "--events", "4", "--processes", "1", "--serve")
    said = line(demo)
    while not said.startswith("http://"):
        assert demo.poll() is None
        said = line(demo)
    url, _, user, _, password = said.split()
    state = shop.state
    eventually(lambda: answers(url))
    page = log_in(url, user, password)
    assert "Site administration" in page
    assert all(f"/shop/{model}/add/" in page for model in ("order", "product", "tag"))
    os.killpg(demo.pid, signal.SIGINT)  # as a terminal does
    demo.communicate(timeout=20)
    assert demo.returncode == 0
    assert ended(state), "its server was left behind"
    with sqlite3.connect(shop.var / "demo.sqlite3") as database:
        for table in ("auth_user", "shop_order"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def answers(url: str) -> bool:
    """Return whether a site is there yet."""
    try:
        with build_opener().open(url, timeout=20):
            return True
    except OSError:
        return False
