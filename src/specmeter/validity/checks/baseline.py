"""Whether baselines are what their arms can be compared with: measured alike, in the same blocks, and steady.

Whether an arm and its baseline were requested alike, which is known before anything is measured.

Automatic baselines always are; one that is named in the experiment need not be.

Decode rates of an arm over prompts and blocks, and what their spread says: how much, with the clock, in two levels.

Rates are natural logarithms of tok/s, so that a difference of 0.05 is 5 %. What repeats is a prompt over blocks, and
everything is compared within prompts: rates of different prompts differ for good reasons.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from statistics import stdev
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.analysis.requests import BlockKey
from specmeter.experiments.experiment import DRAFT_ONLY
from specmeter.messages import Message
from specmeter.numbers.dip import DIP_LIMIT, dip
from specmeter.numbers.special import f_above
from specmeter.record import Arm, EngineSettings, Prompt, Session
from specmeter.record.verdict import Findings
from specmeter.store import RequestRow
from specmeter.validity.checks.check import (
    NONE,
    Check,
    beside_baseline,
    compared_arms,
    identity_of,
    not_applicable,
    of_arm,
    sessions_by_arm,
    target_devices_known,
    unseen,
)
from specmeter.validity.checks.run_data import RequestData, RunData

if TYPE_CHECKING:
    from specmeter.numbers.stats import Floats, Ints


class Speeds(NamedTuple):
    """Decode rates of one arm."""

    logs: Floats
    """Natural logarithm of tok/s, prompts x blocks; NaN where nothing was decoded."""
    prompts: tuple[str, ...]
    cells: tuple[BlockKey, ...]
    """The blocks, in their order."""

    def by_block(self) -> dict[BlockKey, float]:
        """How much faster than usual each block was, prompts held fixed."""
        if not self.cells:
            return {}
        effects = np.nanmean(self.logs - np.nanmean(self.logs, axis=1, keepdims=True), axis=0)
        return dict(zip(self.cells, effects.tolist(), strict=True))


_COLUMNS = itemgetter(
    *(RequestRow._fields.index(name) for name in ("invocation", "block", "prompt_id", "predicted_n", "predicted_ms"))
)


def speeds_of(requests: Sequence[RequestData]) -> Speeds:
    """Rates of requests that decoded anything, all of one arm."""
    rows = [row for row in map(_COLUMNS, [it.row for it in requests]) if (row[3] or 0) > 1 and (row[4] or 0) > 0]
    prompts = {prompt: place for place, prompt in enumerate(dict.fromkeys(row[2] for row in rows))}
    cells = {cell: place for place, cell in enumerate(sorted({row[:2] for row in rows}))}
    logs = np.full((len(prompts), len(cells)), np.nan)
    if rows:
        tokens, ms = np.array([row[3:] for row in rows], dtype=np.float64).T
        where = [prompts[row[2]] for row in rows], [cells[row[:2]] for row in rows]
        logs[where] = np.log(1000 * (tokens - 1) / ms)
    return Speeds(logs, tuple(prompts), tuple(cells))


# --- how much --------------------------------------------------------------------------------------------------------


class Variation(NamedTuple):
    """Standard deviations of the logarithm of a rate, which are its coefficients of variation."""

    between: float
    """Of blocks, prompts held fixed; 0 where there is one block."""
    within: float
    """Of single requests, prompts and blocks held fixed; in a single block, of its prompts."""
    prompts: int
    blocks: int

    @property
    def of_a_block(self) -> float:
        """What a block's rate varies by: as seen, or at least what the variation of its requests leaves of it."""
        return max(self.between, self.within / math.sqrt(max(1, self.prompts)))


def variation(speeds: Speeds) -> Variation | None:
    """None where nothing was repeated."""
    prompts, blocks = speeds.logs.shape
    if speeds.logs.size < 2:
        return None
    if blocks == 1:
        return Variation(0.0, float(np.std(speeds.logs, ddof=1)), prompts, blocks)
    effects = np.array(list(speeds.by_block().values()))
    left = speeds.logs - np.nanmean(speeds.logs, axis=1, keepdims=True) - effects
    freedom = int(np.isfinite(speeds.logs).sum()) - prompts - blocks + 1
    within = math.sqrt(float(np.nansum(left**2)) / freedom) if freedom > 0 else 0.0
    return Variation(float(effects.std(ddof=1)), within, prompts, blocks)


