"""The chart of the admin page: events and passes per minute over the last hour, as inline SVG.

Numbers in, markup out: it asks Redis nothing. The colours are the style sheet's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import copysign
from typing import Final

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

MINUTES: Final = 60
STEP: Final = 10
"""How wide a minute is. Units are those of the view box, which is stretched to what is there."""
GAP: Final = 2
HEIGHT: Final = 100
LEAST: Final = 2
"""How high a bar is at least: the least can be seen."""


def chart(minutes: Sequence[tuple[int, int]]) -> SafeString:
    """Return the chart as HTML.

    Args:
        minutes: Events and passes of each minute, oldest first; what is missing was quiet.
    """
    minutes = [(0, 0)] * (MINUTES - len(minutes)) + list(minutes)[-MINUTES:]
    events, passes = ([pair[i] for pair in minutes] for i in (0, 1))
    unit = (HEIGHT - 2 * LEAST) / max(1, max(events) + max(passes))
    line = HEIGHT - LEAST - round(unit * max(passes))
    shown = {
        "box": f"0 0 {MINUTES * STEP} {HEIGHT}",
        "line": f"M0 {line}H{MINUTES * STEP}",
        "event_bars": _bars(line, (-unit * n for n in events)),
        "pass_bars": _bars(line, (unit * n for n in passes)),
        "events": sum(events),
        "passes": sum(passes),
        "most": max(events),
    }
    return render_to_string("django_recheck/chart.html", shown)


def _bars(line: int, heights: Iterable[float]) -> str:
    """Return the path of all bars from a line; a negative height goes up."""
    return "".join(
        f"M{STEP * minute} {line}v{_seen(height):.0f}h{STEP - GAP}V{line}z"
        for minute, height in enumerate(heights)
        if height
    )


def _seen(height: float) -> float:
    return copysign(max(LEAST, abs(height)), height)
