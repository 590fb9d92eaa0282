"""The checks of a run: one function per threat to validity, one file per theme (`registry.CHECKS` is all of them).

    run folder -> RunData -> every check -> findings -> verdicts -> certificate

A check gets the whole run and yields findings, and for whatever it could not examine an `Unchecked` that says why: a
check without findings has passed only if it looked at something.
"""
