"""One site and one window for all tests; each test is somebody new in front of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.site import Site
from tests.browser.window import Window
from tests.servers import of_the_run


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests here."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("browser")


@pytest.fixture(scope="session")
def the_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(of_the_run(), tmp_path_factory.mktemp("shop"))
    try:
        yield site
    finally:
        site.close()


@pytest.fixture(scope="session")
def the_window(the_site: Site) -> Iterator[Window]:
    window = Window(the_site)
    try:
        window.until(the_site.is_up)
        yield window
    finally:
        window.close()


@pytest.fixture
def site(the_site: Site) -> Iterator[Site]:
    yield the_site
    the_site.dismiss()


@pytest.fixture
def window(the_window: Window, site: Site) -> Iterator[Window]:
    """A window of the boss, quick; in the end nothing was complained of."""
    the_window.dress()
    the_window.be("boss")
    the_window.hurry()
    yield the_window
    complaints = the_window.complaints()
    the_window.site = site
    the_window.forget()
    assert complaints == []
