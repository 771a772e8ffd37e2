"""The site and the processes beside it, as a test sees them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.servers import Server, free_port

ROOT = Path(__file__).parent.parent.parent
LOCKS = "/django_recheck/lock/"


def page_of(receiver: str, key: str) -> str:
    """Return the address of an item's page."""
    return f"{LOCKS}{quote(f'{receiver} {key}')}/change/"


class Talk:
    """A process that speaks JSON, a line at a time. It ends when its standard input does."""

    is_idle = False
    """Whether it waits for something to do, and for nothing else."""

    def __init__(self, module: str, *words: str, environment: dict[str, str]) -> None:
        self._log = Path(environment["SHOP_VAR"]) / f"{module}.log"
        with self._log.open("a") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"tests.browser.{module}", *words],
                cwd=ROOT,
                env=environment,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def hear(self) -> dict[str, Any]:
        """Return what it says next."""
        assert self.process.stdout is not None
        answers = select.select([self.process.stdout], [], [], 60)[0]
        assert answers, f"It says nothing:\n{self._log.read_text()[-2000:]}"
        line = self.process.stdout.readline()
        assert line, f"It ended:\n{self._log.read_text()[-2000:]}"
        said: dict[str, Any] = json.loads(line)
        self.is_idle = "passing" not in said
        return said

    def tell(self, *words: Any) -> dict[str, Any]:
        """Say something, and return what it says to that."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return self.hear()

    def close(self) -> None:
        """Let it end, whatever it is about."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Site:
    """The shop, served by a process of its own.

    Args:
        server: Where its locks are.
        folder: Where its database is.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        self.environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.browser.settings",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "testproject")]),
            "REDIS_URL": server.url,
            "SHOP_VAR": str(folder),
        }
        self.environment.pop("DATABASE_URL", None)
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        self._serving = Talk("serve", str(port), environment=self.environment)
        self.sessions = self._serving.hear()
        self._busy: list[Talk] = []
        self._idle: list[Talk] = []

    def is_up(self) -> bool:
        """Tell whether it answers."""
        try:
            with urllib.request.urlopen(f"{self.address}/login/", timeout=10) as answer:
                return bool(answer.status == 200)
        except urllib.error.URLError:
            return False

    @contextmanager
    def slow(self) -> Iterator[None]:
        """Answer nothing during the block."""
        self._serving.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._serving.process.send_signal(signal.SIGCONT)

    def hand(self) -> Talk:
        """Return a process of its own that does what it is told."""
        if self._idle:
            hand = self._idle.pop()
        else:
            hand = Talk("hand", environment=self.environment)
            assert hand.hear() == {"ready": True}
        self._busy.append(hand)
        return hand

    def holder(self, key: Any = 1, receiver: str = "order-total") -> Talk:
        """Return a process that holds an item's lock until told how the pass ends."""
        hand = self.hand()
        assert hand.tell("recheck", receiver, key) == {"passing": key}
        return hand

    def dismiss(self) -> None:
        """End the processes beside it that are in a pass; the others are there for more."""
        while self._busy:
            hand = self._busy.pop()
            if hand.is_idle and hand.process.poll() is None:
                self._idle.append(hand)
            else:
                hand.close()

    def close(self) -> None:
        """End it, and them."""
        for talk in (*self._busy, *self._idle, self._serving):
            talk.close()
