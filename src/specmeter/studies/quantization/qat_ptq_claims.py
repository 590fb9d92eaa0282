"""The claims about two families of quantized models, held against one measurement of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from specmeter.numbers.estimates import above, below
from specmeter.studies.quantization.rungs import Rung, faster, rungs, spread
from specmeter.studies.telling import by_intervals, by_values, denied_by, only_of, quoted, ruling

if TYPE_CHECKING:
    from specmeter.studies.study import ClaimRuling, StudyData
    from specmeter.studies.telling import Found

CAVEAT = (
    "The families differ in architecture, size and vocabulary, not only in when they were quantized: what tells them "
    "apart here is no effect of the training."
)
NAMED_QAT, NAMED_PTQ = "Gemma-3-4B", "Qwen3-8B"
RUNS = 4
"""Behind each printed deviation."""
NARROW_TOK_S, NARROW_AT = 0.3, 96.395
"""The document's sigma, and the slowest rate it was printed beside."""
WIDE_TOK_S, WIDE_AT = 19.0, 74.4
"""The document's other sigma, and the rate it was printed beside."""
ABOUT = 0.1
"""`About` so much: within so much of it."""
LOW_BITS = 4


def rulings(data: StudyData) -> tuple[ClaimRuling, ...]:
    """Every claim the document makes about the two families."""
    models = rungs(data)
    page = "project page, finding 6"
    published = data.origin == "published"
    return (
        ruling(
            "qat-span",
            "The QAT family speeds up with every bit less: 96 tok/s at 8 bit, 137 at 3.",
            f"{page}; MLX data",
            only_of(data, NAMED_QAT, _span(models)),
        ),
        ruling(
            "qat-narrow",
            "The QAT family's rates spread by less than 0.3 tok/s.",
            f"{page}; MLX data",
            only_of(data, NAMED_QAT, _narrow(models, published=published)),
        ),
        ruling(
            "ptq-wide",
            "The PTQ family's rates spread by about 19 tok/s at low bit widths.",
            f"{page}; MLX data",
            only_of(data, NAMED_PTQ, _wide(models, published=published)),
        ),
        ruling(
            "qat-against-ptq",
            "Set side by side, QAT is faster and steadier than PTQ; the document adds that architectures differ.",
            page,
            _with_caveat(models, _against(models)),
        ),
    )


def _with_caveat(models: Sequence[Rung], found: Found) -> Found:
    """What was found, with what else tells the families apart where they are not alike."""
    return found if alike(models) else (found[0], f"{found[1]} {CAVEAT}")


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
    return f"No family that was quantized in training was measured. Others ({said_of}) cannot stand for it."


def _rates(models: Sequence[Rung]) -> str:
    return ", ".join(
        f"{rung.bits:g} bit {quoted(rung.generation.rate, 1, ' tok/s')}" for rung in models if rung.generation
    )


def _span(models: Sequence[Rung]) -> Found:
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


def _narrow(models: Sequence[Rung], *, published: bool) -> Found:
    family = _of(models, "qat")
    known = [(rung, found) for rung in family if (found := spread(rung.generation)) is not None]
    if not known:
        return "cannot tell", _no_qat(models) if not family else "Needs two runs of each width or more."
    shown = ", ".join(f"{rung.bits:g} bit {quoted(found, 3, ' tok/s')}" for rung, found in known)
    share = NARROW_TOK_S / NARROW_AT
    text = f"{shown}. On another machine {NARROW_TOK_S:g} tok/s are taken as {share:.2%} of the rate."
    if published:
        values = [found.point for _, found in known]
        over = denied_by(values, most=NARROW_TOK_S, last_digit=0.1)
        text = (
            f"Standard deviations as printed, with what {RUNS} runs say of them: {shown}. {len(over)} of {len(known)} "
            f"lie above {NARROW_TOK_S:g} beyond its last digit (the highest: {max(values):.3f})"
        )
        if over:
            return by_values("contradicted", f"{text}.")
        if all(below(found, NARROW_TOK_S) for _, found in known):
            return "supported", f"{text}."
        return "cannot tell", f"{text}, and of {RUNS} runs no spread is known well enough to lie below it."
    limits = [(found, share * rung.generation.rate.point) for rung, found in known if rung.generation]
    if any(above(found, limit) for found, limit in limits):
        return "contradicted", text
    return ("supported" if all(below(found, limit) for found, limit in limits) else "cannot tell"), text


def _wide(models: Sequence[Rung], *, published: bool) -> Found:
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
    text = f"{shown}. About {WIDE_TOK_S:g} tok/s, on another machine {share:.0%} of the rate, is taken as within "
    text += f"{ABOUT:.0%} of it; whether a spread comes from the models or from the measurement (a cold first run) no "
    text += "spread can tell."
    limits = [
        (found, WIDE_TOK_S if published else share * rung.generation.rate.point)
        for rung, found in known
        if rung.generation
    ]
    return by_intervals(limits, ABOUT), text


def _against(models: Sequence[Rung]) -> Found:
    pairs = [(ours, theirs) for ours in _of(models, "qat") for theirs in _of(models, "ptq") if ours.bits == theirs.bits]
    shown = "; ".join(f"at {ours.bits:g} bit {quoted(faster(ours, theirs), unit='x')}" for ours, theirs in pairs)
    if not pairs:
        return "cannot tell", "There are no two models, one of each training, at the same width."
    text = f"QAT over PTQ: {shown}."
    if not alike(models):
        return "cannot tell", text
    ratios = [faster(ours, theirs, among=len(pairs)) for ours, theirs in pairs]
    if any(below(ratio, 1) for ratio in ratios):
        return "contradicted", text
    return ("supported" if all(above(ratio, 1) for ratio in ratios) else "cannot tell"), text
