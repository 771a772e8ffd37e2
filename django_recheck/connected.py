"""Which signals an object is connected to, looked up in the signals themselves."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.db.models import Model, signals
from django.dispatch import Signal

ANYBODY = id(None)
"""How a signal writes that it was connected without a sender."""
MODEL_SIGNALS = tuple(value for value in vars(signals).values() if isinstance(value, Signal))


def _behind(reference: weakref.ref[Any]) -> Signal | None:
    """Return the signal that made a weak reference: its callback is a method of the signal."""
    callback: Any = reference.__callback__
    if isinstance(callback, weakref.finalize):  # Django 5.2 leaves a finalizer instead
        peeked = callback.peek()
        callback = peeked[1] if peeked else None
    signal = getattr(callback, "__self__", None)
    return signal if isinstance(signal, Signal) else None


def signals_of(target: Any) -> list[Signal]:
    """Return the signals that hold an object as a receiver, each once.

    A custom signal that holds it strongly (``weak=False``) isn't found.
    """
    found = dict.fromkeys(MODEL_SIGNALS)
    found |= dict.fromkeys(filter(None, map(_behind, weakref.getweakrefs(target))))
    return [signal for signal in found if any(_entries(signal, target))]


def held_strongly(target: Any) -> bool:
    """Return whether a signal that a loaded module has holds an object strongly."""
    modules = [getattr(module, "__dict__", {}) for module in [*sys.modules.values()]]
    values = (value for module in modules for value in [*module.values()])
    # By type(): isinstance() would wake up lazy objects.
    found = (value for value in values if issubclass(type(value), Signal))
    return any(any(_entries(signal, target)) for signal in found)


def senders_of(signal: Signal, target: Any) -> list[type[Model] | None]:
    """Return the models whose signal an object receives; None stands for any sender."""
    models = {id(model): model for model in apps.get_models(include_auto_created=True)}
    found = list(_entries(signal, target))
    return [models.get(sender) for sender in found if sender in models or sender == ANYBODY]


def _entries(signal: Signal, target: Any) -> Iterator[int]:
    """Yield the id of the sender of each connection of a target."""
    for (_, sender), held, *_ in list(signal.receivers):
        if (held() if isinstance(held, weakref.ReferenceType) else held) is target:
            yield sender
