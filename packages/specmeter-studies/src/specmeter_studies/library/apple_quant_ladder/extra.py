"""apple-quant-ladder: rows of its tables and rules, and the claims that weigh speed, size and loss at once.

Three words of the document have no number of their own. They are taken so: *near-lossless*, perplexity up by less than
1 %; *suits*, up by less than 10 % at a third of the size or less; *unusable*, perplexity at least doubled.

What the Apple document printed about quantization, in the form of our own quality measurements.

Rates come from `llama-bench` and from MLX as means and standard deviations of four runs (`n_runs` of its data); the
intervals here are Student's, from these. Perplexities come with llama.cpp's `+/-`; no window of them was published, so
no two can be paired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from specmeter.analysis.quality import ModelQuality, ModelRole, Perplexity, QualityReport, Rate, SpeedTest, TextIdentity
from specmeter.audit import published as tables
from specmeter.numbers.estimates import above, below, scaled, with_error
from specmeter.record import EngineIdentity, EngineSettings, Estimate, Host, ModelIdentity
from specmeter_studies import apple_published
from specmeter_studies.measured import arm, printed_mean, printed_rate, rulings
from specmeter_studies.rules import lies
from specmeter_studies.rungs import Rung, bandwidth, faster, named, percent_change, rungs, worse
from specmeter_studies.study import ArmResult, ModelUsed, StudyCell, StudyData, quoted

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim
    from specmeter_studies.study import Found


RUNS = 4
"""Runs behind each mean, by the data's metadata."""
WINDOWS, WINDOW = 10, 512
"""Of the perplexities (`--chunks 10`, context 512)."""
SCORED = WINDOWS * (WINDOW - WINDOW // 2 - 1)
GENERATED = 128
"""Tokens of each generation."""
MEMORY = 192 * 10**9

_BITS = {"F16": 16, "Q8_0": 8, "Q6_K": 6, "Q5_K_M": 5, "Q4_K_M": 4, "Q3_K_M": 3, "Q2_K": 2}
_NORMAL = 1.959964
_HOST = Host(
    hostname_sha256="",
    os="macOS",
    os_version="not told",
    kernel="not told",
    machine="arm64",
    python="not told",
    specmeter="none",
    cpu="Apple M2 Ultra",
    physical_cores=24,
    logical_cores=24,
    memory_bytes=MEMORY,
    memory_available_bytes=MEMORY,
)


def ladder() -> StudyData:
    """Qwen3.5-4B in seven quantizations on an M2 Ultra."""
    found = list(_ladder())
    lines = tuple(
        arm(ruling, config=name, target=name, requests=RUNS)
        for ruling in rulings("apple", "apple/bench.csv")
        if (name := ruling.claim.label.removeprefix("4B_")) in _BITS and ruling.claim.decode_rate is not None
    )
    return _data(
        "apple-quant-ladder",
        found,
        lines,
        "WikiText-2 raw, test split, first 10 windows",
        (
            "Five of the seven generation rates have standard deviations from 10 to 20 tok/s over four runs "
            "(those of Q3_K_M and Q2_K: 0.2 and 0.1): most of the ladder's order lies within them.",
            "The rates are means of the runs' rates. Tokens over mean time is lower where runs differ: 48.1 "
            "tok/s instead of 54.0 for Q8_0.",
        ),
    )


def families() -> StudyData:
    """Gemma-3-4B (QAT) and Qwen3-8B (PTQ) by MLX on an M2 Ultra."""
    found = list(_families())
    lines = tuple(
        arm(ruling, config=name, target=name, requests=RUNS)
        for ruling in rulings("apple", "apple/mlx.csv")
        if (name := ruling.claim.target or "") in {item.model.name for item in found}
    )
    return _data(
        "qat-vs-ptq",
        found,
        lines,
        "none: only rates were measured",
        (
            "The data note a warm-up issue of MLX's cache at the two PTQ rows whose rates spread by 19.6 and "
            "19.8 tok/s: a spread of the measurement, not of the models.",
        ),
    )


def _data(
    study: str, models: list[ModelQuality], lines: tuple[ArmResult, ...], text: str, notes: tuple[str, ...]
) -> StudyData:
    report = QualityReport(
        made_at=0.0,
        complete=True,
        host=_HOST,
        settings=EngineSettings(context=WINDOW),
        stride=0,
        most_windows=WINDOWS,
        text=TextIdentity(name=text, sha256="", size_bytes=0, bundled=False),
        models=tuple(models),
        plan=study,
    )
    used = tuple(
        ModelUsed(name=it.model.name, reference=it.model.reference, size_bytes=it.model.size_bytes) for it in models
    )
    return StudyData(
        study=study,
        origin="published",
        title="published by the document, with the audit's verdicts",
        arms=lines,
        models=used,
        quality=(report,),
        machine="M2 Ultra",
        bandwidth_bytes_per_s=apple_published.BANDWIDTH,
        notes=notes,
    )


def _ladder() -> Iterator[ModelQuality]:
    bench = [claim for claim in tables.table("apple/bench.csv") if claim.label.startswith("4B_")]
    scores = {claim.label: claim for claim in tables.table("apple/perplexity.csv")}
    prompts = {claim.label: claim for claim in bench if claim.prompt_rate is not None}
    for claim in bench:
        if claim.decode_rate is None:
            continue
        name, size, prompt = claim.label.removeprefix("4B_"), round(claim.size_bytes or 0), prompts[claim.label]
        yield ModelQuality(
            model=_model(name, f"Qwen3.5-4B {name}", size),
            bits_per_weight=8 * size / _PARAMETERS,
            perplexity=_perplexity(scores[claim.label]),
            rates=(
                _rate(
                    SpeedTest(kind="prompt", tokens=prompt.prompt_n or 0),
                    printed_mean(prompt.prompt_rate or 0.0, prompt.prompt_rate_sd, RUNS, unit="tok/s"),
                    prompt.prompt_rate_sd,
                ),
                _rate(SpeedTest(kind="generate", tokens=GENERATED), printed_rate(claim), claim.decode_rate_sd),
            ),
            rates_engine=_engine("llama-bench"),
            role=ModelRole(bits=_BITS[name], family="Qwen3.5-4B"),
        )


_PARAMETERS = 4205751296
"""Of Qwen3.5-4B, by the one raw `llama-bench` row that was published."""


def _families() -> Iterator[ModelQuality]:
    for claim in tables.table("apple/mlx.csv"):
        name = claim.target or ""
        family, _, width = name.rpartition("-")
        if not width.endswith("bit"):
            continue
        bits = float(width.removesuffix("bit"))
        yield ModelQuality(
            model=_model(name, claim.label, round(claim.size_bytes or 0)),
            bits_per_weight=bits,
            rates=(_rate(SpeedTest(kind="generate", tokens=GENERATED), printed_rate(claim), claim.decode_rate_sd),),
            rates_engine=_engine("mlx"),
            role=ModelRole(
                family=family.removesuffix("-QAT"), training="qat" if family.endswith("-QAT") else "ptq", bits=bits
            ),
        )


def _model(name: str, reference: str, size: int) -> ModelIdentity:
    return ModelIdentity(name=name, reference=reference, path="", sha256="", size_bytes=size, origin="path")


def _engine(kind: str) -> EngineIdentity:
    return EngineIdentity(kind=kind, version="not told", build="not told", binary="", binary_sha256="")


def _rate(test: SpeedTest, mean: Estimate | None, deviation: float | None) -> Rate:
    if mean is None:
        raise ValueError("a printed rate is missing")
    return Rate(test=test, rate=mean, ms=(), deviation=deviation)


def _perplexity(claim: Claim) -> Perplexity:
    point, error = claim.perplexity or 0.0, claim.perplexity_sd or 0.0
    return Perplexity(
        estimate=with_error(
            point,
            error,
            "1",
            "as printed; 1.96 times the printed error, which takes tokens for independent",
            n=WINDOWS,
        ),
        token_error=error,
        windows=WINDOWS,
        window_tokens=WINDOW,
        scored=SCORED,
        text_tokens=None,
        tokens_sha256=None,
        window_surprise=(),
        train_context=None,
        begins_with_bos=None,
        wall_s=0.0,
        engine=_engine("llama-perplexity"),
    )


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
            "rate_told": f"{rung.title}: {quoted(rate.rate if rate else None)}",
            "perplexity_told": f"{rung.title}: {quoted(scored.estimate if scored else None)}",
            "read_told": f"{rung.title}: {quoted(None if read is None else scaled(read, 1e-9), 1, ' GB/s')}",
            "tensors": ", ".join(f"{n} {kind}" for kind, n in rung.quality.tensor_types.items()),
            "made": rung.quality.made or "given as a file",
        }


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
    def told(self) -> str:
        return f"Perplexity of {self.rung.name} against F16: {quoted(self.change, 2, ' %')} ({self.loss.method})"

    @property
    def told_by_bits(self) -> str:
        bits = self.rung.quality.bits_per_weight
        return f"{self.rung.title} ({bits:.2f} bits per weight in its file) {quoted(self.loss, unit='x')}"