# --- with the clock --------------------------------------------------------------------------------------------------

_FREEDOM = 8
"""Least degrees of freedom for a drift."""
_TURNS = 0.01
"""Least share of its place in the block that an arm's turns must move it by, for drift to be told from the arms."""


class BlockEffect(NamedTuple):
    """An arm in a block."""

    arm: int
    block: int
    at: float
    """When it was measured, in seconds."""
    effect: float
    """How much faster than usual it was."""


class Drift(NamedTuple):
    """Change of all rates within blocks."""

    per_s: float
    """Of the logarithm of a rate, per second."""
    ratio: float
    """To its standard error."""


def drift(points: Sequence[BlockEffect]) -> Drift | None:
    """Least squares: effect = that of the arm + that of the block + drift * time; None where they cannot be told apart.

    Where every block has the same order, an arm's time is as much its own as its speed is.
    """
    if not points:
        return None
    arm, block, at, effects = np.array(points, dtype=np.float64).T
    groups = arm.astype(np.int64), block.astype(np.int64)
    freedom = len(points) - len(set(groups[0].tolist())) - len(set(groups[1].tolist()))
    in_block = _less_means(at - at.min(), groups[1])
    moved = _less_both(in_block, *groups)
    spread = float(moved @ moved)
    if freedom < _FREEDOM or spread <= _TURNS**2 * float(in_block @ in_block):
        return None
    effect = _less_both(effects, *groups)
    per_s = float(moved @ effect) / spread
    left = effect - per_s * moved
    error = math.sqrt(float(left @ left) / freedom / spread)
    return Drift(per_s, abs(per_s) / error if error > 0 else math.inf)


class CarryOver(NamedTuple):
    """What the arm that was measured just before leaves behind."""

    left: Mapping[int, float]
    """Arm -> how much faster than usual the next one is, in the logarithm of its rate; 0 on average."""
    met: Mapping[int, float]
    """Arm -> what those before it left to it, on average."""
    chance: float
    """That arms which leave nothing behind look as unlike (F test)."""


def carry_over(points: Sequence[BlockEffect]) -> CarryOver | None:
    """Least squares: effect = that of the arm + that of the block + that of the arm before it in the block; None where
    they cannot be told apart. The first of a block has none before it, which is a predecessor of its own."""
    ordered = sorted(points, key=lambda it: (it.block, it.at))
    last = [-1, *(one.arm if one.block == other.block else -1 for one, other in pairwise(ordered))]
    # What blocks explain is taken off first, which leaves the same as a column for each of them would.
    distinct, blocks = np.unique([it.block for it in ordered], return_inverse=True)
    arms, before = (_indicated(it, blocks) for it in ([it.arm for it in ordered], last))
    effects = _less_means(np.array([it.effect for it in ordered]), blocks)
    _, without, rank = _fitted(arms, effects)
    fitted, unexplained, whole = _fitted(np.hstack([arms, before]), effects)
    added, freedom = whole - rank, len(ordered) - whole - len(distinct)
    if added < 1 or freedom < _FREEDOM or unexplained <= 0:
        return None
    ratio = max(0.0, without - unexplained) / added / (unexplained / freedom)
    names = sorted(set(last))
    found = fitted[-len(names) :] - float(np.mean(fitted[-len(names) :]))
    left: dict[int, float] = dict(zip(names, found.tolist(), strict=True))
    met: dict[int, list[float]] = {}
    for point, one in zip(ordered, last, strict=True):
        met.setdefault(point.arm, []).append(left[one])
    means = {arm: sum(values) / len(values) for arm, values in met.items()}
    return CarryOver(left, means, f_above(added, freedom, ratio))


def _fitted(design: Floats, values: Floats) -> tuple[Floats, float, int]:
    """(the smallest coefficients that fit best, squares that are left, rank)."""
    found, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    return np.asarray(found, dtype=np.float64), float(np.sum((values - design @ found) ** 2)), int(rank)


