"""The judge of a chaos run sees what broke a promise, and tells it from what is explained."""

from __future__ import annotations

from typing import Any

import pytest

from .judge import Span, overlaps, recoveries

TTL = 1_000_000_000
"""A lease of the run in nanoseconds."""


def span(began: int, ended: int, **fields: Any) -> Span:
    given = {"slot": 0, "group": 1, "fence": 7, "killed": False, "lost": False, **fields}
    return Span(began=began, ended=ended, **given)


@pytest.mark.parametrize(
    ("passes", "emptied", "found"),
    [
        ([span(0, 5), span(5, 9)], [], None),
        ([span(0, 5), span(4, 9)], [], "unexplained"),
        ([span(0, 9), span(1, 2), span(8, 12)], [], "unexplained"),
        ([span(0, 5), span(4, 9, group=2)], [], None),
        ([span(0, 5, lost=True), span(4, 9)], [], "outlived"),
        ([span(0, 5), span(4, 9, lost=True)], [], "unexplained"),
        ([span(0, 5), span(4, 9)], [2], "emptied"),
        ([span(0, 5), span(4, 9)], [6], "unexplained"),
        ([span(0, 5, fence=0), span(4, 9)], [], None),
    ],
)
def test_passes_of_one_group_that_overlap_are_counted_by_their_reason(
    passes: list[Span], emptied: list[int], found: str | None
) -> None:
    reasons = {reason for reason, number in overlaps(passes, emptied).items() if number}
    assert reasons == ({found} if found else set())


def test_recovery_is_the_time_from_a_death_to_the_next_pass_of_the_group() -> None:
    dead = span(0, TTL, killed=True)
    others = [span(3 * TTL, 4 * TTL, group=2), span(5 * TTL // 2, 3 * TTL), span(9 * TTL, 9 * TTL)]
    assert recoveries([dead, *others]) == [1.5]
