"""Finds the engines by the entry point group `specmeter.engines`, and loads one when it is named.

The name of an entry point is what experiments write as `engine.kind`, and its object is an `EngineSpec`: what the
engine states about itself, and how it is made. That module is imported to plan, check and list, so whatever is heavy
is imported in `make`: specmeter's own engines, which are registered in the same way, name it there (`late`).
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import ValidationError

from specmeter import extensions
from specmeter.errors import ExperimentError, SpecmeterError
from specmeter.record import PARAMETERS, PLAIN, EngineSettings, EngineTraits, Record
from specmeter.record.base import first_fault

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import BaseModel

    from specmeter.engines.session import Engine, Launch
    from specmeter.extensions import Entry
    from specmeter.record import Arm, Host, ModelIdentity

GROUP = "specmeter.engines"
KV_FIELDS = ("kv_type_k", "kv_type_v", "draft_kv_type_k", "draft_kv_type_v")
OURS = "specmeter"
"""The distribution that specmeter's own engines come with."""


def _accept(arm: Arm, has_draft: bool) -> None:
    """Default `check_arm`: accepts every arm."""


def _no_command(launch: Launch, started: Sequence[str]) -> tuple[str, ...] | None:
    """Default `serve`: no command."""


def _none_runs(options: Any) -> tuple[int, ...]:  # noqa: ARG001
    """Default `running`: its processes are those of sessions."""
    return ()


class Device(NamedTuple):
    """Something an engine can compute on."""

    name: str
    """The engine's name for it: `CPU`, `CUDA0`, `Vulkan1`."""
    description: str


@dataclass(frozen=True)
class EngineStatus:
    """Whether an engine can be used on this machine."""

    state: Literal["ok", "limited", "missing"]
    """`limited`: it works, with a drawback."""
    detail: str
    fix: str = ""
    """Empty where nothing is to be done."""
    devices: tuple[Device, ...] = ()
    drives: frozenset[str] = frozenset()
    """Vendors of the GPUs among them."""


@dataclass(frozen=True)
class EngineSpec:
    """What an entry point of the group `specmeter.engines` names."""

    traits: EngineTraits
    make: Callable[[Any], Engine]
    """Given its options, an instance of `options` (None where it has none), the engine. Raises `EngineStartError` where
    it is not usable on this machine."""
    model: Callable[[Any, str, str], ModelIdentity] | None = None
    """Given its options, the name of a model in the experiment and the reference written there: what that is. For an
    engine whose traits name no `model_formats`. Raises `ModelError`."""
    forms: tuple[tuple[str, Callable[[Path, Path], None]], ...] = ()
    """Forms of models that it makes of a GGUF file: a name for `models export --format`, and what writes one into a
    folder."""
    options: type[BaseModel] | None = None
    """Settings of its own, as experiments write them under `engine.options`. Each has a default."""
    check_arm: Callable[[Arm, bool], None] = _accept
    """Given an arm, and whether it has a draft model: raises `ExperimentError`, naming the field, for what the traits
    allow and this engine cannot run all the same, and before them where it knows a better fix."""
    serve: Callable[[Launch, Sequence[str]], tuple[str, ...] | None] = _no_command
    """Given an arm with its models, and the command line that its session was started with in a run: the command that
    serves with them, for people to use, without what only measuring needs. None where there is none."""
    running: Callable[[Any], tuple[int, ...]] = _none_runs
    """Given its options: processes here that run before any session, and are no other programs."""
    examine: Callable[[Host], EngineStatus] | None = None
    """Given this machine: whether it can be used on it, and on what, for `specmeter doctor`. None: whatever `identify`
    says."""


def late(target: str) -> Callable[..., Any]:
    """The function or class `module:attribute`, imported when it is called."""
    return lambda *given: pkgutil.resolve_name(target)(*given)


class EngineReport(Record):
    """What is known of an installed engine."""

    name: str
    """What experiments write as `engine.kind`."""
    package: str
    """The distribution that brings it, with its version."""
    version: str | None
    """Its own version; None where it cannot be used here."""
    problem: str | None
    """Why it cannot be used here; None where it can."""
    fix: str | None
    """What to do about it."""
    shadowed: str
    """Other distributions that bring an engine of this name, and are ignored; empty where there are none."""
    options: tuple[str, ...]
    """Keys of its own under `engine.options`."""
    traits: EngineTraits | None
    """What it states about itself; None where it cannot be loaded."""


@dataclass(frozen=True)
class Installed:
    """An engine that is installed here; it was not loaded for that."""

    name: str
    package: str
    """The distribution that brings it, with its version."""
    target: str
    """What is loaded when it is named: `module:attribute`."""
    ours: bool
    """It comes with specmeter."""
    clash: str
    """Other distributions that bring an engine of that name; empty where there are none."""


