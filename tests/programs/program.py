"""A program of nested atomics, captures, callbacks and events, made from a seed and run for real.

Beside the decorated receiver a plain one registers ``on_commit`` for the same events, as the
reference.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.dispatch import Signal
from django.test import TestCase

from django_recheck import dispatch, recheck

DATABASES = ("default", "other")
KEYS = (1, 2)


class Wanted(Exception):
    """What a program raises on purpose, and catches somewhere."""


@dataclass
class Log:
    """What was delivered, by ours and by the reference."""

    plain: set[int] = field(default_factory=set)
    ours: list[int] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)
    """How often each run of a connection's callbacks delivered."""
    open_runs: list[int] = field(default_factory=list)


@dataclass
class Program:
    """One random program.

    Args:
        seed: Makes it, again the same.
        breaking: Whether other apps' callbacks may raise without being robust.
    """

    seed: int
    breaking: bool = False

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.probe = Signal()
        self.log = Log()
        self.number = 0

    def run(self) -> Log:
        """Run it, and return what was delivered."""
        log, probe = self.log, self.probe

        def plain(sender: Any, number: int, using: str, **kwargs: Any) -> None:
            transaction.on_commit(partial(log.plain.add, number), using=using)

        @recheck(key=lambda key, **_: key, name=f"program-{self.seed}")
        def rebuild(sender: Any, **kwargs: Any) -> None: ...

        probe.connect(rebuild)
        probe.connect(plain)
        with _watched(log):
            for _ in range(self.chance.randint(1, 3)):
                try:
                    self._block(0)
                except Wanted:
                    continue
        return log

    def _block(self, depth: int) -> None:
        for _ in range(self.chance.randint(1, 4)):
            kind = self.chance.random()
            if kind < 0.45 or depth > 4:
                self._event()
            elif kind < 0.75:
                self._atomic(depth)
            elif kind < 0.87:
                self._capture(depth)
            else:
                self._foreign()

    def _event(self) -> None:
        self.number += 1
        using, key = self.chance.choice(DATABASES), self.chance.choice(KEYS)
        self.probe.send(sender=None, number=self.number, using=using, key=key)

    def _atomic(self, depth: int) -> None:
        chance, using = self.chance, self.chance.choice(DATABASES)
        durable = not connections[using].in_atomic_block and chance.random() < 0.3
        savepoint, raises, caught = chance.random() < 0.6, chance.random(), chance.random()
        try:
            with transaction.atomic(using=using, savepoint=savepoint, durable=durable):
                self._block(depth + 1)
                if raises < 0.3:
                    raise Wanted
                if raises < 0.4:
                    transaction.set_rollback(True, using=using)
        except Wanted:
            # Where an inner block without a savepoint failed, its outer one is broken: it must end.
            if caught < 0.4 or connections[using].needs_rollback:
                raise

    def _capture(self, depth: int) -> None:
        using, execute = self.chance.choice(DATABASES), self.chance.random() < 0.7
        if not connections[using].in_atomic_block:
            self._event()  # outside of a transaction there is nothing to capture
            return
        with TestCase.captureOnCommitCallbacks(using=using, execute=execute):
            self._block(depth + 1)

    def _foreign(self) -> None:
        using = self.chance.choice(DATABASES)
        raising = self.chance.random() < 0.5
        robust = self.chance.random() < 0.5 if not raising or self.breaking else True
        if connections[using].in_atomic_block:
            transaction.on_commit(_raise if raising else _nothing, using=using, robust=robust)


def _raise() -> None:
    raise Wanted


def _nothing() -> None: ...


@contextmanager
def _watched(log: Log) -> Iterator[None]:
    """Note what arrives where events are delivered, and how often a run of callbacks delivers."""
    real_deliver, real_hooks = dispatch.deliver, BaseDatabaseWrapper.run_and_clear_commit_hooks

    def deliver(batch: Any) -> Any:
        for ready in batch:
            (group,) = ready.events.groups
            log.ours.append(_number(group.body))
        if log.open_runs:
            log.open_runs[-1] += 1
        log.open_runs.append(0)
        try:
            return real_deliver(batch)
        finally:
            log.open_runs.pop()

    def hooks(self: Any) -> None:
        log.open_runs.append(0)
        try:
            real_hooks(self)
        finally:
            log.runs.append(log.open_runs.pop())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "deliver", deliver)
        patch.setattr(BaseDatabaseWrapper, "run_and_clear_commit_hooks", hooks)
        yield


def _number(body: str) -> int:
    import json

    number: int = json.loads(body)[2]["number"]
    return number
