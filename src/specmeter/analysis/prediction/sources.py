"""Chooses where a prediction takes its costs and its acceptance from: catalogue, probe, or runs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from specmeter.analysis.prediction.costs import Costs, by_bytes, probed
from specmeter.analysis.prediction.drafts import Counted, Given, count_steps
from specmeter.analysis.prediction.forecast import assumed, drafting, fits
from specmeter.errors import UsageError
from specmeter.messages import Message, Value
from specmeter.models.memory import state_slots
from specmeter.theory.arguments import probabilities
from specmeter.theory.catalogue.devices import named as named_device
from specmeter.theory.catalogue.models import model
from specmeter.theory.catalogue.models import number_format as number_format_of

if TYPE_CHECKING:
    from specmeter.analysis.prediction.drafts import Acceptance
    from specmeter.probe.record import Probe
    from specmeter.record import Arm
    from specmeter.store import RunReader
    from specmeter.theory.catalogue.devices import DeviceEntry

LONGEST_CONTEXT = 10_000_000
HEADS = ("draft-mtp", "draft-eagle3")
"""Methods that draft token by token with a layer on the target's states."""


def costs_of(
    probe: Probe | None,
    named: Message,
    device: str | None,
    model: str | None,
    number_format: str,
    draft_model: str | None,
    draft_format: str | None,
    context: int,
    *,
    no_draft: bool,
    heads: str | None = None,
    flag: Callable[[str], str] = str,
) -> Costs:
    """Costs from a probe, which is `named` so, or from the catalogue: one of the two. `heads` is the method (one of
    `HEADS`) of drafting with the target's own. `flag` says how the caller writes the name of an argument. Raises
    `UsageError` for both, neither, or half of one."""
    if context < 1:
        raise UsageError(
            f"{flag('context')} {context}: must be at least 1", fix="give the number of tokens already in the context"
        )
    if no_draft and (draft_model is not None or draft_format is not None):
        raise UsageError(
            f"{flag('no_draft')} contradicts {flag('draft_model')} and {flag('draft_format')}",
            fix="leave one of them out: n-grams need no draft model",
        )
    if heads is not None and (no_draft or draft_model is not None or probe is not None):
        raise UsageError(
            f"{flag('heads')} {heads}: only the catalogue knows what heads cost, and they draft alone",
            fix=f"use {flag('device')} and {flag('model')}, without {flag('draft_model')} and {flag('no_draft')}",
        )
    if (probe is None) == (device is None and model is None):
        raise UsageError(
            "no costs given: a probe, or a device with a model, is needed",
            fix=f"use {flag('probe')} FILE, or {flag('device')} NAME {flag('model')} NAME {flag('format')} FORMAT",
        )
    if probe is not None:
        if draft_model is not None:
            raise UsageError(
                f"{flag('draft_model')} only works with the catalogue",
                fix="probe the target model together with its draft model",
            )
        target = probe.target.reference
        if probe.draft is None:
            return probed(probe, Message("costs.of_target", probe=named, target=target))
        return probed(probe, Message("costs.of_pair", probe=named, target=target, draft=probe.draft.reference))
    if device is None or model is None:
        missing = flag("device" if device is None else "model")
        raise UsageError(f"{missing} is missing", fix=f"give both {flag('device')} and {flag('model')}")
    return catalogued(device, model, number_format, draft_model, draft_format, context, heads)


def acceptance_of(
    alpha: float | None,
    rates: Sequence[float] | None,
    run: RunReader | None,
    kind: str | None,
    arm_id: str | None,
    *,
    by_model: bool,
    probe: Probe | None,
    flag: Callable[[str], str] = str,
) -> Acceptance:
    """Acceptance as given by one number or by position, as a run showed it, or an assumed range where nothing is
    given. Raises `UsageError` for more than one of these, and for what is not a probability."""
    if sum(source is not None for source in (alpha, rates, run)) > 1:
        raise UsageError(
            "the acceptance rate is given more than once",
            fix=f"give one of {flag('alpha')}, {flag('rates')} and {flag('acceptance_from')}",
        )
    if run is None and (kind is not None or arm_id is not None):
        raise UsageError(
            f"{flag('kind')} and {flag('arm')} only select within a run",
            fix=f"give {flag('acceptance_from')} with them",
        )
    if alpha is not None:
        return Given.alpha(probabilities(flag("alpha"), alpha))
    if rates is not None:
        return Given(
            tuple(np.atleast_1d(probabilities(flag("rates"), list(rates))).tolist()),
            basis=Message("rates.given"),
        )
    if run is None:
        return assumed(by_model=by_model)
    return of_run(run, by_model=by_model, kind=kind, arm_id=arm_id, probe=probe)


def catalogued(
    device: str,
    target: str,
    number_format: str,
    draft: str | None = None,
    draft_format: str | None = None,
    context: int = 512,
    heads: str | None = None,
) -> Costs:
    """Costs by the catalogue alone. Raises `UsageError` with the nearest names for one that it does not have.

    `heads` draft with one more layer of the target and its output matrix, token by token.
    """
    if not 0 <= context <= LONGEST_CONTEXT:
        raise UsageError(f"context is {context}", fix=f"give tokens from 0 to {LONGEST_CONTEXT}")
    where, shape = _one(device), model(target)
    drafter = model(draft) if draft is not None else None
    models = Message("costs.model", name=_asked(target, shape.name), format=number_format)
    if drafter is not None and draft is not None:
        beside = Message("costs.model", name=_asked(draft, drafter.name), format=draft_format or number_format)
        models = Message("costs.models", target=models, draft=beside)
    output = 0.0
    drafting = drafter.footprint(draft_format or number_format) if drafter is not None else None
    if heads is not None:
        drafting = shape.head.footprint(number_format)
        output = shape.embedding_parameters * number_format_of(number_format).bits / 8
        models = Message("costs.heads", target=models, method=heads)
    architecture = shape.linear.architecture if shape.linear is not None else None
    return by_bytes(
        shape.footprint(number_format),
        drafting,
        Message("costs.catalogue", models=models, device=where.name, bandwidth=where.bandwidth_gb_s),
        device=where,
        recurrent=shape.linear is not None,
        output_bytes=output,
        slots=heads is not None and state_slots(architecture, (heads,), 1) > 0,
        context=context,
    )


