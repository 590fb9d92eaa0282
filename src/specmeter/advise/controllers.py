"""Controllers: arms whose engine decides how long each draft is. What they are held against is added here: plain
decoding, and every fixed length with the same drafts and settings.

A controller is an arm with a `policy`, with a `p_min`, or with `extra_flags` of its own in `engine`, such as the flags
by which a server adapts its drafts. Its flags are the controller: fixed lengths and plain decoding go without them.

Rules on controllers: is an engine's own adaptive mode ever slower than plain decoding, how far is it from the best
fixed length, and how far from the oracle?

All of it is read from a run in which the controller, plain decoding and fixed lengths met in the same blocks, for every
kind of text and for all of them.

- *Over off*: the ratio of decode rates in the same block. "Never below" is said of the worst kind, and is shown only
  where the whole interval of the worst lies above `FLOOR`.
- *Over the best fixed length*: which one is best is not known, but found in the same data, where the luckiest of eight
  looks best. So it is the smallest of the ratios to *every* fixed length, with an interval that holds whichever is
  best (`numbers.estimates.least_of`).
- *Over the oracle*: the best length at every step (`profile.oracle`), on the texts that were generated, at costs that
  are learnt from the fixed lengths of the run. Lengths are chosen at the costs of all blocks, and paid in each block at
  that block's; what these costs leave unexplained of single texts widens the interval.

What the oracle would have taken in a run: the best draft length at every step, at that run's own costs.

Texts are those that the run generated and its draft has read (`profile.run`); costs are learnt from its fixed lengths
(`profile.oracle.fit_costs`), in plain tokens of the same block and text. The oracle's lengths are chosen at the costs
of all blocks together, so that no block's luck is chosen by, and then paid at each block's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from specmeter.analysis.gain import gain_of
from specmeter.analysis.pairing import meet
from specmeter.analysis.reading import read_run
from specmeter.analysis.requests import RequestTable
from specmeter.engines.llama_cpp.draft_rules import DRAFT_GAMMA, NGRAM_GAMMA
from specmeter.engines.registry import spec_of
from specmeter.errors import ExperimentError, UsageError
from specmeter.experiments.experiment import DRAFT_ONLY
from specmeter.experiments.file import load, written
from specmeter.experiments.spec import as_tuple, split_methods
from specmeter.messages import Message
from specmeter.numbers.estimates import bare, between, least_of
from specmeter.numbers.stats import Pair, Pool, geometric_speedup, simultaneous, speedup_over_invocations, with_doubt
from specmeter.probe.draft_lengths import best_walk, fit_costs, fixed_walk, match_lengths
from specmeter.probe.replay import digest, key_of, limits_of, wanted_key, why_not
from specmeter.record import PLAIN, Arm, Estimate, Record
from specmeter.record.verdict import Verdict
from specmeter.store import RunStore

if TYPE_CHECKING:
    from pathlib import Path

    from specmeter.analysis.reading import RunReport
    from specmeter.experiments.experiment import Experiment
    from specmeter.experiments.file import LoadedExperiment
    from specmeter.experiments.spec import ArmSpec
    from specmeter.numbers.stats import Floats, Ints
    from specmeter.probe.replay import Limits
    from specmeter.record import Generation
    from specmeter.store import RunReader


@dataclass(frozen=True)
class OracleTimes:
    """Decode times of plain decoding, a controller and its oracle: blocks x prompts, in ms."""

    longest: int
    """Longest draft that the oracle may choose."""
    probed: bool
    """Whether costs between the measured lengths have the shape of a step probe; else they lie on straight lines."""
    variance: float
    """Of the logarithm by which the time of one text differs from what the costs say."""
    df: int
    """Degrees of freedom of that."""
    cells: tuple[tuple[int, int], ...]
    """(invocation, block) of each block: those that hold all arms on all prompts."""
    kinds: Ints
    """Number of the kind of text of each prompt."""
    tokens: Floats
    """Tokens after the first of each prompt's text."""
    plain_ms: Floats
    controller_ms: Floats
    oracle_ms: Floats

    def ceiling(self, kind: int | None) -> Estimate:
        """Decode rate of the oracle over that of plain decoding, on a kind of text or on all."""
        return self._ratio(self.oracle_ms, self.plain_ms, kind)

    def reached(self, kind: int | None) -> Estimate:
        """Decode rate of the controller over that of the oracle."""
        return self._ratio(self.controller_ms, self.oracle_ms, kind)

    def _ratio(self, mine: Floats, theirs: Floats, kind: int | None) -> Estimate:
        there = np.ones(len(self.kinds), dtype=bool) if kind is None else self.kinds == kind
        tokens = float(self.tokens[there].sum())
        pairs: dict[int, list[Pair]] = {}
        for (invocation, _), ours, others in zip(
            self.cells, mine[:, there].sum(axis=1), theirs[:, there].sum(axis=1), strict=True
        ):
            pairs.setdefault(invocation, []).append((Pool(tokens, float(ours)), Pool(tokens, float(others))))
        if len(pairs) > 1:
            found = speedup_over_invocations(list(pairs.values())).estimate
        else:
            found = geometric_speedup([pair for blocks in pairs.values() for pair in blocks])
        return with_doubt(found, self.variance / int(there.sum()), self.df)


