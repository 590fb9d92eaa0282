"""Prints which drafted tokens are accepted: for each arm by position, beside a histogram of accepted lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specmeter.analysis.positions import ALL, MOST_LENGTHS
from specmeter.numbers.stats import LEAST_PROMPTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from specmeter.analysis.positions import ArmPositions
    from specmeter.record import Estimate

_BAR = 20
"""Characters of the widest bar."""


def print_positions(console: Console, found: Sequence[ArmPositions]) -> None:
    """A table for each arm that drafted; the reason where its engine shows no steps."""
    from rich.markup import escape

    from specmeter.show.terminal.text import counted

    shown = [it for it in found if it.kind == ALL]
    if not shown:
        console.print("no arm drafted anything", highlight=False)
        return
    for arm in shown:
        head = f"[bold]{escape(arm.arm_id)}[/bold]"
        if arm.missing:
            console.print(f"{head}: no acceptance by position, {arm.missing}\n", highlight=False)
            continue
        console.print(f"{head}: {counted(arm.drafts, 'draft')} on {counted(arm.prompts, 'prompt')}", highlight=False)
        console.print(_table(arm))
        console.print()
    console.print(
        "if reached: share of the drafts whose tokens before it were all accepted; of all: share of all drafts, those "
        "too short included. Accepted: share of the drafts of which just so many tokens were. 95 % intervals over "
        f"prompts, [?] where there is none (fewer than {LEAST_PROMPTS} prompts, or nothing that varies); kinds of "
        "text: `specmeter export --table positions`, `--table accepted_lengths`.",
        style="dim",
        highlight=False,
    )


def as_data(found: Sequence[ArmPositions]) -> list[dict[str, Any]]:
    """For JSON."""
    return [it.model_dump(mode="json") for it in found]


def _table(arm: ArmPositions) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("token", "if reached, %", "of all, %", "accepted, %"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    last = min(len(arm.lengths), MOST_LENGTHS) - 1
    beyond = sum(it.share.point for it in arm.lengths[last + 1 :])
    widest = max(it.share.point for it in arm.lengths) or 1.0
    for place, length in enumerate(arm.lengths[: last + 1]):
        rate = arm.positions[place - 1] if place else None
        share = length.share.point + (beyond if place == last else 0.0)
        table.add_row(
            "none" if rate is None else f"{place}+" if beyond and place == last else str(place),
            _percent(rate.conditional if rate else None),
            _percent(rate.unconditional if rate else None),
            f"{share:.0%}".rstrip("%") if beyond and place == last else _percent(length.share),
            "█" * round(_BAR * share / widest),
        )
    return table


def _percent(estimate: Estimate | None) -> str:
    from rich.markup import escape

    from specmeter.show.text import brackets

    return "-" if estimate is None else f"{100 * estimate.point:.0f} {escape(brackets(estimate, 0, 100))}"
