"""The chart of a run's profiles: what every draft length would yield."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.profile.figures import ALL, LONGEST
from specmeter.show import charts
from specmeter.show.charts import Chart, Datum, Spec, quantity, tooltip
from specmeter.text import printable

if TYPE_CHECKING:
    from specmeter.show.page.document import Document
    from specmeter.show.page.style import Palette
    from specmeter.show.words import Words


def lookahead(document: Document) -> Chart | None:
    """Tau against draft length by kind of text, for each draft of each target; replayed, so for every length."""
    data: list[Datum] = [
        {
            "pair": printable(f"{it.target} · {it.draft}"),
            "kind": printable(it.kind),
            "gamma": it.gamma,
            "tau": it.tau,
            "shown": f"{it.tau:.2f}",
            "acceptance": "-" if it.acceptance is None else f"{100 * it.acceptance:.1f}",
        }
        for it in document.lengths
        if it.gamma
    ]
    if not data:
        return None
    kinds = sorted({str(datum["kind"]) for datum in data}, key=lambda kind: (kind == ALL, kind))
    pairs = list(dict.fromkeys(str(datum["pair"]) for datum in data))

    def draw(words: Words, palette: Palette) -> Spec:
        x = quantity("gamma", words("axis.gamma"), scale={"domain": [1, LONGEST], "nice": False})
        y = {**quantity("tau", words("axis.tau")), "scale": {"zero": False, "nice": True}}
        colour = charts.coloured("kind", words("column.kind"), kinds, palette)
        colour["scale"]["range"][-1] = palette.ink  # all kinds together stand out
        dashes = [[1, 0], [6, 3], [2, 2], [8, 2, 2, 2]]
        dash: Spec = {
            "field": "pair",
            "type": "nominal",
            "scale": {"domain": pairs, "range": [dashes[place % len(dashes)] for place in range(len(pairs))]},
            "legend": {"title": None} if len(pairs) > 1 else None,
        }
        tips = tooltip(
            words,
            ("pair", "column.draft"),
            ("kind", "column.kind"),
            ("gamma", "axis.gamma"),
            ("shown", "column.tau"),
            ("acceptance", "column.acceptance"),
        )
        along: Spec = {"x": x, "y": y, "color": colour, "strokeDash": dash}
        return {
            "height": 260,
            "layer": [
                {"mark": {"type": "line", "strokeWidth": 1.5, "clip": True}, "encoding": along},
                {
                    "mark": {"type": "point", "filled": True, "size": 18},
                    "encoding": {"x": x, "y": y, "color": colour, "tooltip": tips},
                },
            ],
        }

    return Chart("lookahead", data, draw)
