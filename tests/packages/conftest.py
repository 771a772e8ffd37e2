"""What the tests on packages share. The models are imported late: other settings lack the app."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .twins import Twins, Way

pytest.register_assert_rewrite("tests.packages.twins")


@pytest.fixture(
    params=[
        pytest.param((dispatch, atomic), id=f"{dispatch}-{'atomic' if atomic else 'autocommit'}")
        for dispatch in ("inline", "worker")
        for atomic in (False, True)
    ]
)
def way(request: pytest.FixtureRequest) -> Way:
    """One of the ways in which the same operations are done."""
    from .twins import Way

    dispatch, atomic = request.param
    return Way(dispatch, atomic=atomic)


@pytest.fixture
def twins(way: Way) -> Iterator[Callable[..., Twins]]:
    """Make twins that work in that way, for as long as the test runs."""
    from .twins import Twins

    made: list[Twins] = []

    def make(*args: Any, **options: Any) -> Twins:
        made.append(Twins(way, *args, **options))
        return made[-1]

    yield make
    for pair in made:
        pair.part()
