"""``manage.py recheck_run`` on a terminal: a bar there, and nowhere else."""

from __future__ import annotations

import json
import os
import pty
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from shop.models import Product

from tests.watch.process import Run, noted

pytestmark = pytest.mark.django_db(transaction=True)


class Terminal:
    """The command, with a terminal for its standard error, and for its output unless told so."""

    def __init__(self, folder: Path, *words: str, **streams: Any) -> None:
        self.end, theirs = pty.openpty()
        self.seen = ""
        self.run = Run(folder, *words, **{"stdout": theirs, "stderr": theirs, **streams})
        os.close(theirs)
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        while True:
            try:
                read = os.read(self.end, 65536)
            except OSError:  # its last user is gone
                return
            self.seen += read.decode()

    def ended(self) -> int:
        """Wait for its end; return its exit code. What it drew is in ``seen``."""
        _, _, code = self.run.ended()
        self.reader.join(30)
        os.close(self.end)
        return code


def test_a_bar_on_a_terminal_and_a_summary(tmp_path: Path) -> None:
    noted().recheck_many(range(20))
    terminal = Terminal(tmp_path)
    assert terminal.ended() == 0
    assert "run:   0%" in terminal.seen
    assert "| 0/20 [" in terminal.seen
    assert terminal.seen.endswith("20 items, 20 passes, 0 failed\r\n")
    assert terminal.seen.count("\n") == 1, "the bar is gone"


@pytest.mark.parametrize("words", [["-v0"], ["-v2"], ["--watch", "--limit", "3"], ["without tqdm"]])
def test_no_bar_where_it_would_be_in_the_way(tmp_path: Path, words: list[str]) -> None:
    noted().recheck_many(range(3))
    terminal = Terminal(tmp_path, *words)
    assert terminal.ended() == 0
    assert "%" not in terminal.seen
    assert len(list(tmp_path.glob("ran-*"))) == 3


def test_c56_no_bar_in_crons_mail(tmp_path: Path) -> None:
    noted().recheck_many(range(3))
    assert Run(tmp_path).ended() == ("3 items, 3 passes, 0 failed\n", "", 0)


def test_json_into_a_pipe_beside_a_bar(tmp_path: Path) -> None:
    noted().recheck_many(range(3))
    path = tmp_path / "out"
    with path.open("w") as out:
        terminal = Terminal(tmp_path, "--json", stdout=out)
        assert terminal.ended() == 0
    assert "| 0/3 [" in terminal.seen
    assert json.loads(path.read_text())["items"] == 3


def test_ctrl_c_on_a_terminal(tmp_path: Path) -> None:
    noted().recheck_many(["slow", "slow2"])
    terminal = Terminal(tmp_path, start_new_session=True)
    terminal.run.until("began-slow")
    terminal.run.send(signal.SIGINT)
    (tmp_path / "go").touch()
    assert terminal.ended() == 0
    assert "SIGINT: the running pass is finished" in terminal.seen
    assert terminal.seen.endswith("1 items, 1 passes, 0 failed\r\n")


def test_a_bar_for_every_row(tmp_path: Path) -> None:
    Product.objects.bulk_create(Product(name=str(n), price=1) for n in range(3))
    terminal = Terminal(tmp_path, "--model", "shop.Product")
    assert terminal.ended() == 0
    assert "ask search-document:   0%" in terminal.seen
    assert "| 0/3 [" in terminal.seen
    assert terminal.seen.endswith("3 recorded, 3 items, 3 passes, 0 failed\r\n")
