"""rtx3090-19: the summary in the columns of the document's CSV, its controls, and what the mechanism permits."""

from __future__ import annotations

from specmeter.record import Estimate
from specmeter.studies.rtx3090.lines import F16, LONGER, OTHER_VOCABULARY, RERUNS, Line, Lines, lines, ratio
from specmeter.studies.rtx3090.mechanism import budget, gamma, saturation
from specmeter.studies.study import StudyCell, StudyData, StudyTable
from specmeter.theory.experts import expected_union

_NONE = StudyCell(text="-")


def tables(data: StudyData) -> tuple[StudyTable, ...]:
    """All tables that this data fills."""
    known = lines(data)
    made = (_summary(known), _controls(known), _saturation(data, known), _requests(known))
    return tuple(table for table in made if table.rows)


def _summary(known: Lines) -> StudyTable:
    shown = sorted(
        (line for line in known.values() if line.sums is not None), key=lambda it: it.sums.mean_rate if it.sums else 0.0
    )[::-1]
    return StudyTable(
        key="summary",
        title="Summary of all configurations, by request mean",
        about="Columns of the document's summary CSV; ratio, its interval and the verdict are added. The pooled rate "
        "is all tokens over all time; a mean of rates counts a fast request as much as a slow one.",
        columns=(
            *("config", "max_tokens", "requests", "reference", "request_mean_tok_s", "request_mean_delta_pct"),
            *("pooled_tok_s", "pooled_delta_pct", "median_tok_s", "min_tok_s", "max_tok_s", "across_prompt_sd"),
            *("requests_with_draft_rounds", "counted_draft_tokens", "counted_draft_accepted", "generated_tokens"),
            *("decode_ms", "ratio [x]", "why"),
        ),
        rows=tuple(_summary_row(known, line) for line in shown),
        verdicts=tuple(line.arm.of_rate for line in shown),
    )


def _summary_row(known: Lines, line: Line) -> tuple[StudyCell, ...]:
    sums, base = line.sums, known.get(line.reference)
    assert sums is not None
    mean = base.sums.mean_rate if base and base.sums else None
    pooled = base.pooled if base else None
    false = not line.believable
    return (
        StudyCell(text=line.name),
        _count(line.max_tokens),
        _count(line.arm.requests),
        StudyCell(text=line.reference),
        _number(sums.mean_rate, 3),
        _delta(sums.mean_rate, mean, struck=false),
        _number(line.pooled, 3),
        _delta(line.pooled, pooled, struck=false),
        _number(sums.median_rate, 3),
        _number(sums.lowest_rate, 3),
        _number(sums.highest_rate, 3),
        _number(sums.rate_sd, 3),
        _count(sums.drafting),
        _count(sums.drafted),
        _count(sums.accepted),
        _count(sums.generated),
        _number(sums.decode_ms, 3),
        _estimate(ratio(known, line), 3),
        StudyCell(text=line.arm.why),
    )


def _controls(known: Lines) -> StudyTable:
    controls = (
        *(("repetition", name, of) for name, of in RERUNS.items()),
        ("KV type", F16, "ngram-cache"),
        *(("output length", name, of) for name, of in LONGER.items()),
        ("draft's vocabulary", OTHER_VOCABULARY, "baseline"),
        ("draft model", "draft-second-max16", "draft-q35-08b-max16"),
    )
    found = [(what, known[name], known[of]) for what, name, of in controls if name in known and of in known]
    return StudyTable(
        key="controls",
        title="Controls",
        about="Each control beside what it varies. A ratio is over the control's own baseline; where that is none of "
        "its kind, there is no ratio.",
        columns=(
            "control of",
            "configuration",
            "beside",
            "baseline",
            "pooled [tok/s]",
            "ratio [x]",
            "beside: ratio [x]",
        ),
        rows=tuple(
            (
                StudyCell(text=what),
                StudyCell(text=line.name),
                StudyCell(text=other.name),
                StudyCell(text=line.reference),
                _number(line.pooled, 2),
                _ratio(known, line),
                _ratio(known, other),
            )
            for what, line, other in found
        ),
        verdicts=tuple(line.arm.of_rate for _, line, _ in found),
    )


def _ratio(known: Lines, line: Line) -> StudyCell:
    if not line.believable and line.arm.claimed_speedup is not None:
        return StudyCell(value=line.arm.claimed_speedup, digits=3, struck=True)
    return _estimate(ratio(known, line), 3)


def _saturation(data: StudyData, known: Lines) -> StudyTable:
    found = saturation(data)
    rows: list[tuple[StudyCell, ...]] = []
    shown = [line for line in known.values() if line.drafts and line.sums is not None]
    for line in shown:
        longest, time = gamma(line), budget(known, line)
        union = expected_union(longest + 1, found.experts, found.used) if found and longest else None
        rows.append(
            (
                StudyCell(text=line.name),
                _count(longest),
                _count(found.threshold if found else None),
                _number((longest + 1) / found.threshold if found and longest else None, 2),
                _number(union, 1),
                _number(union / found.used if found and union else None, 2),
                _number(time.spent_ms if time else None, 0),
                _number(time.plain_ms if time else None, 0),
                _number(time.most_ms if time else None, 0),
                _number(100 * time.unexplained if time else None, 1),
            )
        )
    sparsity = f"{found.used} of {found.experts} experts, sparsity {found.sparsity:.4f}. " if found else ""
    return StudyTable(
        key="saturation",
        title="Saturation threshold beside gamma, and the time that experts can explain",
        about=f"{sparsity}Union: experts that gamma + 1 tokens touch by uniform routing, an upper estimate. At most: "
        "every token and every rejected draft at the time of one plain token, drafting by a model as slow as the "
        "target. Beyond: share of the time spent that this leaves over.",
        columns=(
            *("configuration", "gamma", "threshold [tokens]", "(gamma + 1) / threshold", "union [experts]"),
            *("union / experts of one token", "spent [ms]", "plain [ms]", "at most [ms]", "beyond [%]"),
        ),
        rows=tuple(rows),
        verdicts=tuple(line.arm.of_rate for line in shown),
    )


def _requests(known: Lines) -> StudyTable:
    rows = [(line, result) for line in known.values() for result in line.results if result.decode_rate is not None]
    return StudyTable(
        key="requests",
        title="Single requests",
        about="Columns of the document's table of requests.",
        columns=(
            *("config", "prompt", "repeat", "tok_s", "predicted_ms", "predicted_n", "prompt_n", "draft_n"),
            "draft_n_accepted",
        ),
        rows=tuple(
            (
                StudyCell(text=line.name),
                StudyCell(text=result.prompt),
                _count(result.repeat),
                _number(result.decode_rate, 3),
                _number(result.decode_ms, 3),
                _count(result.generated),
                _count(result.prompt_tokens),
                _count(result.drafted),
                _count(result.accepted),
            )
            for line, result in rows
        ),
        verdicts=tuple(result.verdict for _, result in rows),
    )


def _number(value: float | None, digits: int) -> StudyCell:
    return _NONE if value is None else StudyCell(value=value, digits=digits)


def _count(value: int | None) -> StudyCell:
    return _number(value, 0)


def _estimate(value: Estimate | None, digits: int) -> StudyCell:
    return _NONE if value is None else StudyCell(value=value, digits=digits)


def _delta(value: float | None, base: float | None, *, struck: bool) -> StudyCell:
    if value is None or not base:
        return _NONE
    return StudyCell(value=100 * (value / base - 1), digits=2, struck=struck)
