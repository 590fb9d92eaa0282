"""A quality plan carried out: models found or made, then measured; missing models are left out with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from specmeter.analysis.perplexity import window_length
from specmeter.analysis.quality import ModelRole, QualityReport, SkippedModel
from specmeter.errors import SpecmeterError, UsageError
from specmeter.host.machine import read_host
from specmeter.models import preflight
from specmeter.models.facts import read_header
from specmeter.models.reference import ONLINE, Fetching, origin_of, resolve
from specmeter.models.requantize import make
from specmeter.record import Arm, EngineSettings, Host, ModelIdentity
from specmeter.text import size
from specmeter_studies.quality.measure import Origin, Progress, QualitySpec, measure
from specmeter_studies.quality.mlx_folder import fetch_folder, is_folder, read_folder
from specmeter_studies.quality.native import find_tool
from specmeter_studies.quality.plan import LoadedPlan, PlannedModel, QualityPlan, text_path
from specmeter_studies.quality.text import read_text
from specmeter_studies.quality.timing import context_for


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
            fix="pass your own files with --set models.NAME.reference=FILE, or choose --variant bench",
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
            raise UsageError(f"its source {model.made_from} is missing", fix="give the file of the source")
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
            raise UsageError(f"{path}: not a folder with a config.json", fix="use a model in MLX's format")
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
                f"needs {size(model.size_bytes)} of memory, but {size(free)} is free",
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
