"""Several models from beginning to end: refuse what cannot be, score each on the text, time all of them in blocks.

Scores do not depend on when they are taken. Times do: each block times every model once, in an order that is balanced
over the blocks, each in a fresh process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import stdev

from specmeter.analysis.perplexity import perplexity, token_error, window_length
from specmeter.analysis.quality import (
    ModelQuality,
    ModelRole,
    Perplexity,
    QualityReport,
    Rate,
    SkippedModel,
    SpeedTest,
    TextIdentity,
)
from specmeter.engines import load_engine
from specmeter.engines.process import default_threads
from specmeter.errors import SpecmeterError, UsageError
from specmeter.experiments import schedule
from specmeter.models import preflight
from specmeter.models.facts import read_facts
from specmeter.numbers.stats import median_estimate
from specmeter.record import Arm, EngineIdentity, EngineSettings, Host, ModelIdentity
from specmeter_studies.quality.child import mlx_times, score_apart, time_apart
from specmeter_studies.quality.mlx_folder import read_folder
from specmeter_studies.quality.native import native_perplexity, native_times
from specmeter_studies.quality.scoring import Scores, Scoring
from specmeter_studies.quality.timing import Timing, context_for

Progress = Callable[[str, int, int], None]
"""Called with (what is measured, parts done, parts in all)."""

CONTEXT = 512
BLOCKS = 6
"""The fewest whose median has an interval of 95 %."""
SEED = 1


@dataclass(frozen=True)
class Origin:
    """What a plan says of a model, and where its file comes from."""

    role: ModelRole | None = None
    made: str = ""
    """How the file was made; empty: it was given."""


@dataclass(frozen=True)
class QualitySpec:
    """What is to be measured."""

    models: Sequence[ModelIdentity]
    """With their headers."""
    text: str
    text_identity: TextIdentity
    context: int = CONTEXT
    stride: int = 0
    windows: int | None = None
    """Score only this many windows from the beginning of the text; None: all."""
    score: bool = True
    tests: Sequence[SpeedTest] = ()
    blocks: int = BLOCKS
    settings: EngineSettings = field(default_factory=EngineSettings)
    """Its context is chosen here."""
    native_perplexity: Path | None = None
    """A `llama-perplexity` to score with; None: the embedded library."""
    native_bench: Path | None = None
    """A `llama-bench` to time with; None: the embedded library."""
    mlx: bool = False
    """The models are folders in MLX's format; only rates can be measured of them."""
    origins: Sequence[Origin] = ()
    """What a plan says of each model; empty: there is no plan."""
    plan: str = ""
    applied: Sequence[str] = ()
    skipped: Sequence[SkippedModel] = ()


def measure(
    spec: QualitySpec,
    host: Host,
    progress: Progress,
    keep: Callable[[QualityReport], None] = lambda _: None,
    earlier: QualityReport | None = None,
) -> QualityReport:
    """Measure everything. `keep` is given what there is after each model's score and each complete block.

    What an `earlier`, interrupted report holds of the same models is taken from it. Raises `UsageError` for what cannot
    be measured and for an earlier report of something else, `EngineError` when an engine fails.
    """
    threads = spec.settings.threads or default_threads()
    settings = spec.settings.model_copy(update={"threads": threads, "context": spec.context})
    refuse(spec, settings)
    embedded = load_engine("libllama").identify() if _needs_embedded(spec) else None
    origins = spec.origins or [Origin()] * len(spec.models)
    found = [_known(spec, model, origin) for model, origin in zip(spec.models, origins, strict=True)]

    def report(*, complete: bool = False) -> QualityReport:
        return QualityReport(
            made_at=time.time(),
            complete=complete,
            host=host,
            settings=settings,
            stride=spec.stride,
            most_windows=spec.windows,
            text=spec.text_identity,
            models=tuple(found),
            plan=spec.plan,
            applied=tuple(spec.applied),
            skipped=tuple(spec.skipped),
        )

    if earlier is not None:
        found = _carried_over(earlier, report(), spec.tests)
    if spec.score:
        for place, model in enumerate(spec.models):
            if found[place].perplexity is None:
                what = f"perplexity of {model.reference}"
                found[place] = _scored(spec, found[place], settings, embedded, partial(progress, what))
                keep(report())
    if spec.tests:
        for rates in _blocks(spec, settings, embedded, progress, found):
            found = [
                quality.model_copy(update={"rates": of_model[0], "rates_engine": of_model[1]})
                for quality, of_model in zip(found, rates, strict=True)
            ]
            keep(report())
    return report(complete=True)


