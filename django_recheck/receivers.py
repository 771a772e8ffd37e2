"""The object that ``@recheck`` makes of a signal receiver: its key, its call, the registry.

What happens to an event after its key is known is ``commit``'s business.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db.models import Model, QuerySet, signals
from django.dispatch import Signal

from . import (
    arguments,
    commit,
    conf,
    connected,
    context,
    relations,
    soundness,
    store,
    travel,
)
from .by_hand import ByHand
from .events import Events, from_signal
from .exceptions import EventError
from .keys import Concern, follow, item_text, typed
from .outage import Ready
from .outcome import Outcome
from .passes import depth_here, immediately, own_pass, prepare
from .records import Item

logger = logging.getLogger("django_recheck")

P = ParamSpec("P")
R = TypeVar("R")

FORBIDDEN = (
    signals.pre_save,
    signals.pre_init,
    signals.post_init,
    signals.class_prepared,
)
"""Signals that come before the write: in autocommit, after-commit would be before it too."""

_DEFAULT_KEYS = {
    "django.contrib.auth.signals:user_logged_in": "user",
    "django.contrib.auth.signals:user_logged_out": "user",
    "django.core.signals:setting_changed": "setting",
}
"""The argument that is the key where it isn't ``instance``."""

registry: dict[str, list[Receiver[..., Any]]] = {}
"""All receivers of this process by name. Held strongly: a nested function lives on, too."""


