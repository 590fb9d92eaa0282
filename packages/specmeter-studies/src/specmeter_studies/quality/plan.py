"""Quality plans: several models and what is to be measured of them, described in a file.

A plan names its models. Each is given by a reference, or made from another model of the plan in a type of
`llama-quantize`. Variants, overrides and errors are those of experiment files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from specmeter.analysis.quality import ModelRole, SpeedTest
from specmeter.errors import ExperimentError
from specmeter.experiments.experiment import MAX_VARIANTS, Variants
from specmeter.experiments.file import Bundled, FileKind, Loaded, bundled_of, load_form
from specmeter.models.quantize import MIXES
from specmeter.record import Record
from specmeter.record.spec import Layers
from specmeter.workloads.spec import Name
from specmeter.workloads.texts import PROMPTS
from specmeter_studies.quality.mlx import missing

MAX_MODELS = 100
MAX_TESTS = 40

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
            raise ValueError(f"type {self.type[:40]!r} cannot be made here; use one of {', '.join(MIXES)}")
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
    models: Annotated[dict[Name, PlannedModel], Field(min_length=1, max_length=MAX_MODELS)]
    """Name -> model; the first one is what the others are compared with."""
    score: bool = True
    """Whether perplexities are measured."""
    text: str | None = None
    """File to score, relative to the plan's folder, or `bundled:prompts`: the prompts for real models. Default: the
    held-out text of the bench language."""
    text_source: str = ""
    """Where to get that file; shown when it is missing."""
    context: Annotated[int, Field(ge=16, le=1_000_000)] = 512
    """Tokens of a window."""
    stride: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Tokens between windows; 0: no overlap."""
    windows: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """Windows that are scored, from the beginning of the text; default: all."""
    tests: Annotated[tuple[Annotated[SpeedTest, BeforeValidator(parse_test)], ...], Field(max_length=MAX_TESTS)] = ()
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
            raise ValueError("nothing to measure: set score: true, or list tests")
        for name, model in self.models.items():
            source = model.made_from
            if model.reference is None and source is not None and (source not in self.models or source == name):
                raise ValueError(f"models.{name}.made_from: {source!r} is not another model of the plan")
            if model.reference is None and source is not None and self.models[source].reference is None:
                raise ValueError(f"models.{name}.made_from: {source!r} is itself made from another model; use that one")
            if self.engine == "mlx" and model.reference is None:
                raise ValueError(f"models.{name}: MLX models cannot be made here; give a reference")
        if all(model.only_source for model in self.models.values()):
            raise ValueError("models: all models are only_source, so nothing would be measured")
        if self.engine == "mlx" and self.score:
            raise ValueError("perplexity of MLX models cannot be measured: set score: false")
        return self


LoadedPlan = Loaded[QualityPlan]

_FORM = FileKind(
    kind=QualityPlan,
    shelf="specmeter_studies.plans",
    word="quality plan",
    listing="`specmeter quality --help` lists the bundled ones",
    keys="correct these keys; docs/how-to/quality.md explains every key",
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
    if plan.text == PROMPTS:
        return Path(PROMPTS)
    path = loaded.base_dir / Path(plan.text).expanduser()
    if plan.score and not path.is_file():
        source = f"get it from {plan.text_source}, then " if plan.text_source else ""
        raise ExperimentError(
            f"{loaded.source}: text: {plan.text} does not exist",
            fix=f"{source}--set text=FILE; or skip perplexity with --set score=false",
        )
    return path
