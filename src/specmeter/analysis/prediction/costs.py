"""What steps cost, in plain tokens (the time of decoding one token without speculation), from one of three sources.

    plain token           T(1) + o
    step of d drafts      D(d) + T(d + 1) + o [+ save + P(rejected) (T(a + 2) + restore), and a token more]

    T(n)    target forward over n tokens                    o    the rest: choosing tokens, cutting caches
    D(d)    making d drafts. A draft model makes them one by one, d t(1), and then takes in what the target verified,
            one forward over the d + 1 tokens: t(d + 1). N-gram methods look them up: nothing that counts
    save, restore    of the state of a recurrent target, which cannot forget rejected tokens and replays the a accepted;
                     where it keeps a state for each draft token (`models.memory.state_slots`), writing these instead

`probed`    curves that were measured on this machine, lines between their points
`stepped`   whole steps that were measured in the run at hand, over plain tokens of the same minutes (`probe.steps`)
`by_bytes`  what forwards read and compute (`theory.roofline`); what bytes cannot say is drawn from `Unknowns`

`MODEL` is the spread of what is left out, drawn once per prediction. docs/explanation/prediction.md has the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import TYPE_CHECKING

import numpy as np

from specmeter.analysis.prediction import LONGEST
from specmeter.errors import UsageError
from specmeter.messages import Message

if TYPE_CHECKING:
    from numpy.random import Generator

    from specmeter.probe.record import Probe
    from specmeter.record import Estimate, ModelHeader, ModelIdentity, StepProbe, StepRound
    from specmeter.theory.arguments import Floats
    from specmeter.theory.catalogue.devices import DeviceEntry
    from specmeter.theory.curves import CostCurve
    from specmeter.theory.roofline import Footprint

MODEL = 0.04
"""Standard deviation of the logarithm of a step's cost that no input explains; see docs/explanation/prediction.md."""
STEPS = 0.02
"""Standard deviation of the logarithm by which one session differs from another of the same kind, all its steps alike:
memory lies otherwise, the machine drifts. Seen in sessions of an MoE with gamma 1, 4 and 16, plain and drafting."""
DISTURBED = 0.1
"""The same of rounds beside other programs, where there are no others."""
STEP = 0.01
"""The same of one length of draft in one session, beside that."""
ROUGH = 0.03
"""The same of how costs of three lengths in a row depart from a line, where kernels take one row after the other. Those
that take rows in pairs make every second length dear: rounds agree in that, and not in noise."""
CALM = 2 * STEP
"""Costs with less noise than this are taken as they are."""
_TWICE = 2.0
"""Neighbours that lie this many times as far from a line as noise explains are not noise."""
_SURE = 5.0
"""Of a jump beside noise: four standard deviations of its estimate."""
_MEDIAN = 0.6745
"""Of the size of a normal error, in standard deviations."""
_FEW = 5
"""Of fewer lengths it cannot be told what is noise."""
NEW_TEXT = (1.0, 2.0)
"""What reading new text may add to the cost of a step beyond a plain token: never less, and more is noise. Seen on an
MoE of 100 MB at gamma 2: 1.2 to 1.4."""
LATER = 0.018
"""The same of a measured speedup, over some blocks of both its arms: two means of about three sessions each."""
UNKNOWN = 0.05
"""The same of a measured time that came without an interval."""
PLAIN = 0.01
"""The same of a step without a draft, which is what the baseline does."""
_NORMAL = 1.96
"""Half width of a 95 % interval in standard deviations."""


