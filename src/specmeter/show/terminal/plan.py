"""Prints what would be measured: an experiment (`specmeter run --dry-run`), or the parts of a study."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.record import Record
from specmeter.show.names import Names
from specmeter.show.table import Column, Table, numbers, row, text
from specmeter.show.terminal.console import Screen, output, say_json
from specmeter.show.words import words
from specmeter.studies.amounts import Amount, planned, together
from specmeter.text import bandwidth, counted, duration, size

if TYPE_CHECKING:
    from specmeter.laboratory.plan import ModelNeed, Plan
    from specmeter.studies.parts import AnyPart
    from specmeter.studies.runner import Ready


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
    names, english = Names(item.arm for item in plan.arms), words("en")
    arms = [
        row(
            names.in_full(item.arm.id, english),
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
    peak = bandwidth(plan.bandwidth_bytes_per_s)
    _print_needs(screen, plan, f"rough: {peak} memory bandwidth measured now, no effect of speculation assumed")


def print_dry_run(ready: Ready, *, as_json: bool) -> bool:
    """What would be measured of each part: requests, or what is done to models; models and a rough time; what would be
    left out, and why. Returns whether anything would be measured."""
    plans = {part.name: _plan(part, ready) for part in ready.parts}
    qualities = {part.name: _quality(part, ready) for part in ready.parts}
    requests = sum(plan.requests for plan in plans.values() if plan is not None)
    quality = together(found.amount for found in qualities.values() if found is not None)
    if as_json:
        told = [
            {
                **part.model_dump(mode="json"),
                "requests": None if (plan := plans[part.name]) is None else plan.requests,
                "plan": None if plan is None else plan.model_dump(mode="json"),
                "quality": None if (found := qualities[part.name]) is None else found.model_dump(mode="json"),
            }
            for part in ready.record.parts
        ]
        kept = {"study": ready.order.study, "requests": requests, "quality": quality.model_dump(mode="json")}
        say_json({**kept, "parts": told})
        return bool(requests or quality.models)
    screen = output()
    for part in ready.record.parts:
        plan, found = plans[part.name], qualities[part.name]
        screen.say(f"{part.name} ({part.kind})", tone="strong")
        if plan is not None:
            screen.say(f"  {len(plan.arms)} arms, {plan.requests} requests, at most {plan.tokens:,} tokens")
            _print_needs(screen, plan, "rough: everything measured, without making or downloading models", indent="  ")
        elif found is not None:
            for line in (found.amount.told or "none of its models is available", *found.steps, "time:   not estimated"):
                screen.say(f"  {line}")
            for name, reason in found.without.items():
                screen.say(f"  left out: {name}: {reason}", tone="doubtful")
        else:
            screen.say(f"  skipped: {part.skipped}", tone="doubtful")
        for item in part.left_out:
            screen.say(f"  left out: {item.name}: {item.reason}", tone="doubtful")
    told = ([f"{requests:,} requests"] if requests else []) + ([quality.told] if quality.told else [])
    screen.line()
    screen.say(f"in all: {' and '.join(told) or 'nothing'}")
    return bool(requests or quality.models)


def _print_needs(screen: Screen, plan: Plan, how: str, indent: str = "") -> None:
    """Memory, disk and time, and what to mind."""
    rough = "cannot be told yet" if plan.seconds is None else f"about {duration(plan.seconds)}"
    screen.say(f"{indent}memory: {_size(plan.memory_bytes)} of {_size(plan.memory_available_bytes)} free")
    screen.say(f"{indent}disk:   {_size(plan.disk_bytes)} to be written, {_size(plan.disk_free_bytes)} free")
    screen.say(f"{indent}time:   {rough} ({how})")
    for problem in (*plan.problems, *plan.warnings):
        screen.say(f"{indent}warning: {problem}", tone="doubtful")


def _plan(part: AnyPart, ready: Ready) -> Plan | None:
    """Of an experiment of which something can be measured."""
    from specmeter.laboratory.plan import make_plan
    from specmeter.studies.parts import QualityPart

    state = next(item for item in ready.record.parts if item.name == part.name)
    if state.skipped or isinstance(part, QualityPart):
        return None
    return make_plan(part.loaded, offline=ready.order.offline, leave_out={item.name for item in state.left_out})


class _Quality(Record):
    """What a quality measurement would do here."""

    amount: Amount
    steps: tuple[str, ...]
    """What is done to each model."""
    without: dict[str, str]
    """Model that is left out -> why."""


def _quality(part: AnyPart, ready: Ready) -> _Quality | None:
    """Of a quality measurement of which something can be measured."""
    from specmeter.studies.parts import QualityPart
    from specmeter.studies.requirements import models_of_plan

    state = next(item for item in ready.record.parts if item.name == part.name)
    if state.skipped or not isinstance(part, QualityPart):
        return None
    plan = part.loaded.value
    models, without = models_of_plan(part.loaded, offline=ready.order.offline)
    which = f"{plan.windows} windows" if plan.windows else "all windows"
    tests = ", ".join(test.name for test in plan.tests)
    steps = (f"scores: {which} of {plan.context} tokens of each model",) if plan.score else ()
    steps += (f"times:  {tests} of each model, in {counted(plan.repeats, 'block')}",) if tests else ()
    return _Quality(amount=planned(plan, models), steps=steps, without=without)


def _size(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else size(size_bytes)


def _presence(need: ModelNeed) -> str:
    if need.present:
        return "yes"
    return "will be made" if need.reference.startswith("bench:") else "will be downloaded"
