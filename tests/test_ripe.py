"""Items handed out to threads: how many are taken at once, and what is given back to others."""

from __future__ import annotations

import pytest

from django_recheck import conf, ripe, store, views
from django_recheck.records import Item, pack
from django_recheck.ripe import Ripe

EVENT = pack([b'["","",""]', b"", b"", b"[null,null,{},{},null]"])
OPTIONS = conf.Options("ripe", {})


@pytest.fixture
def handed() -> Ripe:
    entries = [store.Entry(Item("ripe", str(n)), 1, EVENT, OPTIONS) for n in range(100)]
    store.current().enqueue(entries)
    return Ripe(["ripe"], lambda: None)


def visible() -> int:
    """Return how many items another worker sees now."""
    current = store.current()
    now, due = int(current.now() * 1000), current.lane("ripe", 0).keys[2]
    return int(current.client.zcount(due, "-inf", now))


def test_quick_passes_let_it_take_more_at_once(handed: Ripe) -> None:
    taken, seen = 0, list[int]()
    while visible():
        handed.take()
        taken += 1
        handed.took(0.001)
        if not seen or visible() != seen[-1]:
            seen.append(visible())
    assert seen[:6] == [99, 97, 93, 85, 69, 37]


def test_it_takes_no_more_at_once_than_some_passes_last(handed: Ripe) -> None:
    sizes: list[int] = []
    while handed.take():
        sizes.append(1 + len(handed.beside()))
        handed.took(ripe.SHARE / 4)
    assert (sizes[:3], max(sizes), sum(sizes)) == ([1, 2, 4], 4, 100)


def test_a_slow_pass_gives_back_what_waited_beside_it(handed: Ripe) -> None:
    for _ in range(4):
        handed.take()
    assert visible() == 93
    handed.took(ripe.SLOW + 0.01)
    assert visible() == 96, "three of the last four were never begun"
    handed.take()
    assert visible() == 95, "and only one is taken again"


def test_what_is_running_by_now_isnt_given_back(handed: Ripe) -> None:
    """An event ran it meanwhile, and it holds its lock."""
    items = {item for item in (handed.take() for _ in range(2)) if item}
    named = Item("ripe", "2")
    assert named not in items
    current = store.current()
    current.request(named, EVENT, 1, OPTIONS)
    handed.give_back()
    (view,) = views.items(current, [named])
    assert (view.state, view.score and view.score > current.now() + 20) == ("running", True)
    assert visible() == 97


def test_a_lane_that_cant_be_read_is_told_once(handed: Ripe) -> None:
    current = store.current()
    current.client.set(current.lane("broken", 0).keys[2], "no sorted set")
    handed = Ripe(["broken", "ripe"], lambda: None)
    assert handed.take() is not None
    assert "can't be read" in handed.collect()["broken"]
    assert handed.collect() == {}
