"""What a gate says: whether head decodes as fast as base, and writes the same text.

*Rate.* Of each configuration the ratio r = rate of head / rate of base, the geometric mean over blocks with Student's
interval, as a speedup has it. With the tolerance t a configuration

    passes    if all of its interval is above 1 - t;
    fails     if all of its interval is below 1, and its point is not above 1 - t.

A loss that is shown, but is likely smaller than t, is measured further: it would be a false alarm. Gates are looked at
after `LOOKS` blocks, or when their time is over, so that intervals hold for all looks and all configurations together
(Bonferroni). The gate passes if all configurations pass, and fails if one fails.

*Text.* Greedy text of head that leaves that of base fails the gate, unless the target was undecided there. So does text
of another length.

*What neither passes nor fails.* A run whose checks find something, texts about which the target could not be asked, and
time that is over: the gate cannot tell. Other load on the machine is in the intervals, since both builds were measured
in turns: findings about it are passed over where blocks were kept that others disturbed.

How often this errs was simulated, and measured with equal builds and a planted loss (`benchmarks/gate.py`).

Source: Dunn 1961, doi:10.1080/01621459.1961.10482090 (Bonferroni's inequality).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from specmeter.analysis.gain import speedup_over_prompts
from specmeter.analysis.load.summary import LoadTable, cells_of, served
from specmeter.analysis.pairing import pair_blocks
from specmeter.analysis.requests import RequestTable
from specmeter.analysis.summary import summarize
from specmeter.gate.builds import BASE, HEAD, Pair, crossed, pairs_of, same_build
from specmeter.numbers.estimates import student_geometric
from specmeter.numbers.stats import SAME, STUDENT, simultaneous
from specmeter.record import Arm, Estimate, Finding, Record
from specmeter.validity.checks.output import length_mismatch, output_differs
from specmeter.validity.checks.run_data import read_run_data

if TYPE_CHECKING:
    from specmeter.record import Session
    from specmeter.store import RunReader

LOOKS = (5, 8, 12, 18, 27, 40)
"""Blocks after which a gate is looked at; the last are the most."""
NOISE = frozenset({"host-busy", "free-cores", "stalls", "bimodal", "baseline-unstable"})
"""Checks that find other load on the machine, and what it does to single requests."""

Ruling = Literal["pass", "fail", "cannot tell"]
Because = Literal["rate", "text", "checks", "not asked", "time", ""]


class GateRow(Record):
    """A configuration with both builds."""

    base_id: str
    head_id: str
    base_rate: Estimate | None
    """tok/s."""
    head_rate: Estimate | None
    rate: Estimate | None
    """Rate of head / rate of base; its interval holds for all configurations and looks of the gate."""
    ratios: tuple[float, ...]
    """The same of each block."""
    accepted: Estimate | None
    """Accepted length (tokens per forward pass of the target) of head / that of base, over prompts; without an interval
    for fewer than four prompts. None without speculation, and where the engine counts too little."""
    base_accepted: Estimate | None
    """Tokens per forward pass of the target."""
    head_accepted: Estimate | None
    base_memory_bytes: int | None
    """Most resident memory of a server, the median over blocks; None where the machine does not tell."""
    head_memory_bytes: int | None
    texts: int
    """Texts of head that were compared; 0 if texts are sampled, or the engine sends no token ids."""
    near_ties: int
    """Texts that differ where the target was undecided."""
    other_texts: int
    """Texts that differ where the target was sure, or in length, and not with base as well."""
    not_asked: int
    """Texts that differ in a place about which the target could not be asked."""
    ruling: Ruling
    """By the rate alone."""


class Gate(Record):
    """What a gate found."""

    base: str
    """The build as it was named."""
    head: str
    engine: str
    """What both builds say that they are."""
    same_build: bool
    """Whether both have the same bytes."""
    tolerance: float
    blocks: int
    looks: int
    """Looks and configurations for which the intervals hold."""
    seconds: float
    """Time of all servers together."""
    rows: tuple[GateRow, ...]
    findings: tuple[str, ...] = ()
    """Checks that find something, of noise only where blocks count that others disturbed."""
    noise: tuple[str, ...] = ()
    """Checks that find other load, which is in the intervals."""
    ruling: Ruling = "cannot tell"
    because: Because = "time"
    folder: str = ""
    asked: Annotated[tuple[Arm, ...], Field(exclude=True)] = ()
    """The arms of base."""

    @property
    def undecided(self) -> bool:
        """Whether more blocks may decide."""
        return (self.ruling, self.because) == ("cannot tell", "time")


def ratio_of(ratios: Sequence[float], among: int) -> Estimate:
    """The ratio of all blocks, with an interval that holds for all looks and `among` configurations."""
    how = f"geometric mean of {len(ratios)} block ratios"
    alone, logs = f"{how}; no interval", np.log(np.array(ratios, dtype=np.float64))
    estimate = student_geometric(logs, "x", f"{how}; {STUDENT}blocks", alone=alone, of="blocks")
    return simultaneous(estimate, among * len(LOOKS))


def ruled(ratio: Estimate | None, tolerance: float) -> Ruling:
    """What a ratio of rates says by its interval."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return "cannot tell"
    if ratio.low > 1 - tolerance:
        return "pass"
    return "fail" if ratio.high < 1 and ratio.point <= 1 - tolerance else "cannot tell"


