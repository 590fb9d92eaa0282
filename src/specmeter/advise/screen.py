"""The screen: every arm of the grid priced from one block of decoding without speculation, and what cannot win left
out.

Outputs are those of the baseline, so an arm's drafts on them are known by replay, exactly. What its steps cost comes
from a short probe of whole steps (`laboratory.pre_measure`). What cannot be replayed follows from a *pilot*: one arm of
its kind, measured in the same block, whose counted steps are cut to the other lengths. If nothing is known of what
drafts cost (the target's own head), every length is a pilot, and what it was seen to gain is its prediction.

Every prediction is a set of draws. Arms of one drafter share those of its costs, so how they compare is known better
than how each compares with no speculation; `ARM` is what they do not share, and what no input explains.

An arm is left out for what its prediction says at its optimistic end, never for its point alone; the one exception are
neighbours of one drafter within `TIE_MARGIN`, of which one stands for all. What has no prediction is not called slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from specmeter.advise.advice import ArmOutcome
from specmeter.analysis.load.summary import LoadTable, cells_of
from specmeter.analysis.prediction import DRAWS, LEVEL, SEED
from specmeter.analysis.prediction.drafts import Counted
from specmeter.analysis.prediction.forecast import Forecaster, drafting, modelled
from specmeter.analysis.prediction.speedup import draw_costs, draw_speedup
from specmeter.errors import SpecmeterError
from specmeter.laboratory.evidence import Evidence, at_once, probe_key, why_not_replayed
from specmeter.laboratory.pre_measure import Scout
from specmeter.messages import Message
from specmeter.numbers.estimates import luck_of_best, of_draws

if TYPE_CHECKING:
    from specmeter.advise.advice import Goal
    from specmeter.analysis.prediction.drafts import Acceptance
    from specmeter.analysis.prediction.forecast import Sources
    from specmeter.laboratory.pre_measure import Tell
    from specmeter.laboratory.run import Prepared
    from specmeter.measure import Work
    from specmeter.record import Arm, Estimate, Host
    from specmeter.store import RunReader, RunStore
    from specmeter.theory.arguments import Floats

ALLOWANCE = 0.05
"""Share of a budget that the probe of steps may take; less where its rounds agree."""
ALLOWANCE_S = (8.0, 30.0)
"""Least and most seconds of it."""
LONGEST_PRICED = 16
"""Costs of longer drafts continue from there: a probe of them would take longer than it is worth. Under load it is that
many tokens of all requests together, but `MIN_PRICED` of each."""
MIN_PRICED = 6
ARM = 0.015
"""Standard deviation of the logarithm by which an arm differs from its prediction beside what arms of one drafter
share."""
ONE_SESSION = 0.05
"""Standard deviation of the logarithm of a speedup that was seen in a single session of each."""
TIE_MARGIN = 0.01
"""Neighbours predicted to be no further apart are as good as one another."""
KINDS = 0.03
"""An arm that is so much better on one kind of text than all that are raced is raced as well, where there is room."""
MAX_RACED_ARMS = 5
"""Arms that are raced."""


@dataclass(frozen=True)
class ArmForecast:
    """The prediction for an arm."""

    arm: Arm
    predicted: Estimate | None
    """Speedup over its baseline; None where nothing can be said."""
    by_kind: Mapping[str, Estimate]
    """The same on each kind of text."""
    basis: Message
    """What the prediction rests on, or why there is none."""
    draws: Floats | None = field(repr=False)
    """Speedups drawn jointly with other arms; the first is the point. Shape (draws,)."""
    tau: float | None = None
    """Tokens per step that it rests on."""
    hopeless: bool = False
    """It would hardly gain even if every draft token were accepted."""
    acceptance: float | None = None
    """Accepted draft tokens over all draft tokens; None if nothing was drafted."""

    @property
    def point(self) -> float:
        """0 where nothing can be said."""
        return 0.0 if self.predicted is None else self.predicted.point


@dataclass(frozen=True)
class Shortlist:
    """Which arms are raced."""

    kept: tuple[str, ...]
    """Ids, the most promising first; none where nothing can gain."""
    outcomes: tuple[ArmOutcome, ...]
    """Of all others."""


# --- measuring -------------------------------------------------------------------------------------------------------


def pilots(whole: Prepared) -> tuple[str, ...]:
    """Arms to measure beside the baselines, one of each way of drafting that cannot be replayed: the longest; where the
    target drafts for itself, at a cost that is not known, all lengths."""
    work = whole.work
    longest: dict[tuple[object, ...], Arm] = {}
    for arm in work.arms.values():
        if not arm.speculates or why_not_replayed(arm, work.traits, work.experiment.generation) is None:
            continue
        way = (drafting(arm), arm.baseline_id, None if arm.draft is not None or modelled(arm) else arm.gamma)
        if way not in longest or (longest[way].gamma or 0) < (arm.gamma or 0):
            longest[way] = arm
    return tuple(arm.id for arm in longest.values())


def explore(
    whole: Prepared,
    store: RunStore,
    *,
    host: Host | None,
    budget_s: float = 0.0,
    priced: bool = True,
    tell: Tell = lambda _: None,
) -> None:
    """Price the steps of all arms, if wanted, and let drafts read the texts of the baselines; all of it into `store`.

    `whole` has all arms of the grid, `store` is that of the screen's run, `host` the machine (None where simulated);
    `tell` hears what is measured.
    What is on record is not looked for again. Whatever fails leaves a reason. Raises `StoreError`.
    """
    clients = max(at_once(arm) for arm in whole.work.arms.values())
    longest = max(LONGEST_PRICED // clients, MIN_PRICED)
    allowance_s = min(max(ALLOWANCE * budget_s, ALLOWANCE_S[0]), ALLOWANCE_S[1])
    scout = Scout(whole.work, whole.engine, store, host, allowance_s=allowance_s, longest=longest, tell=tell)
    for arm in whole.work.arms.values():
        if arm.speculates:
            if priced:
                scout.price(arm)
            if why_not_replayed(arm, whole.work.traits, whole.work.experiment.generation) is None:
                scout.read(arm)


# --- predicting ------------------------------------------------------------------------------------------------------


def look(
    whole: Prepared,
    store: RunReader,
    *,
    goal: Goal = "throughput",
    priced: RunReader | None = None,
    by_prompt: bool = False,
) -> tuple[ArmForecast, ...]:
    """What is expected of every arm that is compared, the best first, by what the screen's run has on record.

    `priced` is the run that knows what steps cost, if that is another one. `by_prompt`: `ArmForecast.by_kind` has
    prompts instead of kinds. Starts nothing and writes nothing. Raises `StoreError`.
    """
    work = whole.work
    forecaster = Forecaster(
        work.arms,
        work.models,
        whole.identity,
        prompts={arm_id: frozenset(it.id for it in prompts) for arm_id, prompts in work.prompts.items()},
    )
    forecaster.scout = evidence = _Evidence(work, store, goal, priced or store)
    forecaster.saw(store.requests())
    seen = _BaselineFacts(whole, store, goal, priced or store)
    if by_prompt:
        seen.kinds = {it.id: frozenset({it.id}) for mine in work.prompts.values() for it in mine}
    found = [
        ArmForecast(arm, None, {}, Message("screen.hopeless"), None, hopeless=True)
        if arm.p_min and evidence.is_hopeless(arm)
        else _forecast(arm, forecaster, seen)
        for arm in work.arms.values()
        if arm.role == "speculative"
    ]
    return tuple(sorted(found, key=lambda it: it.point, reverse=True))


def selection_bias(forecasts: Sequence[ArmForecast]) -> float:
    """The factor by which the best prediction is too high for being the best of this many."""
    known = [it.draws for it in forecasts if it.draws is not None]
    return float(np.exp(luck_of_best(np.stack(known)))) if len(known) > 1 else 1.0


class _Evidence(Evidence):
    """The record of a screen; what steps cost may be on that of another run."""

    def __init__(self, work: Work, store: RunReader, goal: Goal, priced: RunReader) -> None:
        super().__init__(work, store)
        self._goal = goal
        self._probes = {probe_key(it.baseline_id, it.draft, it.engine): it for it in priced.probes()}

    def tokens(self, baseline_id: str) -> float | None:
        """None for whole answers: what a first step takes is part of reading the prompt there."""
        return super().tokens(baseline_id) if self._goal == "throughput" else None


class _BaselineFacts:
    """What the screen saw of baselines: which kinds there are, and how long their prompts take."""

    def __init__(self, whole: Prepared, store: RunReader, goal: Goal, priced: RunReader) -> None:
        self.kinds: dict[str, frozenset[str]] = {}
        """Kind -> prompts, where there are several kinds; none under load: a mixture of them shares the machine."""
        loaded = any(arm.load for arm in whole.work.arms.values())
        prompts = {prompt.id: prompt.kind for mine in whole.work.prompts.values() for prompt in mine}
        self._cells = LoadTable(cells_of(store)) if loaded else None
        if len(set(prompts.values())) > 1 and not loaded:
            for kind in dict.fromkeys(prompts.values()):
                self.kinds[kind] = frozenset(name for name, of in prompts.items() if of == kind)
        self._prompt_shares: dict[tuple[str, str], tuple[float, float]] = {}
        self._times: dict[str, dict[str, tuple[float, int, int]]] = {}
        """Arm -> prompt -> (milliseconds per token, tokens after the first, steps) as it was measured."""
        for request in store.requests():
            if request.reply is None or request.reply.timings.predicted_n < 2:
                continue
            timings = request.reply.timings
            count = timings.predicted_n - 1
            ms = timings.predicted_ms / count if goal == "throughput" else timings.prompt_ms + timings.predicted_ms
            own = self._times.setdefault(request.arm_id, {})
            own[request.prompt_id] = (ms, count, count - (timings.draft_n_accepted or 0))
        if goal == "latency":
            for request in store.requests():
                if request.reply is not None and whole.work.arms[request.arm_id].role == "baseline":
                    timings = request.reply.timings
                    self._prompt_shares[request.arm_id, request.prompt_id] = (timings.prompt_ms, timings.predicted_ms)
        self._measured = {session.arm_id for session in store.sessions()}
        self._drafting: dict[tuple[str, str | None], float] = {
            (it.baseline_id, it.draft): fmean((one.drafting_ms or 0.0) / one.plain_ms for one in it.rounds)
            for it in priced.probes()
            if it.rounds and it.draft is not None
        }

    def is_sample(self, arm: Arm, acceptance: Acceptance) -> bool:
        """Whether it was counted of another arm on the same prompts, and is only a sample of what this one does."""
        return isinstance(acceptance, Counted) and not acceptance.replayed and arm.id not in self._measured

    def gain(self, arm: Arm) -> ArmForecast | None:
        """What an arm was seen to gain over its baseline in the screen's block; None where it was not measured."""
        if self._cells is not None:
            return self._gain_under_load(arm, self._cells)
        plain, own = self._times.get(arm.baseline_id or "", {}), self._times.get(arm.id, {})
        both = [name for name in own if name in plain]
        if not both:
            return None
        rng = np.random.default_rng([SEED, crc32(arm.id.encode())])
        apart = np.exp(ONE_SESSION * rng.standard_normal(DRAWS))
        apart[0] = 1.0

        def draws_on(names: Sequence[str]) -> Floats:
            """Of prompts drawn with replacement."""
            chosen = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=DRAWS).astype(np.float64)
            chosen[0] = 1.0
            before, now = (np.array([it[name][0] for name in names]) for it in (plain, own))
            return apart * (chosen @ before) / (chosen @ now)

        draws = draws_on(both)
        by_kind = {
            kind: of_draws(draws_on(mine), "x", level=LEVEL)
            for kind, prompts in self.kinds.items()
            if (mine := [name for name in both if name in prompts])
        }
        basis = Message("screen.measured_on", prompts=len(both))
        tau = sum(own[name][1] for name in both) / max(1, sum(own[name][2] for name in both))
        return ArmForecast(arm, of_draws(draws, "x", level=LEVEL), by_kind, basis, draws, tau)

    def _gain_under_load(self, arm: Arm, cells: LoadTable) -> ArmForecast | None:
        """The same by the cells of both."""
        logs = cells.speedups(arm.id, arm.baseline_id or "", arm.load) if arm.load is not None else {}
        if not logs:
            return None
        rng = np.random.default_rng([SEED, crc32(arm.id.encode())])
        apart = ONE_SESSION * rng.standard_normal(DRAWS)
        apart[0] = 0.0
        draws = np.exp(fmean(logs.values()) + apart)
        basis = Message("screen.measured")
        return ArmForecast(arm, of_draws(draws, "x", level=LEVEL), {}, basis, draws, None)

    def whole_time(self, arm: Arm, draws: Floats, prompts: frozenset[str] | None) -> Floats:
        """The speedup of whole answers, where that is the goal; a draft model reads the prompt as well."""
        times = [
            ms
            for (baseline_id, prompt_id), ms in self._prompt_shares.items()
            if baseline_id == arm.baseline_id and (prompts is None or prompt_id in prompts)
        ]
        if not times:
            return draws
        prompt_ms, decode_ms = fmean(it[0] for it in times), fmean(it[1] for it in times)
        reading = 1 + self._drafting.get((arm.baseline_id or "", arm.draft), 0.0)
        return (prompt_ms + decode_ms) / (prompt_ms * reading + decode_ms / draws)


