"""The text forms that Python shares with the Lua scripts: netstrings, the record, a grant.

``scripts/record.lua`` is the other side; a change here is a change there.
"""

from __future__ import annotations

import functools
import os
import re
import secrets
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from hashlib import sha1
from typing import Any, Final

from .exceptions import NewerRecord, RecordError

FORMAT: Final = 1
PAUSE: Final = b"\xffpaused"
"""The field of a lane's hash that says since when a person lets it wait. No item has that name."""


def pack(texts: Iterable[bytes]) -> bytes:
    """Return the texts as one string of netstrings."""
    return b"".join(b"%d:%s" % (len(text), text) for text in texts)


def unpack(packed: bytes) -> list[bytes]:
    """Return the netstrings of a packed string.

    Raises:
        RecordError: The string isn't made of netstrings.
    """
    texts, at = [], 0
    while at < len(packed):
        colon = packed.find(b":", at, at + 20)
        size = packed[at:colon]
        end = colon + 1 + int(size) if colon > 0 and size.isdigit() else -1
        if not 0 <= end <= len(packed):
            raise RecordError("The events of a record are no netstrings.")
        texts.append(packed[colon + 1 : end])
        at = end
    return texts


@dataclass(frozen=True, slots=True)
class Item:
    """One lock and one record: a receiver's name and the item's text (see ``keys``)."""

    receiver: str
    text: str


@dataclass(frozen=True, slots=True)
class Record:
    """An item's record as it stands in Redis. Times are the server's milliseconds, 0 for never."""

    token: str
    fence: str
    passes: int
    attempts: int
    since: int
    owed: int
    ready: int
    first: int
    last: int
    own: int
    newer_own: int
    count: int
    newer_count: int
    error: str
    working: bytes
    newer: bytes

    @classmethod
    def parse(cls, text: bytes) -> Record:
        """Return the record of a lane's hash.

        Raises:
            RecordError: It is broken.
            NewerRecord: It is of a newer version of this package.
        """
        head, newline, body = text.partition(b"\n")
        version, *words = head.split(b" ")
        if version.isdigit() and len(version) < 4 and int(version) > FORMAT:
            raise NewerRecord(f"The record has format {int(version)}, this version reads {FORMAT}.")
        numbers = fields(cls)[2:13]
        if not newline or version != b"%d" % FORMAT or len(words) != len(numbers) + 2:
            raise RecordError("The record is broken: its head can't be read.")
        texts = unpack(body)
        if len(texts) != 3 or not all(w.isdigit() and len(w) <= 20 for w in words[1:]):
            raise RecordError("The record is broken: its parts can't be read.")
        token, fence, *counts = (word.decode("ascii", "replace") for word in words)
        error, working, newer = texts
        last = (error.decode("utf-8", "replace"), working, newer)
        values: list[Any] = [token, fence, *map(int, counts), *last]
        return cls(*values)


def seen(stored: bytes | None, lock: bytes | None, *, running: bool) -> str:
    """Return what ``scripts/tend.lua`` compares: which hold it is, or else which record.

    Args:
        stored: The record as it stands there.
        lock: The token in the lock.
        running: Whether the item stands in ``running``.
    """
    if lock is None and not running:
        return _digest(stored or b"")
    head = re.match(rb"1 (\S+) (\d+) ", stored or b"")
    token, fence = head.groups() if head else (None, b"")
    if lock is not None and lock != token:
        token, fence = lock, b"0"
    return _digest(b"%s %s" % (token or b"", fence))


def _digest(text: bytes) -> str:
    return sha1(text, usedforsecurity=False).hexdigest()


def new_token() -> str:
    """Return an owner token: host, pid and 128 random bits, new for every acquisition."""
    return f"{_host()}:{os.getpid()}:{secrets.token_hex(16)}"


@functools.cache
def _host() -> str:
    return "-".join(socket.gethostname().split()) or "unknown"


if hasattr(time, "CLOCK_BOOTTIME"):

    def clock() -> float:
        """Return seconds of a clock that also counts while the machine sleeps, as leases do."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)
else:  # pragma: no cover - not on Linux
    clock = time.monotonic


@dataclass(slots=True)
class Grant:
    """The right to one pass, and where its hold stands."""

    item: Item
    token: str
    fence: str
    number: int
    count: int
    """Events that this pass covers."""
    attempts: int
    own: bool
    """Only the hold's own events caused this pass."""
    events: bytes
    takeover: bool
    deadline: float
    """When the lease surely ends, by ``clock()``: counted from before the command was sent."""
    pid: int = field(default_factory=os.getpid)

    @property
    def ours(self) -> bool:
        """Whether this process took it: a forked child owns nothing."""
        return self.pid == os.getpid()
