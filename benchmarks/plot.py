"""Draw what decorators add to ``jax.jit`` as an SVG picture, with the standard library."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.interleaved import Row

__all__ = ["svg"]

WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 760, 170, 90, 18, 6, 46
COLOURS = {"xpolicy": "#1b6ca8", "bare": "#8c8c8c"}
OTHER = "#d08c3f"
LEAST = 10.0  # nanoseconds; the axis is logarithmic


def svg(rows: Sequence[Row], about: str) -> str:
    """Return the picture: one group of bars for each row, nanoseconds on a log axis."""
    most = max((max(row.added.values()) for row in rows), default=LEAST)
    decades = max(1, math.ceil(math.log10(most / LEAST)))
    scale = (WIDTH - LEFT - RIGHT) / decades

    def at(value: float) -> float:
        return LEFT + scale * math.log10(max(value, LEAST) / LEAST)

    parts: list[str] = []
    y = TOP
    for row in rows:
        parts.append(f'<text x="8" y="{y + 13}" font-weight="bold">{escape(row.name)}</text>')
        y += BAR + GAP
        for kind, value in row.added.items():
            colour = COLOURS.get(kind, OTHER)
            width = at(value) - LEFT
            parts += [
                f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(kind)}</text>',
                f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>',
                f'<text x="{LEFT + width + 6:.1f}" y="{y + 13}">{value:+,.0f} ns</text>',
            ]
            y += BAR + GAP
        y += GAP
    grid = []
    for decade in range(decades + 1):
        x, value = LEFT + scale * decade, LEAST * 10**decade
        grid += [
            f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{y}" stroke="#ddd"/>',
            f'<text x="{x:.1f}" y="{TOP - 12}" text-anchor="middle">{value:,.0f}</text>',
        ]
    title = "Added to the undecorated call, in ns (medians, logarithmic)"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 26}" '
        f'viewBox="0 0 {WIDTH} {y + 26}" font-family="sans-serif" font-size="12" role="img">'
    )
    return "\n".join(
        [
            head,
            f"<title>{title}</title>",
            f'<rect width="{WIDTH}" height="{y + 26}" fill="white"/>',
            f'<text x="8" y="16">{title}</text>',
            *grid,
            *parts,
            f'<text x="8" y="{y + 16}" fill="#666">{escape(about)}</text>',
            "</svg>",
            "",
        ]
    )
