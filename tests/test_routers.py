"""Replicas: a pass reads where its event was written, although the routers read elsewhere."""

from __future__ import annotations

import asyncio
import contextvars
import re
import sys
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections
from django.db.models import Model
from django.db.models.signals import post_save
from django.dispatch import receiver

from django_recheck import Outcome, Receiver, recheck
from django_recheck.testing import drain, immediate, override
from tests.app.models import Group, Item, Named, Watched

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])
PASSES = "django_recheck.routers.PassRouter"
PAGE = (Path(__file__).parent.parent / "docs/howto/replicas.md").read_text("utf-8")


class Replica:
    """Reads from "other", a replica of "default" that is behind."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str:
        return "other"

    def db_for_write(self, model: type[Model], **hints: Any) -> str:
        return "default"


class OnlyReads:
    """As a router that leaves writes to Django."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str:
        return "other"


class GroupsElsewhere:
    """Groups have a database of their own, and other models what is said here."""

    def __init__(self, others: str | None) -> None:
        self.others = others

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        return "other" if model is Group else self.others

    db_for_write = db_for_read


class Reports:
    """Watched rows are read from the replica, whoever asks."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        return "other" if model is Watched else None


@pytest.fixture
def behind() -> Item:
    """A row of which the replica has an older state, in a group with an older name."""
    for alias, name in (("other", "old"), ("default", "new")):
        Group.objects.using(alias).bulk_create([Group(pk=1, name=name)])
        Watched.objects.using(alias).bulk_create([Watched(pk=1, name=name)])
        Item.objects.using(alias).bulk_create([Item(pk=1, group_id=1, name=name)])
    return Item.objects.using("default").get()


@pytest.fixture
def routed(settings: Any) -> Callable[..., None]:
    """Put routers in force."""

    def route(*routers: Any) -> None:
        settings.DATABASE_ROUTERS = list(routers)

    return route


def reads(pk: int) -> list[Any]:
    """Return what plain code reads, in many ways."""
    item = Item.objects.get(pk=pk)
    again = Item.objects.get(pk=pk)
    again.refresh_from_db()
    group = Group.objects.prefetch_related("item_set").get(pk=1)
    return [
        item.name,
        again.name,
        item.group and item.group.name,
        group.name,
        group.item_set.get().name,
        group.item_set.all()[0].name,
        *Item.objects.filter(group__name__in=["old", "new"]).values_list("group__name", flat=True),
        Watched.objects.get().name,
    ]


NEW, OLD = ["new"] * 8, ["old"] * 8
Seen = list[list[Any]]


@pytest.fixture
def seen() -> Seen:
    """What passes saw: their row's name, and what they read."""
    return []


@pytest.fixture
def note(seen: Seen) -> Receiver[..., Any]:
    @receiver(post_save, sender=Item)
    @recheck(name="note")
    def note(sender: Any, instance: Item, **kwargs: Any) -> None:
        seen.append([instance.name, reads(instance.pk)])

    return note


def test_a_pass_reads_its_row_where_the_event_wrote_and_the_rest_where_routers_say(
    routed: Any, behind: Item, note: Any, seen: Seen
) -> None:
    routed(Replica())
    behind.save()
    assert seen == [["new", OLD]]


@pytest.mark.parametrize("replica", [Replica, OnlyReads])
def test_what_a_receiver_reads_it_reads_there_too(
    routed: Any, behind: Item, note: Any, seen: Seen, replica: Any
) -> None:
    routed(PASSES, replica())
    behind.save()
    assert seen == [["new", NEW]]


