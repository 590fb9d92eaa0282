"""apple-quant-ladder: rows of its tables and rules, and the claims that weigh speed, size and loss at once.

Three words of the document have no number of their own. They are taken so: *near-lossless*, perplexity up by less than
1 %; *suits*, up by less than 10 % at a third of the size or less; *unusable*, perplexity at least doubled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from specmeter.messages import Message, Value
from specmeter.numbers.estimates import above, below, scaled
from specmeter.record import Estimate
from specmeter_studies.rules import lies
from specmeter_studies.rungs import Rung, bandwidth, faster, named, percent_change, rungs, worse
from specmeter_studies.study import StudyCell, StudyData
from specmeter_studies.telling import decided, quoted

if TYPE_CHECKING:
    from specmeter_studies.study import Found


NEAR, SUITS, DOUBLED = 1.01, 1.10, 2.0
Q2_PERCENT = (240.3, 293.7)
"""How much higher Q2_K's perplexity is: 267 %, give or take a tenth."""
BITS = 4.0
"""Bits per weight, as the file holds them: names of formats say less."""
SMALLER = 0.5
"""Q6_K has at most so much of F16's size: the document says 59 % less."""
SAME = (0.8, 1.25)
"""Bytes per second that differ by less than this factor count as one bandwidth."""


def rated(data: StudyData) -> Iterator[Mapping[str, object]]:
    """All rungs, in their order, beside the first."""
    verdicts = {line.config: line.verdict for line in data.arms}
    ladder = rungs(data)
    for rung in ladder:
        base, read = rung is ladder[0], bandwidth(rung)
        rate, scored = rung.generation, rung.perplexity
        yield {
            "rung": rung,
            "name": rung.title,
            "verdict": verdicts.get(rung.name),
            "speedup": StudyCell(text="1" if base else "", value=None if base else faster(rung, ladder[0])),
            "change": None if base else percent_change(worse(rung, ladder[0])),
            "front": {True: "on the front", False: "beaten in all three", None: "not known"}[rung.on_front],
            "read": read,
            "rate_told": _label(rung, rate.rate if rate else None),
            "perplexity_told": _label(rung, scored.estimate if scored else None),
            "read_told": _label(rung, None if read is None else scaled(read, 1e-9), " GB/s", ".1"),
            "tensors": ", ".join(f"{n} {kind}" for kind, n in rung.quality.tensor_types.items()),
            "made": rung.quality.made or Message("apple-quant-ladder.given"),
        }


def _label(rung: Rung, number: Estimate | None, unit: str = "", digits: str = ".2") -> Message:
    return Message(f"study.label{digits}", name=rung.title, number=quoted(number, unit))


def files(data: StudyData) -> list[Mapping[str, object]]:
    """The same, where what the files hold is known."""
    return list(rated(data)) if any(rung.quality.tensor_types for rung in rungs(data)) else []


def tests(data: StudyData) -> dict[str, str]:
    """Names of the two tests that are timed."""
    first = rungs(data)[0]
    return {
        key: rate.test.name if rate else key
        for key, rate in (("generation", first.generation), ("prompt", first.prompt))
    }


@dataclass(frozen=True)
class Loss:
    """The perplexity of a rung over that of the full model."""

    rung: Rung
    loss: Estimate

    @property
    def change(self) -> Estimate | None:
        """In percent."""
        return percent_change(self.loss)

    @property
    def below_four(self) -> bool:
        """Whether its file holds less than 4 bits per weight: names of formats say less."""
        return self.rung.quality.bits_per_weight < BITS

    @property
    def message(self) -> Message:
        change, method = quoted(self.change, "%"), Message(self.loss.method)
        return Message("apple-quant-ladder.loss", name=self.rung.name, change=change, method=method)

    @property
    def told_by_bits(self) -> Message:
        bits, loss = self.rung.quality.bits_per_weight, quoted(self.loss, "x")
        return Message("apple-quant-ladder.loss_by_bits", name=self.rung.title, bits=bits, loss=loss)