def installed() -> dict[str, Installed]:
    """Every engine of this environment by its name, specmeter's own first; nothing is imported."""
    found = sorted(_entries().items(), key=lambda item: (not _is_ours(item[1][0]), item[0]))
    return {
        name: Installed(name, _package(first), first.place, _is_ours(first), ", ".join(map(_package, others)))
        for name, (first, *others) in found
    }


def packages() -> dict[str, str]:
    """The Python package of every engine that is not specmeter's own -> its distribution and version."""
    return {
        entry.module.partition(".")[0]: _package(entry)
        for entries in _entries().values()
        for entry in entries
        if not _is_ours(entry)
    }


@cache
def spec_of(name: str) -> EngineSpec:
    """The engine of that name, its module imported now.

    Raises `ExperimentError` for one that is not installed, is brought by two packages, or cannot be loaded.
    """
    entries = _entries().get(name)
    if not entries:
        from difflib import get_close_matches

        known = ", ".join(installed()) or "none; install specmeter again"
        near = get_close_matches(name, installed(), n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ExperimentError(
            f"engine.kind: engine {name[:80]!r} is not installed",
            fix=f"{hint}use one of {known}, or install the package that provides it",
        )
    if len(entries) > 1 and not _is_ours(entries[0]):
        brought = " and ".join(_package(it) for it in entries)
        raise ExperimentError(
            f"engine.kind: {name}: provided by {brought}; only one may be installed",
            fix="uninstall all of these packages but one",
        )
    entry = entries[0]
    try:
        found: object = extensions.load(entry.place)
    except (Exception, SystemExit) as error:
        # Another author's package may fail in any way while it is imported, and end the program.
        why = f"{type(error).__name__}: {error}"[:300]
        raise ExperimentError(
            f"engine.kind: {name}: {entry.place} of {_package(entry)} cannot be loaded ({why})",
            fix="install that package again, or ask its authors; `specmeter engines` lists the others",
        ) from error
    if not isinstance(found, EngineSpec):
        raise ExperimentError(
            f"engine.kind: {name}: {entry.place} of {_package(entry)} is a {type(found).__name__}, not an EngineSpec",
            fix="report this to its authors (docs/how-to/write-an-engine.md)",
        )
    if not found.traits.model_formats and found.model is None:
        raise ExperimentError(
            f"engine.kind: {name}: it neither reads model files nor describes its models",
            fix=f"ask the authors of {_package(entry)} for `model_formats` or `model`",
        )
    return found


def load_engine(name: str, **options: Any) -> Engine:
    """The engine of that name with options of its own.

    Raises `EngineStartError` where it is not usable on this machine, `ExperimentError` for one that is not installed
    and for options that it does not have.
    """
    kind = spec_of(name)
    return kind.make(own_options(name, {key: value for key, value in options.items() if value is not None}))


def survey() -> tuple[EngineReport, ...]:
    """All installed engines, specmeter's own first. Each is loaded and asked what it is; none can break the others."""
    return tuple(map(_report, installed().values()))


def statuses(host: Host) -> dict[str, EngineStatus]:
    """Whether each installed engine can be used on this machine, specmeter's own first; its mock always can."""
    found: dict[str, EngineStatus] = {}
    for engine in installed().values():
        try:
            spec = spec_of(engine.name)
            if engine.ours and spec.traits.simulated:
                continue
            if spec.examine is not None:
                found[engine.name] = spec.examine(host)
                continue
        except (Exception, SystemExit) as error:
            found[engine.name] = EngineStatus("missing", *_trouble(engine, error))
            continue
        report = _report(engine)
        usable = EngineStatus("ok", f"{report.version} ({report.package})")
        found[engine.name] = (
            usable if report.problem is None else EngineStatus("missing", report.problem, report.fix or "")
        )
    return found


def _report(engine: Installed) -> EngineReport:
    traits, version, problem, fix = None, None, None, None
    options: tuple[str, ...] = ()
    try:
        spec = spec_of(engine.name)
        traits = spec.traits
        options = tuple(spec.options.model_fields) if spec.options else ()
        version = load_engine(engine.name).identify().version
    except (Exception, SystemExit) as error:
        problem, fix = _trouble(engine, error)
    return EngineReport(
        name=engine.name,
        package=engine.package,
        version=version,
        problem=problem,
        fix=fix,
        shadowed=engine.clash,
        options=options,
        traits=traits,
    )


def _trouble(engine: Installed, error: BaseException) -> tuple[str, str]:
    """(what is wrong, its fix). Another author's engine may fail in any way, and end the program."""
    if isinstance(error, SpecmeterError):
        return error.message, error.fix
    return f"{type(error).__name__}: {error}"[:300], f"ask the authors of {engine.package}"


def own_options(name: str, options: Mapping[str, Any]) -> Any:
    """`options` as the engine's own record; None for an engine without any.

    Raises `ExperimentError`, naming the key.
    """
    form = spec_of(name).options
    if form is None:
        if options:
            key = next(iter(options))
            raise ExperimentError(
                f"engine.{key}: the engine {name} has no options of its own",
                fix=f"leave {key} out, or change engine.kind",
            )
        return None
    try:
        return form.model_validate(dict(options))
    except ValidationError as error:
        known = ", ".join(form.model_fields) or "none"
        raise ExperimentError(f"engine.options.{first_fault(error)}", fix=f"use an option of {name}: {known}") from None


def check_arm(name: str, arm: Arm, *, has_draft: bool) -> None:
    """Raise `ExperimentError`, naming the field, for an arm that this engine cannot run as it is written."""
    kind = spec_of(name)
    for method in arm.methods:
        if (problem := unknown_method(name, kind.traits, method)) is not None:
            raise ExperimentError(f"arm {arm.id}: {problem}", fix="use one of these, or change engine.kind")
    kind.check_arm(arm, has_draft)
    _refuse_without_effect(kind.traits, arm, has_draft=has_draft)
    if arm.engine.options:
        own_options(name, arm.engine.options)


def serving_command(name: str, launch: Launch, started: Sequence[str]) -> tuple[str, ...] | None:
    """The command that serves with an arm; None where the engine does not say, or the arm is a test of the measurement.

    No package of others is loaded for that: another author's engine says it where the run is made.
    """
    arm, entries = launch.arm, _entries().get(name, [])
    if arm.role == "control" or arm.synthetic_rates or arm.refused_draft == "measure":
        return None
    if not entries or not (_is_ours(entries[0]) or entries[0].module in sys.modules):
        return None
    return spec_of(name).serve(launch, started)


def unknown_method(name: str, traits: EngineTraits, method: str) -> str | None:
    """What is wrong with a method that an engine does not know; None where it knows it."""
    if method == PLAIN or traits.method(method) is not None:
        return None
    from difflib import get_close_matches

    known = (PLAIN, *(it.name for it in traits.methods))
    near = get_close_matches(method, known, n=2)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"unknown method {method!r}{hint} (known to the engine {name}: {', '.join(known)})"


def _refuse_without_effect(traits: EngineTraits, arm: Arm, *, has_draft: bool) -> None:
    """Raise `ExperimentError`, naming the field, for what an arm asks for and an engine of these traits has nothing of:
    it would not be what its name says."""
    where = f"arm {arm.id}"
    methods = [found for it in arm.methods if (found := traits.method(it)) is not None]
    if len(methods) > 1 and not traits.combines_methods:
        raise ExperimentError(f"{where}: this engine supports one method at a time", fix="write an arm for each")
    for method in methods:
        if method.draft_model == "needed" and not has_draft:
            raise ExperimentError(f"{where}: {method.name} needs a draft model", fix="give the arm a `draft`")
    honoured = {field for method in methods for field in method.parameters}
    for field in PARAMETERS:
        if getattr(arm, field) is not None and field not in honoured:
            raise ExperimentError(
                f"{where}: {field} has no effect on {' + '.join(arm.methods)}", fix=f"remove {field} from this arm"
            )
    settings, default = arm.engine, EngineSettings()
    if arm.synthetic_rates and traits.synthetic == "none":
        raise _nothing_of_the_kind(where, "synthetic_rates")
    for field in EngineSettings.model_fields:
        if field not in ("options", *traits.settings) and getattr(settings, field) != getattr(default, field):
            raise _nothing_of_the_kind(where, f"engine.{field}")
    named = {"policy": (arm.policy, traits.policies), "rule": (arm.rule, traits.rules)}
    named["draft_sampling"] = (arm.draft_sampling, traits.draft_samplings)
    named |= {f"engine.{field}": (getattr(settings, field), traits.kv_types) for field in KV_FIELDS}
    for field, (value, known) in named.items():
        if value is not None and not known:
            raise _nothing_of_the_kind(where, field)
        if value is not None and value not in known:
            raise ExperimentError(f"{where}: {field}: unknown value {value!r}", fix=f"use one of {', '.join(known)}")


def _nothing_of_the_kind(where: str, field: str) -> ExperimentError:
    return ExperimentError(
        f"{where}: {field}: the engine does not have this setting", fix=f"leave {field} out, or change engine.kind"
    )


def traits_on_record(kind: str, stated: EngineTraits | None) -> EngineTraits:
    """What the engine of a run stated about itself, `stated` as its identity keeps it.

    None where a run has no session yet. The traits of specmeter's own engines are known; anything else promises
    nothing, as no package of others is loaded for a stranger's run.
    """
    if stated is not None:
        return stated
    entries = _entries().get(kind)
    return spec_of(kind).traits if entries and _is_ours(entries[0]) else EngineTraits()


def _entries() -> dict[str, list[Entry]]:
    """Name -> entry points, specmeter's own first: no other package can take its place."""
    found = extensions.entries(GROUP)
    return {name: sorted(them, key=lambda it: (not _is_ours(it), _package(it))) for name, them in found.items()}


def _is_ours(entry: Entry) -> bool:
    return entry.package == OURS


def _package(entry: Entry) -> str:
    return f"{entry.package} {entry.version}"
