"""rtx3090-19: rows of its tables and figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specmeter.messages import Message, Value
from specmeter.theory.roofline import expected_union
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
        *((Message("rtx3090-19.control.repetition"), name, of) for name, of in RERUNS.items()),
        (Message("rtx3090-19.control.kv"), F16, "ngram-cache"),
        *((Message("rtx3090-19.control.length"), name, of) for name, of in LONGER.items()),
        (Message("rtx3090-19.control.vocabulary"), OTHER_VOCABULARY, "baseline"),
        (Message("rtx3090-19.control.draft"), "draft-second-max16", "draft-q35-08b-max16"),
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


def experts(data: StudyData) -> dict[str, Value]:
    """The target's, in a sentence."""
    found = saturation(data)
    told = (
        Message("rtx3090-19.experts", used=found.used, experts=found.experts, sparsity=found.sparsity) if found else ""
    )
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
                    "limit": Message("rtx3090-19.limit", tokens=it.max_tokens) if it.max_tokens else "",
                    "label": Message("rtx3090-19.drafted", name=line.name, drafted=it.drafted or 0),
                }


def rates(data: StudyData) -> Iterator[Row]:
    """Both rates of every configuration."""
    known = lines(data)
    for line in known.values():
        if line.sums is None or line.pooled is None:
            continue
        found = ratio(known, line)
        told = Message("cell.baseline")
        if line.reference != line.name and found is None:
            told = Message("rtx3090-19.no_ratio", reference=line.reference, why=line.arm.why or "")
        elif line.reference != line.name and found is not None:
            told = Message("rtx3090-19.ratio", reference=line.reference, ratio=found.point)
        for rate_of, rate in (("mean", line.sums.mean_rate), ("pooled", line.pooled)):
            series = Message(f"rtx3090-19.rate.{rate_of}")
            yield {"series": series, "x": line.name, "y": rate, "label": told, "verdict": line.arm.of_rate}


def acceptance(data: StudyData) -> Iterator[Row]:
    """Single requests, then configurations, by what was accepted."""
    for line in lines(data).values():
        marks = [
            ("requests", it.acceptance, it.decode_rate, f", {it.prompt}", it.accepted, it.drafted, it.verdict)
            for it in line.results
        ]
        if line.sums is not None and line.sums.drafted:
            counts = line.sums.accepted, line.sums.drafted
            marks.append(("configurations", line.acceptance, line.pooled, "", *counts, line.arm.of_rate))
        for facet, share, rate, of, accepted, drafted, verdict in marks:
            if share is not None and rate is not None:
                told = Message("rtx3090-19.accepted", name=line.name, of=of, accepted=accepted, drafted=drafted)
                mark = {"x": 100 * share, "y": rate, "label": told, "verdict": verdict}
                yield {"series": _kind(line), "facet": Message(f"rtx3090-19.facet.{facet}"), **mark}


def _kind(line: Line) -> str:
    return "plain" if not line.drafts else line.arm.method
