"""The drain and its command: what is ripe, what a dead holder left, and nothing else."""

from __future__ import annotations

import json
import sys
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models.signals import post_save
from django.db.transaction import TransactionManagementError
from django.dispatch import receiver

from django_recheck import Receiver, recheck, store, views, worker
from django_recheck.records import Grant, Item, pack
from tests.app import models

pytestmark = pytest.mark.django_db(transaction=True)

EVENT = pack([b'["","",""]', b"", b"", b"[null,null,{},{},null]"])


@pytest.fixture
def calls() -> list[Any]:
    return []


@pytest.fixture
def rebuild(calls: list[Any]) -> Receiver[..., Any]:
    @recheck(name="rebuild", key="group", dispatch="worker", backoff=(60, 60))
    def rebuild(sender: Any, instance: Any, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append(recheck_pass.key)
        if recheck_pass.key == "bad":
            raise ValueError("as asked")

    return rebuild


def test_nothing_to_do(rebuild: Receiver[..., Any]) -> None:
    assert worker.drain().items == 0
    assert store.current().last_drain() is not None


def test_what_is_ripe_is_run_once(rebuild: Receiver[..., Any], calls: list[Any]) -> None:
    rebuild.recheck_many([1, 2, 3])
    tally = worker.drain()
    assert (tally.items, tally.passes, tally.failed) == (3, 3, 0)
    assert sorted(calls) == [1, 2, 3]
    assert worker.drain().items == 0
    assert views.counts(store.current()) == {}


def test_a_limit_leaves_the_rest(rebuild: Receiver[..., Any], calls: list[Any]) -> None:
    rebuild.recheck_many(range(5))
    assert worker.drain(limit=2).items == 2
    assert views.counts(store.current())["rebuild"].due == 3


def test_stopping_ends_between_items(rebuild: Receiver[..., Any], calls: list[Any]) -> None:
    rebuild.recheck_many(range(5))
    assert worker.drain(stopping=lambda: len(calls) == 2).items == 2


def test_a_dead_holder_is_taken_over_when_its_lease_is_over(
    rebuild: Receiver[..., Any], calls: list[Any]
) -> None:
    current = store.current()
    item = Item("rebuild", "7")
    granted = current.request(item, EVENT, 1, rebuild.options)
    assert isinstance(granted, Grant)
    assert worker.drain().items == 0, "a living lease is nobody's business"
    end_lease(item)
    tally = worker.drain()
    assert tally.items == 1
    assert calls == [7]


def end_lease(item: Item) -> None:
    """Let an item's lease end now: its lock is gone and its index says so."""
    current = store.current()
    lane = current.lane_of(item)
    current.client.delete(lane.lock(item))
    current.client.zadd(lane.keys[1], {item.text: 1})


def test_c22_a_living_hold_is_never_freed(rebuild: Receiver[..., Any], calls: list[Any]) -> None:
    current, item = store.current(), Item("rebuild", "7")
    current.request(item, EVENT, 1, rebuild.options)
    current.client.zadd(current.lane_of(item).keys[1], {item.text: 1})
    assert worker.drain().items == 0
    (view,) = views.items(current, [item])
    assert view.state == "running"
    assert view.score is not None
    assert view.lease_left is not None
    assert calls == []


def test_an_entry_without_a_record_is_removed_and_reported(
    rebuild: Receiver[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    current = store.current()
    current.client.zadd(current.lane("rebuild", 0).keys[2], {"5": 1})
    assert worker.drain().items == 0
    assert "nothing is recorded" in caplog.text
    assert views.counts(current, ["rebuild"])["rebuild"].due == 0


@pytest.mark.parametrize("text", ["garbage", "1 - 0 x\n", "", "\xff\xfe"])
def test_a_broken_record_is_put_aside(
    rebuild: Receiver[..., Any], caplog: pytest.LogCaptureFixture, text: str
) -> None:
    current = store.current()
    keys = current.lane("rebuild", 0).keys
    current.client.hset(keys[0], "5", text)
    current.client.zadd(keys[2], {"5": 1})
    worker.drain()
    assert "record is broken" in caplog.text
    assert views.counts(current, ["rebuild"])["rebuild"].dead == 1
    (view,) = views.page(current, "rebuild", "dead")
    assert "broken" in view.problem


def test_a_newer_versions_record_is_left_alone_and_reported_once(
    rebuild: Receiver[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    current = store.current()
    keys = current.lane("rebuild", 0).keys
    for item in ("5", "6"):
        current.client.hset(keys[0], item, "2 whatever")
        current.client.zadd(keys[2], {item: 1})
    for _ in range(2):
        assert worker.drain().items == 0
        current.client.zadd(keys[2], {"5": 1}, xx=True)
    (told,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert "newer version" in told.getMessage()
    assert current.client.hget(keys[0], "5") == b"2 whatever"


def test_items_of_unknown_receivers_wait_and_are_reported(
    caplog: pytest.LogCaptureFixture, rebuild: Receiver[..., Any]
) -> None:
    entry = store.Entry(Item("elsewhere", "1"), 1, EVENT, rebuild.options)
    store.current().enqueue([entry])
    tally = worker.drain()
    assert tally.unknown == {"elsewhere": 1}
    assert "elsewhere: 1 items wait for this receiver" in caplog.text
    assert "left untouched: if it has another name now, give it former_names=['elsewhere']" in (
        caplog.text
    )
    caplog.clear()
    assert worker.drain().unknown == {"elsewhere": 1}
    assert caplog.text == "", "reported once an hour"
    store.current().enqueue([store.Entry(Item("nowhere", "1"), 1, EVENT, rebuild.options)])
    assert worker.drain().unknown == {"elsewhere": 1, "nowhere": 1}
    assert ("nowhere: 1 items" in caplog.text, "elsewhere" in caplog.text) == (True, False)
    call_command("recheck_run", stdout=(out := StringIO()))
    left = [worker.left_alone(name, 1) for name in ("elsewhere", "nowhere")]
    assert out.getvalue().splitlines()[1:] == left, "but always here"
    assert views.counts(store.current())["elsewhere"].due == 1


def test_c63_items_recorded_under_a_former_name_are_run(calls: list[Any]) -> None:
    @recheck(name="renamed", former_names=["before"], key="group", dispatch="worker")
    def renamed(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append(recheck_pass.key)

    entry = store.Entry(Item("before", "1"), 1, EVENT, renamed.options)
    store.current().enqueue([entry])
    assert worker.drain().items == 1
    assert calls == [1]
    assert views.counts(store.current()) == {}


def test_c11_a_far_retry_holds_no_lock(rebuild: Receiver[..., Any], calls: list[Any]) -> None:
    rebuild.recheck_many(["bad"])
    assert worker.drain().failed == 1
    (view,) = views.page(store.current(), "rebuild", "due")
    assert view.holder is None
    rebuild.recheck_many(["bad"])
    assert worker.drain().items == 1, "a new event runs at once, whatever the backoff"


def test_the_command_reports(rebuild: Receiver[..., Any]) -> None:
    rebuild.recheck_many([1, 2])
    out = StringIO()
    call_command("recheck_run", stdout=out)
    assert out.getvalue() == "2 items, 2 passes, 0 failed\n"
    out = StringIO()
    call_command("recheck_run", "--json", stdout=out)
    numbers = dict.fromkeys(("recorded", "retried", "items", "passes", "failed"), 0)
    empty = {**numbers, "outcomes": {}, "unknown": {}, "problems": {}}
    assert json.loads(out.getvalue()) == empty


def test_the_command_exits_1_when_a_pass_failed(rebuild: Receiver[..., Any]) -> None:
    rebuild.recheck_many([1, "bad"])
    with pytest.raises(SystemExit) as exit_:
        call_command("recheck_run", verbosity=0)
    assert exit_.value.code == 1


def test_the_command_knows_its_receivers(rebuild: Receiver[..., Any]) -> None:
    rebuild.recheck_many([1])
    with pytest.raises(CommandError, match=r"No receiver is called 'nobody'; known are: .*rebuild"):
        call_command("recheck_run", receiver="nobody")
    out = StringIO()
    call_command("recheck_run", receiver="rebuild", stdout=out)
    assert out.getvalue().startswith("1 items")


@pytest.mark.parametrize("limit", ["0", "-1", "many"])
def test_the_command_refuses_a_wrong_limit(limit: str) -> None:
    with pytest.raises(CommandError, match="must be a whole number, at least 1"):
        call_command("recheck_run", f"--limit={limit}")


def test_the_command_cannot_work_without_redis(settings: Any) -> None:
    nowhere = {**settings.CACHES["recheck"], "LOCATION": "redis://127.0.0.1:1/0"}
    settings.CACHES = {**settings.CACHES, "nowhere": nowhere}
    settings.RECHECK = {**settings.RECHECK, "CACHE": "nowhere"}
    with pytest.raises(CommandError, match="Redis doesn't answer") as raised:
        call_command("recheck_run")
    assert raised.value.returncode == 2


def test_models_of_the_app_are_there() -> None:
    @receiver(post_save, sender=models.Group)
    @recheck(name="in-a-drain", dispatch="worker")
    def note(sender: Any, instance: models.Group, **kwargs: Any) -> None:
        models.Group.objects.filter(pk=instance.pk).update(name="rebuilt")

    group = models.Group.objects.create(name="fresh")
    worker.drain()
    group.refresh_from_db()
    assert group.name == "rebuilt"


def test_a_drain_inside_a_transaction_is_refused(
    rebuild: Receiver[..., Any], calls: list[Any]
) -> None:
    rebuild.recheck_many([1])
    with transaction.atomic(), pytest.raises(TransactionManagementError, match="after the trans"):
        worker.drain()
    assert calls == []
    assert worker.drain().items == 1


def test_the_command_cant_work_in_a_transaction(rebuild: Receiver[..., Any]) -> None:
    with transaction.atomic(), pytest.raises(CommandError, match="inside a transaction") as refused:
        call_command("recheck_run")
    assert refused.value.returncode == 2


def test_a_receiver_that_ends_the_process_is_no_success() -> None:
    @recheck(name="quitting", key="group")
    def quitting(sender: Any, **kwargs: Any) -> None:
        sys.exit(0)

    quitting.recheck_many([1])
    with pytest.raises(CommandError, match="A pass ended the process") as ended:
        call_command("recheck_run")
    assert ended.value.returncode == 1


def test_an_entry_without_a_record_leaves_no_lane_behind(rebuild: Receiver[..., Any]) -> None:
    current = store.current()
    current.client.zadd(current.lane("rebuild", 0).keys[2], {"5": 1})
    current.client.sadd(current.lane("rebuild", 0).keys[4], "rebuild")
    worker.drain()
    assert views.receivers(current) == []


def test_passes_that_follow_one_another_keep_their_connection(
    rebuild: Receiver[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONN_MAX_AGE is 0 by default, and opening one may cost more than a pass."""
    looks: list[Any] = []
    looked = connection.close_if_unusable_or_obsolete

    def look() -> None:
        looks.append(connection.errors_occurred)
        looked()

    @recheck(name="broken", key="group", dispatch="worker")
    def broken(sender: Any, **kwargs: Any) -> None:
        connection.cursor().execute("no SQL at all")

    monkeypatch.setattr(connection, "close_if_unusable_or_obsolete", look)
    rebuild.recheck_many(range(20))
    assert worker.drain().items == 20
    assert looks == [False, False], "before the first pass, and after the last one"
    looks.clear()
    broken.recheck_many([1])
    assert worker.drain().failed == 1
    assert looks == [False, True, False], "what has failed is looked at before the next pass"
