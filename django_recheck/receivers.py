"""The object that ``@recheck`` makes of a signal receiver: its key, its call, the registry.

What happens to an event after its key is known is ``commit``'s business.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.models import Model, signals
from django.dispatch import Signal

from . import commit, conf, connected, context, dispatch, relations, store, travel
from .events import Events, from_signal
from .exceptions import EventError
from .keys import Concern, follow, item_text, typed
from .outage import Ready
from .outcome import Outcome
from .passes import immediately, own_pass, prepare
from .records import Item
from .transactions import refuse_manual

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
        self.wants_pass = "recheck_pass" in inspect.signature(func).parameters
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

        Raises:
            EventError: A key has a type that no key may have.
        """
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
        if (key := named.get(fallback)) is None or (
            fallback != "setting" and not isinstance(key, Model)
        ):
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
        instance = named.get("instance")
        using = named.get("using") or (instance._state.db if isinstance(instance, Model) else None)
        if not isinstance(using, str) or using not in connections:
            using = DEFAULT_DB_ALIAS
        ready, calls = [], [named]
        if signal is signals.m2m_changed:
            calls = relations.concerned(self, named, using)
        for call in calls:
            if items := self.items(call, using):
                events = from_signal(self, signal, call)
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
            key: The key instead.
            using: The database, by default the instance's own.

        Returns:
            What became of it, as from ``send()``.
        """
        if (instance is None) == (key is None):
            raise TypeError("recheck() takes either an instance or key=.")
        if instance is not None:
            named = self._by_hand(type(instance), instance, using or instance._state.db)
            return self._receive(named["signal"], named)
        text = item_text(self._known(key), using or DEFAULT_DB_ALIAS, context.capture())
        ready = Ready(self, Item(self.name, text), self.event_of(Concern.parse(text)))
        if self.options.dispatch == "immediate":
            return self._at_once(ready)
        return commit.deliver([ready], using or DEFAULT_DB_ALIAS)

    def _at_once(self, ready: Ready) -> Outcome:
        """Do here and now what was asked for without a signal, as "immediate" says."""
        prepared = prepare(self, ready.item, ready.events, None)
        if prepared is None:
            return Outcome.GONE
        prepared()
        return Outcome.RAN

    def recheck_many(self, targets: Iterable[Any], *, using: str | None = None) -> int:
        """Record passes for many rows or keys at once; never runs them here.

        Args:
            targets: Saved instances, or keys.
            using: The database, by default each instance's own.

        Returns:
            The number of items.
        """
        batches: dict[str, dict[Item, Ready]] = {}
        total = 0
        for target in targets:
            alias = using or (target._state.db if isinstance(target, Model) else None)
            batch = batches.setdefault(alias or DEFAULT_DB_ALIAS, {})
            for item, events in self._wanted(target, alias or DEFAULT_DB_ALIAS):
                batch[item] = Ready(self, item, events)
            if len(batch) >= 10 * store.CHUNK:
                total += self._record(alias or DEFAULT_DB_ALIAS, batch)
        return total + sum(self._record(*left) for left in batches.items())

    def _record(self, using: str, batch: dict[Item, Ready]) -> int:
        """Record a batch once its transaction has committed, and empty it.

        Raises:
            TransactionManagementError: Autocommit is off: nothing tells when it commits.
        """
        found = list(batch.values())
        batch.clear()

        def record() -> None:
            dispatch.record(found)

        if self.options.dispatch == "immediate":
            for ready in found:
                self._at_once(ready)
        elif found and connections[using].in_atomic_block:
            robust = self.options.on_redis_error != "raise"
            transaction.on_commit(record, using=using, robust=robust)
        elif found:
            refuse_manual(connections[using], self.name)
            record()
        return len(found)

    def _wanted(self, target: Any, using: str) -> list[tuple[Item, Events]]:
        if isinstance(target, Model):
            named = self._by_hand(type(target), target, using)
            events = from_signal(self, named["signal"], named)
            return [(item, events) for item in self.items(named, using)]
        text = item_text(self._known(target), using, context.capture())
        return [(Item(self.name, text), self.event_of(Concern.parse(text)))]

    def _models(self) -> list[type[Model]]:
        found = (
            m for signal in connected.signals_of(self) for m in connected.senders_of(signal, self)
        )
        return list(dict.fromkeys(model for model in found if model is not None))

    def _known(self, key: Any) -> Any:
        """Return a key given by hand as the signal would give it: a default key is the row's."""
        models = self._models()
        if not self.has_default_key or isinstance(key, Model):
            return key
        if len(models) > 1:
            labels = ", ".join(model._meta.label for model in models)
            raise TypeError(
                f"{self.name} follows {labels}: pass the instance instead of key={key!r}."
            )
        if models:
            return self._instance(models[0], DEFAULT_DB_ALIAS, key)
        return key

    @staticmethod
    def _instance(model: type[Model], using: str, key: Any) -> Model:
        return travel.Row(model, using, travel.key_values(model, key)).restored()

    def event_of(self, concern: Concern) -> Events:
        """Return the event of a key that nothing else is known of."""
        models, instance = self._models(), None
        sender = models[0] if len(models) == 1 else None
        if self.has_default_key and sender is not None:
            instance = self._instance(sender, concern.using, concern.key)
        named = self._by_hand(sender, instance, concern.using)
        return from_signal(self, named["signal"], named)

    def _by_hand(self, sender: Any, instance: Model | None, using: str | None) -> dict[str, Any]:
        """Return what the receiver gets without a signal: as a save, where it follows saves."""
        named = {"signal": None, "sender": sender, "instance": instance, "using": using}
        if self.receives("post_save", sender):
            save = {"signal": signals.post_save, "created": False, "raw": False}
            named |= {**save, "update_fields": None}
        return named


def named(name: str) -> Receiver[..., Any] | None:
    """Return the receiver of that name, or that once had it; None if this process has none."""
    if name in registry:
        return registry[name][-1]
    return next((r[-1] for r in registry.values() if name in r[-1].former_names), None)
