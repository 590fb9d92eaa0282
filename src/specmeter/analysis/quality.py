"""Quality and rates of models: what a ladder of quantizations is judged by.

Perplexity of a text, and how fast prompts are read and tokens are generated at given depths of the context. The package
of studies measures both (`specmeter quality`); what a report holds and what follows from it is here, since `specmeter
explain --quality` reads it. Reports are JSON files, kept in the cache folder unless another place is named.

Which tokens of a text are scored, and the perplexity that follows: as llama.cpp's `llama-perplexity` has it.

Without a stride the text is cut into windows of C tokens, and what is left over at its end is not used. Each window
begins with an empty memory. Its first C // 2 tokens only give context; after each token from there on, the next one is
scored, which makes C - C // 2 - 1 of a window. Where the model wants texts to begin with a special token, that token
stands in the place of each window's first one.

With a stride S, windows overlap: each begins S tokens after the one before, and its last S tokens are scored. So most
of the text is scored once, with much context before it. The tool adds S // 2 to the context that it is asked for and
rounds up to a multiple of 256, and no window of its begins with the special token; both are followed here.

With v_1 ... v_n the surprises (-ln of the probability that the model gave to the token that came):

    perplexity   exp(mean v)
    +/-          perplexity * sqrt((mean v^2 - (mean v)^2) / (n - 1)), by the tool: tokens taken for independent
    interval     exp of Student's interval over the windows' means

Both statements of error hold for texts like this one; that a text is chosen badly is in neither.

Models of a report beside each other: what each gains and loses against the first, and which are on the front.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from specmeter.cache import cache_dir
from specmeter.errors import SpecmeterError, UsageError
from specmeter.numbers.estimates import bare, student_geometric
from specmeter.numbers.stats import Pool, geometric_speedup
from specmeter.probe.files import plain_name
from specmeter.record import EngineIdentity, EngineSettings, Estimate, Host, ModelIdentity, Record
from specmeter.record.base import read_record, write_record


class SpeedTest(Record):
    """One thing that is timed, as `llama-bench` means it."""

    kind: Literal["prompt", "generate"]
    """Reading a prompt in batches, or tokens one by one."""
    tokens: Annotated[int, Field(ge=1, le=1_000_000)]
    """How many."""
    depth: Annotated[int, Field(ge=0, le=16_000_000)] = 0
    """Tokens in the context before; they are not timed."""

    @property
    def name(self) -> str:
        """`pp512`, `tg128 @ d4096`: `llama-bench`'s own names."""
        return f"{'pp' if self.kind == 'prompt' else 'tg'}{self.tokens}{f' @ d{self.depth}' if self.depth else ''}"


class Rate(Record):
    """How fast one thing went."""

    test: SpeedTest
    rate: Estimate
    """Median over blocks, in tok/s."""
    ms: tuple[float, ...]
    """Time in each block; empty where only the rate was reported."""
    deviation: float | None = None
    """Standard deviation of the blocks' rates in tok/s; None: of fewer than two blocks."""


class TextIdentity(Record):
    """The text that a perplexity is of."""

    name: str
    """Of the file, or of the text that comes with specmeter."""
    sha256: str
    """Of its UTF-8 bytes, without the line break at its end."""
    size_bytes: int
    bundled: bool
    """Text of the bench language, which comes with specmeter: real models were never made for it."""


class Perplexity(Record):
    """exp of the mean surprise over the scored tokens of a text, in nats."""

    estimate: Estimate
    """Its interval takes windows as units: what neighbouring tokens share stays within a window."""
    token_error: float | None
    """What llama.cpp prints behind `+/-`: perplexity times sqrt((mean of squares - square of mean) / (tokens - 1)). It
    treats tokens as independent, which they are not, so it is too small. None: not reported."""
    windows: int
    """Windows of the text; each begins with an empty memory."""
    window_tokens: int
    """Tokens of a window."""
    scored: int
    """Scored tokens of all windows together."""
    text_tokens: int | None
    """Tokens of the whole text, special ones included; None: not reported."""
    tokens_sha256: str | None
    """Of the text's token ids: perplexities over other tokens are not comparable. None: not reported."""
    window_surprise: tuple[float, ...]
    """Mean surprise of each window in nats, in the order of the text: what comparisons pair."""
    train_context: int | None
    """Tokens that the model was trained for; None: not reported."""
    begins_with_bos: bool | None
    """Whether each window's first token was replaced by the one that begins texts; None: not reported."""
    wall_s: float
    """Time to score, the model's load not included by `libllama`, included by native tools."""
    engine: EngineIdentity


