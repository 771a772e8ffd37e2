"""``recheck_run`` as a process of its own, with a receiver that works until it is told to go on."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from django_recheck import Receiver, recheck
from tests.watch.watching import until

CODE = """
import signal, sys, time, pathlib, django
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
django.setup()
from django.core.management import execute_from_command_line
from django_recheck import recheck

folder = pathlib.Path(sys.argv[1])

@recheck(name="noted", key="group", dispatch="worker", max_attempts=1)
def noted(sender, recheck_pass, **kwargs):
    key = str(recheck_pass.key)
    folder.joinpath(f"began-{key}").touch()
    while "slow" in key and not folder.joinpath("go").exists():
        try:
            time.sleep(0.01)
        except BaseException:  # as bad code does: it doesn't even let itself be interrupted
            pass
    if "bad" in key:
        raise ValueError("as asked")
    folder.joinpath(f"ran-{key}").touch()

if "without tqdm" in sys.argv[2:]:
    sys.argv.remove("without tqdm")
    sys.modules["tqdm"] = None
execute_from_command_line(["manage.py", "recheck_run", *sys.argv[2:]])
"""
ROOT = Path(__file__).parent.parent.parent


def noted() -> Receiver[..., Any]:
    """Return the receiver as this process has it: to record, not to run."""

    @recheck(name="noted", key="group", dispatch="worker")
    def receive(sender: Any, **kwargs: Any) -> None:
        raise AssertionError("another process runs it")

    return receive


class Run:
    """The command in a process of its own.

    Args:
        folder: Where its receiver leaves traces.
        words: The command's options.
        streams: Of ``Popen``; ``env`` is added to this process's own.
    """

    def __init__(self, folder: Path, *words: str, **streams: Any) -> None:
        self.folder = folder
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
        environment |= streams.pop("env", {})
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE, str(folder), *words],
            cwd=ROOT,
            env=environment,
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
        )

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def until(self, *names: str) -> None:
        """Wait for traces of its receiver."""

        def there() -> bool:
            assert self.process.poll() is None, self.process.communicate()
            return all((self.folder / name).exists() for name in names)

        until(there, f"{names} don't come")

    def said(self) -> str:
        """Wait for a line on the standard error."""
        assert self.process.stderr is not None
        assert select.select([self.process.stderr], [], [], 30)[0], "it says nothing"
        return str(self.process.stderr.readline())

    def ended(self) -> tuple[str, str, int]:
        """Wait for its end; return what it printed, what it said besides, and its exit code."""
        out, error = self.process.communicate(timeout=30)
        return out, error, self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.send(signal.SIGKILL)
            self.process.communicate(timeout=30)
