"""The outbox is installed for these tests only: all others prove that the core needs none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.db.backends.signals import connection_created
from django.test.utils import modify_settings
from pytest_django.plugin import DjangoDbBlocker

from django_recheck.outbox import table, written
from tests.servers import Server, apart

from .deaths import carelessly
from .seen import DATABASES


@pytest.fixture(scope="package")
def tables(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Have the table on both databases, as its migration makes it; spare the disk meanwhile."""
    connection_created.connect(carelessly)
    connections.close_all()
    with django_db_blocker.unblock(), modify_settings(INSTALLED_APPS={"append": table.APP}):
        for alias in DATABASES:
            call_command("migrate", "django_recheck_outbox", database=alias, verbosity=0)
    yield
    connection_created.disconnect(carelessly)


@pytest.fixture(autouse=True)
def in_this_process(request: pytest.FixtureRequest) -> None:
    """Have the outbox where a test uses the databases of this process."""
    if request.node.get_closest_marker("django_db"):
        request.getfixturevalue("outbox")


@pytest.fixture
def outbox(
    tables: None,
    settings: Any,
    transactional_db: None,
) -> Iterator[None]:
    """Have the app listed, and leave no rows."""
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, table.APP]
    written.forget()
    yield
    for alias in DATABASES:
        table.model().objects.using(alias).all().delete()


@pytest.fixture
def stopped(settings: Any) -> Iterator[Server]:
    """A Redis that was stopped, and is left alone until the test says otherwise."""
    with apart(settings, BREAKER=600) as server:
        server.end()
        yield server
