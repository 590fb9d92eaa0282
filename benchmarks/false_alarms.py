"""What the checks find in runs with which nothing is wrong: every finding of weight there is a false alarm.

    uv run python benchmarks/false_alarms.py --out FOLDER --prepare           build the models, measure nothing
    uv run python benchmarks/false_alarms.py --out FOLDER [--minutes 4]       measure what is missing, as long as that
    uv run python benchmarks/false_alarms.py --out FOLDER --from 20 --to 40   only these runs
    uv run python benchmarks/false_alarms.py --out FOLDER --again             judge all kept runs by the present checks
    uv run python benchmarks/false_alarms.py --out FOLDER --report            the tables, as Markdown

104 small runs, each a baseline and one arm, three blocks, two prompts (one of them a table to be written again, where
n-grams find something). What may matter is varied: target, number format, method, draft length, threads, engine. Run 0
is the defaults on `bench:dense-400m` with `draft-small` and gamma 1. The others are a covering design: each run is the
best of 200 drawn combinations, by how many *pairs* of levels it shows for the first time, then by how many pairs it
shows for the second, then by triples, over what it takes. `--design` prints it with what it covers; the numbering never
changes. Combinations that no engine has are left out: the instrumented engine knows draft models and `ngram-simple`;
`ngram-cache` drafts 8 tokens whatever is asked for, so it has no draft length of its own here.

The goal: no `invalid` finding at all, and each `suspect` one explained. Where other programs are busy, doubts are
justified; the share of the processors that others used is kept with each run. Results are JSON lines in
FOLDER/results.jsonl, run folders lie beside it. Finished runs are not measured again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from specmeter.experiments.file import load
from specmeter.laboratory.run import prepare
from specmeter.record import Record
from specmeter.store import RunStore
from specmeter.validity.inspection import inspect

RUNS = 104
QUIET_PERCENT = 3.0
"""Share of the machine that others may use; where they use more, a doubt about speeds may well be a true one."""
_DRAWS = 200
_SEED = 1


@dataclass(frozen=True)
class Setting:
    """What a run is made with. Fields are the factors of the design."""

    target: str
    quant: str
    method: str
    gamma: int
    """0: the method has no draft length of its own."""
    threads: int
    engine: str


TARGETS = ("dense", "dense-100m", "dense-400m", "moe", "moe-100m", "moe-400m", "hybrid")
LEVELS: dict[str, tuple[Any, ...]] = {
    "target": TARGETS,
    "quant": ("F16", "Q8_0", "Q4_0"),
    "method": ("draft-small", "draft-large", "ngram-simple", "ngram-mod", "ngram-cache"),
    "gamma": (1, 2, 4, 8, 16),
    "threads": (1, 2),
    "engine": ("embedded", "libllama"),
}
NAMED = Setting("dense-400m", "Q8_0", "draft-small", 1, 2, "embedded")
"""Run 0: once ruled invalid, although nothing was wrong with it."""
EFFORT = dict.fromkeys(TARGETS, 1.0) | {"dense-100m": 1.3, "moe-100m": 1.1, "dense-400m": 3.0, "moe-400m": 1.6}
"""About how long runs of a target take, over those of a core."""


class Found(Record):
    """One finding of weight."""

    check: str
    severity: str
    place: str
    message: str


class Result(Record):
    """What the checks said of one run."""

    number: int
    setting: dict[str, str | int]
    seconds: float
    requests: int
    verdict: str
    others_percent: float
    """Median share of all processors that other programs used."""
    found: tuple[Found, ...]
    """`invalid` and `suspect` ones."""
    notes: dict[str, int]
    """Check -> notes."""
    blind: tuple[str, ...]
    """Checks that had nothing to look at, though they apply."""


# --- design -----------------------------------------------------------------------------------------------------------

Combination = tuple[tuple[str, Any], ...]


def shown(setting: Setting, size: int) -> Iterator[Combination]:
    """All combinations of `size` levels that a run shows; a missing draft length is a level of no factor."""
    levels = [(name, value) for name, value in asdict(setting).items() if (name, value) != ("gamma", 0)]
    return itertools.combinations(levels, size)


def draw(rng: random.Random) -> Setting:
    """Any combination that an engine has."""
    while True:
        setting = Setting(**{name: rng.choice(levels) for name, levels in LEVELS.items()})
        if setting.method == "ngram-cache":
            setting = replace(setting, gamma=0)
        if setting.engine == "embedded" or setting.method not in ("ngram-mod", "ngram-cache"):
            return setting


@cache
def design() -> tuple[Setting, ...]:
    """The setting of every run, in order; always the same."""
    rng = random.Random(_SEED)
    chosen = [NAMED]
    seen = Counter(combination for size in (2, 3) for combination in shown(NAMED, size))

    def gain(setting: Setting) -> float:
        pairs = [seen[pair] for pair in shown(setting, 2)]
        triples = sum(not seen[triple] for triple in shown(setting, 3))
        return (100 * pairs.count(0) + 10 * pairs.count(1) + triples) / EFFORT[setting.target]

    while len(chosen) < RUNS:
        drawn = dict.fromkeys(draw(rng) for _ in range(_DRAWS))
        best = max((setting for setting in drawn if setting not in chosen), key=gain)
        seen.update(combination for size in (2, 3) for combination in shown(best, size))
        chosen.append(best)
    return tuple(chosen)


def possible(size: int) -> set[Combination]:
    """All combinations of levels that some engine has."""
    all_settings = (Setting(*values) for values in itertools.product(*LEVELS.values()))
    fit = (
        replace(it, gamma=0) if it.method == "ngram-cache" else it
        for it in all_settings
        if it.engine == "embedded" or it.method not in ("ngram-mod", "ngram-cache")
    )
    return {combination for setting in fit for combination in shown(setting, size)}


def print_design() -> None:
    for number, setting in enumerate(design()):
        print(f"{number:3}  {' '.join(str(value) for value in astuple(setting))}")
    for size, name in ((2, "pairs"), (3, "triples")):
        seen = Counter(combination for setting in design() for combination in shown(setting, size))
        able = possible(size)
        twice = sum(count > 1 for count in seen.values())
        print(f"{name}: {len(seen)} of {len(able)} possible ones, {twice} of them more than once")


# --- measuring --------------------------------------------------------------------------------------------------------


def reference(setting: Setting) -> str:
    return f"bench:{setting.target}?quant={setting.quant}"


def arm(setting: Setting) -> dict[str, Any]:
    gamma = {"gamma": setting.gamma} if setting.gamma else {}
    match setting.method:
        case "draft-small" | "draft-large":
            return {"draft": setting.method.removeprefix("draft-"), **gamma}
        case "ngram-simple":
            # It discards drafts shorter than the n-gram it looks up.
            return {"method": setting.method, "ngram_n": min(4, setting.gamma), **gamma}
        case "ngram-mod":
            return {"method": setting.method, "ngram_n": 4, "gamma_min": 0, **gamma}
        case _:
            return {"method": setting.method}


def experiment(number: int) -> str:
    """The text of the experiment file of one run; prompts and order are its own."""
    setting = design()[number]
    name = setting.method.removeprefix("draft-")
    one = {"source": "bench", "per_kind": 1, "seed": number}
    text = ("fact", "code", "reason", "zh")[number % 4]
    document: dict[str, Any] = {
        "name": "clean",
        "targets": {"target": reference(setting)},
        "workloads": [
            {**one, "name": "text", "kinds": [text]},
            {**one, "name": "edit", "kinds": ["edit"]},
        ],
        "arms": [arm(setting)],
        "design": {"blocks": 3, "seed": number},
        "engine": {"kind": setting.engine, "context": 1024, "threads": setting.threads},
        "generation": {"max_tokens": 48},
    }
    if setting.method.startswith("draft-"):
        document["drafts"] = {name: f"bench:{setting.method}"}
    return yaml.safe_dump(document)


def write(number: int, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{number:03}.yaml"
    file.write_text(experiment(number), encoding="utf-8")
    return file


def measure(number: int, folder: Path) -> Result:
    """One run, as a user starts it: a process of its own."""
    file, run = write(number, folder), folder / f"{number:03}"
    shutil.rmtree(run, ignore_errors=True)  # what an interrupted one left would mix two moments of the machine
    started = time.perf_counter()
    command = [sys.executable, "-m", "specmeter", "run", str(file), "--out", str(run)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode not in (0, 1):
        raise SystemExit(f"run {number}: specmeter run failed:\n{done.stderr}")
    return judged(number, run, seconds)


def judged(number: int, run: Path, seconds: float) -> Result:
    """What the present checks say of a run folder."""
    with RunStore.open(run, readonly=True) as store:
        inspection, requests = inspect(store), store.state().ok
        others = [sample.other_cpu_percent for sample in store.telemetry()]
    found: list[Found] = []
    for finding in inspection.findings:
        if finding.severity == "note":
            continue
        where = f", block {finding.block}, {finding.prompt_id}" if finding.scope == "request" else ""
        place = (finding.arm_id or "run") + where
        found.append(Found(check=finding.check, severity=finding.severity, place=place, message=str(finding.message)))
    checks = inspection.certificate.checks
    return Result(
        number=number,
        setting=asdict(design()[number]),
        seconds=seconds,
        requests=requests,
        verdict=inspection.certificate.verdict,
        others_percent=statistics.median(others) if others else 0.0,
        found=tuple(found),
        notes=Counter(finding.check for finding in inspection.findings if finding.severity == "note"),
        blind=tuple(outcome.check for outcome in checks if any(gap.applies for gap in outcome.unchecked)),
    )


def read_results(folder: Path) -> dict[int, Result]:
    """The last result of each run, by its number."""
    file = folder / "results.jsonl"
    if not file.is_file():
        return {}
    results = [Result.model_validate_json(line) for line in file.read_text("utf-8").splitlines()]
    stale = [it.number for it in results if it.setting != asdict(design()[it.number])]
    if stale:
        raise SystemExit(f"{file}: runs {stale} were made by another design; name another folder with --out")
    return {it.number: it for it in sorted(results, key=lambda it: it.number)}


def keep(result: Result, folder: Path) -> None:
    with (folder / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write(result.model_dump_json() + "\n")


# --- telling ----------------------------------------------------------------------------------------------------------


def print_run(result: Result) -> None:
    setting = " ".join(str(value) for value in result.setting.values())
    print(
        f"run {result.number:3}: {result.verdict:8} {setting}; {result.requests} requests in {result.seconds:.0f} s, "
        f"others used {result.others_percent:.0f} %",
        flush=True,
    )
    for finding in result.found:
        print(f"    {finding.severity:8} {finding.check} ({finding.place}): {finding.message}", flush=True)


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "/") for cell in line) + " |" for line in lines)


def report(results: Sequence[Result]) -> str:
    """Numbers of runs, requests and findings, and each finding of weight."""
    told = Counter(finding.severity for result in results for finding in result.found)
    quiet = [result for result in results if result.others_percent < QUIET_PERCENT]
    verdicts = Counter(result.verdict for result in results)
    parts = [
        f"{len(results)} runs, {sum(result.requests for result in results)} requests: {told['invalid']} findings "
        f"`invalid`, {told['suspect']} `suspect`. Verdicts: "
        + ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
        + f". In {len(quiet)} runs other programs used less than {QUIET_PERCENT:.0f} % of the machine."
    ]
    rows: list[tuple[object, ...]] = []
    for factor in (field.name for field in fields(Setting)):
        levels = dict.fromkeys(
            level for setting in design() for name, level in asdict(setting).items() if name == factor
        )
        for level in sorted(levels, key=lambda level: (str(type(level)), level)):
            here = [result for result in results if result.setting[factor] == level]
            weights = Counter(finding.severity for result in here for finding in result.found)
            asked = sum(result.requests for result in here)
            rows.append((factor, level or "its own", len(here), asked, weights["invalid"], weights["suspect"]))
    parts.append(table(("factor", "level", "runs", "requests", "invalid", "suspect"), rows))
    checks = Counter((finding.check, finding.severity) for result in results for finding in result.found)
    if checks:
        parts.append(table(("check", "severity", "findings"), [(*key, count) for key, count in checks.most_common()]))
        parts.append(
            table(
                ("run", "setting", "others", "finding"),
                [
                    (
                        result.number,
                        " ".join(str(value) for value in result.setting.values()),
                        f"{result.others_percent:.0f} %",
                        f"{finding.severity} `{finding.check}` ({finding.place}): {finding.message}",
                    )
                    for result in results
                    for finding in result.found
                ],
            )
        )
    blind = Counter(check for result in results for check in result.blind)
    if blind:
        told_blind = ", ".join(f"`{check}` ({count} runs)" for check, count in blind.most_common())
        parts.append(f"Had nothing to look at: {told_blind}.")
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of runs and results")
    parser.add_argument("--from", dest="first", type=int, default=0, help="number of the first run")
    parser.add_argument("--to", dest="last", type=int, default=RUNS, help="number behind the last run")
    parser.add_argument("--minutes", type=float, help="start no run that would probably end after this long")
    parser.add_argument("--prepare", action="store_true", help="only build the models")
    parser.add_argument("--again", action="store_true", help="judge kept runs anew, measure nothing")
    parser.add_argument("--report", action="store_true", help="print what was found, measure nothing")
    parser.add_argument("--design", action="store_true", help="print the design, measure nothing")
    args = parser.parse_args()
    if args.design:
        print_design()
        return
    if args.out is None:
        parser.error("--out is needed: the folder of runs and results")
    folder: Path = args.out
    numbers = range(args.first, min(args.last, RUNS))
    results = read_results(folder)
    if args.report:
        print(report(list(results.values())))
    elif args.prepare:
        for number in numbers:
            prepare(load(str(write(number, folder))))
    elif args.again:
        for result in results.values():
            keep(judged(result.number, folder / f"{result.number:03}", result.seconds), folder)
        print(report(list(read_results(folder).values())))
    else:
        measure_missing([number for number in numbers if number not in results], folder, args.minutes)


def measure_missing(numbers: Sequence[int], folder: Path, minutes: float | None) -> None:
    started, longest = time.perf_counter(), 0.0
    for place, number in enumerate(numbers):
        effort = EFFORT[design()[number].target]
        spent = time.perf_counter() - started
        if minutes is not None and spent + longest * effort > 60 * minutes:
            print(f"time is over: {len(numbers) - place} runs are missing", flush=True)
            return
        result = measure(number, folder)
        longest = max(longest, result.seconds / effort)
        keep(result, folder)
        print_run(result)
    print(json.dumps({"missing": 0}))


if __name__ == "__main__":
    main()
