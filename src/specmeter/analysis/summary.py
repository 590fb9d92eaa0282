"""Summarizes a run's requests for each arm, for the whole run and for every kind of text.

Rates and speedups have intervals over blocks (over invocations if there are several), speedups over the same prompts on
both sides (`pairing`); acceptance and tau have them over prompts, since greedy text repeats itself (`shares`). Where
the best of several arms is picked, their intervals hold together (`family`).

Of arms under load the cells are the units, and the speedup is made of them (`load.summary`); acceptance and tau are
those of their requests, a prompt that is repeated counting as one.

Failed requests count as failed and enter nothing else. Controls never stand among results. If acceptance is synthetic
or weights are random, `cost_probe` says so: such a speedup tells what steps cost, not what a text gains.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import starmap
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from specmeter.analysis.consumption import Consumption, Energies, consumption
from specmeter.analysis.family import Family, families
from specmeter.analysis.gain import Gain, gain_of, speedup_of
from specmeter.analysis.load.summary import LoadSummary, LoadTable, served
from specmeter.analysis.pairing import pair_blocks
from specmeter.analysis.requests import RequestTable, distinct
from specmeter.analysis.stalls import Stalls, find_stalls
from specmeter.errors import UsageError
from specmeter.experiments.schedule import Balance, achieved_balance
from specmeter.numbers.margin import MarginTest, compare, units_for
from specmeter.numbers.stats import (
    Pool,
    bootstrap_speedup,
    over_prompts,
    pooled_rate,
    simultaneous,
    speedup_over_invocations,
    speedups_by_group,
)
from specmeter.record import Arm, Estimate, Record

if TYPE_CHECKING:
    from specmeter.analysis.pairing import PairedBlocks
    from specmeter.numbers.stats import Ints
    from specmeter.store import RequestRow
    from specmeter.store.columns import RequestColumns


CostProbe = Literal["synthetic acceptance", "random weights"]


class Choice(Record):
    """An arm among those from which the best is picked: all that ran the same prompts, on these prompts."""

    compared: int
    """How many arms compete, this one included."""
    gain: Gain
    """On the prompts that all of them completed."""
    simultaneous: Estimate
    """The speedup with an interval that holds for all of them together."""

    @property
    def speedup(self) -> Estimate:
        """With the arm's own interval."""
        return self.gain.decoding


class KindSummary(Record):
    """An arm on one prompt type, or on all."""

    decode_rate: Estimate | None
    """Tokens per second while decoding; under load per client (`load` has the throughput)."""
    prompt_rate: Estimate | None
    """Prompt tokens per second."""
    speedup: Estimate | None
    """Decode rate relative to the baseline; under load: total tokens per second, or time per output token (open
    loop). None for baselines and where no block holds both, and for one of several kinds under load."""
    gain: Gain | None
    """The same speedup in other ways: including prompts, by total time, over prompts."""
    choice: Choice | None
    """Results as a candidate; None for baselines, controls, cost probes, arms with missing prompts, and arms that
    drafted nothing."""
    left_out: int
    """Prompts that do not count because the arm or its baseline never completed them."""
    never_completed: int
    """Prompts that the arm itself never completed."""
    acceptance: Estimate | None
    """Accepted / draft tokens, interval over prompts; None if nothing was drafted."""
    tau: Estimate | None
    """Tokens per forward pass of the target, interval over prompts."""


class ArmSummary(KindSummary):
    """Results of an arm over the whole run."""

    arm_id: str
    role: Literal["baseline", "speculative", "control"]
    """A control tests the measurement itself and is never a result."""
    baseline_id: str | None
    """Id of its baseline; None for baselines."""
    cost_probe: CostProbe | None
    """Why the speedup is only a cost probe; None for a real speedup."""
    speedup_bootstrap: Estimate | None
    """Bootstrap interval over the blocks of a single invocation; None if prompts were filled in."""
    speedup_range: tuple[float, float] | None
    """Lowest and highest speedup of an invocation; None if there is only one."""
    comparison: MarginTest | None
    """Test of a difference of 2% with the arm's own interval."""
    units_advised: int | None
    """Blocks (or invocations) needed for an interval of ±2%; at least the current number; None without an interval."""
    drafted: int | None
    """Draft tokens in all answered requests; None if the engine does not count them."""
    accepted: int | None
    """Accepted draft tokens; None if the engine does not count them."""
    requests_ok: int
    """Answered requests."""
    requests_failed: int
    """Requests whose last attempt failed."""
    requests_missing: int | None
    """Planned requests still missing; None if the plan is unknown."""
    stalls: Stalls | None
    """Stalled requests; None if none were seen."""
    kinds: dict[str, KindSummary]
    """Prompt type -> the same for this prompt type."""
    prompts: dict[str, Estimate] | None
    """Prompt id -> its speedup; None unless requested."""
    energy: Consumption | None = None
    """Energy per token; None if not measured."""
    load: Annotated[LoadSummary | None, Field(exclude_if=lambda value: value is None)] = None
    """Results under load; None without load."""


