"""In a lane with few places nobody waits for ever, and no schedule lets one more run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from .mutant import replaced
from .places import MORE, ROUND, Places, World, start
from .worlds import Violation

ONE, TWO = ((0, 1), (1, 1)), ((0, 1), (0, 1), (1, 1))
WORLDS = {
    "two items": (1, start((0, 2), (0, 1), (1, 2))),
    "two items, two drains": (1, start(*TWO, drains=2)),
    "two items, a death": (1, start(*TWO, deaths=1)),
    "two items, two drains, a lease that ends": (1, start(*ONE, drains=2, lapses=1)),
    "two items, leases that end": (1, start(*TWO, lapses=1)),
    "two items, a death and a lease that ends": (1, start(*ONE, deaths=1, lapses=1)),
    "three items, two places": (2, start(*TWO, (2, 1))),
    "three items, two places, a death": (2, start(*ONE, (2, 1), deaths=1)),
}


@pytest.mark.parametrize(("places", "world"), WORLDS.values(), ids=WORLDS)
def test_no_schedule_lets_more_run_or_wait_for_ever(
    laboratory: redis.Redis, places: int, world: World
) -> None:
    assert Places(laboratory, places).run(world) > 100


Patch = Callable[[str, str], str]
MUTANTS: dict[str, tuple[Patch, World, str]] = {
    "a request looks for a place": (
        replaced("request", "PAUSED or full(at, tonumber(ARGV[11]))", "PAUSED"),
        start(*ONE),
        MORE,
    ),
    "a claim looks for a place": (
        replaced("claim", " or full(at, tonumber(ARGV[8]))", ""),
        start((0, 2), (1, 1)),
        MORE,
    ),
    "who comes back from a lease that was over looks for a place": (
        replaced("finish", " or full(at, tonumber(ARGV[17]))", ""),
        start(*TWO, lapses=1),
        MORE,
    ),
    "a look names no more than have a place": (
        replaced("peek", "math.min(most, places - living())", "most"),
        start(*ONE),
        ROUND,
    ),
    "a lease that is over takes no place": (
        replaced("*", "'(' .. now", "'-inf'"),
        start(*ONE, deaths=1),
        "waits for ever|an event that no pass has got",
    ),
}


@pytest.mark.parametrize(("patch", "world", "breaks"), MUTANTS.values(), ids=MUTANTS)
def test_a_rule_switched_off_is_found(
    laboratory: redis.Redis, patch: Patch, world: World, breaks: str
) -> None:
    with pytest.raises(Violation, match=breaks):
        Places(laboratory, 1, patch).run(world)