def read_gate(
    store: RunReader, named: Mapping[str, str], tolerance: float, findings: Sequence[Finding] | None = None
) -> Gate:
    """What a run says; `named` are base and head, `findings` those of its checks, None before they looked. Raises
    `StoreError`."""
    arms = list(store.arms())
    pairs = pairs_of(arms)
    sessions = list(store.sessions())
    summaries = {it.arm_id: it for it in summarize(store.rows(), arms, cells=LoadTable(cells_of(store))).arms}
    ratios = _ratios(store, pairs)
    memory, texts = _memory(store, sessions), _texts(store, arms)
    rows: list[GateRow] = []
    for pair in pairs:
        base, head = (summaries[it.id] for it in pair)
        each, told = ratios.get(pair.head.id, ()), texts.get(pair.head.id, {})
        ratio = ratio_of(each, len(pairs)) if each else None
        excused = texts.get(pair.base.id, {}).get("real", 0)
        row = GateRow(
            base_id=pair.base.id,
            head_id=pair.head.id,
            base_rate=base.decode_rate,
            head_rate=head.decode_rate,
            rate=ratio,
            ratios=each,
            accepted=_accepted(store, pair) if pair.head.speculates else None,
            base_accepted=base.tau if pair.base.speculates else None,
            head_accepted=head.tau if pair.head.speculates else None,
            base_memory_bytes=memory.get(pair.base.id),
            head_memory_bytes=memory.get(pair.head.id),
            texts=told.get("compared", 0),
            near_ties=told.get("near", 0),
            other_texts=0 if excused else told.get("real", 0),
            not_asked=told.get("not asked", 0),
            ruling=ruled(ratio, tolerance),
        )
        rows.append(row)
    blocks = len({(row.invocation, row.block) for row in store.rows()})
    engine = sessions[0].engine if sessions else None
    found = [it for it in findings or () if it.severity != "note"]
    kept = store.experiment().design.disturbed == "keep"
    noise = tuple(dict.fromkeys(it.check for it in found if kept and it.check in NOISE))
    gate = Gate(
        base=named[BASE],
        head=named[HEAD],
        engine=engine.version if engine else "",
        same_build=engine is not None and same_build({engine.binary: engine.binary_sha256, **engine.libraries}),
        tolerance=tolerance,
        blocks=blocks,
        looks=len(LOOKS),
        seconds=spent_s(sessions),
        rows=tuple(rows),
        findings=tuple(dict.fromkeys(it.check for it in found if it.check not in noise)),
        noise=noise,
        folder=str(store.folder),
        asked=tuple(base for base, _ in pairs),
    )
    heads = {pair.head.id for pair in pairs}
    ruling, because = _ruled(gate, invalid=any(it.severity == "invalid" and it.arm_id not in heads for it in found))
    return gate.model_copy(update={"ruling": ruling, "because": because})


