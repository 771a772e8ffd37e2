"""Other settings for a while: ``override``, ``immediate``, ``isolated``."""

from __future__ import annotations

import copy
import os
import secrets
from contextlib import suppress
from typing import Any
from unittest import TestCase

from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from django.test.utils import TestContextDecorator
from redis.exceptions import RedisError

from .. import checks, conf, outage, receivers, store, views
from ..connection import text
from ..records import Item


class override(TestContextDecorator):  # noqa: N801 - it is named and used like override_settings
    """Change some of the ``RECHECK`` settings, for a block, a test, or a ``TestCase`` class.

    The others stay as they are; so do those of a receiver in ``RECEIVERS`` that isn't changed.
    A class has them from ``setUpClass`` on, so ``setUpTestData`` has them, too.

    Args:
        **settings: By their names in ``RECHECK``.

    Raises:
        ImproperlyConfigured: When it begins: there is no such setting, or it can't be that.

    >>> from django_recheck.testing import override
    >>> with override(TTL=5, RECEIVERS={"order-total": {"DISPATCH": "worker"}}):
    ...     ...
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._settings = settings

    def _changes(self) -> dict[str, Any]:
        return self._settings

    def enable(self) -> None:
        """Begin."""
        changes, mine = self._changes(), conf.configured()
        for problem in checks.names_and_values(changes):
            raise ImproperlyConfigured(f"{problem.msg} {problem.hint}")
        tuned = {**mine.get("RECEIVERS", {})}
        for name, values in changes.get("RECEIVERS", {}).items():
            tuned[name] = {**tuned.get(name, {}), **values}
        self._inner = override_settings(RECHECK={**mine, **changes, "RECEIVERS": tuned})
        self._inner.enable()

    def disable(self) -> None:
        """End."""
        self._inner.disable()

    def decorate_class(self, cls: Any) -> Any:
        """Have it in force in all of a ``unittest.TestCase`` class, and in those derived of it."""
        if not issubclass(cls, TestCase):
            raise TypeError(
                f"{type(self).__name__}() decorates tests and unittest.TestCase classes, not "
                f"{cls.__name__}: use it in a fixture there."
            )
        cls._recheck = [self, *vars(cls).get("_recheck", ())]
        before = cls.setUpClass.__func__

        def set_up(cls: type[TestCase]) -> None:
            for base in reversed(cls.__mro__):
                for one in vars(base).get("_recheck", ()):
                    cls.enterClassContext(copy.copy(one))
            before(cls)

        cls.setUpClass = classmethod(set_up)
        return cls


class immediate(override):  # noqa: N801 - as above
    """Have every receiver called in its signal, without lock and Redis, for a block, test or class.

    As ``RECHECK["DISPATCH"] = "immediate"``, but also for receivers that have a dispatch of their
    own.

    >>> from django_recheck.testing import immediate
    >>> with immediate():
    ...     ...
    """

    def __init__(self) -> None:
        super().__init__(DISPATCH="immediate")

    def _changes(self) -> dict[str, Any]:
        return {**self._settings, "RECEIVERS": dict.fromkeys(receivers.registry, self._settings)}


class isolated(override):  # noqa: N801 - as above
    """Keep a test's events to itself: under a prefix that nobody else has, and gone afterwards.

    No other process on the same Redis meets them: no worker of a site, no other process of the
    suite. A class that is decorated has one for each test. Nothing is asked of Redis, and none
    need be there, unless the test uses it.

    >>> from django_recheck.testing import isolated
    >>> with isolated():
    ...     ...
    """

    def __init__(self) -> None:
        super().__init__()

    def _changes(self) -> dict[str, Any]:
        return {"PREFIX": f"test-{os.getpid()}-{secrets.token_hex(8)}"}

    def disable(self) -> None:
        """End, and remove what is left."""
        for used in store.used(conf.get("PREFIX")):
            with suppress(RedisError):  # the test has stopped it; what it held is nobody else's
                _remove(used)
        store.forget()
        outage.forget()
        super().disable()

    def decorate_class(self, cls: Any) -> Any:
        """Give each test of a class a prefix of its own."""
        return TestContextDecorator.decorate_class(self, cls)


def _remove(used: store.Store) -> None:
    """Remove all keys of a store, as its indexes name them."""
    keys = [used.meta, *used.told]
    for lane in used.lanes([""]):
        keys += [lane.keys[-1], f"{lane.tag}:fence", lane.minutes]
    for lane in used.lanes(views.receivers(used)):
        (running,) = used.ask(("ZRANGE", lane.keys[1], 0, -1, "WITHSCORES"))
        keys += [*lane.keys[:4], *(lane.lock(Item(lane.receiver, text(i))) for i, _ in running)]
    used.ask(*(("DEL", key) for key in keys))
