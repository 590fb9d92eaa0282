"""Auditing foreign results: which of their numbers can be true?

    file -> claims -> judge -> rulings

A reader turns a table, a text, a benchmark's JSON or an engine's log into `Claim`s, one per row or run, and says
nothing about them. A claim of a table carries the claims that other likely readings make of its row (`read.table`). The
judge holds each of them against equations and the bounds of `specmeter.theory.bounds`; the weakest ruling wins.
"""
