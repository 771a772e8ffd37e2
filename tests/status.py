"""``recheck_status`` as a process of its own, and receivers that it shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from django_recheck import Receiver, recheck, store
from django_recheck.records import Grant, Item, pack

CODE = """
import signal, sys, django
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
django.setup()
from django.conf import settings
from django.core.management import execute_from_command_line
from django_recheck import recheck

@recheck(name="totals", key="order_id", max_attempts=2, backoff=(60, 60))
def totals(sender, **kwargs): ...

execute_from_command_line(["manage.py", *sys.argv[1:]])
"""
EVENT = pack([b'["post_save","","shop.order"]', b"c", b"", b"[null,null,{},{},null]"])


def started(*words: str, **streams: Any) -> subprocess.Popen[str]:
    """Run the command in a process of its own."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    environment |= streams.pop("env", {})
    return subprocess.Popen(
        [sys.executable, "-c", CODE, "recheck_status", *words],
        cwd=Path(__file__).parent.parent,
        env=environment,
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
    )


def status(*words: str, **streams: Any) -> tuple[str, str, int]:
    """Return what it prints, what it says on the standard error, and its exit code."""
    process = started(*words, **streams)
    out, error = process.communicate(timeout=60)
    assert "Traceback (" not in error, error
    return out, error, process.returncode


def receiver() -> Receiver[..., Any]:
    """Return a receiver that fails when its order is 13 or 14."""

    @recheck(name="totals", key="order_id", max_attempts=2, backoff=(60, 60))
    def totals(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        if recheck_pass.key in (13, 14):
            raise ValueError(f"no order {recheck_pass.key}")

    return totals


def held(totals: Receiver[..., Any], text: str = "7") -> Grant:
    """Hold an item of it, with three events."""
    grant = store.current().request(Item("totals", text), EVENT, 3, totals.options)
    assert isinstance(grant, Grant), grant
    return grant
