"""Several engines in one run: a target is named `ENGINE:MODEL`, so that each engine has its own decoding without
speculation in every block, and drafts in its own way by the same two names.

The run can tell only what all of them can.
"""
