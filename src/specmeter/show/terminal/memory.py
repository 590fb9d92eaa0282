"""What drafts take in memory and what that would buy, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from specmeter.analysis.explain.memory_price import MemoryPrice


def print_memory(console: Console, prices: Sequence[MemoryPrice]) -> None:
    """One table, and a sentence for each draft; nothing where no draft model is used."""
    from rich.markup import escape
    from rich.padding import Padding
    from rich.table import Table

    from specmeter.analysis.explain.memory_price import sentence
    from specmeter.show.text import size

    if not prices:
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("memory of a draft", overflow="fold", header_style="bold")
    for column in ("weights", "KV cache", "buffers", "target's own", "in all", "of the target"):
        table.add_column(column, justify="right", no_wrap=True)
    for price in prices:
        table.add_row(
            escape(f"{price.target} · {price.draft}"),
            size(price.weights_bytes),
            size(price.kv_bytes),
            size(price.buffers_bytes) if price.means == "printed by the engine" else "not told",
            size(price.target_bytes),
            size(price.total_bytes),
            f"{price.share:.0%}",
        )
    console.print(table)
    for price in prices:
        console.print(Padding(escape(sentence(price)), (0, 0, 0, 2), expand=False), highlight=False)
    told = sorted({price.means for price in prices})
    console.print(
        f"memory: {', '.join(told)}; target's own: what its caches and buffers take beyond those of its baseline. "
        "Bits of types are those on Llama-3.1-8B.",
        style="dim",
        highlight=False,
    )
    if not any(price.measured for price in prices):
        console.print(
            "what a better quantization is good for: `specmeter quality` on the target and its better quantizations, "
            "then `specmeter explain --quality REPORT`",
            style="dim",
            highlight=False,
        )
    console.print()


def as_data(prices: Sequence[MemoryPrice]) -> list[dict[str, object]]:
    """For JSON."""
    return [{**price.model_dump(mode="json"), "total_bytes": price.total_bytes} for price in prices]
