"""From a run's requests to what is said about each arm: one pass, numbers only, nothing printed.

`summarize` reads rows once, keeps 112 bytes of each in typed columns, and computes from those:

- decode and prompt rate: all tokens over all time, interval over blocks (over invocations where there are several);
- speedup: per block the ratio to the arm's own baseline over the prompts that *both* completed there; a block or a
  prompt that one of them lacks is left out, and `complete` says that something is missing. A baseline that ran other
  prompts in each block (in turn, or since it failed) is completed by least squares (`specmeter.gaps`);
- several arms with one baseline: also the interval that holds for all of them together, for whoever picks the best;
- on request the speedup on every prompt by itself;
- acceptance and tau: interval over prompts, since greedy text repeats itself from block to block;
- the balance of the order, from measured start times.

Failed requests count as failed and enter nothing else. Controls never stand among results. Where acceptance was
decided by dice or weights are random, `cost_probe` says so: such a speedup tells what steps cost, not what a text
gains.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from specmeter.errors import UsageError
from specmeter.gaps import additive
from specmeter.record import Arm, Estimate, Record
from specmeter.schedule import Balance, achieved_balance
from specmeter.stats import (
    Comparison,
    Pair,
    Pool,
    bootstrap_speedup,
    compare,
    geometric_speedup,
    pooled_rate,
    pooled_ratio,
    simultaneous,
    speedup_over_invocations,
    speedups_by_group,
    units_for,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Part = tuple[float, float]
    Bools = NDArray[np.bool_]


CostProbe = Literal["synthetic acceptance", "random weights"]


class Row(Protocol):
    """What is needed of a request; counts and times are None where it failed. `store.RequestRow` is one."""

    @property
    def arm_id(self) -> str: ...
    @property
    def invocation(self) -> int: ...
    @property
    def block(self) -> int: ...
    @property
    def prompt_id(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def status(self) -> Literal["ok", "failed"]: ...
    @property
    def started_at(self) -> float: ...
    @property
    def prompt_n(self) -> int | None: ...
    @property
    def prompt_ms(self) -> float | None: ...
    @property
    def predicted_n(self) -> int | None: ...
    @property
    def predicted_ms(self) -> float | None: ...
    @property
    def draft_n(self) -> int | None: ...
    @property
    def draft_n_accepted(self) -> int | None: ...
    @property
    def target_forwards(self) -> int | None:
        """Target forwards after the prompt, by `rates.target_forwards`; None where that cannot be said."""
        ...


class KindSummary(Record):
    """An arm on the prompts of one kind, or on all of them."""

    decode_rate: Estimate | None
    """Tokens per second while decoding."""
    prompt_rate: Estimate | None
    """Prompt tokens per second."""
    speedup: Estimate | None
    """Decode rate relative to the baseline; None for baselines and where no block holds both."""
    acceptance: Estimate | None
    """Accepted / drafted tokens; None where nothing was drafted."""
    tau: Estimate | None
    """Tokens emitted per target forward."""


class ArmSummary(KindSummary):
    """An arm over the whole run."""

    arm_id: str
    role: Literal["baseline", "speculative", "control"]
    baseline_id: str | None
    cost_probe: CostProbe | None
    """Why the speedup is that of a cost probe and of no real text; None for a real one."""
    speedup_bootstrap: Estimate | None
    """Second opinion on the interval of a single invocation, from resampled blocks."""
    speedup_range: tuple[float, float] | None
    """Lowest and highest speedup of one invocation; None where there was only one."""
    speedup_simultaneous: Estimate | None
    """The speedup with an interval that holds for all `compared` arms together. None for arms that are not among the
    results to choose from: baselines, controls, cost probes."""
    compared: int
    """Arms of the experiment among which the best is chosen: those with this arm's baseline, this one included. 0 for
    arms that are not among them."""
    comparison: Comparison | None
    """What the arm's speedup, taken by itself, says about a difference of 2 %."""
    units_advised: int | None
    """About how many blocks (invocations, where there are several) would make the speedup's interval +-2 %; not below
    the number at hand, and None where there is no interval to learn from."""
    drafted: int
    accepted: int
    requests_ok: int
    requests_failed: int
    requests_missing: int | None
    """Planned and not there yet, or None where the plan is not known."""
    kinds: dict[str, KindSummary]
    prompts: dict[str, Estimate] | None
    """Prompt -> speedup on it alone, in the order of the prompts; None where that was not asked for."""


