"""What would be measured of the parts of a study: `specmeter study run --dry-run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.laboratory.plan import Plan, make_plan
from specmeter.messages import Message
from specmeter.record import Record
from specmeter.show.terminal.console import output, say_json
from specmeter.show.terminal.plan import print_needs
from specmeter.text import counted
from specmeter_studies.amount import Amount, planned, together
from specmeter_studies.availability import models_of_plan
from specmeter_studies.order import AnyPart, QualityPart
from specmeter_studies.runner import Ready

if TYPE_CHECKING:
    pass


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
            screen.say(f"  {len(plan.arms)} configurations, {plan.requests} requests, at most {plan.tokens:,} tokens")
            print_needs(screen, plan, "rough, without the time to make or download models", indent="  ")
        elif found is not None:
            amount = found.amount.message or "none of its models is available"
            for line in (str(amount), *found.steps, "time:   not estimated"):
                screen.say(f"  {line}")
            for name, reason in found.without.items():
                screen.say(f"  left out: {name}: {reason}", tone="doubtful")
        else:
            screen.say(f"  skipped: {part.skipped}", tone="doubtful")
        for item in part.left_out:
            screen.say(f"  left out: {item.name}: {item.reason}", tone="doubtful")
    told = ([f"{requests:,} requests"] if requests else []) + ([str(quality.message)] if quality.message else [])
    screen.line()
    screen.say(f"total: {' and '.join(told) or 'nothing'}")
    return bool(requests or quality.models)


def _plan(part: AnyPart, ready: Ready) -> Plan | None:
    """Of an experiment of which something can be measured."""
    state = next(item for item in ready.record.parts if item.name == part.name)
    if state.skipped or isinstance(part, QualityPart):
        return None
    return make_plan(part.loaded, offline=ready.order.offline, leave_out={item.name for item in state.left_out})


class _Quality(Record):
    """What a quality measurement would do here."""

    amount: Amount
    steps: tuple[str, ...]
    """What is done to each model."""
    without: dict[str, Message]
    """Model that is left out -> why."""


def _quality(part: AnyPart, ready: Ready) -> _Quality | None:
    """Of a quality measurement of which something can be measured."""
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
