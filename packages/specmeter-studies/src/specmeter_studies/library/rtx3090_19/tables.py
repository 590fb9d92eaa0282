"""rtx3090-19: rows of its tables and figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specmeter.theory.experts import expected_union
from specmeter_studies.library.rtx3090_19.lines import F16, LONGER, OTHER_VOCABULARY, RERUNS, Line, Lines, lines, ratio
from specmeter_studies.library.rtx3090_19.mechanism import budget, gamma, saturation
from specmeter_studies.study import Requests, StudyCell, StudyData

Row = Mapping[str, object]


def summary(data: StudyData) -> list[Row]:
    """All configurations, by request mean."""
    known = lines(data)
    summed = [(line, line.sums) for line in known.values() if line.sums is not None]
    return [_summary(known, *it) for it in sorted(summed, key=lambda it: it[1].mean_rate)[::-1]]


def _summary(known: Lines, line: Line, sums: Requests) -> Row:
    base = known.get(line.reference)
    return {
        "own": line,
        "sums": sums,
        "ratio": ratio(known, line),
        "mean_delta": _delta(line, sums.mean_rate, base.sums.mean_rate if base and base.sums else None),
        "pooled_delta": _delta(line, line.pooled, base.pooled if base else None),
    }


def _delta(line: Line, value: float | None, base: float | None) -> StudyCell:
    """A change in percent."""
    if value is None or not base:
        return StudyCell(text="-")
    return StudyCell(value=100 * (value / base - 1), struck=not line.believable)


def controls(data: StudyData) -> Iterator[Row]:
    """Configurations beside those that they vary."""
    known = lines(data)
    pairs = (
        *(("repetition", name, of) for name, of in RERUNS.items()),
        ("KV type", F16, "ngram-cache"),
        *(("output length", name, of) for name, of in LONGER.items()),
        ("draft's vocabulary", OTHER_VOCABULARY, "baseline"),
        ("draft model", "draft-second-max16", "draft-q35-08b-max16"),
    )
    for what, name, of in pairs:
        if name in known and of in known:
            line, other = known[name], known[of]
            ratios = {"own_ratio": _ratio(known, line), "other_ratio": _ratio(known, other)}
            yield {"what": what, "line": line.arm, "own": line, "other": other, **ratios}


def _ratio(known: Lines, line: Line) -> StudyCell:
    if not line.believable and line.arm.claimed_speedup is not None:
        return StudyCell(value=line.arm.claimed_speedup, digits=3, struck=True)
    return StudyCell(text="-", value=ratio(known, line), digits=3)


def saturated(data: StudyData) -> Iterator[Row]:
    """Every configuration with drafts beside the threshold of its target; the union is by uniform routing."""
    known = lines(data)
    found = saturation(data)
    for line in known.values():
        if not line.drafts or line.sums is None:
            continue
        longest = gamma(line)
        union = expected_union(longest + 1, found.experts, found.used) if found and longest else None
        yield {
            "own": line,
            "gamma": longest,
            "threshold": found.threshold if found else None,
            "of_threshold": (longest + 1) / found.threshold if found and longest else None,
            "union": union,
            "union_over_one": union / found.used if found and union else None,
            "time": budget(known, line),
        }


def experts(data: StudyData) -> dict[str, str]:
    """The target's, in a sentence."""
    found = saturation(data)
    told = f"{found.used} of {found.experts} experts, sparsity {found.sparsity:.4f}. " if found else ""
    return {"experts": told}


def requests(data: StudyData) -> Iterator[Row]:
    """All single requests that have a rate."""
    for line in lines(data).values():
        for it in line.results:
            if it.decode_rate is not None:
                yield {
                    "own": line,
                    "result": it,
                    "kind": _kind(line),
                    "limit": f"up to {it.max_tokens} tokens" if it.max_tokens else "",
                    "label": f"{line.name}, {it.drafted or 0} tokens drafted",
                }


def rates(data: StudyData) -> Iterator[Row]:
    """Both rates of every configuration."""
    known = lines(data)
    for line in known.values():
        if line.sums is None or line.pooled is None:
            continue
        found = ratio(known, line)
        told = f"no ratio ({line.arm.why})" if found is None else f"{found.point:.3f} x"
        told = "baseline" if line.reference == line.name else f"over {line.reference}: {told}"
        for series, rate in (("mean of requests", line.sums.mean_rate), ("pooled", line.pooled)):
            yield {"series": series, "x": line.name, "y": rate, "label": told, "verdict": line.arm.of_rate}


def acceptance(data: StudyData) -> Iterator[Row]:
    """Single requests, then configurations, by what was accepted."""
    for line in lines(data).values():
        marks = [
            ("single requests", it.acceptance, it.decode_rate, f", {it.prompt}", it.accepted, it.drafted, it.verdict)
            for it in line.results
        ]
        if line.sums is not None and line.sums.drafted:
            counts = line.sums.accepted, line.sums.drafted
            marks.append(("configurations", line.acceptance, line.pooled, "", *counts, line.arm.of_rate))
        for facet, share, rate, of, accepted, drafted, verdict in marks:
            if share is not None and rate is not None:
                told = f"{line.name}{of}: {accepted} of {drafted}"
                mark = {"x": 100 * share, "y": rate, "label": told, "verdict": verdict}
                yield {"series": _kind(line), "facet": facet, **mark}


def _kind(line: Line) -> str:
    return "plain" if not line.drafts else line.arm.method
