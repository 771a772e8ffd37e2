"""The admin's pages as a browser sees them: what they say, and the forms that they have."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

from django.contrib.admin.utils import quote
from django.test import Client
from django.urls import reverse

from django_recheck import Receiver, worker
from django_recheck.admin.wanted import primary_key
from django_recheck.records import Item

LIST = "/admin/django_recheck/lock/"


def address(text: str = "7", receiver: str = "totals", view: str = "change") -> str:
    """Return the address of an item's page."""
    key = quote(primary_key(Item(receiver, text)))
    return reverse(f"admin:django_recheck_lock_{view}", args=(key,))


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[dict[str, list[str]]] = []
        self.open = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attributes}
        if tag == "form":
            self.forms.append({})
            self.open = True
        elif tag in ("input", "button") and self.open and "name" in named:
            self.forms[-1].setdefault(named["name"], []).append(named.get("value", ""))

    def handle_endtag(self, tag: str) -> None:
        self.open = self.open and tag != "form"


def forms(page: str) -> list[dict[str, list[str]]]:
    """Return the forms of a page: all values by name."""
    parser = _Forms()
    parser.feed(page)
    return parser.forms


def field(page: str, name: str) -> list[str]:
    """Return the values that a page's forms have under a name."""
    return [value for form in forms(page) for value in form.get(name, ())]


def marks(page: str) -> list[str]:
    """Return what stands on a page for its locks."""
    return [mark for mark in field(page, "_selected_action") if mark.startswith("=")]


def words(page: str) -> str:
    """Return what a page says, without its tags."""
    body = page[page.index('id="content-start"') :]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def seen(client: Client, url: str = LIST) -> str:
    """Return a page."""
    response = client.get(url)
    assert response.status_code == 200, (response.status_code, response.headers)
    return str(response.content.decode())


def act(client: Client, action: str, page: str, url: str = LIST, **more: Any) -> Any:
    """Choose all locks of a page as it was seen, and return the response to an action."""
    data = {"action": action, "_selected_action": marks(page), "index": 0}
    return client.post(url, {**data, **more})


def does(client: Client, action: str, url: str = LIST, page: str = "", **more: Any) -> str:
    """Choose all locks of a page, as it was seen or is now, and return what an action says."""
    response = act(client, action, page or seen(client, url), url, **more)
    assert response.status_code == 302, response.status_code
    (said,) = client.get(response["Location"], follow=True).context["messages"]
    return str(said)


def dead(totals: Receiver[..., Any], key: int = 13) -> None:
    """Let an item be given up."""
    for _ in range(2):
        totals.recheck_many([key])
        worker.drain()
