"""What profiles say of other draft lengths, for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from specmeter.profile.figures import DraftLength

POSITIONS = (1, 2, 4, 8)
"""Positions of a draft that are shown."""
GAMMAS = (1, 2, 4, 8, 16)
"""Draft lengths that are shown."""


def print_draft_lengths(console: Console, found: Iterable[DraftLength]) -> None:
    """One table: acceptance by position and tau by gamma, for each draft and kind of text; nothing where none is known.

    Everything is by replay of the run's own texts.
    """
    from rich.markup import escape
    from rich.table import Table

    rows: dict[tuple[str, str, str], list[DraftLength]] = {}
    for it in found:
        rows.setdefault((it.target, it.draft, it.kind), []).append(it)
    if not rows:
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("replayed on the run's texts", header_style="bold", overflow="fold")
    for column in ("texts", *(f"{_ordinal(place)}, %" for place in POSITIONS), *(f"tau g{it}" for it in GAMMAS)):
        table.add_column(column, justify="right", no_wrap=True)
    for (target, draft, kind), lengths in rows.items():
        table.add_row(
            escape(f"{target} · {draft} · {kind}"),
            str(lengths[0].texts),
            *(_percent(lengths[place].accepted) for place in POSITIONS),
            *(f"{lengths[it].tau:.2f}" for it in GAMMAS),
        )
    console.print(table)
    console.print(
        "1st, 2nd, ...: share of a draft's tokens at that position that are accepted, where all before them were. "
        "tau: tokens per target forward with drafts of that length. All lengths: `specmeter export --table profiles`.",
        style="dim",
        highlight=False,
    )
    console.print()


def as_data(found: Sequence[DraftLength]) -> list[dict[str, object]]:
    """For JSON."""
    return [it.model_dump(mode="json") for it in found]


def _ordinal(place: int) -> str:
    return f"{place}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(place, 'th') }"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}".rstrip("%")
