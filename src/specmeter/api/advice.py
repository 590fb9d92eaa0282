"""Advice from Python: `advise` and `schedule`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import get_args

from specmeter.advise.advice import Advice, AdviceQuestion, Goal
from specmeter.advise.advise import advise as carry_out
from specmeter.advise.budget import ready
from specmeter.advise.folder import choose_folder
from specmeter.advise.loads import advise_loads
from specmeter.advise.observer import Silent
from specmeter.advise.question import ask
from specmeter.advise.schedule import Schedule
from specmeter.api.arguments import is_number, need, need_type, path_of, several
from specmeter.models.reference import Fetching
from specmeter.show.notebook import ShownAdvice, ShownSchedule


def advise(
    target: str | Path = "",
    *,
    drafts: Sequence[str | Path] = (),
    find_drafts: bool | None = None,
    prompts: Sequence[str | Path] = (),
    kinds: Sequence[str] = (),
    from_file: str | Path | None = None,
    budget_s: float | None = None,
    goal: Goal = "throughput",
    wide: bool = False,
    max_tokens: int | None = None,
    overrides: Sequence[str] = (),
    out: str | Path | None = None,
    new: bool = False,
    offline: bool = False,
    progress: Callable[[Advice], None] | None = None,
) -> Advice:
    """Find the fastest configuration for a target on this machine, like `specmeter advise`.

    `drafts` are draft models to try; without any, or with `find_drafts`, specmeter searches this machine. Prompts come
    from `prompts` (files), from specmeter's own prompt types (`kinds`), or from the experiment `from_file`, whose arms
    are then tried. `goal` is `throughput` (tokens per second) or `latency` (time of the whole output, including the
    prompt). `wide` first tries threads, flash attention and KV cache types. `progress` is called with the best advice
    so far, at first a prediction. `budget_s` defaults to five minutes, more for a slow model.

    Ctrl-C returns the best advice so far (`finished` is False); the same call resumes. Raises `UsageError` for a budget
    that is too small, `ExperimentError`, `ModelError`, `StoreError`, and `EngineError` if nothing can be measured.
    """
    need(goal in get_args(Goal), "goal", goal, '"throughput" or "latency"')
    asked = _asked(
        *(target, drafts, find_drafts, prompts, kinds, from_file, budget_s, max_tokens, overrides),
        goal=goal,
        wide=wide,
    )
    fetching = Fetching(offline)
    asked, candidates, grid = ready(asked, fetching)
    folder, _ = choose_folder(asked, out=None if out is None else Path(path_of("out", out)), new=new)
    found = carry_out(asked, grid, folder, _ProgressCallback(progress), left_out=candidates.left_out, fetching=fetching)
    return ShownAdvice(**vars(found))


def schedule(
    target: str | Path = "",
    clients: Sequence[int] = (1, 2, 4, 8),
    *,
    drafts: Sequence[str | Path] = (),
    find_drafts: bool | None = None,
    prompts: Sequence[str | Path] = (),
    kinds: Sequence[str] = (),
    from_file: str | Path | None = None,
    budget_s: float | None = None,
    max_tokens: int | None = None,
    overrides: Sequence[str] = (),
    out: str | Path | None = None,
    new: bool = False,
    offline: bool = False,
    progress: Callable[[Advice], None] | None = None,
) -> Schedule:
    """Find the fastest configuration for each number of clients, like `specmeter advise --clients`.

    Each client sends its next request when its last one has ended; configurations are compared by total tokens per
    second, including prompts. `Schedule.advices` has one advice per number of clients. The budget is for all of them
    together, by default five minutes each. Other arguments are those of `advise`.
    """
    counts = several("clients", clients, int)
    need(bool(counts), "clients", clients, "a list of numbers of clients")
    asked = _asked(
        *(target, drafts, find_drafts, prompts, kinds, from_file, budget_s, max_tokens, overrides), clients=counts
    )
    fetching = Fetching(offline)
    asked, candidates, _ = ready(asked, fetching)
    folder, _ = choose_folder(asked, out=None if out is None else Path(path_of("out", out)), new=new)
    found = advise_loads(asked, candidates, folder, _ProgressCallback(progress), fetching=fetching)
    return ShownSchedule(**vars(found))


class _ProgressCallback(Silent):
    """Passes on the best advice so far."""

    def __init__(self, progress: Callable[[Advice], None] | None) -> None:
        need(progress is None or callable(progress), "progress", progress, "a function of an advice")
        self._progress = progress

    def best_so_far(self, advice: Advice) -> None:
        if self._progress is not None:
            self._progress(ShownAdvice(**vars(advice)))


def _asked(
    target: str | Path,
    drafts: Iterable[str | Path],
    find_drafts: bool | None,
    prompts: Iterable[str | Path],
    kinds: Iterable[str],
    from_file: str | Path | None,
    budget_s: float | None,
    max_tokens: int | None,
    overrides: Iterable[str],
    *,
    goal: Goal = "throughput",
    wide: bool = False,
    clients: Sequence[int] = (),
) -> AdviceQuestion:
    given = budget_s is None or (is_number(budget_s) and budget_s > 0)
    need(given, "budget_s", budget_s, "a number of seconds above 0")
    need_type("max_tokens", max_tokens, (int, type(None)), "a whole number")
    return ask(
        str(target),
        drafts=[str(it) for it in several("drafts", drafts, str, Path)],
        find_drafts=find_drafts,
        prompts=[str(it) for it in several("prompts", prompts, str, Path)],
        kinds=several("kinds", kinds, str),
        from_file=None if from_file is None else path_of("from_file", from_file),
        budget_s=budget_s or 0,  # 0: as long as the model needs
        goal=goal,
        clients=clients,
        wide=wide,
        max_tokens=max_tokens,
        settings=several("overrides", overrides, str),
    )
