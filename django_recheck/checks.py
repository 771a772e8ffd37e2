"""System checks of settings and cache. They connect to nothing.

What only the server knows is asked by ``check --deploy``, in ``deploy_checks``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, register
from django.core.exceptions import ImproperlyConfigured

from . import caches, conf, soundness
from .messages import message
from .receivers import named, registry


@register("recheck")
def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """Check each name and value of ``RECHECK``."""
    mine = getattr(django_settings, "RECHECK", {})
    if not isinstance(mine, Mapping):
        return list(soundness.settings(mine))
    return [*names_and_values(mine), *_debounce(), *_places(), *_outbox()]


def names_and_values(mine: Mapping[str, Any]) -> Iterator[CheckMessage]:
    """Check settings one by one, those of single receivers too."""
    yield from soundness.settings(mine)
    tuned = mine.get("RECEIVERS", {})
    if conf.SETTINGS["RECEIVERS"].problem(tuned) is None:
        for receiver, values in tuned.items():
            yield from _known(receiver)
            yield from soundness.tuned(receiver, values)


def _known(receiver: Any) -> Iterator[CheckMessage]:
    if receiver not in registry:
        if renamed := named(receiver):
            hint = f"It is called {renamed.name!r} now: write that."
        else:
            hint = conf.nearest(str(receiver), registry) if registry else "no receiver has a name."
        text = f"RECHECK['RECEIVERS'][{receiver!r}]: there is no such receiver."
        yield message("E011", text, hint)


def _debounce() -> Iterator[CheckMessage]:
    """Compare MAX_WAIT with DELAY in RECHECK itself, and as each receiver sees them."""
    general = soundness.pair(conf.get)
    yield from soundness.debounce("RECHECK", general)
    for name, found in registry.items():
        if (pair := soundness.pair(found[-1].options.value)) != general:
            yield from soundness.debounce(name, pair)


def _places() -> Iterator[CheckMessage]:
    """Compare CONCURRENCY with SHARDS in RECHECK itself, and as each receiver sees it."""
    general = soundness.limit(conf.get)
    yield from soundness.places("RECHECK", general)
    for name, found in registry.items():
        if (limit := soundness.limit(found[-1].options.value)) != general:
            yield from soundness.places(name, limit)


def _outbox() -> Iterator[CheckMessage]:
    """Look for who asks for the outbox: RECHECK itself, and each receiver that differs."""
    general = soundness.outbox_asked_for(conf.get)
    yield from soundness.outbox("RECHECK", general)
    for name, found in registry.items():
        if (asked := soundness.outbox_asked_for(found[-1].options.value)) != general:
            yield from soundness.outbox(name, asked)


@register("recheck")
def check_cache(**kwargs: Any) -> list[CheckMessage]:
    """Check that the cache can give what the store needs, without asking it."""
    alias = _alias()
    return [] if alias is None else list(caches.problems(alias))


def _alias() -> str | None:
    """Return the cache that is used; None if none is, or if what names it is wrong by itself."""
    dispatch_of = soundness.dispatch_of
    found = {dispatch_of(receivers[-1].options.value) for receivers in registry.values()}
    if (found or {dispatch_of(conf.get)}) == {"immediate"}:
        return None
    try:
        alias: str = conf.get("CACHE")
    except ImproperlyConfigured:
        return None
    return alias


@register("recheck", deploy=True)
def check_server(**kwargs: Any) -> list[CheckMessage]:
    """Ask the server, if the cache is one that has a server."""
    from . import deploy_checks  # with the drain and the pages: no part of a start-up

    alias = _alias()
    return [] if alias is None or any(caches.problems(alias)) else deploy_checks.check_server()


@register("recheck", deploy=True)
def check_dispatch(**kwargs: Any) -> list[CheckMessage]:
    """Look for what is meant for tests."""
    from . import deploy_checks

    return deploy_checks.check_dispatch()
