"""The ``RECHECK`` settings: their names, defaults and bounds, read live and never written.

One validator a setting serves the system checks, the decorator and every read.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured

from .messages import shown

DISPATCHES = ("inline", "worker", "immediate")
ON_REDIS_ERRORS = ("run", "raise", "skip", "outbox")
MOST_SHARDS = 16384
LONGEST = 1e9
"""Seconds, some thirty years. Far more wouldn't survive the scripts' arithmetic."""


def _number(value: object) -> bool:
    kind = isinstance(value, (int, float)) and not isinstance(value, bool)
    return kind and abs(cast(float, value)) <= LONGEST  # which nan isn't, either


def _seconds(minimum: float) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if _number(value) and value >= minimum:
            return None
        if isinstance(value, (int, float)) and value > LONGEST:
            return f"must be at most {LONGEST:,.0f} seconds"
        least = f"at least {minimum:g}" if minimum else "0 or more"
        return f"must be a number of seconds (int or float), {least}"

    return check


def _count(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return None
    return "must be a whole number (int), at least 1"


def _shards(value: Any) -> str | None:
    if _count(value) is None and value <= MOST_SHARDS:
        return None
    return f"must be a whole number from 1 to {MOST_SHARDS}, the slots of a cluster"


def _concurrency(value: Any) -> str | None:
    if value is None or _count(value) is None:
        return None
    return "must be None or a whole number (int), at least 1"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be True or False"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) and value else "must be a string that isn't empty"


def _alias(value: Any) -> str | None:
    return "must be the alias of a cache, such as 'recheck'" if _text(value) else None


def _prefix(value: Any) -> str | None:
    if _text(value) or "{" in value or "}" in value:
        return "must be a string without braces, which Redis Cluster takes for a hash tag"
    return None


def _context(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and "." in value):
        return None
    return "must be None or the dotted path of a class with capture() and restore()"


def _max_wait(value: Any) -> str | None:
    if value is None or (_number(value) and value > 0):
        return None
    return "must be None or a number of seconds (int or float) above 0"


def _backoff(value: Any) -> str | None:
    if not (isinstance(value, (tuple, list)) and len(value) == 2 and all(map(_number, value))):
        return "must be a pair of seconds, the first wait and the longest, such as (1, 300)"
    first, longest = value
    if first <= 0:
        return "must begin with a wait above 0 seconds, such as (1, 300)"
    if longest < first:
        return "must name the first wait, then the longest, and the longest is the shorter one"
    return None


def _choice(*choices: str) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if value in choices:
            return None
        if isinstance(value, str) and (meant := _meant(value, choices)):
            others = ", ".join(repr(choice) for choice in choices if choice != meant)
            return f"must be {meant!r}, or else one of {others}"
        return f"must be one of {', '.join(map(repr, choices))}"

    return check


def _dispatch(value: Any) -> str | None:
    problem = _choice(*DISPATCHES)(value)
    if problem and isinstance(value, str) and not _meant(value, DISPATCHES):
        return f"{problem}; this version has no other way to dispatch"
    return problem


def _receivers(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return "must be a dict of dicts: {receiver's name: {setting: value}}"
    for name, values in value.items():
        if not isinstance(values, Mapping):
            return f"must be a dict of dicts, and what it has for {name!r} is {shown(values)}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One name of ``RECHECK``: its default, what it must be, and who may say it."""

    default: Any
    problem: Callable[[Any], str | None]
    """Returns what is asked of the value, or None if it is fine."""
    option: bool = False
    """The decorator takes it too, in lower case."""
    tunable: bool = False
    """``RECEIVERS`` takes it too: operators tune, and can't switch off correctness."""


def _tunable(default: Any, problem: Callable[[Any], str | None]) -> Setting:
    return Setting(default=default, problem=problem, option=True, tunable=True)


SETTINGS: dict[str, Setting] = {
    "CACHE": Setting(default="default", problem=_alias),
    "PREFIX": Setting(default="recheck", problem=_prefix),
    "SHARDS": Setting(default=1, problem=_shards),
    "CONTEXT": Setting(default=None, problem=_context),
    "TTL": _tunable(30, _seconds(1)),
    "MAX_HOLD": _tunable(3600, _seconds(0)),
    "MAX_PASSES": _tunable(10, _count),
    "INLINE_BUDGET": _tunable(5.0, _seconds(0)),
    "MAX_ATTEMPTS": _tunable(5, _count),
    "BACKOFF": _tunable((1, 300), _backoff),
    "DISPATCH": _tunable("inline", _dispatch),
    "DELAY": _tunable(0, _seconds(0)),
    "MAX_WAIT": _tunable(None, _max_wait),
    "CONCURRENCY": _tunable(None, _concurrency),
    "ON_REDIS_ERROR": _tunable("run", _choice(*ON_REDIS_ERRORS)),
    "BREAKER": Setting(default=5, problem=_seconds(0)),
    "REFRESH": Setting(default=True, problem=_flag, option=True),
    "DURABLE": Setting(default=False, problem=_flag, option=True),
    "RAISE_EXCEPTIONS": Setting(default=False, problem=_flag),
    "RECEIVERS": Setting(default={}, problem=_receivers),
}


