"""qat-vs-ptq: its data, rows of its table, and its claims, whose limits are shares of a rate on other machines.

The document compares a model that was quantized in training with another one that was quantized after it. The two
differ in architecture, size and vocabulary as well, so nothing here says what the training does: the document says so
itself, and every table, figure and claim repeats it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from specmeter.numbers.estimates import above, below, scaled
from specmeter_studies.library.apple_quant_ladder import extra as quant_published
from specmeter_studies.rungs import Rung, faster, rungs, spread
from specmeter_studies.study import StudyCell, by_intervals, by_values, denied_by, quoted

if TYPE_CHECKING:
    from specmeter_studies.study import Found, StudyData

CAVEAT = (
    "The families differ in architecture, size and vocabulary, not only in when they were quantized: what "
    "separates them here is not an effect of the training."
)
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
            "training": {"qat": "in training (QAT)", "ptq": "after training (PTQ)", "": "not said"}[rung.training],
            "packed": StudyCell(
                text="" if packed else "not told", value=rung.quality.bits_per_weight if packed else None
            ),
            "bits": "" if rung.bits is None else f"{rung.bits:g}",
            "spread": deviation,
            "spread_share": None if share is None else share.point,
            "drawn_spread": share if share is not None and share.point > 0 else None,
            "rate_told": f"{rung.title}: {quoted(rate.rate if rate else None, 1, ' tok/s')}",
            "spread_told": f"{rung.title}: {quoted(deviation, 3, ' tok/s')}",
        }


def caveat(data: StudyData) -> dict[str, str]:
    """What else tells the families apart."""
    return {"caveat": "The families share one architecture." if alike(rungs(data)) else CAVEAT}


def alike(models: Sequence[Rung]) -> bool:
    """Whether models quantized in training and after it are known to share one architecture and size."""
    kinds = {training: {rung.architecture for rung in models if rung.training == training} for training in _BOTH}
    return len(kinds["qat"]) == 1 and kinds["qat"] == kinds["ptq"] and None not in kinds["qat"]


_BOTH = ("qat", "ptq")


def _of(models: Sequence[Rung], training: str) -> list[Rung]:
    """Models with a rate, the widest first."""
    found = [rung for rung in models if rung.training == training and rung.generation and rung.bits is not None]
    return sorted(found, key=lambda rung: -(rung.bits or 0))


def _no_qat(models: Sequence[Rung]) -> str:
    """What there is instead of a family that was quantized in training."""
    families: dict[str, list[Rung]] = {}
    for rung in _of(models, "ptq"):
        families.setdefault(rung.family or rung.title, []).append(rung)
    said_of = "; ".join(f"{name}: {_rates(of)}" for name, of in families.items())
    return f"No family that was quantized in training was measured. Others ({said_of}) cannot stand in for it."


def _rates(models: Sequence[Rung]) -> str:
    return ", ".join(
        f"{rung.bits:g} bit {quoted(rung.generation.rate, 1, ' tok/s')}" for rung in models if rung.generation
    )


def span(data: StudyData) -> Found:
    """Whether each narrower model of the family is faster."""
    models = rungs(data)
    family = _of(models, "qat")
    if not family:
        return "cannot tell", _no_qat(models)
    if len(family) < 2:
        return "cannot tell", "Needs two widths of the family."
    steps = [faster(narrow, wide, among=len(family) - 1) for wide, narrow in pairwise(family)]
    text = (
        f"{_rates(family)}; {family[-1].bits:g} bit over {family[0].bits:g}: {quoted(faster(family[-1], family[0]))}x."
    )
    if any(below(step, 1) for step in steps):
        return "contradicted", text
    return ("supported" if all(above(step, 1) for step in steps) else "cannot tell"), text


def narrow(data: StudyData) -> Found:
    """Whether the family's spreads lie below the printed one; of another machine, below its share of the rate."""
    models = rungs(data)
    family = _of(models, "qat")
    known = [(rung, found) for rung in family if (found := spread(rung.generation)) is not None]
    if not known:
        return "cannot tell", _no_qat(models) if not family else "Needs two runs of each width or more."
    shown = ", ".join(f"{rung.bits:g} bit {quoted(found, 3, ' tok/s')}" for rung, found in known)
    share = NARROW_TOK_S / NARROW_AT
    text = f"{shown}. On another machine {NARROW_TOK_S:g} tok/s are taken as {share:.2%} of the rate."
    if data.origin == "published":
        values = [found.point for _, found in known]
        over = denied_by(values, most=NARROW_TOK_S, last_digit=0.1)
        text = (
            f"Printed standard deviations, with what {RUNS} runs say of them: {shown}. {len(over)} of "
            f"{len(known)} lie above {NARROW_TOK_S:g} beyond the last digit (the highest: {max(values):.3f})"
        )
        if over:
            return by_values("contradicted", f"{text}.")
        if all(below(found, NARROW_TOK_S) for _, found in known):
            return "supported", f"{text}."
        return "cannot tell", f"{text}, and {RUNS} runs do not pin any spread down to lie below it."
    limits = [(found, share * rung.generation.rate.point) for rung, found in known if rung.generation]
    if any(above(found, limit) for found, limit in limits):
        return "contradicted", text
    return ("supported" if all(below(found, limit) for found, limit in limits) else "cannot tell"), text


def wide(data: StudyData) -> Found:
    """Whether the other family's spreads are about the printed one."""
    models = rungs(data)
    family = [rung for rung in _of(models, "ptq") if (rung.bits or 0) <= LOW_BITS]
    known = [(rung, found) for rung in family if (found := spread(rung.generation)) is not None]
    if not known:
        return "cannot tell", f"Needs two runs or more of models quantized after training at {LOW_BITS} bit or less."
    shown = "; ".join(
        f"{rung.family} {rung.bits:g} bit {quoted(found, 2, ' tok/s')} at {rung.generation.rate.point:.1f} tok/s"
        for rung, found in known
        if rung.generation
    )
    share = WIDE_TOK_S / WIDE_AT
    text = (
        f"{shown}. About {WIDE_TOK_S:g} tok/s, on another machine {share:.0%} of the rate, is taken as within "
        f"{ABOUT:.0%} of it; a spread does not tell whether models or the measurement (a cold first run) cause "
        "it."
    )
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
    shown = "; ".join(f"at {ours.bits:g} bit {quoted(faster(ours, theirs), unit='x')}" for ours, theirs in pairs)
    if not pairs:
        told = "There are no two models, one of each training, at the same width."
        return "cannot tell", told if alike(models) else f"{told} {CAVEAT}"
    text = f"QAT over PTQ: {shown}."
    if not alike(models):
        return "cannot tell", f"{text} {CAVEAT}"
    ratios = [faster(ours, theirs, among=len(pairs)) for ours, theirs in pairs]
    if any(below(ratio, 1) for ratio in ratios):
        return "contradicted", text
    return ("supported" if all(above(ratio, 1) for ratio in ratios) else "cannot tell"), text
