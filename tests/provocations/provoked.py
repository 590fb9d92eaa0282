"""Whole runs in which one thing is put wrong, and what the checks said of them.

    outcome = provoke(tmp_path, arms=[{"draft": "small", "gamma": 4, "synthetic_rates": [1, 1, 1, 1]}])
    assert outcome.found("synthetic-on", "invalid")

A run goes the public way: an experiment file, `prepare`, `run`, and the certificate that is left in the run folder.
What tampers with a real engine stands between the loop and it, and changes what is launched or asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from measure.test_measure import Silent
from specmeter.analysis.reading import RunReport, read_run
from specmeter.cli import invoke
from specmeter.engines import Engine, EngineSession, Launch
from specmeter.experiments.file import load
from specmeter.laboratory.run import prepare, run
from specmeter.messages import Message
from specmeter.record import Certificate, EngineSettings, Finding, Generation, Prompt, Reply, Severity
from specmeter.validity.checks.registry import CHECKS

Evidence = dict[str, bool | int | float | str | Message | None]

BASE, SD = "dense/none", "dense/draft-simple/small/g4"
"""Ids of the two arms of `EXPERIMENT`."""

EXPERIMENT: dict[str, Any] = {
    "name": "provoked",
    "targets": {"dense": "bench:dense"},
    "drafts": {"small": "bench:draft-small"},
    "workloads": [{"source": "bench", "name": "text", "kinds": ["fact", "reason"], "per_kind": 1}],
    "arms": [{"draft": "small", "gamma": 4}],
    "design": {"blocks": 2, "warmup": "short"},
    # One thread: every other one waits in a loop, which on a machine with other work takes ten times as long.
    "engine": {"context": 512, "threads": 1},
    "generation": {"max_tokens": 40},
}


@dataclass(frozen=True)
class Outcome:
    """What a run folder says of a run that was provoked."""

    folder: Path

    @cached_property
    def report(self) -> RunReport:
        return read_run(self.folder)

    @property
    def certificate(self) -> Certificate:
        assert self.report.certificate is not None
        return self.report.certificate

    def found(self, check: str, severity: Severity | None = None, arm_id: str | None = None) -> list[Finding]:
        """Findings of a check, of all severities and about everything where nothing else is said."""
        return [
            finding
            for finding in self.report.findings
            if finding.check == check and severity in (None, finding.severity) and arm_id in (None, finding.arm_id)
        ]

    @property
    def told(self) -> dict[tuple[str, Severity], int]:
        """(check, severity) -> how often."""
        return Counter((finding.check, finding.severity) for finding in self.report.findings)

    @property
    def false(self) -> set[str]:
        """Checks that found a number false."""
        return {finding.check for finding in self.report.findings if finding.severity == "invalid"}

    @property
    def blind(self) -> set[str]:
        """Checks that could have found a number false, and had nothing to look at."""
        grave = {check.id for check in CHECKS if check.severity == "invalid"}
        gaps = {outcome.check: [gap for gap in outcome.unchecked if gap.applies] for outcome in self.certificate.checks}
        return {check for check in grave if gaps[check]}

    @property
    def speedups(self) -> set[str]:
        """Arms that show a speedup anywhere."""
        return {
            arm.arm_id
            for arm in self.report.summary.arms
            if arm.speedup is not None or any(kind.speedup is not None for kind in arm.kinds.values())
        } | {
            answer.arm_id for answer in self.report.answers if answer.arm_id is not None and answer.speedup is not None
        }


def caught(outcome: Outcome, clean: Outcome, check: str, severity: Severity, arm_id: str | None = None) -> Evidence:
    """Evidence of the first finding, after making sure that there is one, and none of that weight in the clean run."""
    assert not clean.found(check, severity, arm_id)
    found = outcome.found(check, severity, arm_id)
    assert found, outcome.told
    return found[0].evidence


def withheld(outcome: Outcome, arm_id: str = SD) -> bool:
    """Whether an arm is invalid and shows no speedup, and commands say so by their exit code."""
    return (
        outcome.certificate.arms[arm_id] == "invalid"
        and arm_id not in outcome.speedups
        and invoke(["show", str(outcome.folder)]) == 1
    )


def write(folder: Path, **changes: Any) -> str:
    """An experiment file: `EXPERIMENT` with whole keys replaced, those of `engine` and `design` merged."""
    merged = {key: EXPERIMENT[key] | changes.pop(key, {}) for key in ("engine", "design")}
    path = folder / "provoked.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT | changes | merged), encoding="utf-8")
    return str(path)


def provoke(folder: Path, tamper: Callable[[Engine], None] = lambda _: None, **changes: Any) -> Outcome:
    """Run the experiment with `changes`, after its engine was tampered with."""
    prepared = prepare(load(write(folder, **changes)))
    tamper(prepared.engine)
    run(prepared, folder / "run", Silent())
    return Outcome(folder / "run")


UNQUIET = {
    "host-busy",
    "free-cores",
    "baseline-unstable",
    "order-confounded",
    "control-baseline",
    "speedup-above-tau",
    "stalls",
}
"""Checks that may call a clean run suspect where the machine has other work, and rightly so."""


def acting(binary: Path) -> dict[str, Any]:
    """Settings of the engine for a stand-in. It claims fixed times, which it keeps where the machine lets it; without a
    stream it is not held to that."""
    return {"kind": "native", "binary": str(binary), "stream_tokens": False}


# --- what stands between the loop and an engine ----------------------------------------------------------------------

Change = Callable[[Engine], None]
"""What is done to an engine before a run."""


def launching(change: Callable[[Launch], Launch]) -> Change:
    """Sessions are launched otherwise than on record."""

    def tamper(engine: Engine) -> None:
        start = engine.start
        engine.start = lambda launch: start(change(launch))

    return tamper


def with_settings(arm_id: str, **settings: Any) -> Change:
    """Sessions of one arm are started with other settings than those on record."""

    def change(launch: Launch) -> Launch:
        if launch.arm.id != arm_id:
            return launch
        engine = EngineSettings.model_validate(launch.arm.engine.model_dump() | settings)
        return replace(launch, arm=launch.arm.model_copy(update={"engine": engine}))

    return launching(change)


def asking(arm_id: str, change: Callable[[Prompt, Generation], tuple[Prompt, Generation]]) -> Change:
    """Requests of one arm are not those on record (warm-ups are)."""

    def tamper(engine: Engine) -> None:
        start = engine.start

        def started(launch: Launch) -> EngineSession:
            session = start(launch)
            generate = session.generate

            def generated(prompt: Prompt, generation: Generation) -> Reply:
                return generate(*(change(prompt, generation) if prompt.id != "warm-up" else (prompt, generation)))

            if launch.arm.id == arm_id:
                session.generate = generated
            return session

        engine.start = started

    return tamper
