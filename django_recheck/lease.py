"""Renews every lease of the process: one thread, batched, there only while something is held.

A lease is renewed when a third of its TTL is over, so a short hold costs one entry in a set and no
round trip. The thread ends itself once nothing is held when it looks.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from . import store
from .records import Grant, clock

logger = logging.getLogger("django_recheck")


STARVED = (
    "The thread that renews leases was woken %.1f s late, and holds may outlive them: threads "
    "don't get to run. uWSGI needs enable-threads for them, gevent needs receivers that yield."
)


class Lease:
    """One hold's lease: the grant of its present pass, and for how long it may be renewed.

    Args:
        grant: The grant; replaced at every pass boundary.
        ttl: Seconds that each renewal gives.
        max_hold: Seconds after a pass began from which on it isn't renewed.
    """

    def __init__(self, grant: Grant, ttl: float, max_hold: float) -> None:
        self.ttl = ttl
        self.max_hold = max_hold
        self.begin(grant)

    def begin(self, grant: Grant) -> None:
        """Note that a pass begins, its lease fresh from the server."""
        self.grant = grant
        self.began = clock()
        self.rest(self.ttl / 3)

    def rest(self, seconds: float) -> None:
        """Leave it alone for so long."""
        self.due = clock() + seconds

    @property
    def renewable(self) -> bool:
        """Whether it is to be renewed now: neither lost nor beyond MAX_HOLD."""
        now = clock()
        return now < self.grant.deadline and now - self.began < self.max_hold


class Renewer:
    """The leases of one process and the thread that renews them."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._leases: set[Lease] = set()
        self._thread: threading.Thread | None = None
        self._until = 0.0

    @contextmanager
    def keep(self, lease: Lease) -> Iterator[None]:
        """Renew a lease for as long as the block runs."""
        if lease.max_hold <= lease.ttl:
            yield
            return
        with self._changed:
            self._leases.add(lease)
            if self._thread is None:
                self._until = lease.due  # so a burst of short holds is one thread's
                self._start()
            elif lease.due < self._until:  # else it looks early enough, and isn't woken
                self._until = lease.due
                self._changed.notify()
        try:
            yield
        finally:
            if self._pid == os.getpid():  # in a forked child the lock may be a lost thread's
                with self._changed:
                    self._leases.discard(lease)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="django-recheck-leases", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the interpreter ends, or the system has no thread left
            logger.warning("Leases aren't renewed, their holds may outlive them: %s", error)
        else:
            self._thread = thread

    def _run(self) -> None:
        while True:
            with self._changed:
                late = 0.0
                while (left := self._until - clock()) > 0:
                    self._changed.wait(left)
                    late = clock() - self._until
                if not self._leases:
                    self._thread = None
                    return
                if any(late > lease.ttl / 3 for lease in self._leases):
                    logger.warning(STARVED, late)
                now = clock()
                due = [lease for lease in self._leases if lease.due <= now]
                for lease in due:
                    lease.rest(lease.ttl / 10)  # until the next try, should this one fail
                self._until = min(lease.due for lease in self._leases)
            self.renew(due)

    def renew(self, leases: list[Lease]) -> None:
        """Renew what may be renewed, in one round trip; a lease that is lost says so."""
        due = [(lease, lease.grant) for lease in leases if lease.renewable]
        if not due:
            return
        try:
            held = store.current().renew([g for _, g in due], [lease.ttl for lease, _ in due])
        except Exception as error:  # whatever it is, the thread must live on
            logger.warning("Leases couldn't be renewed, trying on until they end: %s", error)
            return
        for (lease, grant), mine in zip(due, held, strict=True):
            if mine:
                lease.rest(lease.ttl / 3)
            else:
                grant.deadline = 0.0


renewer = Renewer()


def _forked() -> None:
    global renewer
    renewer = Renewer()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def keep(lease: Lease) -> AbstractContextManager[None]:
    """Renew a lease for as long as the returned context manager is open."""
    return renewer.keep(lease)
