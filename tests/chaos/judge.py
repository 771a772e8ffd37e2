"""What a chaos run has shown: what is stale, what overlapped, what is left, how long it took."""

from __future__ import annotations

import logging
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import django

if TYPE_CHECKING:
    from .__main__ import Run
    from .process import Board


def prepare() -> None:
    """Make the database ready, and leave no connection open: the processes are forked."""
    django.setup()
    from django.core.management import call_command
    from django.db import connection, connections

    from tests.app.models import Group

    from .process import GROUPS, PREPARE

    logging.getLogger("django_recheck").addHandler(logging.NullHandler())
    call_command("migrate", run_syncdb=True, verbosity=0)
    Group.objects.bulk_create(Group(pk=number, name="") for number in range(1, GROUPS + 1))
    with connection.cursor() as cursor:
        cursor.execute(PREPARE)
    connections.close_all()


def settle(board: Board, emptied: list[int]) -> None:
    """Drain, as cron would, until nothing is running or pending; then note what isn't right."""
    from django.core.management import call_command

    from django_recheck import store, views

    from .process import SLOTS, Process

    process = Process(SLOTS - 1, board)
    process.follow("worker", 1)
    process.follow("inline", 0)
    until = time.monotonic() + 60
    while any(c.running or c.due for c in views.counts(store.current()).values()):
        assert time.monotonic() < until
        call_command("recheck_run", verbosity=0)
        time.sleep(0.05)
    names = store.current().client.scan_iter(count=10_000)
    kept = (b":fence", b":minutes")
    left = [key for key in names if b":meta" not in key and not key.endswith(kept)]
    noted = (*_stale(board, emptied), len(left))
    for index, number in enumerate(noted):
        board.found[index] += number


def _stale(board: Board, emptied: list[int]) -> tuple[int, int]:
    """Count groups whose total is wrong, and set them right.

    Returns:
        How many, and how many more whose last change was begun before the server last came back
        empty: what was pending then is gone.
    """
    from tests.app.models import Group, Item

    stale = lost = 0
    for group in Group.objects.all():
        total = sum(Item.objects.filter(group=group).values_list("value", flat=True))
        if group.total != total:
            gone_with_it = any(board.changed[group.pk] < time for time in emptied)
            lost, stale = lost + gone_with_it, stale + (not gone_with_it)
            Group.objects.filter(pk=group.pk).update(total=total)
    return stale, lost


@dataclass
class Span:
    """One pass, from its begin to its end or to its holder's death."""

    slot: int
    group: int
    fence: int
    began: int
    ended: int
    killed: bool
    lost: bool


def spans(run: Run) -> list[Span]:
    """Read the passes; who was killed in one ended then."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT slot, grp, fence, began, ended, lost FROM chaos_pass ORDER BY began")
        rows = cursor.fetchall()
    found = []
    for slot, group, fence, began, ended, lost in rows:
        death = min((t for s, t in run.killed if s == slot and t > began), default=began)
        found.append(Span(slot, group, fence, began, ended or death, ended is None, bool(lost)))
    return found


def overlaps(passes: list[Span], emptied: list[int]) -> dict[str, int]:
    """Count passes of a group that began while another was under way, by what explains it."""
    found = {"outlived": 0, "emptied": 0, "unexplained": 0}
    groups: dict[int, list[Span]] = defaultdict(list)
    for one in passes:
        if one.fence:
            groups[one.group].append(one)
    for line in groups.values():
        for index, one in enumerate(line):
            for later in line[index + 1 :]:
                if later.began >= one.ended:
                    break
                if one.lost:
                    found["outlived"] += 1
                elif any(one.began < time < later.began for time in emptied):
                    found["emptied"] += 1
                else:
                    found["unexplained"] += 1
    return found


def recoveries(passes: list[Span]) -> list[float]:
    """Return, in TTLs, how long after a holder's death the next pass of its group began."""
    from .settings import TTL

    found = []
    for one in passes:
        if one.killed:
            later = (p.began for p in passes if p.group == one.group and p.began > one.ended)
            found.append((min(later, default=one.ended) - one.ended) / 1e9 / TTL)
    return found


def judge(run: Run) -> dict[str, Any]:
    """Compare what is there with what was promised."""
    from .process import FOUND

    passes, board = spans(run), run.board
    noted = dict(zip(FOUND, board.found, strict=True))
    overlapping, times = overlaps(passes, run.emptied), recoveries(passes)
    return {
        "held": not (noted["stale"] or noted["left"] or overlapping["unexplained"]),
        "rests": run.rests,
        "events": sum(board.events),
        "passes": len(passes),
        "unlocked": sum(not one.fence for one in passes),
        "faults": dict(run.faults),
        **noted,
        "overlaps": overlapping,
        "recovery_in_ttls": {
            "median": round(statistics.median(times), 2) if times else None,
            "longest": round(max(times), 2) if times else None,
        },
    }
