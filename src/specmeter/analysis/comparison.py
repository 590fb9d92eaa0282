"""Compares runs with each other: two builds, two machines, two days.

Arms are compared with the arm of the same id, over the prompts that both runs completed in every block; gaps are
completed (`pairing`). Two measures:

- `rate`: decode rate of the other run / that of the reference. Blocks of different runs have nothing in common, so
  nothing is paired but the prompts: Welch's interval over blocks (`stats.ratio_of_groups`), of logarithms;
- `speedup`: speedup in the other run / speedup in the reference; whatever slowed arm and baseline alike cancels.

The intervals of one pair of runs hold for all of its arms together (Bonferroni). If two runs share a request, with the
same start and the same times to the last digit, one is a copy of the other, and is not compared with itself.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import numpy as np
from pydantic import Field

from specmeter.analysis.load.crossover import Crossover
from specmeter.analysis.load.summary import served
from specmeter.analysis.reading import RunReport, read_run
from specmeter.analysis.requests import BlockKey
from specmeter.errors import UsageError
from specmeter.numbers.estimates import student_geometric
from specmeter.numbers.stats import additive, ratio_of_groups
from specmeter.record import Arm, EngineIdentity, Estimate, Host, Load, Record, Verdict
from specmeter.record.verdict import worst
from specmeter.store import RunStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

Measure = Literal["rate", "speedup"]
Conclusion = Literal["regression", "slower", "faster", "same", "no regression", "undecided", "invalid", "same data"]

Units = Literal["blocks", "invocations"]
Rates = dict[BlockKey, dict[str, tuple[float, float]]]
"""Cell -> prompt id -> (tokens after the first, decode ms)."""


class ArmComparison(Record):
    """An arm in two runs."""

    arm_id: str
    verdict: Verdict | None
    """The worse one; None where a run was not checked."""
    prompts: int
    """Prompts that both runs completed in every block."""
    reference_rate: Estimate | None
    """tok/s over the shared prompts, geometric mean over blocks; None if invalid."""
    other_rate: Estimate | None
    """The same for the other run; divided by the reference's: `rate`."""
    rate: Estimate | None
    """Rate of the other run / rate of the reference, over the shared prompts; None if one is invalid."""
    speedup: Estimate | None
    """The same for the speedups; None for baselines."""
    conclusion: Conclusion | None
    """Conclusion about the chosen measure; see `conclude`. None for baselines where speedups were asked for."""


class Difference(Record):
    """A difference between two runs."""

    what: str
    """`engine version`, `model dense`, ..."""
    reference: str
    other: str
    of_work: bool = False
    """Whether different work was requested, such as other lengths or sampling. A loss is then not a regression."""


class RunComparison(Record):
    """A run compared with the reference."""

    reference: str
    """Name of the run's folder."""
    other: str
    measure: Measure
    threshold: float
    """A loss of more than this share is a regression."""
    arms: tuple[ArmComparison, ...]
    differences: tuple[Difference, ...]
    only_reference: tuple[str, ...]
    """Arms that the other run does not have."""
    only_other: tuple[str, ...]
    shared_requests: int = 0
    """Identical requests in both runs (measured once)."""
    asked: Annotated[tuple[Arm, ...], Field(exclude=True)] = ()
    """The arms of the reference."""
    reference_crossovers: tuple[Crossover, ...] = ()
    """Up to how many clients speculation pays in the reference, if measured."""
    other_crossovers: tuple[Crossover, ...] = ()
    """The same for the other run."""
    same_data: bool = False
    """Whether both runs contain the same data."""

    def of(self, conclusion: Conclusion) -> tuple[ArmComparison, ...]:
        """Arms with this conclusion."""
        return tuple(arm for arm in self.arms if arm.conclusion == conclusion)

    @property
    def other_work(self) -> tuple[Difference, ...]:
        """Differences in the work requested."""
        return tuple(difference for difference in self.differences if difference.of_work)

    @property
    def failed(self) -> bool:
        """Whether there is a regression, or a compared number is invalid."""
        return bool(self.of("regression") or self.of("invalid"))


@dataclass(frozen=True)
class Side:
    """A run, as far as comparing needs it."""

    name: str
    report: RunReport
    rates: Mapping[str, Rates]
    """By arm."""
    prompts: Mapping[str, str]
    """Prompt id -> SHA-256 of its text."""
    requests: Mapping[str, frozenset[int]]
    """Arm -> hashes of what makes each of its answered requests that one measurement: its text, its start, its times.
    They hold within this process."""
    host: Host | None
    engine: EngineIdentity | None
    generation: Mapping[str, object]