class RunSummary(Record):
    """What a run says."""

    arms: tuple[ArmSummary, ...]
    """Baselines and speculative arms, in the order of the experiment."""
    controls: tuple[ArmSummary, ...]
    """Arms that test the measurement itself; never results."""
    invocations: int
    blocks: int
    """Blocks per invocation (the most that any has)."""
    prompts: int
    requests_ok: int
    requests_failed: int
    requests_missing: int | None
    complete: bool | None
    """Whether every planned request is there and none failed; None where the plan is not known."""
    balance: Balance
    """Of the order in which arms really ran."""


def summarize(
    rows: Iterable[Row],
    arms: Sequence[Arm],
    *,
    timing_only: Collection[str] = (),
    planned: Mapping[str, int] | None = None,
    level: float = 0.95,
    by_prompt: bool = False,
) -> RunSummary:
    """Summarise a run.

    `timing_only` names the models of the experiment that have random weights; `planned` gives for each arm the number
    of requests that makes it complete; `by_prompt` asks for the speedup on every prompt. Raises `UsageError` for a
    request of an unknown arm, and for an arm whose baseline is not among `arms`.
    """
    ids = {arm.id: index for index, arm in enumerate(arms)}
    for arm in arms:
        if arm.baseline_id is not None and arm.baseline_id not in ids:
            raise UsageError(
                f"arm {arm.id}: its baseline {arm.baseline_id!r} is not in the run", fix="measure the baseline as well"
            )
    table = _Table(rows, ids)
    family = Counter(arm.baseline_id for arm in arms if _is_choice(arm, timing_only))
    summaries = [
        _summarize_arm(
            table,
            arm,
            ids,
            cost_probe=_cost_probe(arm, timing_only),
            compared=family[arm.baseline_id] if _is_choice(arm, timing_only) else 0,
            planned=None if planned is None else planned.get(arm.id, 0),
            level=level,
            by_prompt=by_prompt,
        )
        for arm in arms
    ]
    failed = sum(summary.requests_failed for summary in summaries)
    missing = None if planned is None else sum(summary.requests_missing or 0 for summary in summaries)
    return RunSummary(
        arms=tuple(summary for summary in summaries if summary.role != "control"),
        controls=tuple(summary for summary in summaries if summary.role == "control"),
        invocations=len(table.invocations),
        blocks=len({block for _, block in table.cells}),
        prompts=len(table.prompts),
        requests_ok=sum(summary.requests_ok for summary in summaries),
        requests_failed=failed,
        requests_missing=missing,
        complete=None if missing is None else missing == 0 and failed == 0,
        balance=achieved_balance(table.starts(list(ids))),
    )


class _Table:
    """The rows as columns, sorted by arm; strings are numbered."""

    def __init__(self, rows: Iterable[Row], arms: Mapping[str, int]) -> None:
        cells: dict[tuple[int, int], int] = {}
        prompts: dict[str, int] = {}
        self.kinds: dict[str, int] = {}
        whole, real = array("q"), array("d")
        for row in rows:
            arm = arms.get(row.arm_id)
            if arm is None:
                raise UsageError(
                    f"a request names the unknown arm {row.arm_id!r}", fix="summarise it with its own arms"
                )
            cell = cells.setdefault((row.invocation, row.block), len(cells))
            prompt = prompts.setdefault(row.prompt_id, len(prompts))
            kind = self.kinds.setdefault(row.kind, len(self.kinds))
            tokens = max(0, (row.predicted_n or 0) - 1)
            whole.extend((arm, row.invocation, cell, prompt, kind, row.status == "ok", row.prompt_n or 0, tokens))
            whole.extend((row.draft_n or 0, row.draft_n_accepted or 0, row.target_forwards or 0))
            real.extend((row.started_at, row.prompt_ms or 0.0, row.predicted_ms or 0.0))
        integers: Ints = np.array(whole, dtype=np.int64).reshape(-1, 11)
        floats: Floats = np.array(real, dtype=np.float64).reshape(-1, 3)
        order = np.argsort(integers[:, 0], kind="stable")
        columns: list[Ints] = list(integers[order].T)
        self.arm, self.invocation, self.cell, self.prompt, self.kind, ok = columns[:6]
        self.prompt_n, self.tokens, self.drafted, self.accepted, self.forwards = columns[6:]
        reals: list[Floats] = list(floats[order].T)
        self.started_at, self.prompt_ms, self.ms = reals
        self.ok: Bools = ok == 1
        self.decoded: Bools = self.ok & (self.tokens > 0) & (self.ms > 0)
        self.cells = list(cells)
        """Number -> (invocation, block)."""
        self.invocations = {invocation for invocation, _ in cells}
        self.prompts = list(prompts)
        """Number -> prompt id."""
        self.key: Ints = self.cell * max(1, len(prompts)) + self.prompt
        """Which prompt in which block: where an arm and its baseline can meet."""

    def of_arm(self, arm: int) -> Ints:
        """Indices of an arm's rows."""
        low, high = np.searchsorted(self.arm, [arm, arm + 1])
        return np.arange(int(low), int(high))

    def starts(self, arm_ids: Sequence[str]) -> Iterator[tuple[str, int, float]]:
        """(arm id, block, start) of every request, for the balance."""
        for arm, cell, started_at in zip(self.arm, self.cell, self.started_at, strict=True):
            yield arm_ids[int(arm)], int(cell), float(started_at)

    def parts(self, rows: Ints, unit: Ints, counted: Ints, per: Ints | Floats) -> list[Part]:
        """(sum of `counted`, sum of `per`) of each unit where the latter is positive, in the order of the units."""
        if not len(rows):
            return []
        over = np.bincount(unit[rows], weights=counted[rows])
        under = np.bincount(unit[rows], weights=per[rows])
        return [(above, below) for above, below in zip(over.tolist(), under.tolist(), strict=True) if below > 0]