def _indicated(groups: Sequence[int], blocks: Ints) -> Floats:
    """A column for each group, 1 where a value is of it, less the mean of its block."""
    columns = (np.array(groups) == np.unique(groups)[:, np.newaxis]).astype(np.float64)
    return np.column_stack([_less_means(it, blocks) for it in columns])


def _less_both(values: Floats, arm: Ints, block: Ints) -> Floats:
    """Values less what arms and blocks explain; right at once where every arm is in every block, soon otherwise."""
    for _ in range(20):
        values = _less_means(_less_means(values, arm), block)
    return values


def _less_means(values: Floats, group: Ints) -> Floats:
    return values - (np.bincount(group, values) / np.maximum(1, np.bincount(group)))[group]


# --- in two levels ---------------------------------------------------------------------------------------------------

LEAST_REPEATS = 20
"""Repetitions below which two levels could not be told from one."""
_MOST_REPEATS = 1000
"""More are not needed, and the dip costs some 10 microseconds for each."""
_LEVELS_APART = math.log(1.05)
_LEAST_SHARE = 0.1
_CLEFT = 3.5
"""How many standard deviations of the groups their means lie apart at least: 3.0 for the halves of a normal
distribution's absolute values, so the dip is asked only where there is a gap to speak of."""


class Levels(NamedTuple):
    """Two groups of values."""

    apart: float
    """Of their means."""
    upper_share: float


def repeats(speeds: Speeds) -> Floats:
    """|difference| of each prompt's rates in blocks 0 and 1, 2 and 3, ..., less the median over prompts."""
    even = len(speeds.cells) // 2 * 2
    pairs = speeds.logs[:, 1:even:2] - speeds.logs[:, 0:even:2]
    if len(pairs) > 1:
        seen = [column[np.isfinite(column)] for column in pairs.T]
        pairs = pairs - np.array([np.median(column) if len(column) else np.nan for column in seen])
    if len(pairs) == 2:
        # Two prompts lie equally far from their median: one of them says it all.
        pairs = pairs[:1]
    found = np.abs(pairs[np.isfinite(pairs)])
    return found[:: max(1, math.ceil(len(found) / _MOST_REPEATS))]


def two_levels(values: Floats) -> Levels | None:
    """The two levels of the values; None where there is one, or where the two hardly matter."""
    x = np.sort(values)
    n = len(x)
    if n < 2:
        return None
    below = np.arange(1, n)
    sums = np.cumsum(x)[:-1]
    lower, upper = sums / below, (x.sum() - sums) / (n - below)
    # The cut that leaves the least variance within the groups (Otsu 1979, doi:10.1109/TSMC.1979.4310076).
    cut = int(np.argmax(below * (n - below) * (upper - lower) ** 2))
    apart, share = float(upper[cut] - lower[cut]), float((n - below[cut]) / n)
    width = math.sqrt(max(0.0, float(x.var()) - share * (1 - share) * apart**2))
    if apart < _LEVELS_APART or not _LEAST_SHARE <= share <= 1 - _LEAST_SHARE or apart < _CLEFT * width:
        return None
    return Levels(apart, share) if dip(x) * math.sqrt(n) > DIP_LIMIT else None


# --- baseline-elsewhere ----------------------------------------------------------------------------------------------

_SAME_VALUES = ("n_ctx", "kv_type_k", "kv_type_v", "threads", "batch_threads", "flash_attention")
"""Values in force that an arm and its baseline must share."""