def read_side(folder: Path) -> Side:
    """Read a run. Raises `StoreError`."""
    report = read_run(folder)
    rates: dict[str, Rates] = {}
    prompts: dict[str, str] = {}
    loads = {arm.id: arm.load for arm in report.arms if arm.load is not None}
    requests: dict[str, set[int]] = {}
    with RunStore.open(folder, readonly=True) as store:
        for row in store.rows():
            if row.status == "ok" and row.predicted_n is not None and row.predicted_n > 1 and row.predicted_ms:
                cells = rates.setdefault(row.arm_id, {})
                cell = cells.setdefault((row.invocation, row.block), {})
                cell[row.prompt_id] = (row.predicted_n - 1, row.predicted_ms)
                prompts[row.prompt_id] = row.prompt_sha256
                times = (row.started_at, row.wall_ms, row.prompt_ms, row.predicted_n, row.predicted_ms)
                requests.setdefault(row.arm_id, set()).add(hash((row.prompt_sha256, *times)))
        hosts = store.hosts()
        engine = next((session.engine for session in store.sessions()), None)
        asked = json.loads(store.experiment_json)
    workloads = cast("list[dict[str, object]]", asked.get("workloads", []))
    if any(workload.get("baseline_per_block") for workload in workloads):
        for arm in report.arms:
            if arm.role == "baseline" and arm.id in rates:
                rates[arm.id] = _completed(rates[arm.id])
    rates |= _of_cells(report, loads, rates, prompts)
    generation = asked.get("generation", {})
    return Side(
        name=folder.resolve().name,
        report=report,
        rates=rates,
        prompts=prompts,
        requests={arm_id: frozenset(found) for arm_id, found in requests.items()},
        host=hosts[-1] if hosts else None,
        engine=engine,
        generation=generation,
    )


def _of_cells(
    report: RunReport,
    loads: Mapping[str, Load],
    rates: Mapping[str, Rates],
    prompts: dict[str, str],
) -> dict[str, Rates]:
    """What cells under load served, as if all texts of a cell were one prompt: its name, which is added to `prompts`,
    is the same for runs that gave an arm the same texts."""
    found: dict[str, Rates] = {}
    for arm_id, load in loads.items():
        texts = sorted({prompts[prompt] for cell in rates.get(arm_id, {}).values() for prompt in cell})
        name = f"cell {hashlib.sha256(' '.join(texts).encode()).hexdigest()}"
        prompts[name] = name
        served_by = served(load)
        pools = {key: served_by(cell.figures) for key, cell in report.cells.counting(arm_id).items()}
        found[arm_id] = {key: {name: (pool.tokens, pool.ms)} for key, pool in pools.items() if pool.tokens > 0}
    return found


def _completed(rates: Rates) -> Rates:
    """A baseline that may run its prompts in turn, with those that a block lacks as the others let expect them."""
    prompts = list(dict.fromkeys(prompt for cell in rates.values() for prompt in cell))
    cells = list(rates)
    place = {prompt: number for number, prompt in enumerate(prompts)}
    known = [(place[prompt], at, *rates[cell][prompt]) for at, cell in enumerate(cells) for prompt in rates[cell]]
    rows, columns, tokens, ms = (np.array(column) for column in zip(*known, strict=True))
    fitted = additive(np.log(ms / tokens), rows, columns)
    if fitted is None:
        return rates
    of_prompt, of_cell = fitted
    usual: list[int] = np.rint(np.bincount(rows, tokens) / np.bincount(rows)).astype(int).tolist()
    return {
        cell: {
            prompt: rates[cell].get(prompt, (count, count * math.exp(of_prompt[number] + of_cell[at])))
            for number, (prompt, count) in enumerate(zip(prompts, usual, strict=True))
        }
        for at, cell in enumerate(cells)
    }


def refuse_threshold(threshold: float) -> None:
    """Raise `UsageError` for what is not a share from 0 to 0.9."""
    if not 0 <= threshold <= 0.9:
        raise UsageError(f"threshold is {threshold:g}, not between 0 and 0.9", fix="use 0.03 for 3%")