class RunSummary(Record):
    """Results of a run."""

    arms: tuple[ArmSummary, ...]
    """Baselines and speculating arms, in order."""
    controls: tuple[ArmSummary, ...]
    """Arms that test the measurement itself; never results."""
    invocations: int
    blocks: int
    """Blocks per invocation (maximum)."""
    prompts: int
    requests_ok: int
    requests_failed: int
    requests_missing: int | None
    complete: bool | None
    """Whether every planned request succeeded; None if the plan is unknown."""
    balance: Balance
    """Balance of the order in which arms ran."""


def summarize(
    rows: Iterable[RequestRow] | RequestColumns,
    arms: Sequence[Arm],
    *,
    timing_only: Collection[str] = (),
    planned: Mapping[str, int] | None = None,
    level: float = 0.95,
    by_prompt: bool = False,
    energies: Energies | None = None,
    cells: LoadTable | None = None,
    repeats: Mapping[str, str] | None = None,
) -> RunSummary:
    """Summarise a run.

    `timing_only` names the models of the experiment that have random weights; `planned` gives for each arm the number
    of requests that makes it complete; `by_prompt` asks for the speedup on every prompt; `energies` is what was read of
    the machine's energy; `cells` are those under load, and `repeats` says which prompts repeat which there. Raises
    `UsageError` for a request of an unknown arm, and for an arm whose baseline is not among `arms`.
    """
    ids = {arm.id: index for index, arm in enumerate(arms)}
    for arm in arms:
        if arm.baseline_id is not None and arm.baseline_id not in ids:
            raise UsageError(
                f"arm {arm.id}: its baseline {arm.baseline_id!r} is not in the run", fix="measure the baseline as well"
            )
    table = RequestTable(rows, ids, energies.by_key if energies else None, repeats)
    cells = cells or LoadTable(())
    choices = _that_drafted([arm for arm in arms if _is_choice(arm, timing_only)], table, ids)
    alone = [arm for arm in choices if arm.load is None]
    competing = families(table, [(ids[arm.id], ids[arm.baseline_id or ""]) for arm in alone])
    rivals = Counter(
        arm.baseline_id or ""
        for arm in choices
        if arm.load and arm.baseline_id and cells.pairs(arm.id, arm.baseline_id, served(arm.load))
    )
    among = {arm.id: rivals[arm.baseline_id or ""] for arm in choices if arm.load is not None}
    summaries = [
        _summarize_arm(
            table,
            arm,
            ids,
            competing,
            cells,
            among=among.get(arm.id, 0),
            cost_probe=_cost_probe(arm, timing_only),
            planned=None if planned is None else planned.get(arm.id, 0),
            level=level,
            by_prompt=by_prompt,
            energies=energies,
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


def interim(rows: Iterable[RequestRow], arms: Sequence[Arm]) -> dict[str, tuple[float | None, Estimate | None]]:
    """Arm -> (decode rate in tok/s, speedup) on the way: a small part of what `summarize` does, and the same numbers.
    Speedups of arms under load are not among them. Raises `UsageError` for a request of an unknown arm."""
    ids = {arm.id: index for index, arm in enumerate(arms)}
    table = RequestTable(rows, ids)
    found: dict[str, tuple[float | None, Estimate | None]] = {}
    for arm in arms:
        mine = table.of_arm(ids[arm.id])
        decoded = mine[table.decoded[mine]]
        ms = float(table.ms[decoded].sum())
        rate = 1000 * float(table.tokens[decoded].sum()) / ms if ms else None
        base = table.of_arm(ids[arm.baseline_id]) if arm.baseline_id in ids and arm.load is None else mine[:0]
        met = pair_blocks(table, mine, base)
        pairs = met.pairs() if met else {}
        speedup = speedup_of(pairs, several=len(table.invocations) > 1, level=0.95) if pairs else None
        found[arm.id] = rate, met.doubted(speedup) if met and speedup else None
    return found


def _summarize_arm(
    table: RequestTable,
    arm: Arm,
    ids: Mapping[str, int],
    competing: Mapping[tuple[int, int | None], Family],
    cells: LoadTable,
    *,
    among: int,
    cost_probe: CostProbe | None,
    planned: int | None,
    level: float,
    by_prompt: bool,
    energies: Energies | None,
) -> ArmSummary:
    number = ids[arm.id]
    rows = table.of_arm(number)
    # Under load requests share the machine: cells meet, and not prompts.
    base = table.of_arm(ids[arm.baseline_id]) if arm.baseline_id is not None and arm.load is None else rows[:0]
    ok = rows[table.ok[rows]]
    met = pair_blocks(table, rows, base)
    pairs = met.pairs() if met else {}
    estimates = _estimates(table, rows, base, met, competing.get((number, None)), arm.gamma, level)
    if arm.load is not None:
        pairs = cells.pairs(arm.id, arm.baseline_id, served(arm.load)) if arm.baseline_id else {}
        estimates = _under_load(estimates, cells, arm, len(distinct(table.prompt[rows])), among, level)
    single = len(table.invocations) == 1
    across = speedup_over_invocations(list(pairs.values()), level=level) if pairs and not single else None
    speedup = estimates.speedup
    return ArmSummary(
        **{name: getattr(estimates, name) for name in KindSummary.model_fields},
        arm_id=arm.id,
        role=arm.role,
        baseline_id=arm.baseline_id,
        cost_probe=cost_probe,
        speedup_bootstrap=bootstrap_speedup([pair for blocks in pairs.values() for pair in blocks], level=level)
        if pairs and single and not (met and met.completed)
        else None,
        speedup_range=(across.lowest, across.highest) if across else None,
        comparison=compare(speedup) if speedup else None,
        units_advised=units_for(speedup) if speedup else None,
        drafted=None if number in table.uncounted else int(table.drafted[ok].sum()),
        accepted=None if number in table.uncounted else int(table.accepted[ok].sum()),
        requests_ok=len(ok),
        requests_failed=len(rows) - len(ok),
        requests_missing=None if planned is None else max(0, planned - _distinct(table, rows, arm)),
        stalls=find_stalls(table, rows) if arm.load is None else None,
        kinds={
            kind: _estimates(
                table,
                of_kind,
                base,
                met if len(of_kind) == len(rows) else pair_blocks(table, of_kind, base),
                competing.get((number, code)),
                arm.gamma,
                level,
            )
            for kind, code in table.kinds.items()
            if len(of_kind := rows[table.kind[rows] == code])
        },
        prompts=_speedups_by_prompt(table, rows, base, level) if by_prompt and arm.load is None else None,
        energy=consumption(
            table, energies, (arm.id, rows), (arm.baseline_id, base) if arm.baseline_id is not None else None, level
        )
        if energies and arm.load is None
        else None,
        load=cells.summary(arm.id, arm.load, level=level) if arm.load else None,
    )


def _distinct(table: RequestTable, rows: Ints, arm: Arm) -> int:
    """Requests that were asked for, those that repeat a prompt under load included."""
    return len(rows) if arm.load is not None else len(distinct(table.key[rows]))


def _under_load(
    estimates: KindSummary, cells: LoadTable, arm: Arm, prompts: int, among: int, level: float
) -> KindSummary:
    """What requests say about an arm, with the speedup that its cells say; `among` this many arms at its load
    compete."""
    if arm.load is None or arm.baseline_id is None:
        return estimates
    gain, choice = cells.gain(arm.id, arm.baseline_id, arm.load, prompts, level=level), None
    if gain is not None and among:
        chosen = cells.gain(arm.id, arm.baseline_id, arm.load, prompts, level=level, among=among) or gain
        choice = Choice(compared=among, gain=chosen, simultaneous=simultaneous(chosen.decoding, among))
    speedup = gain.decoding if gain else None
    return estimates.model_copy(update={"speedup": speedup, "gain": gain, "choice": choice})


def _estimates(
    table: RequestTable,
    rows: Ints,
    base: Ints,
    met: PairedBlocks | None,
    family: Family | None,
    gamma: int | None,
    level: float,
) -> KindSummary:
    """What an arm's rows (all, or those of one kind) say, and where they met its baseline's rows."""
    several = len(table.invocations) > 1
    unit, of = (table.invocation, "invocations") if several else (table.cell, "blocks")
    ok, decoded = rows[table.ok[rows]], rows[table.decoded[rows]]
    decode = table.parts(decoded, unit, table.tokens, table.ms)
    prompt = table.parts(ok, unit, table.prompt_n, table.prompt_ms)
    acceptance = table.parts(ok, table.prompt, table.accepted, table.drafted)
    tau = table.parts(decoded[table.forwards[decoded] > 0], table.prompt, table.tokens, table.forwards)
    gain = gain_of(met, several=several, level=level) if met else None
    choice = None
    if met is not None and family is not None:
        fewer = (
            pair_blocks(table, rows, base, family.prompts) if not np.isin(met.prompts, family.prompts).all() else met
        )
        chosen = gain_of(fewer or met, several=several, level=level, among=family.compared)
        choice = Choice(
            compared=family.compared, gain=chosen, simultaneous=simultaneous(chosen.decoding, family.compared)
        )
    asked = distinct(table.prompt[rows])
    most = math.inf if gamma is None else gamma + 1.0
    return KindSummary(
        decode_rate=pooled_rate(list(starmap(Pool, decode)), of=of, level=level) if decode else None,
        prompt_rate=pooled_rate(list(starmap(Pool, prompt)), of=of, level=level) if prompt else None,
        speedup=gain.decoding if gain else None,
        gain=gain,
        choice=choice,
        left_out=len(asked) - (gain.prompts if gain else 0) if len(base) else 0,
        never_completed=len(np.setdiff1d(asked, distinct(table.prompt[decoded]), assume_unique=True)),
        acceptance=over_prompts(acceptance, unit="1", ceiling=1.0, level=level) if acceptance else None,
        tau=over_prompts(tau, unit="tokens/forward", floor=1.0, ceiling=most, level=level) if tau else None,
    )


def _speedups_by_prompt(table: RequestTable, rows: Ints, base: Ints, level: float) -> dict[str, Estimate]:
    """The speedup on every prompt, with an interval over blocks, or over invocations where there are several."""
    met = pair_blocks(table, rows, base)
    if met is None:
        return {}
    cell, prompt = np.nonzero(np.isfinite(met.seen))
    logs = met.seen[cell, prompt]
    of, over = "block ratio", "blocks"
    if len(table.invocations) > 1:
        units, place = np.unique(np.stack([prompt, met.invocations[cell]]), axis=1, return_inverse=True)
        place = place.reshape(-1)
        logs, prompt = np.bincount(place, weights=logs) / np.bincount(place), units[0]
        of, over = "invocation", "invocations"
    found = speedups_by_group(logs, prompt, of=of, over=over, level=level)
    return {table.prompts[int(met.prompts[number])]: estimate for number, estimate in found.items()}


def _is_choice(arm: Arm, timing_only: Collection[str]) -> bool:
    """Whether the arm is one of those from which the best is picked."""
    return arm.role == "speculative" and arm.baseline_id is not None and _cost_probe(arm, timing_only) is None


def _that_drafted(choices: Sequence[Arm], table: RequestTable, ids: Mapping[str, int]) -> list[Arm]:
    """Without arms that drafted nothing at all: such an arm is its baseline under another name. Where no arm of a
    baseline drafted anything, all of them stay, for the answer to say so."""
    drafting = {
        arm.id for arm in choices if ids[arm.id] in table.uncounted or table.drafted[table.of_arm(ids[arm.id])].any()
    }
    rivals = {arm.baseline_id for arm in choices if arm.id in drafting}
    return [arm for arm in choices if arm.id in drafting or arm.baseline_id not in rivals]


def _cost_probe(arm: Arm, timing_only: Collection[str]) -> CostProbe | None:
    if arm.synthetic_rates:
        return "synthetic acceptance"
    return "random weights" if arm.target in timing_only or arm.draft in timing_only else None
