"""What a gate says: whether head decodes as fast as base, and writes the same text.

A configuration passes if the whole interval of its rate with head / with base is above 1 - tolerance. It fails if the
whole interval is below 1, and the ratio at most 1 - tolerance. So a smaller loss that is certain fails at times, where
an interval below 1 - tolerance would take several times the blocks. Intervals hold for all configurations and looks
(Bonferroni). `benchmarks/gate.py` measures how often this errs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from specmeter.analysis.load.summary import LoadTable, cells_of, served
from specmeter.analysis.pairing import pair_blocks
from specmeter.analysis.requests import RequestTable
from specmeter.analysis.summary import summarize
from specmeter.gate.builds import BASE, HEAD, crossed, pairs_of, same_build
from specmeter.numbers.estimates import student_geometric
from specmeter.numbers.stats import STUDENT, simultaneous
from specmeter.record import Arm, Estimate, Finding, Record
from specmeter.validity.checks.output import length_mismatch, output_differs
from specmeter.validity.checks.run_data import read_run_data

if TYPE_CHECKING:
    from specmeter.record import Session
    from specmeter.store import RunReader

LOOKS = (5, 8, 12, 18, 27, 40, 60, 90)
"""Blocks after which a gate is looked at; the last are the most."""
LEAST_BLOCKS = 3
"""With fewer there is no interval: that of two blocks is too wide to say anything."""
NOISE = frozenset({"host-busy", "free-cores", "stalls", "bimodal", "baseline-unstable"})
"""Checks of other load on the machine, which is in the intervals."""

Ruling = Literal["pass", "fail", "cannot tell"]


class GateRow(Record):
    """A configuration with both builds; pairs are base and head."""

    arm_id: str
    """That of base."""
    rates: tuple[Estimate | None, Estimate | None]
    """tok/s."""
    ratio: Estimate | None
    """Head / base; the interval holds for all configurations and looks."""
    ratios: tuple[float, ...]
    """The same of each block."""
    lengths: tuple[Estimate | None, Estimate | None]
    """tau: tokens per forward pass of the target; intervals are over prompts."""
    memory_bytes: tuple[int | None, int | None]
    """The most resident memory of a server, median over blocks."""
    texts: int
    """Greedy texts of head that were compared."""
    near_ties: int
    """Those that differ where the target was undecided."""
    other_texts: int
    """Those that differ elsewhere or in length, if base is not in doubt itself."""
    not_asked: int
    """Those that differ in a place about which the target could not be asked."""
    ruling: Ruling
    """By the ratio alone."""


class Gate(Record):
    """What a gate found."""

    base: str
    """The build as it was named."""
    head: str
    engine: str
    """What both builds call themselves."""
    simulated: bool
    """Whether the mock engine ran."""
    same_build: bool
    """Whether both have the same bytes."""
    tolerance: float
    blocks: int
    seconds: float
    """Time of all servers."""
    rows: tuple[GateRow, ...]
    findings: tuple[str, ...] = ()
    """Checks that find something besides noise that is accepted."""
    noise: tuple[str, ...] = ()
    """Checks that find noise that is accepted."""
    ruling: Ruling = "cannot tell"
    because: Literal["rate", "text", "checks", "not asked", "time", ""] = "time"
    folder: str = ""
    asked: Annotated[tuple[Arm, ...], Field(exclude=True)] = ()
    """The arms of base."""


def ratio_of(ratios: Sequence[float], among: int) -> Estimate:
    """The ratio of all blocks, with an interval that holds for all looks and `among` configurations."""
    how = f"geometric mean of {len(ratios)} block ratios"
    logs = np.log(np.array(ratios, dtype=np.float64))
    found = student_geometric(logs, "x", f"{how}; {STUDENT}blocks", alone=f"{how}; no interval", of="blocks")
    if len(ratios) < LEAST_BLOCKS:
        return found.model_copy(update={"low": None, "high": None})
    return simultaneous(found, among * len(LOOKS))


def ruled(ratio: Estimate | None, tolerance: float) -> Ruling:
    """What a ratio says by its interval."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return "cannot tell"
    if ratio.low > 1 - tolerance:
        return "pass"
    return "fail" if ratio.high < 1 and ratio.point <= 1 - tolerance else "cannot tell"


