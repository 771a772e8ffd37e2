"""One event: made from a signal, merged with others of its item, to and from the text in Redis.

Events of one (signal, action, sender) form a group and merge; groups stand side by side, newest
last.
``scripts/record.lua`` merges by the same rule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Model
from django.dispatch import Signal

from . import travel
from .exceptions import EventError, RecordError
from .keys import as_json, dumps, typed, untyped
from .records import pack, unpack

if TYPE_CHECKING:
    from .receivers import Receiver

_DEPTH = re.compile(r"[0-9]{1,4}(?=\[)")
VARYING = {"post_save": "update_fields", "m2m_changed": "pk_set"}
"""The argument that becomes None as soon as two events of a group differ in it."""
DIFFERS = "*"
DEEPEST: Final = 20
"""Passes that may lead to one another, each by an event of its own, before their events wait."""


@dataclass(frozen=True, slots=True)
class Group:
    """Merged events of one (signal, action, sender)."""

    name: str
    created: bool
    raw: bool
    varying: str
    body: str
    """A JSON list, and before it the event's depth, unless that is 0."""

    @property
    def depth(self) -> int:
        """How many passes led to one another until the newest event came: 0 from outside."""
        found = _DEPTH.match(self.body)
        return int(found[0]) if found else 0

    @property
    def content(self) -> list[Any]:
        """The label and values of its row, plain arguments, those that are rows, and ``data``."""
        found: list[Any] = json.loads(self.body[self.body.index("[") :])
        return found

    @property
    def model(self) -> type[Model] | None:
        """The model of its row, or else its sender, if that is one."""
        found = travel.sender_named(self.content[0] or json.loads(self.name)[2])
        return found if isinstance(found, type) and issubclass(found, Model) else None

    def after(self, older: Group) -> Group:
        """Return this group with an older one of the same name merged into it."""
        body = self.body
        if older.depth < self.depth:
            body = _deep(older.depth, body[body.index("[") :])
        return replace(
            self,
            body=body,
            created=self.created or older.created,
            raw=self.raw and older.raw,
            varying=self.varying if self.varying == older.varying else DIFFERS,
        )

    @property
    def marks(self) -> str:
        """How the record writes ``created`` and ``raw``."""
        return "c" * self.created + "r" * self.raw


@dataclass(frozen=True, slots=True)
class Events:
    """All that is known of an item's events: how many there were, and the groups they merged to."""

    count: int
    groups: tuple[Group, ...]

    @property
    def depth(self) -> int:
        """How many passes led to one another until these came: 0 if any came from outside."""
        return min((group.depth for group in self.groups), default=0)

    def after(self, older: Events) -> Events:
        """Return these events with older ones merged in; nothing is claimed less than happened."""
        mine = {group.name: group for group in self.groups}
        merged = {group.name: group for group in older.groups if group.name not in mine}
        for old in older.groups:
            if old.name in mine:
                mine[old.name] = mine[old.name].after(old)
        return Events(self.count + older.count, (*merged.values(), *mine.values()))

    def packed(self) -> bytes:
        """Return the groups as the record holds them."""
        parts = ((g.name, g.marks, g.varying, g.body) for g in self.groups)
        return pack(text.encode() for part in parts for text in part)

    @classmethod
    def parse(cls, count: int, packed: bytes) -> Events:
        """Read a record's events.

        Raises:
            RecordError: They are broken.
        """
        texts = unpack(packed)
        if len(texts) % 4:
            raise RecordError("The events of a record are incomplete.")
        groups = []
        for start in range(0, len(texts), 4):
            part = (text.decode("utf-8", "replace") for text in texts[start : start + 4])
            name, marks, varying, body = part
            groups.append(Group(name, "c" in marks, "r" in marks, varying, body))
        return cls(count, tuple(groups))


