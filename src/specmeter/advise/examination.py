"""Whether an advice is what was measured: its answer is computed once more from its confirmation.

The record lies beside the run folders that it is made of, and either may be changed afterwards. Stages that are not
what was certified, and an answer that its confirmation does not give, make it invalid to every reader.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.advise.confirm import confirmed, is_small
from specmeter.analysis.reading import read_run
from specmeter.errors import SpecmeterError

if TYPE_CHECKING:
    from specmeter.advise.advice import Advice
    from specmeter.analysis.reading import RunReport
    from specmeter.record import Estimate

CHANGED = "data-changed"
"""The check that finds a run folder changed."""


def examined(advice: Advice, folder: Path) -> Advice:
    """The advice of a folder; undecided and invalid where it is not what was measured. The line to paste is that of
    the confirmation's run, whatever stands in the record."""
    if any(differences(advice, folder)):
        told = {"decision": "undecided", "verdict": "invalid", "why_undecided": "changed"}
        return advice.model_copy(update={**told, "commands": dict[str, tuple[str, ...]]()})
    if advice.basis != "confirmed" or not (advice.finished and advice.confirmation and advice.commands):
        return advice
    lines = read_run(folder / advice.confirmation).commands
    line = None if advice.served is None else lines.get(advice.served.id)
    return advice if line is None else advice.model_copy(update={"commands": {**advice.commands, line[0]: line}})


def differences(advice: Advice, folder: Path) -> Iterator[str]:
    """What is not as it was measured, one by one."""
    reports: dict[str, RunReport] = {}
    for stage in advice.stages:
        try:
            report = reports[stage.folder] = read_run(folder / stage.folder)
        except SpecmeterError as error:
            yield f"{stage.folder}: {error.message}"
            continue
        known = stage.certificate_sha256
        changed = any(it.check == CHANGED and it.severity == "invalid" for it in report.findings)
        if known is not None and (changed or report.certificate_sha256 != known):
            yield f"{stage.folder}: is not what was certified"
    if advice.basis != "confirmed" or not advice.finished:
        return
    arm = advice.arm.id if advice.arm is not None else advice.speedup_of
    if arm is None:
        return
    if (report := reports.get(advice.confirmation)) is None:
        yield "there is no confirmation"
        return
    there = next((it for it in report.arms if it.id == arm), None)
    if advice.arm is not None and advice.arm != there:
        yield "the arm is not the one that was confirmed"
    asked = advice.asked.load
    if asked is not None and (there is None or there.load is None or there.load.clients != asked):
        yield "it was confirmed at another load"
    found = confirmed(report, advice.confirmation, arm, advice.asked.goal)
    if not (_same(found.speedup, advice.speedup) and _same(found.tau, advice.tau)):
        yield "the speedup is not that of the confirmation"
    if found.verdict != advice.verdict:
        yield "the verdict is not that of the confirmation"
    if advice.decision == "speculate" and found.ruling != "gains":
        yield "the confirmation does not show a gain"
    if advice.decision == "off" and found.ruling == "gains" and not is_small(found):
        yield "the confirmation shows a gain"


def _same(one: Estimate | None, other: Estimate | None) -> bool:
    if one is None or other is None:
        return one is other
    pairs = ((one.point, other.point), (one.low, other.low), (one.high, other.high))
    return all(a is b or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-6)) for a, b in pairs)
