"""The benchmarks still run: all of them once, with tiny numbers."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests.benchmarks.__main__ import NAMES
from tests.benchmarks.figures import Figure

ROOT = Path(__file__).parent.parent


def run(*arguments: object) -> str:
    command = [sys.executable, "-m", "tests.benchmarks", *map(str, arguments)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_each_benchmark_runs_and_says_what_it_found(tmp_path: Path) -> None:
    report = json.loads(run("--quick", "--json"))
    assert {"python", "django", "redis", "server", "sqlite"} <= report["versions"].keys()
    figures = report["figures"]
    assert {figure["benchmark"] for figure in figures} == {*NAMES}
    for figure in figures:
        assert figure["low"] <= figure["median"] <= figure["high"], figure
        assert math.isfinite(figure["median"]), figure
    (tmp_path / "report").write_text(json.dumps(report), "utf-8")
    rows = run("--read", tmp_path / "report", "--markdown", "--svg", tmp_path / "svg").splitlines()
    assert len(rows) == len(figures) + 4, "versions, a blank line, two lines of a head"
    drawn = ElementTree.parse(tmp_path / "svg")
    goals = [figure for figure in figures if figure["most"] or figure["least"]]
    assert len(drawn.findall(".//{*}circle")) == len(goals) > 10


def test_a_figure_says_whether_it_is_reached() -> None:
    at_most = Figure.of([2.0, 2.0], work="hold", against="Lock", place="P", most=1.0)
    assert (at_most.goal, at_most.share) == ("no: ≤ 1", 0.5)
    at_least = Figure.of([8.0, 12.0, 16.0], work="bulk", unit="/s", least=6.0)
    assert (at_least.goal, at_least.share, at_least.shares) == ("≥ 6", 2.0, (10 / 6, 14 / 6))
    assert Figure.of([1.0], work="as it is").share is None
    assert Figure.from_json({"benchmark": "bulk", **at_least.as_json()}) == at_least


def test_a_name_that_is_wrong_is_told() -> None:
    command = [sys.executable, "-m", "tests.benchmarks", "hold"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "there is no benchmark hold, only holds, " in ran.stderr
