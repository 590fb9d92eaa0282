"""Prints what would be measured: an experiment (`specmeter run --dry-run`).

Prints the five lines that answer `specmeter` alone.

Prints the engines that are installed, then what each of them can tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specmeter.record import TRUTHS
from specmeter.show.names import Names
from specmeter.show.table import Column, Table, numbers, row, text
from specmeter.show.terminal.console import Screen, output, say_json
from specmeter.text import bandwidth, counted, duration, program, quoted, size

if TYPE_CHECKING:
    from specmeter.engines.registry import EngineReport
    from specmeter.laboratory.pairs import Pair
    from specmeter.laboratory.plan import ModelNeed, Plan
    from specmeter.models.reference import FoundModel


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
        f"{counted(plan.sessions, 'session')}, at most {counted(plan.tokens, 'token')}"
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
        f"about {duration(plan.seconds)}: {counted(len(plan.arms), 'configuration')} x "
        f"{counted(plan.blocks, 'block')} x {counted(plan.prompts, 'prompt')}, up to {counted(longest, 'token')} each"
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
    return "will be made" if need.reference.startswith("bench:") else "will be downloaded"


_NAMED = 3


def print_welcome(screen: Screen, models: Sequence[FoundModel], engine: str, pair: Pair | None) -> None:
    """What is here, and one command to copy."""
    screen.say(("specmeter", "strong"), ": does speculative decoding make your model faster here?", wrap=False)
    screen.say(("models  ", "faint"), _models(models), wrap=False)
    screen.say(("engine  ", "faint"), engine, wrap=False)
    arguments = "run demo" if pair is None else f"advise {quoted(str(pair.target.path))}"
    screen.say(("start   ", "faint"), (f"{program()} {arguments}", "strong"), wrap=False)
    screen.say(("more    ", "faint"), f"{program()} --help", wrap=False)


def _models(models: Sequence[FoundModel]) -> str:
    if not models:
        return "none found; the demo brings its own"
    places = Counter(it.place for it in models)
    named = ", ".join(f"{it.name} ({size(it.size_bytes)})" for it in models[:_NAMED])
    more = ", ..." if len(models) > _NAMED else ""
    return f"{counted(len(models), 'GGUF file')} ({', '.join(places)}): {named}{more}"


def print_engines(reports: Sequence[EngineReport]) -> None:
    """Engines with their versions or problems, and a table of what those that are usable here tell."""
    screen, width = output(), max((len(it.name) for it in reports), default=0)
    for it in reports:
        told = it.version or "" if it.problem is None else f"not usable here: {it.problem}"
        lines = [f"{it.name:{width}}  {told} ({it.package})"]
        lines += [] if it.problem is None else [f"{'':{width}}  fix: {it.fix or ''}"]
        lines += [f"{'':{width}}  ignored: an engine of the same name in {it.shadowed}"] if it.shadowed else []
        screen.say_all(lines, wrap=False)
    stated = [(it.name, it.traits) for it in reports if it.traits is not None and it.problem is None]
    rows = [
        row(meaning, *("yes" if truth in traits.tells else "-" for _, traits in stated))
        for truth, meaning in TRUTHS.items()
    ]
    screen.line()
    screen.table(Table("truths", text("it tells", *(name for name, _ in stated)), rows))
    screen.line()
    for name, traits in stated:
        methods = ", ".join(method.name for method in traits.methods) or "none"
        screen.say(f"{name} drafts by: {methods}", wrap=False)
