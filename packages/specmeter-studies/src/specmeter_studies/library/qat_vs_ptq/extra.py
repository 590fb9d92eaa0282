"""qat-vs-ptq: its data, rows of its table, and its claims, whose limits are shares of a rate on other machines.

The document compares a model that was quantized in training with another one that was quantized after it. The two
differ in architecture, size and vocabulary as well, so nothing here says what the training does: the document says so
itself, and every table, figure and claim repeats it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from specmeter.messages import Message
from specmeter.numbers.estimates import above, below, scaled
from specmeter_studies.library.apple_quant_ladder import published as quant_published
from specmeter_studies.rungs import Rung, faster, rungs, spread
from specmeter_studies.study import StudyCell
from specmeter_studies.telling import by_intervals, by_values, decided, denied_by, quoted

if TYPE_CHECKING:
    from specmeter.record import Estimate
    from specmeter_studies.study import Found, StudyData

CAVEAT = Message("qat-vs-ptq.caveat")
RUNS = 4
"""Behind each printed deviation."""
NARROW_TOK_S, NARROW_AT = 0.3, 96.395
"""The document's sigma, and the slowest rate it was printed beside."""
WIDE_TOK_S, WIDE_AT = 19.0, 74.4
"""The document's other sigma, and the rate it was printed beside."""
ABOUT = 0.1
"""`About` so much: within so much of it."""
LOW_BITS = 4


def published() -> StudyData:
    """Gemma-3-4B (QAT) and Qwen3-8B (PTQ) on an M2 Ultra with MLX."""
    return quant_published.families()


