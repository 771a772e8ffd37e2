"""An event during a pass, so that a test sees its receiver rechecked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError
from django.test import TestCase

from .. import conf, transactions
from ..passes import Pass, current_pass, elsewhere
from ..receivers import Receiver
from .overrides import override
from .owed import decorated

_AT_ONCE: Final = {
    "DISPATCH": "inline",
    "DELAY": 0,
    "MAX_WAIT": None,
    "INLINE_BUDGET": conf.LONGEST,
    "MAX_PASSES": 10,
    "ON_REDIS_ERROR": "raise",
}


@contextmanager
def event_during_pass(
    receiver: Receiver[..., Any], change: Callable[[], object]
) -> Iterator[list[Pass]]:
    """Prove that a receiver copes with a recheck: something changes during its next pass.

    When the receiver has done its work, and still holds the lock, ``change`` is called, as if by
    another process. Its event asks for one more pass, which must put right what the first one has
    left stale: look at the result after the block.

    Within the block the receiver is run at once, whatever its dispatch and delay are, and in a
    TestCase what the block has changed counts as committed at its end.

    Args:
        receiver: The receiver.
        change: Changes something that concerns the same key, so that its signal is sent.

    Returns:
        A list that holds the passes of that key as they come: two, usually.

    Raises:
        AssertionError: At the block's end: there was no pass, or not a second one.
        Exception: What the receiver or ``change`` raised.
        TransactionManagementError: It stands in a transaction that isn't the test's own.
    """
    if (connection := transactions.opened()) is not None:
        raise TransactionManagementError(
            f"event_during_pass() can't stand in a transaction of {connection.alias!r}: no pass "
            "runs there. Put the transaction into its block."
        )
    watched = _Watched(decorated(receiver), change)
    with override(RECEIVERS={receiver.name: _AT_ONCE}):
        receiver.func = watched
        try:
            with _committed():
                yield watched.passes
        finally:
            receiver.func = watched.func
    watched.judge()


class _Watched:
    """A receiver's function, with a change at the end of its first pass."""

    def __init__(self, receiver: Receiver[..., Any], change: Callable[[], object]) -> None:
        self.name = receiver.name
        self.func: Callable[..., Any] = receiver.func
        self.change: Callable[[], object] | None = change
        self.passes: list[Pass] = []
        self.error: Exception | None = None

    def __call__(self, **named: Any) -> Any:
        run = current_pass()
        assert run is not None
        if self.passes and run.item != self.passes[0].item:
            return self.func(**named)
        self.passes.append(run)
        with self._noting():
            returned = self.func(**named)
        if inspect.isawaitable(returned):
            return self._awaited(returned)
        self._meanwhile()
        return returned

    async def _awaited(self, returned: Any) -> None:
        with self._noting():
            await returned
        await sync_to_async(self._meanwhile)()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.error = self.error or error
            raise

    def _meanwhile(self) -> None:
        change, self.change = self.change, None
        if change is not None:
            try:
                with _committed():
                    elsewhere(change)
            except Exception as error:
                self.error = error  # the test's mistake, not a failed pass

    def judge(self) -> None:
        """Say what the test must hear of."""
        if self.error is not None:
            raise self.error
        if not self.passes:
            raise AssertionError(f"{self.name} had no pass: nothing in the block sent it an event.")
        if len(self.passes) == 1:
            raise AssertionError(
                f"{self.name} had one pass for {self.passes[0].key!r}, not two: what was changed "
                "during it sent no event of that key."
            )


@contextmanager
def _committed() -> Iterator[None]:
    """Commit, in a TestCase, what the block changes: there the test's own transaction never is."""
    with ExitStack() as stack:
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block:
                stack.enter_context(_committed_in(connection))
        yield


@contextmanager
def _committed_in(connection: BaseDatabaseWrapper) -> Iterator[None]:
    before = len(connection.run_on_commit)
    try:
        with TestCase.captureOnCommitCallbacks(using=connection.alias, execute=True):
            yield
    finally:
        del connection.run_on_commit[before:]  # an outer capture would call them once more
