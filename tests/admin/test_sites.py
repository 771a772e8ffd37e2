"""The locks in any AdminSite, at any place, in several at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import clear_url_caches, path, reverse

from django_recheck import Receiver
from django_recheck.admin import LockAdmin
from django_recheck.models import Lock
from tests.admin.pages import act, does, marks, seen
from tests.status import held

pytestmark = pytest.mark.django_db
night, day = admin.AdminSite("night"), admin.AdminSite("day")
for site in (night, day):
    site.register(Lock, LockAdmin)
urlpatterns = [
    path("a/b/", night.urls),
    path("c/", day.urls),
]


@pytest.fixture(autouse=True)
def _here(settings: Any) -> Iterator[None]:
    settings.ROOT_URLCONF = __name__
    clear_url_caches()
    yield
    clear_url_caches()


@pytest.mark.parametrize(("name", "place"), [("night", "/a/b/"), ("day", "/c/")])
def test_every_page_stays_on_its_site(
    totals: Receiver[..., Any], boss: Client, name: str, place: str
) -> None:
    url = reverse(f"{name}:django_recheck_lock_changelist")
    assert url.startswith(place)
    held(totals)
    pages = [seen(boss, url), seen(boss, f"{url}?receiver=totals"), seen(boss, f"{url}?q=7")]
    (item,) = set(re.findall(rf'href="({url}totals[^"]*/change/)', unescape(pages[0])))
    pages += [seen(boss, item), seen(boss, item.replace("/change/", "/history/"))]
    asked = act(boss, "delete_selected", pages[0], url)
    pages.append(asked.content.decode())
    for page in pages:
        links = re.findall(r'(?:href|action)="(/[^"]+)"', page)  # "/" is the site itself
        assert links
        assert not [link for link in links if not link.startswith((place, "/static/"))]
    assert does(boss, "release", item).startswith("1 lock is released.")
    (mark,) = marks(seen(boss, item))
    data = {"action": "delete_selected", "_selected_action": mark, "post": "yes"}
    assert boss.post(item, data)["Location"] == url
    gone = boss.get(item.replace("totals", "nobody"))
    assert gone["Location"] == place


def test_the_howto_registers_them() -> None:
    page = (Path(__file__).parent.parent.parent / "docs/howto/admin.md").read_text()
    (code,) = re.findall("(?s)```python\n(.*?)```", page)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["operations"].is_registered(Lock)


def test_a_site_without_them_has_none() -> None:
    assert not admin.AdminSite("bare").is_registered(Lock)