def members(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Every model of both families, with its spread over runs."""
    verdicts = {line.config: line.verdict for line in data.arms}
    for rung in rungs(data):
        rate, deviation = rung.generation, spread(rung.generation)
        share = None if rate is None or deviation is None else scaled(deviation, 100 / rate.rate.point, "%")
        packed = bool(rung.quality.tensor_types)
        yield {
            "rung": rung,
            "verdict": verdicts.get(rung.name),
            "family": rung.family or rung.title,
            "training": Message(f"qat-vs-ptq.training.{rung.training or 'unknown'}"),
            "packed": StudyCell(
                text="" if packed else Message("qat-vs-ptq.not_told"),
                value=rung.quality.bits_per_weight if packed else None,
            ),
            "bits": "" if rung.bits is None else f"{rung.bits:g}",
            "spread": deviation,
            "spread_share": None if share is None else share.point,
            "drawn_spread": share if share is not None and share.point > 0 else None,
            "rate_told": _label(".1", rung, rate.rate if rate else None),
            "spread_told": _label(".3", rung, deviation),
        }


def _label(digits: str, rung: Rung, rate: Estimate | None) -> Message:
    return Message(f"study.label{digits}", name=rung.title, number=quoted(rate, " tok/s"))


def caveat(data: StudyData) -> dict[str, Message]:
    """What else tells the families apart."""
    return {"caveat": Message("qat-vs-ptq.alike") if alike(rungs(data)) else CAVEAT}


def alike(models: Sequence[Rung]) -> bool:
    """Whether models quantized in training and after it are known to share one architecture and size."""
    kinds = {training: {rung.architecture for rung in models if rung.training == training} for training in _BOTH}
    return len(kinds["qat"]) == 1 and kinds["qat"] == kinds["ptq"] and None not in kinds["qat"]


_BOTH = ("qat", "ptq")


def _of(models: Sequence[Rung], training: str) -> list[Rung]:
    """Models with a rate, the widest first."""
    found = [rung for rung in models if rung.training == training and rung.generation and rung.bits is not None]
    return sorted(found, key=lambda rung: -(rung.bits or 0))


def _no_qat(models: Sequence[Rung]) -> Message:
    """What there is instead of a family that was quantized in training."""
    families: dict[str, list[Rung]] = {}
    for rung in _of(models, "ptq"):
        families.setdefault(rung.family or rung.title, []).append(rung)
    others = [Message("qat-vs-ptq.family", name=name, rates=_rates(of)) for name, of in families.items()]
    return Message("qat-vs-ptq.no_qat", others=others)


def _rates(models: Sequence[Rung]) -> list[Message]:
    return [
        Message("qat-vs-ptq.rate", bits=rung.bits, rate=quoted(rung.generation.rate, " tok/s"))
        for rung in models
        if rung.generation
    ]


def span(data: StudyData) -> Found:
    """Whether each narrower model of the family is faster."""
    models = rungs(data)
    family = _of(models, "qat")
    if not family:
        return "cannot tell", _no_qat(models)
    if len(family) < 2:
        return "cannot tell", Message("qat-vs-ptq.needs.widths")
    steps = [faster(narrow, wide, among=len(family) - 1) for wide, narrow in pairwise(family)]
    text = Message(
        "qat-vs-ptq.span",
        rates=_rates(family),
        narrow=family[-1].bits,
        wide=family[0].bits,
        ratio=quoted(faster(family[-1], family[0]), "x"),
    )
    return decided(
        supported=all(above(step, 1) for step in steps), contradicted=any(below(step, 1) for step in steps)
    ), text


def narrow(data: StudyData) -> Found:
    """Whether the family's spreads lie below the printed one; of another machine, below its share of the rate."""
    models = rungs(data)
    family = _of(models, "qat")
    known = [(rung, found) for rung in family if (found := spread(rung.generation)) is not None]
    if not known:
        return "cannot tell", Message("qat-vs-ptq.needs.runs") if family else _no_qat(models)
    spreads = [Message("qat-vs-ptq.spread", bits=rung.bits, spread=quoted(it, " tok/s")) for rung, it in known]
    share = NARROW_TOK_S / NARROW_AT
    text = Message("qat-vs-ptq.narrow", spreads=spreads, limit=NARROW_TOK_S, share=share)
    if data.origin == "published":
        values = [found.point for _, found in known]
        over = denied_by(values, most=NARROW_TOK_S, last_digit=0.1)
        inside = all(below(found, NARROW_TOK_S) for _, found in known)
        text = Message(
            "qat-vs-ptq.printed",
            runs=RUNS,
            spreads=spreads,
            over=len(over),
            of=len(known),
            limit=NARROW_TOK_S,
            highest=max(values),
            wide="" if over or inside else Message("qat-vs-ptq.too_few_runs", runs=RUNS),
        )
        return by_values("contradicted", text) if over else ("supported" if inside else "cannot tell", text)
    limits = [(found, share * rung.generation.rate.point) for rung, found in known if rung.generation]
    return decided(
        supported=all(below(found, limit) for found, limit in limits),
        contradicted=any(above(found, limit) for found, limit in limits),
    ), text


def wide(data: StudyData) -> Found:
    """Whether the other family's spreads are about the printed one."""
    models = rungs(data)
    family = [rung for rung in _of(models, "ptq") if (rung.bits or 0) <= LOW_BITS]
    known = [(rung, found) for rung in family if (found := spread(rung.generation)) is not None]
    if not known:
        return "cannot tell", Message("qat-vs-ptq.needs.ptq", bits=LOW_BITS)
    spreads = [
        Message(
            "qat-vs-ptq.spread_at",
            family=rung.family,
            bits=rung.bits,
            spread=quoted(found, " tok/s"),
            rate=rung.generation.rate.point,
        )
        for rung, found in known
        if rung.generation
    ]
    share = WIDE_TOK_S / WIDE_AT
    text = Message("qat-vs-ptq.wide", spreads=spreads, limit=WIDE_TOK_S, share=share, about=ABOUT)
    limits = [
        (found, WIDE_TOK_S if data.origin == "published" else share * rung.generation.rate.point)
        for rung, found in known
        if rung.generation
    ]
    return by_intervals(limits, ABOUT), text


def against(data: StudyData) -> Found:
    """Whether one training is faster than the other at each width; not told of families that differ in more."""
    models = rungs(data)
    pairs = [(ours, theirs) for ours in _of(models, "qat") for theirs in _of(models, "ptq") if ours.bits == theirs.bits]
    at = [Message("qat-vs-ptq.at", bits=ours.bits, ratio=quoted(faster(ours, theirs), "x")) for ours, theirs in pairs]
    text = Message("qat-vs-ptq.against", at=at) if pairs else Message("qat-vs-ptq.no_pair")
    if not alike(models):
        return "cannot tell", Message("study.sentences", first=text, second=CAVEAT)
    if not pairs:
        return "cannot tell", text
    ratios = [faster(ours, theirs, among=len(pairs)) for ours, theirs in pairs]
    return decided(
        supported=all(above(ratio, 1) for ratio in ratios), contradicted=any(below(ratio, 1) for ratio in ratios)
    ), text
