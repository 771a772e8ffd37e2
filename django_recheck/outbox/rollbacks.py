"""Counts a connection's rollbacks to savepoints, those by hand and in raw SQL, too.

Django drops the callbacks of a block that is rolled back. After ``savepoint_rollback()`` by hand
they stay, although their rows are gone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

_counted: weakref.WeakKeyDictionary[BaseDatabaseWrapper, int] = weakref.WeakKeyDictionary()


def count(connection: BaseDatabaseWrapper) -> int:
    """Return how many there were since this was first asked of the connection."""
    if connection not in _counted:
        _counted[connection] = 0
        # Not at the end, where the context manager of another wrapper takes out its own.
        connection.execute_wrappers.insert(0, _watch)
    return _counted[connection]


def _watch(
    execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Mapping[str, Any]
) -> Any:
    if "ROLLBACK" in str(sql).upper():  # after blanks or a comment, too; one too many costs a look
        _counted[context["connection"]] += 1
    return execute(sql, params, many, context)
