"""Three ways to keep an order's total while many processes change its lines at once.

``lock`` and ``recipe`` are what people write by themselves; ``recheck`` is the shop's own receiver.
All three follow the same signals with the same keys, run after the commit, and rebuild by the same
function. A pass takes a moment between reading and writing, as real ones do.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import redis
from django.db import transaction
from django.db.models.signals import post_delete, post_save

from . import receivers, totals
from .models import Order, OrderLine

NAMES = ("lock", "recipe", "recheck")
MOMENT = 0.002
"""Seconds between reading the lines and writing the total."""
TTL = 30
MOST_LOOPS = 10
RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end"

passes = 0


def rebuild(order_id: int) -> None:
    """Rebuild an order's total, and count that."""
    global passes
    passes += 1
    total = totals.order_total(order_id)
    time.sleep(MOMENT)
    Order.objects.filter(pk=order_id).update(total=total)


def _lock_name(order_id: int) -> str:
    return f"shop-demo:lock:{order_id}"


def _flag_name(order_id: int) -> str:
    return f"shop-demo:flag:{order_id}"


def lock(client: redis.Redis, order_id: int) -> None:
    """Run under a plain lock; what comes while it is held is dropped."""
    mine = client.lock(_lock_name(order_id), timeout=TTL, blocking=False)
    if mine.acquire():
        try:
            rebuild(order_id)
        finally:
            mine.release()


def recipe(client: redis.Redis, order_id: int) -> None:
    """Run under a lock with a flag that the holder looks at before it releases."""
    name, flag, token = _lock_name(order_id), _flag_name(order_id), secrets.token_hex(16)
    if not client.set(name, token, nx=True, ex=TTL):
        client.set(flag, 1)
        return
    try:
        for _ in range(MOST_LOOPS):
            client.delete(flag)
            rebuild(order_id)
            if not client.exists(flag):
                break
    finally:
        client.eval(RELEASE, 1, name, token)


def forget(url: str, orders: Iterable[int]) -> None:
    """Remove the locks and flags of some orders: the recipe leaves flags behind."""
    names = [name(order_id) for order_id in orders for name in (_lock_name, _flag_name)]
    with redis.Redis.from_url(url) as client:
        client.delete(*names)


def connect(name: str, url: str) -> None:
    """Let one contender follow the lines of this process. Only totals are compared."""
    receivers.order_total_changed.disconnect(receivers.refresh_statistics)
    totals.rebuild_order_total = rebuild
    if name == "recheck":
        return
    ways: dict[str, Callable[[redis.Redis, int], None]] = {"lock": lock, "recipe": recipe}
    run = partial(ways[name], redis.Redis.from_url(url))

    def follow(sender: Any, instance: OrderLine, **kwargs: Any) -> None:
        for order_id in receivers.old_and_new(instance):
            transaction.on_commit(partial(run, order_id))

    for signal in (post_save, post_delete):
        signal.disconnect(receivers.refresh_order_total, sender=OrderLine)
        signal.connect(follow, sender=OrderLine, weak=False)
