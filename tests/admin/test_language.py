"""Pages in the reader's language and time zone: no word of ours stays behind."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from datetime import UTC, timedelta, timezone
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone as zones
from django.utils import translation
from django.utils.translation import trans_real

from django_recheck import Receiver, receivers, store, worker
from tests.admin.pages import LIST, act, address, dead, does, seen
from tests.status import held

pytestmark = pytest.mark.django_db(transaction=True)
OPEN, CLOSE = "\u27e6", "\u27e7"
"""What stands around each text that was translated."""


class Marked(trans_real.DjangoTranslation):
    """A language of which every word can be told."""

    def gettext(self, message: str) -> str:
        return f"{OPEN}{message}{CLOSE}" if message else ""

    def ngettext(self, one: str, many: str, number: int) -> str:
        return self.gettext(one if number == 1 else many)


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(vars(trans_real)["_translations"], "eo", Marked("eo"))
    with translation.override("eo"):
        yield


class Texts(HTMLParser):
    """What people read of a page's own part: its text, and the attributes that are read out."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = dict(attributes)
        self.inside = self.inside or named.get("id") == "content"
        if self.inside:
            names = ("title", "aria-label", "alt", "placeholder", "data-pause", "data-resume")
            self.found += [value for name in names if (value := named.get(name))]
            if tag == "input" and named.get("type") == "submit":
                self.found.append(named["value"] or "")

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "footer"

    def handle_data(self, data: str) -> None:
        if self.inside and data.strip():
            self.found.append(data.strip())


def untranslated(page: str) -> list[str]:
    """Return the words of a page that aren't translated."""
    parser = Texts()
    parser.feed(re.sub(r"(?s)<(pre|bdi)\b.*?</\1>", "", page))  # what stands in Redis
    return [word for text in parser.found for word in words_left(text)]


def words_left(text: str) -> list[str]:
    """Return the words of a text that stand outside of all marks."""
    while OPEN in text:
        text = re.sub(f"{OPEN}[^{OPEN}{CLOSE}]*{CLOSE}", " ", text)
    return re.findall(r"[A-Za-z]{2,}", text)


def test_every_text_is_translated(totals: Receiver[..., Any], boss: Client, marked: None) -> None:
    dead(totals)
    held(totals)
    totals.recheck_many([7, 14])
    worker.drain()
    totals.recheck_many([9])
    store.current().pause(["totals"])
    known = {*re.findall("[a-z]+", " ".join((*receivers.registry, socket.gethostname())))}
    known |= {"Search"}  # Django's own, which it doesn't translate
    known |= {"de", "je"}  # dates, as the language has them
    pages = [LIST, f"{LIST}?receiver=totals", f"{LIST}?q=7"]
    pages += [f"{LIST}?state={state}" for state in ("pending", "later", "dead")]
    pages += [address(key) for key in ("7", "8", "9", "13", "14")]
    for url in pages:
        assert set(untranslated(seen(boss, url))) - known == set(), url
    asked = act(boss, "delete_selected", seen(boss, pages[-3]), pages[-3]).content.decode()
    assert set(untranslated(asked)) - known == set()
    for action in ("pause", "resume", "recheck", "release", "retry", "delete_selected"):
        for url in (LIST, pages[4], pages[5]):
            said = does(boss, action, url, post="yes")
            assert OPEN in said
            assert not words_left(said), action


def test_times_are_in_the_readers_time_zone(totals: Receiver[..., Any], boss: Client) -> None:
    held(totals)
    for url in (LIST, address()):
        with zones.override(timezone(timedelta(hours=5, minutes=45), "Kathmandu")):
            assert re.search(r'<time datetime="[^"]*\+05:45" title="', seen(boss, url))
        with zones.override(UTC):
            assert re.search(r'<time datetime="[^"]*\+00:00" title="', seen(boss, url))