def oracle_times(
    store: RunReader,
    table: RequestTable,
    numbers: Mapping[str, int],
    prompts: Ints,
    controller: Arm,
    fixed: Sequence[Arm],
) -> OracleTimes | Message:
    """The oracle beside a controller and its `fixed` lengths, on these prompts of the table; or why there is
    none. `numbers` are those of the arms. Raises `StoreError`."""
    traits = store.traits()
    generation = store.experiment().generation
    if (reason := why_not(fixed[0], traits=traits, generation=generation)) is not None:
        return reason
    if controller.methods != ("draft-simple",):
        return Message("oracle.not_by_model")
    if generation.temperature > 0:
        return Message("oracle.sampled")
    off = controller.baseline_id or ""
    read = _read(store, generation, [off, *(arm.id for arm in fixed), controller.id], fixed[0])
    lengths = [read.get(table.prompts[int(prompt)]) for prompt in prompts]
    known = [it for it in lengths if it is not None]
    if len(known) < len(lengths):
        said, missing = store.profiled(), len(lengths) - len(known)
        if said is not None and said.reason is not None:
            return Message("oracle.unread_because", missing=missing, texts=len(lengths), why=said.reason)
        return Message("oracle.unread", missing=missing, texts=len(lengths))
    sides = [off, controller.id, *(arm.id for arm in fixed)]
    cells, ms = _whole_blocks(table, [numbers[it] for it in sides], prompts, [len(text) for text, _ in known])
    if not cells:
        return Message("oracle.no_block")
    plain_ms, controller_ms, fixed_ms = ms[0], ms[1], ms[2:]
    tokens = np.array([len(text) for text, _ in known], dtype=np.float64)
    relative = fixed_ms / (plain_ms / tokens)
    gammas = [arm.gamma or 1 for arm in fixed]
    walks = [fixed_walk(text, gamma, limits, longest=max(gammas)) for gamma in gammas for text, limits in known]
    shape = _shape(store, fixed[0], max(gammas))
    try:
        typical = np.exp(np.log(relative).mean(axis=1))
        whole = fit_costs(walks, typical.ravel().tolist(), gammas, shape)
        each = (relative[:, block].ravel().tolist() for block in range(len(cells)))
        of_blocks = [fit_costs(walks, times, gammas, shape) for times in each]
    except UsageError:
        return Message("oracle.too_little")
    best = [best_walk(text, whole.costs, limits) for text, limits in known]
    paid = np.array([[walk.cost(fit.costs) for walk in best] for fit in of_blocks])
    kinds = np.zeros(len(table.prompts), dtype=np.int64)
    kinds[table.prompt] = table.kind
    return OracleTimes(
        longest=max(gammas),
        probed=shape is not None,
        variance=whole.variance,
        df=max(1, len(walks) - whole.unknowns),
        cells=tuple(table.cells[cell] for cell in cells),
        kinds=kinds[prompts],
        tokens=tokens,
        plain_ms=plain_ms,
        controller_ms=controller_ms,
        oracle_ms=paid * plain_ms / tokens,
    )