def _summarize_arm(
    table: _Table,
    arm: Arm,
    ids: Mapping[str, int],
    *,
    cost_probe: CostProbe | None,
    compared: int,
    planned: int | None,
    level: float,
    by_prompt: bool,
) -> ArmSummary:
    rows = table.of_arm(ids[arm.id])
    base = table.of_arm(ids[arm.baseline_id]) if arm.baseline_id is not None else rows[:0]
    ok = rows[table.ok[rows]]
    pairs = _pairs(table, rows, base)
    single = len(table.invocations) == 1
    across = speedup_over_invocations(list(pairs.values()), level=level) if pairs and not single else None
    estimates = _estimates(table, rows, base, level)
    speedup = estimates["speedup"]
    return ArmSummary(
        arm_id=arm.id,
        role=arm.role,
        baseline_id=arm.baseline_id,
        cost_probe=cost_probe,
        speedup_bootstrap=bootstrap_speedup(_flat(pairs), level=level) if pairs and single else None,
        speedup_range=(across.lowest, across.highest) if across else None,
        speedup_simultaneous=simultaneous(speedup, compared) if speedup and compared else None,
        compared=compared,
        comparison=compare(speedup) if speedup else None,
        units_advised=units_for(speedup) if speedup else None,
        drafted=int(table.drafted[ok].sum()),
        accepted=int(table.accepted[ok].sum()),
        requests_ok=len(ok),
        requests_failed=len(rows) - len(ok),
        requests_missing=None if planned is None else max(0, planned - len(np.unique(table.key[rows]))),
        kinds={
            kind: KindSummary(**_estimates(table, of_kind, base, level))
            for kind, code in table.kinds.items()
            if len(of_kind := rows[table.kind[rows] == code])
        },
        prompts=_speedups_by_prompt(table, rows, base, level) if by_prompt else None,
        **estimates,
    )


def _estimates(table: _Table, rows: Ints, base: Ints, level: float) -> dict[str, Estimate | None]:
    """The fields of `KindSummary`, from an arm's rows (all, or those of one kind) and its baseline's rows."""
    single = len(table.invocations) == 1
    unit, of = (table.cell, "blocks") if single else (table.invocation, "invocations")
    ok, decoded = rows[table.ok[rows]], rows[table.decoded[rows]]
    decode = table.parts(decoded, unit, table.tokens, table.ms)
    prompt = table.parts(ok, unit, table.prompt_n, table.prompt_ms)
    acceptance = table.parts(ok, table.prompt, table.accepted, table.drafted)
    tau = table.parts(decoded[table.forwards[decoded] > 0], table.prompt, table.tokens, table.forwards)
    pairs = _pairs(table, rows, base)
    speedup = None
    if pairs and single:
        speedup = geometric_speedup(_flat(pairs), level=level)
    elif pairs:
        speedup = speedup_over_invocations(list(pairs.values()), level=level).estimate
    return {
        "decode_rate": pooled_rate(list(starmap(Pool, decode)), of=of, level=level) if decode else None,
        "prompt_rate": pooled_rate(list(starmap(Pool, prompt)), of=of, level=level) if prompt else None,
        "speedup": speedup,
        "acceptance": pooled_ratio(acceptance, unit="1", of="prompts", ceiling=1.0, level=level)
        if acceptance
        else None,
        "tau": pooled_ratio(tau, unit="tokens/forward", of="prompts", floor=1.0, level=level) if tau else None,
    }


