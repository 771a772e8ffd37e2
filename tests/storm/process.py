"""One process of a storm: ``python -m tests.storm.process NUMBER PROCESSES ROUNDS WAY FOLDER``.

In every round all processes change a few items at the same moment, then wait until all are at rest.
The first process compares totals with items, and sets stale ones right for the next round.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import redis

CHANGES = 10
GROUPS = 3
WAIT = 120
RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end"


class Storm:
    """What a process needs to know and keeps count of."""

    def __init__(self, number: int, processes: int, rounds: int, way: str, folder: Path) -> None:
        self.number = number
        self.processes = processes
        self.rounds = rounds
        self.way = way
        self.client = redis.Redis.from_url(os.environ["RECHECK_TEST_REDIS_URL"])
        self.log = (folder / f"passes-{number}.log").open("w")
        self.events = self.stale = self.meetings = 0

    def meet(self) -> None:
        """Wait for all the others."""
        self.meetings += 1
        name, until = f"meeting:{self.meetings}", time.monotonic() + WAIT
        self.client.incr(name)
        while int(self.client.get(name) or 0) < self.processes:
            assert time.monotonic() < until, "the others are gone"
            time.sleep(0.0005)

    def rebuild(self, group_id: int, fence: int) -> None:
        """Write a group's total, and when that began and ended."""
        from tests.app.models import Group, Item

        began = time.monotonic_ns()
        total = sum(Item.objects.filter(group_id=group_id).values_list("value", flat=True))
        time.sleep(0.002)
        Group.objects.filter(pk=group_id).update(total=total)
        self.log.write(f"{group_id} {fence} {began} {time.monotonic_ns()}\n")

    def connect(self) -> None:
        """Follow the items, by @recheck or by the recipe."""
        from django.db import transaction
        from django.db.models.signals import post_delete, post_save

        from django_recheck import recheck
        from tests.app.models import Item

        if self.way != "recipe":

            @recheck(key="group", name="storm", dispatch=self.way)
            def follow(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
                self.rebuild(recheck_pass.key, recheck_pass.fence)

        else:

            def follow(sender: Any, instance: Item, **kwargs: Any) -> None:  # type: ignore[misc]
                if instance.group_id is not None:
                    transaction.on_commit(partial(self.recipe, instance.group_id))

        for signal in (post_save, post_delete):
            signal.connect(follow, sender=Item, weak=False)

    def recipe(self, group_id: int) -> None:
        """Run under a lock with a flag, as the recipe has it."""
        name, flag, token = f"l:{group_id}", f"f:{group_id}", secrets.token_hex(16)
        if not self.client.set(name, token, nx=True, ex=30):
            self.client.set(flag, 1)
            return
        for _ in range(10):
            self.client.delete(flag)
            self.rebuild(group_id, 0)
            if not self.client.exists(flag):
                break
        self.client.eval(RELEASE, 1, name, token)

    def change(self, chance: random.Random, groups: list[int]) -> None:
        """Create, change, or delete an item, in a transaction or in autocommit."""
        from django.db import transaction

        from tests.app.models import Item

        self.events += 1
        group, kind = chance.choice(groups), chance.random()
        if kind < 0.4:
            Item.objects.create(group_id=group, name="x", value=chance.randint(1, 9))
            return
        with transaction.atomic():
            items = Item.objects.select_for_update().filter(group_id=group)
            item = items.order_by("pk").first()
            if item is None:
                Item.objects.create(group_id=group, name="x", value=1)
            elif kind < 0.6:
                item.delete()
            else:
                item.value = chance.randint(1, 9)
                item.save()

    def judge(self, groups: list[int]) -> None:
        """Count stale groups at rest."""
        from django_recheck import store, views, worker
        from tests.app.models import Group, Item

        if self.way != "recipe" and views.counts(store.current()):
            worker.drain()
        for group in Group.objects.filter(pk__in=groups):
            total = sum(Item.objects.filter(group=group).values_list("value", flat=True))
            if group.total != total:
                self.stale += 1
                Group.objects.filter(pk=group.pk).update(total=total)

    def run(self) -> None:
        """Live through all rounds."""
        from tests.app.models import Group

        groups = list(Group.objects.values_list("pk", flat=True).order_by("pk"))
        chance = random.Random(self.number)
        for _ in range(self.rounds):
            self.meet()
            for _ in range(CHANGES):
                self.change(chance, groups)
            self.meet()
            if self.way == "worker" and self.number < 2:
                from django_recheck import worker

                worker.drain()
            if self.way == "worker":
                self.meet()
            if self.number == 0:
                self.judge(groups)


def main() -> None:
    """Run as the command line says, and print what was counted."""
    import django

    django.setup()
    number, processes, rounds, way, folder = sys.argv[1:]
    storm = Storm(int(number), int(processes), int(rounds), way, Path(folder))
    storm.connect()
    storm.run()
    storm.log.close()
    print(json.dumps({"events": storm.events, "stale": storm.stale}))


if __name__ == "__main__":
    main()
