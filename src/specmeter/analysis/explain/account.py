"""The explanation of a run: for each arm where its time went, what decides about its speedup, and what was predicted.

The probes beside a run are those that were named, or the newest of its models on its machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from specmeter.analysis.explain.experts import ExpertUse, experts_of
from specmeter.analysis.explain.parts import PARTS, RESIDUAL, Means, Split, means_of, split
from specmeter.analysis.explain.reason import SAME, MeanRound, ReasonName, sentence
from specmeter.analysis.prediction.costs import probed, verification
from specmeter.analysis.prediction.drafts import Counted
from specmeter.analysis.prediction.forecast import fits
from specmeter.analysis.prediction.outcomes import PredictionOutcome
from specmeter.analysis.prediction.speedup import AtGamma, predict
from specmeter.analysis.tally import PairKey, Tallies, Tally, read_tallies, total
from specmeter.errors import SpecmeterError, UsageError
from specmeter.messages import Message
from specmeter.numbers.stats import pooled_ratio
from specmeter.probe.files import find_probe, probes_folder
from specmeter.record import TRUTHS, Arm, Estimate, ModelIdentity, Record, Verdict
from specmeter.store.database import DATABASE_NAME, damaged

if TYPE_CHECKING:
    from specmeter.analysis.reading import RunReport
    from specmeter.probe.record import Probe
    from specmeter.record import StepProbe
    from specmeter.store import RunReader


PartName = Literal["draft", "verify", "restore", "sample", "rest", "remainder"]


class TimePart(Record):
    """A part of an arm's decode time."""

    name: PartName
    ms_per_token: Estimate
    """Per emitted token; interval over blocks."""
    share: float
    """Of the decode time."""


class ArmAccount(Record):
    """One arm."""

    arm_id: str
    baseline_id: str | None
    verdict: Verdict | None
    """None for a run that was not checked."""
    tokens: int
    ms_per_token: Estimate
    """Decode time per emitted token, over the prompts that the baseline has as well."""
    parts: tuple[TimePart, ...]
    means: Means
    """How the parts were obtained; see `explain.parts`."""
    accounted: float | None
    """Share of the decode time that was measured or priced, part by part. Where verification is what is left over, that
    is not counted: it is then drafting, restoring, and one forward at the baseline's price for each step. None where
    there is nothing to go by."""
    round: MeanRound | None
    """None without a baseline."""
    reason: ReasonName | None
    """What decides; None where no single thing does, and for baselines."""
    sentence: Message | None
    """What the arm's steps are like, and what decides; None for baselines, and without one."""
    speedup: Estimate | None
    """As measured; None where it cannot be believed."""
    prediction: PredictionOutcome | None
    """What was expected before the measurement."""
    by_curve: AtGamma | None
    """What the probe's curves say with the acceptance that was measured; None without a probe of the arm's models."""

    priced: Annotated[bool, Field(exclude=True)] = False
    """Whether the cost of its forwards was measured: by a probe, or by the run's own steps."""

    @property
    def by_curve_error(self) -> float | None:
        """predicted / measured - 1."""
        if self.by_curve is None or self.speedup is None:
            return None
        return self.by_curve.speedup.point / self.speedup.point - 1


@dataclass(frozen=True)
class Account:
    """All arms of a run that were measured, baselines first in their group."""

    name: str
    arms: tuple[ArmAccount, ...]
    probe: str | None
    """What the probe is called; None without one."""


