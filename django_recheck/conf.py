"""The ``RECHECK`` settings: their names, defaults and bounds, read live and never written.

One validator a setting serves the system checks, the decorator and every read.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured

DISPATCHES = ("inline", "worker", "immediate")
ON_REDIS_ERRORS = ("run", "raise", "skip")
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
        return f"must be a number of seconds, at least {minimum:g} and at most {LONGEST:g}"

    return check


def _count(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return None
    return "must be a whole number, at least 1"


def _shards(value: Any) -> str | None:
    if _count(value) is None and value <= MOST_SHARDS:
        return None
    return f"must be a whole number from 1 to {MOST_SHARDS}, the slots of a cluster"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be True or False"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) and value else "must be a string that isn't empty"


def _prefix(value: Any) -> str | None:
    if _text(value) or "{" in value or "}" in value:
        return "must be a string without braces, which Redis Cluster takes for a hash tag"
    return None


def _context(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and "." in value):
        return None
    return "must be None or the dotted path of a class with capture() and restore()"


def _max_wait(value: Any) -> str | None:
    return None if value is None else _seconds(0.001)(value)


def _backoff(value: Any) -> str | None:
    if isinstance(value, (tuple, list)) and len(value) == 2 and all(map(_number, value)):
        first, longest = value
        if 0 < first <= longest:
            return None
    return "must be a pair of seconds, the first wait and the longest, such as (1, 300)"


def _choice(*choices: str) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        return None if value in choices else f"must be one of {', '.join(map(repr, choices))}"

    return check


def _dispatch(value: Any) -> str | None:
    if isinstance(value, str) and value not in DISPATCHES:
        known = ", ".join(map(repr, DISPATCHES))
        return f"must be one of {known}; this version has no other way to dispatch"
    return _choice(*DISPATCHES)(value)


def _absent(default: object, what: str) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        return None if value is default else f"must stay {default}: this version has no {what} yet"

    return check


def _receivers(value: Any) -> str | None:
    if isinstance(value, Mapping) and all(isinstance(v, Mapping) for v in value.values()):
        return None
    return "must be a dict of dicts: {receiver's name: {setting: value}}"


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
    "CACHE": Setting(default="default", problem=_text),
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
    "CONCURRENCY": _tunable(None, _absent(None, "limit of concurrent passes")),
    "ON_REDIS_ERROR": _tunable("run", _choice(*ON_REDIS_ERRORS)),
    "BREAKER": Setting(default=5, problem=_seconds(0)),
    "REFRESH": Setting(default=True, problem=_flag, option=True),
    "DURABLE": Setting(default=False, problem=_absent(False, "outbox"), option=True),
    "RAISE_EXCEPTIONS": Setting(default=False, problem=_flag),
    "RECEIVERS": Setting(default={}, problem=_receivers),
}


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a clause that names the likely meant one, or all of them."""
    names = sorted(names)
    match = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {match[0]!r}?" if match else f"the names are {', '.join(names)}."


def configured() -> Mapping[str, Any]:
    """Return ``settings.RECHECK`` as it is now."""
    value = getattr(django_settings, "RECHECK", {})
    if not isinstance(value, Mapping):
        raise ImproperlyConfigured("RECHECK must be a dict of settings.")
    return value


def validated(name: str, value: Any, where: str) -> Any:
    """Return the value, or raise ``ImproperlyConfigured`` with what it must be."""
    problem = SETTINGS[name].problem(value)
    if problem:
        raise ImproperlyConfigured(f"{where} is {value!r}: it {problem}.")
    return value


def get(name: str) -> Any:
    """Return a setting that is the same for all receivers."""
    mine = configured()
    if name in mine:
        return validated(name, mine[name], f"RECHECK[{name!r}]")
    return SETTINGS[name].default


def debounce_problem(delay: float, max_wait: float | None) -> str | None:
    """Return what is wrong with a DELAY and its MAX_WAIT, or None."""
    if delay and max_wait is not None and max_wait <= delay:
        return f"MAX_WAIT ({max_wait:g} s) must be above DELAY ({delay:g} s)"
    return None


class Options:
    """The settings as one receiver sees them, each looked up when it is asked for.

    ``RECEIVERS`` goes before the decorator, the decorator before ``RECHECK``.

    Args:
        name: The receiver's name, as it stands in ``RECEIVERS``.
        given: What its decorator was given, by upper-case name, validated there.
    """

    __slots__ = ("_given", "_name")

    def __init__(self, name: str, given: Mapping[str, Any]) -> None:
        self._name = name
        self._given = given

    def value(self, name: str) -> Any:
        """Return one setting, by its upper-case name."""
        if SETTINGS[name].tunable:
            tuned = get("RECEIVERS").get(self._name)
            if tuned is not None and name in tuned:
                where = f"RECHECK['RECEIVERS'][{self._name!r}][{name!r}]"
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
            raise ImproperlyConfigured(f"Receiver {self._name!r}: {problem}.")
        return delay * 10 if value is None else value

    @property
    def on_redis_error(self) -> str:
        """What to do with an event that Redis doesn't take."""
        return cast(str, self.value("ON_REDIS_ERROR"))

    @property
    def refresh(self) -> bool:
        """Whether every pass reads its row."""
        return cast(bool, self.value("REFRESH"))
