"""What the checks find in runs with which nothing is wrong: every finding of weight there is a false alarm.

    uv run python benchmarks/false_alarms.py [--runs 30] [--threads 1] [--keep FOLDER]

Small experiments like the demo, on the embedded engine: a dense or an MoE target in turn, a draft model and an n-gram
table, three blocks, other prompts and another order each time. The targets: no `invalid` finding at all, and on a quiet
machine at most one `suspect` finding per 100 requests. Where other programs are busy, doubts are justified; the share
of the processors that others used is shown.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import yaml

from specmeter.experiment_file import load
from specmeter.laboratory import prepare
from specmeter.reading import read_run
from specmeter.record import Certificate, Finding, Severity
from specmeter.store import RunStore

TARGETS = ("bench:dense-100m", "bench:moe-100m")
QUIET_PERCENT = 3.0
"""Share of the machine that others may use; where they use more, a doubt about speeds may well be a true one."""


@dataclass(frozen=True)
class Result:
    """What the checks said of one run."""

    seconds: float
    requests: int
    findings: tuple[Finding, ...]
    certificate: Certificate
    others_percent: float
    """Median share of all processors that other programs used."""


def experiment(number: int, threads: int | None) -> str:
    """The text of the experiment file of one run."""
    return yaml.safe_dump(
        {
            "name": "clean",
            "targets": {"target": TARGETS[number % len(TARGETS)]},
            "drafts": {"small": "bench:draft-small"},
            "workloads": [
                {"source": "bench", "name": "text", "kinds": ["fact", "code", "reason"], "per_kind": 1, "seed": number},
                {"source": "bench", "name": "edit", "kinds": ["edit"], "per_kind": 1, "seed": number},
            ],
            "arms": [{"draft": "small", "gamma": 4}, {"method": "ngram-simple", "ngram_n": 6, "gamma": 8}],
            "design": {"blocks": 3, "seed": number},
            "engine": {"context": 1024, "threads": threads},
            "generation": {"max_tokens": 64},
        }
    )


def measure(number: int, threads: int | None, folder: Path) -> Result:
    """One run, as a user starts it: a process of its own."""
    folder.mkdir(parents=True)
    file = folder / "clean.yaml"
    file.write_text(experiment(number, threads), encoding="utf-8")
    prepare(load(str(file)))  # models are made before the clock starts
    started = time.perf_counter()
    command = [sys.executable, "-m", "specmeter", "run", str(file), "--out", str(folder / "run")]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode not in (0, 1):
        raise SystemExit(f"specmeter run failed:\n{done.stderr}")
    report = read_run(folder / "run")
    if report.certificate is None:
        raise SystemExit(f"{folder}: the run has no certificate")
    with RunStore.open(folder / "run", readonly=True) as store:
        others = [sample.other_cpu_percent for sample in store.telemetry()]
    busy = statistics.median(others) if others else 0.0
    return Result(seconds, report.state.ok, report.findings, report.certificate, busy)


def about(finding: Finding) -> str:
    """What a finding is about, in a few words."""
    place = finding.arm_id or "run"
    if finding.scope == "request":
        place += f", block {finding.block}, {finding.prompt_id}"
    return place


def print_run(number: int, result: Result) -> None:
    weights = Counter(finding.severity for finding in result.findings)
    told = ", ".join(f"{weights[severity]} {severity}" for severity in ("invalid", "suspect", "note"))
    print(
        f"run {number:3}: {result.certificate.verdict:8} {told}; {result.requests} requests in {result.seconds:.0f} s, "
        f"others used {result.others_percent:.0f} % of the machine",
        flush=True,
    )
    for finding in result.findings:
        if finding.severity != "note":
            print(f"    {finding.severity:8} {finding.check} ({about(finding)}): {finding.message}", flush=True)


def print_summary(results: list[Result]) -> None:
    requests = sum(result.requests for result in results)
    counts = Counter[tuple[str, Severity]]()
    runs = Counter[tuple[str, Severity]]()
    for result in results:
        here = Counter((finding.check, finding.severity) for finding in result.findings)
        counts += here
        runs.update(set(here))
    print(f"\n{len(results)} runs, {requests} requests\n\n{'check':28} {'severity':9} {'findings':>8} {'runs':>5}")
    order = {"invalid": 0, "suspect": 1, "note": 2}
    for (check, severity), count in sorted(counts.items(), key=lambda item: (order[item[0][1]], item[0][0])):
        print(f"{check:28} {severity:9} {count:8} {runs[check, severity]:5}")
    blind = Counter(
        outcome.check
        for result in results
        for outcome in result.certificate.checks
        if any(gap.applies for gap in outcome.unchecked)
    )
    print("\nhad nothing to look at:", ", ".join(f"{check} ({count} runs)" for check, count in blind.items()) or "none")
    false = sum(count for (_, severity), count in counts.items() if severity == "invalid")
    print(f"\ninvalid: {false}")
    quiet = [result for result in results if result.others_percent < QUIET_PERCENT]
    for what, some in (("in all runs", results), (f"in {len(quiet)} runs on a quiet machine", quiet)):
        suspect = sum(finding.severity == "suspect" for result in some for finding in result.findings)
        asked = sum(result.requests for result in some)
        print(f"suspect {what}: {suspect}" + (f" ({100 * suspect / asked:.2f} per 100 requests)" if asked else ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="number of the first run; it decides prompts and order")
    parser.add_argument("--threads", type=int, help="of the engine; default: all cores")
    parser.add_argument("--keep", type=Path, help="keep the runs in this folder")
    args = parser.parse_args()
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder: Path = args.keep or Path(scratch)
        for number in range(args.first, args.first + args.runs):
            results.append(measure(number, args.threads, folder / f"run-{number}"))
            print_run(number, results[-1])
    print_summary(results)


if __name__ == "__main__":
    main()