def _forecast(arm: Arm, forecaster: Forecaster, seen: _BaselineFacts) -> ArmForecast:
    forecaster.prepare(arm)
    by_kind: dict[str, Estimate] = {}
    try:
        known = forecaster.sources(arm)
        if isinstance(known, Message):
            return seen.gain(arm) or ArmForecast(arm, None, {}, known, None)
        draw = _Draw(arm, known, sample=seen.is_sample(arm, known.acceptance))
        draws, tau = draw.speedups(known.acceptance)
        for kind, prompts in seen.kinds.items():
            if (own := _on(prompts, known.acceptance)) is not None:
                by_kind[kind] = of_draws(seen.whole_time(arm, draw.speedups(own)[0], prompts), "x", level=LEVEL)
    except SpecmeterError as error:
        return ArmForecast(arm, None, {}, Message("text.outside", text=error.message), None)
    if arm.load is not None:
        share = forecaster.prompts_share(arm)
        draws = 1 / (share + (1 - share) / draws)
    else:
        draws = seen.whole_time(arm, draws, None)
    basis = Message("screen.predicted", acceptance=known.acceptance_basis, costs=known.cost_basis)
    accepted = _accepted(known.acceptance)
    return ArmForecast(arm, of_draws(draws, "x", level=LEVEL), by_kind, basis, draws, tau, acceptance=accepted)