class ModelRole(Record):
    """What a plan says of a model, and no file can tell."""

    label: str = ""
    """For people; empty: the model's name."""
    family: str = ""
    """Models that differ only in quantization."""
    training: Literal["qat", "ptq", ""] = ""
    """Whether quantization was part of the training, or came after it; empty: not said."""
    bits: Annotated[float, Field(gt=0, le=64)] | None = None
    """Bits per weight as the format is called (4 for Q4_K_M); None: not said."""


class ModelQuality(Record):
    """What was measured of one model."""

    model: ModelIdentity
    bits_per_weight: float
    """Bytes of all tensors times 8 over their parameters."""
    perplexity: Perplexity | None = None
    rates: tuple[Rate, ...] = ()
    rates_engine: EngineIdentity | None = None
    warnings: tuple[str, ...] = ()
    """What keeps these numbers from meaning what they seem to."""
    role: ModelRole | None = None
    """What the plan says of the model; None without a plan."""
    made: str = ""
    """How the file was made for this measurement; empty: it was given."""
    tensor_types: dict[str, int] = Field(default={})
    """Number format -> tensors in it, by ggml's names, the most bytes first: a file of one `type` mixes several."""


class SkippedModel(Record):
    """A model of a plan that was not measured."""

    name: str
    """The plan's name."""
    reason: str
    """Why, and what would help."""


class QualityReport(Record):
    """Several models, measured on one machine on one text."""

    format: Literal[1] = 1
    made_at: float
    """Seconds since the epoch."""
    complete: bool
    """False where measuring was interrupted: what is missing was not measured."""
    host: Host
    settings: EngineSettings
    """Context: of the perplexity's windows."""
    stride: int
    """0: windows follow each other, and of each the second half is scored."""
    most_windows: int | None = None
    """Windows from the beginning of the text that were to be scored at most; None: all."""
    text: TextIdentity
    models: tuple[ModelQuality, ...]
    """The first one is what the others are compared with."""
    plan: str = ""
    """Name of the plan; empty: models were named one by one."""
    applied: tuple[str, ...] = ()
    """Variants of the plan."""
    skipped: tuple[SkippedModel, ...] = ()
    """Models of the plan that could not be measured here."""


MAX_BYTES = 64 * 2**20
MOST_LOOKED_AT = 50


def quality_folder() -> Path:
    """Where reports are kept; it may not exist yet. Raises `ModelError` without a home folder."""

    return cache_dir() / "quality"


def default_path(report: QualityReport) -> Path:
    """A name of its own in that folder: the first model's, its hash, how many more, the time."""

    first = report.models[0].model
    more = f"+{len(report.models) - 1}" if len(report.models) > 1 else ""
    name = f"{plain_name(first.reference)}-{first.sha256[:8]}{more}-{report.made_at * 1000:.0f}.json"
    return quality_folder() / name


def save_report(report: QualityReport, path: Path, *, inside: bool = False) -> None:
    """Write it, whole or not at all; see `base.write_record`. Raises `UsageError` when that cannot be done."""
    write_record(report, path, what="report", inside=inside)


def kept_reports(hashes: Collection[str]) -> tuple[QualityReport, ...]:
    """Reports in the folder that hold one of these models (SHA-256), the newest first; only the newest are looked at.

    What cannot be read is passed over: it was not named.
    """
    try:
        kept = (path for path in quality_folder().glob("*.json") if path.is_file())
        files = sorted(kept, key=lambda path: path.stat().st_mtime_ns, reverse=True)
    except (OSError, SpecmeterError):
        return ()
    found: list[QualityReport] = []
    for file in files[:MOST_LOOKED_AT]:
        with contextlib.suppress(SpecmeterError):
            report = load_report(file)
            if any(model.model.sha256 in hashes for model in report.models):
                found.append(report)
    return tuple(found)