@dataclass(frozen=True)
class DrawnCosts:
    """Costs drawn for steps of 0 .. longest drafts, in plain tokens; row 0 is the point."""

    verify: Floats
    """T(d + 1). Shape (draws, longest + 1)."""
    draft: Floats
    """D(d), 0 for no draft. Shape (draws, longest + 1)."""
    rest: Floats
    """o of a step. Shape (draws,)."""
    restore: Floats
    """What a rejection costs beside the replay; 0 where the target forgets at no cost. Shape (draws,)."""
    recurrent: bool
    """Rejections are replayed."""
    measured: int
    """Drafts up to this length need no cost beyond what was measured (or is computed)."""
    first: float = 0.0
    """What the first step of a request takes beyond others of its length, for each token of the request."""
    slot_bytes: float = 0.0
    """Memory of the recurrent state that each draft token keeps for rejections; 0 where none does."""

    def verify_at(self, drafts: Floats) -> Floats:
        """T(d + 1) for one number of drafts per draw, not necessarily whole. Shape (draws,)."""
        low = np.minimum(np.floor(drafts).astype(np.int64), self.verify.shape[1] - 1)
        high = np.minimum(low + 1, self.verify.shape[1] - 1)
        rows = np.arange(len(drafts))
        share = np.clip(drafts - low, 0.0, 1.0)
        return self.verify[rows, low] * (1 - share) + self.verify[rows, high] * share


@dataclass(frozen=True)
class Costs:
    """A source of costs."""

    basis: Message
    """Where it is from."""
    has_draft: bool
    """Whether it says what drafting with a model costs."""
    draw: Callable[[int, int, Generator, bool], DrawnCosts]
    """(longest, draws, rng, whether a draft model drafts) -> costs."""


# --- probed ----------------------------------------------------------------------------------------------------------


def probed(probe: Probe, basis: Message) -> Costs:
    """Costs from a probe, which `basis` names. Raises `UsageError` for a curve without T(1), when drawn."""

    def draw(longest: int, draws: int, rng: Generator, by_model: bool) -> DrawnCosts:
        n = np.arange(1, longest + 2, dtype=np.float64)
        onward = _onward(probe) if n[-1] > probe.target_ms.tokens[-1] else None
        target = _drawn_curve(probe.target_ms, n, draws, rng, onward)
        rest = np.zeros(draws) if probe.overhead_ms is None else _drawn(probe.overhead_ms, draws, rng)
        draft = np.zeros((draws, longest + 1))
        if by_model and probe.draft_ms is not None:
            draft = _drafting(_drawn_curve(probe.draft_ms, n, draws, rng))
        plain = (target[:, 0] + rest)[:, np.newaxis]
        # A step without a draft is a plain token: what is left out of the model is left out of both.
        slower = _spread(MODEL, draws, rng)[:, np.newaxis] * np.ones(longest + 1)
        slower[:, 0] = _spread(PLAIN, draws, rng)
        recurrent = probe.target.header is not None and probe.target.header.recurrent
        return DrawnCosts(
            verify=slower * target / plain,
            draft=slower * draft / plain,
            rest=rest / plain[:, 0],
            restore=_range(0.0, 1.0, draws, rng) if recurrent else np.zeros(draws),
            recurrent=recurrent,
            measured=int(probe.target_ms.tokens[-1]) - 1,
        )

    return Costs(basis, probe.draft_ms is not None, draw)


def slowed_drafts(costs: Costs, least: float, most: float) -> Costs:
    """The same costs where making drafts takes `least` to `most` times as long."""

    def draw(longest: int, draws: int, rng: Generator, by_model: bool) -> DrawnCosts:
        table = costs.draw(longest, draws, rng, by_model)
        return replace(table, draft=table.draft * _log_range(least, most, draws, rng)[:, np.newaxis])

    return replace(costs, draw=draw)


def _onward(probe: Probe) -> Callable[[Floats], Floats] | None:
    """T(n) of an MoE target beyond its last point: floor + slope n + expert U(n), with the unions that the probe
    measured; None for dense targets, and where there is too little to fit."""
    from specmeter.probe.reading import union_model
    from specmeter.theory.curves import PARAMETERS, fit_cost

    union = probe.union
    if union is None or union.used >= union.experts or len(union.points) < 2:
        return None
    if len(probe.target_ms.points) <= len(PARAMETERS["experts"]):
        return None
    return fit_cost(probe.target_ms, "experts", union_model(union)).ms_at


