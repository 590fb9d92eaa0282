"""Which probes stand beside a run: those that were named, or the newest of its models on its machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.analysis.explain.account import probes_by_arm
from specmeter.probe.files import find_probe, probes_folder

if TYPE_CHECKING:
    from specmeter.analysis.reading import RunReport
    from specmeter.probe import Probe
    from specmeter.store import RunReader


def probes_of(
    run: RunReader, report: RunReport, named: Sequence[tuple[str, Probe]]
) -> tuple[dict[str, Probe], str | None]:
    """(arm id -> its probe, what they are called); of two `named` (name, probe) that fit an arm, the first counts.

    Raises `UsageError` for a named one that does not fit.
    """
    models = {model.name: model for model in report.models}
    found: dict[str, Probe] = {}
    for name, probe in reversed(named):
        found |= probes_by_arm(probe, name, report.arms, models)
    if named:
        return found, ", ".join(name for name, _ in named)
    engine = next((session.engine for session in run.sessions()), None)
    hosts = run.hosts()
    if engine is None or run.traits().simulated or not hosts:
        return {}, None
    names: set[str] = set()
    kept: dict[tuple[str, str | None], tuple[Path, Probe] | None] = {}
    for arm in report.arms:
        pair = (arm.target, arm.draft)
        if pair not in kept:
            draft = models[arm.draft] if arm.draft else None
            kept[pair] = find_probe(models[arm.target], draft, engine, probes_folder(), host=hosts[0])
        if (probe := kept[pair]) is not None:
            found[arm.id] = probe[1]
            names.add(probe[0].name)
    return found, ", ".join(sorted(names)) or None