def _pairs(table: _Table, rows: Ints, base: Ints) -> dict[int, list[Pair]]:
    """Invocation -> (arm, baseline) of each block, over the prompts that both completed in that block.

    Prompts that the baseline lacks there and has elsewhere are completed where the others tell how.
    """
    mine = rows[table.decoded[rows]]
    rows, base = _shared(table, rows, base)
    arms = table.parts(rows, table.cell, table.tokens, table.ms)
    baselines = table.parts(base, table.cell, table.tokens, table.ms)
    added = _completed(table, mine, rows, base)
    pairs: dict[int, list[Pair]] = {}
    # All three run over the same blocks in the same order, since a shared prompt decoded something in both arms.
    for cell, arm, baseline in zip(np.unique(table.cell[rows]), arms, baselines, strict=True):
        tokens, ms, plain_ms = added.get(int(cell), (0.0, 0.0, 0.0))
        pair = Pool(arm[0] + tokens, arm[1] + ms), Pool(baseline[0] + tokens, baseline[1] + plain_ms)
        pairs.setdefault(table.cells[int(cell)][0], []).append(pair)
    return pairs


def _completed(table: _Table, mine: Ints, rows: Ints, base: Ints) -> dict[int, tuple[float, float, float]]:
    """Block -> (tokens, ms, ms of the baseline) of an arm's prompts that its baseline lacks there.

    `rows` and `base` are those that meet. The baseline's time follows from the speedup to be expected of that prompt
    in that block; blocks without any meeting, and prompts without, stay out.
    """
    alone = mine[~np.isin(table.key[mine], table.key[rows])]
    alone = alone[np.isin(table.cell[alone], table.cell[rows]) & np.isin(table.prompt[alone], table.prompt[rows])]
    if not len(alone):
        return {}
    meetings, place = np.unique(table.key[rows], return_inverse=True)
    logs = _log_rates(table, rows, place) - _log_rates(table, base, np.searchsorted(meetings, table.key[base]))
    cell, prompt = np.divmod(meetings, len(table.prompts))
    fitted = additive(logs, prompt, cell)
    if fitted is None:
        return {}
    of_prompt, of_cell = fitted
    found: dict[int, tuple[float, float, float]] = {}
    for row in alone.tolist():
        at, ms = int(table.cell[row]), float(table.ms[row])
        tokens, own, plain = found.get(at, (0.0, 0.0, 0.0))
        speedup = math.exp(of_prompt[int(table.prompt[row])] + of_cell[at])
        found[at] = tokens + float(table.tokens[row]), own + ms, plain + ms * speedup
    return found


def _shared(table: _Table, rows: Ints, base: Ints) -> tuple[Ints, Ints]:
    """The rows of an arm and of its baseline whose prompt both completed in the same block."""
    rows, base = rows[table.decoded[rows]], base[table.decoded[base]]
    mine, theirs = table.key[rows], table.key[base]
    return rows[np.isin(mine, theirs)], base[np.isin(theirs, mine)]


def _speedups_by_prompt(table: _Table, rows: Ints, base: Ints, level: float) -> dict[str, Estimate]:
    """The speedup on every prompt, with an interval over blocks, or over invocations where there are several."""
    rows, base = _shared(table, rows, base)
    if not len(rows):
        return {}
    meetings, place = np.unique(table.key[rows], return_inverse=True)
    logs = _log_rates(table, rows, place) - _log_rates(table, base, np.searchsorted(meetings, table.key[base]))
    cell, prompt = np.divmod(meetings, len(table.prompts))
    of, over = "block ratio", "blocks"
    if len(table.invocations) > 1:
        invocation = np.array([table.cells[int(number)][0] for number in cell])
        units, place = np.unique(np.stack([prompt, invocation]), axis=1, return_inverse=True)
        place = place.reshape(-1)
        logs, prompt = np.bincount(place, weights=logs) / np.bincount(place), units[0]
        of, over = "invocation", "invocations"
    found = speedups_by_group(logs, prompt, of=of, over=over, level=level)
    return {table.prompts[number]: estimate for number, estimate in found.items()}


def _log_rates(table: _Table, rows: Ints, place: Ints) -> Floats:
    """Logarithm of tokens per ms at each place, where one or more rows lie."""
    return np.log(np.bincount(place, weights=table.tokens[rows])) - np.log(np.bincount(place, weights=table.ms[rows]))


def _flat(pairs: Mapping[int, list[Pair]]) -> list[Pair]:
    return [pair for blocks in pairs.values() for pair in blocks]


def _is_choice(arm: Arm, timing_only: Collection[str]) -> bool:
    """Whether the arm is one of those from which the best is picked."""
    return arm.role == "speculative" and arm.baseline_id is not None and _cost_probe(arm, timing_only) is None


def _cost_probe(arm: Arm, timing_only: Collection[str]) -> CostProbe | None:
    if arm.synthetic_rates:
        return "synthetic acceptance"
    return "random weights" if arm.target in timing_only or arm.draft in timing_only else None
