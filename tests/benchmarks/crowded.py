"""A hold, an event and a claim where a million items are owed and 100,000 held already."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.servers import running

from . import places
from .figures import Figure
from .harness import Bench

PLACES: Final = ("P",)
OWED: Final = 1_000_000
HELD: Final = 100_000
TIMES: Final = 100
CHUNK: Final = 10_000
FILL: Final = """
for key = ARGV[1], ARGV[2] do
  redis.call('HSET', KEYS[1], key, ARGV[3])
  redis.call('ZADD', KEYS[2], ARGV[4], key)
  if ARGV[5] ~= '' then redis.call('SET', KEYS[3] .. key, ARGV[5], 'PX', 600000) end
end
"""
"""Copies of one item's record, its place in an index, and its lock."""


def run(bench: Bench) -> Iterator[Figure]:
    """Compare a full server with an empty one."""
    from django.conf import settings

    from django_recheck import Outcome, recheck, store
    from django_recheck.keys import item_text
    from django_recheck.records import Grant, Item
    from django_recheck.survey import survey
    from django_recheck.views import Part

    @recheck(name="crowd", key=lambda **_: 1, ttl=600, refresh=False)
    def crowd(sender: Any, **kwargs: Any) -> None: ...

    options = crowd.options

    def item(key: int) -> Item:
        return Item(crowd.name, item_text(key, "default", None))

    def fill() -> None:
        owed, held = bench.scaled(OWED), bench.scaled(HELD)
        current = store.current()
        state, running_, due, *_ = current.lane(crowd.name, 0).keys
        lock = current.keys_of(item(-1))[5].removesuffix("-1")
        crowd.recheck_many([-1])
        record, score = bench.client.hget(state, "-1"), bench.client.zscore(due, "-1")
        _copies(bench, (state, due, lock), 0, owed, (record, score, ""))
        grant = current.claim(item(-1), options)
        assert isinstance(grant, Grant)
        record, score = bench.client.hget(state, "-1"), bench.client.zscore(running_, "-1")
        _copies(bench, (state, running_, lock), owed, held, (record, score, grant.token))

    def begin() -> None:
        assert isinstance(store.current().request(item(-2), b"", 1, options), Grant)
        crowd.recheck_many(range(-20, -10))

    def hold() -> None:
        assert crowd.recheck(key=-3) is Outcome.RAN

    def event() -> None:
        assert crowd.recheck(key=-2) is Outcome.COALESCED

    def claim() -> None:
        crowd.recheck_many([-4])
        grant = store.current().claim(item(-4), options)
        assert isinstance(grant, Grant)
        store.current().finish(grant, "ok", options)

    def peek() -> None:
        assert len(store.current().peek([crowd.name], 10, 0.0)[0]) == 10

    def page() -> None:
        assert len(survey(store.current(), [crowd.name], [Part("due", 0, 10)]).parts[0]) == 10

    with running() as other:
        assert other.process
        bench.counted.append(other.client)
        if bench.place:
            os.sched_setaffinity(other.process.pid, places.CORES[:1])
        cache = {**settings.CACHES["recheck"], "LOCATION": other.url}
        settings.CACHES = {**settings.CACHES, "empty": cache}
        full, empty = settings.RECHECK, {**settings.RECHECK, "CACHE": "empty"}

        def on(chosen: dict[str, Any], way: Callable[[], None]) -> Callable[[], None]:
            def there() -> None:
                settings.RECHECK = chosen
                way()

            return there

        on(full, fill)()
        for chosen in (full, empty):
            on(chosen, begin)()
        works = {"hold": hold, "event on a held item": event}
        works |= {"record, claim, finish": claim, "peek at ten": peek}
        works["page of the admin"] = page
        for work, way in works.items():
            times = bench.paired(on(full, way), on(empty, way), times=TIMES)
            against = "nothing there"
            yield bench.ratio(*times, work=f"{work}, a million there", against=against, most=1.15)
        on(full, page)()
        before = _turns(bench)
        page()
        trips = _turns(bench) - before - 1
        work = "page of the admin, of recheck_status"
        yield Figure.of([trips], work=work, unit="trips", place=bench.place, most=3)


def _turns(bench: Bench) -> int:
    """Return how often the server has read from its clients: once a round trip."""
    return int(bench.client.info("stats")["total_reads_processed"])


def _copies(bench: Bench, keys: tuple[str, ...], first: int, number: int, args: Any) -> None:
    for start in range(first, first + number, CHUNK):
        end = min(start + CHUNK, first + number) - 1
        bench.client.eval(FILL, len(keys), *keys, start, end, *args)