def explain(
    run: RunReader,
    report: RunReport,
    probes: Mapping[str, Probe] | None = None,
    probe_name: str | None = None,
    *,
    tallies: Tallies | None = None,
) -> Account:
    """Account for every arm of `run` but those under load, as `report` reads it. `probes`: arm id -> the probe of its
    models; `tallies`: those of the run, where they were read before.

    Raises `UsageError` for a run in which nothing was measured, `StoreError` for a damaged one.
    """
    tallies = read_tallies(run) if tallies is None else tallies
    models = {model.name: model for model in report.models}
    verdicts = report.certificate.arms if report.certificate else {}
    speedups = {arm.arm_id: report.cited(arm) for arm in (*report.summary.arms, *report.summary.controls)}
    predictions = {outcome.prediction.arm_id: outcome for outcome in report.predictions}
    steps = [it for it in run.probes() if it.rounds or it.left_out]
    unions, texts = _unions(report.arms, tallies), {it.target: it for it in run.routing()}
    found: list[ArmAccount] = []
    for arm in report.arms:
        if arm.id not in tallies or arm.load is not None:
            continue
        verdict = verdicts.get(arm.id)
        if arm.target not in models:
            raise damaged(run.folder / DATABASE_NAME, f"no model {arm.target}")
        model, probe = models[arm.target], (probes or {}).get(arm.id)
        account = _account(
            arm,
            tallies[arm.id],
            tallies.get(arm.baseline_id or "", {}),
            experts_of(model.header, model, probe, unions[arm.target], texts.get(arm.target)),
            probe,
            next((it for it in steps if _of_arm(it, arm)), None),
            probe_name=probe_name,
            verdict=verdict,
            measured=speedups.get(arm.id),
            several=report.summary.invocations > 1,
        )
        found.append(account.model_copy(update={"prediction": predictions.get(arm.id)}))
    if not found and report.summary.requests_ok and all(arm.load is not None for arm in report.arms):
        raise UsageError(
            f"{run.folder}: time per token cannot be split: under load, a forward pass serves several requests",
            fix="measure with one client (without `load:`) to see where the time goes",
        )
    if not found and report.summary.requests_ok:
        raise UsageError(
            f"{run.folder}: time per token cannot be split: the engine does not report {TRUTHS['drafts']}",
            fix="use an engine that does; `specmeter engines` lists them",
        )
    if not found and report.busy is not None and not report.state.planned:
        raise UsageError(f"{run.folder}: all blocks were excluded: {report.busy.what}", fix=str(report.remedy or ""))
    if not found:
        raise UsageError(
            f"{run.folder}: nothing has been measured yet",
            fix="wait: the run is in progress" if report.written else "run the same command again to resume it",
        )
    return Account(report.name, tuple(found), probe_name if probes else None)


def _of_arm(probe: StepProbe, arm: Arm) -> bool:
    return (probe.baseline_id, probe.draft, probe.engine) == (arm.baseline_id, arm.draft, arm.engine)


def _unions(arms: Iterable[Arm], tallies: Tallies) -> dict[str, dict[int, float]]:
    """Target -> experts that its forwards read, by their tokens, as any arm of it recorded them."""
    sums: dict[str, Tally] = {}
    for arm in arms:
        sums.setdefault(arm.target, Tally()).add(total(tallies.get(arm.id, {}).values()))
    return {target: tally.unions for target, tally in sums.items()}


def probes_by_arm(
    probe: Probe, name: str, arms: Iterable[Arm], models: Mapping[str, ModelIdentity]
) -> dict[str, Probe]:
    """Arms that run the probe's models. Raises `UsageError` where none does."""
    found = {arm.id: probe for arm in arms if fits(probe, models[arm.target], models[arm.draft] if arm.draft else None)}
    if not found:
        draft = f" with {probe.draft.reference}" if probe.draft else ""
        raise UsageError(
            f"{name}: a probe of {probe.target.reference}{draft}, which this run did not use",
            fix="probe the run's own models, or leave --probe out",
        )
    return found