def baseline_elsewhere(data: RunData) -> Findings:
    """Baselines of another engine, with other settings, in another place, or in another block.

    Everything here is as the engine says that it was, and compared exactly; what either side does not say is not
    compared. What was asked for is the business of `baseline-unlike`. How much of the target lies
    where is the business of `memory-fit`; here it is an arm whose target holds weights on other devices altogether.

    Assumes: what both sides say about engine, settings in force and devices is so: identity. What one side does not
    say is not compared.
    Otherwise: builds are compared by their bytes and values as they are printed; two names for one thing would be
    taken for two. Where no block holds both there is no speedup that could be false: suspect.
    """
    arms = compared_arms(data)
    if not arms:
        yield not_applicable(None, Message("unchecked.no_baseline"))
        return
    by_arm = sessions_by_arm(data)
    for arm in arms:
        mine = _answered(data.by_arm[arm.id])
        base = _answered(data.by_arm.get(arm.baseline_id or "", ()))
        if not mine:
            yield unseen(arm.id, data.unanswered(arm.id))
            continue
        lonely = [cell for cell, prompts in mine.items() if prompts.isdisjoint(base.get(cell, ()))]
        yield from _lonely(arm, lonely, len(mine))
        if len(lonely) == len(mine):
            continue
        differences: dict[str, Message] = {}
        pairs = list(beside_baseline(arm, by_arm))
        for session, baseline in pairs:
            differences |= _differences(arm, session, baseline)
        if differences:
            yield of_arm(
                "invalid",
                arm.id,
                Message("baseline-elsewhere.unlike", value=_first_of(differences)),
                **differences,
            )
        elif not pairs:
            yield unseen(arm.id, Message("unchecked.no_sessions_of_both"))


def _answered(requests: Sequence[RequestData]) -> dict[BlockKey, set[str]]:
    found: dict[BlockKey, set[str]] = {}
    for request in requests:
        row = request.row
        found.setdefault((row.invocation, row.block), set()).add(row.prompt_id)
    return found


def _lonely(arm: Arm, lonely: Sequence[BlockKey], blocks: int) -> Findings:
    if not lonely:
        return
    none = len(lonely) == blocks
    yield of_arm(
        "suspect" if none else "note",
        arm.id,
        Message("baseline-elsewhere.alone")
        if none
        else Message("baseline-elsewhere.some_alone", blocks_without_baseline=len(lonely), blocks=blocks),
        Message("baseline-elsewhere.fix_alone"),
        baseline=arm.baseline_id,
        blocks=blocks,
        blocks_without_baseline=len(lonely),
        first_invocation=lonely[0][0],
        first_block=lonely[0][1],
    )


def _first_of(differences: Mapping[str, Message]) -> Message:
    name, difference = next(iter(differences.items()))
    told = Message("baseline-elsewhere.target_devices") if name == "target_devices" else name
    return Message("check.is", name=told, value=difference)


def _differences(arm: Arm, session: Session, baseline: Session) -> dict[str, Message]:
    found: dict[str, Message] = {}
    if session.engine is not baseline.engine and identity_of(session.engine) != identity_of(baseline.engine):
        found["engine"] = Message("check.of_baseline", arm=_engine(session), baseline=_engine(baseline))
    for name in _SAME_VALUES:
        mine, base = session.resolved.get(name), baseline.resolved.get(name)
        if mine is not None and base is not None and mine != base:
            found[name] = Message("check.of_baseline", arm=str(mine), baseline=str(base))
    if target_devices_known(arm, session) and baseline.devices:
        mine, base = _places(session), _places(baseline)
        if mine != base:
            found["target_devices"] = Message("check.of_baseline", arm=mine or NONE, baseline=base or NONE)
    return found


def _engine(session: Session) -> str:
    engine = session.engine
    return f"{engine.kind} {engine.build[:60]} {engine.binary_sha256[:12]}"


def _places(session: Session) -> list[str]:
    return sorted(use.device for use in session.devices if use.model_buffer_bytes > 0)


# --- baseline-unstable -----------------------------------------------------------------------------------------------

WILD = 0.15
"""What a speedup may vary by from block to block, as its baseline does and its arm does not."""
_CALM = 0.05
"""A baseline varies by so much on a quiet machine."""


