"""Which experts a run's texts choose, for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.theory.experts import expected_union

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from specmeter.record import TextRouting

TOKENS = (1, 2, 3, 5, 9, 17, 33)
"""Tokens of a forward that are shown."""


def print_routing(console: Console, found: Sequence[TextRouting]) -> None:
    """For each MoE target, experts of a layer that n tokens choose, by layer at most and at least, beside uniform
    routing; nothing for runs without."""
    from rich.markup import escape
    from rich.table import Table

    from specmeter.show.terminal.text import counted, printable
    from specmeter.show.text import brackets

    for routing in found:
        target = escape(printable(routing.target))
        if (union := routing.union) is None:
            reason = escape(printable(routing.failure))
            console.print(f"{target}: its experts could not be read ({reason})\n", style="dim", highlight=False)
            continue
        table = Table(box=None, pad_edge=False)
        table.add_column(target, header_style="bold", overflow="fold")
        for column in ("experts of a layer", "layer by layer", "if uniform"):
            table.add_column(column, justify="right", no_wrap=True)
        for place, point in enumerate(union.points):
            if point.tokens not in TOKENS:
                continue
            layers = [unions[place] for unions in routing.layers.values()]
            ends = f" {brackets(point.union, 1)}" if point.tokens > 1 else ""
            table.add_row(
                counted(point.tokens, "token"),
                escape(f"{point.union.point:.1f}{ends}"),
                f"{min(layers):.1f} to {max(layers):.1f}" if layers else "-",
                f"{expected_union(float(point.tokens), union.experts, union.used):.1f}",
            )
        console.print(table)
        console.print(
            f"{union.used} of {union.experts} experts a token, {counted(len(routing.layers), 'layer')}; "
            f"{counted(routing.tokens, 'token')} of {counted(routing.texts, 'text')} of {escape(routing.baseline_id)}. "
            "Consecutive tokens: what accepted drafts are; a rejected draft token is another one.",
            style="dim",
            highlight=False,
        )
        console.print()
