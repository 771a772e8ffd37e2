"""Who runs the passes of committed events: the thread that committed, or a worker.

Events are all recorded before the first pass runs, and before anything raises.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from . import conf, elsewhere, outage, store, transactions, undrained
from .awaiting import SenderCancelled
from .events import DEEPEST
from .exceptions import NewerRecord
from .outage import Ready
from .outbox import table
from .outcome import Outcome
from .passes import prepare
from .records import Grant, Item, clock
from .runner import FAILURES, OUTCOMES, Ended, Hold, given_up

logger = logging.getLogger("django_recheck")

THEN: Final = {"skip": "they are skipped", "outbox": "they wait in the outbox"}
"""What becomes of items that Redis doesn't take, by ``ON_REDIS_ERROR``."""
OWED: Final = "they stay owed"


def deliver(
    batch: Sequence[Ready],
    started: float | None = None,
    telling: outage.Telling | None = None,
) -> list[Ended]:
    """Deliver committed events.

    Args:
        batch: Items with their events; the same item may stand there several times.
        started: ``clock()`` from which on ``INLINE_BUDGET`` counts, by default when passes begin.
        telling: What cares for the events so far, if anything does.

    Returns:
        What became of each; see ``raise_first()``.
    """
    with telling or outage.Telling(batch) as telling:
        merged = outage.merged(batch)
        found = _deliver(merged, telling, started) if merged else {}
    if recorded := record_owed():
        _start(recorded)
    if any(ended.outcome in undrained.WAITING for ended in found.values()):
        undrained.look()
    return [found[ready.item] for ready in batch]


def raise_first(found: Iterable[Ended]) -> None:
    """Raise what whoever caused an event must hear of.

    Raises:
        RedisError, NewerRecord: One wasn't taken, and its receiver has ``on_redis_error="raise"``.
        Exception: What a receiver raised, with ``RAISE_EXCEPTIONS``.
        CancelledError: The task that sent an event was cancelled while an async receiver ran.
    """
    errors = [ended.error for ended in found if ended.error is not None]
    for error in errors:
        if isinstance(error, _Refused):
            raise error.args[0]
        if conf.get("RAISE_EXCEPTIONS") and not isinstance(error, SenderCancelled):
            raise error
    for error in errors:
        if isinstance(error, SenderCancelled):
            raise error.plain() from error


def _deliver(
    batch: list[Ready], telling: outage.Telling, started: float | None
) -> dict[Item, Ended]:
    later, asked = elsewhere.starter(), clock()
    words: Sequence[Grant | Word]
    if at_once := later is None and len(batch) == 1 and _inline(batch[0]):
        words = [_request(batch[0])]
    else:
        words = _record(batch, here=True)
    refused = _untaken(batch, words)
    if at_once and not refused:
        telling.done()
        return {batch[0].item: _ended(batch[0], words[0], started or asked)}
    pairs = zip(batch, words, strict=True)
    found = {r.item: Ended(OUTCOMES[w]) for r, w in pairs if isinstance(w, str) and w in OUTCOMES}
    since = started or clock()  # Redis may have been waited for: that isn't the passes' time
    try:
        telling.done()
        for ready, error in refused:
            over = clock() - since >= ready.receiver.options.inline_budget
            found[ready.item] = _away(ready, error, here=later is None and not over)
    finally:
        for ready, _ in refused:
            kept = ready.receiver.options.on_redis_error in ("run", "outbox")
            if ready.item not in found and kept:  # a pass was interrupted
                outage.owe(ready)
    unlocked = [r.item for r, _ in refused if r.receiver.options.on_redis_error == "run"]
    if later and unlocked:
        later(lambda started: deliver(outage.take(unlocked), started))
    return found | _start(_pending(batch, words), started)


def record(batch: Sequence[Ready], *, raising: bool = True) -> None:
    """Record committed events without running any.

    Args:
        batch: Items with their events, each item once.
        raising: False treats ``on_redis_error="raise"`` as ``"run"``: another error is under way.

    Raises:
        RedisError, NewerRecord: One wasn't taken, and its receiver has ``on_redis_error="raise"``.
    """
    with outage.Telling(batch):
        first = _recorded(batch, raising)
    undrained.look()
    if first:
        raise first


def _recorded(batch: Sequence[Ready], raising: bool) -> Exception | None:
    refused: dict[str, list[tuple[Ready, Exception]]] = {}
    for ready, error in _untaken(batch, _record(batch)):
        refused.setdefault(ready.receiver.name, []).append((ready, error))
    first = None
    for name, found in refused.items():
        error, policy = found[0][1], found[0][0].receiver.options.on_redis_error
        if policy == "raise" and raising:
            first = first or error
            continue
        then = THEN.get(policy, OWED)
        if policy == "outbox":
            then = then if table.put_aside([ready for ready, _ in found]) else OWED
        elif policy != "skip":  # when Redis is back: nobody asked to run them here
            for ready, _ in found:
                outage.owe(ready)
        text = "%s: %d items weren't taken, %s: %s"
        logger.log(level(error), text, name, len(found), then, error, extra={"receiver": name})
    return first


def taken(batch: Sequence[Ready]) -> list[Ready]:
    """Record events without running any; return those that Redis took, and keep none of the rest.

    Args:
        batch: Items with their events, each item once.
    """
    pairs = zip(batch, _record(batch), strict=True)
    return [ready for ready, word in pairs if not isinstance(word, Exception)]