def _drawn_curve(
    curve: CostCurve, n: Floats, draws: int, rng: Generator, onward: Callable[[Floats], Floats] | None = None
) -> Floats:
    """T(n), one curve per draw, beyond the last point by `onward`, else on a line. Shape (draws, len(n))."""
    curve.verification(0)  # refuses a curve that does not begin at n = 1
    known = curve.tokens
    points = np.stack([_drawn(point.ms, draws, rng) for point in curve.points], axis=1)
    if len(known) == 1:
        return np.repeat(points, len(n), axis=1)
    place = np.clip(np.searchsorted(known, n, side="right") - 1, 0, len(known) - 2)
    share = (n - known[place]) / (known[place + 1] - known[place])
    times = points[:, place] * (1 - share) + points[:, place + 1] * share
    beyond = n > known[-1]
    if onward is not None and beyond.any():
        times[:, beyond] = onward(n[beyond]) * (points[:, -1:] / points[0, -1])
    times[:, beyond] = np.maximum(times[:, beyond], points[:, -1:])
    times[:, beyond] = times[0, beyond] * (times[:, beyond] / times[0, beyond]) ** 2
    return times


def _drawn(estimate: Estimate, draws: int, rng: Generator) -> Floats:
    """Values of a time, log-normal by its interval, or by `UNKNOWN` where it has none."""
    if estimate.low is None or estimate.high is None or estimate.low <= 0 or estimate.point <= 0:
        return estimate.point * _spread(UNKNOWN, draws, rng)
    spread = math.log(estimate.high / estimate.low) / 2 / _NORMAL
    return estimate.point * _spread(spread, draws, rng)


def _spread(deviation: float, draws: int, rng: Generator) -> Floats:
    """Factors around 1; the first is 1."""
    factors = np.exp(deviation * rng.standard_normal(draws))
    factors[0] = 1.0
    return factors


def _range(low: float, high: float, draws: int, rng: Generator) -> Floats:
    """Values from a range, all equally likely; the first is its middle."""
    values = low + (high - low) * rng.random(draws)
    values[0] = (low + high) / 2
    return values


def _log_range(low: float, high: float, draws: int, rng: Generator) -> Floats:
    """Values from a range, all magnitudes equally likely; the first is its geometric middle."""
    return np.exp(_range(math.log(low), math.log(high), draws, rng))


def _drafting(forwards: Floats) -> Floats:
    """D(d) for d = 0 .. from t(1) .. of the draft model: d t(1) + t(d + 1), nothing for d = 0."""
    d = np.arange(len(forwards[0]), dtype=np.float64)
    return np.where(d > 0, d * forwards[:, :1] + forwards, 0.0)


# --- stepped ---------------------------------------------------------------------------------------------------------