def refuse(spec: QualitySpec, settings: EngineSettings) -> None:
    """Raise `UsageError` for random weights that are to be scored, for models that do not fit into memory, and where
    there is nothing to measure."""
    if not spec.models or not (spec.score or spec.tests):
        raise UsageError("nothing to measure", fix="give a model, and remove --no-perplexity or add --rates")
    if spec.mlx:
        if spec.score:
            raise UsageError("perplexity of MLX models cannot be measured", fix="set `score: false` in the plan")
        return
    longest = window_length(spec.context, spec.stride) if spec.score else 16
    longest = max(longest, context_for(spec.tests) if spec.tests else 16)
    for model in spec.models:
        if spec.score and model.timing_only:
            raise UsageError(
                f"{model.reference}: random weights: its perplexity is meaningless",
                fix="use a trained model, or measure only speed (--no-perplexity --rates)",
            )
        arm = Arm(
            id=f"quality of {model.reference}",
            target="target",
            engine=settings.model_copy(update={"context": longest}),
        )
        preflight.check([arm], {"target": model})


def _needs_embedded(spec: QualitySpec) -> bool:
    """Whether anything is measured without a native tool."""
    return not spec.mlx and (
        (spec.score and spec.native_perplexity is None) or (bool(spec.tests) and spec.native_bench is None)
    )


def _known(spec: QualitySpec, model: ModelIdentity, origin: Origin) -> ModelQuality:
    """The model with what its files say, before anything is measured."""
    path = Path(model.path)
    if spec.mlx:
        folder = read_folder(path)
        bits, types = folder.bits_per_weight, folder.tensor_types
    else:
        weights = read_facts(path).weights
        bits = 8 * weights.size_bytes / max(1, weights.parameters)
        types = {share.type: share.tensors for share in weights.quantization}
    return ModelQuality(
        model=model,
        bits_per_weight=bits,
        warnings=_warnings(spec, model),
        role=origin.role,
        made=origin.made,
        tensor_types=types,
    )


def _warnings(spec: QualitySpec, model: ModelIdentity) -> tuple[str, ...]:
    if spec.score and spec.text_identity.bundled and model.origin != "bench":
        return (
            "scored on the bench models' artificial language: this perplexity says nothing about the model's quality; "
            "give a real text with --text",
        )
    if spec.score and not spec.text_identity.bundled and model.origin == "bench":
        return ("a bench model knows only its own artificial language; its perplexity on other text means little",)
    return ()


# --- scores ----------------------------------------------------------------------------------------------------------


def _scored(
    spec: QualitySpec,
    quality: ModelQuality,
    settings: EngineSettings,
    embedded: EngineIdentity | None,
    heard: Callable[[int, int], None],
) -> ModelQuality:
    model = quality.model
    warnings = list(quality.warnings)
    with _about(model):
        if spec.native_perplexity is not None or embedded is None:
            assert spec.native_perplexity is not None
            result = native_perplexity(
                spec.native_perplexity,
                model,
                spec.text,
                settings,
                spec.stride,
                heard,
                windows=spec.windows,
            )
        else:
            order = Scoring(
                model=model.path,
                settings=settings,
                stride=spec.stride,
                windows=spec.windows,
                text=spec.text,
            )
            started = time.perf_counter()
            scores = score_apart(order, heard)
            result = perplexity_of(scores, time.perf_counter() - started, embedded)
            if scores.wants_bos and not scores.begins_with_bos:
                warnings.append(
                    "with --stride, windows do not start with the BOS token that this model expects (as in "
                    "llama-perplexity), so perplexity is higher than without"
                )
    if result.train_context is not None and result.window_tokens > result.train_context:
        warnings.append(
            f"windows of {result.window_tokens} tokens are longer than the training context ({result.train_context})"
        )
    return quality.model_copy(update={"perplexity": result, "warnings": tuple(warnings)})


def perplexity_of(scores: Scores, wall_s: float, engine: EngineIdentity) -> Perplexity:
    """What follows from the scores of a text's windows."""
    windows = len(scores.surprise)
    means = tuple(total / scores.scored for total in scores.surprise)
    return Perplexity(
        estimate=perplexity(means, scores.scored),
        token_error=token_error(sum(scores.surprise), sum(scores.squares), windows * scores.scored),
        windows=windows,
        window_tokens=scores.window_tokens,
        scored=windows * scores.scored,
        text_tokens=scores.text_tokens,
        tokens_sha256=scores.tokens_sha256,
        window_surprise=means,
        train_context=scores.train_context,
        begins_with_bos=scores.begins_with_bos,
        wall_s=wall_s,
        engine=engine,
    )


