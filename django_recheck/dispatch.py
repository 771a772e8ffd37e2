"""Who runs the passes of committed events: the thread that committed, or a worker.

Events are all recorded before the first pass runs, and before anything raises.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from . import conf, outage, store, transactions
from .exceptions import NewerRecord
from .outage import Ready
from .outcome import Outcome
from .passes import in_running_loop, prepare
from .records import Grant, Item, clock
from .runner import FAILURES, OUTCOMES, Ended, Hold, given_up

logger = logging.getLogger("django_recheck")


def deliver(batch: Sequence[Ready]) -> list[Outcome]:
    """Deliver committed events.

    Args:
        batch: Items with their events; the same item may stand there several times.

    Returns:
        The outcome for each.

    Raises:
        RedisError, NewerRecord: One wasn't taken, and its receiver has ``on_redis_error="raise"``.
        Exception: What a receiver raised, with ``RAISE_EXCEPTIONS``.
    """
    merged: dict[Item, Ready] = {}
    for ready in batch:
        if older := merged.get(ready.item):
            ready = Ready(ready.receiver, ready.item, ready.events.after(older.events))
        merged[ready.item] = ready
    found = _deliver(list(merged.values())) if merged else {}
    _repay()
    _raise_first(ended.error for ended in found.values())
    return [found[ready.item].outcome for ready in batch]


def _deliver(batch: list[Ready]) -> dict[Item, Ended]:
    if len(batch) == 1 and _inline(batch[0]) and not _elsewhere(batch):
        return {batch[0].item: _at_once(batch[0])}
    words = _record(batch)
    found = {r.item: Ended(OUTCOMES[w]) for r, w in zip(batch, words, strict=True) if w in OUTCOMES}
    refused, started = _untaken(batch, words), clock()
    try:
        while refused:
            ready, error = refused.pop(0)
            over = clock() - started >= ready.receiver.options.inline_budget
            found[ready.item] = _away(ready, error, over=over)
    finally:
        for ready, _ in refused:  # a pass was interrupted
            if ready.receiver.options.on_redis_error == "run":
                outage.owe(ready)
    return found | _start(_pending(batch, words))


def record(batch: Sequence[Ready]) -> None:
    """Record committed events without running any.

    Raises:
        RedisError, NewerRecord: They weren't taken, and ``on_redis_error`` is ``"raise"``.
    """
    refused = _untaken(batch, _record(batch))
    if not refused:
        return
    error, policy = refused[0][1], batch[0].receiver.options.on_redis_error
    if policy == "raise":
        raise error
    if policy == "run":  # when Redis is back: nobody asked to run them here
        for ready, _ in refused:
            outage.owe(ready)
    name = batch[0].receiver.name
    text = "%s: %d items weren't taken, %s: %s"
    then = "they stay owed" if policy == "run" else "they are skipped"
    logger.log(level(error), text, name, len(refused), then, error, extra={"receiver": name})


def _repay() -> None:
    """Record what is owed, and run what of it may run here."""
    if recorded := record_owed():
        _start(recorded)


def record_owed() -> list[Ready]:
    """Record what is owed since Redis was away; what it doesn't take now either stays owed.

    Returns:
        What stands recorded and may run inline.
    """
    if not (owed := outage.collect()):
        return []
    words = _record(owed)
    for ready, _ in _untaken(owed, words):
        outage.owe(ready)
    return _pending(owed, words)


Word = str | Exception
"""What became of a recorded event, or why it wasn't taken."""


def _record(batch: Sequence[Ready]) -> list[Word]:
    entries = [
        store.Entry(r.item, r.events.count, r.events.packed(), r.receiver.options) for r in batch
    ]
    words = outage.guarded(lambda: store.current().enqueue(entries), telling=batch)
    if isinstance(words, Exception):
        return [words] * len(batch)
    return [NewerRecord() if word == "NEWER" else word for word in words]


def _untaken(batch: Sequence[Ready], words: Sequence[Word]) -> list[tuple[Ready, Exception]]:
    pairs = zip(batch, words, strict=True)
    return [(ready, word) for ready, word in pairs if isinstance(word, Exception)]


def _pending(batch: Sequence[Ready], words: Sequence[Word]) -> list[Ready]:
    """Return what stands recorded and may run here."""
    return [r for r, word in zip(batch, words, strict=True) if word == "PENDING" and _inline(r)]


def level(error: Exception) -> int:
    """Return how loudly to log what Redis didn't take; a newer version's record once an hour."""
    if not isinstance(error, NewerRecord):
        return logging.ERROR
    told = outage.guarded(partial(store.current().first_in_an_hour, "newer"))
    return logging.ERROR if told is True else logging.DEBUG


def _start(batch: list[Ready]) -> dict[Item, Ended]:
    """Run recorded items here and now, or where and when they can be."""
    later = _elsewhere(batch)
    if later is None:
        return _run_recorded(batch)
    later(batch)
    return {}


def _inline(ready: Ready) -> bool:
    options = ready.receiver.options
    return options.dispatch == "inline" and not options.delay