def load_report(path: Path, *, inside: bool = False) -> QualityReport:
    """Read a report; see `base.read_record`. Raises `UsageError` that names the file and what is wrong in it."""
    return read_record(
        QualityReport, path, what="report", made_by="specmeter quality", max_bytes=MAX_BYTES, inside=inside
    )


_CELLS = 256
"""llama.cpp rounds contexts up to a multiple of this."""


@dataclass(frozen=True)
class Windows:
    """Where the windows of a text lie. Window i holds the tokens from i * step on."""

    count: int
    length: int
    """Tokens of a window."""
    step: int
    """From the beginning of one window to that of the next."""
    first: int
    """Place within a window of the first token after which one is scored; the last such place is length - 2."""

    @property
    def scored(self) -> int:
        """Scored tokens of one window."""
        return self.length - 1 - self.first


def window_length(context: int, stride: int) -> int:
    """Tokens of a window for a context that was asked for."""
    return context if not stride else -(-(context + stride // 2) // _CELLS) * _CELLS


def windows_of(tokens: int, context: int, stride: int = 0) -> Windows:
    """The windows of a text of `tokens` tokens.

    Raises `UsageError` for a context below 16, a stride that does not fit into a window, and a text too short for one.
    """
    if context < 16:
        raise UsageError(f"windows of {context} tokens", fix="use a --context of 16 or more")
    length = window_length(context, stride)
    if not 0 <= stride < length:
        raise UsageError(
            f"a stride of {stride} does not fit into windows of {length} tokens", fix=f"use one below {context}"
        )
    count = tokens // length if not stride else -(-max(0, tokens - length) // stride)
    if count < 1:
        raise UsageError(
            f"the text has {tokens} tokens; one window takes {length}{' and one more' if stride else ''}",
            fix="give a longer text, or a smaller --context",
        )
    return Windows(count, length, stride or length, length - stride - 1 if stride else length // 2)


def perplexity(surprise: Sequence[float], scored: int, *, level: float = 0.95) -> Estimate:
    """Perplexity of windows whose mean surprises are given, each over `scored` tokens, with the windows as units.

    One window, or windows that do not vary, have no interval. Raises `UsageError` for no windows and for values that
    are not finite.
    """
    values = np.asarray(surprise, dtype=np.float64)
    if not len(values) or not np.isfinite(values).all():
        raise UsageError("the model gave no usable probabilities", fix="check the model file")
    n = len(values)
    tokens = f"mean surprise over {n * scored} tokens in {n} windows"
    return student_geometric(values, "1", f"{tokens}; Student t", alone=f"{tokens}; no interval", level=level)


def token_error(total: float, squares: float, n: int) -> float | None:
    """What the native tool prints behind `+/-`, from sums over n tokens of surprise and of its square.

    None where it has none: for fewer than two tokens, or when all are equally likely.
    """
    mean = total / n
    variance = squares / n - mean * mean
    if n < 2 or variance <= 0:
        return None
    return math.exp(mean) * math.sqrt(variance / (n - 1))


def relative(ours: Sequence[float], theirs: Sequence[float], scored: int, *, level: float = 0.95) -> Estimate:
    """Perplexity over that of another model on the same windows: paired, so that hard windows weigh on both.

    `ours` and `theirs` are mean surprises by window. Raises `UsageError` when the windows are not the same number.
    """
    if len(ours) != len(theirs) or not len(ours):
        raise UsageError("perplexities over different windows", fix="measure both with the same text and context")
    difference = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    return perplexity(difference.tolist(), scored, level=level).model_copy(
        update={"unit": "x", "method": f"paired over {len(difference)} windows; Student t"}
    )


class ComparedModel(Record):
    """One model beside the first one of its report."""

    reference: str
    """As the model was named."""
    size_bytes: int
    bits_per_weight: float
    perplexity: Perplexity | None
    change: Estimate | None
    """Perplexity over the first model's, windows paired; None for the first one itself and where there is no saying."""
    incomparable: str
    """Why its perplexity cannot be put beside the first one's; empty where it can, or where there is none."""
    rates: tuple[Rate, ...]
    speedup: Estimate | None
    """Rate of generation over the first model's, at the smallest depth, blocks paired; None for the first one."""
    on_front: bool | None
    """No other model is as small, as good and as fast, and better in one of the three. By points: intervals are not
    looked at. None where there is nothing to compare with."""


def compare(report: QualityReport) -> tuple[ComparedModel, ...]:
    """One row for each model, in the order of the report."""
    first = report.models[0]
    reasons = [_incomparable(model.perplexity, first.perplexity) for model in report.models]
    front = _front(report.models, reasons)
    return tuple(
        ComparedModel(
            reference=model.model.reference,
            size_bytes=model.model.size_bytes,
            bits_per_weight=model.bits_per_weight,
            perplexity=model.perplexity,
            change=None if place == 0 or reasons[place] else _change(model.perplexity, first.perplexity),
            incomparable=reasons[place],
            rates=model.rates,
            speedup=None if place == 0 else _speedup(generation(model.rates), generation(first.rates)),
            on_front=front[place],
        )
        for place, model in enumerate(report.models)
    )


def perplexity_change(ours: ModelQuality, theirs: ModelQuality) -> Estimate | None:
    """Perplexity of one model over another's, windows paired; None where they cannot be compared."""
    if _incomparable(ours.perplexity, theirs.perplexity):
        return None
    return _change(ours.perplexity, theirs.perplexity)


def speed_change(ours: ModelQuality, theirs: ModelQuality) -> Estimate | None:
    """Rate of generation of one model over another's, at the smallest depth, blocks paired; None where not measured."""
    return _speedup(generation(ours.rates), generation(theirs.rates))


def generation(rates: Sequence[Rate]) -> Rate | None:
    """The generation at the smallest depth: what a model's speed is taken to be."""
    generations = [rate for rate in rates if rate.test.kind == "generate"]
    return min(generations, key=lambda rate: rate.test.depth, default=None)


def _incomparable(ours: Perplexity | None, theirs: Perplexity | None) -> str:
    if ours is None or theirs is None:
        return ""
    known = ours.tokens_sha256 is not None and theirs.tokens_sha256 is not None
    if (known and ours.tokens_sha256 != theirs.tokens_sha256) or ours.scored != theirs.scored:
        return "its vocabulary splits the text into other tokens"
    if (ours.window_tokens, ours.windows) != (theirs.window_tokens, theirs.windows):
        return "other windows"
    return ""


def _change(ours: Perplexity | None, theirs: Perplexity | None) -> Estimate | None:
    if ours is None or theirs is None:
        return None
    if ours.window_surprise and theirs.window_surprise:
        return relative(ours.window_surprise, theirs.window_surprise, ours.scored // ours.windows)
    point = ours.estimate.point / theirs.estimate.point
    return bare(point, "x", "ratio of printed numbers; no interval", n=ours.windows)


def _speedup(ours: Rate | None, theirs: Rate | None) -> Estimate | None:
    if ours is None or theirs is None or not ours.ms or not theirs.ms:
        return None
    return geometric_speedup(
        [
            (Pool(ours.test.tokens, mine), Pool(theirs.test.tokens, other))
            for mine, other in zip(ours.ms, theirs.ms, strict=True)
        ]
    )


def _front(models: Sequence[ModelQuality], reasons: Sequence[str]) -> list[bool | None]:
    """Whether each model is on the front of size, perplexity and rate of generation, as far as these are known."""
    places = [place for place, reason in enumerate(reasons) if not reason]
    if len(places) < 2:
        return [None] * len(models)
    losses = {place: _losses(models[place]) for place in places}
    if len({len(loss) for loss in losses.values()}) > 1 or len(losses[places[0]]) < 2:
        return [None] * len(models)
    return [
        None
        if place not in losses
        else not any(_beats(losses[other], losses[place]) for other in places if other != place)
        for place in range(len(models))
    ]


def _losses(model: ModelQuality) -> tuple[float, ...]:
    """What should be small: size, perplexity, time per token."""
    rate = generation(model.rates)
    quality = (model.perplexity.estimate.point,) if model.perplexity is not None else ()
    return (float(model.model.size_bytes), *quality, *((1 / rate.rate.point,) if rate is not None else ()))


def _beats(ours: tuple[float, ...], theirs: tuple[float, ...]) -> bool:
    return all(a <= b for a, b in zip(ours, theirs, strict=True)) and ours != theirs
