"""When a pass looks at its rows, and when they go: the order in which that is safe."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from django.db import connection, transaction

from django_recheck import Outcome, store, views, worker
from django_recheck.outbox import table
from django_recheck.passes import elsewhere
from django_recheck.store import Store
from tests.app.models import Item
from tests.storm.test_storm import ROOT

from .seen import DATABASES, durable, rows, state

pytestmark = pytest.mark.django_db(transaction=True, databases=list(DATABASES))


def save() -> None:
    """Change the one item, in a transaction."""
    with transaction.atomic():
        (Item.objects.first() or Item(name="a")).save()


@pytest.mark.parametrize("dispatch", ["inline", "worker"])
def test_rows_are_read_under_the_lock_before_the_row_itself_and_go_last(
    monkeypatch: pytest.MonkeyPatch, dispatch: str
) -> None:
    """A row that is committed between the two would else go with a pass that hasn't seen it."""
    steps: list[str] = []
    finish = Store.finish

    def look(execute: Any, sql: str, *rest: Any) -> Any:
        kind = sql.partition(" ")[0]
        if "outbox" in sql and kind in ("SELECT", "DELETE") and rows_waiting:
            steps.append(f"{kind} of rows, {state(rows_waiting[0])}")
        elif "tests_app_item" in sql and kind == "SELECT" and rows_waiting:
            steps.append("SELECT of the item")
        return execute(sql, *rest)

    def finishing(*args: Any, **named: Any) -> Any:
        found = finish(*args, **named)
        steps.append("finish")
        return found

    durable([], lambda: steps.append("pass"), dispatch="worker")
    save()
    rows_waiting = rows()
    if dispatch == "inline":
        durable([], lambda: steps.append("pass"), dispatch="inline")
    monkeypatch.setattr(Store, "finish", finishing)
    with connection.execute_wrapper(look):
        if dispatch == "inline":
            Item.objects.get().save()
        else:
            worker.drain()
    wanted = ["SELECT of rows, running", "SELECT of the item", "pass", "finish"]
    while steps[0] != wanted[0]:  # the test's own, and the drain's look for rows that are due
        del steps[0]
    assert steps == [*wanted, "DELETE of rows, idle"]


def test_a_requeued_item_keeps_the_rows_of_what_came_meanwhile() -> None:
    calls: list[Any] = []
    seen: list[list[int]] = []

    def meanwhile() -> None:
        seen.append([row.pk for row in rows()])
        if len(calls) == 1:
            elsewhere(save)

    durable(calls, meanwhile, max_passes=1, dispatch="worker")
    save()
    (covered,) = seen_before = [row.pk for row in rows()]
    tally = worker.drain(limit=1)
    assert tally.outcomes == {Outcome.REQUEUED: 1}
    assert seen == [seen_before]
    (left,) = rows()
    assert left.pk != covered
    assert views.counts(store.current())["durable"].due == 1
    worker.drain()
    assert rows() == []


CODE = """
import importlib, pkgutil, sys, django
from django.conf import settings
settings.INSTALLED_APPS += sys.argv[1:]
django.setup()
import django_recheck
from django.core.management import call_command
from django.db import connection
for module in pkgutil.walk_packages(django_recheck.__path__, "django_recheck."):
    if not module.name.startswith("django_recheck.outbox."):
        importlib.import_module(module.name)
call_command("migrate", run_syncdb=True, verbosity=0)
print([name for name in connection.introspection.table_names() if "recheck" in name])
print([name for name in sys.modules if name in ("django_recheck.outbox.models",)])
"""


@pytest.mark.parametrize("listed", [False, True])
def test_who_doesnt_list_the_app_has_neither_table_nor_model(listed: bool) -> None:
    mine = {"DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONPATH": str(ROOT)}
    kept = {n: v for n, v in os.environ.items() if not n.startswith("RECHECK_TEST_")}
    code = [sys.executable, "-c", CODE, *[table.APP] * listed]
    done = subprocess.run(code, env=kept | mine, cwd=ROOT, text=True, capture_output=True)
    there = ["['django_recheck_outbox_event']", "['django_recheck.outbox.models']"]
    assert done.stdout.split() == (there if listed else ["[]", "[]"]), done.stdout + done.stderr