def _account(
    arm: Arm,
    mine: Mapping[PairKey, Tally],
    base: Mapping[PairKey, Tally],
    experts: ExpertUse | None,
    probe: Probe | None,
    steps: StepProbe | None,
    *,
    probe_name: str | None,
    verdict: Verdict | None,
    measured: Estimate | None,
    several: bool,
) -> ArmAccount:
    cells = [cell for cell in mine if cell in base] or list(mine)
    paired = bool(base) and all(cell in base for cell in cells)
    units = _units(mine, cells, several)
    plain = _units(base, cells, several) if paired else {}
    by_model, price = arm.draft is not None, _price(probe, probe_name, steps, steady=not arm.p_min)
    means: Means = means_of(list(units.values()), probe, by_model, paired) if arm.speculates else _plain(units)
    splits = [
        split(
            unit,
            means,
            plain[key].ms / plain[key].tokens if paired else None,
            probe,
            by_model,
            lambda n: n if (cost := price(n)) is None else SAME * cost[0],
        )
        for key, unit in units.items()
    ]
    of = "invocations" if several else "blocks"
    whole, beside = total(units.values()), total(plain.values()) if paired else None
    parts = tuple(_part(name, splits, of) for name in (*PARTS, "remainder") if _shown(name, splits, means))
    costs = _round(whole, beside, splits, means) if beside is not None and whole.rounds else None
    reason: ReasonName | None = None
    said: Message | None = None
    if costs is not None and arm.speculates:
        asked = price(costs.verified)
        reason, said = sentence(costs, experts, undivided=means == "undivided", measured=measured, priced=asked)
    return ArmAccount(
        arm_id=arm.id,
        baseline_id=arm.baseline_id,
        verdict=verdict,
        tokens=whole.tokens,
        ms_per_token=pooled_ratio([(it.ms, it.tokens) for it in splits], unit="ms/token", of=of),
        parts=parts,
        means=means,
        accounted=_accounted(splits, means),
        round=costs,
        reason=reason,
        sentence=said if said is None or verdict != "invalid" else _withheld(reason),
        speedup=measured,
        prediction=None,
        by_curve=_by_curve(arm, mine, cells, probe) if costs is not None else None,
        priced=probe is not None or steps is not None,
    )


def _price(
    probe: Probe | None, probe_name: str | None, steps: StepProbe | None, *, steady: bool
) -> Callable[[float], tuple[float, Message] | None]:
    """(forwards that verifying this many tokens costs, what says so): by the run's own steps as predictions have them,
    beyond their reach by the probe."""
    own = verification(steps, steady=steady)

    def price(n: float) -> tuple[float, Message] | None:
        if (cost := own(n)) is not None:
            return cost, Message("costs.own_steps")
        if probe is None or probe.target_ms.tokens[0] != 1 or n > probe.target_ms.tokens[-1]:
            return None
        curve, rest = probe.target_ms, probe.overhead_ms.point if probe.overhead_ms is not None else 0.0
        cost = (float(curve.ms_at(n)) + rest) / (float(curve.ms_at(1.0)) + rest)
        return cost, Message("costs.probe", name=probe_name or probe.target.name)

    return price


def _withheld(reason: ReasonName | None) -> Message:
    """What is left of a sentence about a false speedup: that nothing was drafted is true all the same."""
    return Message("account.invalid_idle" if reason == "no drafts" else "account.invalid")


def _accounted(splits: Sequence[Split], means: Means) -> float | None:
    """Share of the decode time that was measured or priced; see `ArmAccount.accounted`."""
    whole = sum(it.ms for it in splits)
    if means in RESIDUAL:
        sure = [it.sure for it in splits if it.sure is not None]
        share = 1 - abs(whole - sum(sure)) / whole
        return share if share > 0 and len(sure) == len(splits) else None
    return None if means == "undivided" else 1 - abs(sum(it.remainder for it in splits)) / whole


def _units(tallies: Mapping[PairKey, Tally], cells: Sequence[PairKey], several: bool) -> dict[object, Tally]:
    """Sums over what repeats: blocks, or invocations where there are several."""
    found: dict[object, Tally] = {}
    for cell in cells:
        key = cell.invocation if several else (cell.invocation, cell.block)
        found.setdefault(key, Tally()).add(tallies[cell])
    return found