def _elsewhere(batch: list[Ready]) -> Callable[[list[Ready]], None] | None:
    """Return how passes are started that can't run here and now, None if they can."""
    if not batch:
        return None
    connection = transactions.opened()
    if connection is not None:
        return partial(_after_commit, connection)
    return _in_thread if in_running_loop() else None


def _after_commit(connection: BaseDatabaseWrapper, batch: list[Ready]) -> None:
    """Try recorded items once another open transaction of this thread has committed."""

    def run() -> None:  # no partial: Django names a robust callback that raised by its __qualname__
        run_recorded(batch)

    if connection.in_atomic_block:
        # Always robust: what it raised would stop events behind it that nobody has recorded yet.
        transaction.on_commit(run, using=connection.alias, robust=True)


def _in_thread(batch: list[Ready]) -> None:
    """Run recorded items beside a running event loop, which mustn't wait for them."""

    def run() -> None:
        try:
            run_recorded(batch)
        finally:
            connections.close_all()

    context = contextvars.copy_context()
    try:
        threading.Thread(target=context.run, args=(run,), name="django-recheck").start()
    except RuntimeError as error:  # no thread is to be had: a drain will run them
        logger.warning("%d items stay pending: %s", len(batch), error)


def run_recorded(batch: Sequence[Ready]) -> None:
    """Run items that stand recorded, as far as they are free and the budget goes."""
    if transactions.opened() is None:
        _raise_first(ended.error for ended in _run_recorded(batch).values())


def _run_recorded(batch: Sequence[Ready]) -> dict[Item, Ended]:
    found, started = {}, clock()
    for ready in batch:
        options = ready.receiver.options
        if clock() - started >= options.inline_budget:
            continue  # stays pending
        claimed = outage.guarded(partial(store.current().claim, ready.item, options))
        if isinstance(claimed, Exception):  # it stands recorded: a drain will run it
            names = _names(ready)
            logger.warning("%s %s: stays pending: %s", *names.values(), claimed, extra=names)
            found[ready.item] = Ended(Outcome.PENDING)
            continue
        found[ready.item] = _ended(ready, claimed, started + options.inline_budget)
    return found


def _at_once(ready: Ready) -> Ended:
    options, started = ready.receiver.options, clock()
    packed, count = ready.events.packed(), ready.events.count
    request = partial(store.current().request, ready.item, packed, count, options)
    granted = outage.guarded(request, telling=[ready])
    return _ended(ready, granted, started + options.inline_budget)


def _ended(ready: Ready, granted: Grant | str | Exception, until: float) -> Ended:
    if isinstance(granted, Grant):
        return Hold(ready.receiver, granted, until).run()
    if isinstance(granted, Exception):
        return _away(ready, granted)
    if granted in ("DEAD", "BROKEN"):
        return given_up(ready.receiver, ready.item, granted)
    names = _names(ready)
    logger.debug("%s %s: %s", *names.values(), granted, extra=names)
    return Ended(OUTCOMES[granted])


def _away(ready: Ready, error: Exception, *, over: bool = False) -> Ended:
    """Do with an event that Redis doesn't take what ``ON_REDIS_ERROR`` says.

    Args:
        ready: The event.
        error: Why it wasn't taken.
        over: Whether the budget of the thread that committed is used up.
    """
    policy = ready.receiver.options.on_redis_error
    if policy == "raise":
        return Ended(Outcome.PENDING, error=_Refused(error))
    names, loud = _names(ready), level(error)
    if policy == "skip":
        logger.log(loud, "%s %s: skipped: %s", *names.values(), error, extra=names)
        return Ended(Outcome.IGNORED)
    if over or _elsewhere([ready]):
        text = "%s %s: stays owed until Redis is back: %s"
        logger.log(loud, text, *names.values(), error, extra=names)
        outage.owe(ready)
        return Ended(Outcome.PENDING)
    logger.log(loud, "%s %s: run unlocked: %s", *names.values(), error, extra=names)
    prepared = None
    try:
        prepared = prepare(ready.receiver, ready.item, ready.events, None)
        if prepared is not None:
            prepared.whole()
    except FAILURES as failure:
        text = "%s %s: the receiver failed"
        logger.warning(text, *names.values(), exc_info=failure, extra=names)
        return Ended(Outcome.FAILED, error=failure)
    finally:  # not before: the pass under the lock must begin after this one's end
        if prepared is not None and (own := prepared.run.end()):
            ready = Ready(ready.receiver, ready.item, own.after(ready.events))
        outage.owe(ready)
    return Ended(Outcome.UNLOCKED)


def _names(ready: Ready) -> dict[str, str]:
    return {"receiver": ready.receiver.name, "key": ready.item.text}


class _Refused(Exception):
    """Carries what ``on_redis_error="raise"`` raises, whatever RAISE_EXCEPTIONS says."""


def _raise_first(errors: Iterable[BaseException | None]) -> None:
    for error in filter(None, errors):
        if isinstance(error, _Refused):
            raise error.args[0]
        if conf.get("RAISE_EXCEPTIONS"):
            raise error