def _read(
    store: RunReader, generation: Generation, arm_ids: Sequence[str], like: Arm
) -> dict[str, tuple[list[int], Limits]]:
    """Prompt -> (tokens that agree from every place of its text, what ends drafts there), as far as the draft has read
    a text of one of these arms, the first arm's first. `like` drafts as they all do."""
    traits = store.traits()
    profiles = {key_of(profile): profile for profile in store.profiles()}
    models = {model.name: model for model in store.models()}
    header = models[like.target].header
    prompts = {it.prompt_id: it.token_ids for it in store.prompt_tokens() if it.target == like.target}
    most = {prompt.id: prompt.max_tokens or generation.max_tokens for prompt in store.prompts()}
    resolved = next((it.resolved for it in store.sessions() if it.arm_id == like.id), dict[str, Any]())
    found: dict[str, tuple[int, list[int], Limits]] = {}
    for arm_id, prompt_id, text in _texts(store, arm_ids):
        rank = arm_ids.index(arm_id)
        prompt = prompts.get(prompt_id)
        if prompt is None or (prompt_id in found and found[prompt_id][0] <= rank):
            continue
        draft = models[like.draft or ""]
        key = wanted_key(digest(prompt), digest(text), like, draft, traits=traits, generation=generation)
        if (profile := profiles.get(key)) is not None:
            limits = limits_of(
                resolved,
                traits=traits,
                max_tokens=most[prompt_id],
                prompt_tokens=len(prompt),
                recurrent=header is not None and header.recurrent,
            )
            found[prompt_id] = (rank, match_lengths(profile.matches), limits)
    return {prompt_id: (lengths, limits) for prompt_id, (_, lengths, limits) in found.items()}


def _shape(store: RunReader, like: Arm, longest: int) -> list[float] | None:
    """What steps of 0 .. `longest` drafts cost over a plain token, by the run's own probe; None without one.

    Rounds beside a busy machine serve where there are no others: a session has steps of all lengths, and only their
    proportions count.
    """
    for probe in store.probes():
        if (probe.baseline_id, probe.draft, probe.engine) != (like.baseline_id, like.draft, like.engine):
            continue
        rounds = [it for it in (probe.rounds or probe.left_out) if set(range(1, longest + 1)) <= it.step_ms.keys()]
        if rounds:
            return [1.0, *(median(it.step_ms[d] / it.plain_ms for it in rounds) for d in range(1, longest + 1))]
    return None