def losses(data: StudyData) -> list[Loss]:
    """Of every rung that was scored beside the full model."""
    ladder = rungs(data)
    full = named(ladder, "F16")
    return [Loss(rung, loss) for rung in ladder if full is not None and (loss := worse(rung, full)) is not None]


def by_name(data: StudyData) -> dict[str, Value]:
    """Rungs that are below 4 bits by their name alone."""
    few = [rung for rung in rungs(data) if rung.bits is not None and rung.bits < BITS <= rung.quality.bits_per_weight]
    names = [Message("apple-quant-ladder.bits", name=it.title, bits=it.quality.bits_per_weight) for it in few]
    return {"by_name": Message("apple-quant-ladder.by_name", names=names) if few else ""}


@dataclass(frozen=True)
class RungStep:
    """A rung over the next larger one, as one of several that hold together."""

    small: Rung
    large: Rung
    ratio: Estimate | None

    @property
    def message(self) -> Message:
        small, large = self.small.title, self.large.title
        return Message("apple-quant-ladder.step", small=small, large=large, ratio=quoted(self.ratio, "x"))


def steps(data: StudyData) -> list[RungStep]:
    """From each rung to the next smaller one."""
    timed = _timed(data)
    return [RungStep(small, large, faster(small, large, among=len(timed) - 1)) for large, small in pairwise(timed)]


def whole(data: StudyData) -> dict[str, Value]:
    """From the largest to the smallest."""
    timed = _timed(data)
    largest, smallest = timed[0], timed[-1]
    ratio = quoted(faster(smallest, largest), "x")
    return {"whole": Message("apple-quant-ladder.whole", large=largest.title, small=smallest.title, ratio=ratio)}


def smaller_is_faster(data: StudyData) -> Found:
    """Whether each rung generates faster than the next larger one."""
    down = steps(data)
    return lies(
        down,
        "ratio",
        low=1,
        told="message",
        found="apple-quant-ladder.steps",
        fill=whole(data) if down else {},
        empty=Message("apple-quant-ladder.needs.rates"),
    )


def near_lossless(data: StudyData) -> Found:
    """Whether Q8_0 loses less than 1 %."""
    return lies(
        _of_rung(data, "Q8_0"),
        "loss",
        high=NEAR,
        told="message",
        found="apple-quant-ladder.near_lossless",
        empty=Message("apple-quant-ladder.not_both", name="Q8_0"),
    )


def unusable(data: StudyData) -> Found:
    """Whether perplexity doubles below 4 bits per weight."""
    return lies(
        (it for it in losses(data) if it.below_four),
        "loss",
        low=DOUBLED,
        told="told_by_bits",
        least=2,
        found="apple-quant-ladder.unusable",
        fill=by_name(data),
        empty=Message("apple-quant-ladder.needs.less_bits"),
    )


def q2(data: StudyData) -> Found:
    """Whether Q2_K's perplexity is 267 % higher."""
    return lies(
        _of_rung(data, "Q2_K"),
        "change",
        low=Q2_PERCENT[0],
        high=Q2_PERCENT[1],
        told="message",
        found="apple-quant-ladder.q2",
        empty=Message("apple-quant-ladder.not_both", name="Q2_K"),
    )


def _of_rung(data: StudyData, name: str) -> list[Loss]:
    return [it for it in losses(data) if it.rung.name == name]


def _timed(data: StudyData) -> list[Rung]:
    return sorted((rung for rung in rungs(data) if rung.generation), key=lambda rung: -rung.size_bytes)