def _accepted(acceptance: Acceptance) -> float | None:
    if not isinstance(acceptance, Counted) or not acceptance.drafted:
        return None
    steps = (it for mine in acceptance.prompts.values() for it in mine.items())
    return sum(accepted * n for (_, _, accepted), n in steps) / acceptance.drafted


def _on(prompts: frozenset[str], acceptance: Acceptance) -> Counted | None:
    """What was counted on some of the prompts; None where nothing was."""
    if not isinstance(acceptance, Counted):
        return None
    own = {name: steps for name, steps in acceptance.prompts.items() if name in prompts}
    return replace(acceptance, prompts=own) if own else None


class _Draw:
    """An arm's costs, drawn jointly with those of all arms of the same baseline and drafter."""

    def __init__(self, arm: Arm, known: Sources, *, sample: bool) -> None:
        shared = np.random.default_rng([SEED, crc32(f"{arm.baseline_id} {arm.draft}".encode())])
        self._gamma = arm.gamma or 1
        self._table = draw_costs(known.costs, self._gamma, by_model=arm.draft is not None, rng=shared)
        self._own = np.random.default_rng([SEED, crc32(arm.id.encode())])
        self._apart = np.exp(ARM * self._own.standard_normal(DRAWS))
        self._apart[0] = 1.0
        self._sample = sample

    def speedups(self, acceptance: Acceptance) -> tuple[Floats, float]:
        """(draws, tokens per step). Raises `UsageError` where no step is known."""
        if self._sample and isinstance(acceptance, Counted):
            draws, tau = self._over_prompts(acceptance)
        else:
            draws, tau = draw_speedup(acceptance, self._table, self._gamma, rng=self._own)
        return draws * self._apart, tau

    def _over_prompts(self, counted: Counted) -> tuple[Floats, float]:
        """Of texts that are as long at every draft length, prompt by prompt: those that draft well have fewer steps the
        longer drafts are, so steps of all prompts together say nothing about another length. Prompts are drawn with
        replacement."""
        each = [
            draw_speedup(replace(counted, prompts={name: steps}), self._table, self._gamma, rng=self._own)
            for name, steps in counted.prompts.items()
        ]
        tokens = np.array(
            [sum((accepted + 1) * n for (_, _, accepted), n in steps.items()) for steps in counted.prompts.values()],
            dtype=np.float64,
        )
        chosen = self._own.multinomial(len(each), np.full(len(each), 1 / len(each)), size=DRAWS).astype(np.float64)
        chosen[0] = 1.0
        emitted = chosen * tokens
        draws = emitted.sum(axis=1) / (emitted / np.stack([speedups for speedups, _ in each], axis=1)).sum(axis=1)
        return draws, float(tokens.sum() / (tokens / np.array([tau for _, tau in each])).sum())