def losses(data: StudyData) -> list[Loss]:
    """Of every rung that was scored beside the full model."""
    ladder = rungs(data)
    full = named(ladder, "F16")
    return [Loss(rung, loss) for rung in ladder if full is not None and (loss := worse(rung, full)) is not None]


def by_name(data: StudyData) -> dict[str, str]:
    """Rungs that are below 4 bits by their name alone."""
    few = [rung for rung in rungs(data) if rung.bits is not None and rung.bits < BITS <= rung.quality.bits_per_weight]
    names = ", ".join(f"{rung.title} ({rung.quality.bits_per_weight:.2f} bits per weight)" for rung in few)
    return {"by_name": f" Below 4 bit by name only, and not counted: {names}." if few else ""}


@dataclass(frozen=True)
class RungStep:
    """A rung over the next larger one, as one of several that hold together."""

    small: Rung
    large: Rung
    ratio: Estimate | None

    @property
    def told(self) -> str:
        return f"{self.small.title} over {self.large.title} {quoted(self.ratio, unit='x')}"


def steps(data: StudyData) -> list[RungStep]:
    """From each rung to the next smaller one."""
    timed = _timed(data)
    return [RungStep(small, large, faster(small, large, among=len(timed) - 1)) for large, small in pairwise(timed)]


