"""Prints a plan (`specmeter run --dry-run`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from specmeter.laboratory.plan import ModelNeed, Plan


def print_plan(plan: Plan, *, as_json: bool) -> None:
    """Write the plan to stdout, as JSON or for people."""
    if as_json:
        click.echo(plan.model_dump_json(indent=2))
        return
    from rich.markup import escape
    from rich.table import Table

    from specmeter.show.terminal.progress import duration
    from specmeter.show.terminal.text import counted, output_console, printable

    console = output_console()
    arms = Table(box=None, pad_edge=False, title=counted(len(plan.arms), "arm"), title_justify="left")
    for column in ("arm", "compared with", "requests", "memory"):
        arms.add_column(column, justify="left" if column in {"arm", "compared with"} else "right")
    for item in plan.arms:
        baseline = item.arm.baseline_id or ("baseline" if item.arm.role == "baseline" else "")
        arms.add_row(escape(item.arm.id), escape(baseline), str(item.requests), _gigabytes(item.memory_bytes))
    models = Table(box=None, pad_edge=False, title="models", title_justify="left")
    for column in ("name", "reference", "size", "here?"):
        models.add_column(column, justify="right" if column == "size" else "left")
    for need in plan.models:
        models.add_row(
            escape(need.name), escape(printable(need.reference)), _gigabytes(need.size_bytes), _presence(need)
        )
    console.print(f"[bold]{escape(plan.name)}[/bold]: {escape(printable(plan.description))}\n", highlight=False)
    if plan.applied or plan.variants:
        others = [name for name in plan.variants if name not in plan.applied]
        chosen = f"variants chosen: {', '.join(plan.applied) or 'none'}"
        console.print(escape(chosen + (f"; others: {', '.join(others)}" if others else "")) + "\n", highlight=False)
    console.print(arms)
    console.print()
    console.print(models)
    rough = "cannot be told yet" if plan.seconds is None else f"about {duration(plan.seconds)}"
    console.print(
        f"\n{counted(plan.prompts, 'prompt')}, {counted(plan.requests, 'request')} in "
        f"{counted(plan.sessions, 'session')}, at most {counted(plan.tokens, 'token')}"
        f"\nmemory: {_gigabytes(plan.memory_bytes)} of {_gigabytes(plan.memory_available_bytes)} free"
        f"\ndisk:   {_gigabytes(plan.disk_bytes)} to be written, {_gigabytes(plan.disk_free_bytes)} free"
        f"\ntime:   {rough} (rough: {plan.bandwidth_bytes_per_s / 1e9:.1f} GB/s memory bandwidth measured now, "
        "no effect of speculation assumed)",
        highlight=False,
    )
    for problem in (*plan.problems, *plan.warnings):
        console.print(escape(f"warning: {printable(problem)}"), style="yellow", highlight=False)


def _gigabytes(size: int | None) -> str:
    if size is None:
        return "unknown"
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def _presence(need: ModelNeed) -> str:
    if need.present:
        return "yes"
    return "will be made" if need.reference.startswith("bench:") else "will be downloaded"
