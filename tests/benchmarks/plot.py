"""The figures as a picture: how far each is from what it is to reach. SVG, written by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from .figures import Figure

LEFT: Final = 470
"""Where the axis begins; what was measured stands before it."""
WIDTH: Final = 960
LINE: Final = 22
TOP: Final = 64
REACHED, MISSED = "#1a6b3c", "#b3420a"
TICKS: Final = (1 / 20, 1 / 10, 1 / 5, 1 / 2, 1, 2, 5, 10, 20)
STYLE: Final = "font: 13px system-ui, sans-serif; fill: #222"


def svg(figures: Sequence[Figure]) -> str:
    """Return the picture of those figures that have something to reach."""
    shown = [figure for figure in figures if figure.share is not None]
    height = TOP + LINE * (len(shown) + 1)
    title = "How far each figure is from what it is to reach"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{title}" style="{STYLE}">'
    )
    return "\n".join((head, *_frame(title, height), *_rows(shown), "</svg>\n"))


def _frame(title: str, height: int) -> Iterator[str]:
    yield f"<title>{title}</title>"
    yield f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
    yield f'<text x="12" y="24" font-weight="600">{title}</text>'
    for tick in TICKS:
        x, name = _x(tick), f"{tick:g} x" if tick >= 1 else f"1/{1 / tick:g}"
        color, width = ("#222", 1.5) if tick == 1 else ("#ddd", 1)
        yield _line(x, TOP - 12, x, height - LINE, color, width)
        yield f'<text x="{x:.0f}" y="{TOP - 18}" text-anchor="middle">{name}</text>'


def _rows(figures: Sequence[Figure]) -> Iterator[str]:
    for number, figure in enumerate(figures):
        y, low, high = TOP + LINE * number, *figure.shares
        assert figure.share is not None
        reached = figure.share >= 1
        color, fill = (REACHED, REACHED) if reached else (MISSED, "#fff")
        against = f" / {figure.against}" if figure.against else ""
        said = escape(f"{figure.work}{against} {figure.place}".rstrip())
        yield f'<text x="{LEFT - 12}" y="{y + 5}" text-anchor="end">{said}</text>'
        yield _line(_x(low), y, _x(high), y, color, 3)
        yield (
            f'<circle cx="{_x(figure.share):.1f}" cy="{y}" r="5" fill="{fill}" stroke="{color}" '
            f'stroke-width="2"><title>{said}: {escape(figure.goal)}</title></circle>'
        )


def _line(x: float, y: float, to_x: float, to_y: float, color: str, width: float) -> str:
    ends = f'x1="{x:.1f}" y1="{y}" x2="{to_x:.1f}" y2="{to_y}"'
    return f'<line {ends} stroke="{color}" stroke-width="{width}"/>'


def _x(share: float) -> float:
    """Return where a share stands on the axis, which is logarithmic; at its end what is beyond."""
    least, most = math.log(TICKS[0]), math.log(TICKS[-1])
    at = (math.log(max(share, 1e-9)) - least) / (most - least)
    return LEFT + min(1.0, max(0.0, at)) * (WIDTH - LEFT - 30)
