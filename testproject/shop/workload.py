"""What each process of the demo does: one change of a line a round, all processes at once."""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
from dataclasses import dataclass, field
from multiprocessing.synchronize import Barrier
from typing import Any

from django.db import connections, transaction

WAIT = 60
"""Seconds after which a process that hears nothing of the others gives up."""


@dataclass
class Crew:
    """The processes of one run, and what they share.

    Args:
        contender: Which of ``contenders`` follows the lines.
        processes: How many there are.
        rounds: How often each of them changes something.
    """

    contender: str
    processes: int
    rounds: int
    barrier: Barrier = field(init=False)
    counts: Any = field(init=False)
    members: list[Any] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.barrier = spawn.Barrier(self.processes + 1)
        self.counts = spawn.Array("q", 2)
        url = os.environ["REDIS_URL"]
        for number in range(self.processes):
            args = (self.contender, number, self.rounds, url, self.barrier, self.counts)
            self.members.append(spawn.Process(target=_member, args=args, daemon=True))

    def start(self) -> None:
        """Start the processes; each waits for the first round."""
        for member in self.members:
            member.start()

    def meet(self) -> None:
        """Wait until all are there: before a round, or at rest behind it."""
        self.barrier.wait(WAIT)

    def end(self) -> None:
        """End whoever is still there."""
        self.barrier.abort()
        for member in self.members:
            if member.pid is not None:
                member.join(5)
                if member.is_alive():
                    member.kill()
                    member.join()

    @property
    def events(self) -> int:
        """Changes of an order's lines, so far."""
        return int(self.counts[0])

    @property
    def passes(self) -> int:
        """Rebuilt totals, so far."""
        return int(self.counts[1])


def _member(
    contender: str, number: int, rounds: int, url: str, barrier: Barrier, counts: Any
) -> None:
    import django

    django.setup()
    from . import contenders
    from .models import Order

    contenders.connect(contender, url)
    chance = random.Random(f"demo {number}")
    orders = list(Order.objects.order_by("pk").values_list("pk", flat=True))
    try:
        for _ in range(rounds):
            barrier.wait(WAIT)
            before = contenders.passes
            events = _change(chance, orders)
            with counts.get_lock():
                counts[0] += events
                counts[1] += contenders.passes - before
            barrier.wait(WAIT)
    except (threading.BrokenBarrierError, KeyboardInterrupt):
        pass  # the demo was stopped
    finally:
        connections.close_all()


def _change(chance: random.Random, orders: list[int]) -> int:
    """Add, change, move or delete a line of a hot order; return how many orders that concerns."""
    from .models import OrderLine, Product

    order, kind = chance.choice(orders), chance.random()
    if kind < 0.3:
        product = Product.objects.order_by("pk").first()
        assert product is not None
        OrderLine.objects.create(order_id=order, product=product, quantity=1, price=product.price)
        return 1
    with transaction.atomic():
        lines = OrderLine.objects.select_for_update().filter(order_id=order).order_by("pk")
        line = lines.first()
        if line is None:
            return 0
        if kind < 0.5:
            line.delete()
            return 1
        if kind < 0.75:
            line.order_id = chance.choice(orders)
            concerned = len({order, line.order_id})
        else:
            line.quantity = chance.randint(1, 9)
            concerned = 1
        line.save()
    return concerned
