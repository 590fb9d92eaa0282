"""Chooses the folder of an advice: the one that a question continues in, or a new one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.advise.advice import GRID_NAME, Advice, AdviceQuestion, read_advice, write_advice
from specmeter.advise.schedule import Schedule, read_advised
from specmeter.errors import StoreError, UsageError
from specmeter.experiments.defaults import name_of
from specmeter.files import write_inside
from specmeter.store.locate import ADVICE_NAME, ADVISED, RUNS_FOLDER, find_advice, find_folders, new_folder, sort_of

if TYPE_CHECKING:
    from specmeter.advise.advice import LeftOutDraft
    from specmeter.experiments.file import LoadedExperiment


def choose_folder(
    asked: AdviceQuestion, *, out: Path | None = None, new: bool = False, runs: Path = RUNS_FOLDER
) -> tuple[Path, bool]:
    """(folder, whether it is resumed): `out`, or the latest unfinished advice or schedule that was asked the
    same, whatever the budget, or a new folder. Raises `StoreError` where a `new` one is wanted in a folder that holds
    one, and for a folder of another question."""
    name = f"{'schedule' if asked.clients else 'advise'}-{name_of(asked.target or asked.from_file or 'advice')}"
    if out is not None:
        held = _held(out)
        if held is None:
            return out, False
        if new:
            raise StoreError(
                f"{out}: already contains an advice, and --new needs a new folder",
                fix="choose another folder with --out",
            )
        if not _same_question(held().asked, asked):
            raise StoreError(
                f"{out}: contains the advice for another question",
                fix="repeat the command that started it, or choose another folder with --out",
            )
        return out, True
    for folder in (
        () if new else reversed(find_folders("schedule" if asked.clients else "advice", runs=runs, name=name))
    ):
        before = _readable(folder)
        if (
            before is not None
            and not before.finished
            and before.again_of is None
            and _same_question(before.asked, asked)
        ):
            return folder, True
    return new_folder(name, runs), False


def _held(folder: Path) -> Callable[[], Advice | Schedule] | None:
    """How to read what a folder holds; None where it holds neither an advice nor a schedule."""
    return partial(read_advised, folder, examine=False) if sort_of(folder) in ADVISED else None


def choose_again(
    before: str | None = None, *, out: Path | None = None, runs: Path = RUNS_FOLDER
) -> tuple[Path, Path, bool]:
    """(folder of an advice or a schedule, folder to confirm it in again, whether that was started): the one that is
    named, or the latest that was finished; an unfinished confirmation of it is resumed. Raises `StoreError` where
    there is none."""
    folders = sorted(find_folders(*ADVISED, runs=runs), key=lambda it: it.stat().st_mtime_ns)
    advices = {it: found for it in folders if (found := _readable(it)) is not None}
    if before is not None:
        older = find_advice(before, runs)
    else:
        older = next((it for it in reversed(advices) if advices[it].finished and advices[it].again_of is None), None)
        if older is None:
            raise StoreError(f"{runs}: contains no finished advice", fix="get one with `specmeter advise TARGET.gguf`")
    if out is not None:
        return older, out, _held(out) is not None
    name = f"again-{older.name}"
    for folder in reversed(find_folders(*ADVISED, runs=runs, name=name)):
        if folder in advices and not advices[folder].finished:
            return older, folder, True
    return older, new_folder(name, runs), False


def _readable(folder: Path) -> Advice | Schedule | None:
    held = _held(folder)
    try:
        return None if held is None else held()
    except UsageError:
        return None


def _same_question(one: AdviceQuestion, other: AdviceQuestion) -> bool:
    return one.model_copy(update={"budget_s": other.budget_s}) == other


def begun(asked: AdviceQuestion, grid: LoadedExperiment, folder: Path, left_out: Sequence[LeftOutDraft]) -> Advice:
    """The advice of a folder, or a new one in it."""
    if (folder / ADVICE_NAME).is_file():
        before = read_advice(folder)
        if not _same_question(before.asked, asked):
            raise StoreError(
                f"{folder}: contains the advice for another question", fix="choose another folder with --out"
            )
        return before if before.finished else before.model_copy(update={"asked": asked})
    return beginning(Advice(asked=asked, made_at=time.time(), left_out=tuple(left_out)), grid, folder)


def beginning(advice: Advice, grid: LoadedExperiment, folder: Path) -> Advice:
    """Begin an advice in a new folder, with its grid. Raises `StoreError` where that cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_inside(folder, GRID_NAME, grid.text.encode())
    except OSError as error:
        raise StoreError(
            f"{folder}: cannot be written ({error.strerror})", fix="choose another folder with --out"
        ) from None
    write_advice(advice, folder)
    return advice
