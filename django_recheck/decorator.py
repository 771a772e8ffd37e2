"""``@recheck`` itself: what it takes, what it refuses, and the receiver object that comes of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict, Unpack, overload

from django.core.exceptions import ImproperlyConfigured

from . import arguments, conf, connected, travel
from .receivers import P, R, Receiver


def _inspect(func: Any, name: str | None) -> None:
    """Refuse what @recheck can't decorate, and what would never be called as it stands."""
    if isinstance(func, str):
        raise TypeError(f'@recheck takes its options by name: write @recheck(key="{func}").')
    if isinstance(func, Receiver):
        raise TypeError(f"{func.name} is decorated already: one @recheck has all the options.")
    if isinstance(func, (type, staticmethod, classmethod)):
        kind = "class" if isinstance(func, type) else type(func).__name__
        raise TypeError(
            f"@recheck takes a function, not the {kind} {func.__qualname__}: "
            "decorate a function of the module."
        )
    if not callable(func):
        raise TypeError(f"@recheck takes a function, not {func!r:.200}.")
    if inspect.ismethod(func):
        raise TypeError(
            f"@recheck takes a function, not {func!r}: a bound method would keep its object alive."
        )
    if not name and not hasattr(func, "__qualname__"):
        raise TypeError(f"{func!r} has no name of its own: give it one with @recheck(name=...).")
    if next(iter(arguments.parameters(func)), None) in ("self", "cls"):
        raise TypeError(
            f"@recheck takes a function, not the method {func.__qualname__}: move it to the module."
        )
    own = getattr(func, "__name__", name)
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise TypeError(f"{own} has a yield, so that calling it would run nothing: leave it out.")
    if held := connected.signals_of(func):
        signal = travel.signal_name(held[0])
        raise TypeError(
            f"{own} is connected already, without its lock. Write it the other way round:\n"
            f"@receiver({signal or 'signal'}, ...)\n@recheck\ndef {own}(...)"
        )
    arguments.refuse(str(own), func)


def _callables(**given: Any) -> None:
    """Refuse callables that can't be called as they will be."""
    for option, value in given.items():
        what = f"@recheck({option}=...)"
        if option != "key" and value is not None and not callable(value):
            raise TypeError(f"{what} takes a callable, not {value!r}.")
        if inspect.iscoroutinefunction(value):
            raise TypeError(f"{what} takes a callable that isn't async.")
        if option == "queryset":
            if value is not None and not arguments.parameters(value):
                raise TypeError(f"{what} takes a callable of one argument, the queryset.")
        elif callable(value):
            arguments.refuse(what, value)


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
        data: A callable that gets what the receiver gets; returns JSON: ``recheck_pass.data``.
            With it, what can't travel of the signal's arguments arrives as None.
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
    if isinstance(key, str) and not all(map(str.isidentifier, key.split("."))):
        raise TypeError(f"@recheck(key={key!r}): a path is names with dots between them.")
    _callables(key=key, keys=keys, data=data, queryset=queryset)
    for option, names in (("carry", carry), ("former_names", former_names)):
        if isinstance(names, str):
            raise TypeError(f"@recheck({option}=...) takes a list of names: write [{names!r}].")
    given = _given(options)

    def decorate(function: Callable[P, R]) -> Receiver[P, R]:
        _inspect(function, name)
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
