"""Quality plans: several models and what is to be measured of them, described in a file.

A plan names its models. Each is given by a reference, or made from another model of the plan in a type of
`llama-quantize`. Variants, overrides and errors are those of experiment files.

A quality plan carried out: models found or made, then measured; missing models are left out with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from specmeter.analysis.quality import ModelRole, QualityReport, SkippedModel, SpeedTest, window_length
from specmeter.errors import ExperimentError, SpecmeterError, UsageError
from specmeter.experiments.experiment import MAX_VARIANTS, Variants
from specmeter.experiments.file import Bundled, FileKind, Loaded, bundled_of, load_form
from specmeter.host.machine import read_host
from specmeter.models import preflight
from specmeter.models.facts import read_header
from specmeter.models.quantize import MIXES
from specmeter.models.reference import ONLINE, Fetching, origin_of, resolve
from specmeter.record import Arm, EngineSettings, Host, ModelIdentity, Record
from specmeter.record.spec import Layers
from specmeter.text import size
from specmeter.workloads.spec import Name
from specmeter_studies.quality.measure import Origin, Progress, QualitySpec, measure
from specmeter_studies.quality.mlx import fetch_folder, is_folder, missing, read_folder
from specmeter_studies.quality.native import find_tool
from specmeter_studies.quality.requantize import make
from specmeter_studies.quality.scoring import context_for, read_text

MOST_MODELS = 100
MOST_TESTS = 40

_TEST = re.compile(r"(pp|tg)(\d{1,7})(?: @ d(\d{1,8}))?")


def parse_test(given: Any) -> Any:
    """`pp512` or `tg128 @ d4096` as a test; anything but text is left to pydantic."""
    if not isinstance(given, str):
        return given
    match = _TEST.fullmatch(given.strip())
    if match is None:
        raise ValueError(f"{given[:40]!r} is not a test; write pp512, tg128 or tg128 @ d4096")
    return {"kind": "prompt" if match[1] == "pp" else "generate", "tokens": int(match[2]), "depth": int(match[3] or 0)}


class PlannedModel(Record):
    """A model of a plan: a file that is there, or one that is made from another."""

    reference: str | None = None
    """Path, `bench:...` or `hf:...`, as in experiments; for engine `mlx` a folder, or `hf:OWNER/REPO`. Where it is
    given, nothing is made."""
    made_from: Name | None = None
    """Model of the plan in 16 or 32 bit that it is made from where no `reference` is given."""
    type: str | None = None
    """Type that it is made in, by `llama-quantize`'s names: `Q8_0`, `Q4_K_M`, ..."""
    only_source: bool = False
    """Not measured: others are made from it."""
    label: str = ""
    """For people; default: the model's name."""
    family: str = ""
    """Models that differ only in quantization share one."""
    training: Literal["qat", "ptq", ""] = ""
    """Whether quantization was part of the training (`qat`) or came after it (`ptq`); default: not said."""
    bits: Annotated[float, Field(gt=0, le=64)] | None = None
    """Bits per weight as the type is called: 4 for Q4_K_M."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        return {"reference": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _one_source(self) -> PlannedModel:
        if self.reference is None and (self.made_from is None or self.type is None):
            raise ValueError("give a `reference`, or `made_from` and `type`")
        if self.type is not None and self.type not in MIXES:
            raise ValueError(f"type {self.type[:40]!r} is not made here; use one of {', '.join(MIXES)}")
        return self

    @property
    def role(self) -> ModelRole:
        """What no file can tell."""
        return ModelRole(label=self.label, family=self.family, training=self.training, bits=self.bits)


class QualityPlan(Record):
    """Models and what is to be measured of them."""

    name: Name
    """Names the plan in reports."""
    description: str = ""
    """What it is for, in one sentence."""
    models: Annotated[dict[Name, PlannedModel], Field(min_length=1, max_length=MOST_MODELS)]
    """Name -> model; the first one is what the others are compared with."""
    score: bool = True
    """Whether perplexities are measured."""
    text: str | None = None
    """File to score, relative to the plan's folder; default: the held-out text of the bench language."""
    text_source: str = ""
    """Where to get that file; shown when it is missing."""
    context: Annotated[int, Field(ge=16, le=1_000_000)] = 512
    """Tokens of a window."""
    stride: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Tokens between windows; 0: no overlap."""
    windows: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """Windows that are scored, from the beginning of the text; default: all."""
    tests: Annotated[tuple[Annotated[SpeedTest, BeforeValidator(parse_test)], ...], Field(max_length=MOST_TESTS)] = ()
    """What is timed, by `llama-bench`'s names: `pp512`, `tg128`, `tg128 @ d4096`; default: nothing."""
    repeats: Annotated[int, Field(ge=1, le=1000)] = 6
    """Blocks in which all models take turns."""
    engine: Literal["libllama", "native", "mlx"] = "libllama"
    """`libllama`: the library of the installed wheel; `native`: `llama-perplexity` and `llama-bench`, of
    `specmeter engines build` or of your own; `mlx`: rates of models in MLX's format, by `mlx_lm`."""
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Default: all physical cores."""
    gpu_layers: Layers | None = None
    """Layers to offload; default: the engine decides."""
    without_mlx: Name | None = None
    """Variant that takes the plan's place where its engine is `mlx` and there is none."""
    variants: Annotated[Variants, Field(default_factory=dict)]
    """Name -> what it changes in this file when it is chosen; as in experiments."""
    applied: Annotated[tuple[Name, ...], Field(max_length=MAX_VARIANTS)] = ()
    """Variants that made this plan what it is, in their order; written by specmeter."""

    @model_validator(mode="after")
    def _consistent(self) -> QualityPlan:
        if not self.score and not self.tests:
            raise ValueError("there is nothing to measure: set score: true, or name tests")
        for name, model in self.models.items():
            source = model.made_from
            if model.reference is None and source is not None and (source not in self.models or source == name):
                raise ValueError(f"models.{name}.made_from: {source!r} is not another model of the plan")
            if model.reference is None and source is not None and self.models[source].reference is None:
                raise ValueError(f"models.{name}.made_from: {source!r} is itself made from another; name that one")
            if self.engine == "mlx" and model.reference is None:
                raise ValueError(f"models.{name}: MLX models are not made here; give a reference")
        if all(model.only_source for model in self.models.values()):
            raise ValueError("models: all are only_source, so nothing would be measured")
        if self.engine == "mlx" and self.score:
            raise ValueError("MLX models are timed, not scored: set score: false")
        return self


