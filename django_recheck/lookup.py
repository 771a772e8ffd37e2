"""What a person types to find an item: a key as code or a page shows it, maybe a receiver first."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections

from . import context, receivers
from .by_hand import ByHand
from .keys import dumps, item_text
from .records import Item


def items(typed: str, names: Sequence[str]) -> list[Item]:
    """Return the items that may be meant, likeliest first for each receiver.

    Args:
        typed: A key, or a receiver's name and a key.
        names: The receivers that it may be an item of.
    """
    typed = typed.strip()
    name, _, key = typed.partition(" ")
    if name in names and key.strip():
        names, typed = [name], key.strip()
    return [Item(name, text) for name in names for text in texts(name, typed)]


def texts(receiver: str, typed: str) -> list[str]:
    """Return the items' texts that may be meant, likeliest first.

    >>> texts("unknown", "(7, 'de')")[-1]
    '[7,"de"]'
    """
    known = receivers.named(receiver)
    found = []
    for value in _values(typed):
        with suppress(TypeError, ValueError):  # it is no such key: then it may be an item's text
            key = ByHand(known).key_of(value) if known else value
            found += [item_text(key, alias, context.capture()) for alias in _aliases()]
    return list(dict.fromkeys((*found[:1], typed, dumps(typed), *found[1:])))


def _values(typed: str) -> Iterator[Any]:
    """Yield what a text may mean: itself, a tuple, a UUID."""
    yield typed
    for read in (ast.literal_eval, json.loads):
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            if isinstance(value := read(typed), (tuple, list)):
                yield _tuple(value)
    with suppress(ValueError):
        yield UUID(typed)


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, (tuple, list)) else value


def _aliases() -> list[str]:
    return [DEFAULT_DB_ALIAS, *(alias for alias in connections if alias != DEFAULT_DB_ALIAS)]