def read_gate(store: RunReader, named: Mapping[str, str], tolerance: float, findings: Sequence[Finding] = ()) -> Gate:
    """What a run of `named` base and head says; `findings` are those of its checks. Raises `StoreError`."""
    arms, sessions, requests = list(store.arms()), list(store.sessions()), list(store.rows())
    pairs, cells = pairs_of(arms), LoadTable(cells_of(store))
    ids = {arm.id: number for number, arm in enumerate(arms)}
    table, memory, texts = RequestTable(requests, ids), _memory(store, sessions), _texts(store, arms)
    summaries = {it.arm_id: it for it in summarize(requests, arms, cells=cells).arms}
    rows: list[GateRow] = []
    for base, head in pairs:
        met = pair_blocks(table, table.of_arm(ids[head.id]), table.of_arm(ids[base.id]))
        alone = met.pairs() if met else {}
        both = alone if head.load is None else cells.pairs(head.id, base.id, served(head.load))
        ratios = tuple(mine.rate / other.rate for blocks in both.values() for mine, other in blocks)
        of_base, of_head = summaries[base.id], summaries[head.id]
        ratio, told = ratio_of(ratios, len(pairs)) if ratios else None, texts[head.id]
        row = GateRow(
            arm_id=base.id,
            rates=(of_base.decode_rate, of_head.decode_rate),
            ratio=ratio,
            ratios=ratios,
            lengths=(of_base.tau, of_head.tau) if head.speculates else (None, None),
            memory_bytes=(memory.get(base.id), memory.get(head.id)),
            texts=told["texts"],
            near_ties=told["near_ties"],
            other_texts=0 if texts[base.id]["real"] else told["real"],
            not_asked=told["not_asked"],
            ruling=ruled(ratio, tolerance),
        )
        rows.append(row)
    engine, found = sessions[0].engine, [it for it in findings if it.severity != "note"]
    accepted = NOISE if store.experiment().design.disturbed == "keep" else frozenset[str]()
    gate = Gate(
        base=named[BASE],
        head=named[HEAD],
        engine=engine.version,
        simulated=engine.kind == "mock",
        same_build=same_build({engine.binary: engine.binary_sha256, **engine.libraries}),
        tolerance=tolerance,
        blocks=len({(it.invocation, it.block) for it in requests}),
        seconds=spent_s(sessions),
        rows=tuple(rows),
        findings=tuple(dict.fromkeys(it.check for it in found if it.check not in accepted)),
        noise=tuple(dict.fromkeys(it.check for it in found if it.check in accepted)),
        folder=str(store.folder),
        asked=tuple(base for base, _ in pairs),
    )
    # Head may be slower because of what makes it invalid, such as speculation that it left off.
    invalid = {it.arm_id for it in found if it.severity == "invalid"} - {head.id for _, head in pairs}
    each = {row.ruling for row in rows}
    if any(row.other_texts for row in rows):
        decided = {"ruling": "fail", "because": "text"}
    elif "fail" in each and not invalid:
        decided = {"ruling": "fail", "because": "rate"}
    elif gate.findings:
        decided = {"because": "checks"}
    elif each == {"pass"}:
        asked = not any(row.not_asked for row in rows)
        decided = {"ruling": "pass", "because": ""} if asked else {"because": "not asked"}
    else:
        decided = {}
    return gate.model_copy(update=decided)


def spent_s(sessions: Sequence[Session]) -> float:
    """Seconds from the start of each server to its end."""
    return sum((it.ended_at or it.started_at) - it.started_at for it in sessions)


def _memory(store: RunReader, sessions: Sequence[Session]) -> dict[str, int]:
    if store.traits().asked:  # of servers that run, all are watched together
        return {}
    samples = [(it.at, it.engine_rss_bytes) for it in store.telemetry() if it.engine_rss_bytes]
    most: dict[str, list[int]] = {}
    for it in sessions:
        if own := [size for at, size in samples if it.started_at <= at <= (it.ended_at or it.started_at)]:
            most.setdefault(it.arm_id, []).append(max(own))
    return {arm_id: int(median(sizes)) for arm_id, sizes in most.items()}


def _texts(store: RunReader, arms: Sequence[Arm]) -> dict[str, dict[str, int]]:
    """Arm -> what the checks say of its texts, with those of head held against those of base."""
    data = read_run_data(store, crossed(arms))
    nothing: dict[str, int] = {"texts": 0, "near_ties": 0, "real": 0, "not_asked": 0}
    found = {arm_id: dict(nothing) for arm_id in data.arms}
    if data.experiment.generation.temperature > 0:
        return found
    for arm_id, pairs in data.beside_baseline.items():
        found[arm_id]["texts"] = int((~pairs.own.where("output", b"") & ~pairs.base.where("output", b"")).sum())
    for it in (*output_differs(data), *length_mismatch(data)):
        if isinstance(it, Finding) and it.arm_id is not None:
            told = it.evidence if "real" in it.evidence else {"real": it.evidence["differ"]}
            for name in found[it.arm_id].keys() & told.keys():
                found[it.arm_id][name] += int(str(told[name]))
    return found
