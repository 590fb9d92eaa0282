"""Which probes stand beside a run: the one that was named, or the newest of its models on its machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.analysis.explain.account import probes_by_arm
from specmeter.probe.files import find_probe, load_probe, probes_folder

if TYPE_CHECKING:
    from specmeter.analysis.reading import RunReport
    from specmeter.probe import Probe
    from specmeter.store import RunReader


def probes_of(run: RunReader, report: RunReport, named: Path | None) -> tuple[dict[str, Probe], str | None]:
    """(arm id -> its probe, what they are called). Raises `UsageError` for a named one that is none or does not fit."""
    models = {model.name: model for model in report.models}
    if named is not None:
        return probes_by_arm(load_probe(named), named.name, report.arms, models), named.name
    engine = next((session.engine for session in run.sessions()), None)
    hosts = run.hosts()
    found: dict[str, Probe] = {}
    names: dict[str, None] = {}
    if engine is None or run.traits().simulated or not hosts:
        return found, None
    for arm in report.arms:
        draft = models[arm.draft] if arm.draft else None
        probe = find_probe(models[arm.target], draft, engine, probes_folder(), host=hosts[0])
        if probe is not None:
            names[probe[0].name] = None
            found[arm.id] = probe[1]
    return found, ", ".join(sorted(names)) or None
