"""Tests whether a run can be believed: checks, findings, verdicts, certificate."""