def record_owed() -> list[Ready]:
    """Record what is owed since Redis was away; what it doesn't take now either stays owed.

    Returns:
        What stands recorded and may run inline.
    """
    if not outage.payable():
        return []
    with outage.Telling(outage.owing()):
        owed = outage.collect()
        words = _record(owed, here=True)
        for ready, _ in _untaken(owed, words):
            outage.owe(ready)
    return _pending(owed, words)


Word = str | Exception
"""What became of a recorded event, or why it wasn't taken."""


def _record(batch: Sequence[Ready], *, here: bool = False) -> list[Word]:
    """Record events.

    Args:
        batch: Items with their events, each item once.
        here: Whether those that may run inline are run by the caller.
    """
    if not batch:
        return []
    entries = [
        store.Entry(
            item=ready.item,
            count=ready.events.count,
            events=ready.events.packed(),
            options=ready.receiver.options,
            delay=_wait(ready),
            here=here and _inline(ready),
        )
        for ready in batch
    ]
    words = outage.guarded(lambda: store.current().enqueue(entries))
    if isinstance(words, Exception):
        return [words] * len(batch)
    return [NewerRecord() if word == "NEWER" else word for word in words]


def _untaken(
    batch: Sequence[Ready], words: Sequence[Grant | Word]
) -> list[tuple[Ready, Exception]]:
    pairs = zip(batch, words, strict=True)
    return [(ready, word) for ready, word in pairs if isinstance(word, Exception)]


def _pending(batch: Sequence[Ready], words: Sequence[Grant | Word]) -> list[Ready]:
    """Return what stands recorded and may run here."""
    pairs = zip(batch, words, strict=True)
    return [r for r, word in pairs if word == "PENDING" and _inline(r)]


def level(error: Exception) -> int:
    """Return how loudly to log what Redis didn't take; a newer version's record once an hour."""
    if not isinstance(error, NewerRecord):
        return logging.ERROR
    told = outage.guarded(partial(store.current().first_in_an_hour, "newer"))
    return logging.ERROR if told is True else logging.DEBUG


def _start(batch: list[Ready], started: float | None = None) -> dict[Item, Ended]:
    """Run recorded items here and now, or where and when they can be."""
    later = elsewhere.starter() if batch else None
    if later is None:
        return _run_recorded(batch, started or clock())
    later(lambda started: run_recorded(batch, started))
    return {}


def _inline(ready: Ready) -> bool:
    options = ready.receiver.options
    at_once = not options.delay and ready.events.depth <= DEEPEST
    return options.dispatch == "inline" and at_once


def _wait(ready: Ready) -> float:
    """Return for how many seconds an event backs off, as one of items that trigger each other."""
    beyond = ready.events.depth - DEEPEST
    if beyond <= 0:
        return 0.0
    first, longest = ready.receiver.options.backoff
    seconds = min(longest, first * 2.0 ** min(beyond - 1, 30))
    text = "%s %s: %d passes led to one another, and its event waits %g s: do they ever end?"
    names = _names(ready)
    logger.warning(text, *names.values(), ready.events.depth, seconds, extra=names)
    return seconds


def run_recorded(batch: Sequence[Ready], started: float) -> None:
    """Run items that stand recorded, as far as they are free and the budget goes."""
    if transactions.opened() is None:
        raise_first(_run_recorded(batch, started).values())


def _run_recorded(batch: Sequence[Ready], started: float) -> dict[Item, Ended]:
    found: dict[Item, Ended] = {}
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
        found[ready.item] = _ended(ready, claimed, started)
    return found


def _request(ready: Ready) -> Grant | Word:
    options, events = ready.receiver.options, ready.events
    packed = events.packed()
    ask = partial(store.current().request, ready.item, packed, events.count, options)
    return outage.guarded(ask)


def _ended(ready: Ready, granted: Grant | Word, started: float) -> Ended:
    if isinstance(granted, Grant):
        until = started + ready.receiver.options.inline_budget
        return Hold(ready.receiver, granted, until).run()
    assert isinstance(granted, str)
    if granted in ("DEAD", "BROKEN"):
        return given_up(ready.receiver, ready.item, granted)
    names = _names(ready)
    logger.debug("%s %s: %s", *names.values(), granted, extra=names)
    return Ended(OUTCOMES[granted])


def _away(ready: Ready, error: Exception, *, here: bool = True) -> Ended:
    """Do with an event that Redis doesn't take what ``ON_REDIS_ERROR`` says.

    Args:
        ready: The event.
        error: Why it wasn't taken.
        here: Whether a pass may run here and now.
    """
    policy = ready.receiver.options.on_redis_error
    if policy == "raise":
        return Ended(Outcome.PENDING, error=_Refused(error))
    names, loud = _names(ready), level(error)
    if policy == "outbox":
        then = "waits in the outbox" if table.put_aside([ready]) else "stays owed"
        logger.log(loud, f"%s %s: {then}: %s", *names.values(), error, extra=names)
        return Ended(Outcome.PENDING)
    if policy == "skip":
        logger.log(loud, "%s %s: skipped: %s", *names.values(), error, extra=names)
        return Ended(Outcome.IGNORED)
    if not here or ready.events.depth > DEEPEST:
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
            ready = replace(ready, events=own.after(ready.events))
        outage.owe(ready)
    return Ended(Outcome.UNLOCKED)


def _names(ready: Ready) -> dict[str, str]:
    return {"receiver": ready.receiver.name, "key": ready.item.text}


class _Refused(Exception):
    """Carries what ``on_redis_error="raise"`` raises, whatever RAISE_EXCEPTIONS says."""