def from_signal(
    receiver: Receiver[..., Any],
    signal: Signal | None,
    named: Mapping[str, Any],
    depth: int = 0,
    *,
    key_alone: bool = False,
) -> Events:
    """Make the event of one signal delivered to one receiver.

    Args:
        receiver: Whose options say what is carried along.
        signal: The signal, None for one that was asked for by hand.
        named: What the receiver would be called with: sender and all arguments.
        depth: How many passes led to one another until it happened.
        key_alone: Nothing but a key is known: there is nothing that ``data=`` could look at.

    Raises:
        EventError: Something of it can't travel.
    """
    rest = {name: value for name, value in named.items() if name not in ("signal", "sender")}
    instance = rest.pop("instance", None)
    kind = travel.signal_name(signal)
    varying = ""
    if kind in VARYING and (value := rest.pop(VARYING[kind], None)) is not None:
        varying = dumps(sorted(map(typed, value), key=str))
    created = raw = False
    if kind == "post_save":
        created, raw = bool(rest.pop("created", False)), bool(rest.pop("raw", False))
    values = label = None
    if isinstance(instance, Model):
        values = travel.field_values(instance, receiver.carried)
        label = instance._meta.label_lower
    elif instance is not None:
        rest["instance"] = instance
    sender = travel.sender_name(named.get("sender"))
    plain, rows = travel.arguments_out(kind, rest, dropping=receiver.data is not None)
    asks = receiver.data if not key_alone else None
    data = _json(receiver.name, asks(**named)) if asks else None
    name = dumps([kind, str(rest.get("action", "")), sender])
    body = _deep(depth, dumps([label, values, plain, rows, data]))
    return Events(1, (Group(name, created, raw, varying, body),))


def _deep(depth: int, content: str) -> str:
    return f"{depth}{content}" if depth else content


def _json(name: str, data: Any) -> Any:
    try:
        return as_json(data)
    except (TypeError, ValueError) as error:
        raise EventError(f"What data= of {name} returned is no JSON: {error}") from error


@dataclass(slots=True)
class Call:
    """A group made ready for the receiver: who sent what, about which row."""

    group: str
    """The group's name, "" for a call that none of the events is."""
    signal: str
    sender: Any
    row: travel.Row | None
    using: str
    arguments: dict[str, Any]
    data: Any
    whole: bool = True
    """Whether all arguments travelled, so that the key can be worked out again."""
    read: Model | None = None
    """The row as it was read again."""

    @classmethod
    def of(cls, group: Group, using: str) -> Call:
        """Read a group; rows it refers to are read, its own row isn't yet.

        Raises:
            RecordError: The group is broken.
        """
        try:
            kind, action, sender = json.loads(group.name)
            label, values, plain, rows, data = group.content
            arguments = {
                **plain,
                **{name: travel.referred(*row) for name, row in rows.items()},
            }
            row = None
            if label is not None:
                model = travel.sender_named(label)
                if model is None:
                    raise RecordError(f"This process has no model {label!r}.")
                row = travel.Row(model, using, {**values})
            varying = None
            if group.varying not in ("", DIFFERS):
                varying = frozenset(map(untyped, json.loads(group.varying)))
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise RecordError(f"An event can't be read: {error}") from error
        if kind == "post_save":
            arguments |= {"created": group.created, "raw": group.raw}
            arguments["update_fields"] = varying
        elif kind == "m2m_changed":
            arguments |= {
                "pk_set": None if varying is None else set(varying),
                "action": action,
            }
        whole = [travel.NOTHING] not in rows.values()
        found = travel.sender_named(sender)
        return cls(group.name, kind, found, row, using, arguments, data, whole)

    @property
    def deletes(self) -> bool:
        """Whether the event says that its row goes away."""
        return self.signal in ("post_delete", "pre_delete")

    def named(self) -> dict[str, Any]:
        """Return the keyword arguments of the receiver."""
        named = {
            "signal": travel.signal_named(self.signal),
            "sender": self.sender,
            **self.arguments,
        }
        if self.row is not None:
            named["instance"] = self.read or self.row.restored()
        elif self.signal in travel.SIGNALS or not self.signal:
            named["instance"] = None
        return named

    def as_save(self) -> Call:
        """Return the same row's event as a save that says nothing of what changed."""
        arguments = {
            "created": False,
            "raw": False,
            "update_fields": None,
            "using": self.using,
        }
        return replace(self, group="", signal="post_save", arguments=arguments)


def group_names(groups: Iterable[Group]) -> tuple[tuple[str, str, str], ...]:
    """Return (signal, action, sender) of each group, as far as they can be read."""
    return tuple(tuple(json.loads(group.name)) for group in groups)
