"""Cases of other dashboards that mustn't happen here: C52, C54, C55, C67. C53 is in permissions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, models
from django.db.models.options import Options
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_recheck import Receiver, store, worker
from django_recheck.models import Lock
from django_recheck.records import Item
from tests.admin.pages import LIST, field, seen, words
from tests.status import EVENT, held

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).parent.parent.parent
COMMANDS = (
    "migrate --run-syncdb --verbosity 0",
    "makemigrations --check --dry-run",
    "migrate --check",
    "check --fail-level WARNING",
    "createsuperuser --noinput --username ann --email ann@example.com --verbosity 0",
    "dumpdata django_recheck --all",
    "dumpdata --all --exclude contenttypes --exclude auth.permission --output all.json",
    "flush --noinput",
    "loaddata all.json",
    "remove_stale_contenttypes --noinput --include-stale-apps",
    "sqlflush",
    "inspectdb",
)
CODE = """
import sys, django
from django.core.management import execute_from_command_line

for command in sys.argv[1:]:
    print("$", command, flush=True)
    try:
        execute_from_command_line(["manage.py", *command.split()])
    except SystemExit as ended:
        assert not ended.code, command
"""


def test_c52_commands_know_that_there_is_no_table(tmp_path: Path) -> None:
    """In a project as it is begun, with its own database, and without Redis."""
    settings = {"DJANGO_SETTINGS_MODULE": "project.settings", "SHOP_VAR": str(tmp_path)}
    redis = {"REDIS_URL": "redis://127.0.0.1:1/0", "PYTHONPATH": f"{ROOT}:{ROOT / 'testproject'}"}
    environment = {key: value for key, value in os.environ.items() if key != "DATABASE_URL"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CODE, *COMMANDS],
        cwd=tmp_path,
        env=environment | settings | redis,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert not done.stderr
    said = dict(part.split("\n", 1) for part in done.stdout.split("$ ")[1:])
    assert [*said] == [*COMMANDS]
    assert said["dumpdata django_recheck --all"].strip() == "[]"
    assert "shop_order" in said["inspectdb"] + said["sqlflush"]
    assert "recheck_lock" not in done.stdout, "no table of it is made or emptied"
    assert "django_recheck" not in (tmp_path / "all.json").read_text()


def test_c52_the_orm_finds_no_lock_and_asks_no_database(totals: Receiver[..., Any]) -> None:
    held(totals)
    with CaptureQueriesContext(
        connection,
    ) as asked:
        for rows in (Lock.objects, Lock._default_manager, Lock._base_manager):
            assert not rows.exists()
            assert not rows.filter(receiver="totals")
            assert list(rows.using("other").iterator()) == []
    assert len(asked) == 0


def test_c54_a_filter_searches_all_and_not_one_page(
    totals: Receiver[..., Any], boss: Client
) -> None:
    for key in range(101):
        held(totals, str(key))
    held(totals, '"last"')
    assert len(field(seen(boss, LIST), "_selected_action")) == 100
    assert 'totals "last"' in field(seen(boss, f"{LIST}?q=last"), "_selected_action")[0]
    store.current().request(Item("elsewhere", "1"), EVENT, 1, totals.options)
    assert len(field(seen(boss, f"{LIST}?receiver=elsewhere"), "_selected_action")) == 2, (
        "and a button"
    )


def test_c55_the_model_is_a_real_one() -> None:
    assert apps.get_model("django_recheck", "Lock") is Lock
    assert issubclass(Lock, models.Model)
    assert type(Lock._meta) is Options
    assert not Lock._meta.managed


@pytest.mark.django_db(transaction=True)
def test_c67_that_nothing_drains_is_seen(totals: Receiver[..., Any], boss: Client) -> None:
    totals.recheck_many([7])
    assert "Last drain never" in words(seen(boss))
    current = store.current()
    lane = current.lane("totals", 0)
    now = current.now()
    current.client.zadd(lane.keys[2], {"7": int(now - 7200) * 1000})
    said = words(seen(boss))
    assert "1 overdue, for more than 5 min: does recheck_run run?" in said
    assert "Oldest waiting 2 h" in said
    assert "overdue" in words(seen(boss, f"{LIST}?state=pending"))
    worker.drain()
    said = words(seen(boss))
    assert "overdue" not in said
    assert re.search(r"Last drain [0-9]+ s ago", said)