def stepped(
    probe: StepProbe,
    plain_ms: float | None = None,
    *,
    tokens: float | None = None,
    stops_early: bool = False,
    recurrent: bool = False,
) -> Costs:
    """Costs from steps that were measured in the run itself.

    `plain_ms` is a plain token of the baseline, measured in the same minutes; it counts like one more plain session.
    `tokens` of a request after its first one share what its first step takes beyond others; every request that is
    decoded at the same time waits for it.
    `stops_early`: drafts end where the draft model doubts, so that a draft shorter than the longest cost a token more,
    and one is seldom as long as the one before it.
    A `recurrent` target restores and replays after a rejection; the probe's steps without a draft are such replays, of
    two tokens. Where other programs disturbed every round, these say more than none, with `DISTURBED` beside. Raises
    `UsageError` for a probe without a round.
    """
    disturbed = 0.0 if probe.rounds else DISTURBED
    probe = with_disturbed(probe)
    if disturbed:  # only what was measured side by side: a baseline of other minutes was disturbed otherwise
        plain_ms = None
    if not probe.rounds:
        raise UsageError(f"the probe failed: {probe.failure}", fix="run `specmeter probe` again")
    steady = not stops_early
    known, points = _step_points(probe, plain_ms, steady=steady)
    # Lengths that were timed one by one lie apart, and kernels change between them: bends are no noise.
    noise = STEP if steady and any(it.steady_ms for it in probe.rounds) else _noise(probe.rounds)
    drafting = [it.drafting_ms / it.plain_ms for it in probe.rounds if it.drafting_ms is not None]
    per_token = median(drafting) if drafting and probe.draft is not None else 0.0
    replays = [it.step_ms[0] / it.plain_ms for it in probe.rounds if 0 in it.step_ms]
    first = [it.first_ms / it.plain_ms for it in probe.rounds if it.first_ms is not None and probe.draft is not None]

    def draw(longest: int, draws: int, rng: Generator, by_model: bool) -> DrawnCosts:
        rounds = len(probe.rounds)
        lengths = known
        if noise > STEP:
            lengths, each = _smooth(known, points, noise / math.sqrt(rounds), draws, rng)
        else:
            each = np.exp(_normal(STEP / math.sqrt(rounds), draws, len(known), rng)) * points
        # What disturbs some steps disturbs their neighbours in time as well.
        session = math.hypot(STEPS, math.sqrt(max(0.0, noise**2 - STEP**2)) / 2)
        level = math.hypot(disturbed, session * math.sqrt(1 / rounds + 1 / (rounds + (plain_ms is not None))))
        d = np.arange(longest + 1, dtype=np.float64)
        whole = _along(np.concatenate([[0.0], lengths]), np.concatenate([np.ones((draws, 1)), each], axis=1), d)
        draft = np.where(d > 0, d * per_token if by_model else 0.0, 0.0) * np.ones((draws, 1))
        if stops_early:
            draft[:, :longest] += per_token
            whole[:, :longest] += per_token
        slower = _spread(level, draws, rng)[:, np.newaxis] * np.ones(longest + 1)
        slower[:, 0] = 1.0  # a step without a draft is what the baseline does
        slower *= _spread(LATER, draws, rng)[:, np.newaxis]
        verify = slower * (whole - draft)
        restore = np.zeros(draws)
        if recurrent:
            # What a replay takes beyond its forward; the forward over two tokens is that of a step with one draft.
            known_restore = median(replays) * slower[:, 1] - verify[:, 1] if replays else None
            restore = _range(0.0, 1.0, draws, rng) if known_restore is None else known_restore
        return DrawnCosts(
            verify=verify,
            draft=slower * draft,
            rest=np.zeros(draws),
            restore=restore,
            recurrent=recurrent,
            measured=int(known[-1]),
            first=probe.clients * median(first) / tokens if first and tokens else 0.0,
        )

    basis = Message("costs.steps", rounds=len(probe.rounds), prompts=len(probe.prompts))
    return Costs(Message("costs.disturbed", costs=basis, why=probe.failure) if disturbed else basis, True, draw)


def with_disturbed(probe: StepProbe) -> StepProbe:
    """The same; where other programs disturbed every round, these count."""
    return probe if probe.rounds else probe.model_copy(update={"rounds": probe.left_out})


def verification(probe: StepProbe | None, *, steady: bool = True) -> Callable[[float], float | None]:
    """What verifying this many tokens cost, in plain tokens, by steps that were measured in the run itself, all of one
    length (`steady`) or not: on straight lines between measured lengths. None beyond the longest, and where drafting
    was not measured apart from it."""
    probe = None if probe is None else with_disturbed(probe)
    if probe is None or not probe.rounds:
        return lambda _: None
    known, points = _step_points(probe, None, steady=steady)
    drafting = [it.drafting_ms / it.plain_ms for it in probe.rounds if it.drafting_ms is not None]
    if probe.draft is not None and not drafting:
        return lambda _: None
    tokens = np.array([1.0, *(known + 1)])
    costs = np.array([1.0, *(points - known * (median(drafting) if probe.draft is not None else 0.0))])
    return lambda n: float(np.interp(n, tokens, costs)) if 1 <= n <= tokens[-1] else None


