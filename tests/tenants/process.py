"""One process of the site: ``python -m tests.tenants.process SCENE ARGUMENTS``.

A scene is a function of this module; what it returns is printed as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any, Final, cast

import redis

WAIT: Final = 120
"""Seconds after which the other processes are given up."""
TENANTS: Final = ("alpha", "beta")
GROUPS: Final = 3


def prepare() -> None:
    """Make the tenants, with the same groups in each."""
    from django.core.management import call_command
    from django_tenants.utils import schema_context

    from tests.app.models import Group

    from .models import Customer

    call_command("migrate_schemas", "--shared", run_syncdb=True, verbosity=0)
    for schema in (*TENANTS, "gone"):
        Customer(schema_name=schema).save(verbosity=0)
    call_command("migrate_schemas", "--tenant", run_syncdb=True, verbosity=0)
    for schema in (*TENANTS, "gone"):
        with schema_context(schema):
            Group.objects.bulk_create(Group(name=f"{n} of {schema}") for n in range(1, GROUPS + 1))


def side_by_side(key: str) -> dict[str, Any]:
    """Ask in a pass of one tenant for passes of the same key: of the same tenant and another."""
    from django.db import connection
    from django_tenants.utils import schema_context

    from django_recheck import recheck, store, views
    from tests.app.models import Group

    said: dict[str, Any] = {}
    begun: list[str] = []

    def ask(schema: str) -> None:
        with schema_context(schema):
            row = Group.objects.get(pk=1)
            said[schema] = (held.recheck(row) if key == "row" else held.recheck(key=1)).name
        connection.close()

    @recheck(name="held", key=None if key == "row" else lambda **_: 1)
    def held(sender: Any, **kwargs: Any) -> None:
        begun.append(cast(Any, connection).schema_name)
        if begun == ["alpha"]:
            for schema in TENANTS:
                other = threading.Thread(target=ask, args=(schema,))
                other.start()
                other.join()
            said["meanwhile"] = {schema: said[schema] for schema in TENANTS}
        elif begun == list(TENANTS):
            page = views.page(store.current(), "held", "running")
            said["running"] = sorted(view.item.text for view in page)

    ask("alpha")
    return {**said, "passes": begun}


def one_transaction(around: str) -> dict[str, Any]:
    """Save the same row of each tenant in one transaction, which begins and ends in a schema."""
    from django.db import connection, transaction
    from django_tenants.utils import schema_context

    from tests.app.models import Group

    from .receivers import schemas

    mine: Any = connection
    mine.set_schema(around)
    with transaction.atomic():
        for schema in ("alpha", "beta", "alpha"):
            with schema_context(schema):
                Group.objects.get(pk=1).save()
    return {"after": schemas()}


def save(schema: str) -> str:
    """Save a row of a tenant outside of a transaction; say what became of the event."""
    from django.db.models.signals import post_save
    from django_tenants.utils import schema_context

    from tests.app.models import Group

    from .receivers import greet

    with schema_context(schema):
        post_save.disconnect(greet, sender=Group)
        group = Group.objects.get(pk=1)
        return greet.recheck(group).name


def lose() -> dict[str, int]:
    """Change rows of each tenant, in transactions of which Redis doesn't hear; count their rows."""
    from contextlib import suppress

    from django.db import transaction
    from django_tenants.utils import schema_context

    from django_recheck.outbox import table
    from tests.app.models import Group

    def die() -> None:
        raise KeyError

    for schema in TENANTS:
        with schema_context(schema), suppress(KeyError), transaction.atomic():
            transaction.on_commit(die)
            Group.objects.get(pk=1).save()
    table.model().objects.update(due="2000-01-01T00:00:00Z")
    return waiting()


def waiting() -> dict[str, int]:
    """Count the rows of the outbox, by receiver."""
    from django_recheck.outbox import shown

    found = shown.receivers()
    assert not found.problems
    return {name: waiting.rows for name, waiting in found.waiting.items()}


