"""``--model``: ask for every row of a model, however many they are."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any

from django.core.management.base import CommandError
from django.db import Error, router
from django.db.models import Model, QuerySet

from django_recheck import receivers, store
from django_recheck.by_hand import ByHand
from django_recheck.exceptions import EventError
from django_recheck.receivers import Receiver


def followers(model: type[Model], name: str | None) -> list[Receiver[..., Any]]:
    """Return the receivers that follow a model's rows, or the one that was named.

    Raises:
        CommandError: With exit code 2: none does.
    """
    known = [found[-1] for found in receivers.registry.values()]
    following = [receiver for receiver in known if ByHand(receiver).follows(model)]
    if name is not None:
        following = [receiver for receiver in following if receiver is receivers.named(name)]
    if not following:
        who = f"The receiver {name!r} doesn't follow" if name else "No receiver follows"
        text = f"{who} {model._meta.label}: its rows concern nothing."
        raise CommandError(text, returncode=2)
    return following


def rows_of(model: type[Model]) -> QuerySet[Model]:
    """Return all rows, also those that the model's own manager hides, from where they are written.

    A replica's rows would be items of the replica.
    """
    return model._base_manager.using(router.db_for_write(model)).all()


def record(
    receiver: Receiver[..., Any],
    rows: QuerySet[Model],
    stopping: Callable[[], bool],
    advance: Callable[[], Any],
) -> int:
    """Record a pass for every row, with some of them in memory at a time.

    Args:
        receiver: Whose passes.
        rows: The rows.
        stopping: Asked at each row; True leaves out the rest.
        advance: Called at each row.

    Returns:
        How many items were recorded.

    Raises:
        CommandError: With exit code 2: the database refuses, or a row can be no item.
    """

    def read() -> Generator[Model, None, None]:
        for row in rows.iterator(chunk_size=10 * store.CHUNK):
            if stopping():
                return
            yield row
            advance()

    try:
        with closing(read()) as found:
            return receiver.recheck_many(found)
    except (Error, EventError, TypeError, ValueError) as error:
        raise CommandError(f"{receiver.name}: {error}", returncode=2) from error