# --- times -----------------------------------------------------------------------------------------------------------


def _blocks(
    spec: QualitySpec,
    settings: EngineSettings,
    embedded: EngineIdentity | None,
    progress: Progress,
    earlier: Sequence[ModelQuality],
) -> Generator[list[tuple[tuple[Rate, ...], EngineIdentity | None]]]:
    """After each complete block, the rates of every model so far and the engine that they were measured with.

    Blocks that `earlier` holds are not measured again.
    """
    ids = [str(place) for place in range(len(spec.models))]
    ms: list[list[tuple[float, ...]]] = [
        list(zip(*(rate.ms for rate in model.rates), strict=True)) for model in earlier
    ]
    engines = [model.rates_engine or embedded for model in earlier]
    cells = schedule.plan(ids, spec.blocks, 1, "latin", SEED)
    past = len(ms[0]) * len(ids)
    progress("rates", past, len(cells))
    for done, cell in enumerate(cells[past:], start=past + 1):
        place = int(cell.arm_id)
        model = spec.models[place]
        with _about(model):
            if spec.mlx:
                times, engines[place] = mlx_times(model, spec.tests, SEED + cell.block)
            elif spec.native_bench is not None:
                times, engines[place] = native_times(spec.native_bench, model, spec.tests, settings)
            else:
                order = Timing(
                    model=model.path,
                    settings=settings,
                    tests=tuple(spec.tests),
                    text=spec.text,
                    seed=SEED + cell.block,
                )
                times = time_apart(order).ms
        ms[place].append(times)
        progress("rates", done, len(cells))
        if done % len(ids) == 0:
            yield [(_rates(spec.tests, of_model), engine) for of_model, engine in zip(ms, engines, strict=True)]


def _rates(tests: Sequence[SpeedTest], blocks: Sequence[tuple[float, ...]]) -> tuple[Rate, ...]:
    """`blocks` has one row per block, with the ms of each test."""
    return tuple(rate_of(test, ms) for test, ms in zip(tests, zip(*blocks, strict=True), strict=True))


def rate_of(test: SpeedTest, ms: Sequence[float]) -> Rate:
    """The rate that follows from a test's times in several blocks."""
    rates = [1e3 * test.tokens / it for it in ms]
    return Rate(
        test=test,
        rate=median_estimate(rates, unit="tok/s", of="blocks"),
        ms=tuple(ms),
        deviation=stdev(rates) if len(rates) > 1 else None,
    )


@contextmanager
def _about(model: ModelIdentity) -> Generator[None]:
    """Errors inside say which model they are about."""
    try:
        yield
    except SpecmeterError as error:
        if model.reference not in error.message:
            error.message = f"{model.reference}: {error.message}"
        raise


def _carried_over(earlier: QualityReport, now: QualityReport, tests: Sequence[SpeedTest]) -> list[ModelQuality]:
    """The models of `now`, which holds no numbers yet, with the perplexities and complete blocks of `earlier`.

    Raises `UsageError` when that report is of another machine, text, setting or model, or timed other things: numbers
    of two kinds would stand in one table.
    """
    differs = _difference(earlier, now, tests)
    if differs:
        raise UsageError(
            f"the report to continue has a different {differs}", fix="choose another file, or remove the old one"
        )
    return [
        ours.model_copy(
            update={
                "perplexity": theirs.perplexity,
                "rates": theirs.rates,
                "rates_engine": theirs.rates_engine,
                "warnings": theirs.warnings,
            }
        )
        for ours, theirs in zip(now.models, earlier.models, strict=True)
    ]


def _difference(earlier: QualityReport, now: QualityReport, tests: Sequence[SpeedTest]) -> str:
    """What the two do not have in common; empty: they go together."""
    if earlier.host.hostname_sha256 != now.host.hostname_sha256:
        return "machine"
    if (earlier.settings, earlier.stride, earlier.most_windows) != (now.settings, now.stride, now.most_windows):
        return "engine setting, context, stride or number of windows"
    if earlier.text.sha256 != now.text.sha256:
        return "text"
    if [model.model.sha256 for model in earlier.models] != [model.model.sha256 for model in now.models]:
        return "set of models"
    if any(model.rates and [rate.test for rate in model.rates] != list(tests) for model in earlier.models):
        return "set of tests"
    if len({len(rate.ms) for model in earlier.models for rate in model.rates}) > 1:
        return "number of blocks for each model"
    return ""