def _step_points(probe: StepProbe, plain_ms: float | None, *, steady: bool) -> tuple[Floats, Floats]:
    """(tokens drafted, cost of such a step in plain tokens), ascending; `steady`: of steps that follow one as long,
    where that was distinguished."""
    timed = [it for it in probe.rounds if steady and it.steady_ms] or probe.rounds
    plain = [math.log(it.plain_ms) for it in timed]
    level = fmean(plain)
    anchor = fmean([*plain, math.log(plain_ms)]) if plain_ms is not None else level
    ratios: dict[int, list[float]] = {}
    for it, base in zip(timed, plain, strict=True):
        for drafted, ms in ((steady and it.steady_ms) or it.step_ms).items():
            if drafted > 0:
                ratios.setdefault(drafted, []).append(math.log(ms) - base)
    known = sorted(ratios)
    points = np.array([math.exp(median(ratios[drafted]) + level - anchor) for drafted in known])
    return np.array(known, dtype=np.float64), 1 + (points - 1) * _over_new_text(probe)


def _over_new_text(probe: StepProbe) -> float:
    """What steps over new text cost beyond a plain token, over those that were thrown away and read the text again: 1
    where that was not measured, between `NEW_TEXT` else. By the longest draft of both, the median of the rounds."""
    found: list[float] = []
    for it in probe.rounds:
        longest = max(it.step_ms.keys() & it.accepted_ms.keys(), default=0)
        if longest > 0 and it.step_ms[longest] > it.plain_ms:
            found.append((it.accepted_ms[longest] - it.plain_ms) / (it.step_ms[longest] - it.plain_ms))
    least, most = NEW_TEXT
    return min(most, max(least, median(found))) if found else 1.0


def _noise(rounds: Sequence[StepRound]) -> float:
    """Standard deviation of the logarithm of one length's cost in one round: by what rounds disagree on, beside a level
    of each; of a single round by how far lengths lie from the line between their neighbours, or those next but one.

    Medians leave out the few places that something disturbed. `STEP` where there is hardly any noise, or too little to
    tell it by.
    """
    lengths = sorted(set[int].intersection(*(set(it.step_ms) for it in rounds)) - {0})
    if len(lengths) < _FEW:
        return STEP
    logs = np.log([[it.step_ms[length] / it.plain_ms for length in lengths] for it in rounds])
    if len(rounds) > 1:
        apart = logs - np.median(logs, axis=0)
        apart -= np.median(apart, axis=1, keepdims=True)
        found = float(np.median(np.abs(apart))) * math.sqrt(len(rounds) / (len(rounds) - 1))
        found /= _MEDIAN
    else:
        next_one, next_but_one = (_departure(np.array(lengths), logs[0], reach) for reach in (1, 2))
        found = next_but_one if next_one > _TWICE * next_but_one else next_one
    return STEP if found <= CALM else found


def _departure(lengths: Floats, logs: Floats, reach: int) -> float:
    """The median departure from the line between neighbours so far away, as that of independent noise in one point."""
    before, here, after = lengths[: -2 * reach], lengths[reach:-reach], lengths[2 * reach :]
    share = (here - before) / (after - before)
    apart = logs[reach:-reach] - (logs[: -2 * reach] * (1 - share) + logs[2 * reach :] * share)
    return float(np.median(np.abs(apart) / np.sqrt(1 + (1 - share) ** 2 + share**2))) / _MEDIAN


