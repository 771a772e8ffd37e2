"""What ``check --deploy`` asks the databases: is the table there, and does something wait in it?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from django.core.checks import CheckMessage, register
from django.db import connections, router

from .. import connected, outage, store, views, worker
from ..messages import message
from ..receivers import Receiver, registry
from ..soundness import outbox_asked_for
from . import shown, table

LABEL: Final = "django_recheck_outbox"


@register("recheck", deploy=True)
def check_outbox(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Check the outbox of each database, of some with ``--database``."""
    if not table.installed():  # tests can take an app out of INSTALLED_APPS
        return []
    return [found for alias in databases or connections for found in _database(alias)]


def _database(alias: str) -> Iterator[CheckMessage]:
    try:
        with connections[alias].cursor() as cursor:
            names = set(connections[alias].introspection.table_names(cursor))
        if table.model()._meta.db_table in names:
            yield from _waiting(alias)
        elif followers := [r.name for r in _asking() if names & _followed(r)]:
            text = f"The database {alias!r} has no table of the outbox, and {', '.join(followers)} "
            text += "can't write there what happens to its rows."
            hint = f"Run manage.py migrate --database {alias}."
            if not router.allow_migrate_model(alias, table.model()):
                hint = f"DATABASE_ROUTERS forbid it: allow_migrate({alias!r}, {LABEL!r}) is False."
            yield message("E032", text, hint)
    except table.FAULTS as error:
        text = f"The outbox of {alias!r} couldn't be looked at: {error}"
        yield message("W110", text, "Start the database, or correct its settings.")


def _asking() -> list[Receiver[..., Any]]:
    """Return the receivers that need an outbox."""
    found = (receivers[-1] for receivers in registry.values())
    return [receiver for receiver in found if any(outbox_asked_for(receiver.options.value))]


def _followed(receiver: Receiver[..., Any]) -> set[str]:
    """Return the tables that a receiver's events are about."""
    models = (m for s in connected.signals_of(receiver) for m in connected.senders_of(s, receiver))
    return {model._meta.db_table for model in models if model is not None}


def _waiting(alias: str) -> Iterator[CheckMessage]:
    found = {n: one for n, one in shown.on(alias).items() if one.overdue}
    for name in _paused(list(found)):
        del found[name]
    if not found:
        return
    total = sum(found.values(), shown.NONE)
    text = f"{total.rows} rows wait in the outbox of {alias!r}, for {', '.join(sorted(found))}, "
    text += f"the oldest for {total.age:.0f} s."
    hint = "Have cron run it every minute: manage.py recheck_run. What is dead waits for a new "
    hint += "event, or for a person."
    if unknown := sorted(set(found) - set(worker.known_names())):
        hint += f" This code doesn't have {', '.join(unknown)}: write former_names= of its heir."
    yield message("W109", text, hint)


def _paused(names: Sequence[str]) -> list[str]:
    """Return the receivers whose rows wait for a person; none if Redis doesn't say."""
    with suppress(*outage.FAULTS):
        counted = views.counts(store.current(), names) if names else {}
        return [name for name, each in counted.items() if each.paused]
    return []