def _ruled(gate: Gate, *, invalid: bool) -> tuple[Ruling, Because]:
    """`invalid`: something else than head alone. Head may be slower because of what makes it invalid, such as
    speculation that it left off."""
    if any(row.other_texts for row in gate.rows):
        return "fail", "text"
    if invalid:
        return "cannot tell", "checks"
    if any(row.ruling == "fail" for row in gate.rows):
        return "fail", "rate"
    if gate.findings:
        return "cannot tell", "checks"
    if not gate.rows or any(row.ruling != "pass" for row in gate.rows):
        return "cannot tell", "time"
    if any(row.not_asked for row in gate.rows):
        return "cannot tell", "not asked"
    return "pass", ""


def spent_s(sessions: Sequence[Session]) -> float:
    """Seconds that servers were busy, from the start of each to its end."""
    return sum((it.ended_at or it.started_at) - it.started_at for it in sessions)


def _ratios(store: RunReader, pairs: Sequence[Pair]) -> dict[str, tuple[float, ...]]:
    """Arm of head -> its rate over that of base in each block."""
    ids = {arm.id: number for number, arm in enumerate(store.arms())}
    table, cells = RequestTable(store.rows(), ids), LoadTable(cells_of(store))
    found: dict[str, tuple[float, ...]] = {}
    for base, head in pairs:
        if head.load is None:
            met = pair_blocks(table, table.of_arm(ids[head.id]), table.of_arm(ids[base.id]))
            both = met.pairs() if met else {}
        else:
            both = cells.pairs(head.id, base.id, served(head.load))
        found[head.id] = tuple(mine.rate / other.rate for blocks in both.values() for mine, other in blocks)
    return found


def _accepted(store: RunReader, pair: Pair) -> Estimate | None:
    taus: dict[tuple[int, str], dict[str, float]] = {}
    for row in store.rows():
        if row.arm_id in (pair.base.id, pair.head.id) and row.target_forwards and (row.predicted_n or 0) > 1:
            of_both = taus.setdefault((row.block, row.prompt_id), {})
            of_both[row.arm_id] = math.log(((row.predicted_n or 0) - 1) / row.target_forwards)
    logs = {key: it[pair.head.id] - it[pair.base.id] for key, it in taus.items() if len(it) == 2}
    if not logs:
        return None
    mean = math.exp(sum(logs.values()) / len(logs))
    alone = Estimate(point=mean, level=0.95, n=len({it for _, it in logs}), of="prompts", unit="x", method="mean")
    if all(abs(it) <= SAME for it in logs.values()):
        return alone.model_copy(update={"low": mean, "high": mean, "method": "the same in every request"})
    prompts = dict.fromkeys(prompt for _, prompt in logs)
    blocks = [[logs[block, it] for it in prompts if (block, it) in logs] for block in {block for block, _ in logs}]
    whole = np.array([it for it in blocks if len(it) == len(prompts)], dtype=np.float64).reshape(-1, len(prompts))
    return speedup_over_prompts(whole) or alone


def _memory(store: RunReader, sessions: Sequence[Session]) -> dict[str, int]:
    """Arm -> the most resident memory of a server, the median of its sessions."""
    samples = [(it.at, it.engine_rss_bytes) for it in store.telemetry() if it.engine_rss_bytes]
    most: dict[str, list[int]] = {}
    for session in sessions:
        ended_at = session.ended_at or session.started_at
        if own := [size for at, size in samples if session.started_at <= at <= ended_at]:
            most.setdefault(session.arm_id, []).append(max(own))
    return {arm_id: int(median(sizes)) for arm_id, sizes in most.items()}


def _texts(store: RunReader, arms: Sequence[Arm]) -> dict[str, dict[str, int]]:
    """Arm -> how many of its texts were compared, and what the checks of texts say of those that differ."""
    data = read_run_data(store, crossed(arms))
    found: dict[str, dict[str, int]] = {}
    for arm in data.arms.values():
        there = sum(bool(it.output and base.output) for it, base in data.beside_baseline.get(arm.id, ()))
        found[arm.id] = {"compared": there if data.experiment.generation.temperature == 0 else 0}
    counts = {"real": "real", "near": "near_ties", "not asked": "not_asked"}
    for look, names in ((output_differs, counts), (length_mismatch, {"real": "differ"})):
        for it in look(data) if data.experiment.generation.temperature == 0 else ():
            if isinstance(it, Finding) and it.arm_id is not None:
                told = found[it.arm_id]
                told |= {name: told.get(name, 0) + int(str(it.evidence[key])) for name, key in names.items()}
    return found
