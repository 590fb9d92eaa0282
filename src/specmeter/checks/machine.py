"""Checks: to be filled."""

from __future__ import annotations

from specmeter.checks.check import Check

CHECKS: tuple[Check, ...] = ()