def _texts(store: RunReader, arm_ids: Sequence[str]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    for request in store.requests():
        if request.arm_id in arm_ids and request.reply is not None and len(request.reply.token_ids) > 1:
            yield request.arm_id, request.prompt_id, request.reply.token_ids


def _whole_blocks(
    table: RequestTable, arms: Sequence[int], prompts: Ints, tokens: Sequence[int]
) -> tuple[list[int], Floats]:
    """(cells that hold all arms on all prompts with texts so long, decode ms of arms x cells x prompts)."""
    ms = np.full((len(arms), len(table.cells), len(table.prompts)), np.nan)
    wanted = np.zeros(len(table.prompts))
    wanted[prompts] = tokens
    for place, arm in enumerate(arms):
        rows = table.of_arm(arm)
        rows = rows[table.decoded[rows] & (table.tokens[rows] == wanted[table.prompt[rows]])]
        ms[place, table.cell[rows], table.prompt[rows]] = table.ms[rows]
    ms = ms[:, :, prompts]
    whole = np.isfinite(ms).all(axis=(0, 2))
    return np.flatnonzero(whole).tolist(), ms[:, whole]


GAMMAS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Fixed lengths that a controller is held against, up to its own longest draft, which is one of them."""
OFF = "off"
"""Name of plain decoding where a controller's flags would make it another arm."""
_OWN = ("name", "policy", "p_min", "gamma_min")
"""Keys of a controller's line that fixed lengths do not have."""
_LONGEST_NAME = 64


def is_controller(arm: Arm, arms: Mapping[str, Arm]) -> bool:
    """Whether something decides in this arm how long each draft is; `arms` are those of its run, by id."""
    if arm.role != "speculative" or not arm.speculates or arm.synthetic_rates:
        return False
    return bool(arm.policy or arm.p_min or arm.engine.extra_flags != _plain_flags(arm, arms))


def fixed_lengths(controller: Arm, arms: Mapping[str, Arm]) -> tuple[Arm, ...]:
    """The arms that draft as a controller does, but always the same number of tokens; the shortest first."""
    key = _drafts_like(controller, arms)
    found = [
        arm
        for arm in arms.values()
        if arm.role == "speculative"
        and arm.gamma is not None
        and not arm.gamma_min
        and not is_controller(arm, arms)
        and _drafts_like(arm, arms) == key
    ]
    return tuple(sorted(found, key=lambda arm: arm.gamma or 0))


def _drafts_like(arm: Arm, arms: Mapping[str, Arm]) -> Arm:
    """What an arm and the fixed lengths that it is held against have in common."""
    settings = arm.engine.model_copy(update={"extra_flags": _plain_flags(arm, arms)})
    own = {"id": "", "gamma": None, "gamma_min": None, "p_min": None, "policy": None, "engine": settings}
    return arm.model_copy(update=own)


def _plain_flags(arm: Arm, arms: Mapping[str, Arm]) -> tuple[str, ...]:
    """The flags of its baseline: all others are its own."""
    baseline = arms.get(arm.baseline_id or "")
    return arm.engine.extra_flags if baseline is None else baseline.engine.extra_flags


def with_fixed_lengths(loaded: LoadedExperiment, gammas: Sequence[int] = GAMMAS) -> LoadedExperiment:
    """The experiment with plain decoding and fixed lengths beside each controller, `gammas` up to its own.

    Raises `ExperimentError` where no arm is a controller, and where one cannot be held against fixed lengths.
    """
    experiment = loaded.experiment
    keys = experiment.model_dump(mode="json", exclude_unset=True)
    lines = cast("list[dict[str, Any]]", keys["arms"])
    specs = list(experiment.arms)
    flagged = [_has_own_flags(spec, experiment) for spec in specs]
    fixed = [
        _fixed_line(index, line, spec, experiment, gammas)
        for index, (line, spec, flags) in enumerate(zip(lines, specs, flagged, strict=True))
        if flags or any(as_tuple(spec.policy)) or any(as_tuple(spec.p_min))
    ]
    if not fixed:
        raise ExperimentError(
            f"{loaded.source}: no arm is a controller",
            fix="give an arm a `policy`, a `p_min`, or the engine's own flags (`engine: {extra_flags: [...]}`)",
        )
    both = [*lines, *fixed]
    if any(flags and spec.baseline is None for spec, flags in zip(specs, flagged, strict=True)):
        both = [{"name": OFF, "method": PLAIN}, *(_beside_off(index, line) for index, line in enumerate(both))]
    name = f"certify-{experiment.name}"[:_LONGEST_NAME]
    grown = load({**keys, "name": name, "arms": both})
    return replace(loaded, experiment=grown.experiment, text=written({**keys, "name": name, "arms": both}))


def _has_own_flags(spec: ArmSpec, experiment: Experiment) -> bool:
    flags = spec.engine.extra_flags
    return "extra_flags" in spec.engine.model_fields_set and flags != experiment.engine.extra_flags


def _fixed_line(
    index: int, line: dict[str, Any], spec: ArmSpec, experiment: Experiment, gammas: Sequence[int]
) -> dict[str, Any]:
    engine = {name: value for name, value in line.get("engine", {}).items() if name != "extra_flags"}
    kept = {name: value for name, value in line.items() if name not in (*_OWN, "engine")}
    longest = max((it for it in as_tuple(spec.gamma) if it is not None), default=None)
    if longest is None:
        if spec_of(experiment.engine.kind).traits.drafting is None:
            raise ExperimentError(
                f"arms.{index}: the longest draft of the controller is not known", fix="set its `gamma`"
            )
        by_model = any("draft-simple" in split_methods(method) for method in as_tuple(spec.method))
        longest = DRAFT_GAMMA if by_model else NGRAM_GAMMA
    lengths = sorted({it for it in gammas if it < longest} | {longest})
    return {**kept, "gamma": lengths, **({"engine": engine} if engine else {})}


def _beside_off(index: int, line: dict[str, Any]) -> dict[str, Any]:
    """The line, compared with plain decoding by name: an automatic baseline would have the controller's flags."""
    if line.get("method") == PLAIN or line.get("baseline") is not None:
        return line
    if changed := set(line.get("engine", {})) - {"extra_flags", *DRAFT_ONLY}:
        raise ExperimentError(
            f"arms.{index}: it has flags of its own and changes {', '.join(sorted(changed))}, so plain decoding to "
            "compare with is not clear",
            fix="name a plain arm with these settings and give it as `baseline`",
        )
    return {**line, "baseline": OFF}


FLOOR = 0.98
"""Of plain decoding: a controller that falls below has cost something."""
ALL = "all"
"""Stands for all kinds of text together."""

Ruling = Literal["never-below", "not-shown", "fails", "invalid"]


class Held(Record):
    """A controller on the prompts of one kind of text, or on all."""

    kind: str
    """Kind of text; `all` for all together."""
    off: Estimate | None
    """Decode rate of plain decoding, tok/s."""
    over_off: Estimate | None
    """Decode rate of the controller over that of plain decoding."""
    best: str | None
    """The fixed length that was fastest here; others may be as good."""
    best_over_off: Estimate | None
    """Its decode rate over that of plain decoding; it was picked as the fastest, which flatters it."""
    over_best: Estimate | None
    """Decode rate of the controller over that of the best fixed length, whichever that is."""
    over_each: dict[str, Estimate]
    """Fixed length -> the controller's decode rate over its."""
    oracle: Estimate | None = None
    """Decode rate of the oracle over that of plain decoding."""
    over_oracle: Estimate | None = None
    """Decode rate of the controller over that of the oracle."""
    share: Estimate | None = None
    """How much of the oracle's gain over plain decoding the controller has; None where that gain is not shown."""


class Certified(Record):
    """The ruling on one controller."""

    arm_id: str
    baseline_id: str
    fixed: tuple[str, ...]
    """Fixed lengths that it was held against, the shortest first."""
    rows: tuple[Held, ...]
    """By kind of text, all kinds together last; empty where the numbers are false."""
    worst_kind: str
    """Where it does worst against plain decoding (where it fails: where that is surest); empty like `rows`."""
    worst: Estimate | None
    """Its decode rate over that of plain decoding there, whichever kind that is."""
    ruling: Ruling
    """`never-below`: the whole interval of `worst` is `FLOOR` or above; `fails`: all of it is below; `not-shown`:
    neither; `invalid`: the run's checks found its numbers, or those of plain decoding, false."""
    verdict: Verdict | None
    """Of the numbers; None where the run was not checked."""
    left_out: tuple[str, ...] = ()
    """Fixed lengths whose numbers are false."""
    no_oracle: Message | None = None
    """Why there is no oracle; empty where there is one."""
    longest: int = 0
    """Longest draft that the oracle may choose."""
    probed: bool = False
    """Whether the oracle's costs between the fixed lengths have the shape of a step probe; else straight lines."""
    unexplained: float | None = None
    """Standard deviation of the logarithm by which the time of one text differs from what the costs say."""


class Certification(Record):
    """The rulings on all controllers of a run."""

    folder: str
    name: str
    """Of the experiment."""
    complete: bool
    """Whether all that was planned is measured."""
    arms: tuple[Arm, ...]
    controllers: tuple[Certified, ...]

    @property
    def passes(self) -> bool:
        """Whether nothing failed and nothing is invalid; what is not shown passes."""
        return all(it.ruling not in ("fails", "invalid") for it in self.controllers)


def certify(folder: Path) -> Certification:
    """Rule on every controller of a run, finished or not, by what it holds. Raises `StoreError`, and `UsageError` where
    no arm is a controller, or nothing to hold it against was measured."""
    report = read_run(folder)
    found = certification_of(report)
    if found is None:
        raise UsageError(
            f"{folder}: no arm of this run is a controller",
            fix="name an experiment whose arms have a `policy`, a `p_min`, or flags of their own",
        )
    if not found.controllers:
        raise UsageError(
            f"{folder}: controllers, plain decoding and fixed lengths share no prompt that was measured",
            fix="measure them with `specmeter run EXPERIMENT --certify`, or let the run finish",
        )
    return found


def certification_of(report: RunReport) -> Certification | None:
    """The rulings on the controllers of a run, of those that met a fixed length; None where no arm is a controller.
    Raises `StoreError`."""
    arms = {arm.id: arm for arm in report.arms}
    controllers = [arm for arm in report.arms if is_controller(arm, arms)]
    if not controllers:
        return None
    with RunStore.open(report.folder, readonly=True) as store:
        ids = {arm.id: number for number, arm in enumerate(report.arms)}
        table = RequestTable(store.rows(), ids)
        found: list[Certified] = []
        for arm in controllers:
            fixed = fixed_lengths(arm, arms)
            usable = [it for it in fixed if it.id not in report.invalid and len(_decoded(table, ids[it.id]))]
            sides = _Sides(table, ids, arm, tuple(usable))
            if len(sides.prompts) and sides.ratio(arm.id, sides.off, ALL) is not None:
                oracle = oracle_times(store, table, ids, sides.prompts, arm, usable)
                found.append(_certified(report, sides, fixed, oracle))
    return Certification(
        folder=str(report.folder),
        name=report.name,
        complete=report.state.state == "complete",
        arms=report.arms,
        controllers=tuple(found),
    )


# --- one controller --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sides:
    """A controller and what it is held against, on the prompts that all of them completed."""

    table: RequestTable
    ids: Mapping[str, int]
    controller: Arm
    fixed: tuple[Arm, ...]

    @property
    def off(self) -> str:
        return self.controller.baseline_id or ""

    @cached_property
    def prompts(self) -> Ints:
        """Numbers of the prompts."""
        if not self.fixed:
            return np.zeros(0, dtype=np.int64)
        shared = np.arange(len(self.table.prompts))
        for arm_id in (self.off, self.controller.id, *(arm.id for arm in self.fixed)):
            shared = np.intersect1d(shared, self.table.prompt[_decoded(self.table, self.ids[arm_id])])
        return shared

    def rows(self, arm_id: str, kind: str) -> Ints:
        """Of an arm on one kind of text, or on all."""
        rows = _decoded(self.table, self.ids[arm_id])
        return rows if kind == ALL else rows[self.table.kind[rows] == self.table.kinds[kind]]

    @property
    def kinds(self) -> list[str]:
        """Kinds of text, in alphabetical order."""
        names = {code: kind for kind, code in self.table.kinds.items()}
        rows = self.rows(self.off, ALL)
        return sorted({names[int(it)] for it in self.table.kind[rows[np.isin(self.table.prompt[rows], self.prompts)]]})

    def ratio(self, arm_id: str, than: str, kind: str) -> Estimate | None:
        """An arm's decode rate over another's."""
        met = meet(self.table, self.rows(arm_id, kind), self.rows(than, kind), self.prompts)
        return None if met is None else gain_of(met, several=len(self.table.invocations) > 1).decoding


def _decoded(table: RequestTable, arm: int) -> Ints:
    rows = table.of_arm(arm)
    return rows[table.decoded[rows]]


def _certified(report: RunReport, sides: _Sides, fixed: Sequence[Arm], oracle: OracleTimes | Message) -> Certified:
    arm = sides.controller
    kinds = sides.kinds
    rows = [_held(report, sides, kind, oracle) for kind in ([] if len(kinds) == 1 else kinds)]
    rows.append(_held(report, sides, ALL, oracle))
    judged = {it.kind: it.over_off for it in (rows[:-1] or rows) if it.over_off is not None}
    worst = least_of(list(judged.values()), "kinds of text")
    together = {kind: simultaneous(found, len(judged)).high or math.inf for kind, found in judged.items()}
    fails = rule(worst) == "fails"
    worst_kind = min(judged, key=together.__getitem__ if fails else lambda kind: judged[kind].point)
    verdict = "invalid" if sides.off in report.invalid else report.headline(arm.id)
    false = verdict == "invalid"
    return Certified(
        arm_id=arm.id,
        baseline_id=sides.off,
        fixed=tuple(it.id for it in sides.fixed),
        rows=() if false else tuple(rows),
        worst_kind="" if false else worst_kind,
        worst=None if false else worst,
        ruling="invalid" if false else rule(worst),
        verdict=verdict,
        left_out=tuple(it.id for it in fixed if it not in sides.fixed),
        no_oracle=oracle if isinstance(oracle, Message) else None,
        longest=0 if isinstance(oracle, Message) else oracle.longest,
        probed=not isinstance(oracle, Message) and oracle.probed,
        unexplained=None if isinstance(oracle, Message) else math.sqrt(oracle.variance),
    )


def rule(worst: Estimate) -> Ruling:
    """What the worst case shows."""
    if worst.low is None or worst.high is None:
        return "not-shown"
    return "never-below" if worst.low >= FLOOR else "fails" if worst.high < FLOOR else "not-shown"


def _held(report: RunReport, sides: _Sides, kind: str, oracle: OracleTimes | Message) -> Held:
    controller, off = sides.controller.id, sides.off
    summary = next(it for it in report.summary.arms if it.arm_id == off)
    part = summary if kind == ALL else summary.kinds[kind]
    each = {arm.id: sides.ratio(controller, arm.id, kind) for arm in sides.fixed}
    over_each = {arm_id: found for arm_id, found in each.items() if found is not None}
    best = min(over_each, key=lambda arm_id: over_each[arm_id].point, default=None)
    over_off = sides.ratio(controller, off, kind)
    held = Held(
        kind=kind,
        off=part.decode_rate,
        over_off=over_off,
        best=best,
        best_over_off=None if best is None else sides.ratio(best, off, kind),
        over_best=least_of(list(over_each.values()), "fixed lengths") if over_each else None,
        over_each=over_each,
    )
    if isinstance(oracle, Message):
        return held
    chosen = None if kind == ALL else sides.table.kinds[kind]
    ceiling, over_oracle = oracle.ceiling(chosen), oracle.reached(chosen)
    share = None if over_off is None else _share(over_off, ceiling, over_oracle)
    return held.model_copy(update={"oracle": ceiling, "over_oracle": over_oracle, "share": share})


def _share(over_off: Estimate, ceiling: Estimate, over_oracle: Estimate) -> Estimate | None:
    """(S - 1) / (O - 1), S the controller's and O the oracle's speedup; None where the latter is not above 1.

    The oracle's is S / R, with R the ratio of both, so that what they share stays shared; the interval is the widest
    that the ends of S and R give.
    """
    if ceiling.low is None or ceiling.low <= 1:
        return None

    def share(speedup: float, ratio: float) -> float:
        gain = speedup / ratio - 1
        return (speedup - 1) / gain if gain > 0 else math.inf

    method = "(controller - off) / (oracle - off)"
    point = share(over_off.point, over_oracle.point)
    ends = (over_off.low, over_off.high, over_oracle.low, over_oracle.high)
    if None in ends:
        return bare(point, "1", f"{method}; no interval", n=over_off.n) if math.isfinite(point) else None
    speedups, ratios = (over_off.low or 0, over_off.high or 0), (over_oracle.low or 0, over_oracle.high or 0)
    corners = [share(speedup, ratio) for speedup in speedups for ratio in ratios]
    if not all(map(math.isfinite, (point, *corners))):
        return None
    how = f"{method}; the widest that both intervals give"
    return between(point, min(corners), max(corners), "1", how, n=over_off.n)
