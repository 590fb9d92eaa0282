"""Prints machines beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specmeter.analysis.machines import MachineLine, MachineTable
    from specmeter.record import Estimate


def print_machines(found: MachineTable) -> None:
    """The machines, then one row for each thing on each of them, then what else differs."""
    from rich.markup import escape
    from rich.table import Table

    from specmeter.show.terminal.text import output_console, printable

    console = output_console()
    console.print(f"[bold]{escape(printable(found.what))}[/bold] on {len(found.machines)} machines", highlight=False)
    for machine in found.machines:
        peak = machine.bandwidth_bytes_per_s
        bandwidth = "bandwidth unknown" if peak is None else f"{peak / 1e9:.1f} GB/s"
        line = f"  {machine.name}: {machine.device}, {bandwidth} ({machine.bandwidth_source})"
        console.print(escape(printable(line)), highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for column in ("subject", "test", "machine"):
        table.add_column(column, overflow="fold", header_style="bold")
    for column in ("tok/s", f"x {found.machines[0].name}", "GB/s", "of peak", "speedup"):
        table.add_column(column, justify="right", overflow="fold")
    before = None
    for line in found.lines:
        key = (line.subject, line.test)
        shown = key if key != before else ("", "")
        table.add_row(*(escape(printable(text)) for text in (*shown, line.machine, *_numbers(line))))
        before = key
    console.print(table)
    if found.differences:
        console.print("\nwhat differs:", highlight=False)
    for difference in found.differences:
        console.print(escape(printable(f"  {difference}")), highlight=False, soft_wrap=True)


def _numbers(line: MachineLine) -> tuple[str, ...]:
    from specmeter.show.terminal.run import interval

    if line.verdict == "invalid":
        return ("invalid", "-", "-", "-", "-")
    if line.rate is None:
        return ("not measured", "-", "-", "-", "-")
    mark = " ?" if line.verdict == "suspect" else ""
    return (
        _short(line.rate, 1) + mark,
        interval(line.ratio, 2),
        _short(line.moved_bytes_per_s, 1, 1e-9),
        "-" if line.utilisation is None else f"{100 * line.utilisation.point:.0f}%",
        interval(line.speedup, 2),
    )


def _short(estimate: Estimate | None, digits: int, factor: float = 1.0) -> str:
    return "-" if estimate is None else f"{factor * estimate.point:.{digits}f}"
