"""The processes of a chaos run: writers whose receivers work inline, and workers.

A process says on the board when it may be killed without losing what only it knows of: workers
nearly always, writers in a pass under its lock, for all they have committed stands in Redis then.
"""

from __future__ import annotations

import logging
import os
import random
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from django.db import connection
from django.db.models.signals import post_delete, post_save
from redis.exceptions import RedisError

from django_recheck import Pass, outage, recheck, worker
from tests.app.models import Group, Item
from tests.storm.changes import Changes, concerned

WRITERS: Final = 8
WORKERS: Final = 2
SLOTS: Final = WRITERS + WORKERS
GROUPS: Final = 4
"""Those of the first half are followed inline, the others by the workers."""
FOUND: Final = ("stale", "lost_to_an_empty_restart", "left")
PREPARE: Final = """
CREATE TABLE chaos_pass (
  id bigserial PRIMARY KEY, slot int NOT NULL, grp bigint NOT NULL, fence bigint NOT NULL,
  began bigint NOT NULL, ended bigint, lost boolean
)
"""
fork = get_context("fork")


class Board:
    """Memory that all processes share. Times are ``time.monotonic_ns()``."""

    def __init__(self) -> None:
        self.may_die: Any = fork.Array("b", SLOTS, lock=False)
        self.has_read: Any = fork.Array("b", SLOTS, lock=False)
        """Whether it is in a pass, between its reading and its writing."""
        self.passes: Any = fork.Array("q", SLOTS, lock=False)
        self.events: Any = fork.Array("q", SLOTS, lock=False)
        self.changed: Any = fork.Array("q", GROUPS + 1, lock=False)
        """When the last change of each group, by its primary key, was begun."""
        self.parked: Any = fork.Array("b", SLOTS, lock=False)
        """Whether a writer waits for the end of a rest."""
        self.quiet: Any = fork.Value("b", 0, lock=False)
        self.over: Any = fork.Value("b", 0, lock=False)
        self.found: Any = fork.Array("q", len(FOUND), lock=False)
        """What was found at all rests, in the order of FOUND."""


class Process:
    """What a slot's process is, for as long as nobody kills it."""

    def __init__(self, slot: int, board: Board) -> None:
        self.slot = slot
        self.board = board
        self.is_worker = slot >= WRITERS

    def live(self, folder: Path, number: int) -> None:
        """Do what the slot's role is until the run is over."""
        logging.basicConfig(filename=folder / f"log-{self.slot}", level=logging.INFO, force=True)
        self.follow("worker", 1)
        self.follow("inline", 0)  # last: who dies in its pass has told Redis all of the change
        if self.is_worker:
            self.work()
        else:
            self.write(number)
        connection.close()
        os._exit(0)

    def follow(self, dispatch: str, half: int) -> None:
        """Connect the receiver of one half of the groups."""

        def mine(**named: Any) -> list[int]:
            return [group for group in concerned(**named) if (group - 1) * 2 // GROUPS == half]

        @recheck(keys=mine, name=f"chaos-{dispatch}", dispatch=dispatch)
        def rebuild(sender: Any, recheck_pass: Pass, **kwargs: Any) -> None:
            self.rebuild(recheck_pass)

        for signal in (post_save, post_delete):
            signal.connect(rebuild, sender=Item, weak=False)

    def rebuild(self, run: Pass) -> None:
        """Write a group's total, and when that began and ended."""
        self.board.passes[self.slot] += 1
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO chaos_pass (slot, grp, fence, began) VALUES (%s, %s, %s, %s)"
                " RETURNING id",
                [self.slot, run.key, run.fence, time.monotonic_ns()],
            )
            (number,) = cursor.fetchone()
        self.may_die(run)
        total = sum(Item.objects.filter(group_id=run.key).values_list("value", flat=True))
        self.board.has_read[self.slot] = True
        time.sleep(random.random() * 0.02)
        self.board.has_read[self.slot] = False
        self.may_die(run)  # from here on what it has written may be stale, if it isn't held
        Group.objects.filter(pk=run.key).update(total=total)
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE chaos_pass SET ended = %s, lost = %s WHERE id = %s",
                [time.monotonic_ns(), run.lost, number],
            )
        self.board.may_die[self.slot] = self.is_worker and not run.lost

    def may_die(self, run: Pass) -> None:
        """Say whether somebody else would know all that this process knows."""
        held = run.fence > 0 and run.deadline - time.monotonic() > 0.3
        self.board.may_die[self.slot] = held and not outage._owed

    def write(self, number: int) -> None:
        """Change rows, and go on until nothing is owed any more."""

        def before(groups: set[int]) -> None:
            for group in groups:
                self.board.changed[group] = time.monotonic_ns()

        groups = list(range(1, GROUPS + 1))
        changes = Changes((self.slot, number), groups, before)
        while not self.board.over.value:
            if self.board.quiet.value and not outage._owed:
                self.board.parked[self.slot] = True
                time.sleep(0.01)
                continue
            self.board.parked[self.slot] = False
            known = changes.events
            changes.change()
            self.board.events[self.slot] += changes.events - known
            time.sleep(changes.chance.random() * 0.02)

    def work(self) -> None:
        """Drain whatever is ripe."""
        self.board.may_die[self.slot] = True
        while not self.board.over.value:
            try:
                worker.drain()
            except RedisError:
                time.sleep(0.1)
            time.sleep(0.01)
