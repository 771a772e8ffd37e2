"""``--reload``: Django's autoreloader around a watch, as ``runserver`` has it around its server."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from django.utils import autoreload

BROKEN = 1
"""The exit code of a process whose code can't be loaded."""


def run(watch: Callable[[], Any], stop: Callable[[], Any], say: Callable[[str], Any]) -> None:
    """Watch in a process of its own that is begun anew whenever the code changes.

    Its passes are finished before it ends. Where the new code can't be loaded, the next change is
    waited for.

    Args:
        watch: Does the work, in a thread, until it is stopped.
        stop: Ends it after its passes.
        say: Tells the developer something.
    """
    if os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) == "true":
        _in_the_child(watch, stop)
        return
    # Ctrl-C is the child's, which then finishes its passes: it is waited for.
    signal.signal(signal.SIGINT, lambda *_: None)
    while True:
        try:
            autoreload.run_with_reloader(watch)
        except SystemExit as ended:
            if ended.code != BROKEN:
                raise
        say("The code can't be loaded: change it, and it is tried again.")
        try:
            autoreload.get_reloader().run_loop()
        except SystemExit:
            continue  # something has changed
        return


def _in_the_child(watch: Callable[[], Any], stop: Callable[[], Any]) -> None:
    began, ended = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        try:
            watch()
        finally:
            ended.set()

    try:
        autoreload.run_with_reloader(work)
    finally:  # by Ctrl-C, SIGTERM, or since the code has changed
        stop()
        try:
            if began.is_set():
                ended.wait()
        except KeyboardInterrupt:
            os._exit(130)
