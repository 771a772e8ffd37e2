"""``@recheck`` and the object it makes of a signal receiver: options, keys, registry.

What happens to an event after its key is known is ``commit``'s business.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.models import Model, signals
from django.dispatch import Signal

from . import commit, conf, connected, context, store, travel
from .events import Events, from_signal
from .exceptions import EventError
from .keys import Concern, item_text, primary_key
from .outcome import Outcome, most_urgent
from .passes import immediately, own_pass
from .records import Item

P = ParamSpec("P")
R = TypeVar("R")

FORBIDDEN = (
    signals.pre_save,
    signals.pre_init,
    signals.post_init,
    signals.class_prepared,
)
"""Signals that come before the write they are about: after-commit would be before it, in autocommit."""

_DEFAULT_KEYS = {
    "django.contrib.auth.signals:user_logged_in": "user",
    "django.contrib.auth.signals:user_logged_out": "user",
    "django.core.signals:setting_changed": "setting",
}
"""The argument that is the key where it isn't ``instance``."""

registry: dict[str, list[Receiver[..., Any]]] = {}
"""All receivers of this process by name. Held strongly, so a nested function lives as long as the process."""


class Receiver(Generic[P, R]):
    """A decorated signal receiver. Connect it like any other; Django calls it with the signal's arguments.

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
        parameters = _parameters(func, name)
        self.func = func
        self.__wrapped__ = func
        self.__doc__ = func.__doc__
        for attribute in ("__name__", "__qualname__", "__module__"):
            setattr(self, attribute, getattr(func, attribute, type(self).__name__))
        self.name = name or f"{func.__module__}.{func.__qualname__}"
        self.former_names = tuple(former_names)
        self.key = key
        self.keys = keys
        self.carry = tuple(carry)
        self.data = data
        self.queryset = queryset
        self.wants_pass = "recheck_pass" in parameters
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

    def _keys(self, named: Mapping[str, Any]) -> Iterable[Any]:
        if self.keys is not None:
            return self.keys(**named) or ()
        if callable(self.key):
            return (self.key(**named),)
        if isinstance(self.key, str):
            return (_follow(self.key, named),)
        signal = travel.signal_name(named.get("signal"))
        fallback = _DEFAULT_KEYS.get(signal, "instance")
        if (key := named.get(fallback)) is None or (
            fallback != "setting" and not isinstance(key, Model)
        ):
            raise EventError(
                f"{self.name} got an event without a model instance: say what it is about with key=."
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
                f"{self.name} is a signal receiver. Call {self.__name__}.func(...) to run the function itself, "
                f"or {self.__name__}.recheck(...) to ask for a pass."
            )
        if signal in FORBIDDEN:
            raise EventError(
                f"{self.name} can't follow a signal that comes before the write: use post_save."
            )
        return self._receive(signal, kwargs)

    def _receive(self, signal: Signal | None, named: Mapping[str, Any]) -> Outcome:
        instance = named.get("instance")
        using = named.get("using") or (instance._state.db if isinstance(instance, Model) else None)
        using = using if using in connections else DEFAULT_DB_ALIAS
        items = self.items(named, using)
        if not items:
            return Outcome.IGNORED
        events = from_signal(self, signal, named)
        if self.options.dispatch == "immediate":
            for item in items:
                immediately(self, item, events, named)
            return Outcome.RAN
        return most_urgent(
            commit.deliver(self, item, events, using, own_pass(item)) for item in items
        )

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
        named: dict[str, Any] = {
            "signal": None,
            "sender": type(instance),
            "instance": instance,
            "using": using,
        }
        if instance is not None:
            return self._receive(None, named)
        text = item_text(self._known(key), using or DEFAULT_DB_ALIAS, context.capture())
        item, events = Item(self.name, text), self.event_of(Concern.parse(text))
        return commit.deliver(self, item, events, using or DEFAULT_DB_ALIAS, own_pass(item))

    def recheck_many(self, targets: Iterable[Any], *, using: str | None = None) -> int:
        """Record passes for many rows or keys at once; never runs them here.

        Args:
            targets: Saved instances, or keys.
            using: The database, by default each instance's own.

        Returns:
            The number of items.
        """
        batches: dict[str, dict[Item, store.Entry]] = {}
        total = 0
        for target in targets:
            alias = using or (target._state.db if isinstance(target, Model) else None)
            batch = batches.setdefault(alias or DEFAULT_DB_ALIAS, {})
            for item, events in self._wanted(target, alias or DEFAULT_DB_ALIAS):
                batch[item] = store.Entry(item, 1, events.packed(), self.options)
            if len(batch) >= 10 * store.CHUNK:
                total += self._record(alias or DEFAULT_DB_ALIAS, batch)
        return total + sum(self._record(*left) for left in batches.items())

    def _record(self, using: str, batch: dict[Item, store.Entry]) -> int:
        """Record a batch when its transaction has committed, at once outside of one, and empty it."""
        entries = list(batch.values())
        batch.clear()
        if entries:
            transaction.on_commit(partial(store.current().enqueue, entries), using=using)
        return len(entries)

    def _wanted(self, target: Any, using: str) -> list[tuple[Item, Events]]:
        if isinstance(target, Model):
            named = {
                "signal": None,
                "sender": type(target),
                "instance": target,
                "using": using,
            }
            events = from_signal(self, None, named)
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
        if self.has_default_key and not isinstance(key, Model) and len(models) == 1:
            return travel.restored(models[0], DEFAULT_DB_ALIAS, {models[0]._meta.pk.attname: key})
        return key

    def event_of(self, concern: Concern) -> Events:
        """Return the event of a key that nothing else is known of."""
        models, instance = self._models(), None
        sender = models[0] if len(models) == 1 else None
        if self.has_default_key and sender is not None:
            instance = travel.restored(
                sender, concern.using, {primary_key(sender).attname: concern.key}
            )
        named = {
            "signal": None,
            "sender": sender,
            "instance": instance,
            "using": concern.using,
        }
        return from_signal(self, None, named)


def _follow(path: str, named: Mapping[str, Any]) -> Any:
    """Return what a key path leads to, from the instance on, or from the arguments without one.

    A path that ends in a foreign key takes its column, which needs no query.
    """
    value: Any = named.get("instance")
    for part in path.split("."):
        if value is None and part in named:
            value = named[part]
        elif isinstance(value, Model):
            value = _attribute(value, part, last=part is path.rpartition(".")[2])
        else:
            value = getattr(value, part)
        if value is None:
            return None
    return value


def _attribute(instance: Model, name: str, *, last: bool) -> Any:
    try:
        field = instance._meta.get_field(name)
    except FieldDoesNotExist:
        field = next((f for f in instance._meta.concrete_fields if f.attname == name), None)
    column = getattr(field, "attname", None)
    if column is None or (name != column and not last):
        return getattr(instance, name)
    value = getattr(instance, column)
    return field.to_python(value) if field.primary_key or field.remote_field else value


def _parameters(func: Any, name: str | None) -> Mapping[str, inspect.Parameter]:
    """Return a function's parameters.

    Raises:
        TypeError: It is nothing that @recheck can decorate.
    """
    if not callable(func) or inspect.ismethod(func):
        raise TypeError(
            f"@recheck takes a function, not {func!r}: a bound method would keep its object alive."
        )
    if not name and not hasattr(func, "__qualname__"):
        raise TypeError(f"{func!r} has no name of its own: give it one with @recheck(name=...).")
    parameters = inspect.signature(func).parameters
    if next(iter(parameters), None) in ("self", "cls"):
        raise TypeError(
            f"@recheck takes a function, not the method {func.__qualname__}: move it to the module."
        )
    if held := connected.signals_of(func):
        wrong = travel.signal_name(held[0]) or "signal"
        raise TypeError(
            f"{getattr(func, '__qualname__', name)} is connected already, without its lock. Write it the other way "
            f"round:\n@receiver({wrong}, ...)\n@recheck\ndef {getattr(func, '__name__', 'receiver')}(...)"
        )
    return parameters


class Options(TypedDict, total=False):
    """The settings that ``@recheck`` takes, in lower case. See ``RECHECK`` for what they mean."""

    ttl: float
    max_hold: float
    max_passes: int
    inline_budget: float
    max_attempts: int
    backoff: tuple[float, float]
    dispatch: str
    delay: float
    max_wait: float | None
    concurrency: int | None
    on_redis_error: str
    refresh: bool
    durable: bool


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    names = {name.lower(): name for name, setting in conf.SETTINGS.items() if setting.option}
    given = {}
    for option, value in options.items():
        if option not in names:
            known = [
                *names,
                "key",
                "keys",
                "name",
                "former_names",
                "carry",
                "data",
                "queryset",
            ]
            raise TypeError(f"@recheck has no option {option!r}: {conf.nearest(option, known)}")
        given[names[option]] = conf.validated(names[option], value, f"@recheck({option}=...)")
    if problem := conf.debounce_problem(given.get("DELAY", 0), given.get("MAX_WAIT")):
        raise ImproperlyConfigured(f"@recheck: {problem}.")
    return given


@overload
def recheck(func: Callable[P, R], /) -> Receiver[P, R]: ...
@overload
def recheck(
    *,
    key: str | Callable[..., Any] | None = None,
    keys: Callable[..., Iterable[Any]] | None = None,
    name: str | None = None,
    former_names: Sequence[str] = (),
    carry: Sequence[str] = (),
    data: Callable[..., Any] | None = None,
    queryset: Callable[[Any], Any] | None = None,
    **options: Unpack[Options],
) -> Callable[[Callable[P, R]], Receiver[P, R]]: ...
def recheck(
    func: Callable[P, R] | None = None,
    /,
    *,
    key: str | Callable[..., Any] | None = None,
    keys: Callable[..., Iterable[Any]] | None = None,
    name: str | None = None,
    former_names: Sequence[str] = (),
    carry: Sequence[str] = (),
    data: Callable[..., Any] | None = None,
    queryset: Callable[[Any], Any] | None = None,
    **options: Any,
) -> Receiver[P, R] | Callable[[Callable[P, R]], Receiver[P, R]]:
    """Make a signal receiver run once at a time for each key, and again for what came meanwhile.

    Args:
        func: The receiver, where the decorator is used bare. ``@receiver`` goes above it.
        key: What the lock is about: a field or dotted path of the instance, or a callable that gets
            what the receiver gets; None for the instance itself.
        keys: A callable that returns several keys, each an item of its own.
        name: The receiver's name, by default its module and qualified name.
        former_names: Names under which older versions of the code recorded events.
        carry: Fields whose values events carry, beside primary and foreign keys.
        data: A callable that gets what the receiver gets and returns JSON for ``recheck_pass.data``.
        queryset: A callable that shapes the queryset by which a pass reads its row.
        **options: The settings of one receiver, in lower case.

    Raises:
        TypeError: What is decorated is no plain function, or an option has no such name.
        ImproperlyConfigured: An option has a value that it can't have.
    """
    if key is not None and keys is not None:
        raise TypeError("@recheck takes either key= or keys=.")
    if key is not None and not callable(key) and not (isinstance(key, str) and key):
        raise TypeError(
            f"@recheck(key=...) takes a field's name, a path or a callable, not {key!r}."
        )
    if name is not None and (not isinstance(name, str) or not name or len(name.split()) != 1):
        raise TypeError(f"@recheck(name=...) takes a word without spaces, not {name!r}.")
    given = _given(options)

    def decorate(function: Callable[P, R]) -> Receiver[P, R]:
        return Receiver(
            function,
            name=name,
            former_names=former_names,
            key=key,
            keys=keys,
            carry=carry,
            data=data,
            queryset=queryset,
            given=given,
        )

    return decorate if func is None else decorate(func)


def named(name: str) -> Receiver[..., Any] | None:
    """Return the receiver of that name, or that once had it; None if this process has none."""
    if name in registry:
        return registry[name][-1]
    return next((r[-1] for r in registry.values() if name in r[-1].former_names), None)
