"""An uncontended hold with one pass that does nothing, and an event on an item that is held."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Final

import redis

from .figures import Figure
from .harness import Bench
from .recipe import Recipe

PLACES: Final = ("P", "S")
TIMES: Final = 100


def run(bench: Bench) -> Iterator[Figure]:
    """Compare with redis-py's Lock, and with the recipe on redis-py."""
    from django_recheck import Outcome, conf, recheck, store
    from django_recheck.records import Item

    @recheck(name="free", key=lambda **_: 1)
    def free(sender: Any, **kwargs: Any) -> None: ...

    client = redis.Redis.from_url(bench.server.url)
    recipe = Recipe(client)
    current, options = store.current(), conf.Options("bare", {})
    item = Item("bare", "1")

    def hold() -> None:
        assert free.recheck(key=1) is Outcome.RAN

    def scripts() -> None:
        grant = current.request(item, b"", 1, options)
        assert not isinstance(grant, str)
        assert current.finish(grant, "ok", options)[0] == "DONE"

    def lock() -> None:
        mine = client.lock("lock", timeout=30, blocking=False)
        assert mine.acquire()
        mine.release()

    def by_recipe() -> None:
        assert recipe.run("1", lambda: None)

    limits = {"P": (1.05, 0.60), "S": (1.10, 0.70)}.get(bench.place, (None, None))
    found = bench.paired(hold, scripts, lock, by_recipe, times=TIMES)
    against = "redis-py Lock", "the recipe on redis-py"
    for other, times, most in zip(against, found[2:], limits, strict=True):
        yield bench.ratio(found[0], times, work="uncontended hold", against=other, most=most)
    yield bench.ratio(found[1], found[2], work="request and finish alone", against=against[0])
    yield from _refused(bench, client)


def _refused(bench: Bench, client: redis.Redis) -> Iterator[Figure]:
    from django_recheck import Outcome, recheck, store
    from django_recheck.keys import item_text
    from django_recheck.records import Item

    def nothing(sender: Any, **kwargs: Any) -> None: ...

    held = recheck(name="held", key=lambda **_: 1, ttl=600)(nothing)
    began, over = threading.Event(), threading.Event()

    @recheck(name="mine", key=lambda **_: 1, ttl=600)
    def mine(sender: Any, **kwargs: Any) -> None:
        began.set()
        over.wait()

    item = Item("held", item_text(1, "default", None))
    store.current().request(item, b"", 1, held.options)
    client.set("held", "another's", ex=600)

    def event() -> None:
        assert held.recheck(key=1) is Outcome.COALESCED

    def here() -> None:
        assert mine.recheck(key=1) is Outcome.COALESCED

    def lock() -> None:
        assert not client.lock("held", timeout=600, blocking=False).acquire()

    holder = threading.Thread(target=lambda: mine.recheck(key=1))
    holder.start()
    began.wait()
    try:
        times = bench.paired(event, here, lock, times=TIMES)
    finally:
        over.set()
        holder.join()
    against = "redis-py Lock, refused"
    most = {"P": 1.0, "S": 1.05}.get(bench.place)
    yield bench.ratio(times[0], times[2], work="event on a held item", against=against, most=most)
    work = "event on an item held by this process"
    yield bench.ratio(times[1], times[2], work=work, against=against, most=0.05)