LoadedPlan = Loaded[QualityPlan]

_FORM = FileKind(
    kind=QualityPlan,
    shelf="specmeter_studies.plans",
    word="quality plan",
    listing="`specmeter quality --help` names the bundled ones",
    keys="docs/how-to/quality.md explains every key",
    start="start from the example in docs/how-to/quality.md",
)


def bundled_plans() -> dict[str, Bundled]:
    """The plans that ship with specmeter, by name."""
    return bundled_of(_FORM)


def load_plan(reference: str, overrides: Sequence[str] = (), *, variants: Sequence[str] = ()) -> LoadedPlan:
    """Read a bundled plan by name, or a file by path; merge `variants` into it, then apply `a.b=c` overrides.

    Raises `ExperimentError` for a missing file, bad YAML, unknown keys, wrong types, unknown variants and bad
    overrides.
    """
    load = partial(load_form, _FORM, reference, overrides)
    loaded = load(variants=variants)
    instead = loaded.value.without_mlx
    if loaded.value.engine == "mlx" and instead is not None and missing():
        return load(variants=(instead, *variants))
    return loaded


def text_path(loaded: LoadedPlan) -> Path | None:
    """The file to score; None: the bundled text. Raises `ExperimentError`, which says where to get it, without it."""
    plan = loaded.value
    if plan.text is None:
        return None
    path = loaded.base_dir / Path(plan.text).expanduser()
    if plan.score and not path.is_file():
        source = f"get it from {plan.text_source}, then " if plan.text_source else ""
        raise ExperimentError(
            f"{loaded.source}: text: {plan.text} does not exist",
            fix=f"{source}--set text=FILE; or leave scoring out with --set score=false",
        )
    return path


def measure_plan(
    loaded: LoadedPlan,
    *,
    progress: Progress,
    keep: Callable[[QualityReport], None],
    earlier: QualityReport | None = None,
    host: Host | None = None,
    fetching: Fetching = ONLINE,
) -> QualityReport:
    """Measure what the plan asks for. `keep` is given what there is after each score and each complete block, and the
    whole at the end; an `earlier`, interrupted report of the same plan is resumed.

    Raises `UsageError` when none of the models is available or there is no text, `EngineError` without the engine or
    when it fails.
    """
    request = prepare(loaded, fetching)
    return carry_out(request, progress=progress, keep=keep, earlier=earlier, host=host)


def carry_out(
    request: QualitySpec,
    *,
    progress: Progress,
    keep: Callable[[QualityReport], None],
    earlier: QualityReport | None = None,
    host: Host | None = None,
) -> QualityReport:
    """Measure a prepared plan, as `measure_plan` does."""
    report = measure(request, host or read_host(), progress, keep, earlier)
    keep(report)
    return report


