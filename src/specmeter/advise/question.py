"""A question, and what it comes to before anything is measured: what would be tried and needed, prompts that do not
fit."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.advise.advice import MOST_CLIENTS, MOST_LOADS, Asked, LeftOutDraft
from specmeter.engines import Launch
from specmeter.errors import ExperimentError, UsageError
from specmeter.experiments.described import LOOKUP, refuse_absent_prompts, refuse_engine, with_simulation
from specmeter.experiments.file import bundled, load
from specmeter.laboratory.plan import make_plan
from specmeter.laboratory.run import most_tokens, resolve_models, working_engine
from specmeter.models.reference import absolute
from specmeter.record import Record
from specmeter.workloads.spec import ALL_KINDS

if TYPE_CHECKING:
    from specmeter.advise.advice import Goal
    from specmeter.advise.candidates import Candidates
    from specmeter.experiments.file import LoadedExperiment
    from specmeter.laboratory.run import ModelProgress
    from specmeter.record import Arm, Prompt


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
    plain_s: float | None
    """Rough time of plain decoding on all of the prompts; None where a size is unknown."""
    memory_bytes: int | None
    """Of target and largest draft with their KV caches; None where a size is unknown."""
    memory_free_bytes: int
    disk_bytes: int
    """To be written: models that are not here yet, and what is measured."""
    problems: tuple[str, ...]
    """Why it would be refused, or fail here."""


def ask(
    target: str = "",
    *,
    drafts: Sequence[str] = (),
    find_drafts: bool | None = None,
    prompts: Sequence[str] = (),
    kinds: Sequence[str] = (),
    from_file: str | None = None,
    budget_s: float,
    goal: Goal = "throughput",
    clients: Sequence[int] = (),
    wide: bool = False,
    max_tokens: int | None = None,
    settings: Sequence[str] = (),
) -> Asked:
    """The question, with paths from the root. Drafts are looked for where `find_drafts`, or none is named.

    Raises `UsageError` for what does not go together, and `ModelError` for what is not a reference.
    """
    if from_file is not None:
        options = {
            "TARGET": target,
            "--draft": drafts,
            "--find": find_drafts is not None,
            "--prompts": prompts,
            "--kind": kinds,
            "--wide": wide,
        }
        if named := [option for option, value in options.items() if value]:
            raise UsageError(
                f"{', '.join(named)}: {from_file} says that itself",
                fix="leave --from out, or change the file with --set",
            )
    elif not target:
        raise UsageError("advise: no target is named", fix="name a GGUF file (`specmeter advise big.gguf`)")
    if prompts and kinds:
        raise UsageError(
            "--kind: goes with the prompts of specmeter, and --prompts names yours", fix="leave one of them out"
        )
    if unknown := [it for it in kinds if it not in ALL_KINDS]:
        raise UsageError(f"--kind {unknown[0][:80]}: unknown", fix=f"choose of {', '.join(ALL_KINDS)}")
    refuse_absent_prompts(prompts)
    if clients:
        _refuse_clients(clients, goal, wide=wide)
    if target:
        references = [target, *drafts]
        settings = with_simulation(references, settings)
        described = {"target": absolute(target), "arms": [{"method": LOOKUP}]}
        refuse_engine(load(described, settings).experiment.engine.kind, references)
    return Asked(
        target=absolute(target) if target else "",
        drafts=tuple(absolute(it) for it in dict.fromkeys(drafts)),
        find_drafts=not drafts if find_drafts is None else find_drafts,
        prompts=tuple(str(Path(it).absolute()) for it in prompts),
        kinds=tuple(dict.fromkeys(kinds)),
        from_file=from_file if from_file is None or from_file in bundled() else str(Path(from_file).absolute()),
        budget_s=budget_s,
        goal=goal,
        clients=tuple(sorted(clients)),
        wide=wide,
        max_tokens=max_tokens,
        settings=tuple(settings),
    )


def _refuse_clients(clients: Sequence[int], goal: Goal, *, wide: bool) -> None:
    """Raise `UsageError` for numbers of clients that cannot be asked about, and for what does not go with them."""
    if out := [it for it in clients if not 1 <= it <= MOST_CLIENTS]:
        raise UsageError(f"--clients {out[0]}: is not between 1 and {MOST_CLIENTS}", fix="write --clients 1,2,4,8")
    if len(set(clients)) < len(clients) or len(clients) > MOST_LOADS:
        raise UsageError(
            f"--clients: {', '.join(map(str, clients[:20]))}: lists a number twice, or more than {MOST_LOADS} of them",
            fix="write --clients 1,2,4,8",
        )
    if goal != "throughput":
        raise UsageError(
            f"--goal {goal}: with --clients, total tokens per second are compared, prompts included",
            fix="leave --goal out; `specmeter run --clients` shows latencies at each load",
        )
    if wide:
        raise UsageError(
            "--wide: does not go with --clients",
            fix="find the settings first (`specmeter advise --wide`), then give them with --clients",
        )


def grid_of(asked: Asked, candidates: Candidates) -> LoadedExperiment:
    """The configurations to choose from; what is wrong with them or with the prompts is said here.

    Raises `ExperimentError`, and what reading the prompts raises.
    """
    from specmeter import workloads
    from specmeter.advise.grid import grid

    loaded = grid(asked, candidates.references, candidates.heads)
    workloads.count(loaded.experiment.workloads, base_dir=loaded.base_dir)
    return loaded


def outline(asked: Asked, candidates: Candidates, grid: LoadedExperiment, *, offline: bool = False) -> Outline:
    """What would be tried, and what that needs; builds, downloads and starts nothing.

    Raises `ExperimentError` or `ModelError` for what would be refused as well, as far as it can be seen from here.
    """
    arms = grid.experiment.expand()
    baselines = {arm.id for arm in arms if arm.role == "baseline"}
    one_of_each = {arm.id for arm in {arm.draft: arm for arm in arms if arm.draft is not None}.values()}
    first_load = arms[0].load
    needs = make_plan(grid, offline=offline, leave_out={arm.id for arm in arms} - baselines - one_of_each)
    plain = make_plan(_once(grid), offline=offline, leave_out={arm.id for arm in arms} - baselines)
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
        plain_s=plain.seconds,
        memory_bytes=needs.memory_bytes,
        memory_free_bytes=needs.memory_available_bytes,
        disk_bytes=needs.disk_bytes,
        problems=(*needs.problems, *(() if candidates.looked else ("drafts are looked for once the target is here",))),
    )


def refuse_long_prompts(
    grid: LoadedExperiment, *, offline: bool = False, progress: ModelProgress | None = None
) -> None:
    """Raise `ExperimentError` for a prompt that does not fit into the context together with its answer.

    A token has a byte at least, so the bytes of a text are a bound. The target's tokenizer is asked only where a prompt
    has more of them than there is room; without the tokens of a chat template, so that what is refused is too long.
    """
    from specmeter import workloads

    experiment = grid.experiment
    specs = [spec for spec in experiment.workloads if not workloads.needs_tokenizer(spec)]
    prompts = workloads.load(specs, base_dir=grid.base_dir)
    tokens = {spec.name: most_tokens(experiment, spec) for spec in specs}
    for arm in experiment.expand():
        if arm.role != "baseline":
            continue
        room = arm.engine.context // arm.engine.slots
        mine = [prompt for prompt in prompts if not arm.workloads or prompt.workload in arm.workloads]
        long = [it for it in mine if _bytes(it) + (it.max_tokens or tokens[it.workload]) > room]
        counts = _counted(grid, arm, long, offline=offline, progress=progress) if long else {}
        for prompt in long:
            answer = prompt.max_tokens or tokens[prompt.workload]
            if counts[prompt.id] + answer > room:
                longer = (counts[prompt.id] + answer + 256) * (1 if arm.load else arm.engine.slots)
                raise ExperimentError(
                    f"{prompt.id}: the prompt has {counts[prompt.id]} tokens and {answer} are to be generated, but the "
                    f"context has room for {room}",
                    fix=f"use a longer context (-c {longer}) or shorter prompts",
                )


def _counted(
    grid: LoadedExperiment, arm: Arm, prompts: list[Prompt], *, offline: bool, progress: ModelProgress | None
) -> dict[str, int]:
    """Prompt id -> tokens by the target's own tokenizer."""
    engine, _, _ = working_engine(grid.experiment)
    models = resolve_models(grid, [arm], offline=offline, progress=progress)
    with tempfile.TemporaryDirectory(prefix="specmeter-") as scratch:
        launch = Launch(arm, models[arm.target], None, Path(scratch) / "tokenizer.log")
        with engine.start(launch) as session:
            return {prompt.id: sum(len(session.tokenize(it)) for it in _texts(prompt)) for prompt in prompts}


def _texts(prompt: Prompt) -> list[str]:
    return [*(message.content for message in prompt.before), prompt.text]


def _bytes(prompt: Prompt) -> int:
    return sum(len(text.encode()) for text in _texts(prompt))


def _once(grid: LoadedExperiment) -> LoadedExperiment:
    design = grid.experiment.design.model_copy(update={"blocks": 1, "invocations": 1})
    return replace(grid, experiment=grid.experiment.model_copy(update={"design": design}))


def _kinds(grid: LoadedExperiment) -> dict[str, int]:
    """Kind of text -> prompts; those of an exact length, which need a tokenizer, by the names of their workloads."""
    from specmeter import workloads

    specs = grid.experiment.workloads
    told = [spec for spec in specs if not workloads.needs_tokenizer(spec)]
    others = [spec for spec in specs if workloads.needs_tokenizer(spec)]
    kinds = Counter(prompt.kind for prompt in workloads.load(told, base_dir=grid.base_dir))
    return dict(kinds) | (workloads.count(others) if others else {})
