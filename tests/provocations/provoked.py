"""Whole runs in which one thing is put wrong, and what the checks said of them.

    outcome = provoke(tmp_path, arms=[{"draft": "small", "gamma": 4, "synthetic_rates": [1, 1, 1, 1]}])
    assert outcome.says("synthetic-on", "invalid")

A run goes the public way: an experiment file, `prepare`, `run`, and the certificate that is left in the run folder.
`Tampered` stands between the loop and a real engine, and changes what is launched or asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from specmeter.engines import Engine, EngineSession, Launch
from specmeter.experiment_file import load
from specmeter.laboratory import prepare, run
from specmeter.reading import RunReport, read_run
from specmeter.record import Certificate, EngineIdentity, EngineSettings, Finding, Generation, Prompt, Reply, Severity
from test_measure import Silent

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
    def speedups(self) -> set[str]:
        """Arms that show a speedup anywhere."""
        return {
            arm.arm_id
            for arm in self.report.summary.arms
            if arm.speedup is not None or any(kind.speedup is not None for kind in arm.kinds.values())
        } | {
            answer.arm_id for answer in self.report.answers if answer.arm_id is not None and answer.speedup is not None
        }


def write(folder: Path, **changes: Any) -> str:
    """An experiment file: `EXPERIMENT` with whole keys replaced, those of `engine` and `design` merged."""
    merged = {key: EXPERIMENT[key] | changes.pop(key, {}) for key in ("engine", "design")}
    path = folder / "provoked.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT | changes | merged), encoding="utf-8")
    return str(path)


def provoke(folder: Path, *, through: Callable[[Engine], Engine] | None = None, **changes: Any) -> Outcome:
    """Run the experiment with `changes`, its engine put `through` something first."""
    prepared = prepare(load(write(folder, **changes)))
    if through is not None:
        prepared = replace(prepared, engine=through(prepared.engine))
    run(prepared, folder / "run", Silent())
    return Outcome(folder / "run")


def acting(binary: Path) -> dict[str, Any]:
    """Settings of the engine for a stand-in."""
    return {"kind": "native", "binary": str(binary)}


# --- what stands between the loop and an engine -----------------------------------------------------------------------


@dataclass
class Tampered:
    """An engine that launches or asks for something else than it was told to."""

    engine: Engine
    launched: Callable[[Launch], Launch] = lambda launch: launch
    asked: Callable[[Launch, Prompt, Generation], tuple[Prompt, Generation]] = lambda _, *asked: asked

    def identify(self) -> EngineIdentity:
        return self.engine.identify()

    def clock(self) -> float:
        return self.engine.clock()

    def start(self, launch: Launch) -> EngineSession:
        return TamperedSession(self.engine.start(self.launched(launch)), self, launch)


@dataclass
class TamperedSession:
    session: EngineSession
    by: Tampered
    launch: Launch

    @property
    def facts(self) -> Any:
        return self.session.facts

    def generate(self, prompt: Prompt, generation: Generation) -> Reply:
        return self.session.generate(*self.by.asked(self.launch, prompt, generation))

    def tokenize(self, text: str) -> tuple[int, ...]:
        return self.session.tokenize(text)

    def detokenize(self, token_ids: tuple[int, ...]) -> str:
        return self.session.detokenize(token_ids)

    def close(self) -> None:
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def with_settings(arm_id: str, **settings: Any) -> Callable[[Engine], Engine]:
    """Sessions of one arm are started with other settings than those on record."""

    def launched(launch: Launch) -> Launch:
        if launch.arm.id != arm_id:
            return launch
        engine = EngineSettings.model_validate(launch.arm.engine.model_dump() | settings)
        return replace(launch, arm=launch.arm.model_copy(update={"engine": engine}))

    return lambda engine: Tampered(engine, launched=launched)


def asking(
    arm_id: str, change: Callable[[Prompt, Generation], tuple[Prompt, Generation]]
) -> Callable[[Engine], Engine]:
    """Requests of one arm are not those on record (warm-ups stay as they are)."""

    def asked(launch: Launch, prompt: Prompt, generation: Generation) -> tuple[Prompt, Generation]:
        return (
            change(prompt, generation) if launch.arm.id == arm_id and prompt.id != "warm-up" else (prompt, generation)
        )

    return lambda engine: Tampered(engine, asked=asked)
