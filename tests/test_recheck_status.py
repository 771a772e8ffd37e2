"""``manage.py recheck_status``: one screen, JSON, one item, and its exit codes."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest

from django_recheck import Receiver, recheck, screen, store, survey, worker
from django_recheck.records import pack
from tests.servers import running
from tests.status import EVENT, held, receiver, status


@pytest.fixture
def totals() -> Receiver[..., Any]:
    return receiver()


def busy(totals: Receiver[..., Any]) -> None:
    """One held and flagged, two pending, one backing off, one dead."""
    held(totals)
    totals.recheck_many([7, 1, 2])
    totals.recheck(key=14)
    for _ in range(2):
        totals.recheck(key=13)


def test_nothing_is_said_in_a_line_and_nothing_is_written() -> None:
    current = store.current()
    out, error, code = status()
    assert (error, code) == ("", 0)
    when, blank, said = out.splitlines()
    assert when.endswith("never drained")
    assert (blank, said) == ("", "Nothing is held, owed or dead.")
    assert not current.client.exists(current.meta)


def test_one_screen_tells_all_of_it(totals: Receiver[..., Any]) -> None:
    busy(totals)
    out, error, code = status()
    assert (error, code) == ("", 1), "something is dead"
    lines = [line.split() for line in out.splitlines()]
    assert max(map(len, out.splitlines())) <= 80
    assert ["totals", "1", "2", "1", "1", "0"] in [line[:6] for line in lines]
    (hold,) = [line for line in lines if line[:2] == ["totals", "7"]]
    assert hold[2].endswith(f":{os.getpid()}")
    assert hold[-2:] == ["1", "1"], "pass and further events"
    pending = [line[:3] for line in lines if line[2:3] == ["pending"]]
    assert pending[-2:] == [["totals", "1", "pending"], ["totals", "2", "pending"]]
    assert "totals           14            backing off" in out
    (dead,) = [line for line in out.splitlines() if line.split()[:2] == ["totals", "13"]]
    assert dead.endswith("    2 ValueError: no order 13")
    assert "The longest hold is " in out


def test_json_says_the_same_with_fixed_names(totals: Receiver[..., Any]) -> None:
    busy(totals)
    worker.drain()
    out, _, code = status("--json")
    told = json.loads(out)
    assert code == 1
    lists = ("receivers", "minutes", "held", "owed", "dead", "outbox")
    assert list(told) == ["now", "last_drain", *lists]
    assert len(told["minutes"]) == 60
    events, passes = map(sum, zip(*told["minutes"], strict=True))
    assert passes >= 3
    assert events > passes
    assert told["last_drain"] <= told["now"] + 1
    assert told["outbox"] == {"receivers": {}, "problems": {}}
    assert told["receivers"]["totals"] == {
        "running": 1,
        "lapsed": 0,
        "pending": 0,
        "later": 1,
        "dead": 1,
        "overdue": 0,
        "oldest": None,
        "paused": False,
        "problem": "",
        "known": True,
        "concurrency": None,
    }
    (hold,), (owed,), (dead,) = told["held"], told["owed"], told["dead"]
    assert (hold["key"], hold["state"], hold["pid"]) == ("7", "running, flagged", os.getpid())
    assert (hold["working"], hold["waiting"], hold["passes"]) == (3, 1, 1)
    assert (owed["key"], owed["state"], owed["attempts"]) == ("14", "backing off", 1)
    assert (dead["key"], dead["error"], dead["overdue"]) == ("13", "ValueError: no order 13", False)
    assert (
        set(hold)
        == set(owed)
        == set(dead)
        == {
            *("receiver", "key", "state", "host", "pid", "held_for", "lease_left", "passes"),
            *("working", "waiting", "attempts", "since", "due", "overdue", "error", "outbox"),
        }
    )


def test_one_item_is_explained(totals: Receiver[..., Any]) -> None:
    busy(totals)
    out, error, code = status("--receiver", "totals", "--key", "7")
    assert (error, code) == ("", 0)
    assert "state     running, flagged" in out
    assert re.search(rf"holder    process {os.getpid()} on \S+, for \d+ s; lease left: \d+ s", out)
    assert "pass      1, covers 3 events" in out
    assert "and one more follows." in out
    assert "The next event: It would flag the holder, which then goes again." in out
    assert "Events worked on:\n  post_save of shop.order (created)\n" in out
    assert "Events that wait:\n  asked for by hand\n" in out
    out, _, code = status("--receiver", "totals", "--key", "13")
    assert code == 1
    assert "state     dead" in out
    assert "Last error:\n  Traceback (most recent call last):\n" in out
    assert out.endswith("ValueError: no order 13\n")
    out, _, code = status("--receiver", "totals", "--key", "99", "--json")
    told = json.loads(out)
    assert (told["state"], told["events"], code) == ("idle", {"working": [], "waiting": []}, 0)
    assert told["next_event"] == "It would run at once, in the thread that commits it."


@pytest.mark.parametrize("word", ["ab", '"ab"'])
def test_a_key_is_written_as_it_is_or_as_the_screen_shows_it(
    totals: Receiver[..., Any], word: str
) -> None:
    totals.recheck_many(["ab"])
    out, _, _ = status("--receiver", "totals", "--key", word)
    assert out.startswith('totals "ab"\n')
    assert "state     pending" in out


def test_only_one_receiver_also_one_that_only_redis_knows(totals: Receiver[..., Any]) -> None:
    @recheck(name="gone", key="value")
    def gone(sender: Any, **kwargs: Any) -> None: ...

    totals.recheck_many([1])
    gone.recheck_many([1, "ab"])
    out, _, code = status("--receiver", "gone", "--json")
    told = json.loads(out)["receivers"]
    assert (list(told), told["gone"]["pending"], told["gone"]["known"], code) == (
        ["gone"],
        2,
        False,
        0,
    )
    assert "gone: 2 items wait for this receiver, which isn't in this process" in status()[0]
    assert "state     pending" in status("--receiver", "gone", "--key", "ab")[0]
    out, _, _ = status("--receiver", "gone", "--key", "1")
    assert "this process has no such receiver" in " ".join(out.split())
    out, error, code = status("--receiver", "nobody")
    assert (out, code) == ("", 2)
    assert error.startswith("CommandError: No receiver is called 'nobody'; known are: ")
    _, error, code = status("--key", "1")
    assert error == "CommandError: --key needs --receiver NAME: whose key is it?\n"
    assert code == 2


def test_what_is_overdue_is_an_alert(totals: Receiver[..., Any]) -> None:
    totals.recheck_many([1])
    current, lane = store.current(), store.current().lane("totals", 0)
    assert status()[2] == 0, "it has only just come"
    owed = int((survey.survey(current, []).now - survey.OVERDUE - 60) * 1000)
    text = b"1 - 0 0 0 0 %d 0 0 0 0 0 0 1\n" % owed + pack([b"", b"", EVENT])
    current.client.hset(lane.keys[0], "1", text)
    current.client.zadd(lane.keys[2], {"1": owed})
    out, _, code = status()
    assert code == 1
    assert "1 overdue, for more than 5 min: does recheck_run run?" in out
    current.pause(["totals"])
    out, _, code = status()
    assert code == 0, "a person wants it so"
    assert "totals (paused)" in out


@pytest.mark.parametrize("words", [(), ("--receiver", "totals", "--key", "1"), ("--json",)])
def test_redis_away_is_one_sentence(words: tuple[str, ...]) -> None:
    environment = {"RECHECK_TEST_REDIS_URL": "redis://:s3cret@127.0.0.1:1/0"}
    out, error, code = status(*words, env=environment)
    assert (out, code) == ("", 2)
    assert error.startswith("CommandError: Redis doesn't answer: ConnectionError: ")
    assert error.count("\n") == 1
    assert "s3cret" not in error


def test_a_refusal_and_wrong_shards_are_one_sentence(totals: Receiver[..., Any]) -> None:
    with running(requirepass="s3cret") as server:
        wrong = server.url.replace("s3cret", "wr0ng")
        out, error, code = status(env={"RECHECK_TEST_REDIS_URL": wrong})
    assert (out, code) == ("", 2)
    assert error.startswith("CommandError: Redis refuses this user: ")
    assert "wr0ng" not in error
    totals.recheck_many([1])
    current = store.current()
    current.client.hset(current.meta, "shards", 4)
    current.client.sadd(current.lane("", 3).keys[4], "totals")
    out, error, code = status()
    assert (out, code) == ("", 2)
    assert "set it back to 4" in error


def test_times_are_those_of_the_time_zone() -> None:
    """The tests' settings leave TIME_ZONE as Django has it, and Redis says when it is there."""
    seconds = survey.survey(store.current(), []).now
    out, _, _ = status()
    assert out[:10] == screen.clock(seconds)[:10] or out[:10] == screen.clock(seconds + 60)[:10]
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d C[SD]T ", out)


def test_a_full_server_can_be_looked_at() -> None:
    with running() as server, server.client as client:
        client.config_set("maxmemory", "1")
        assert status(env={"RECHECK_TEST_REDIS_URL": server.url})[1:] == ("", 0)
