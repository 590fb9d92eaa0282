"""Checks: one small pure function per threat to validity.

    run folder -> RunData -> every check -> findings -> verdicts -> certificate

A check gets the whole run and yields findings, and for whatever it could not examine an `Unchecked` that says why:
absence of a finding is a pass only where something was looked at. The checks lie in one file per theme; `CHECKS` is
all of them in the order of the report.
"""

from __future__ import annotations

from specmeter.validity.checks import (
    arrangement,
    baseline,
    bounds,
    controls,
    counters,
    decoding,
    engine,
    load,
    machine,
    output,
    pairing,
    plan_fidelity,
    records,
)
from specmeter.validity.checks.check import Check

CHECKS: tuple[Check, ...] = (
    *decoding.CHECKS,
    *controls.COST_PROBE_CHECKS,
    *counters.CHECKS,
    *counters.REPLAY_CHECKS,
    *bounds.CHECKS,
    *pairing.CHECKS,
    *baseline.LIKENESS_CHECKS,
    *output.CHECKS,
    *baseline.CHECKS,
    *arrangement.CHECKS,
    *records.STALL_CHECKS,
    *engine.SETTINGS_CHECKS,
    *engine.CHECKS,
    *machine.CALM_CHECKS,
    *machine.CHECKS,
    *machine.POWER_CHECKS,
    *controls.CHECKS,
    *records.CHECKS,
    *records.CLOCK_CHECKS,
    *load.CHECKS,
    *plan_fidelity.CHECKS,
)
BEFORE: tuple[Check, ...] = tuple(check for check in CHECKS if check.before)
"""Those that can say something before anything is measured."""
