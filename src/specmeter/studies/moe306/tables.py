"""moe-306: the paper's Tables 2 to 6, its equations beside what was measured, and its section 5.2 done right."""

from __future__ import annotations

from collections.abc import Sequence

from specmeter.numbers.estimates import exceeds, scaled
from specmeter.record import Estimate
from specmeter.studies.apple_published import raw_logs
from specmeter.studies.moe306.equations import Equations, equations, rounds, tokens_generated, traffic
from specmeter.studies.moe306.lines import (
    GAMMAS,
    LARGE,
    MOE,
    SMALL,
    SUITES,
    at,
    label,
    model,
    named,
    overall,
    refuted,
    speculative,
)
from specmeter.studies.study import ArmResult, StudyCell, StudyData, StudyTable, claimed_cell

_GB = 1e-9


def tables(data: StudyData) -> tuple[StudyTable, ...]:
    """All tables that this data fills."""
    made = (
        _models(data),
        _suites(data),
        _baselines(data),
        _speculative(data),
        _drafts(data),
        _equations(data),
        _bandwidth(data),
        _rounds(data),
        _raw_logs(data),
    )
    return tuple(table for table in made if table.rows)


# --- the paper's -----------------------------------------------------------------------------------------------------


def _models(data: StudyData) -> StudyTable:
    drafted = {line.draft for line in speculative(data, "B", "D", "E", "F")}
    targets = {line.target for line in overall(data) if line.speculates}
    return StudyTable(
        key="table-2",
        title="Table 2: models",
        about="Parameters from the files themselves where models were measured here; bytes per token are the weights "
        "that decoding one token reads, of an MoE the chosen experts only (not in the paper's table).",
        columns=("id", "model", "format", "active [1e9]", "total [1e9]", "size [GB]", "GB per token", "role"),
        rows=tuple(
            (
                _text(used.name),
                _text(used.reference),
                _text(used.quantization),
                _parameters(used.active_parameters),
                _parameters(used.parameters),
                _gigabytes(used.size_bytes),
                _gigabytes(used.bytes_per_token),
                _text(_role(used.name, drafted, targets, mixture=bool(used.experts))),
            )
            for used in data.models
        ),
    )


def _role(name: str, drafted: set[str | None], targets: set[str], *, mixture: bool) -> str:
    kind = "MoE" if mixture else "dense"
    if name in drafted:
        return "draft"
    return f"{kind} target" if name in targets else f"{kind} baseline"


def _suites(data: StudyData) -> StudyTable:
    counts: dict[str, int] = {}
    for line in overall(data):
        counts[line.suite] = counts.get(line.suite, 0) + line.requests
    rows = [(_text(name), _text(SUITES.get(name, "")), _count(counts[name])) for name in sorted(counts)]
    if rows:
        rows.append((_text("total"), _text(), _count(sum(counts.values()))))
    return StudyTable(
        key="table-3",
        title="Table 3: suites",
        about="Requests measured, warm-ups excluded.",
        columns=("suite", "what", "requests"),
        rows=tuple(rows),
    )


def _baselines(data: StudyData) -> StudyTable:
    lines = overall(data, "A", "C", "E")
    plain = [line for line in lines if not line.speculates]
    rows: list[tuple[StudyCell, ...]] = []
    for line in plain:
        used = model(data, line.target)
        rows.append(
            (
                _text(label(line.target)),
                _parameters(used.active_parameters if used else None),
                _parameters(used.parameters if used else None),
                StudyCell(value=line.decode_rate, digits=1, text="-"),
                _count(line.requests),
            )
        )
    return StudyTable(
        key="table-4",
        title="Table 4: decoding without speculation",
        about="The paper averages over prompt lengths; by default ours are over the prompts of suite B and D, within "
        "the same blocks.",
        columns=("model", "active [1e9]", "total [1e9]", "tok/s", "requests"),
        rows=tuple(rows),
        verdicts=tuple(line.of_rate for line in plain),
    )


def _speculative(data: StudyData) -> StudyTable:
    lines = (*speculative(data), *speculative(data, "E"))
    return StudyTable(
        key="table-5",
        title="Table 5: all speculative results",
        about="Speedup over plain decoding of the same target; tau is tokens per target forward (not in the paper's "
        "table). Intervals of rates and speedups are over repeats (three, or our blocks) on one set of prompts: "
        "how prompts differ is not in them. A struck number is false: impossible, or without a baseline on the same "
        "prompts in the same block.",
        columns=("target", "draft", "gamma", "tok/s", "speedup", "acceptance [%]", "tau"),
        rows=tuple(
            (
                _text(label(line.target)),
                _text(label(line.draft or line.method)),
                _count(line.gamma),
                StudyCell(value=line.decode_rate, digits=1, text="-"),
                _speedup(data, line),
                _percent(line.acceptance),
                StudyCell(value=line.tau, digits=2, text="-"),
            )
            for line in lines
        ),
        verdicts=tuple(line.of_rate for line in lines),
    )