def _smooth(known: Floats, points: Floats, noise: float, draws: int, rng: Generator) -> tuple[Floats, Floats]:
    """(every length from the first to the last known one, costs drawn for each); the first row is the mean.

    Logarithms of costs are taken for a curve whose second differences are about `ROUGH`, or what they are beyond the
    noise, seen through `noise`: a Gaussian with precision seen / noise^2 + D'D / rough^2 (Whittaker 1923; Eilers 2003,
    doi:10.1021/ac034173t).
    """
    lengths: Floats = np.arange(int(known[0]), int(known[-1]) + 1).astype(np.float64)
    place = (known - known[0]).astype(np.int64)
    seen = np.zeros(len(lengths))
    seen[place] = 1 / noise**2
    logs = np.zeros(len(lengths))
    logs[place] = np.log(points)
    apart = _departure(known, logs[place], 1)
    rough = math.sqrt(6 * (apart**2 - noise**2)) if apart > _TWICE * noise else 0.0
    bends = np.diff(np.eye(len(lengths)), n=2, axis=0) / max(ROUGH, rough)
    for after in _jumps(known, logs[place], max(noise, apart)):
        bends[max(0, place[after - 1] - 1) : place[after]] *= ROUGH  # no line leads across
    covariance = np.linalg.inv(np.diag(seen) + bends.T @ bends)
    mean = covariance @ (seen * logs)
    spread = np.linalg.cholesky(covariance) @ _normal(1.0, draws, len(lengths), rng).T
    return lengths, np.exp(mean + spread.T)


def _jumps(lengths: Floats, logs: Floats, noise: float) -> list[int]:
    """Places at which another kernel takes over: logarithms of the two costs from there on lie elsewhere than the two
    before, by more than `_SURE` times the noise beyond the slopes on both sides."""
    at = range(1, len(logs))
    rise = [float(logs[i : i + 2].mean() - logs[max(0, i - 2) : i].mean()) for i in at]
    run = [float(lengths[i : i + 2].mean() - lengths[max(0, i - 2) : i].mean()) for i in at]
    excess: list[float] = []
    for i in range(len(rise)):
        beside = [rise[j] / run[j] for j in (i - 2, i + 2) if 0 <= j < len(rise)]
        excess.append(abs(rise[i] - run[i] * fmean(beside)) if beside else 0.0)
    return [i + 1 for i, it in enumerate(excess) if it > _SURE * noise and it == max(excess[max(0, i - 1) : i + 2])]


def _normal(deviation: float, draws: int, columns: int, rng: Generator) -> Floats:
    """Values around 0; the first row is 0."""
    values = deviation * rng.standard_normal((draws, columns))
    values[0] = 0.0
    return values


def _along(known: Floats, values: Floats, wanted: Floats) -> Floats:
    """On straight lines between known places; beyond the last one it continues with the slope of the second half."""
    place = np.clip(np.searchsorted(known, wanted, side="right") - 1, 0, len(known) - 2)
    share = np.minimum((wanted - known[place]) / (known[place + 1] - known[place]), 1.0)
    found = values[:, place] * (1 - share) + values[:, place + 1] * share
    middle = len(known) // 2 if len(known) > 2 else 0
    slope = (values[:, -1] - values[:, middle]) / (known[-1] - known[middle])
    return found + np.maximum(0.0, wanted - known[-1]) * np.maximum(slope, 0.0)[:, np.newaxis]