def whole(data: StudyData) -> dict[str, str]:
    """From the largest to the smallest."""
    timed = _timed(data)
    ratio = quoted(faster(timed[-1], timed[0]), unit="x")
    return {"whole": f"From {timed[0].title} to {timed[-1].title}: {ratio}"}


def smaller_is_faster(data: StudyData) -> Found:
    """Whether each rung generates faster than the next larger one."""
    down = steps(data)
    return lies(
        down,
        "ratio",
        low=1,
        told="told",
        found="Of {n} steps down, {for} are faster beyond the interval, {against} slower, and the others undecided "
        "(intervals that hold together): {shown}. {whole}.",
        fill=whole(data) if down else {},
        empty="Needs the rates of two rungs.",
    )


def near_lossless(data: StudyData) -> Found:
    """Whether Q8_0 loses less than 1 %."""
    return lies(
        _of_rung(data, "Q8_0"),
        "loss",
        high=NEAR,
        told="told",
        found="{shown}. Near-lossless is taken as less than 1 %.",
        empty="Q8_0 and F16 were not both scored on the same windows.",
    )


def unusable(data: StudyData) -> Found:
    """Whether perplexity doubles below 4 bits per weight."""
    return lies(
        (it for it in losses(data) if it.below_four),
        "loss",
        low=DOUBLED,
        told="told_by_bits",
        found="Perplexity over the full model's: {shown}. Unusable is taken as at least doubled.{by_name}",
        fill=by_name(data),
        empty="No file that holds less than 4 bits per weight was scored beside the full model.",
    )


def q2(data: StudyData) -> Found:
    """Whether Q2_K's perplexity is 267 % higher."""
    return lies(
        _of_rung(data, "Q2_K"),
        "change",
        low=Q2_PERCENT[0],
        high=Q2_PERCENT[1],
        told="told",
        found="{shown}. Taken as within 10 % of 267 %.",
        empty="Q2_K and F16 were not both scored on the same windows.",
    )


def _of_rung(data: StudyData, name: str) -> list[Loss]:
    return [it for it in losses(data) if it.rung.name == name]


def _timed(data: StudyData) -> list[Rung]:
    return sorted((rung for rung in rungs(data) if rung.generation), key=lambda rung: -rung.size_bytes)