def _drafts(data: StudyData) -> StudyTable:
    rows: list[tuple[StudyCell, ...]] = []
    for target in MOE:
        for gamma in GAMMAS:
            small, large = at(data, target, SMALL, gamma), at(data, target, LARGE, gamma)
            if small is not None and large is not None:
                rows.append(
                    (
                        _text(f"{label(target)} / gamma {gamma}"),
                        *_three(data, small),
                        *_three(data, large),
                        _text(_winner(small, large)),
                    )
                )
    small, large = label(SMALL), label(LARGE)
    return StudyTable(
        key="table-6",
        title="Table 6: the two drafts on MoE targets",
        about="The faster one is named where the two intervals do not overlap.",
        columns=(
            "target / gamma",
            *(f"{what}, draft {small}" for what in ("speedup", "acceptance [%]", "tok/s")),
            *(f"{what}, draft {large}" for what in ("speedup", "acceptance [%]", "tok/s")),
            "faster",
        ),
        rows=tuple(rows),
    )


def _three(data: StudyData, line: ArmResult) -> tuple[StudyCell, StudyCell, StudyCell]:
    return _speedup(data, line), _percent(line.acceptance), StudyCell(value=line.decode_rate, digits=1, text="-")


def _winner(small: ArmResult, large: ArmResult) -> str:
    if small.speedup is None or large.speedup is None:
        return "no valid pair"
    if exceeds(small.speedup, large.speedup):
        return label(SMALL)
    return label(LARGE) if exceeds(large.speedup, small.speedup) else "not told apart"


# --- what the paper's formulas give ----------------------------------------------------------------------------------


def _equations(data: StudyData) -> StudyTable:
    found = equations(data)
    rows = [
        (
            _text(named(row.line)),
            _percent(row.line.acceptance),
            StudyCell(value=row.alpha, digits=3),
            StudyCell(value=row.draft_cost, digits=3, text="-"),
            StudyCell(value=row.classical, digits=2, text="-"),
            StudyCell(value=row.permitted, digits=2, text="-"),
            StudyCell(value=row.claimed, digits=2, text="-", struck=not isinstance(row.claimed, Estimate)),
            StudyCell(value=row.tau, digits=2),
            StudyCell(value=max(0.0, row.rejected), digits=2),
            _speedup(data, row.line),
            StudyCell(value=row.nothing_accepted, digits=2, text="-"),
        )
        for row in found
    ]
    return StudyTable(
        key="equations",
        title="Equations 1 and 2 beside what was measured",
        about="Eq. 1: (1 - alpha^(gamma+1)) / ((1 - alpha)(gamma c + 1)), with alpha from accepted / drafted and c "
        "from target and draft each by itself; it takes verification for free. Permitted: tau / (1 + gamma c), which "
        "no speedup exceeds. Eq. 2: gamma T_seq / (T_draft + T_verify), evaluated as gamma x speedup / tau; it counts "
        "the rejected tokens of every step as produced, and times tau / gamma it is the measured speedup. The last "
        "column is what the same steps give with nothing accepted (T_seq / T_step): the paper says above 1."
        + _of_formats(found)
        + ("" if all(row.tau_measured for row in found) else " tau is the most that the acceptance permits."),
        columns=(
            "configuration",
            "acceptance [%]",
            "alpha",
            "c",
            "Eq. 1",
            "permitted",
            "Eq. 2",
            "tau",
            "rejected per step",
            "speedup",
            "with nothing accepted",
        ),
        rows=tuple(rows),
        verdicts=tuple(row.line.of_rate for row in found),
    )


def _of_formats(found: Sequence[Equations]) -> str:
    """What to mind of drafts that were measured by themselves in another number format."""
    told = dict.fromkeys(f"{label(row.line.draft or '')}: {row.format.told}" for row in found if row.format is not None)
    return "".join(f" Draft {one}." for one in told)


