"""What the package asks of those who install it."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_no_requirement_has_an_upper_cap() -> None:
    extras = PROJECT["optional-dependencies"]
    every = [*PROJECT["dependencies"], *(one for found in extras.values() for one in found)]
    for requirement in map(Requirement, every):
        assert {one.operator for one in requirement.specifier} == {">="}, requirement
    assert PROJECT["requires-python"] == ">=3.11"
    least = {one.name: str(one.specifier) for one in map(Requirement, PROJECT["dependencies"])}
    assert least == {"Django": ">=5.2", "django-redis": ">=6", "redis": ">=5"}


def test_it_is_typed_and_has_a_licence() -> None:
    assert (ROOT / "django_recheck/py.typed").exists()
    (licence,) = PROJECT["license-files"]
    assert (ROOT / licence).read_text("utf-8").startswith("BSD 3-Clause License")
    assert PROJECT["license"] == "BSD-3-Clause"


def test_the_demo_needs_nothing_that_tests_lack() -> None:
    extras = PROJECT["optional-dependencies"]
    assert set(extras["demo"]) <= set(extras["dev"])
