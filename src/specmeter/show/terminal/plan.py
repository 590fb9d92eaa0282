"""Prints what would be measured: an experiment (`specmeter run --dry-run`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.show.names import Names
from specmeter.show.table import Column, Table, numbers, row, text
from specmeter.show.terminal.console import Screen, output, say_json
from specmeter.text import bandwidth, counted, duration, size

if TYPE_CHECKING:
    from specmeter.laboratory.plan import ModelNeed, Plan


def print_plan(plan: Plan, *, as_json: bool) -> None:
    """Write the plan to stdout, as JSON or for people."""
    if as_json:
        say_json(plan.model_dump(mode="json"))
        return
    screen = output()
    screen.say((plan.name, "strong"), f": {plan.description}" if plan.description else "")
    screen.line()
    if plan.applied or plan.variants:
        others = [name for name in plan.variants if name not in plan.applied]
        chosen = f"variants chosen: {', '.join(plan.applied) or 'none'}"
        screen.say(chosen + (f"; others: {', '.join(others)}" if others else ""))
        screen.line()
    names = Names(item.arm for item in plan.arms)
    arms = [
        row(
            names.in_full(item.arm.id),
            "baseline" if item.arm.role == "baseline" else "",
            str(item.requests),
            _size(item.memory_bytes),
            item.arm.id,
        )
        for item in plan.arms
    ]
    columns = (*text("configuration", " "), *numbers("requests", "memory"), Column("id", title="id", narrow="drop"))
    screen.table(Table("arms", columns, arms, counted(len(plan.arms), "configuration")), caption=True)
    screen.line()
    models = [row(need.name, need.reference, _size(need.size_bytes), _presence(need)) for need in plan.models]
    columns = (*text("name", "reference"), *numbers("size"), *text("here?"))
    screen.table(Table("models", columns, models, "models"), caption=True)
    screen.line()
    screen.say(
        f"{counted(plan.prompts, 'prompt')}, {counted(plan.requests, 'request')} in "
        f"{counted(plan.sessions, 'server start')}, at most {counted(plan.tokens, 'token')}"
    )
    if plan.context is not None:
        screen.say(f"context: {plan.context} tokens")
    peak = bandwidth(plan.bandwidth_bytes_per_s)
    print_needs(screen, plan, f"rough: {peak} memory bandwidth measured now, 70% of draft tokens accepted")
    print_shorter(screen, plan)


def print_duration(screen: Screen, plan: Plan) -> None:
    """How long a run takes, before it starts, and what would take less."""
    if plan.seconds is None:
        return
    longest = max((item.tokens // max(1, item.requests) for item in plan.arms), default=0)
    screen.say(
        f"about {duration(plan.seconds)}: {counted(len(plan.arms), 'configuration')}, "
        f"{counted(plan.blocks, 'block')}, {counted(plan.prompts, 'prompt')}, up to {counted(longest, 'token')} each"
    )
    print_shorter(screen, plan)


def print_shorter(screen: Screen, plan: Plan) -> None:
    """Options by which it would take less."""
    if plan.shorter:
        options = "; ".join(f"`{it.options}` (about {duration(it.seconds)})" for it in plan.shorter)
        screen.say(f"to take less time: {options}", wrap=False)


def print_needs(screen: Screen, plan: Plan, how: str, indent: str = "") -> None:
    """Memory, disk and time, and what to mind."""
    rough = "not known yet" if plan.seconds is None else f"about {duration(plan.seconds)}"
    screen.say(f"{indent}memory: {_size(plan.memory_bytes)} of {_size(plan.memory_available_bytes)} free")
    screen.say(f"{indent}disk:   {_size(plan.disk_bytes)} to be written, {_size(plan.disk_free_bytes)} free")
    screen.say(f"{indent}time:   {rough} ({how})")
    for problem in (*plan.problems, *plan.warnings):
        screen.say(f"{indent}warning: {problem}", tone="doubtful")


def _size(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else size(size_bytes)


def _presence(need: ModelNeed) -> str:
    if need.present:
        return "yes"
    return "will be made" if need.reference.startswith(("bench:", "quant:", "twin:")) else "will be downloaded"