def drain_in(schema: str, kind: str) -> dict[str, Any]:
    """Drain in one schema what another one owes; the receiver leaves well or badly."""
    from django.db import DatabaseError, connection, transaction
    from django_tenants.utils import schema_context

    from django_recheck import recheck, worker
    from tests.app.models import Group

    from .receivers import schemas

    during: list[Any] = []

    @recheck(name=f"leaves-{kind}", dispatch="worker")
    def leave(sender: Any, instance: Group, **kwargs: Any) -> None:
        during.append([instance.name, *schemas()])
        thought: Any = connection
        if kind == "raising":
            raise ValueError
        if kind == "aborting":
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SELECT 1 / 0")
        if kind == "elsewhere":
            thought.set_schema("gone")

    with schema_context("alpha"):
        leave.recheck_many(Group.objects.filter(pk=1))
    mine: Any = connection
    mine.set_schema(schema)
    try:
        tally = worker.drain()
    except DatabaseError as error:
        return {"error": str(error)}
    outcomes = {outcome.name: number for outcome, number in tally.outcomes.items()}
    return {"during": during, "outcomes": outcomes, "after": schemas()}


def drop(schema: str) -> None:
    """Drop a tenant's schema."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(f"DROP SCHEMA {connection.ops.quote_name(schema)} CASCADE")


def write(number: str, rounds: str, writers: str) -> dict[str, int]:
    """Change rows of both tenants, in transactions that belong to both, when all writers are here.

    Some transactions end in another schema than they began in, and some parts are rolled back.
    """
    from django.db import connection, transaction
    from django_tenants.utils import schema_context

    from tests.storm.changes import Changes

    client = redis.Redis.from_url(os.environ["RECHECK_TEST_REDIS_URL"])
    groups = list(range(1, GROUPS + 1))
    changes = {schema: Changes(f"{number} {schema}", groups) for schema in TENANTS}
    chance = changes["alpha"].chance
    mine: Any = connection
    client.incr("storm:ready")
    until = time.monotonic() + WAIT
    while int(client.get("storm:ready") or 0) < int(writers):
        assert time.monotonic() < until, "the others are gone"
        time.sleep(0.001)
    for _ in range(int(rounds)):
        mine.set_schema(chance.choice(["public", *TENANTS]))
        with transaction.atomic():
            for schema in chance.sample(TENANTS, 2):
                with schema_context(schema):
                    changes[schema].touch()
                    with transaction.atomic():
                        rolled_back()
            if chance.random() < 0.5:
                mine.set_schema(chance.choice(TENANTS))
                changes[mine.schema_name].touch()
    client.incr("storm:done")
    return {schema: one.events for schema, one in changes.items()}


def rolled_back() -> None:
    """Create a row, and take it back."""
    from django.db import transaction

    from tests.app.models import Item

    Item.objects.create(group_id=1, name="never was", value=1)
    transaction.set_rollback(True)


def drain(writers: str) -> dict[str, int]:
    """Drain in the public schema until all writers are done."""
    from django_recheck import worker

    client = redis.Redis.from_url(os.environ["RECHECK_TEST_REDIS_URL"])
    items, until = 0, time.monotonic() + WAIT
    while int(client.get("storm:done") or 0) < int(writers):
        assert time.monotonic() < until, "the writers are gone"
        items += worker.drain().items
        time.sleep(0.001)
    return {"drained": items + worker.drain().items}


def judge() -> dict[str, Any]:
    """Compare each group's total with its items, and look at what Redis still holds."""
    from django.db import connection
    from django.db.models import Sum
    from django_tenants.utils import schema_context

    from django_recheck import store, views
    from tests.app.models import Group, Item

    stale, sums = [], {}
    for schema in TENANTS:
        with schema_context(schema):
            for group in Group.objects.order_by("pk"):
                items = Item.objects.filter(group=group)
                right = items.aggregate(total=Sum("value"))["total"] or 0
                sums[f"{schema} {group.pk}"] = right
                if group.total != right:
                    stale.append([schema, group.pk, group.total, right])
    connection.close()
    return {"stale": stale, "sums": sums, "left": views.receivers(store.current())}


def main() -> None:
    """Run the scene that the command line names."""
    import django

    django.setup()
    scene, *arguments = sys.argv[1:]
    print(json.dumps(globals()[scene](*arguments)))


if __name__ == "__main__":
    main()