def _plain(units: Mapping[object, Tally]) -> Means:
    """A baseline: its steps where they were measured, else all of it is the target's forwards."""
    return "steps" if all(unit.times for unit in units.values()) else "difference"


def _part(name: PartName, splits: Sequence[Split], of: str) -> TimePart:
    values = [(float(getattr(it, name)), float(it.tokens)) for it in splits]
    floor = min(0.0, *(value for value, _ in values)) * 1e3
    return TimePart(
        name=name,
        ms_per_token=pooled_ratio(values, unit="ms/token", of=of, floor=floor),
        share=sum(value for value, _ in values) / sum(it.ms for it in splits),
    )


def _shown(name: str, splits: Sequence[Split], means: Means) -> bool:
    """Parts that the means can tell; a remainder always, except by difference, which need not have one."""
    if name == "remainder":
        return means not in ("difference", "undivided") or any(it.remainder for it in splits)
    if means == "undivided":
        return name == "verify" or (name == "restore" and any(it.restore for it in splits))
    return name in ("draft", "verify") or any(getattr(it, name) for it in splits)


def _round(whole: Tally, plain: Tally, splits: Sequence[Split], means: Means) -> MeanRound:
    each = whole.rounds * plain.ms / plain.tokens
    sums = {name: sum(getattr(it, name) for it in splits) / each for name in (*PARTS, "remainder")}
    return MeanRound(
        tau=whole.tokens / whole.rounds,
        drafted=whole.drafted / whole.rounds,
        accepted=whole.accepted / whole.rounds,
        with_draft=whole.with_draft / whole.rounds,
        draft=sums["draft"],
        verify=sums["verify"],
        restore=sums["restore"],
        rest=sums["sample"] + sums["rest"] + sums["remainder"],
        unexplained=max(0.0, sums["remainder"]) if means in RESIDUAL else 0.0,
        replays=whole.replays / whole.rounds,
    )


def _by_curve(arm: Arm, mine: Mapping[PairKey, Tally], cells: Sequence[PairKey], probe: Probe | None) -> AtGamma | None:
    """The probe's curves with the very lengths and acceptance of the arm."""
    if probe is None or not arm.speculates:
        return None
    longest = max((length for cell in cells for length in mine[cell].lengths), default=0)
    if longest == 0:
        return None
    counted = Counted()
    for cell in cells:
        counted.add(cell.prompt_id, {(longest, *counts): n for counts, n in mine[cell].by_counts.items()})
    try:
        return predict(
            counted,
            probed(probe, Message("costs.probe", name=probe.target.name)),
            [longest],
            by_model=arm.draft is not None,
        ).by_gamma[0]
    except SpecmeterError:
        return None


def probes_of(
    run: RunReader, report: RunReport, named: Sequence[tuple[str, Probe]]
) -> tuple[dict[str, Probe], str | None]:
    """(arm id -> its probe, what they are called); of two `named` (name, probe) that fit an arm, the first counts.

    Raises `UsageError` for a named one that does not fit.
    """
    models = {model.name: model for model in report.models}
    found: dict[str, Probe] = {}
    for name, probe in reversed(named):
        found |= probes_by_arm(probe, name, report.arms, models)
    if named:
        return found, ", ".join(name for name, _ in named)
    engine = next((session.engine for session in run.sessions()), None)
    hosts = run.hosts()
    if engine is None or run.traits().simulated or not hosts:
        return {}, None
    names: set[str] = set()
    kept: dict[tuple[str, str | None], tuple[Path, Probe] | None] = {}
    for arm in report.arms:
        pair = (arm.target, arm.draft)
        if pair not in kept:
            draft = models[arm.draft] if arm.draft else None
            kept[pair] = find_probe(models[arm.target], draft, engine, probes_folder(), host=hosts[0])
        if (probe := kept[pair]) is not None:
            found[arm.id] = probe[1]
            names.add(probe[0].name)
    return found, ", ".join(sorted(names)) or None
