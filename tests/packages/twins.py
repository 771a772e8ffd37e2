"""A plain receiver and a rechecked one that do the same, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from django.db import transaction
from django.dispatch import Signal

from django_recheck import recheck, store, views, worker

from .models import Derived

State = Callable[[Any], str]
"""What there is to know of a key, "" for nothing."""


class Way:
    """How the operations of a test are done: who runs the passes, and in which transactions."""

    def __init__(self, dispatch: str, *, atomic: bool) -> None:
        self.dispatch = dispatch
        self.atomic = atomic

    def block(self) -> AbstractContextManager[Any]:
        """Return what stands around some operations."""
        return transaction.atomic() if self.atomic else nullcontext()


@contextmanager
def following(receiver: Any, *signals: Signal) -> Iterator[None]:
    """Let a receiver hear signals for as long as the block runs."""
    for signal in signals:
        signal.connect(receiver)
    try:
        yield
    finally:
        for signal in signals:
            signal.disconnect(receiver)


class Twins:
    """Both receivers write down the state of their keys, each under its own name.

    Args:
        way: Who runs the passes.
        state: What they write down.
        signals: What they follow: pairs of a signal and a sender.
        plain_keys: The keys of an event, for the plain receiver.
        options: The rechecked one's, by default with the same keys.
    """

    def __init__(
        self,
        way: Way,
        state: State,
        signals: Iterable[tuple[Signal, Any]],
        plain_keys: Callable[..., Iterable[Any]],
        **options: Any,
    ) -> None:
        self.state = state

        def plain(**kwargs: Any) -> None:
            for key in plain_keys(**kwargs):
                self._write("plain", key)

        @recheck(**{"name": "rechecked", "dispatch": way.dispatch, **options})
        def rechecked(recheck_pass: Any, **kwargs: Any) -> None:
            self._write("rechecked", recheck_pass.key)

        self.plain, self.rechecked = plain, rechecked
        self.signals = list(signals)
        for signal, sender in self.signals:
            signal.connect(plain, sender=sender)
            signal.connect(rechecked, sender=sender)

    def part(self) -> None:
        """Disconnect both."""
        for signal, sender in self.signals:
            signal.disconnect(self.plain, sender=sender)
            signal.disconnect(self.rechecked, sender=sender)

    def _write(self, who: str, key: Any) -> None:
        with transaction.atomic():
            Derived.objects.filter(who=who, key=str(key)).delete()
            if value := self.state(key):
                Derived.objects.create(who=who, key=str(key), value=value)

    def found(self, who: str) -> dict[str, str]:
        """Return what a receiver has written down by now."""
        worker.drain()
        assert views.counts(store.current()) == {}, "nothing is left in Redis"
        return dict(Derived.objects.filter(who=who).values_list("key", "value"))

    def agree_on(self, keys: Iterable[Any]) -> dict[str, str]:
        """Return what is true of these keys, which is what both receivers have found."""
        true = {str(key): value for key in keys if (value := self.state(key))}
        assert self.found("rechecked") == true
        assert self.found("plain") == true
        return true
