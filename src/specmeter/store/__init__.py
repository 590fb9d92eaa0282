"""The run folder: one SQLite file that keeps every request from the moment it was measured, and what belongs to it.

runs/2026-11-21-demo/
    run.sqlite          everything measured; plain SQL, readable without specmeter
    experiment.yaml     the experiment as it was given (the database holds it too, and is what counts)
    BENCHMARK_ENV.md    the machine and the binaries, for people
    certificate.json    what was checked and what follows (the database holds it too)
    certificate.json.sig  its signature, where it was signed
    logs/               what the engines printed, one file per session
    run.lock            held while a process writes

The folder may come from a stranger: nothing in it is followed out of it, and who only reads leaves it as it was.
"""

from __future__ import annotations

from specmeter.store.reader import Change, RunIdentity, RunReader, RunState, compare_identity
from specmeter.store.rows import RequestKey, RequestRow
from specmeter.store.run import RunStore

__all__ = [
    "Change",
    "RequestKey",
    "RequestRow",
    "RunIdentity",
    "RunReader",
    "RunState",
    "RunStore",
    "compare_identity",
]
