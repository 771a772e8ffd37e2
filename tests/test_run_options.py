"""What ``recheck_run`` can be asked for: one item, dead ones, every row; and what it refuses."""

from __future__ import annotations

import json
import logging
import re
import threading
import weakref
from contextlib import nullcontext
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models.signals import post_delete, post_init, post_save
from django.dispatch import receiver

from django_recheck import Receiver, recheck, store, views
from django_recheck.by_hand import ByHand
from tests.app.models import Child, Group, Item, ProxyItem

pytestmark = pytest.mark.django_db(transaction=True)


def run(*words: str, code: int = 0, **options: Any) -> str:
    """Run the command; return what it prints."""
    out = StringIO()
    with pytest.raises(SystemExit) if code else nullcontext() as ended:
        call_command("recheck_run", *words, stdout=out, **options)
    assert ended is None or ended.value.code == code
    return out.getvalue()


def refused(*words: str, **options: Any) -> str:
    """Run the command, which can't work; return why."""
    with pytest.raises(CommandError) as raised:
        call_command("recheck_run", *words, **options)
    assert raised.value.returncode == 2
    return str(raised.value)


@pytest.fixture
def calls() -> list[Any]:
    return []


@pytest.fixture
def totals(calls: list[Any]) -> Receiver[..., Any]:
    @recheck(name="totals", key="group", dispatch="worker", max_attempts=1)
    def totals(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append(recheck_pass.key)
        if recheck_pass.key == 13 and calls.count(13) == 1:
            raise ValueError("as asked")

    return totals


# --receiver and --key


def test_a_key_runs_its_item_alone(totals: Receiver[..., Any], calls: list[Any]) -> None:
    totals.recheck_many([1, 2, (3, "a")])
    assert run("--receiver", "totals", "--key", "2") == "1 items, 1 passes, 0 failed\n"
    assert run("--receiver", "totals", "--key", "(3, 'a')") == "1 items, 1 passes, 0 failed\n"
    assert calls == [2, (3, "a")]
    assert views.counts(store.current())["totals"].due == 1


def test_a_key_that_is_owed_nothing_says_so(totals: Receiver[..., Any]) -> None:
    said = run("--receiver", "totals", "--key", "2")
    assert said == "0 items, 0 passes, 0 failed\nNothing is known of it, and nothing is owed.\n"


def test_a_key_that_isnt_ripe_says_what_it_waits_for(calls: list[Any]) -> None:
    @recheck(name="later", key="group", delay=60)
    def later(sender: Any, **kwargs: Any) -> None: ...

    later.recheck_many([1])
    said = run("--receiver", "later", "--key", "1")
    assert said.endswith("It waits until no event has come for a while.\n")


def test_a_failed_item_is_told_and_is_no_success(totals: Receiver[..., Any]) -> None:
    totals.recheck_many([13])
    said = run("--receiver", "totals", "--key", "13", code=1)
    assert said == "1 items, 1 passes, 1 failed\n"


# --retry-dead


def died(totals: Receiver[..., Any], *keys: Any) -> None:
    """Give items up."""
    current = store.current()
    for key in keys:
        totals.recheck_many([key])
        item = views.page(current, "totals", "due")[0].item
        current.finish(current.claim(item, totals.options), "failed", totals.options)  # type: ignore[arg-type]
    assert views.counts(current)["totals"].dead == len(keys)


def test_dead_items_are_left_alone_unless_asked_for(
    totals: Receiver[..., Any], calls: list[Any]
) -> None:
    died(totals, *range(450))
    assert run() == "0 items, 0 passes, 0 failed\n"
    assert run("--retry-dead", code=1).startswith("450 retried, 450 items, 450 passes, 1 failed")
    assert sorted(calls) == list(range(450))
    assert views.counts(store.current())["totals"].dead == 1, "it died once more"


def test_one_dead_item_is_retried_by_its_key(totals: Receiver[..., Any], calls: list[Any]) -> None:
    died(totals, 1, 2)
    words = ("--receiver", "totals", "--key", "2", "--retry-dead")
    assert run(*words) == "1 retried, 1 items, 1 passes, 0 failed\n"
    assert calls == [2]
    assert views.counts(store.current())["totals"].dead == 1


# --model


@pytest.fixture
def followed(calls: list[Any]) -> Receiver[..., Any]:
    @receiver([post_save, post_delete], sender=Item)
    @recheck(name="followed", dispatch="worker")
    def followed(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append(recheck_pass.key)

    Item.objects.bulk_create(Item(name=str(n)) for n in range(30))
    return followed


def test_every_row_of_a_model_is_rechecked(followed: Receiver[..., Any], calls: list[Any]) -> None:
    said = run("--model", "tests_app.Item", "--receiver", "followed")
    assert said == "30 recorded, 30 items, 30 passes, 0 failed\n"
    assert sorted(calls) == sorted(Item.objects.values_list("pk", flat=True))


def test_all_that_follow_it_are_asked_and_only_they_are_drained(
    followed: Receiver[..., Any], totals: Receiver[..., Any]
) -> None:
    @receiver(post_save, sender=ProxyItem)
    @recheck(name="by-name", key="name", dispatch="worker")
    def by_name(sender: Any, recheck_pass: Any, **kwargs: Any) -> None: ...

    totals.recheck_many([1])
    report = json.loads(run("--model", "tests_app.Item", "--json"))
    assert (report["recorded"], report["items"]) == (60, 60)
    assert views.counts(store.current())["totals"].due == 1


def test_who_follows_a_model_or_every_one() -> None:
    def connected(sender: Any) -> ByHand:
        made = recheck(name=f"of-{sender and sender.__name__}", key="pk")(
            lambda sender, **kwargs: None
        )
        post_save.connect(made, sender=sender)
        return ByHand(made)

    group, child, anybody = map(connected, (Group, Child, None))
    assert [who.follows(Group) for who in (group, child, anybody)] == [True, False, True]
    assert [who.follows(Child) for who in (group, child, anybody)] == [True, True, True]
    assert [who.follows(Item) for who in (group, child, anybody)] == [False, False, True]


def test_few_rows_are_in_memory_at_a_time(followed: Receiver[..., Any]) -> None:
    Item.objects.bulk_create(Item(name="x") for _ in range(4500))
    alive: weakref.WeakSet[Item] = weakref.WeakSet()
    most = 0

    def count(instance: Item, **kwargs: Any) -> None:
        nonlocal most
        alive.add(instance)
        most = max(most, len(alive))

    post_init.connect(count, sender=Item)
    run("--model", "tests_app.Item", "--limit", "1")
    assert 0 < most < 2500
    assert views.counts(store.current())["followed"].due == 4529


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--model", "tests_app.Friend"],
            "No receiver follows tests_app.Friend: its rows concern nothing.",
        ),
        (
            ["--model", "tests_app.Friend", "--receiver", "followed"],
            "The receiver 'followed' doesn't follow tests_app.Friend: its rows concern nothing.",
        ),
    ],
)
def test_a_model_that_nobody_follows(
    followed: Receiver[..., Any], words: list[str], said: str
) -> None:
    assert refused(*words) == said