# --- by bytes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unknowns:
    """Ranges of what bytes do not say; each (low, high), drawn for every prediction again."""

    bandwidth: tuple[float, float] = (0.5, 0.9)
    """Share of the peak bandwidth that decoding reaches."""
    arithmetic: tuple[float, float] = (0.2, 0.6)
    """Share of the peak arithmetic that small batches reach."""
    ridge: tuple[float, float] = (40.0, 250.0)
    """Operations per byte at which arithmetic begins to limit, where the device's peak is not on record."""
    overhead_ms: tuple[float, float] = (0.05, 0.8)
    """Per forward: launching, waiting."""
    batch: tuple[float, float] = (0.0, 0.25)
    """How much longer a forward of two rows takes than one row, whatever is read: other kernels."""
    row: tuple[float, float] = (0.0, 0.25)
    """The same for each row beyond the first, in forwards of one row: with its part of a DFlash draft 0.248 on an RTX
    3090, dense 27B, 4 bit (thc1006, qwen3.8-speculative-decoding-rtx3090, docs/COST_MODEL.md, 147deedf)."""
    draft: tuple[float, float] = (1.0, 3.0)
    """How much longer a small model's forward takes than its bytes say."""
    head: tuple[float, float] = (1.0, 1.5)
    """The same of a head of one layer. There a token of the model's MTP layer takes at least 0.047 forwards of one row,
    and 0.06 of their bytes."""
    routed_head: tuple[float, float] = (0.2, 1.5)
    """The same of MoE targets: at 115.7 tok/s, forwards of Qwen3.6-35B-A3B reach 22 % of an RTX 3090's bandwidth."""
    overlap: tuple[float, float] = (0.5, 1.0)
    """Part of an independent token that each further token of a text is, in the experts that it chooses."""
    copying: tuple[float, float] = (1.5e9, 10e9)
    """Bytes per second at which a recurrent state is saved and restored. One server was timed: 2.7 to 3.0e9 on an RTX
    3090 (`specmeter_studies.library.rtx3090_aug`)."""


PROCESSOR = Unknowns(ridge=(6.0, 60.0), overhead_ms=(0.02, 0.3), batch=(0.0, 0.15), row=(0.0, 1.0))
"""Of main memory: few cores compute far less for each byte that they read, and every row takes its time: up to that of
a forward of its own, where the cores and not the memory limit decoding (small quantized models on two cores)."""


def footprint_of(model: ModelIdentity, header: ModelHeader) -> Footprint:
    """What forwards of a model read, by the header of its file.

    An expert's bytes are those that one token does not read, divided by the experts that it does not use; embedding
    tables count among them, so experts come out a little large.
    """
    from specmeter.theory.roofline import Footprint

    routed = header.experts > header.experts_used > 0
    expert = 0.0
    if routed:
        expert = max(0.0, model.size_bytes - header.bytes_per_token) / (header.experts - header.experts_used)
    always = header.bytes_per_token - expert * header.experts_used
    if not routed or always <= 0:
        return Footprint(always_bytes=header.bytes_per_token, flops_per_token=2.0 * header.parameters)
    active = header.parameters * header.bytes_per_token / model.size_bytes
    return Footprint(
        always_bytes=always,
        expert_bytes=expert,
        experts=header.experts,
        used=header.experts_used,
        flops_per_token=2.0 * active,
    )


