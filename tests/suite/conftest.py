"""What a project that uses pytest writes once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_recheck.testing import isolated


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Keep each test's events to itself."""
    with isolated():
        yield
