"""Under gevent: leases are renewed by a greenlet, and each greenlet has its own pass."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

GREEN = """
from gevent import monkey
monkey.patch_all()
import django
django.setup()
import time
import gevent
from django.dispatch import Signal
from django_recheck import current_pass, recheck, store, views, worker

probe, passes = Signal(), []

@recheck(key="value", name="green", ttl=2, max_attempts=50, backoff=(0.1, 1))
def green(sender, recheck_pass, **kwargs):
    passes.append(recheck_pass.number)
    HOLD
    assert current_pass() is recheck_pass
    print("pass", recheck_pass.key, recheck_pass.number, recheck_pass.lost, flush=True)

probe.connect(green)
other = gevent.spawn(probe.send, None, value=2)
jobs = [gevent.spawn(probe.send, None, value=1) for _ in range(5)]
gevent.joinall([*jobs, other], raise_error=True)
assert current_pass() is None
print(sorted(outcome.name for job in jobs for _, outcome in job.value), flush=True)
assert current_pass() is None
while views.counts(store.current()):  # what was given back, or waits for a lease to end
    worker.drain()
    gevent.sleep(0.05)
"""
WAITING = "if recheck_pass.number == 1 and recheck_pass.key == 1: gevent.sleep(4.5)"
BUSY = """
    until = time.monotonic() + 2.5
    while len(passes) < 3 and time.monotonic() < until: pass
    gevent.sleep(0.01)
"""


def said(hold: str) -> list[str]:
    """Run it in a process of its own: everything there is patched."""
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", GREEN.replace("HOLD", hold)],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


def test_c20_a_greenlet_that_waits_keeps_its_lease() -> None:
    *passes, outcomes = said(WAITING)
    assert passes == ["pass 2 1 False", "pass 1 1 False", "pass 1 2 False"]
    assert outcomes == str(["COALESCED"] * 4 + ["RAN"])


def test_c20_a_greenlet_that_lets_nobody_run_loses_it_and_no_event() -> None:
    lines = said(BUSY)
    assert any("was woken" in line for line in lines), "threads don't get to run"
    assert {line.rpartition(" ")[0] for line in lines} >= {"pass 1 1", "pass 2 1"}
