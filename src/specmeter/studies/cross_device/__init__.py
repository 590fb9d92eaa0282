"""cross-device: a draft on another machine by llama.cpp's RPC, and a first result that had never left home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.engines.kinds import kind_of
from specmeter.errors import EngineError
from specmeter.studies.cross_device.claims import claims
from specmeter.studies.cross_device.published import SOURCE, published
from specmeter.studies.cross_device.view import figures, tables

if TYPE_CHECKING:
    from specmeter.experiments.file import LoadedExperiment
    from specmeter.record import Arm

__all__ = ["PARTS", "SOURCE", "TITLE", "claims", "figures", "needs", "published", "tables"]

TITLE = "Drafts on other machines: llama.cpp's RPC over a local network"
PARTS = ("cross-device",)

_NO_ADDRESS = "no address is given (--set remotes.NAME=HOST:PORT)"
_NO_RPC = "the embedded engine has no RPC (--variant relay or rpc, with what `specmeter engines build` makes)"


def needs(part: str, loaded: LoadedExperiment, arms: Sequence[Arm]) -> Mapping[str, str]:  # noqa: ARG001
    """Arms whose remote machine is not named, does not answer, or cannot be used by this engine -> why."""
    from specmeter.engines.llama_cpp.native import NativeEngine

    spec = loaded.experiment.engine
    traits = kind_of(spec.kind).traits
    found: dict[str, str] = {}
    for arm in arms:
        if not any(name.startswith("RPC") for name in arm.engine.draft_devices) or traits.simulated:
            continue
        if "rpc" not in traits.settings:
            found[arm.id] = _NO_RPC
        elif not arm.engine.rpc:
            found[arm.id] = _NO_ADDRESS
        else:
            try:
                NativeEngine(Path(spec.binary) if spec.binary else None).meet(arm.engine.rpc)
            except EngineError as error:
                found[arm.id] = f"{error.message} ({error.fix})"
    return found
