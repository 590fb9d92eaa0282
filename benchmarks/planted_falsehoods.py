"""Honest mistakes planted into clean runs: `specmeter check` must report each.

    uv run python benchmarks/planted_falsehoods.py [--keep FOLDER] [--only NAME ...] [--provocations]

Two small clean runs are measured, by the embedded server and by the instrumented engine. Each doctoring of
`tests/provocations/doctored.py` is applied to a copy of each, and `specmeter check FOLDER` judges the copy: once with
its certificate (which says that the data was changed), and once without, so that only the data itself can contradict.
If the data still agrees with itself after a change, the copy is judged with its certificate only. A doctoring is found
if `check` reports something `invalid` or `suspect` that it does not report of the clean run. With `--provocations` the
faults that are provoked while measuring (`tests/provocations/test_provoked_*.py`) are run too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from provocations import doctored  # noqa: E402
from provocations.doctored import Judged  # noqa: E402

ENGINES = ("embedded", "libllama")


def clean_run(kind: str, folder: Path) -> Path:
    """A run with nothing wrong in it, and its report; made unless it is there."""
    run = folder / f"clean-{kind}"
    if not run.is_dir():
        experiment = doctored.EXPERIMENT | {"engine": doctored.EXPERIMENT["engine"] | {"kind": kind}}
        file = folder / f"clean-{kind}.yaml"
        file.write_text(yaml.safe_dump(experiment), encoding="utf-8")
        for command in (["run", str(file), "--out", str(run)], ["report", str(run)]):
            subprocess.run([sys.executable, "-m", "specmeter", *command], check=True, stdout=subprocess.DEVNULL)
    return run


def told(found: Judged, clean: Judged) -> str:
    """What is said of a copy that is not said of the clean run, checks by name; empty where nothing is."""
    return ", ".join(f"{check} ({severity})" for check, severity in sorted(found.told - clean.told))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="keep the clean runs in this folder, or take them from there")
    parser.add_argument("--only", nargs="*", default=(), help="names of doctorings")
    parser.add_argument("--provocations", action="store_true", help="run the faults provoked while measuring, too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder: Path = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        runs = {kind: clean_run(kind, folder) for kind in ENGINES}
        missed = print_table(runs, Path(scratch), frozenset(args.only))
    if args.provocations:
        tests = sorted((ROOT / "tests" / "provocations").glob("test_provoked_*.py"))
        command = [sys.executable, "-m", "pytest", "-m", "", "-q", "-p", "no:cacheprovider", *map(str, tests)]
        done = subprocess.run(command, cwd=ROOT, check=False)
        missed += done.returncode != 0
    sys.exit(1 if missed else 0)


def print_table(runs: dict[str, Path], scratch: Path, only: frozenset[str]) -> int:
    """One line for each doctoring, engine and manner; the number of those that nothing was said of."""
    print("| doctoring | engine | certificate | verdict | told by |\n| --- | --- | --- | --- | --- |")
    planted = missed = 0
    for kind, run in runs.items():
        kept = doctored.judge(run)
        without = doctored.judge(doctored.forged(doctored.copied(run, scratch / f"{kind}-forged")))
        manners: dict[str, tuple[Judged, Callable[[Path], Path]]] = {
            "kept": (kept, lambda folder: folder),
            "removed": (without, doctored.forged),
        }
        jobs = [(name, doctor, manner) for name, doctor in doctored.DATA.items() for manner in manners]
        jobs += [(name, doctor, "kept") for name, doctor in (doctored.AGREEING | doctored.AROUND).items()]
        for name, doctor, manner in jobs:
            if (only and name not in only) or not doctored.applies(name, run):
                continue
            clean, finish = manners[manner]
            copy = doctored.copied(run, scratch / f"{kind}-{name}-{manner}")
            doctor(copy)
            found = doctored.judge(finish(copy))
            by = told(found, clean)
            planted, missed = planted + 1, missed + (not by)
            print(f"| {name} | {kind} | {manner} | {found.verdict} | {by or '**nothing**'} |", flush=True)
    print(f"\n{planted} planted, {missed} told by nothing")
    return missed


if __name__ == "__main__":
    main()