def test_a_row_that_can_be_no_item_is_told(totals: Receiver[..., Any]) -> None:
    def wrong(instance: Any, **kwargs: Any) -> Any:
        return 1.5

    made = recheck(name="wrong", key=wrong)(lambda sender, **kwargs: None)
    post_save.connect(made, sender=Group)
    Group.objects.bulk_create([Group(name="a")])
    assert refused("--model", "tests_app.Group").startswith("wrong: ")


# What makes no sense


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--key 1", "--key needs --receiver NAME"),
        ("--reload", "--reload needs --watch"),
        ("--health-file x", "--health-file needs --watch"),
        ("--watch --model tests_app.Item", "--model is done once: leave out --watch, and let"),
        ("--watch --retry-dead", "--retry-dead is done once: leave out --watch, and let"),
        ("--watch --receiver totals --key 1", "--key names one item, which is done once: leave"),
        (
            "--receiver totals --key 1 --model tests_app.Item",
            "--key names one item and --mod",
        ),
        ("--receiver totals --key 1 --limit 1", "--key names one item: leave out --limit"),
        ("--receiver totals --key 1 --threads 2", "--key names one item: leave out --threads"),
        ("--watch --health-file /nowhere/at/all", "--health-file can't be written: "),
    ],
)
def test_options_that_make_no_sense(totals: Receiver[..., Any], words: str, said: str) -> None:
    told = refused(*words.split())
    assert told.startswith(said)
    assert told.count("\n") == 0


