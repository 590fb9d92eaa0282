"""Every engine that is installed here: whether it can be used on this machine, and what it can tell."""

from __future__ import annotations

from specmeter.engines.registry import Installed, installed, load_engine, spec_of
from specmeter.errors import SpecmeterError
from specmeter.record import EngineTraits, Record


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


def survey(*, ours: bool = True) -> tuple[EngineReport, ...]:
    """All installed engines, specmeter's own first (or left out). Each is loaded and asked what it is; none can break
    the others."""
    return tuple(_report(it) for it in installed().values() if ours or not it.ours)


def _report(engine: Installed) -> EngineReport:
    traits, version, problem, fix = None, None, None, None
    options: tuple[str, ...] = ()
    try:
        kind = spec_of(engine.name)
        traits = kind.traits
        options = tuple(kind.options.model_fields) if kind.options else ()
        version = load_engine(engine.name).identify().version
    except SpecmeterError as error:
        problem, fix = error.message, error.fix
    except (Exception, SystemExit) as error:
        # Another author's engine may fail in any way, and end the program.
        problem, fix = f"{type(error).__name__}: {error}"[:300], f"ask the authors of {engine.package}"
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
