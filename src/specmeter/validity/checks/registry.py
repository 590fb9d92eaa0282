"""All checks, in the order of the report."""

from __future__ import annotations

from specmeter.validity.checks import (
    arrangement,
    baseline,
    bounds,
    clocks,
    controls,
    counters,
    decoding,
    engine,
    load,
    machine,
    output,
    pairing,
    plan_fidelity,
    power,
    records,
    replay,
    settings,
    tool_calls,
)
from specmeter.validity.checks.check import Check

CHECKS: tuple[Check, ...] = (
    *decoding.CHECKS,
    *controls.COST_PROBE_CHECKS,
    *counters.CHECKS,
    *replay.CHECKS,
    *bounds.CHECKS,
    *pairing.CHECKS,
    *baseline.COMPARABILITY_CHECKS,
    *output.CHECKS,
    *tool_calls.CHECKS,
    *baseline.CHECKS,
    *arrangement.CHECKS,
    *settings.CHECKS,
    *engine.CHECKS,
    *machine.CALM_CHECKS,
    *machine.CHECKS,
    *power.CHECKS,
    *controls.CHECKS,
    *records.CHECKS,
    *clocks.CHECKS,
    *load.CHECKS,
    *plan_fidelity.CHECKS,
)
BEFORE: tuple[Check, ...] = tuple(check for check in CHECKS if check.before)
"""Those that can say something before anything is measured."""
