"""Quality and rates of models: what a ladder of quantizations is judged by.

Perplexity of a text, and how fast prompts are read and tokens are generated at given depths of the context. Both are
measured through llama.cpp's C interface, or by its own tools where that is asked for.

    windows      which tokens of a text are scored, and what follows from their probabilities
    scoring      the probabilities, window by window
    timing       times of prompts and of generations
    child        both in a process of their own
    native       the same by `llama-perplexity` and `llama-bench`
    mlx          rates of models in MLX's format; mlx_folder: what their files say
    measure      all of it for several models, in balanced order
    plan         several models described in a file; planned: its models found or made, and measured
    comparison   the models beside each other
    text, files  what is read, what is kept
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from specmeter.record import EngineIdentity, EngineSettings, Estimate, Host, ModelIdentity, Record


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
