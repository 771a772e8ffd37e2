"""The checks of the outbox: the app, its table, and what waits too long."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core import checks
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connections
from django.db.models import F
from django.test import override_settings

from django_recheck import receivers, store
from django_recheck.outbox import table
from tests.app.models import Item
from tests.test_checks import said, the_one

from .seen import DATABASES, committed_and_not_told, durable, no_table, turned

pytestmark = pytest.mark.django_db(transaction=True, databases=list(DATABASES))


@pytest.fixture
def without(settings: Any) -> Any:
    """The app isn't listed, for as long as this is entered."""
    return override_settings(INSTALLED_APPS=settings.INSTALLED_APPS[:-1])


def found(**options: Any) -> list[CheckMessage]:
    """Run the checks of this app that connect to no Redis."""
    messages = said(checks.run_checks(tags=["recheck"], **options))
    mine = ("E030", "E031", "E032", "W109", "W110")
    return [m for m in messages if not options or str(m.id).rpartition(".")[2] in mine]


def deployed(**options: Any) -> list[CheckMessage]:
    """Run those of ``check --deploy`` that are about the outbox."""
    return found(include_deployment_checks=True, **options)


def test_all_is_well() -> None:
    durable([])
    durable([], name="kept", durable=False, on_redis_error="outbox")
    assert found() == deployed() == []


def test_e030_durable_without_the_app(without: Any) -> None:
    durable([])
    with without:
        message = the_one(found(), "E030")
        with pytest.raises(ImproperlyConfigured, match="E030"):
            Item(name="a").save()
    assert message.msg.startswith("durable: DURABLE is True")
    assert f'INSTALLED_APPS = [..., "{table.APP}"]' in str(message.hint)


def test_an_app_that_tests_have_taken_out_asks_no_database(
    without: Any, django_assert_num_queries: Any
) -> None:
    with without, django_assert_num_queries(0):
        assert deployed() == []


def test_e031_on_redis_error_without_the_app(without: Any, settings: Any) -> None:
    durable([], durable=False)
    settings.RECHECK = {**settings.RECHECK, "ON_REDIS_ERROR": "outbox"}
    with without:
        message = the_one(found(), "E031")
    assert message.msg.startswith("RECHECK: ON_REDIS_ERROR is 'outbox'")


def test_e032_the_table_is_missing() -> None:
    durable([])
    with no_table("other"):
        message = the_one(deployed(), "E032")
        assert "'other' has no table" in message.msg
        assert "durable" in message.msg
        assert message.hint == "Run manage.py migrate --database other."
        assert deployed(databases=["default"]) == []
        turned(receivers.registry["durable"][-1], DURABLE=False)
        assert deployed() == [], "nobody needs it"


def test_e032_a_router_keeps_the_table_away(settings: Any) -> None:
    class Without:
        def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
            return False if (db, app_label) == ("other", "django_recheck_outbox") else None

    durable([])
    settings.DATABASE_ROUTERS = [Without()]
    assert deployed() == [], "it is there nevertheless, as on a replica"
    with no_table("other"):
        message = the_one(deployed(), "E032")
    assert "allow_migrate('other', 'django_recheck_outbox') is False" in str(message.hint)


def test_w109_what_waits_for_a_person_is_no_alert() -> None:
    durable([])
    committed_and_not_told(Item(name="a").save)
    table.model().objects.update(created=F("created") - timedelta(seconds=600))
    assert the_one(deployed(), "W109")
    store.current().pause(["durable"])
    assert deployed() == []


def test_w109_what_waits_too_long() -> None:
    durable([])
    committed_and_not_told(Item(name="a").save)
    assert deployed() == []
    table.model().objects.update(created=F("created") - timedelta(seconds=600))
    message = the_one(deployed(), "W109")
    assert message.msg.startswith("1 rows wait in the outbox of 'default', for durable, the oldest")
    assert "for 600 s" in message.msg or "for 601 s" in message.msg
    assert "recheck_run" in str(message.hint)
    assert "former_names=" not in str(message.hint)
    del receivers.registry["durable"]
    assert "doesn't have durable: write former_names=" in str(the_one(deployed(), "W109").hint)


def test_w110_a_database_that_doesnt_answer() -> None:
    def refuse(*rest: Any) -> Any:
        raise OperationalError("no route to postgres://u:s3cret@host")

    durable([])
    with connections["other"].execute_wrapper(refuse):
        message = the_one(deployed(), "W110")
    assert "'other'" in message.msg
    assert "no route" in message.msg
    assert "s3cret" not in message.msg