def baseline_unstable(data: RunData) -> Findings:
    """Baselines whose rate varies from block to block, and whether the speedup varies with it.

    An arm and its baseline are measured side by side in every block, and only their ratios are claimed. What both
    share cancels, however large it is: a machine that is slower in one block than in the next changes tokens per
    second, which is a note, and no speedup. The interval holds what they do not share. But a ratio that follows the
    baseline is a baseline that moved alone, or an arm that gains on a fast machine and not on a slow one: it is not
    a speedup of either. It is called so where the part of its variation that goes with the baseline's (the correlation,
    times its standard deviation) is 15 % or more. In a single block nothing repeats and there is no interval: an effect
    is not to be believed there if the baseline's requests vary by as much.

    Assumes: in a single block, requests that vary by as much as the effect hide it.
    Otherwise: prompts may differ in speed for good reasons, and the ratio be right: suspect at most.
    """
    arms = [arm for arm in compared_arms(data) if arm.role == "speculative"]
    if not arms:
        yield not_applicable(None, Message("unchecked.no_baseline"))
        return
    speedups = data.speedups
    paces = {name: _pace(data, name) for arm in arms for name in (arm.id, arm.baseline_id or "")}
    for name in dict.fromkeys(arm.baseline_id or "" for arm in arms):
        effects = list(paces[name].values())
        if len(effects) > 1 and (varies := stdev(effects)) > _CALM:
            yield of_arm(
                "note", name, Message("baseline-unstable.shared", varies_percent=100 * varies, blocks=len(effects))
            )
    for arm in arms:
        base, speedup = arm.baseline_id or "", speedups.get(arm.id)
        both = sorted(paces[arm.id].keys() & paces[base].keys())
        if len(both) > 1:
            moves = follows([paces[base][it] for it in both], [paces[arm.id][it] - paces[base][it] for it in both])
            if moves >= WILD:
                yield of_arm(
                    "suspect", arm.id, Message("baseline-unstable.alone", varies_percent=100 * moves, blocks=len(both))
                )
            continue
        noise = variation(speeds_of(data.by_arm.get(base, ()))) if data.arms[base].load is None else None
        if noise is None or speedup is None:
            yield unseen(arm.id, Message("unchecked.baseline_once"))
            continue
        effect = abs(math.log(speedup.point))
        if speedup.low is None and 0 < effect <= noise.of_a_block:
            yield of_arm(
                "suspect",
                arm.id,
                Message("baseline-unstable.found", effect_percent=100 * effect, varies_percent=100 * noise.of_a_block),
                prompts=noise.prompts,
            )


def _pace(data: RunData, name: str) -> dict[BlockKey, float]:
    """How much faster than usual an arm was in each block, as the logarithm of a ratio.

    Under load a request's time depends on those beside it, so that only cells as wholes repeat. Total tokens per second
    of their steady windows are compared; where requests arrive by a rate, which these then follow, the tokens per
    second of one request.
    """
    arm = data.arms.get(name)
    if arm is None or arm.load is None:
        return speeds_of(data.by_arm.get(name, ())).by_block()
    cells = [it.figures for it in data.cells if it.figures.arm_id == name and it.figures.counts]
    by_rate = arm.load.rate is not None
    paces = {
        (it.invocation, it.block): (it.decode_tokens, it.decode_ms) if by_rate else (it.tokens, it.window_ms)
        for it in cells
    }
    return {block: math.log(tokens / ms) for block, (tokens, ms) in paces.items() if tokens > 0 and ms > 0}


def follows(baseline: Sequence[float], ratios: Sequence[float]) -> float:
    """The part of the ratios' standard deviation that goes with the baseline."""
    base, ratio = np.array(baseline) - np.mean(baseline), np.array(ratios) - np.mean(ratios)
    length = math.sqrt(float(base @ base))
    return abs(float(base @ ratio)) / length / math.sqrt(len(base) - 1) if length > 0 else 0.0


CHECKS: tuple[Check, ...] = (
    Check("baseline-elsewhere", "invalid", baseline_elsewhere, saw=("arms", "engines", "sessions", "requests")),
    Check("baseline-unstable", "suspect", baseline_unstable, saw=("arms", "requests")),
)


_SAME = tuple(name for name in EngineSettings.model_fields if name not in (*DRAFT_ONLY, "extra_flags", "options"))
"""Settings that an arm and its baseline must share. Flags may be about drafting: their meaning is not known here."""


