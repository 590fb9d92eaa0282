"""Quality and rates of models: what a ladder of quantizations is judged by.

Perplexity of a text, and how fast prompts are read and tokens are generated at given depths of the context. The package
of studies measures both (`specmeter quality`); what a report holds and what follows from it is here, since `specmeter
explain --quality` reads it. Reports are JSON files, kept in the cache folder unless another place is named.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from specmeter.cache import cache_dir
from specmeter.errors import SpecmeterError
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
MAX_LOOKED_AT = 50


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
    """Write it, whole or not at all; see `record.base`. Raises `UsageError` when that cannot be done."""
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
    for file in files[:MAX_LOOKED_AT]:
        with contextlib.suppress(SpecmeterError):
            report = load_report(file)
            if any(model.model.sha256 in hashes for model in report.models):
                found.append(report)
    return tuple(found)


def load_report(path: Path, *, inside: bool = False) -> QualityReport:
    """Read a report; see `record.base`. Raises `UsageError` that names the file and what is wrong in it."""
    return read_record(
        QualityReport, path, what="report", made_by="specmeter quality", max_bytes=MAX_BYTES, inside=inside
    )
