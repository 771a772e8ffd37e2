"""Renames, with real processes of two code versions on one server and one database (C63)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from django_recheck import store, views
from django_recheck.records import FORMAT, Item

ROOT = Path(__file__).parent.parent.parent
OLD = {"name": "totals.refresh", "key": "group_id"}
NEW = {"name": "group-total", "key": "group_id", "former_names": ["totals.refresh"]}
BACK = {**OLD, "former_names": ["group-total"]}
RECORDS = {"dispatch": "worker"}


class Process:
    """A process of one version."""

    def __init__(self, who: str, options: dict[str, Any], environment: dict[str, str]) -> None:
        self.who, self.folder = who, Path(environment["RECHECK_TEST_FOLDER"])
        command = [sys.executable, "-m", "tests.versions.process", who, json.dumps(options)]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def begin(self, *line: Any) -> None:
        """Send a line, and don't wait for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the answer to the oldest line that has none yet."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def __call__(self, *line: Any) -> Any:
        self.begin(*line)
        return self.answer()

    @property
    def gate(self) -> Path:
        """While this file is there, a pass of the process waits between its read and its write."""
        return self.folder / f"gate of {self.who}"

    def waits(self) -> None:
        """Wait until a pass of it stands at the gate."""
        until = time.monotonic() + 30
        while not (self.folder / f"{self.who} waits").exists():
            assert self.process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=20)


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """What starts a process of one version."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    environment |= {"RECHECK_TEST_FOLDER": str(tmp_path), "RECHECK_TEST_DATABASE": ""}
    started: list[Process] = []

    def start(who: str, options: dict[str, Any], **more: Any) -> Process:
        process = Process(who, {**options, **more}, environment)
        started.append(process)
        if len(started) == 1:
            process("prepare")
        return process

    yield start
    for process in started:
        process.end()


def left() -> dict[str, int]:
    """Return how many items of which receiver Redis knows."""
    counts = views.counts(store.current())
    return {name: c.running + c.due + c.dead for name, c in counts.items()}


def test_c63_the_new_code_does_what_the_old_one_left(start: Start) -> None:
    old, new = start("old", OLD, **RECORDS), start("new", NEW, **RECORDS)
    old("save", 1)
    old("save", 2, 8)
    new("save", 4)
    assert left() == {"totals.refresh": 2, "group-total": 1}
    assert [*new("drain")["outcomes"]] == ["RAN"]
    assert new("totals") == [5, 2]
    passes = {(*one,) for one in new("said")["passes"]}
    assert passes == {("group-total", "7", False), ("group-total", "8", False)}, "under one name"
    assert left() == {}


def test_c63_an_old_process_leaves_the_new_names_items_alone(start: Start) -> None:
    old, new = start("old", OLD, **RECORDS), start("new", NEW, **RECORDS)
    new("save", 1)
    for _ in range(2):
        assert old("drain") == {"outcomes": {}, "unknown": {"group-total": 1}, "problems": {}}
    (told,) = old("said")["told"]
    assert told.startswith("group-total: 1 items wait for this receiver, which isn't in this proc")
    assert left() == {"group-total": 1}
    assert new("drain")["outcomes"] == {"RAN": 1}
    assert (new("totals"), left()) == ([1, 0], {})


def test_c63_what_a_rollback_leaves_is_done_by_old_code_that_knows_the_new_name(
    start: Start,
) -> None:
    new, back = start("new", NEW, **RECORDS), start("back", BACK, **RECORDS)
    new("save", 1)
    assert back("drain")["outcomes"] == {"RAN": 1}
    assert back("said")["passes"] == [["totals.refresh", "7", False]]
    assert (back("totals"), left()) == ([1, 0], {})


def test_c63_the_new_code_takes_over_from_an_old_process_that_is_killed(start: Start) -> None:
    old, new = start("old", OLD, ttl=1), start("new", NEW)
    old.gate.touch()
    old.begin("save", 1)
    old.waits()
    assert new("drain")["outcomes"] == {}, "it is held"
    old.end()
    until = time.monotonic() + 20
    while left():
        assert time.monotonic() < until
        new("drain")
    assert new("totals") == [1, 0]
    assert new("said")["passes"] == [["group-total", "7", False]]


def test_c63_what_the_old_code_left_never_runs_beside_a_pass_of_the_new(start: Start) -> None:
    old = start("old", OLD, **RECORDS)
    first, second = start("first", NEW), start("second", NEW)
    old("save", 1)
    first.gate.touch()
    first.begin("save", 2)
    first.waits()
    assert second("drain")["outcomes"] == {}
    assert second("said")["passes"] == []
    assert left() == {"group-total": 1}, "one lock for both"
    first.gate.unlink()
    first.answer()
    assert first("said")["passes"] == [["group-total", "7", False]] * 2
    assert (first("totals"), left()) == ([3, 0], {})


def test_c63_two_names_at_once_have_two_locks_until_the_rows_are_rechecked(start: Start) -> None:
    """The limit that the page on renaming tells of, and what it says to do."""
    old, new = start("old", OLD), start("new", NEW)
    old.gate.touch()
    old.begin("save", 1)
    old.waits()
    new("save", 2)
    assert new("totals") == [3, 0]
    old.gate.unlink()
    old.answer()
    assert new("totals") == [1, 0], "a stale last word"
    assert left() == {}
    old.end()
    assert new("ask", [7, 8]) == 2
    new("drain")
    assert new("totals") == [3, 0]


def test_c63_a_move_to_another_module_is_no_rename_where_the_name_is_given(start: Start) -> None:
    old, moved = start("old", OLD), start("moved", OLD)
    old.gate.touch()
    old.begin("save", 1)
    old.waits()
    moved("save", 2)
    assert moved("said")["passes"] == [], "it has flagged the holder"
    old.gate.unlink()
    old.answer()
    assert (moved("totals"), left()) == ([3, 0], {})


ROW: dict[str, Any] = {"name": "same"}
GROUP = {"name": "same", "key": "group_id"}


@pytest.mark.parametrize(("old", "new"), [(ROW, GROUP), (GROUP, ROW)], ids=["to path", "to row"])
@pytest.mark.parametrize("renamed", [False, True])
def test_c63_a_key_of_another_kind_is_worked_out_anew(
    start: Start, old: dict[str, Any], new: dict[str, Any], renamed: bool
) -> None:
    """As it stands, the primary key of an item would be taken for that of a group."""
    if renamed:
        new = {**new, "name": "other", "former_names": ["same"]}
    before, after = start("before", old, **RECORDS), start("after", new, **RECORDS)
    before("save", 1)
    before("save", 2, 8)
    assert after("drain")["outcomes"] == {"RAN": 2}
    expected = ["7", "8"] if "key" in new else ['{"tests_app.item":1}', '{"tests_app.item":2}']
    assert sorted(after("said")["passes"]) == [[new["name"], text, False] for text in expected]
    assert (after("totals"), left()) == ([1, 2], {})


def test_c63_each_version_works_with_its_own_kind_of_key(start: Start) -> None:
    row, group = start("row", ROW, **RECORDS), start("group", GROUP, **RECORDS)
    row("save", 1)
    group("save", 2, 8)
    assert row("drain")["outcomes"] == {"RAN": 2}
    assert (row("totals"), left()) == ([1, 2], {})
    assert [text for _, text, _ in row("said")["passes"]] == [
        '{"tests_app.item":1}',
        '{"tests_app.item":2}',
    ]


def test_c63_a_record_of_a_newer_format_is_left_alone_and_told_once(start: Start) -> None:
    old = start("old", OLD)
    current, item = store.current(), Item("totals.refresh", "7")
    old("save", 1, 8)
    keys = current.lane_of(item).keys
    newer = f"{FORMAT + 1} whatever"
    current.client.hset(keys[0], item.text, newer)
    current.client.zadd(keys[2], {item.text: 1})
    current.client.sadd(keys[4], item.receiver)
    for _ in range(2):
        old("drain")
        current.client.zadd(keys[2], {item.text: 1}, xx=True)
    old("save", 2)
    said = old("said")
    assert said["passes"] == [["totals.refresh", "8", False], ["totals.refresh", "7", False]]
    told = [line for line in said["told"] if "newer version" in line]
    assert len(told) == 1, said["told"]
    assert current.client.hget(keys[0], item.text) == newer.encode()
    assert old("totals") == [2, 1], "run without its lock"