def compare_runs(
    reference: Side, other: Side, *, measure: Measure = "rate", threshold: float = 0.02, level: float = 0.95
) -> RunComparison:
    """Hold a run against the reference. Raises `UsageError` where they have no configuration in common."""
    refuse_threshold(threshold)
    mine = {arm.id: arm for arm in reference.report.arms if arm.role != "control"}
    theirs = {arm.id: arm for arm in other.report.arms if arm.role != "control"}
    shared = [arm_id for arm_id in mine if arm_id in theirs]
    if not shared:
        raise UsageError(
            f"{reference.name} and {other.name} have no configuration in common",
            fix="compare runs of one experiment; `specmeter show` lists their configurations",
        )
    measured = [[side.requests.get(arm_id, frozenset()) for arm_id in shared] for side in (reference, other)]
    once = sum(len(ours & theirs) for ours, theirs in zip(*measured, strict=True))
    among = len(shared) if measure == "rate" else sum(mine[arm_id].baseline_id is not None for arm_id in shared)
    arms = [_compare_arm(reference, other, mine[arm_id], measure, threshold, level, max(1, among)) for arm_id in shared]
    differences = tuple(_differences(reference, other, shared))
    if any(difference.of_work for difference in differences):
        arms = [
            arm.model_copy(update={"conclusion": _OF_OTHER_WORK.get(arm.conclusion, arm.conclusion)}) for arm in arms
        ]
    same_data = once > 0 and measured[0] == measured[1]
    if same_data:
        nothing = {"rate": None, "speedup": None, "conclusion": "same data"}
        arms = [arm if arm.conclusion == "invalid" else arm.model_copy(update=nothing) for arm in arms]
    return RunComparison(
        reference=reference.name,
        other=other.name,
        measure=measure,
        threshold=threshold,
        arms=tuple(arms),
        differences=differences,
        only_reference=tuple(arm_id for arm_id in mine if arm_id not in theirs),
        only_other=tuple(arm_id for arm_id in theirs if arm_id not in mine),
        shared_requests=once,
        reference_crossovers=reference.report.crossovers,
        other_crossovers=other.report.crossovers,
        same_data=same_data,
        asked=reference.report.arms,
    )


_OF_OTHER_WORK: Mapping[Conclusion | None, Conclusion] = {"regression": "slower", "no regression": "undecided"}
"""What is left to say of two runs that did different things: which of them is faster."""


def conclude(ratio: Estimate | None, threshold: float) -> Conclusion:
    """What an interval says, the worst first.

    `regression`: all of it below 1 - threshold. `same`: all of it within 1 - threshold and 1 / (1 - threshold).
    `slower`, `faster`: all of it on one side of 1. `no regression`: all of it above 1 - threshold. Else `undecided`.
    """
    if ratio is None or ratio.low is None or ratio.high is None:
        return "undecided"
    floor = 1 - threshold
    if ratio.high < floor:
        return "regression"
    if ratio.low > floor and ratio.high < 1 / floor:
        return "same"
    if ratio.high < 1:
        return "slower"
    if ratio.low > 1:
        return "faster"
    return "no regression" if ratio.low > floor else "undecided"


def _compare_arm(
    reference: Side, other: Side, arm: Arm, measure: Measure, threshold: float, level: float, among: int
) -> ArmComparison:
    verdict = _verdict(reference, other, arm.id)
    prompts = _shared_prompts(reference, other, (arm.id,))
    rate = speedup = None
    rates: list[Estimate | None] = [None, None]
    over: Units = "invocations" if all(side.report.summary.invocations > 1 for side in (reference, other)) else "blocks"
    logs = [_logs(side, arm.id, None, prompts, over) for side in (reference, other)]
    for place, side in enumerate((reference, other)):
        if arm.id not in side.report.invalid and len(logs[place]):
            how = f"geometric mean of {len(logs[place])} {over}"
            rates[place] = student_geometric(logs[place], "tok/s", f"{how}; Student t", alone=how, of=over, level=level)
    if verdict != "invalid":
        rate = _ratio(logs, over, level, among)
        if arm.baseline_id is not None:
            both = _shared_prompts(reference, other, (arm.id, arm.baseline_id))
            units = [_logs(side, arm.id, arm.baseline_id, both, over) for side in (reference, other)]
            speedup = _ratio(units, over, level, among)
    asked = rate if measure == "rate" else speedup
    conclusion: Conclusion | None = "invalid" if verdict == "invalid" else conclude(asked, threshold)
    if measure == "speedup" and arm.baseline_id is None:
        conclusion = None
    return ArmComparison(
        arm_id=arm.id,
        verdict=verdict,
        prompts=len(prompts),
        reference_rate=rates[0],
        other_rate=rates[1],
        rate=rate,
        speedup=speedup,
        conclusion=conclusion,
    )


