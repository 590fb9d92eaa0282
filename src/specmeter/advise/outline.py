"""The outline of an advice: what it would try, and what it would need (`specmeter advise --dry-run`)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from specmeter import workloads
from specmeter.advise.advice import AdviceQuestion, LeftOutDraft
from specmeter.experiments.file import LoadedExperiment
from specmeter.laboratory.plan import make_plan
from specmeter.record import Record

if TYPE_CHECKING:
    from specmeter.advise.candidates import Candidates


class TriedDraft(Record):
    """A draft model that would be tried."""

    reference: str
    method: str
    size_bytes: int | None


class Outline(Record):
    """What `specmeter advise --dry-run` prints."""

    targets: tuple[str, ...]
    """Model references."""
    target_bytes: int | None
    drafts: tuple[TriedDraft, ...]
    left_out: tuple[LeftOutDraft, ...]
    configurations: dict[str, int]
    """Method -> how many would be priced."""
    prompts: dict[str, int]
    """Kind of text -> how many prompts of it."""
    clients: tuple[int, ...] = ()
    """Loads at which all of it would be asked; none: one request after the other."""
    max_tokens: int
    """Generated for each prompt."""
    budget_s: float
    answer_s: float | None
    """Rough time of an answer without speculation; None if a size is unknown."""
    memory_bytes: int | None
    """Of target and largest draft with their KV caches; None where a size is unknown."""
    memory_free_bytes: int
    disk_bytes: int
    """To be written: models that are not here yet, and what is measured."""
    problems: tuple[str, ...]
    """Why it would be refused, or fail here."""


def outline(asked: AdviceQuestion, candidates: Candidates, grid: LoadedExperiment, *, offline: bool = False) -> Outline:
    """What would be tried, and what that needs; builds, downloads and starts nothing.

    Raises `ExperimentError` or `ModelError` for what would be refused as well, as far as it can be seen from here.
    """
    arms = grid.experiment.expand()
    baselines = {arm.id for arm in arms if arm.role == "baseline"}
    one_of_each = {arm.id for arm in {arm.draft: arm for arm in arms if arm.draft is not None}.values()}
    first_load = arms[0].load
    needs = make_plan(grid, offline=offline, leave_out={arm.id for arm in arms} - baselines - one_of_each)
    plain = make_plan(once(grid), offline=offline, leave_out={arm.id for arm in arms} - baselines)
    return Outline(
        targets=tuple(grid.experiment.targets.values()),
        target_bytes=candidates.target_bytes,
        drafts=tuple(
            TriedDraft(reference=it.reference, method=it.method, size_bytes=it.size_bytes) for it in candidates.drafts
        ),
        left_out=candidates.left_out,
        configurations=dict(Counter("+".join(it.methods) for it in arms if it.speculates and it.load == first_load)),
        prompts=_kinds(grid),
        clients=asked.clients,
        max_tokens=grid.experiment.generation.max_tokens,
        budget_s=asked.budget_s,
        answer_s=None if plain.seconds is None or not plain.requests else plain.seconds / plain.requests,
        memory_bytes=needs.memory_bytes,
        memory_free_bytes=needs.memory_available_bytes,
        disk_bytes=needs.disk_bytes,
        problems=(*needs.problems, *(() if candidates.looked else ("drafts are looked for once the target is here",))),
    )


def once(grid: LoadedExperiment) -> LoadedExperiment:
    """The same, with each prompt asked once."""
    design = grid.experiment.design.model_copy(update={"blocks": 1, "invocations": 1})
    return replace(grid, value=grid.experiment.model_copy(update={"design": design}))


def _kinds(grid: LoadedExperiment) -> dict[str, int]:
    """Kind of text -> prompts; those of an exact length, which need a tokenizer, by the names of their workloads."""

    specs = grid.experiment.workloads
    told = [spec for spec in specs if not workloads.needs_tokenizer(spec)]
    others = [spec for spec in specs if workloads.needs_tokenizer(spec)]
    kinds = Counter(prompt.kind for prompt in workloads.load(told, base_dir=grid.base_dir))
    return dict(kinds) | (workloads.count(others) if others else {})