def memory_bound(data: StudyData) -> Found:
    """Whether the smallest and the largest rung read the same bytes per second."""
    timed = sorted((rung for rung in rungs(data) if rung.generation), key=lambda rung: rung.bytes_per_token)
    if len(timed) < 2 or timed[0].bytes_per_token * 1.5 > timed[-1].bytes_per_token:
        return "cannot tell", "Needs two rungs whose sizes differ by half or more."
    small, large = timed[0], timed[-1]
    ratio = faster(small, large)
    assert ratio is not None
    read = scaled(ratio, small.bytes_per_token / large.bytes_per_token)
    shown = "; ".join(
        f"{rung.title} {quoted(scaled(found, 1e-9), 0, ' GB/s')}"
        for rung in (large, small)
        if (found := bandwidth(rung)) is not None
    )
    text = (
        f"If memory alone set the pace, every rung would read the same bytes per second. Read: {shown}; "
        f"{small.title} over {large.title}: {quoted(read)}, taken as the same from {SAME[0]:g} to {SAME[1]:g}."
    )
    if data.bandwidth_bytes_per_s:
        best = max((found.point for rung in timed if (found := bandwidth(rung)) is not None), default=0.0)
        text += f" The most that is read is {best / data.bandwidth_bytes_per_s:.0%} of the machine's bandwidth."
    if below(read, SAME[0]) or above(read, SAME[1]):
        return "contradicted", text
    return ("supported" if above(read, SAME[0]) and below(read, SAME[1]) else "cannot tell"), text


def suits(data: StudyData) -> Found:
    """Whether Q4_K_M loses less than a tenth at a third of the size; a larger file can only fail by its loss."""
    ladder = rungs(data)
    rung, full = named(ladder, "Q4_K_M"), named(ladder, "F16")
    found = next((it for it in losses(data) if it.rung.name == "Q4_K_M"), None)
    if found is None or rung is None or full is None:
        return "cannot tell", "Q4_K_M and F16 were not both scored on the same windows."
    share = rung.size_bytes / full.size_bytes
    text = (
        f"{found.told}. It has {share:.0%} of {full.title}'s size. Suiting is taken as less than {SUITS - 1:.0%} "
        "at a third."
    )
    if above(found.loss, SUITS):
        return "contradicted", text
    return ("supported" if below(found.loss, SUITS) and share <= 1 / 3 else "cannot tell"), text


def dominates(data: StudyData) -> Found:
    """Whether Q6_K is faster than Q5_K_M and loses less."""
    ladder = rungs(data)
    six, five = named(ladder, "Q6_K"), named(ladder, "Q5_K_M")
    if six is None or five is None:
        return "cannot tell", "Needs Q6_K and Q5_K_M, which llama-quantize makes."
    speed, loss = faster(six, five), worse(six, five)
    text = (
        f"Q6_K over Q5_K_M: rate {quoted(speed, unit='x')}, perplexity {quoted(loss, 4, 'x')}, size "
        f"{six.size_bytes / five.size_bytes:.2f}x. By size, the third measure beside the two that the document "
        f"names, {'Q6_K loses' if six.size_bytes > five.size_bytes else 'Q6_K wins as well'}."
    )
    if below(speed, 1) or above(loss, 1):
        return "contradicted", text
    return ("supported" if above(speed, 1) and below(loss, 1) else "cannot tell"), text


def q6(data: StudyData) -> Found:
    """Whether Q6_K is faster than F16, half its size or less, and loses less than 1 %."""
    ladder = rungs(data)
    six, full = named(ladder, "Q6_K"), named(ladder, "F16")
    if six is None or full is None or six is full:
        return "cannot tell", "Needs Q6_K, which llama-quantize makes, and F16."
    speed, loss, share = faster(six, full), worse(six, full), six.size_bytes / full.size_bytes
    five = named(ladder, "Q5_K_M")
    against = f"; against Q5_K_M, which the sentence names, {six.size_bytes / five.size_bytes:.2f}x" if five else ""
    text = (
        f"Against {full.title}: rate {quoted(speed, unit='x')}, size {1 - share:.1%} less{against}; perplexity "
        f"{quoted(percent_change(loss), 2, ' %')}. Judged against: faster, half the size or less, under "
        f"{NEAR - 1:.0%}."
    )
    if below(speed, 1) or share > SMALLER or above(loss, NEAR):
        return "contradicted", text
    return ("supported" if above(speed, 1) and below(loss, NEAR) else "cannot tell"), text