def _bandwidth(data: StudyData) -> StudyTable:
    found = traffic(data)
    peak = data.bandwidth_bytes_per_s
    rows = [
        (
            _text(named(row.line)),
            StudyCell(value=row.line.decode_rate, digits=1),
            StudyCell(value=row.tau, digits=2),
            _gigabytes(row.model.size_bytes),
            _gb(row.whole, struck=bool(row.model.experts)),
            _gigabytes(row.model.bytes_per_token),
            _gb(row.least),
            _gigabytes(row.bytes_most),
            _gb(row.most),
            _share(row.least, peak),
        )
        for row in found
    ]
    limit = "the machine's bandwidth is not known" if peak is None else f"the machine has {peak * _GB:.1f} GB/s"
    return StudyTable(
        key="section-5-2",
        title="Section 5.2: memory traffic, by all bytes and by those that are read",
        about="The paper multiplies the whole file with the token rate. Read are, for every forward (rate / tau of "
        "them per second), at least the weights of one token; at most those of gamma + 1 tokens whose experts are "
        f"chosen uniformly, which real text is not. {limit[:1].upper()}{limit[1:]}.",
        columns=(
            "configuration",
            "tok/s",
            "tau",
            "file [GB]",
            "whole file x rate [GB/s]",
            "read per token [GB]",
            "least traffic [GB/s]",
            "read per forward, most [GB]",
            "most traffic [GB/s]",
            "least / bandwidth [%]",
        ),
        rows=tuple(rows),
        verdicts=tuple(row.line.of_rate for row in found),
    )


def _rounds(data: StudyData) -> StudyTable:
    tokens = tokens_generated(data)
    found = rounds(data, tokens) if tokens else ()
    rows = [
        (
            _text(named(row.line)),
            StudyCell(value=row.paper_rounds, digits=0),
            StudyCell(value=row.paper_ms, digits=1, struck=True),
            StudyCell(value=row.rounds, digits=0),
            StudyCell(value=row.ms, digits=2),
            StudyCell(value=row.plain_ms, digits=2, text="-"),
        )
        for row in found
    ]
    return StudyTable(
        key="section-5-2-rounds",
        title=f"Section 5.2: how long a verification round lasts ({tokens} tokens)",
        about="The paper takes tokens / gamma rounds, as if every draft became output. A round emits tau tokens, so "
        "there are tokens / tau of them. A round drafts gamma tokens and verifies gamma + 1: it cannot be shorter than "
        "one plain token.",
        columns=(
            "configuration",
            "rounds by the paper",
            "ms per round by the paper",
            "rounds",
            "ms per round",
            "ms per plain token",
        ),
        rows=tuple(rows),
        verdicts=tuple(row.line.of_rate for row in found),
    )


def _raw_logs(data: StudyData) -> StudyTable:
    """Root cause of the document's numbers, by counting in logs of the same author."""
    logs = raw_logs() if data.origin == "published" else ()
    return StudyTable(
        key="raw-logs",
        title="What became of verifications: raw logs of the same author and program",
        about="Of this document's runs no log was published; these belong to the same author's document on Apple "
        "machines. Counts, not estimates: where a verification fails, the loop reads stale results as tokens.",
        columns=(
            "run",
            "target + draft",
            "verifications asked for",
            "took place",
            "failed",
            "tok/s printed",
            "accepted [%]",
            "words that repeat the one before [%]",
        ),
        rows=tuple(
            (
                _text(log.run),
                _text(log.models),
                _count(log.asked),
                _count(log.took_place),
                _count(log.failed),
                StudyCell(value=log.rate, digits=1),
                StudyCell(value=100 * log.acceptance, digits=1),
                StudyCell(value=100 * log.repeated, digits=0),
            )
            for log in logs
        ),
    )


# --- cells -----------------------------------------------------------------------------------------------------------


def _text(text: str = "") -> StudyCell:
    return StudyCell(text=text)


def _count(value: int | None) -> StudyCell:
    return StudyCell(value=None if value is None else float(value), digits=0, text="-")


def _number(value: float | None, factor: float, digits: int) -> StudyCell:
    return StudyCell(value=None if value is None else value * factor, digits=digits, text="-")


def _gigabytes(value: float | None) -> StudyCell:
    """Small models with more digits."""
    return _number(value, _GB, 2 if value is None or value >= 1e9 else 4)


def _parameters(value: float | None) -> StudyCell:
    """In 1e9; small models with more digits."""
    return _number(value, 1e-9, 1 if value is None or value >= 1e9 / 2 else 4)


def _percent(value: Estimate | None) -> StudyCell:
    return StudyCell(value=None if value is None else scaled(value, 100, unit="%"), digits=1, text="-")


def _speedup(data: StudyData, line: ArmResult) -> StudyCell:
    if line.speedup is not None:
        return StudyCell(value=line.speedup, digits=2)
    if line.claimed_speedup is not None:
        return claimed_cell(line)
    false = refuted(data, line)
    return StudyCell(value=false, digits=2, text="-", struck=false is not None)


def _gb(value: Estimate | None, *, struck: bool = False) -> StudyCell:
    return StudyCell(
        value=None if value is None else scaled(value, _GB, unit="GB/s"), digits=1, text="-", struck=struck
    )


def _share(value: Estimate | None, peak: float | None) -> StudyCell:
    shown = None if value is None or not peak else scaled(value, 100 / peak, unit="%")
    return StudyCell(value=shown, digits=0, text="-")
