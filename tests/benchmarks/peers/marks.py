"""What all tasks do: nothing, but for counting themselves and saying how fast they were."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import redis

_number = int(os.environ.get("RECHECK_BENCH_NUMBER", "0"))
_first = max(1, _number // 10)
_done = 0
_began = 0.0


def _now() -> float:
    """Return the clock's seconds, or those that this process and the server have computed."""
    if not os.environ.get("RECHECK_BENCH_CPU"):
        return time.perf_counter()
    with redis.Redis.from_url(os.environ["RECHECK_TEST_REDIS_URL"]) as client:
        found = client.info("cpu")
    kinds = ("user", "sys")
    server = sum(float(found[f"used_cpu_{kind}_main_thread"]) for kind in kinds)
    return time.process_time() + server


def noop(*args: Any, **kwargs: Any) -> None:
    """Count one more; after the last one write the seconds for each since the first tenth."""
    global _done, _began
    _done += 1
    if _done == _first:
        _began = _now()
    elif _done == _number:
        each = (_now() - _began) / (_number - _first)
        marks = Path(os.environ["RECHECK_BENCH_MARKS"])
        marks.with_suffix(".new").write_text(repr(each))
        marks.with_suffix(".new").rename(marks)