def _verdict(reference: Side, other: Side, arm_id: str) -> Verdict | None:
    """The worse of an arm's verdicts; None where a run was not checked, unless the other one found it invalid."""
    certificates = [side.report.certificate for side in (reference, other)]
    verdicts: list[Verdict] = [
        issued.arms[arm_id] for issued in certificates if issued is not None and arm_id in issued.arms
    ]
    found = worst(verdicts)
    return found if len(verdicts) == 2 or found == "invalid" else None


def _shared_prompts(reference: Side, other: Side, arm_ids: Sequence[str]) -> frozenset[str]:
    """Prompts of the same text that these arms completed in every block of both runs."""
    found: set[str] | None = None
    for side in (reference, other):
        for arm_id in arm_ids:
            for cell in side.rates.get(arm_id, {}).values():
                found = set(cell) if found is None else found & set(cell)
            if arm_id not in side.rates:
                return frozenset()
    return frozenset(prompt for prompt in found or () if reference.prompts[prompt] == other.prompts[prompt])


def _logs(
    side: Side, arm_id: str, baseline_id: str | None, prompts: frozenset[str], over: Units
) -> NDArray[np.float64]:
    """Logarithm of the rate (or of the speedup) of each block, or their mean in each invocation."""
    units: dict[int, list[float]] = {}
    for cell, of_arm in side.rates.get(arm_id, {}).items():
        of_baseline = side.rates.get(baseline_id, {}).get(cell) if baseline_id is not None else None
        if not prompts or (baseline_id is not None and of_baseline is None):
            continue
        value = _log_rate(of_arm, prompts) - (_log_rate(of_baseline, prompts) if of_baseline is not None else 0.0)
        units.setdefault(cell[0], []).append(value)
    if over == "invocations":
        return np.array([np.mean(values) for values in units.values()], dtype=np.float64)
    return np.array([value for values in units.values() for value in values], dtype=np.float64)


def _log_rate(cell: Mapping[str, tuple[float, float]], prompts: frozenset[str]) -> float:
    tokens = math.fsum(cell[prompt][0] for prompt in prompts)
    ms = math.fsum(cell[prompt][1] for prompt in prompts)
    return math.log(1000 * tokens / ms)


def _ratio(units: Sequence[NDArray[np.float64]], over: Units, level: float, among: int) -> Estimate | None:
    reference, other = units
    if not len(reference) or not len(other):
        return None
    return ratio_of_groups(other, reference, of=over, level=level, among=among)


def _differences(reference: Side, other: Side, shared: Sequence[str]) -> list[Difference]:
    sides = (_facts(reference, shared), _facts(other, shared))
    names = dict.fromkeys([*sides[0], *sides[1]])
    return [
        Difference(
            what=name,
            reference=sides[0].get(name, "-"),
            other=sides[1].get(name, "-"),
            of_work=name.startswith("generation.") and name != "generation.seed",
        )
        for name in names
        if sides[0].get(name) != sides[1].get(name)
    ]


def _facts(side: Side, shared: Sequence[str]) -> dict[str, str]:
    """Everything that should be known to be the same, or to be what was meant to differ."""
    facts: dict[str, str] = {}
    if side.engine is not None:
        facts["engine version"] = f"{side.engine.kind} {side.engine.version}"
        facts["engine build"] = side.engine.build
        facts["engine binary"] = side.engine.binary_sha256[:16]
    if side.host is not None:
        host = side.host
        facts |= {
            "machine": host.hostname_sha256[:16],
            "CPU": host.cpu,
            "GPUs": ", ".join(gpu.name for gpu in host.gpus) or "none",
            "drivers": ", ".join(gpu.driver or "?" for gpu in host.gpus) or "none",
            "operating system": f"{host.os} {host.os_version}, {host.kernel}",
            "clock policy": host.governor or "unknown",
            "power": host.power_source,
            "specmeter": host.specmeter,
        }
    for model in side.report.models:
        facts[f"model {model.name}"] = f"{model.reference} {model.sha256[:16]}"
    for name, value in side.generation.items():
        facts[f"generation.{name}"] = str(value)
    for arm in side.report.arms:
        if arm.id in shared:
            for name, value in arm.engine.model_dump(mode="json").items():
                facts[f"{name} of {arm.id}"] = str(value)
    return facts
