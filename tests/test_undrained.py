"""C67: nobody drains, and somebody must notice: in the log, in check, status and admin."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core import checks
from django.core.management import call_command

from django_recheck import Outcome, Receiver, recheck, store, undrained, worker
from tests.deploy_checks import drained, lapsed, pending

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at each event that a drain must run, from the second one on."""
    monkeypatch.setattr(undrained, "EVERY", 0.0)


@pytest.fixture
def left() -> Receiver[..., Any]:
    @recheck(name="left", key="group", dispatch="worker")
    def left(sender: Any, **kwargs: Any) -> None: ...

    return left


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged of it, and forget it."""
    said = [r.getMessage() for r in caplog.records if "overdue" in r.getMessage()]
    caplog.clear()
    return said


def test_c67_who_records_events_logs_it_once_an_hour(
    left: Receiver[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    pending("left", overdue=400)
    left.recheck(key=2)
    assert told(caplog) == [], "a process that has just begun leaves the word to others"
    left.recheck(key=3)
    (said,) = told(caplog)
    assert said.startswith("1 items of left are overdue, and the last drain ended never: have cron")
    left.recheck(key=4)
    left.recheck_many([5])
    assert told(caplog) == []
    store.current().client.delete(f"{store.current().meta}:undrained")
    drained(ago=350)
    left.recheck_many([6])
    (said,) = told(caplog)
    assert "the last drain ended 35" in said
    assert said.endswith("recheck_run, or keep recheck_run --watch running")


@pytest.mark.parametrize("waits", ["failed", "lapsed"])
def test_c67_also_where_passes_run_inline(caplog: pytest.LogCaptureFixture, waits: str) -> None:
    @recheck(name="inline", key="group", backoff=(60, 60))
    def inline(sender: Any, **kwargs: Any) -> None:
        raise ValueError("as asked")

    if waits == "lapsed":
        lapsed("inline", ago=400)
    else:
        pending("inline", overdue=400)
    assert [inline.recheck(key=key) for key in (2, 3)] == [Outcome.FAILED] * 2
    assert len(told(caplog)) == 1


@pytest.mark.parametrize(("overdue", "ago"), [(400, 10), (100, None), (-400, None)])
def test_it_is_quiet_while_somebody_drains_or_nothing_is_overdue(
    left: Receiver[..., Any], caplog: pytest.LogCaptureFixture, overdue: float, ago: float | None
) -> None:
    pending("left", overdue=overdue)
    if ago is not None:
        drained(ago=ago)
    for key in (2, 3):
        left.recheck(key=key)
    assert told(caplog) == []


def test_it_is_quiet_about_what_a_person_has_paused(
    left: Receiver[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    pending("left", overdue=400)
    store.current().pause(["left"])
    for key in (2, 3):
        left.recheck(key=key)
    assert told(caplog) == []


def test_it_asks_redis_no_more_than_now_and_then(
    left: Receiver[..., Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending("left", overdue=400)
    left.recheck(key=2)
    monkeypatch.setattr(undrained, "EVERY", 300.0)
    left.recheck(key=3)
    assert len(told(caplog)) == 1
    store.current().client.delete(f"{store.current().meta}:undrained")
    left.recheck(key=4)
    assert told(caplog) == []


def test_c67_check_status_and_admin_say_the_same(
    left: Receiver[..., Any], admin_client: Any
) -> None:
    pending("left", overdue=400)
    drained(ago=350)
    found = checks.run_checks(tags=["recheck"], include_deployment_checks=True)
    (w105,) = [message for message in found if message.id == "django_recheck.W105"]
    assert "40" in w105.msg
    assert "the last drain ended 35" in w105.msg
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("recheck_status", stdout=out)
    said = " ".join(out.getvalue().split())
    assert "last drain 6 min ago" in said
    assert "1 overdue, for more than 5 min: does recheck_run run?" in said
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("recheck_status", "--json", stdout=out)
    report = json.loads(out.getvalue())
    assert report["receivers"]["left"]["overdue"] == 1
    assert 350 <= report["now"] - report["last_drain"] < 360
    page = " ".join(admin_client.get("/admin/django_recheck/lock/").content.decode().split())
    assert "Last drain</dt><dd>6 min ago" in page
    assert "1 overdue, for more than 5 min: does recheck_run run?" in page


def test_a_drain_quiets_all(left: Receiver[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    pending("left", overdue=400)
    worker.drain()
    found = checks.run_checks(tags=["recheck"], include_deployment_checks=True)
    assert "django_recheck.W105" not in [message.id for message in found]
    for key in (2, 3):
        left.recheck(key=key)
    assert told(caplog) == []
    assert store.current().last_drain()
