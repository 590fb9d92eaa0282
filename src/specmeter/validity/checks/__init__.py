"""Checks: one small pure function per threat to validity.

    run folder -> RunData -> every check -> findings -> verdicts -> certificate

A check gets the whole run and yields findings, and for whatever it could not examine an `Unchecked` that says why:
absence of a finding is a pass only where something was looked at. There is one file per theme; `registry.CHECKS`
is all of them.
"""
