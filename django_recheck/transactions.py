"""Open transactions: no pass runs in one, and none is left behind by a pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError


def opened() -> BaseDatabaseWrapper | None:
    """Return a connection of this thread with an open transaction; a TestCase's own don't count."""
    return next(filter(is_open, connections.all(initialized_only=True)), None)


def is_open(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a connection has an open transaction; a TestCase's own doesn't count."""
    if connection.in_atomic_block:
        return not all(getattr(b, "_from_testcase", False) for b in connection.atomic_blocks)
    return connection.connection is not None and not connection.autocommit


def refuse_manual(connection: BaseDatabaseWrapper, who: str) -> None:
    """Refuse to follow changes of which nobody can tell when they are committed.

    Raises:
        TransactionManagementError: Autocommit is off, outside of any atomic block.
    """
    if connection.connection is not None and not connection.autocommit:
        raise TransactionManagementError(
            f"{who} can't follow changes of {connection.alias!r}: autocommit is switched off by "
            "hand, so nobody tells when they are committed. Use transaction.atomic()."
        )


@contextmanager
def none_left_open() -> Iterator[None]:
    """Roll back what a receiver leaves open in this thread; the connections go with it.

    Raises:
        TransactionManagementError: It left a transaction open.
    """
    found: list[BaseDatabaseWrapper] = []
    try:
        yield
    finally:
        found += filter(is_open, connections.all(initialized_only=True))
        for connection in found:
            if not any(getattr(b, "_from_testcase", False) for b in connection.atomic_blocks):
                connection.close()
                del connections[connection.alias]  # it would stay in its block for ever
    if found:
        raise TransactionManagementError(
            f"The receiver left a transaction of {found[0].alias!r} open, which was rolled back."
        )
