"""@recheck and the receiver object: what it takes and refuses, how it behaves as a receiver."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import pickle
import weakref
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from django.db.models.signals import post_init, post_save, pre_save
from django.dispatch import Signal, receiver

from django_recheck import EventError, Outcome, Receiver, receivers, recheck
from tests.app.models import Group, Item

pytestmark = pytest.mark.django_db(transaction=True)


def test_bare_and_with_options() -> None:
    @recheck
    def bare(sender: Any, **kwargs: Any) -> None:
        """Say what it does."""

    @recheck(name="named", ttl=5)
    def optioned(sender: Any, **kwargs: Any) -> None: ...

    assert isinstance(bare, Receiver)
    assert bare.name == f"{__name__}.test_bare_and_with_options.<locals>.bare"
    assert bare.__doc__ == "Say what it does."
    assert inspect.unwrap(bare) is bare.func
    assert optioned.name == "named"
    assert optioned.options.ttl == 5
    assert receivers.named("named") is optioned


def test_picklable_by_name_and_weakly_referenceable() -> None:
    @recheck(name="by-name")
    def note(sender: Any, **kwargs: Any) -> None: ...

    assert pickle.loads(pickle.dumps(note)) is note
    assert copy.deepcopy(note) is note
    assert weakref.ref(note)() is note


def test_former_names_find_the_receiver() -> None:
    @recheck(name="new-name", former_names=["old-name"])
    def note(sender: Any, **kwargs: Any) -> None: ...

    assert receivers.named("old-name") is note
    assert receivers.named("never-was") is None


def test_an_async_receiver_is_called_synchronously() -> None:
    @recheck
    async def note(sender: Any, **kwargs: Any) -> None: ...

    assert not iscoroutinefunction(note)


def test_calling_it_by_hand_points_to_func() -> None:
    @recheck
    def note(sender: Any, **kwargs: Any) -> None: ...

    with pytest.raises(TypeError, match=r"note\.func\(\.\.\.\)"):
        note(sender=Item)


@pytest.mark.parametrize("signal", [pre_save, post_init])
def test_signals_before_the_write_are_refused(signal: Signal) -> None:
    @receiver(signal, sender=Item)
    @recheck
    def note(sender: Any, instance: Item, **kwargs: Any) -> None: ...

    with pytest.raises(EventError, match="use post_save"):
        Item(name="a").save()


def test_c46_a_nested_receiver_lives_without_a_reference() -> None:
    calls = []

    def connect() -> None:
        @receiver(post_save, sender=Item)
        @recheck(name="nested")
        def note(sender: Any, instance: Item, **kwargs: Any) -> None:
            calls.append(instance.pk)

    connect()
    gc.collect()
    item = Item.objects.create(name="a")
    assert calls == [item.pk]


def test_c46_dispatch_uid_works_as_usual() -> None:
    calls = []

    @recheck(name="once")
    def note(sender: Any, instance: Item, **kwargs: Any) -> None:
        calls.append(instance.pk)

    for _ in range(2):
        post_save.connect(note, sender=Item, dispatch_uid="the-one")
    Item.objects.create(name="a")
    assert len(calls) == 1
    assert post_save.disconnect(sender=Item, dispatch_uid="the-one")


def test_debug_accepts_it_at_connect(settings: Any) -> None:
    settings.DEBUG = True

    @recheck
    def good(sender: Any, **kwargs: Any) -> None: ...

    post_save.connect(good, sender=Item)


def outcome_of(signal: Signal, **named: Any) -> Outcome:
    ((_, outcome),) = signal.send(**named)
    assert isinstance(outcome, Outcome)
    return outcome


def test_a_string_key_of_a_foreign_key_costs_no_query(django_assert_num_queries: Any) -> None:
    keys = []
    probe = Signal()

    @receiver(probe)
    @recheck(key="group", refresh=False)
    def note(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        keys.append(recheck_pass.key)

    item = Item.objects.create(group=Group.objects.create(name="g"), name="a")
    item = Item.objects.get(pk=item.pk)
    with django_assert_num_queries(0):
        assert outcome_of(probe, sender=Item, instance=item) is Outcome.RAN
    assert keys == [item.group_id]


def test_a_dotted_path_follows_relations() -> None:
    keys = []

    @receiver(post_save, sender=Item)
    @recheck(key="group.name")
    def note(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        keys.append(recheck_pass.key)

    Item.objects.create(group=Group.objects.create(name="g"), name="a")
    Item.objects.create(group=None, name="nobody's")
    assert keys == ["g"]


def test_c35_a_key_callable_sees_all_arguments_and_may_ignore() -> None:
    seen: list[dict[str, Any]] = []
    calls = []
    probe = Signal()

    def key(sender: Any, **kwargs: Any) -> int | None:
        seen.append(kwargs)
        return kwargs["number"] or None

    @receiver(probe)
    @recheck(key=key)
    def note(sender: Any, number: int, **kwargs: Any) -> None:
        calls.append(number)

    assert outcome_of(probe, sender=Group, number=3) is Outcome.RAN
    assert outcome_of(probe, sender=Group, number=0) is Outcome.IGNORED
    assert calls == [3]
    assert set(seen[0]) == {"signal", "number"}


def test_keys_makes_an_item_of_each() -> None:
    calls = []
    probe = Signal()

    @receiver(probe)
    @recheck(keys=lambda ids, **_: ids)
    def note(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        calls.append(recheck_pass.key)

    assert outcome_of(probe, sender=Group, ids=[1, 2, 2]) is Outcome.RAN
    assert outcome_of(probe, sender=Group, ids=[]) is Outcome.IGNORED
    assert calls == [1, 2]


def test_without_an_instance_a_key_is_asked_for() -> None:
    probe = Signal()

    @receiver(probe)
    @recheck
    def note(sender: Any, **kwargs: Any) -> None: ...

    with pytest.raises(EventError, match="key="):
        probe.send(sender=None)


def test_data_that_is_no_json_is_named() -> None:
    probe = Signal()

    @receiver(probe)
    @recheck(name="data", key=lambda **_: 1, data=lambda **_: {1, 2})
    def note(sender: Any, **kwargs: Any) -> None: ...

    with pytest.raises(EventError, match="data= of data returned is no JSON"):
        probe.send(sender=None)


def test_keys_that_are_one_text_are_refused() -> None:
    probe = Signal()

    @receiver(probe)
    @recheck(keys=lambda **_: "ab", name="one-text")
    def note(sender: Any, **kwargs: Any) -> None: ...

    with pytest.raises(EventError, match="keys= of one-text returned 'ab': return a list of keys"):
        probe.send(sender=None)


def test_created_and_raw_are_only_a_saves() -> None:
    probe, calls = Signal(), []

    @receiver(probe)
    @recheck(key="user", name="made")
    def note(sender: Any, user: int, created: str, raw: str, **kwargs: Any) -> None:
        calls.append((user, created, raw))

    probe.send(sender=None, user=1, created="2020", raw="text")
    assert calls == [(1, "2020", "text")]


class Awaited:
    """An object whose call is a coroutine."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, sender: Any, **kwargs: Any) -> None:
        await asyncio.sleep(0)
        self.calls += 1


@pytest.mark.parametrize("hidden", [False, True])
def test_c51_whatever_can_be_awaited_is(hidden: bool) -> None:
    probe, awaited = Signal(), Awaited()

    def hiding(sender: Any, **kwargs: Any) -> Any:
        return awaited(sender, **kwargs)

    probe.connect(recheck(key=lambda **_: 1, name="awaited")(hiding if hidden else awaited))
    probe.send(sender=None)
    assert awaited.calls == 1