class Receiver(Generic[P, R]):
    """A decorated signal receiver. Connect it like any other.

    Attributes:
        func: The function as it was written.
        name: Its name in settings, in Redis and on pages.
        options: Its settings, live.
    """

    def __init__(
        self,
        func: Callable[P, R],
        *,
        name: str | None,
        former_names: Sequence[str],
        key: Any,
        keys: Callable[..., Iterable[Any]] | None,
        carry: Sequence[str],
        data: Callable[..., Any] | None,
        queryset: Callable[[Any], Any] | None,
        given: Mapping[str, Any],
    ) -> None:
        self.func = func
        self.__wrapped__ = func
        self.__doc__ = func.__doc__
        self.__module__ = func.__module__
        self.__name__: str = getattr(func, "__name__", type(self).__name__)
        self.__qualname__: str = getattr(func, "__qualname__", self.__name__)
        self.name = name or f"{func.__module__}.{func.__qualname__}"
        self.former_names = tuple(former_names)
        self.key = key
        self.keys = keys
        self.carry = tuple(carry)
        self.data = data
        self.queryset = queryset
        self.wants_pass = "recheck_pass" in arguments.parameters(func)
        self.options = conf.Options(self.name, given)
        registry.setdefault(self.name, []).append(self)

    def __repr__(self) -> str:
        return f"<Receiver {self.name}>"

    def __reduce__(self) -> Any:
        return named, (self.name,)

    @property
    def has_default_key(self) -> bool:
        """Whether the key is the instance itself."""
        return self.key is None and self.keys is None

    @property
    def carried(self) -> tuple[str, ...]:
        """The fields whose values events carry, beside primary and foreign keys."""
        return (
            (*self.carry, self.key.partition(".")[0]) if isinstance(self.key, str) else self.carry
        )

    def receives(self, signal: str, sender: Any) -> bool:
        """Return whether it is connected to a model's signal, by the signal's name."""
        known = travel.SIGNALS[signal]
        senders = connected.senders_of(known, self)
        return any(model is None or model is sender for model in senders)

    def items(self, named: Mapping[str, Any], using: str) -> list[Item]:
        """Work out what an event concerns.

        Args:
            named: What the receiver would be called with.
            using: The database that it comes from.

        Returns:
            The items; none if the row's model is in no app, so that no pass could find the row.

        Raises:
            EventError: A key has a type that no key may have.
        """
        model = type(named.get("instance"))
        if issubclass(model, Model) and travel.sender_named(model._meta.label_lower) is None:
            logger.debug("%s: ignored: no app has the model %s", self.name, model._meta.label)
            return []
        captured = context.capture()
        texts = (item_text(key, using, captured) for key in self._keys(named) if key is not None)
        return [Item(self.name, text) for text in dict.fromkeys(texts)]

    def typed_keys(self, named: Mapping[str, Any]) -> list[Any]:
        """Return the keys of an event as JSON, as ``Concern.typed`` has them."""
        return [typed(key) for key in self._keys(named) if key is not None]

    def _keys(self, named: Mapping[str, Any]) -> Iterable[Any]:
        if self.keys is not None:
            keys = self.keys(**named)
            if isinstance(keys, (str, bytes)):
                raise EventError(f"keys= of {self.name} returned {keys!r}: return a list of keys.")
            return keys or ()
        if callable(self.key):
            return (self.key(**named),)
        if isinstance(self.key, str):
            return (follow(self.key, named),)
        signal = travel.signal_name(named.get("signal"))
        fallback = _DEFAULT_KEYS.get(signal, "instance")
        key = named.get(fallback)
        if key is None and fallback == "user":
            return ()  # nobody was logged in who logs out
        if key is None or (fallback != "setting" and not isinstance(key, Model)):
            raise EventError(
                f"{self.name} got an event without a model instance: name its subject with key=."
            )
        return (key,)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Outcome:
        """Receive a signal. Always synchronous: key and commit belong to the sending thread.

        Returns:
            What became of the event.

        Raises:
            TypeError: It was called without ``signal=``, by hand.
            ImproperlyConfigured: A setting is wrong, and no check was run that would have said so.
            EventError: Its key or its arguments can't be recorded.
        """
        signal = kwargs.get("signal")
        if args or not isinstance(signal, Signal):
            raise TypeError(
                f"{self.name} is a signal receiver. Call {self.__name__}.func(...) to run the "
                f"function itself, or {self.__name__}.recheck(...) to ask for a pass."
            )
        if signal in FORBIDDEN:
            raise EventError(
                f"{self.name} can't follow a signal that comes before the write: use post_save."
            )
        return self._receive(signal, kwargs)

    def _receive(self, signal: Signal | None, named: Mapping[str, Any]) -> Outcome:
        soundness.require(self.options)
        instance = named.get("instance")
        using = named.get("using")
        if not using and isinstance(instance, Model):  # where it is saved: it may be a replica's
            using = router.db_for_write(type(instance), instance=instance)
        if not isinstance(using, str) or using not in connections:
            using = DEFAULT_DB_ALIAS
        ready, calls = [], [named]
        if signal is signals.m2m_changed:
            calls = relations.concerned(self, named, using)
        for call in calls:
            if items := self.items(call, using):
                events = from_signal(self, signal, call, depth_here())
                ready += [(Ready(self, item, events), call) for item in items]
        if not ready:
            return Outcome.IGNORED
        if self.options.dispatch == "immediate":
            others = [one for one in ready if own_pass(one[0].item) is None]  # as with the lock
            for one, call in others:
                immediately(one, call)
            return Outcome.RAN if others else Outcome.COALESCED
        return commit.deliver([one for one, _ in ready], using)

    def recheck(
        self,
        instance: Model | None = None,
        *,
        key: Any = None,
        using: str | None = None,
    ) -> Outcome:
        """Ask for a pass without a signal, after ``bulk_create()`` or ``update()`` say.

        Args:
            instance: A saved row, as if it had just been saved.
            key: The key instead. A path's, or the row's own, may be a text, as of a URL: it becomes
                what the field makes of it. What a callable returns isn't known before: write it
                as the callable does.
            using: The database, by default the instance's own.

        Returns:
            What became of it, as from ``send()``.

        Raises:
            TypeError: It is no row, or none of a model that the receiver follows.
            ValueError: The row was never saved, the field can't have this key, or there is no such
                database.
        """
        if (instance is None) == (key is None):
            got = "neither" if key is None else "both"
            raise TypeError(f"{self.name}: recheck() takes a saved row or key=, and got {got}.")
        if not isinstance(instance, Model | None):
            raise TypeError(
                f"{self.name}: recheck() takes a saved row, not {type(instance).__name__}: "
                "pass a key as key=, and several to recheck_many()."
            )
        by_hand = ByHand(self)
        alias = by_hand.alias(using, instance if instance is not None else key)
        if instance is not None:
            named = by_hand.named(by_hand.sender_of(instance), instance, alias)
            return self._receive(named["signal"], named)
        soundness.require(self.options)
        ready = by_hand.of_key(key, alias)
        if self.options.dispatch == "immediate":
            return self._at_once(ready)
        return commit.deliver([ready], alias)

    def _at_once(self, ready: Ready) -> Outcome:
        """Do here and now what was asked for without a signal, as "immediate" says."""
        prepared = prepare(self, ready.item, ready.events, None)
        if prepared is None:
            return Outcome.GONE
        prepared()
        return Outcome.RAN

    def recheck_many(self, targets: Iterable[Any], *, using: str | None = None) -> int:
        """Record passes for many rows or keys at once; never runs them here.

        What stands before a wrong one is recorded, as if it were the end: that costs a pass at
        most, and the caller hears of the rest.

        Args:
            targets: Saved instances, or keys, as for ``recheck()``; they are taken one by one, and
                a queryset keeps none of them. None is ignored, as a key is that is None, but where
                the key is the row itself.
            using: The database, by default each instance's own.

        Returns:
            The number of items.

        Raises:
            TypeError, ValueError: As from ``recheck()``, of the first wrong one.
        """
        soundness.require(self.options)
        if isinstance(targets, (str, bytes)) or not isinstance(targets, Iterable):
            one = repr(targets) if isinstance(targets, (str, bytes)) else type(targets).__name__
            raise TypeError(
                f"{self.name}: recheck_many() takes rows or keys, as a list or a queryset, "
                f"and {one:.200} is none: write a single one in brackets."
            )
        if isinstance(targets, QuerySet):  # it would keep all its rows
            targets = targets.iterator(chunk_size=10 * store.CHUNK)
        batches: dict[str, dict[Item, Ready]] = {}
        by_hand, total = ByHand(self), 0
        try:
            for target in targets:
                if target is None and not self.has_default_key:
                    continue
                alias = by_hand.alias(using, target)
                batch = batches.setdefault(alias, {})
                batch |= {ready.item: ready for ready in by_hand.wanted(target, alias)}
                if len(batch) >= 10 * store.CHUNK:
                    total += self._record(alias, batch)
        finally:
            total += sum(self._record(*left) for left in batches.items())
        return total

    def _record(self, using: str, batch: dict[Item, Ready]) -> int:
        """Record a batch once its transaction has committed, and empty it.

        Raises:
            TransactionManagementError: Autocommit is off: nothing tells when it commits.
        """
        found = list(batch.values())
        batch.clear()
        if self.options.dispatch == "immediate":
            for ready in found:
                self._at_once(ready)
        elif found:
            commit.record(found, using)
        return len(found)

    def event_of(self, concern: Concern) -> Events:
        """Return the event of a key that nothing else is known of."""
        return ByHand(self).event_of(concern)


def named(name: str) -> Receiver[..., Any] | None:
    """Return the receiver of that name, or that once had it; None if this process has none."""
    if name in registry:
        return registry[name][-1]
    return next((r[-1] for r in registry.values() if name in r[-1].former_names), None)
