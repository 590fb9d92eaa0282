"""Both sides of a gate: every configuration of an experiment twice, with the one build and with the other, in one
experiment. They differ in an option of the engine: `build`, or of running servers `url`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specmeter.engines.llama_cpp.builds import NEEDED, SeveralBuilds
from specmeter.engines.url.spec import ANY, SERVED, address
from specmeter.errors import EngineStartError, UsageError
from specmeter.experiments.file import LoadedExperiment, load, load_text, written
from specmeter.record import Arm

BASE, HEAD = "base", "head"
DEFAULT = "gate"
"""The experiment of a gate that names none."""
_MOCK = re.compile(r"mock:(?=.*[1-9])(\d{1,2}(?:\.\d{1,6})?)")


@dataclass(frozen=True)
class GateSpec:
    """What is asked."""

    builds: Mapping[str, str]
    """Base and head, as they were named."""
    experiment: str | None
    changes: Sequence[str]
    tolerance: float
    """A share."""
    budget_s: float
    noisy: bool
    """Blocks count that others disturbed."""


def two_sided(spec: GateSpec, design: Mapping[str, Any]) -> LoadedExperiment:
    """The experiment with both sides; `design` goes before that of the file. Raises `UsageError` for what is no build,
    and for two that cannot be compared."""
    builds = spec.builds
    kinds = {_kind(name, place) for name, place in builds.items()}
    if len(kinds) > 1:
        raise UsageError(
            f"--base {builds[BASE]} and --head {builds[HEAD]}: not of one kind",
            fix="give two builds on this machine, or two URLs of running servers",
        )
    (kind,) = kinds
    mock = ["engine.kind=mock"] if kind == "mock" else []
    given = load(spec.experiment or DEFAULT, [*mock, *spec.changes])
    keys = given.experiment.model_dump(mode="json", exclude_unset=True)
    engine: dict[str, Any] = keys.get("engine", {})
    if kind == "url":
        urls = {name: address(place) for name, place in builds.items()}
        if urls[BASE] == urls[HEAD]:
            fix = "start a server of each build, and give both URLs"
            raise UsageError(f"--base and --head: both are {urls[BASE]}", fix=fix)
        keys = {key: keys[key] for key in ("name", "workloads", "generation") if spec.experiment or key == "name"}
        keys["targets"] = {ANY: ANY}
        arms = [_of({"method": SERVED, "baseline": False}, name, {"url": url}) for name, url in urls.items()]
        engine = {"kind": "url", "options": {"url": urls[BASE], "others": [urls[HEAD]]}}
    else:
        arms = [_of(it, name, {"build": name}) for it in keys["arms"] for name in builds]
        if kind == "mock":
            slower = {name: float(place.removeprefix("mock:")) for name, place in builds.items()}
            engine["mock"] = dict(engine.get("mock") or {}, builds=slower)
        elif given.experiment.engine.kind not in ("embedded", "native"):
            raise UsageError(
                f"{given.source}: engine.kind is {engine['kind']}, and a gate starts builds of llama.cpp only",
                fix="leave engine.kind out, or start a server of each and give --base URL --head URL",
            )
        else:
            places = {name: str(Path(place).expanduser().absolute()) for name, place in builds.items()}
            engine |= {"kind": "native", "options": dict(engine.get("options", {}), builds=places)}
            engine.pop("binary", None)
    keys |= {"arms": arms, "engine": engine, "design": {**keys.get("design", {}), **design}}
    return load_text(written(keys), given.source, given.base_dir)


def _kind(name: str, place: str) -> str:
    """`url`, `mock` or `build`. Raises `UsageError` for what is none, before anything is made or measured."""
    if re.match(r"https?://", place, re.IGNORECASE):
        try:
            address(place)
        except ValueError as error:
            raise UsageError(f"--{name}: {error}", fix="write it as http://HOST:PORT") from None
        return "url"
    if place.startswith("mock:"):
        if _MOCK.fullmatch(place) is None:
            fix = "write mock:1.05 for one that takes 5% longer"
            raise UsageError(f"--{name} {place}: not a simulated build", fix=fix)
        return "mock"
    try:
        SeveralBuilds({name: place}).identify()
    except EngineStartError as error:
        fix = error.fix if Path(place).expanduser().is_dir() else NEEDED
        raise UsageError(f"--{name}: {error.message}", fix=fix) from None
    return "build"


def _of(spec: Mapping[str, Any], name: str, options: Mapping[str, str]) -> dict[str, Any]:
    """A line of arms, of one side; what it calls itself and its baseline are names of that side."""
    engine = dict(spec.get("engine", {}))
    engine["options"] = {**engine.get("options", {}), **options}
    named = {key: f"{spec[key]}-{name}" for key in ("name", "baseline") if isinstance(spec.get(key), str)}
    return {**spec, **named, "engine": engine}


def pairs_of(arms: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    """(with base, with head) of every configuration, in the order of the arms."""
    sides: dict[str, list[Arm]] = {}
    for arm in arms:
        options = {key: it for key, it in arm.engine.options.items() if key not in ("build", "url")}
        alike = {"id": "", "baseline_id": None, "engine": arm.engine.model_copy(update={"options": options})}
        sides.setdefault(arm.model_copy(update=alike).model_dump_json(), []).append(arm)
    return [pair for alike in sides.values() for pair in zip(alike[::2], alike[1::2], strict=True)]


def crossed(arms: Sequence[Arm]) -> dict[str, Arm]:
    """The arms, with those of head held against what base writes without speculation (servers: against base)."""
    heads = {head.id: base.baseline_id or base.id for base, head in pairs_of(arms)}
    return {it.id: it.model_copy(update={"baseline_id": heads.get(it.id, it.baseline_id)}) for it in arms}


def same_build(checksums: Mapping[str, str]) -> bool:
    """Whether both builds have the same bytes, by what `SeveralBuilds` says that it is."""
    sides = [{digest for name, digest in checksums.items() if name.startswith(f"{side}: ")} for side in (BASE, HEAD)]
    return bool(sides[0]) and sides[0] == sides[1]