# --- choosing --------------------------------------------------------------------------------------------------------


def simplicity(arm: Arm) -> tuple[int, int, int]:
    """Smaller is simpler: nothing drafted, then lookups, then draft models; few settings, then short drafts."""
    drafter = 0 if not arm.speculates else 1 if arm.draft is None else 2
    settings = sum(it is not None for it in (arm.p_min, arm.gamma_min, arm.policy)) + len(arm.methods)
    return drafter, settings, arm.gamma or 0


def choose(forecasts: Sequence[ArmForecast], *, most: int = MAX_RACED_ARMS) -> Shortlist:
    """Which arms are raced, at most `most`: those that stand for everything that might win.

    The leader, the best of each drafter (lookups are one), the best of each kind of text, then the others in the order
    of what is expected.
    """
    outcomes: list[ArmOutcome] = []
    alive: list[ArmForecast] = []
    leader = _leader(forecasts)
    for it in forecasts:
        if it.predicted is None or it.draws is None or leader is None or leader.draws is None:
            continue
        ratio = of_draws(it.draws / leader.draws, "x", level=LEVEL)
        if it.predicted.high is not None and it.predicted.high <= 1:
            outcomes.append(outcome_of(it, "cannot-gain"))
        elif it is not leader and ratio.high is not None and ratio.high < 1:
            outcomes.append(outcome_of(it, "cannot-win", than=leader, ratio=ratio))
        else:
            alive.append(it)
    kept: list[ArmForecast] = []
    outcomes += [outcome_of(it, "cannot-gain") for it in forecasts if it.hopeless]
    unknown = [it for it in forecasts if it.predicted is None and not it.hopeless]
    for it in (*_in_turn(alive, leader), *unknown):
        like = next((other for other in kept if _is_tie(it, other)), None)
        if like is not None and like.draws is not None and it.draws is not None:
            ratio = of_draws(it.draws / like.draws, "x", level=LEVEL)
            outcomes.append(outcome_of(it, "as-good", than=like, ratio=ratio))
        elif len(kept) < most:
            kept.append(it)
        else:
            outcomes.append(outcome_of(it, "no-room"))
    outcomes = _with_kinds(forecasts, kept, outcomes, most)
    return Shortlist(tuple(it.arm.id for it in kept), tuple(outcomes))


