"""One look for all charts: colours that colour-blind readers tell apart, and what Vega draws with them.

The eight hues are those of Okabe & Ito 2008, "Color Universal Design", adjusted in lightness to stand on white and on
dark; every colour comes with a shape, so that grey prints say the same. On a page colours are CSS variables, so that a
chart follows the theme and the printer without being drawn again; in a file they are the light ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LIGHT = ("#0072b2", "#c45500", "#00805c", "#b8528c", "#9a6a00", "#3b9bd6", "#555555", "#7a3fa0")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
HEAT = ("#e8914a", "#f5b27a", "#fbd3ad", "#fdeee0", "#f1f1f1", "#e4f0fa", "#bcd9f2", "#8cbfe8", "#5aa3dc")
"""From a large loss (orange) over no difference to a large gain (blue), all light enough for text in ink on them."""
CROSS = "M-1,-0.62L-0.62,-1L0,-0.38L0.62,-1L1,-0.62L0.38,0L1,0.62L0.62,1L0,0.38L-0.62,1L-1,0.62L-0.38,0Z"
"""Outline of the mark for false numbers, which no series has."""


@dataclass(frozen=True)
class Palette:
    """Colours of a chart, as CSS understands them."""

    series: Sequence[str]
    ink: str
    muted: str
    grid: str
    paper: str
    bad: str
    heat: Sequence[str]
    """From a large loss over no difference to a large gain; text in ink is legible on each."""
    font: str


PAGE = Palette(
    series=tuple(f"var(--series-{number})" for number in range(1, len(LIGHT) + 1)),
    ink="var(--ink)",
    muted="var(--muted)",
    grid="var(--grid)",
    paper="var(--paper)",
    bad="var(--bad)",
    heat=tuple(f"var(--heat-{number})" for number in range(1, len(HEAT) + 1)),
    font="system-ui, 'Segoe UI', 'Noto Sans', 'PingFang SC', 'Microsoft YaHei', 'Noto Sans CJK SC', sans-serif",
)
PRINT = Palette(
    series=LIGHT,
    ink="#1a1a1a",
    muted="#5a5a5a",
    grid="#e3e3e3",
    paper="#ffffff",
    bad="#b00020",
    heat=HEAT,
    font="Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', 'Noto Sans CJK SC', sans-serif",
)


def config(palette: Palette, type_px: float = 12) -> dict[str, Any]:
    """Vega-Lite's configuration."""
    text = {"labelColor": palette.ink, "titleColor": palette.ink, "labelFontSize": type_px, "titleFontSize": type_px}
    return {
        "font": palette.font,
        "background": None,
        "view": {"stroke": None},
        "axis": {
            **text,
            "titleFontWeight": "normal",
            "gridColor": palette.grid,
            "domainColor": palette.muted,
            "tickColor": palette.muted,
            "labelLimit": 300,
            "labelSeparation": 6,
        },
        "axisY": {"domain": False, "ticks": False, "labelPadding": 8},
        "legend": {
            **text,
            "titleFontWeight": "normal",
            "orient": "bottom",
            "columns": 4,
            "symbolFillColor": "transparent",
            "symbolStrokeWidth": 2,
            "labelLimit": 280,
            "layout": {"bottom": {"anchor": "start", "direction": "vertical"}},
        },
        "range": {"category": list(palette.series)},
        "text": {"color": palette.ink, "fontSize": type_px},
    }
