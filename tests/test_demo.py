"""The shop: its demo in real processes, its embedded server, and its receivers."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import transaction
from project import embedded
from shop import stock
from shop.models import Customer, Order, OrderLine, Product, SearchDocument, Tag

from tests.conftest import POSTGRES
from tests.servers import running

MANAGE = Path(__file__).parent.parent / "testproject" / "manage.py"
OURS = ("DJANGO_SETTINGS_MODULE", "REDIS_URL", "DATABASE_URL", "SHOP_DATABASE", "SHOP_VAR")


class Shop:
    """The shop's command line, with a folder of its own and no Redis but the embedded one."""

    def __init__(self, var: Path) -> None:
        self.var = var
        self.environment = {k: v for k, v in os.environ.items() if k not in OURS}
        self.environment["SHOP_VAR"] = str(var)
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return self.python(str(MANAGE), *arguments, **environment)

    def python(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=MANAGE.parent,
            env=self.environment | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    @property
    def state(self) -> dict[str, Any]:
        """What is known of the embedded server; empty where there is none."""
        try:
            return dict(json.loads((self.var / "valkey.json").read_text()))
        except (FileNotFoundError, ValueError):
            return {}


def eventually(happens: Callable[[], bool], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < until
        time.sleep(0.02)


def lives(process: int) -> bool:
    """Return whether there is such a process; of a group, if it is negative. Zombies don't live."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = path.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        if process in (int(path.parent.name), -int(group)) and state != "Z":
            return True
    return False


def ended(state: dict[str, Any]) -> bool:
    """Return whether the server has ended; its keeper is about to, then."""
    eventually(lambda: lives(state["server"]) or not lives(state["keeper"]))
    return not lives(state["server"])


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    found = Shop(tmp_path)
    yield found
    for process in found.started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    if found.state:
        eventually(lambda: not found.state)


def test_the_demo_reports_three_runs_and_loses_nothing(shop: Shop) -> None:
    demo = shop.start("demo", "--events", "81", "--processes", "3", "--json")
    eventually(lambda: bool(shop.state))
    state = shop.state
    out, err = demo.communicate(timeout=60)
    assert (demo.returncode, err) == (0, "")
    report = json.loads(out)
    assert list(report) == ["runs"]
    assert [run["name"] for run in report["runs"]] == ["lock", "recipe", "recheck"]
    for run in report["runs"]:
        assert list(run) == ["name", "events", "passes", "coalesced", "stale", "seconds"]
        assert run["events"] == 81
        assert 0 < run["passes"] < run["events"]
        assert run["passes"] + run["coalesced"] == run["events"]
    assert report["runs"][2]["stale"] == 0
    assert ended(state), "its server was left behind"
    assert not shop.state


def test_ctrl_c_leaves_no_process_behind(shop: Shop) -> None:
    demo = shop.start("demo", "--events", "100000", "--processes", "1")
    eventually(lambda: bool(shop.state))
    state = shop.state
    with redis.Redis.from_url(state["url"]) as client:
        eventually(lambda: any(b":lock:" in name for name in client.scan_iter("shop-demo:*")))
    os.killpg(demo.pid, signal.SIGINT)  # as a terminal does
    _, err = demo.communicate(timeout=20)
    assert (demo.returncode, err) == (130, "CommandError: Stopped.\n")
    assert ended(state), "its server was left behind"
    eventually(lambda: not lives(-demo.pid))


USER = "from project import embedded; print(embedded.ensure(), flush=True); input()"


def test_the_embedded_server_is_shared_and_its_last_user_stops_it(shop: Shop) -> None:
    one, other = (shop.python("-c", USER) for _ in range(2))
    urls = {line(one), line(other)}
    state = shop.state
    assert urls == {state["url"]}
    one.communicate("\n", timeout=20)
    assert lives(state["server"]), "the other one uses it"
    other.communicate("\n", timeout=20)
    assert ended(state)
    assert not shop.state


def test_the_embedded_server_ends_with_a_user_that_was_killed(shop: Shop) -> None:
    one = shop.python("-c", USER)
    line(one)
    state = shop.state
    one.kill()
    eventually(lambda: ended(state))
    assert not shop.state


def test_a_server_whose_keeper_was_killed_is_ended_by_its_user(shop: Shop) -> None:
    one = shop.python("-c", USER)
    line(one)
    orphan = shop.state
    os.kill(orphan["keeper"], signal.SIGKILL)
    one.communicate("\n", timeout=20)
    eventually(lambda: not lives(orphan["server"]))
    assert not shop.state


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


NOWHERE = {"REDIS_URL": "redis://127.0.0.1:1/0"}
"""Nothing listens there: what works with it has connected to nothing."""


def test_wrong_numbers_are_one_sentence(shop: Shop) -> None:
    done = shop.run("demo", "--events", "0", **NOWHERE)
    assert (done.returncode, done.stdout) == (2, "")
    sentence = "argument --events: must be a whole number, at least 1, not '0'."
    assert done.stderr.splitlines()[-1] == f"manage.py demo: error: {sentence}"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--events=-5"], "--events: must be a whole number, at least 1, not '-5'."),
        (["--processes=99"], "--processes: must be from 1 to 32, not '99'."),
        (["--json", "--serve"], "--json prints nothing but JSON, so it can't go with --serve."),
    ],
)
def test_wrong_arguments_are_one_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(CommandError, match=f"{re.escape(sentence)}$"):
        call_command("demo", *arguments)


def test_there_is_one_demo_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "VAR", tmp_path)
    monkeypatch.setenv("REDIS_URL", NOWHERE["REDIS_URL"])
    with (
        embedded.locked("demo.lock", fcntl.LOCK_EX),
        pytest.raises(CommandError, match=r"^Another demo is running: there is one at a time\.$"),
    ):
        call_command("demo")


COMMANDS = """
import sys, manage
for command in (["check"], ["makemigrations", "--check"], ["migrate", "--verbosity=0"]):
    sys.argv = ["manage.py", *command]
    manage.main()
"""


def test_checks_and_migrations_start_no_server(shop: Shop) -> None:
    process = shop.python("-c", COMMANDS)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert {path.name for path in shop.var.iterdir()} == {"shop.sqlite3"}


@contextmanager
def fresh_database() -> Iterator[str]:
    import psycopg

    name = f"recheck_demo_{os.getpid()}"
    with psycopg.connect(f"{POSTGRES}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield f"{POSTGRES}/{name}"
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.postgres
def test_the_demo_leaves_nothing_in_a_database_of_others(shop: Shop) -> None:
    import psycopg

    with running() as server, fresh_database() as url:
        arguments = ("--events", "10", "--processes", "1", "--json")
        done = shop.run("demo", *arguments, REDIS_URL=server.url, DATABASE_URL=url)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["runs"][2]["stale"] == 0
        with psycopg.connect(url) as connection:
            for table in ("customer", "order", "orderline", "product", "tag", "searchdocument"):
                found = connection.execute(f"SELECT count(*) FROM shop_{table}").fetchone()
                assert found == (0,), table
        with server.client as client:
            left = [name.rpartition(b":")[2] for name in client.scan_iter()]
            assert set(left) <= {b"fence", b"meta", b"minutes"}


@pytest.fixture
def order(transactional_db: None) -> Order:
    return Order.objects.create(customer=Customer.objects.create(name="A"))


def test_the_demo_takes_only_its_own_rows_away(order: Order) -> None:
    line = sell(order, 5)
    line.product.tags.add(Tag.objects.create(name="mine"))
    hot, products = stock.put()
    assert order.pk not in hot
    assert line.product.pk not in products
    OrderLine.objects.create(order_id=hot[0], product_id=products[0], price=1)
    stock.put()
    stock.clear()
    for model in (Customer, Order, OrderLine, Product, Tag):
        assert model._default_manager.count() == 1


def sell(order: Order, price: int) -> OrderLine:
    product, _ = Product.objects.get_or_create(name="Cup", defaults={"price": 1})
    return OrderLine.objects.create(order=order, product=product, price=price)


def total(order: Order) -> float:
    return float(Order.objects.get(pk=order.pk).total)


def statistics(customer: Customer) -> tuple[int, float]:
    found = Customer.objects.get(pk=customer.pk).statistics
    return found.orders, float(found.spent)


def document(product: Product) -> str:
    return SearchDocument.objects.get(product=product).text


def test_a_line_that_moves_concerns_both_orders(order: Order) -> None:
    other = Order.objects.create(customer=order.customer)
    line = sell(order, 5)
    assert (total(order), total(other)) == (5, 0)
    line.order = other
    line.save(update_fields=["quantity"])  # it hasn't moved yet
    with transaction.atomic():
        line.save()
        transaction.set_rollback(True)  # nor now
    assert (total(order), total(other)) == (5, 0)
    line.save()
    assert (total(order), total(other)) == (0, 5)
    OrderLine.objects.filter(pk=line.pk).update(order=order)  # without a signal
    line.refresh_from_db()
    line.order = other
    line.save()
    line.delete()
    assert (total(order), total(other)) == (0, 0)


def test_statistics_follow_totals_and_moved_orders(order: Order) -> None:
    first, second = order.customer, Customer.objects.create(name="B")
    sell(order, 5)
    assert statistics(first) == (1, 5)
    moved = Order.objects.get(pk=order.pk)
    moved.customer = second
    moved.save()
    assert (statistics(first), statistics(second)) == ((0, 0), (1, 5))
    moved.delete()
    assert statistics(second) == (0, 0)
    second.delete()
    assert not Customer.objects.filter(statistics__orders__gt=0).exists()


def test_a_document_follows_its_product_and_its_tags_from_both_sides(order: Order) -> None:
    cup = Product.objects.create(name="Cup", description="Holds tea.", price=5)
    blue, new = (Tag.objects.create(name=name) for name in ("blue", "new"))
    assert document(cup) == "Cup\nHolds tea."
    cup.tags.add(new)
    blue.products.add(cup)
    assert document(cup) == "Cup\nHolds tea.\nblue new"
    blue.name = "green"
    blue.save()
    assert document(cup) == "Cup\nHolds tea.\ngreen new"
    blue.products.clear()
    assert document(cup) == "Cup\nHolds tea.\nnew"
    new.delete()
    assert document(cup) == "Cup\nHolds tea."
    cup.delete()
    assert not SearchDocument.objects.exists()
