"""Runs and advices that were changed so that they still agree with themselves, and certified anew: none may be valid.

    uv run python benchmarks/forgeries.py [--engines mock embedded libllama] [--keep FOLDER] [--only NAME ...]

Clean runs are made first, plain and under load, and on the mock engine an advice. Each forgery is applied to a copy:
times in the database and in log lines, predictions, machine, models, telemetry, counts, moments, cells (see
`tests/provocations/doctored.py`); records of an advice. BENCHMARK_ENV.md is written anew. Two forgers then certify it:

- `check`: the certificate is removed, and `specmeter check` is given twice;
- `as run`: a certificate is issued as the run itself does at its end, history included.

A forgery is told where the second `check` says more than of the clean run treated likewise; with `check` alone the
history tells already. Goal: every one at least suspect, by both. The exit code is 1 where one is valid or nothing is
said of it. `-`: the run has nothing that the forgery changes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from provocations import doctored  # noqa: E402
from provocations.doctored import copied, forged  # noqa: E402
from specmeter.advise.advice import read_advice, write_advice  # noqa: E402
from specmeter.advise.examination import certify_advice  # noqa: E402
from specmeter.cli import invoke  # noqa: E402
from specmeter.record import Estimate  # noqa: E402
from specmeter.store import RunStore  # noqa: E402
from specmeter.store.environment import environment_of  # noqa: E402
from specmeter.store.locate import sort_of  # noqa: E402
from specmeter.validity.inspection import issue  # noqa: E402

ENGINES = ("mock", "embedded", "libllama")
SIMULATED = {
    **{"targets": {"dense": "mock:dense"}, "drafts": {"small": "mock:small"}},
    "engine": {"kind": "mock"},
}
LOAD = {"load": {"clients": [1, 4], "slots": 2}}
"""So that requests wait."""

Change = Callable[[Path], None]


def certificate_removed(_: Path) -> None:
    """Nothing else."""


def telemetry_rewritten(folder: Path) -> None:
    """Where others took the machine."""
    with RunStore.open(folder, readonly=True) as store:
        assert any(it.other_cpu_percent > 30 for it in store.telemetry())
    doctored.telemetry_rewritten(folder)


def rivals_cut(folder: Path) -> None:
    """What the arms that were not advised gain."""

    def cut(it: Estimate | None) -> Estimate | None:
        return it and it.model_copy(update={"point": 0.7 * it.point, "low": 0.7 * (it.low or 0), "high": it.point})

    advice = read_advice(folder)
    fates = [
        it if it.code == "winner" else it.model_copy(update={name: cut(getattr(it, name)) for name in ("raced",)})
        for it in advice.fates
    ]
    assert tuple(fates) != advice.fates
    write_advice(advice.model_copy(update={"fates": tuple(fates)}), folder)


def made_earlier(folder: Path) -> None:
    advice = read_advice(folder)
    write_advice(advice.model_copy(update={"made_at": advice.made_at - 30 * 86400}), folder)


def speedup_raised(folder: Path) -> None:
    advice = read_advice(folder)
    assert advice.speedup is not None
    more = advice.speedup.model_copy(update={"point": 1.2 * advice.speedup.point, "high": 2 * advice.speedup.point})
    write_advice(advice.model_copy(update={"speedup": more}), folder)


def foretold_better(folder: Path) -> None:
    """As if the screen had expected what was found."""
    advice = read_advice(folder)
    fates = tuple(it.model_copy(update={"predicted": it.confirmed or it.raced or it.predicted}) for it in advice.fates)
    assert fates != advice.fates
    write_advice(advice.model_copy(update={"fates": fates}), folder)


def stage_forged(folder: Path) -> None:
    """Its confirmation, as of a run."""
    with contextlib.closing(doctored.connected(folder / "confirm")) as db, db:
        (sd,) = db.execute("SELECT arm_id FROM plan WHERE arm_id LIKE '%draft%' LIMIT 1").fetchone()
    doctored.all_times(folder / "confirm", 0.7, sd)
    as_run(folder / "confirm")
    advice = read_advice(folder)
    with RunStore.open(folder / "confirm", readonly=True) as store:
        digest = store.certificate_sha256()
    stages = [
        it.model_copy(update={"certificate_sha256": digest}) if it.folder == "confirm" else it for it in advice.stages
    ]
    write_advice(advice.model_copy(update={"stages": tuple(stages)}), folder)


def named(*changes: Change) -> dict[str, Change]:
    return {it.__name__.replace("_", "-"): it for it in changes}


PLAIN = named(
    *(certificate_removed, doctored.sd_times_cut, doctored.baseline_times_stretched, doctored.all_times_halved),
    *(doctored.predictions_rewritten, doctored.host_renamed, doctored.draft_hash_changed),
    *(telemetry_rewritten, doctored.telemetry_dropped, doctored.attempt_raised),
    *(doctored.accepted_raised_without_profile, doctored.block_an_hour_early),
)
MEASURED = ("host-renamed", "draft-hash-changed", "telemetry-rewritten", "telemetry-dropped")
"""These need a machine and a model that there are; a simulated run says that it has none."""
LOADED = named(certificate_removed) | doctored.LOAD
ADVICE = named(certificate_removed, rivals_cut, made_earlier, speedup_raised, foretold_better, stage_forged)


# --- clean runs ------------------------------------------------------------------------------------------------------


def clean(folder: Path, engine: str, subject: str) -> Path:
    """A run or an advice with nothing wrong in it; made unless it is there."""
    place = folder / f"{engine}-{subject}"
    if place.is_dir():
        return place
    experiment: dict[str, Any] = doctored.EXPERIMENT | (SIMULATED if engine == "mock" else {})
    experiment |= {"engine": experiment["engine"] | {"kind": engine}}
    if subject == "load":
        experiment |= LOAD | {"arms": experiment["arms"][:1]}
        experiment |= {"design": experiment["design"] | {"disturbed": "keep"}}
    if subject == "advice":
        experiment |= {
            "arms": [{"draft": "small", "gamma": [1, 4, 6]}],
            "workloads": [{"source": "bench", "kinds": ["fact", "code"], "per_kind": 4}],
            "design": {"blocks": 1, "probe": "off"},
        }
    file = folder / f"{engine}-{subject}.yaml"
    file.write_text(yaml.safe_dump(experiment), encoding="utf-8")
    command = ["advise", "--from", str(file), "--budget", "15m"] if subject == "advice" else ["run", str(file)]
    quietly([*command, "--out", str(place)])
    return place


def quietly(command: list[str]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = invoke(command)
    if code not in (0, 1, 4):
        raise SystemExit(f"specmeter {' '.join(command)}: exit code {code}")
    return out.getvalue()


# --- forgers ---------------------------------------------------------------------------------------------------------


def by_check(folder: Path) -> None:
    if sort_of(folder) == "advice":
        (folder / "certificate.json").unlink()
    else:
        forged(folder)
        with RunStore.open(folder) as store:
            store.write_environment(environment_of(store))
    quietly(["check", str(folder)])


def as_run(folder: Path) -> None:
    if sort_of(folder) == "advice":
        certify_advice(read_advice(folder), folder)
        return
    forged(folder)
    with RunStore.open(folder) as store:
        store.write_environment(environment_of(store))
        issue(store, measured_now=True)


FORGERS: dict[str, Change] = {"check": by_check, "as run": as_run}


class Judged(NamedTuple):
    """What `specmeter check` says."""

    verdict: str
    told: frozenset[tuple[str, str]]
    """(what a check says, severity) of findings that are more than notes."""


def judged(folder: Path) -> Judged:
    found = json.loads(quietly(["check", str(folder), "--json"]))
    grave = [it for it in found["findings"] if it["severity"] != "note"]
    return Judged(found["verdict"], frozenset((_said(it["message"]), it["severity"]) for it in grave))


def _said(message: dict[str, Any]) -> str:
    inner = message["values"].get("told")
    return _said(inner) if isinstance(inner, dict) else message["code"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", default=["mock"], choices=ENGINES)
    parser.add_argument("--keep", type=Path, help="keep the clean runs in this folder, or take them from there")
    parser.add_argument("--only", nargs="*", default=(), help="names of forgeries")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder: Path = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        print("| forgery | of | certified by | verdict | told by |\n| --- | --- | --- | --- | --- |")
        missed = 0
        for engine in args.engines:
            subjects = {"plain": PLAIN, "load": LOADED} | ({"advice": ADVICE} if engine == "mock" else {})
            for subject, forgeries in subjects.items():
                chosen = {name: it for name, it in forgeries.items() if not args.only or name in args.only}
                if engine == "mock":
                    chosen = {name: it for name, it in chosen.items() if name not in MEASURED}
                run = clean(folder, engine, subject)
                missed += told_of(run, f"{engine} {subject}", chosen, Path(scratch) / f"{engine}-{subject}-copies")
        print(f"\n{missed} valid, or told by nothing; goal: 0")
    sys.exit(1 if missed else 0)


def told_of(run: Path, name: str, forgeries: dict[str, Change], scratch: Path) -> int:
    """A line for each forgery and forger; how many are not told."""
    scratch.mkdir()
    missed = 0
    for forger, certify in FORGERS.items():
        untouched = copied(run, scratch / f"clean-{forger}")
        certify(untouched)
        usual = judged(untouched)
        print(f"| (clean) | {name} | {forger} | {usual.verdict} | |", flush=True)
        for forgery, change in forgeries.items():
            if change is certificate_removed and forger == "as run":
                continue  # that changes nothing
            copy = copied(run, scratch / f"{forgery}-{forger}")
            try:
                change(copy)
            except AssertionError:
                print(f"| {forgery} | {name} | {forger} | - | |", flush=True)
                continue
            certify(copy)
            found = judged(copy)
            new = found.told - (judged(run) if change is certificate_removed else usual).told
            fault = found.verdict == "valid" or not new
            missed += fault
            by = ", ".join(f"{said} ({severity})" for said, severity in sorted(new)) or "**nothing**"
            print(f"| {forgery} | {name} | {forger} | {found.verdict} | {by} |", flush=True)
    return missed


if __name__ == "__main__":
    main()
