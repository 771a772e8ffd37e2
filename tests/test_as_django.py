"""A decorated receiver is to Django's dispatcher what a plain one is.

Each program runs twice, with plain receivers and with decorated ones, and must do the same.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from django.db.models.signals import post_delete, post_save
from django.dispatch import Signal, receiver

from django_recheck import Outcome, recheck
from tests.app.models import Group, Item, ProxyItem
from tests.loops import run

pytestmark = pytest.mark.django_db(transaction=True)


class Play:
    """What a program has: a signal, receivers that note their calls, and the notes.

    Args:
        decorated: Whether its receivers are decorated.
    """

    def __init__(self, decorated: bool) -> None:
        self.decorated = decorated
        self.signal = Signal()
        self.cached = Signal(use_caching=True)
        self.notes: list[Any] = []

    def receiver(self, name: str, error: Exception | None = None) -> Any:
        """Return a receiver that isn't connected yet."""

        def note(sender: Any, **kwargs: Any) -> str:
            self.notes.append((name, getattr(sender, "__name__", sender)))
            if error:
                raise error
            return name

        note.__qualname__ = name
        if not self.decorated:
            return note
        key = None if name.startswith("row") else lambda **_: 1
        return recheck(key=key, name=name)(note)

    def heard(self, pairs: Any) -> None:
        """Note what a ``send()`` returned: who, and whether it is an error."""
        for who, response in pairs:
            if self.decorated and not isinstance(response, Exception):
                assert response is Outcome.RAN
            error = type(response) if isinstance(response, Exception) else None
            self.notes.append((who.__qualname__, error))

    def send(self, sender: Any = None, signal: Signal | None = None) -> None:
        self.heard((signal or self.signal).send(sender=sender))


Program = Callable[[Play], Any]
programs: list[Program] = []


def program(function: Program) -> Program:
    programs.append(function)
    return function


# Connecting


@program
def receivers_are_called_in_the_order_in_which_they_were_connected(play: Play) -> None:
    kept = [play.receiver(name) for name in "cab"]
    for one in kept:
        play.signal.connect(one)
    play.send()


@program
def senders_choose(play: Play) -> None:
    anybody, items, groups = (play.receiver(name) for name in ("anybody", "items", "groups"))
    for signal in (play.signal, play.cached):
        signal.connect(groups, sender=Group)
        signal.connect(anybody)
        signal.connect(items, sender=Item)
        for sender in (Item, Group, ProxyItem, Item):
            play.send(sender, signal)
        play.notes.append([signal.has_listeners(sender) for sender in (Item, ProxyItem)])
    play.send(None)


@program
def a_second_connection_of_the_same_receiver_counts_once(play: Play) -> None:
    once = play.receiver("once")
    for _ in range(3):
        play.signal.connect(once)
        play.signal.connect(once, sender=Item)
    play.send(Item)
    play.notes.append(len(play.signal.receivers))


@program
def a_dispatch_uid_counts_once_whoever_has_it(play: Play) -> None:
    first, second = play.receiver("first"), play.receiver("second")
    play.signal.connect(first, dispatch_uid="one")
    play.signal.connect(second, dispatch_uid="one")
    play.signal.connect(first, dispatch_uid="other")
    play.signal.connect(first, dispatch_uid="another")
    play.send()


@program
def one_receiver_has_several_signals(play: Play) -> None:
    several = receiver([play.signal, play.cached], sender=Item)(play.receiver("several"))
    for signal in (play.signal, play.cached):
        play.send(Item, signal)
        play.send(Group, signal)
    play.notes.append(several.__qualname__)


@program
def a_model_may_be_named(play: Play) -> None:
    named = play.receiver("row")
    post_save.connect(named, sender="tests_app.Item")
    Item.objects.create(name="a")
    ProxyItem.objects.create(name="a")
    play.notes.append(post_save.disconnect(named, sender="tests_app.Item"))
    Item.objects.create(name="a")


# Disconnecting


@program
def disconnecting_tells_whether_there_was_one(play: Play) -> None:
    one = play.receiver("one")
    play.signal.connect(one)
    play.signal.connect(one, sender=Item)
    play.notes.append(play.signal.disconnect(one, sender=Group))
    play.notes.append(play.signal.disconnect(one))
    play.notes.append(play.signal.disconnect(one))
    play.send(Item)
    play.notes.append(play.signal.disconnect(one, sender=Item))
    play.send(Item)


@program
def disconnecting_goes_by_dispatch_uid(play: Play) -> None:
    one = play.receiver("one")
    play.cached.connect(one, sender=Item, dispatch_uid="uid")
    play.send(Item, play.cached)
    play.notes.append(play.cached.disconnect(one, sender=Item))
    play.notes.append(play.cached.disconnect(dispatch_uid="uid", sender=Item))
    play.send(Item, play.cached)


@program
def one_that_disconnects_another_meanwhile_spares_it_once(play: Play) -> None:
    later = play.receiver("later")

    def first(sender: Any, **kwargs: Any) -> None:
        play.notes.append(play.signal.disconnect(later))

    play.signal.connect(first)
    play.signal.connect(later)
    for _ in range(2):
        play.notes += [who.__qualname__ for who, _ in play.signal.send(sender=None)]


@program
def one_that_is_held_by_the_signal_alone_lives(play: Play) -> None:
    play.signal.connect(play.receiver("held"), weak=False)
    gc.collect()
    play.send()


# Errors


@program
def an_error_stops_send_and_nobody_else(play: Play) -> None:
    error = LookupError("the receiver's")
    kept = [play.receiver("a"), play.receiver("b", error), play.receiver("c")]
    for one in kept:
        play.signal.connect(one)
    with pytest.raises(LookupError) as raised:
        play.send()
    play.notes.append(raised.value is error)
    play.heard(play.signal.send_robust(sender=Item))


@program
def an_error_stops_asend_and_nobody_else(play: Play) -> None:
    error = LookupError("the receiver's")
    kept = [play.receiver("a"), play.receiver("b", error), play.receiver("c")]
    for one in kept:
        play.signal.connect(one)
    with pytest.raises(LookupError) as raised:
        run(play.signal.asend(sender=None))
    play.notes.append(raised.value is error)
    play.heard(run(play.signal.asend_robust(sender=Item)))


@program
def an_error_comes_out_of_save_and_delete(play: Play) -> None:
    failing = play.receiver("row", LookupError("the receiver's"))
    item = Item.objects.create(name="a")
    for signal in (post_save, post_delete):
        signal.connect(failing, sender=Item)
    with pytest.raises(LookupError):
        item.save()
    with pytest.raises(LookupError):
        item.delete()
    for signal in (post_save, post_delete):
        signal.disconnect(failing, sender=Item)


@pytest.fixture(params=["immediate", "inline"], autouse=True)
def _dispatch(request: pytest.FixtureRequest, settings: Any) -> None:
    """Errors come out of both: of the first at once, of the second as RAISE_EXCEPTIONS says."""
    found = {"DISPATCH": request.param, "RAISE_EXCEPTIONS": True, "BACKOFF": (0.001, 0.001)}
    settings.RECHECK = {**settings.RECHECK, **found}
    settings.DEBUG = True


@pytest.mark.parametrize("program", programs, ids=lambda program: program.__name__)
def test_decorated_receivers_do_as_plain_ones(program: Program) -> None:
    plain, decorated = Play(False), Play(True)
    program(plain)
    program(decorated)
    assert plain.notes
    assert decorated.notes == plain.notes