def by_bytes(
    target: Footprint,
    draft: Footprint | None,
    basis: Message,
    *,
    output_bytes: float = 0.0,
    device: DeviceEntry | None = None,
    processor: bool = False,
    recurrent: bool = False,
    slots: bool = False,
    context: int = 512,
    requests: int = 1,
) -> Costs:
    """Costs from what both models read and compute; of a `device`, or of none in particular (a `processor` or not).

    With several `requests` at once a forward has as many tokens of each, and plain tokens are steps of them all. Of a
    head that drafts, `output_bytes` are not read to take in what was verified. With `slots` a `recurrent` target writes
    a state for each token that it verifies, and replays nothing.
    """
    unknowns = PROCESSOR if processor or (device is not None and device.name.startswith("DDR")) else Unknowns()

    def draw(longest: int, draws: int, rng: Generator, by_model: bool) -> DrawnCosts:
        reached = _range(*unknowns.bandwidth, draws, rng)
        peak = 100e9 if device is None else device.peak_bytes_per_s
        flops = peak * _log_range(*unknowns.ridge, draws, rng)
        if device is not None and device.fp16_tflops is not None:
            flops = device.fp16_tflops * 1e12 * _range(*unknowns.arithmetic, draws, rng)
        # Without a device overhead cannot be told in milliseconds: it is a share of a forward then.
        overhead = _log_range(*unknowns.overhead_ms, draws, rng)
        batch = _range(*unknowns.batch, draws, rng)
        row = _range(*unknowns.row, draws, rng)[:, np.newaxis]
        head = unknowns.routed_head if target.experts else unknowns.head
        small = _log_range(*(head if output_bytes else unknowns.draft), draws, rng)[:, np.newaxis]
        overlap = _range(*unknowns.overlap, draws, rng)
        n = np.arange(1, longest + 2, dtype=np.float64)
        rows = n * requests
        forward = _forwards(target, n, peak * reached, flops, overlap, context, requests)
        extra = overhead if device is not None else 0.05 * overhead * forward[:, 0]
        slower = 1 + batch[:, np.newaxis] * (rows > 1) + row * (rows - 1)
        one = _forwards(target, np.ones(1), peak * reached, flops, overlap, context)
        whole = forward + extra[:, np.newaxis] + one * (slower - 1)
        plain = whole[:, :1].copy()
        if slots:  # a forward reads the state and writes it
            whole += 1000 * requests * (n - 1) * target.state_bytes / 2 / (peak * reached)[:, np.newaxis]
        verify = whole / plain
        making = np.zeros((draws, longest + 1))
        if by_model and draft is not None:
            forward = small * _forwards(draft, n, peak * reached, flops, overlap, context, requests)
            one = small * _forwards(draft, np.ones(1), peak * reached, flops, overlap, context)
            making = _drafting(forward + extra[:, np.newaxis] + one * (slower - 1))
            making[:, 1:] -= 1000 * small * output_bytes / (peak * reached)[:, np.newaxis]
            making /= plain
        save, restore = np.zeros(draws), np.zeros(draws)
        if recurrent and not slots and device is not None:
            # A checkpoint is the state once.
            copied = requests / 2 / _log_range(*unknowns.copying, draws, rng) * 1000 / plain[:, 0]
            save = target.state_bytes * copied
            restore = save + (draft.state_bytes * copied if by_model and draft is not None else 0)
        elif recurrent and not slots:
            restore = _range(0.0, 1.0, draws, rng)
        return DrawnCosts(
            verify=verify,
            draft=making,
            rest=save,
            restore=restore,
            recurrent=recurrent and not slots,
            measured=LONGEST,
            slot_bytes=target.state_bytes / 2 if slots else 0.0,
        )

    return Costs(basis, draft is not None, draw)


def _forwards(
    model: Footprint,
    n: Floats,
    bandwidth: Floats,
    flops: Floats,
    overlap: Floats,
    context: int,
    requests: int = 1,
) -> Floats:
    """T(requests, n) in ms without overhead, of a model whose tokens share experts as `overlap` says; those of several
    requests choose theirs independently. Shape (draws, len(n)).

    `bandwidth`, `flops` and `overlap` have shape (draws,).
    """
    from specmeter.theory.roofline import expected_union, forward_bytes

    tokens = np.broadcast_to(n, (len(overlap), len(n)))
    union = None
    if model.experts:
        draws = requests * (1 + overlap[:, np.newaxis] * (tokens - 1))
        # One token reads K experts to the last digit, which the formula misses.
        union = np.maximum(model.used, np.asarray(expected_union(draws, model.experts, model.used)))
    tokens = requests * tokens
    size = np.asarray(forward_bytes(model, tokens, union=union, context=requests * context))
    seconds = np.maximum(size / bandwidth[:, np.newaxis], tokens * model.flops_per_token / flops[:, np.newaxis])
    return 1000 * seconds