def baseline_unlike(data: RunData) -> Findings:
    """Baselines of another target or with other settings than the arm's, and prompts that a baseline never runs.

    What does not matter to plain decoding (`DRAFT_ONLY`, and what an engine says of its own options) may differ. Other
    command line flags are suspect, since they may or may not matter. A speedup over some of an arm's prompts is not the
    arm's speedup: suspect too, and invalid where there is no prompt that both run.

    Assumes: a baseline is the arm without drafting: identity of all that was asked for, apart from drafting, and of
    the prompts.
    Otherwise: flags of the command line may be about drafting, and some prompts may be missing: suspect.
    """
    arms = [arm for arm in data.arms.values() if arm.baseline_id in data.arms]
    if not arms:
        yield not_applicable(None, Message("unchecked.no_baseline"))
        return
    ever: dict[str, frozenset[str]] = {}
    for arm in arms:
        baseline = data.arms[arm.baseline_id or ""]
        differences = dict(_asked_differently(arm, baseline, data.traits.draft_options))
        flags = arm.engine.extra_flags != baseline.engine.extra_flags
        if differences:
            yield of_arm(
                "invalid",
                arm.id,
                Message("baseline-unlike.found", baseline=baseline.id, value=_first_of(differences)),
                **differences,
            )
        elif flags:
            yield of_arm(
                "suspect",
                arm.id,
                Message("baseline-unlike.flags", baseline=baseline.id),
                Message("baseline-unlike.fix_flags"),
                extra_flags=" ".join(arm.engine.extra_flags)[:200],
                of_the_baseline=" ".join(baseline.engine.extra_flags)[:200],
            )
        if baseline.id not in ever:
            ever[baseline.id] = _ever_due(data, baseline)
        yield from _prompts(data, arm, baseline, ever[baseline.id])


def _asked_differently(arm: Arm, baseline: Arm, draft_options: Collection[str]) -> Iterator[tuple[str, Message]]:
    if arm.target != baseline.target:
        yield "target", Message("check.of_baseline", arm=arm.target, baseline=baseline.target)
    if arm.load != baseline.load:
        mine, base = (it.load.label if it.load is not None else NONE for it in (arm, baseline))
        yield "load", Message("check.of_baseline", arm=mine, baseline=base)
    for name in _SAME:
        mine, base = getattr(arm.engine, name), getattr(baseline.engine, name)
        if mine != base:
            yield f"engine.{name}", Message("check.of_baseline", arm=str(mine), baseline=str(base))
    mine, base = arm.engine.options, baseline.engine.options
    for name in sorted((mine.keys() | base.keys()) - set(draft_options)):
        if mine.get(name) != base.get(name):
            differ = Message("check.of_baseline", arm=str(mine.get(name)), baseline=str(base.get(name)))
            yield f"engine.options.{name}", differ


def _prompts(data: RunData, arm: Arm, baseline: Arm, there: frozenset[str]) -> Findings:
    mine = [prompt.id for prompt in _of(data, arm)]
    alone = [prompt_id for prompt_id in mine if prompt_id not in there]
    if alone:
        yield of_arm(
            "invalid" if len(alone) == len(mine) else "suspect",
            arm.id,
            Message(
                "baseline-unlike.prompts",
                baseline=baseline.id,
                without_baseline=len(alone),
                prompts=len(mine),
                first=alone[0],
            ),
            Message("baseline-unlike.fix_prompts"),
        )


def _ever_due(data: RunData, arm: Arm) -> frozenset[str]:
    """Prompts that the arm is to be measured on in any block."""
    prompts, design = _of(data, arm), data.experiment.design
    found: set[str] = set()
    for invocation in data.experiment.invocations:
        for block in range(design.blocks):
            found.update(prompt.id for prompt in data.experiment.due(arm, prompts, invocation, block))
            if len(found) == len(prompts):
                return frozenset(found)
    return frozenset(found)


def _of(data: RunData, arm: Arm) -> list[Prompt]:
    return [prompt for prompt in data.prompts.values() if not arm.workloads or prompt.workload in arm.workloads]


LIKENESS_CHECKS: tuple[Check, ...] = (
    Check("baseline-unlike", "invalid", baseline_unlike, saw=("experiment", "arms", "prompts"), before=True),
)
