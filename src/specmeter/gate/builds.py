"""The two sides of a gate: every configuration of an experiment twice, with the one build and with the other.

Both sides are arms of one experiment, so that they share its blocks, and each has its own decoding without speculation.
They differ in one of the engine's own options: `build`, or of running servers `url`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specmeter.engines.llama_cpp.builds import NEEDED, SeveralBuilds
from specmeter.engines.url.spec import ANY, SERVED, address
from specmeter.errors import EngineStartError, UsageError
from specmeter.experiments.file import LoadedExperiment, load, load_text, written
from specmeter.record import Arm

BASE, HEAD = "base", "head"
DEFAULT = "gate"
"""The experiment of a gate that names none."""
_URL = re.compile(r"https?://", re.IGNORECASE)
_MOCK = re.compile(r"mock:(\d{1,2}(?:\.\d{1,6})?)")
_LLAMA = ("embedded", "native")


class Pair(NamedTuple):
    """A configuration with both builds."""

    base: Arm
    head: Arm


def two_sided(
    experiment: str | None,
    builds: Mapping[str, str],
    changes: Sequence[str],
    variants: Sequence[str],
    design: Mapping[str, Any],
) -> LoadedExperiment:
    """The experiment with both sides; `builds` are what base and head name, `changes` and `variants` are as those of
    `load`, and `design` goes before that of the file.

    Raises `UsageError` for what is no build, and for two that cannot be compared.
    """
    kinds = {name: _kind(name, place) for name, place in builds.items()}
    if len(set(kinds.values())) > 1:
        raise UsageError(
            f"--base {builds[BASE]} and --head {builds[HEAD]}: not of one kind",
            fix="give two builds on this machine, or two URLs of running servers",
        )
    kind = kinds[BASE]
    given = load(
        experiment or DEFAULT, (*(("engine.kind=mock",) if kind == "mock" else ()), *changes), variants=variants
    )
    keys = given.experiment.model_dump(mode="json", exclude_unset=True)
    match kind:
        case "url":
            keys = _served(keys, builds, asked=experiment is not None)
        case "mock":
            slower = {name: float(place.removeprefix("mock:")) for name, place in builds.items()}
            keys["engine"]["mock"] = dict(keys["engine"].get("mock") or {}, builds=slower)
        case _:
            engine = given.experiment.engine.kind
            if engine not in _LLAMA:
                raise UsageError(
                    f"{given.source}: engine.kind is {engine}, and a gate starts builds of llama.cpp only",
                    fix="leave engine.kind out, or start a server of each and give --base URL --head URL",
                )
            places = {name: str(Path(place).expanduser().absolute()) for name, place in builds.items()}
            changed: dict[str, Any] = dict(keys.get("engine", {}), kind="native")
            changed["options"] = dict(changed.get("options", {}), builds=places)
            changed.pop("binary", None)
            keys["engine"] = changed
    if kind != "url":
        keys["arms"] = [_of(spec, name, {"build": name}) for spec in keys["arms"] for name in builds]
    keys["design"] = {**keys.get("design", {}), **design}
    return load_text(written(keys), given.source, given.base_dir)


def _kind(name: str, place: str) -> str:
    """`url`, `mock` or `build`. Raises `UsageError` for what is none, before anything is built or measured."""
    option = f"--{name} {place}"
    if _URL.match(place):
        return "url"
    if place.startswith("mock:"):
        found = _MOCK.fullmatch(place)
        if found is None or not 0 < float(found[1]) < 100:
            raise UsageError(f"{option}: not a simulated build", fix="write mock:1.05 for one that is 5% slower")
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


def _served(keys: Mapping[str, Any], builds: Mapping[str, str], *, asked: bool) -> dict[str, Any]:
    """Two servers that run, which draft as they were started; of an experiment that is `asked` for its prompts and
    lengths."""
    urls: dict[str, str] = {}
    for name, place in builds.items():
        try:
            urls[name] = address(place)
        except ValueError as error:
            raise UsageError(f"--{name}: {error}", fix="write it as http://HOST:PORT") from None
    if urls[BASE] == urls[HEAD]:
        raise UsageError(f"--head {builds[HEAD]}: the same server as --base", fix="start a server of each build")
    spec = {"method": SERVED, "baseline": False}
    return {
        "name": keys["name"],
        "targets": {ANY: ANY},
        "arms": [_of(spec, name, {"url": url}) for name, url in urls.items()],
        "engine": {"kind": "url", "options": {"url": urls[BASE], "others": [urls[HEAD]]}},
        **({key: keys[key] for key in ("workloads", "generation") if key in keys} if asked else {}),
    }


def pairs_of(arms: Sequence[Arm]) -> list[Pair]:
    """Every configuration with both builds, in the order of the arms; controls are none."""
    sides: dict[str, list[Arm]] = {}
    for arm in arms:
        if arm.role != "control":
            options = {key: it for key, it in arm.engine.options.items() if key not in ("build", "url")}
            alike = {"id": "", "baseline_id": None, "engine": arm.engine.model_copy(update={"options": options})}
            sides.setdefault(arm.model_copy(update=alike).model_dump_json(), []).append(arm)
    return [Pair(*both) for both in sides.values() if len(both) == 2]


def crossed(arms: Sequence[Arm]) -> dict[str, Arm]:
    """The arms, with those of head held against what base writes without speculation (servers: against base)."""
    found = {arm.id: arm for arm in arms}
    for base, head in pairs_of(arms):
        found[head.id] = head.model_copy(update={"baseline_id": base.baseline_id or base.id})
    return found


def same_build(libraries: Mapping[str, str]) -> bool:
    """Whether both builds have the same bytes, by the checksums of `SeveralBuilds`."""
    sides = [{digest for name, digest in libraries.items() if name.startswith(f"{side}: ")} for side in (BASE, HEAD)]
    return bool(sides[0]) and sides[0] == sides[1]
