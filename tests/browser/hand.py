"""A process of the shop that does what it is told, a line at a time.

A pass that it runs says so and waits for a word: how it is to end. So it holds its lock until told.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def say(**words: Any) -> None:
    """Tell the test."""
    print(json.dumps(words), flush=True)


def heard() -> list[Any]:
    """Return what the test says next; its end ends this process, too, as a kill would."""
    line = sys.stdin.readline()
    if not line:
        os._exit(0)
    return list(json.loads(line))


def wait(key: Any) -> None:
    """Hold the lock until the test says how the pass ends.

    Raises:
        ValueError: It is to fail.
    """
    say(passing=key)
    word, *rest = heard()
    if word == "fail":
        raise ValueError(*rest)


def main() -> None:
    """Do what is asked until nothing more is."""
    import django

    django.setup()
    from shop import receivers, totals
    from shop.models import OrderLine, Product

    from django_recheck import worker

    for name in ("rebuild_order_total", "rebuild_document", "rebuild_statistics"):
        setattr(totals, name, wait)
    by_name = {
        "order-total": receivers.refresh_order_total,
        "search-document": receivers.refresh_document,
        "customer-statistics": receivers.refresh_statistics,
    }
    say(ready=True)
    while True:
        word, *rest = heard()
        if word == "change":
            OrderLine.objects.create(order_id=rest[0], product=Product.objects.all()[0], price=1)
            say(done=word)
        elif word == "drain":
            say(done=worker.drain().passes)
        else:
            name, key = rest
            key = tuple(key) if isinstance(key, list) else key
            say(done=by_name[name].recheck(key=key).name)


if __name__ == "__main__":
    main()
