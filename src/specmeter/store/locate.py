"""Where folders of runs, studies, advices and schedules lie: at a path, by name under `specmeter-runs/`, or latest."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Literal

from specmeter.errors import StoreError
from specmeter.store.database import DATABASE_NAME
from specmeter.store.guarded import is_run
from specmeter.store.run import RunStore

RUNS_FOLDER = Path("specmeter-runs")
"""Where runs and studies go without `--out`, relative to the current folder."""
STUDY_NAME = "study.json"
ADVICE_NAME = "advice.json"
SCHEDULE_NAME = "schedule.json"

Sort = Literal["run", "advice", "schedule", "study"]
"""What a folder holds. A schedule is one of advices at several numbers of clients."""
RECORDS: dict[Sort, str] = {
    "advice": ADVICE_NAME,
    "schedule": SCHEDULE_NAME,
    "study": STUDY_NAME,
    "run": DATABASE_NAME,
}
"""Sort -> the file that says so, and what it is about."""
ADVISED: tuple[Sort, ...] = ("advice", "schedule")


def sort_of(folder: Path) -> Sort | None:
    """What a folder holds; None where that is nothing of ours."""
    for sort, name in RECORDS.items():
        if is_run(folder) if sort == "run" else (folder / name).is_file():
            return sort
    return None


def a_sort(sort: Sort) -> str:
    """As errors call it."""
    return f"an {sort}" if sort == "advice" else f"a {sort}"


def find_runs(runs: Path = RUNS_FOLDER, name: str | None = None) -> list[Path]:
    """Run folders under `runs`, oldest first; only those of the experiment `name` where it is given."""
    found = [folder for folder in _folders(runs, name) if is_run(folder)]
    return sorted(found, key=lambda folder: (folder / DATABASE_NAME).lstat().st_ctime_ns)


def find_folders(*sorts: Sort, runs: Path = RUNS_FOLDER, name: str | None = None) -> list[Path]:
    """Folders of these sorts under `runs`, oldest first; only those of `name` where it is given."""
    found = [(folder / RECORDS[sort], folder) for folder in _folders(runs, name) if (sort := sort_of(folder)) in sorts]
    return [folder for _, folder in sorted(found, key=lambda it: it[0].stat().st_mtime_ns)]


def find_all(runs: Path = RUNS_FOLDER) -> list[Path]:
    """Runs, studies, advices and schedules under `runs`, the one written to last at the end."""
    return sorted(filter(sort_of, _folders(runs, None)), key=written_at)


def find_advice(reference: str, runs: Path = RUNS_FOLDER) -> Path:
    """The folder of an advice or a schedule by its path, by its name under `runs`, or `latest`. Raises `StoreError`."""
    if reference == "latest":
        found = [it for it in find_all(runs) if sort_of(it) in ADVISED]
        if not found:
            raise StoreError(f"{runs}: contains no advice", fix="get one with `specmeter advise TARGET.gguf`")
        return found[-1]
    path = _named(reference, runs)
    path = path.parent if path.name in map(RECORDS.get, ADVISED) and path.is_file() else path
    if sort_of(path) not in ADVISED:
        raise StoreError(
            f"{path}: not an advice folder (no {ADVICE_NAME})",
            fix="pass a folder made by `specmeter advise`",
        )
    return path


def find_run(reference: str, runs: Path = RUNS_FOLDER) -> Path:
    """A run, study, advice or schedule by its folder, by its folder's name under `runs`, or `latest`: the one written
    to last, whatever it is; a run without any request only where there is nothing else. Raises `StoreError`."""
    if reference == "latest":
        found = find_all(runs)[::-1]
        if not found:
            raise StoreError(
                f"{runs}: contains no runs", fix="measure one with `specmeter run demo`, or pass a run folder"
            )
        return next((it for it in found if not is_run(it) or _has_requests(it)), found[0])
    path = _named(reference, runs)
    return path.parent if path.name == DATABASE_NAME and path.is_file() else path


def find_study(reference: str, runs: Path = RUNS_FOLDER) -> Path:
    """A study folder by its path, by its name under `runs`, or `latest`. Raises `StoreError`."""
    if reference == "latest":
        found = find_folders("study", runs=runs)
        if not found:
            raise StoreError(
                f"{runs}: contains no studies", fix="run one; `specmeter study list` shows what is available"
            )
        return found[-1]
    path = _named(reference, runs)
    if sort_of(path) != "study":
        raise StoreError(
            f"{path}: is not a study folder (it has no {STUDY_NAME})",
            fix="measure it first with `specmeter study run NAME`; for a document's own numbers use `specmeter report "
            "--published NAME`, for a single run `specmeter show`",
        )
    return path


def new_folder(name: str, runs: Path = RUNS_FOLDER) -> Path:
    """A free name for a run of the experiment, or a study, `name`: it says when it was started. Raises `StoreError`."""
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    for attempt in range(1000):
        folder = runs / (f"{name}-{stamp}" + (f"-{attempt}" if attempt else ""))
        if not folder.exists():
            return folder
    raise StoreError(f"{runs}: no free folder name for {name}-{stamp}", fix="choose a folder with --out")


def _folders(runs: Path, name: str | None) -> list[Path]:
    """What lies under `runs`; of `name`, as `new_folder` calls it, where it is given."""
    pattern = re.compile(re.escape(name) + r"-\d{8}-\d{6}(-\d+)?$") if name else re.compile("")
    try:
        return [entry for entry in runs.iterdir() if pattern.match(entry.name)]
    except OSError:
        return []


def written_at(folder: Path) -> int:
    """When a folder was written to last: its own record or one in it, as studies and schedules continue in their
    parts."""
    places = (place / name for place in (folder, *folder.glob("*")) for name in RECORDS.values())
    return max((place.lstat().st_mtime_ns for place in places if place.is_file()), default=0)


def _named(reference: str, runs: Path) -> Path:
    path = Path(reference).expanduser()
    under = runs / reference
    return under if not path.exists() and path.parent == Path() and under.is_dir() else path


def _has_requests(folder: Path) -> bool:
    """Whether a run holds any request; a damaged one counts, so that reading it says what is wrong with it."""
    try:
        with RunStore.open(folder, readonly=True) as store:
            state = store.state()
    except StoreError:
        return True
    return state.ok + state.failed > 0
