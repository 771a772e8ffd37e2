"""The chart of events and passes is read by eyes, by screen readers, and under a strict CSP."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from django.utils import translation

from django_recheck.chart import GAP, HEIGHT, LEAST, MINUTES, STEP, chart

SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)
BAR = re.compile(r"M(\d+) (\d+)v(-?\d+)h(\d+)V(\d+)z")


def bars(html: str, kind: str) -> dict[int, int]:
    """Return the height of each bar by its minute; upwards is positive."""
    path = re.search(rf'class="recheck-chart-{kind}" d="(.*?)"', html)
    line = re.search(r'class="recheck-chart-line" d="M0 (\d+)H600"', html)
    assert path
    assert line
    found = {}
    for x, start, down, width, end in (map(int, bar) for bar in BAR.findall(path[1])):
        assert (start, width, end) == (int(line[1]), STEP - GAP, int(line[1]))
        assert 0 <= start + down <= HEIGHT
        found[x // STEP] = -down
    assert not BAR.sub("", path[1])
    return found


def test_events_stand_on_the_line_and_passes_hang_from_it_by_one_scale() -> None:
    html = chart([(0, 0)] * 57 + [(800, 160), (0, 1), (400, 0)])
    assert bars(html, "events") == {57: 80, 59: 40}
    assert bars(html, "passes") == {57: -16, 58: -LEAST}, "the least can be seen"


@pytest.mark.parametrize("minutes", [[], [(3, 3)], [(9, 9)] * 5 + [(3, 3)] * MINUTES])
def test_it_is_always_an_hour_that_ends_now(minutes: list[tuple[int, int]]) -> None:
    html = chart(minutes)
    counted = min(MINUTES, len(minutes))
    assert list(bars(html, "events")) == list(range(MINUTES - counted, MINUTES))
    assert f"{3 * counted} events" in html
    assert f"at most {3 if counted else 0} events a minute" in html


def test_it_says_in_words_what_it_shows() -> None:
    image = SVG.search(chart([(1000, 1), (234, 1)]))
    assert image
    svg = ElementTree.fromstring(image[0])
    assert svg.get("role") == "img"
    named = (svg.get("aria-labelledby") or "").split()
    title, told = [next(e for e in svg if e.get("id") == name) for name in named]
    assert (title.tag, told.tag) == ("title", "desc")
    assert title.text == "Events and passes per minute over the last hour"
    assert told.text == "Events in all: 1,234. Passes in all: 2. Most events in a minute: 1,000."


def test_no_locale_gets_into_its_shapes() -> None:
    minutes = [(12345, 7)] * MINUTES
    with translation.override("de"):
        html = chart(minutes)
    assert bars(html, "events") == dict.fromkeys(range(MINUTES), HEIGHT - 2 * LEAST)
    assert "740.700 events" in html


def test_it_has_no_inline_style_and_no_script() -> None:
    html = chart([(1, 1)])
    assert "style" not in html
    assert "<script" not in html
    assert not re.search(r"\son\w+=", html)