def _leader(forecasts: Sequence[ArmForecast]) -> ArmForecast | None:
    """The best; of its neighbours the simplest."""
    best = max(forecasts, key=lambda it: it.point, default=None)
    if best is None or best.predicted is None:
        return None
    return min((it for it in forecasts if _is_tie(it, best)), key=lambda it: simplicity(it.arm))


def _in_turn(alive: Sequence[ArmForecast], leader: ArmForecast | None) -> Iterator[ArmForecast]:
    """The leader, the best of each drafter, and all others, each by what is expected."""
    if leader is None or all(it is not leader for it in alive):
        return
    first: dict[str | None, ArmForecast] = {_drafter(leader.arm): leader}
    for it in alive:
        first.setdefault(_drafter(it.arm), it)
    yield from first.values()
    yield from (it for it in alive if all(it is not other for other in first.values()))


def _drafter(arm: Arm) -> str | None:
    """A draft model, or the method by which the target drafts for itself; None: lookups."""
    own = next((method for method in arm.methods if not method.startswith("ngram")), None)
    return arm.draft or own


def _is_tie(one: ArmForecast, other: ArmForecast) -> bool:
    """Whether two arms of one drafter are predicted to be as good as one another."""
    drafters = [(it.arm.methods, it.arm.draft, it.arm.baseline_id, it.arm.engine.options) for it in (one, other)]
    return (
        drafters[0] == drafters[1]
        and one.point > 0
        and other.point > 0
        and abs(one.point / other.point - 1) <= TIE_MARGIN
    )


def _with_kinds(
    forecasts: Sequence[ArmForecast], kept: list[ArmForecast], outcomes: list[ArmOutcome], most: int
) -> list[ArmOutcome]:
    """Keep the best arm of each kind of text as well, if it gains there and there is room; the outcomes that stay."""
    for kind in dict.fromkeys(kind for it in forecasts for kind in it.by_kind):
        best = max((it for it in forecasts if kind in it.by_kind), key=lambda it: it.by_kind[kind].point)
        reached = max((it.by_kind[kind].point for it in kept if kind in it.by_kind), default=1.0)
        if len(kept) < most and best.by_kind[kind].point > (1 + KINDS) * max(1.0, reached):
            kept.append(best)
    ids = {it.arm.id for it in kept}
    return [outcome for outcome in outcomes if outcome.arm_id not in ids]


def outcome_of(
    it: ArmForecast, code: str, *, than: ArmForecast | None = None, ratio: Estimate | None = None
) -> ArmOutcome:
    """What became of an arm in the screen; `ratio` is its speed over that of `than`."""
    return ArmOutcome.model_validate(
        {
            "arm_id": it.arm.id,
            "predicted": it.predicted,
            "by_kind": dict(it.by_kind),
            "basis": it.basis,
            "acceptance": it.acceptance,
            "code": code,
            "stage": "screen",
            "than": None if than is None else than.arm.id,
            "ratio": ratio,
        }
    )
