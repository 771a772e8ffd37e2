"""What each process of the demo does: one change of a line a round, all processes at once."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections.abc import Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from django.db import connections, transaction

WAIT = 60
"""Seconds after which a process that hasn't answered is given up."""


class MemberLost(Exception):
    """A process of a crew has ended, or doesn't answer."""


class Crew:
    """The processes of one run. Each has a pipe, by which either end learns that the other is gone.

    Args:
        contender: Which of ``contenders`` follows the lines.
        shares: How many events each process is to cause; as many processes as shares.
        orders: The hot orders.
        products: What is sold.

    Attributes:
        events: Changes of an order's lines, so far.
        passes: Rebuilt totals, so far.
    """

    def __init__(
        self,
        contender: str,
        shares: Sequence[int],
        orders: Sequence[int],
        products: Sequence[int],
    ) -> None:
        self.events = 0
        self.passes = 0
        self._arguments = [
            (contender, number, share, orders, products, os.environ["REDIS_URL"])
            for number, share in enumerate(shares)
        ]
        self._pipes: list[Any] = []
        self._members: list[Any] = []

    def start(self) -> None:
        """Start the processes and wait until they are ready. Ctrl-C is for this one alone."""
        spawn = multiprocessing.get_context("spawn")
        resource_tracker.ensure_running()  # its start, inside the block, would end the block
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            for arguments in self._arguments:
                mine, its = spawn.Pipe()
                member = spawn.Process(target=_member, args=(its, *arguments), daemon=True)
                member.start()
                its.close()
                self._pipes.append(mine)
                self._members.append(member)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._hear()

    def change(self) -> None:
        """Let each change something, all at once, and wait until they have done all that follows.

        Raises:
            MemberLost: One of them has ended, or doesn't answer.
        """
        try:
            for pipe in self._pipes:
                pipe.send("go")
        except OSError as error:
            raise MemberLost from error
        self._hear()

    def _hear(self) -> None:
        for pipe in self._pipes:
            try:
                if not pipe.poll(WAIT):
                    raise MemberLost
                events, passes = pipe.recv()
            except (EOFError, OSError) as error:
                raise MemberLost from error
            self.events += events
            self.passes += passes

    def end(self) -> None:
        """End the processes, and whoever doesn't hear of it."""
        for pipe in self._pipes:
            pipe.close()
        for member in self._members:
            member.join(5)
            if member.is_alive():
                member.kill()
                member.join()


def _member(
    pipe: Connection[Any, Any],
    contender: str,
    number: int,
    share: int,
    orders: Sequence[int],
    products: Sequence[int],
    url: str,
) -> None:
    import django

    django.setup()
    from . import contenders

    contenders.connect(contender, url)
    chance = random.Random(f"demo {number}")
    try:
        pipe.send((0, 0))
        while pipe.recv():
            before = contenders.passes
            events = _change(chance, share, orders, products) if share else 0
            share -= events
            pipe.send((events, contenders.passes - before))
    except (EOFError, OSError):
        pass  # the run is over, or the demo is
    finally:
        connections.close_all()


def _change(
    chance: random.Random, most: int, orders: Sequence[int], products: Sequence[int]
) -> int:
    """Add, change, move or delete a line of a hot order.

    Returns:
        How many events that is, ``most`` at most: one for each order that it concerns.
    """
    from .models import OrderLine, Product

    order, kind = chance.choice(orders), chance.random()
    other, quantity = chance.choice([o for o in orders if o != order]), chance.randint(1, 9)
    product = chance.choice(products)
    with transaction.atomic():
        lines = OrderLine.objects.select_for_update().filter(order_id=order).order_by("pk")
        line = None if kind < 0.3 else lines.first()
        if line is not None and kind < 0.5:
            line.delete()
            return 1
        if line is not None and kind < 0.75 and most > 1:
            line.order_id = other
            line.save()
            return 2
        if line is not None:
            line.quantity = quantity
            line.save()
            return 1
    # No transaction around this one: it commits by itself, and its events come afterwards.
    price = Product.objects.values_list("price", flat=True).get(pk=product)
    OrderLine.objects.create(order_id=order, product_id=product, quantity=quantity, price=price)
    return 1