def _meant(name: Any, names: Iterable[str]) -> str | None:
    """Return the name that is likely meant. Case tells nothing."""
    lower = {known.lower(): known for known in names}
    match = difflib.get_close_matches(str(name).strip().lower(), lower, n=1)
    return lower[match[0]] if match else None


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a clause that names the likely meant one, or all of them."""
    names = sorted(names)
    meant = _meant(name, names)
    return f"did you mean {meant!r}?" if meant else f"the names are {', '.join(names)}."


_NOTHING: Final[Mapping[str, Any]] = {}
_read: tuple[Any, dict[Any, Any]] = (_NOTHING, {})
"""A copy of ``RECHECK``, and what was read of it and found fit: an event asks some twenty times."""


def _known() -> dict[Any, Any]:
    """Return what was read so far; nothing, where ``RECHECK`` says something else by now."""
    global _read
    now, read = getattr(django_settings, "RECHECK", _NOTHING), _read
    if read[0] != now:
        read = _read = (_copied(now), {})
    return read[1]


def _copied(value: Any) -> Any:
    """Return a dict with what it has in it copied: what is changed in place is noticed."""
    if isinstance(value, Mapping):
        return {name: _copied(inner) for name, inner in value.items()}
    return [*value] if isinstance(value, list) else value


def configured() -> Mapping[str, Any]:
    """Return ``settings.RECHECK`` as it is now."""
    value = getattr(django_settings, "RECHECK", _NOTHING)
    if not isinstance(value, Mapping):
        raise ImproperlyConfigured("RECHECK must be a dict of settings.")
    return value


def validated(name: str, value: Any, where: str) -> Any:
    """Return the value, or raise ``ImproperlyConfigured`` with what it must be."""
    problem = SETTINGS[name].problem(value)
    if problem:
        raise ImproperlyConfigured(f"{where} is {shown(value)}: it {problem}.")
    return value


def get(name: str) -> Any:
    """Return a setting that is the same for all receivers."""
    known = _known()
    if name not in known:
        mine, value = configured(), SETTINGS[name].default
        if name in mine:
            value = validated(name, mine[name], f"RECHECK[{name!r}]")
        known[name] = value
    return known[name]


def debounce_problem(delay: float, max_wait: float | None) -> str | None:
    """Return what is wrong with a DELAY and its MAX_WAIT, or None."""
    if delay and max_wait is not None and max_wait <= delay:
        return f"MAX_WAIT ({max_wait:g} s) must be above DELAY ({delay:g} s)"
    return None


def places_problem(concurrency: int | None, shards: int) -> str | None:
    """Return what is wrong with a CONCURRENCY in so many SHARDS, or None."""
    if concurrency is not None and concurrency < shards:
        return f"CONCURRENCY ({concurrency}) must be at least SHARDS ({shards})"
    return None


class Options:
    """The settings as one receiver sees them, each looked up when it is asked for.

    ``RECEIVERS`` goes before the decorator, the decorator before ``RECHECK``.

    Args:
        name: The receiver's name, as it stands in ``RECEIVERS``.
        given: What its decorator was given, by upper-case name, validated there.

    Attributes:
        name: The receiver's name.
        found_sound: ``RECHECK`` and ``CACHES`` as ``soundness`` last found them fit to work with.
    """

    __slots__ = ("_given", "found_sound", "name")

    def __init__(self, name: str, given: Mapping[str, Any]) -> None:
        self.name = name
        self._given = given
        self.found_sound: tuple[Any, Any] | None = None

    def value(self, name: str) -> Any:
        """Return one setting, by its upper-case name."""
        known, mine = _known(), (self, name)
        if mine not in known:
            known[mine] = self._looked_up(name)
        return known[mine]

    def _looked_up(self, name: str) -> Any:
        if SETTINGS[name].tunable:
            tuned = get("RECEIVERS").get(self.name)
            if tuned is not None and name in tuned:
                where = f"RECHECK['RECEIVERS'][{self.name!r}][{name!r}]"
                return validated(name, tuned[name], where)
        return self._given[name] if name in self._given else get(name)

    @property
    def ttl(self) -> float:
        """Lease in seconds."""
        return cast(float, self.value("TTL"))

    @property
    def max_hold(self) -> float:
        """Seconds after which a pass's lease isn't renewed any more."""
        return cast(float, self.value("MAX_HOLD"))

    @property
    def max_passes(self) -> int:
        """Passes that one hold may have."""
        return cast(int, self.value("MAX_PASSES"))

    @property
    def inline_budget(self) -> float:
        """Seconds that the committing thread may spend on passes."""
        return cast(float, self.value("INLINE_BUDGET"))

    @property
    def max_attempts(self) -> int:
        """Failures in a row after which an item is dead."""
        return cast(int, self.value("MAX_ATTEMPTS"))

    @property
    def backoff(self) -> tuple[float, float]:
        """First and longest wait after a failure, in seconds."""
        return cast(tuple[float, float], self.value("BACKOFF"))

    @property
    def dispatch(self) -> str:
        """Who runs the passes."""
        return cast(str, self.value("DISPATCH"))

    @property
    def delay(self) -> float:
        """Seconds of quiet before a pass."""
        return cast(float, self.value("DELAY"))

    @property
    def max_wait(self) -> float:
        """Longest wait from the first event on, in seconds: ten times DELAY unless set."""
        delay, value = self.delay, cast("float | None", self.value("MAX_WAIT"))
        problem = debounce_problem(delay, value)
        if problem:
            raise ImproperlyConfigured(f"Receiver {self.name!r}: {problem}.")
        return delay * 10 if value is None else value

    @property
    def concurrency(self) -> int | None:
        """How many of its items may run at once, over all processes; None for any number."""
        return cast("int | None", self.value("CONCURRENCY"))

    @property
    def on_redis_error(self) -> str:
        """What to do with an event that Redis doesn't take: a durable one is never skipped."""
        value = cast(str, self.value("ON_REDIS_ERROR"))
        return "outbox" if value == "skip" and self.durable else value

    @property
    def durable(self) -> bool:
        """Whether its events are written to the outbox with the change."""
        return cast(bool, self.value("DURABLE"))

    @property
    def refresh(self) -> bool:
        """Whether every pass reads its row."""
        return cast(bool, self.value("REFRESH"))