def prepare(loaded: LoadedPlan, fetching: Fetching = ONLINE) -> QualitySpec:
    """The plan with its models found, made or left out. Raises as `measure_plan` does."""
    plan = loaded.value
    text, identity = read_text(text_path(loaded) if plan.score else None)
    native = plan.engine == "native"
    scorer = find_tool("llama-perplexity", "auto") if native and plan.score else None
    bench = find_tool("llama-bench", "auto") if native and plan.tests else None
    shelf = _Shelf(plan, loaded.base_dir, fetching)
    shelf.fill()
    if not shelf.models:
        reasons = "".join(f"\n  {item.name}: {item.reason}" for item in shelf.skipped)
        raise UsageError(
            f"{loaded.source}: none of the plan's models can be measured here:{reasons}",
            fix="give files of your own with --set models.NAME.reference=FILE, or choose --variant bench",
        )
    return QualitySpec(
        models=shelf.models,
        text=text,
        text_identity=identity,
        context=plan.context,
        stride=plan.stride,
        windows=plan.windows,
        score=plan.score,
        tests=plan.tests,
        blocks=plan.repeats,
        settings=EngineSettings(threads=plan.threads, gpu_layers=plan.gpu_layers),
        native_perplexity=scorer,
        native_bench=bench,
        mlx=plan.engine == "mlx",
        origins=shelf.origins,
        plan=plan.name,
        applied=plan.applied,
        skipped=shelf.skipped,
    )


@dataclass
class _Shelf:
    """The plan's models as they are found."""

    plan: QualityPlan
    base_dir: Path
    fetching: Fetching
    found: dict[str, tuple[ModelIdentity, str]] = field(default_factory=dict[str, tuple[ModelIdentity, str]])
    """Name -> (identity, how the file was made), whether it is measured or not."""
    models: list[ModelIdentity] = field(default_factory=list[ModelIdentity])
    """Those that are measured."""
    origins: list[Origin] = field(default_factory=list[Origin])
    skipped: list[SkippedModel] = field(default_factory=list[SkippedModel])

    def fill(self) -> None:
        """Find or make each model."""
        problems: dict[str, str] = {}
        models = self.plan.models
        # Files that are given come first: others are made from them, wherever they stand in the plan.
        for name in sorted(models, key=lambda name: models[name].reference is None):
            try:
                self.found[name] = self._one(name, models[name])
                if not models[name].only_source:
                    _refuse_too_large(self.plan, self.found[name][0])
            except SpecmeterError as error:
                problems[name] = f"{error.message} ({error.fix})"
        for name, model in models.items():
            if name in problems:
                self.skipped.append(SkippedModel(name=name, reason=problems[name]))
            elif not model.only_source:
                identity, made = self.found[name]
                self.models.append(identity)
                self.origins.append(Origin(role=model.role, made=made))

    def _one(self, name: str, model: PlannedModel) -> tuple[ModelIdentity, str]:
        """(identity, how it was made)."""
        if model.reference is not None:
            if self.plan.engine == "mlx":
                return _mlx_model(name, model.reference, self.base_dir, self.fetching), ""
            return _gguf_model(name, model.reference, self.base_dir, self.fetching), ""
        assert model.made_from is not None
        assert model.type is not None
        if model.made_from not in self.found:
            raise UsageError(f"{model.made_from}, its source, is missing", fix="give its file")
        source = self.found[model.made_from][0]
        made = make(Path(source.path), model.type, self.fetching.progress_of(name))
        identity = resolve(name, str(made.path), base_dir=self.base_dir)
        # It is the source's text and origin.
        update = {
            "reference": f"{source.reference} as {model.type}",
            "origin": source.origin,
            "timing_only": source.timing_only,
            "header": read_header(made.path),
        }
        return identity.model_copy(update=update), made.how


def _gguf_model(name: str, reference: str, base_dir: Path, fetching: Fetching) -> ModelIdentity:
    model = resolve(name, reference, base_dir=base_dir, fetching=fetching)
    return model.model_copy(update={"header": read_header(Path(model.path))})


def _mlx_model(name: str, reference: str, base_dir: Path, fetching: Fetching) -> ModelIdentity:
    if reference.startswith("hf:"):
        path = fetch_folder(reference, offline=fetching.offline)
    else:
        path = base_dir / Path(reference).expanduser()
        if not is_folder(path):
            raise UsageError(f"{path}: not a folder with a config.json", fix="name a model in MLX's format")
    folder = read_folder(path)
    return ModelIdentity(
        name=name,
        reference=reference,
        path=str(path.absolute()),
        sha256=folder.sha256,
        size_bytes=folder.size_bytes,
        origin="hf" if origin_of(reference) == "hf" else "path",
    )


def _refuse_too_large(plan: QualityPlan, model: ModelIdentity) -> None:
    """Raise `UsageError` for a model that does not fit into memory."""
    if plan.engine == "mlx":
        from specmeter.host.limits import memory_available_bytes

        if model.size_bytes > (free := memory_available_bytes()):
            raise UsageError(
                f"needs {size(model.size_bytes)} of memory; {size(free)} is free",
                fix="close other programs, or use a machine with more memory",
            )
        return
    longest = window_length(plan.context, plan.stride) if plan.score else 16
    longest = max(longest, context_for(plan.tests) if plan.tests else 16)
    preflight.check(
        [Arm(id=f"quality of {model.name}", target="target", engine=EngineSettings(context=longest))], {"target": model}
    )


def names(report: QualityReport) -> Iterator[str]:
    """What the models of a report are called for people: the plan's label or name, else the reference."""
    for item in report.models:
        role = item.role or ModelRole()
        yield role.label or (item.model.name if report.plan else item.model.reference)