@pytest.mark.parametrize("label", ["tests_app", "tests_app.Nothing", "nowhere.Item", ""])
def test_a_model_that_isnt_there(label: str) -> None:
    with pytest.raises(CommandError, match=r"must be a model such as shop\.Order"):
        call_command("recheck_run", f"--model={label}")


@pytest.mark.parametrize("threads", ["0", "-1", "many"])
def test_threads_are_a_number(threads: str) -> None:
    with pytest.raises(CommandError, match="must be a whole number, at least 1"):
        call_command("recheck_run", f"--threads={threads}")


def test_keywords_of_call_command(followed: Receiver[..., Any]) -> None:
    assert run(model="tests_app.Item", threads=2).startswith("30 recorded, 30 items")


# --threads, and what it tells


def test_threads_run_passes_side_by_side(calls: list[Any]) -> None:
    meet = threading.Barrier(3, timeout=20)

    @recheck(name="meeting", key="group", dispatch="worker")
    def meeting(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        meet.wait()
        calls.append(Group.objects.count())

    meeting.recheck_many([1, 2, 3])
    assert run("--threads", "3") == "3 items, 3 passes, 0 failed\n"
    assert run("--threads", "3") == "0 items, 0 passes, 0 failed\n"
    assert store.current().last_drain() is not None


def test_a_thread_that_ends_the_process_ends_the_drain() -> None:
    @recheck(name="leaving", key="group", dispatch="worker")
    def leaving(sender: Any, **kwargs: Any) -> None:
        raise SystemExit("as asked")

    leaving.recheck_many(range(9))
    with pytest.raises(CommandError, match=r"A pass ended the process: .*as asked"):
        call_command("recheck_run", threads=3)


@pytest.mark.parametrize("verbosity", [0, 1, 2, 3])
def test_how_much_it_tells(
    totals: Receiver[..., Any], verbosity: int, capsys: pytest.CaptureFixture[str]
) -> None:
    totals.recheck_many([1, "\x1b[2J"])
    error = StringIO()
    said = run(verbosity=verbosity, stderr=error)
    summary = "2 items, 2 passes, 0 failed\n"
    each = 'totals "\\u001b[2J": ran, 1 passes\ntotals 1: ran, 1 passes\n'
    if verbosity < 2:
        assert said == (summary if verbosity else "")
    else:
        assert sorted(said.splitlines()) == sorted((each + summary).splitlines())
    logged = error.getvalue()
    assert logged.count(" totals 1: pass 1, 1 events, ") == (verbosity == 3)
    assert bool(re.search(r" looked at \d+ receivers: 1 items to run", logged)) == (verbosity == 3)
    logger = logging.getLogger("django_recheck")
    assert (logger.level, [type(h).__name__ for h in logger.handlers]) == (logging.NOTSET, [])


def test_failures_are_logged_unless_only_errors_are_wanted(
    totals: Receiver[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    @recheck(name="failing", key="group", dispatch="worker")
    def failing(sender: Any, **kwargs: Any) -> None:
        raise ValueError("as asked")

    for verbosity, told in ((1, True), (0, False)):
        caplog.clear()
        failing.recheck_many([verbosity])
        assert run(verbosity=verbosity, code=1) == ("1 items, 1 passes, 1 failed\n" * verbosity)
        assert ("the receiver failed" in caplog.text) is told


def test_json_stands_alone_on_the_standard_output(totals: Receiver[..., Any]) -> None:
    totals.recheck_many([1])
    error = StringIO()
    assert json.loads(run("--json", verbosity=2, stderr=error))["outcomes"] == {"ran": 1}
    assert error.getvalue() == "totals 1: ran, 1 passes\n"