def test_the_how_to_pages_routers_do_what_it_says(
    settings: Any, behind: Item, note: Any, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, router, pooled = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
    shown: dict[str, Any] = {}
    exec(chosen + router.replace('"replica"', '"other"') + pooled, shown)
    module = types.ModuleType("shop.routers")
    module.__dict__.update(shown)
    monkeypatch.setitem(sys.modules, "shop.routers", module)
    settings.DATABASE_ROUTERS = shown["DATABASE_ROUTERS"]
    behind.save()
    assert (seen, reads(1)) == ([["new", NEW]], OLD)
    words = contextvars.ContextVar("words", default="none")
    words.set("these")
    with ThreadPoolExecutor(1) as pool:
        assert shown["in_pool"](pool, words.get).result() == "these"


def test_outside_of_passes_the_router_is_silent(
    routed: Any, behind: Item, note: Any, seen: Seen
) -> None:
    routed(PASSES, Replica())
    assert reads(1) == OLD
    behind.save()
    assert (seen, reads(1)) == ([["new", NEW]], OLD)
    routed(PASSES)
    assert reads(1) == NEW


@pytest.mark.parametrize("way", ["drained", "immediate", "by key", "unlocked", "nested"])
def test_however_a_pass_comes_to_run(
    routed: Any, settings: Any, behind: Item, note: Receiver[..., Any], seen: Seen, way: str
) -> None:
    routed(PASSES, Replica())
    away = {**settings.CACHES["recheck"], "LOCATION": "redis://127.0.0.1:1/0"}
    settings.CACHES = {**settings.CACHES, "away": away}
    if way == "drained":
        note.recheck_many([behind])
        assert drain().passes == 1
    elif way == "immediate":
        with immediate():
            behind.save()
    elif way == "by key":
        assert note.recheck(key=behind.pk) is Outcome.RAN
    elif way == "unlocked":
        with override(CACHE="away"):
            behind.save()
    else:

        @recheck(name="outer")
        def outer(sender: Any, **kwargs: Any) -> None:
            behind.save(using="default")
            seen.append(["new", reads(1)])

        outer.recheck(key=1)
        assert seen.pop() == seen[0]
    assert seen == [["new", NEW]]


def test_reading_the_row_is_part_of_the_pass(routed: Any, behind: Item, seen: Seen) -> None:
    routed(PASSES, Replica())
    Group.objects.using("default").update(total=7)

    @receiver(post_save, sender=Item)
    @recheck(key="group.total", queryset=lambda rows: rows.prefetch_related("named_set"))
    def of_total(sender: Any, instance: Item, recheck_pass: Any, **kwargs: Any) -> None:
        seen.append([recheck_pass.key, recheck_pass.gone, len(instance.named_set.all())])

    behind.named_set.add(Named.objects.using("default").create())
    Item.objects.using("default").select_related("group").get().save()
    assert seen == [[7, False, 1]]


def test_the_order_of_routers_is_the_projects(
    routed: Any, behind: Item, note: Any, seen: Seen
) -> None:
    routed(Replica(), PASSES)
    behind.save()
    routed(Reports(), PASSES, Replica())
    behind.save()
    assert seen == [["new", OLD], ["new", [*NEW[:7], "old"]]]


@pytest.mark.parametrize("others", [None, "default"])
@pytest.mark.parametrize("event", ["item", "group"])
def test_a_model_is_read_from_where_it_is_written(
    routed: Any, behind: Item, seen: Seen, others: str | None, event: str
) -> None:
    @receiver(post_save)
    @recheck(name="both")
    def both(sender: Any, instance: Any, **kwargs: Any) -> None:
        item = Item.objects.get()
        seen.append([instance.name, item.name, item.group and item.group.name])
        seen.append([Group.objects.get().name, Watched.objects.get().name])

    routed(PASSES, GroupsElsewhere(others))
    row = behind if event == "item" else Group.objects.using("other").get()
    row.save()
    own = "new" if event == "item" else "old"
    assert seen == [[own, "new", "old"], ["old", "new"]]


@pytest.mark.parametrize("routers", [[], [OnlyReads], [Replica]])
def test_an_event_that_named_its_database_itself_is_followed_there(
    routed: Any, behind: Item, note: Any, seen: Seen, routers: list[Any]
) -> None:
    routed(PASSES, *(router() for router in routers))
    Item.objects.using("other").get().save(using="other")
    assert seen == [["old", OLD]]


@pytest.mark.parametrize("routers", [[], [Replica]])
def test_a_row_from_a_database_that_was_named_leads_to_its_own(
    routed: Any, behind: Item, seen: Seen, routers: list[Any]
) -> None:
    @receiver(post_save, sender=Item)
    @recheck(name="names")
    def names(sender: Any, **kwargs: Any) -> None:
        live = Item.objects.using("default").get()
        seen.append([live.name, live.group and live.group.name, Group.objects.get().name])

    routed(PASSES, *(router() for router in routers))
    Item.objects.using("other").get().save(using="other")
    assert seen == [["new", "new", "old"]]


@pytest.mark.parametrize("written", ["default", "other"])
def test_an_event_without_a_model_reads_what_is_written(
    routed: Any, behind: Item, seen: Seen, written: str
) -> None:
    class Writes(Replica):
        def db_for_write(self, model: type[Model], **hints: Any) -> str:
            return written

    @recheck(name="plain", key=lambda **kwargs: 1)
    def plain(sender: Any, **kwargs: Any) -> None:
        seen.append(reads(1))

    routed(PASSES, Writes())
    assert plain.recheck(key=1) is Outcome.RAN
    assert seen == [NEW if written == "default" else OLD]


# Async receivers, threads


async def reads_async(pk: int) -> list[Any]:
    item = await Item.objects.aget(pk=pk)
    names = [one.name async for one in Group.objects.all()]
    return [item.name, *names, (await sync_to_async(reads)(pk))[4]]


@pytest.mark.parametrize("signal_sent", ["send", "asend"])
def test_async_receivers_read_there_too(
    routed: Any, behind: Item, seen: Seen, signal_sent: str
) -> None:
    @recheck(name="async")
    async def note(sender: Any, instance: Item, **kwargs: Any) -> None:
        together = await asyncio.gather(reads_async(1), reads_async(1))
        seen.append([instance.name, *together])

    routed(PASSES, Replica())
    post_save.connect(note, sender=Item)
    arguments = {"instance": behind, "created": False, "using": "default"}
    if signal_sent == "send":
        post_save.send(Item, **arguments)
    else:
        async_to_sync(post_save.asend)(Item, **arguments)
    assert seen == [["new", ["new"] * 3, ["new"] * 3]]
    assert async_to_sync(reads_async)(1) == ["old"] * 3


def in_thread(call: Callable[[], Any]) -> Any:
    """Run something in a thread, and return what it returns."""

    def closing() -> Any:
        try:
            return call()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(closing).result()


def test_a_thread_reads_there_if_it_is_given_the_context(
    routed: Any, behind: Item, seen: Seen
) -> None:
    def read() -> list[Any]:
        return reads(1)

    @receiver(post_save, sender=Item)
    @recheck(name="threads")
    def threads(sender: Any, **kwargs: Any) -> None:
        around = contextvars.copy_context()
        seen.append([in_thread(lambda: around.run(read)), in_thread(read)])

    routed(PASSES, Replica())
    behind.save()
    assert seen == [[NEW, OLD]]
