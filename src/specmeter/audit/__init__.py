"""Auditing foreign results: which of their numbers can be true?

    file -> importer -> claims -> judge -> rulings

An importer turns a table, a benchmark's JSON or an engine's log into `Claim`s, one per row or run, and says nothing
about them. The judge holds each claim against the bounds of `specmeter.theory.bounds` and says what decides.
"""
