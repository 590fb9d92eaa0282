"""What models, experiments and arms are called: in words that a person can type."""

from __future__ import annotations

import re
from typing import cast

from specmeter.record import PARAMETERS, Arm, EngineSettings, Load


def arm_id(arm: Arm, defaults: EngineSettings) -> str:
    """A readable id: target, methods, draft, then whatever differs from the experiment's settings."""
    parts = [arm.target, "+".join(arm.methods)]
    if arm.draft:
        parts.append(arm.draft)
    for name, prefix in PARAMETERS.items():
        number: float | None = getattr(arm, name)
        if number is not None:
            parts.append(f"{prefix}{number:g}")
    parts += [name for name in (arm.policy, arm.rule, arm.draft_sampling) if name is not None]
    if arm.synthetic_rates:
        parts.append("synthetic-" + "-".join(f"{rate:g}" for rate in arm.synthetic_rates))
    known, usual = _by_name(arm.engine), _by_name(defaults)
    for name, value in known.items():
        if name not in usual or value != usual[name]:
            shown = ",".join(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else str(value)
            parts.append(f"{name}={re.sub(r'[^A-Za-z0-9._,+-]', '_', shown)}")
    return id_under("/".join(parts), arm.load)


def id_under(name: str, load: Load | None) -> str:
    """The id of an arm under a load."""
    return name if load is None else f"{name}/{load.label}"


def id_without_load(arm: Arm) -> str:
    """The id of an arm without its load: the same for all loads."""
    return arm.id if arm.load is None else arm.id.removesuffix(f"/{arm.load.label}")


def _by_name(settings: EngineSettings) -> dict[str, object]:
    """Settings by name, the engine's own options among them."""
    named = {name: getattr(settings, name) for name in EngineSettings.model_fields if name != "options"}
    return named | settings.options
