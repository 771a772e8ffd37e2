"""The shop: its demo in real processes, and its receivers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

ROOT = Path(__file__).parent.parent
MANAGE = ROOT / "testproject" / "manage.py"


def environment(**more: str) -> dict[str, str]:
    """Return an environment without a Redis: the shop starts its own."""
    mine = {k: v for k, v in os.environ.items() if k not in ("DJANGO_SETTINGS_MODULE", "REDIS_URL")}
    return {**mine, **more}


def manage(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(MANAGE), *arguments]
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )


def test_the_demo_shows_what_gets_lost_and_loses_nothing() -> None:
    done = manage("demo", "--events", "160", "--processes", "4", "--json")
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [run["name"] for run in runs] == ["lock", "recipe", "recheck"]
    for run in runs:
        assert set(run) == {"name", "events", "passes", "coalesced", "stale", "seconds"}
        assert run["events"] >= 120
        assert 0 < run["passes"] < run["events"]
    assert runs[0]["stale"] > 0, "a lock that drops must show, or the demo shows nothing"
    assert runs[2]["stale"] == 0
    assert not (ROOT / "testproject" / "var" / "valkey.url").exists(), "its server was left behind"


def test_ctrl_c_leaves_nothing_behind() -> None:
    command = [sys.executable, str(MANAGE), "demo", "--events", "100000"]
    process = subprocess.Popen(
        command,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    address = ROOT / "testproject" / "var" / "valkey.url"
    until = time.monotonic() + 30
    while not address.exists() and time.monotonic() < until:
        time.sleep(0.05)
    url = address.read_text()
    while b"demo:lock" not in b"".join(redis.Redis.from_url(url).scan_iter("*")):
        assert time.monotonic() < until
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert not address.exists()
    with pytest.raises(redis.ConnectionError):
        redis.Redis.from_url(url).ping()
    while _lives(process.pid):
        assert time.monotonic() < until, "a process of the demo was left behind"
        time.sleep(0.02)


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    "arguments", [("--events", "0"), ("--processes", "-1"), ("--processes", "99")]
)
def test_wrong_numbers_are_one_sentence(arguments: tuple[str, ...]) -> None:
    done = manage("demo", *arguments)
    assert done.returncode != 0
    assert "must be" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_the_shop_passes_its_checks() -> None:
    done = manage("check")
    assert (done.returncode, done.stderr) == (0, "")
    assert manage("makemigrations", "--check").returncode == 0