def _asked(name: str, found: str) -> str | Message:
    """The entry's name; where it was asked for by another that means the same shape, both."""
    numbers = (re.findall(r"\d+(?:\.\d+)?", text.lower()) for text in (name, found))
    asked, known = numbers
    return found if asked[: len(known)] == known else Message("costs.same_shape", known=found, name=name)


def _one(name: str) -> DeviceEntry:
    found = named_device(name)
    if len(found) > 1:
        raise UsageError(
            f"device {name!r} is ambiguous: {', '.join(device.name for device in found)}",
            fix="give one of these names in full",
        )
    return next(iter(found))


def of_run(
    run: RunReader,
    *,
    by_model: bool,
    kind: str | None = None,
    arm_id: str | None = None,
    probe: Probe | None = None,
) -> Counted:
    """What the arms of a run showed, to predict as many other prompts of the kind (or kinds).

    All arms that draft alike are taken together, whatever their gamma. Raises `UsageError` where none fits, several
    ways of drafting do, or the kind is none of the run's; `StoreError` for a damaged run.
    """
    models = {it.name: it for it in run.models()}
    arms = [arm for arm in run.arms() if arm.speculates and not arm.synthetic_rates]
    alike = [arm for arm in arms if (arm.draft is not None) == by_model]
    fitting = [
        arm
        for arm in alike
        if probe is None or fits(probe, models[arm.target], models[arm.draft] if arm.draft else None)
    ]
    if arm_id is not None:
        fitting = _only(arm_id, arms)
    ways = {drafting(arm) for arm in fitting}
    if len(ways) != 1:
        shown = ", ".join(arm.id for arm in fitting[:6]) or ", ".join(arm.id for arm in arms[:6]) or "no arm"
        if ways:
            problem, fix = "several of its arms could be meant", "select one with --arm"
        elif alike:
            problem, fix = "its arms run other models than the probe", "take a probe of its models, or give --alpha"
        elif by_model:
            problem, fix = "none of its arms drafts with a model", "give --no-draft, or acceptance by --alpha"
        else:
            problem, fix = "none of its arms drafts without a model", "give the draft model, or --alpha"
        raise UsageError(f"{run.folder}: {problem} ({shown})", fix=fix)
    names = [name for name in (fitting[0].target, fitting[0].draft) if name is not None]
    if random := [name for name in names if models[name].timing_only]:
        raise UsageError(
            f"{run.folder}: {random[0]} has random weights, so its acceptance rate means nothing",
            fix="use a run of trained models",
        )
    counted = _count(run, fitting, kind)
    first = fitting[0].id
    arm = first if len(fitting) == 1 else Message("rates.alike", arms=len(fitting), arm=first)
    said: dict[str, Value] = {"arm": arm, "run": run.folder.name, "drafted": counted.drafted}
    said["prompts"] = len(counted.prompts)
    counted.basis = Message("rates.of_run", **said) if kind is None else Message("rates.of_kind", **said, kind=kind)
    counted.other_prompts = len(counted.prompts)
    return counted


def _only(arm_id: str, arms: Sequence[Arm]) -> list[Arm]:
    found = [arm for arm in arms if arm.id == arm_id]
    if not found:
        raise UsageError(
            f"--arm {arm_id}: not a speculating configuration of this run",
            fix=f"use one of {', '.join(arm.id for arm in arms[:12]) or 'another run'}",
        )
    return found


def _count(run: RunReader, arms: Iterable[Arm], kind: str | None) -> Counted:
    """Steps of arms with a gamma that is known."""
    gammas = {arm.id: arm.gamma for arm in arms}
    for session in run.sessions():
        if gammas.get(session.arm_id, 0) is None:
            gammas[session.arm_id] = _resolved_gamma(session.resolved)
    counted, kinds = Counted(), set[str]()
    for request in run.requests():
        gamma = gammas.get(request.arm_id)
        if gamma is None or request.reply is None:
            continue
        kinds.add(request.kind)
        if kind is None or request.kind == kind:
            counted.add(request.prompt_id, count_steps(request.reply, gamma))
    if kind is not None and kind not in kinds:
        raise UsageError(
            f"{run.folder}: no prompt type {kind!r}", fix=f"use one of {', '.join(sorted(kinds)) or 'another run'}"
        )
    if not counted.drafted:
        raise UsageError(f"{run.folder}: nothing was drafted", fix="use a configuration that drafts, or give --alpha")
    return counted


def _resolved_gamma(resolved: dict[str, object]) -> int | None:
    """What an engine said about the longest draft; None where it said nothing of use."""
    value = resolved.get("speculative.n_max")
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None


def doubling(longest: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, 24, ... up to `longest`."""
    steps = itertools.chain([1], (n for power in itertools.count(1) for n in (2**power, 3 * 2 ** (power - 1))))
    return list(itertools.takewhile(lambda gamma: gamma <= longest, steps))