def memory_bound(data: StudyData) -> Found:
    """Whether the smallest and the largest rung read the same bytes per second."""
    timed = sorted((rung for rung in rungs(data) if rung.generation), key=lambda rung: rung.bytes_per_token)
    if len(timed) < 2 or timed[0].bytes_per_token * 1.5 > timed[-1].bytes_per_token:
        return "cannot tell", Message("apple-quant-ladder.needs.sizes")
    small, large = timed[0], timed[-1]
    ratio = faster(small, large)
    assert ratio is not None
    read = scaled(ratio, small.bytes_per_token / large.bytes_per_token)
    moved = [
        Message("apple-quant-ladder.moved", name=rung.title, rate=quoted(scaled(found, 1e-9), " GB/s"))
        for rung in (large, small)
        if (found := bandwidth(rung)) is not None
    ]
    best = max((found.point for rung in timed if (found := bandwidth(rung)) is not None), default=0.0)
    peak = data.bandwidth_bytes_per_s
    text = Message(
        "apple-quant-ladder.memory_bound",
        moved=moved,
        small=small.title,
        large=large.title,
        ratio=quoted(read),
        least=SAME[0],
        most=SAME[1],
        of_peak=Message("apple-quant-ladder.of_peak", share=best / peak) if peak else "",
    )
    return decided(
        supported=above(read, SAME[0]) and below(read, SAME[1]),
        contradicted=below(read, SAME[0]) or above(read, SAME[1]),
    ), text


def suits(data: StudyData) -> Found:
    """Whether Q4_K_M loses less than a tenth at a third of the size; a larger file can only fail by its loss."""
    ladder = rungs(data)
    rung, full = named(ladder, "Q4_K_M"), named(ladder, "F16")
    found = next((it for it in losses(data) if it.rung.name == "Q4_K_M"), None)
    if found is None or rung is None or full is None:
        return "cannot tell", Message("apple-quant-ladder.not_both", name="Q4_K_M")
    share = rung.size_bytes / full.size_bytes
    text = Message("apple-quant-ladder.suits", told=found.message, share=share, full=full.title, suits=SUITS - 1)
    return decided(supported=below(found.loss, SUITS) and share <= 1 / 3, contradicted=above(found.loss, SUITS)), text


def dominates(data: StudyData) -> Found:
    """Whether Q6_K is faster than Q5_K_M and loses less."""
    ladder = rungs(data)
    six, five = named(ladder, "Q6_K"), named(ladder, "Q5_K_M")
    if six is None or five is None:
        return "cannot tell", Message("apple-quant-ladder.needs.both")
    speed, loss = faster(six, five), worse(six, five)
    larger, quicker, better = six.size_bytes > five.size_bytes, above(speed, 1), below(loss, 1)
    text = Message(
        "apple-quant-ladder.dominates",
        rate=quoted(speed, "x"),
        perplexity=quoted(loss, "x"),
        size=six.size_bytes / five.size_bytes,
        by_size=Message("apple-quant-ladder.q6_loses" if larger else "apple-quant-ladder.q6_wins"),
        half="" if quicker == better else Message(f"apple-quant-ladder.half.{'speed' if quicker else 'quality'}"),
    )
    return decided(supported=bool(quicker and better), contradicted=below(speed, 1) or above(loss, 1)), text


def q6(data: StudyData) -> Found:
    """Whether Q6_K is faster than F16, half its size or less, and loses less than 1 %."""
    ladder = rungs(data)
    six, full = named(ladder, "Q6_K"), named(ladder, "F16")
    if six is None or full is None or six is full:
        return "cannot tell", Message("apple-quant-ladder.needs.q6")
    speed, loss, share = faster(six, full), worse(six, full), six.size_bytes / full.size_bytes
    five = named(ladder, "Q5_K_M")
    text = Message(
        "apple-quant-ladder.q6",
        full=full.title,
        rate=quoted(speed, "x"),
        less=1 - share,
        beside=Message("apple-quant-ladder.beside_q5", size=six.size_bytes / five.size_bytes) if five else "",
        perplexity=quoted(percent_change(loss), "%"),
        near=NEAR - 1,
    )
    return decided(
        supported=above(speed, 1) and below(loss, NEAR),
        contradicted=below(speed, 1) or share > SMALLER or above(loss, NEAR),
    ), text
