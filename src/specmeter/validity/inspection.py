"""A run under inspection: every check on its raw data, verdicts, and whether the data was changed since."""

from __future__ import annotations

import gc
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specmeter.errors import StoreError
from specmeter.record import Certificate, Finding
from specmeter.store.hashes import PARTS, hash_data
from specmeter.store.integrity import REMEDY, changes, contradictions, late, uncovered
from specmeter.validity.checks import BEFORE, CHECKS
from specmeter.validity.checks.check import Check
from specmeter.validity.checks.judge import certify, judge
from specmeter.validity.checks.run_data import RunData, read_run_data

if TYPE_CHECKING:
    from specmeter.store import RunReader, RunStore


@dataclass(frozen=True)
class Inspection:
    """What an inspection found."""

    certificate: Certificate
    findings: tuple[Finding, ...]
    certified_before: bool
    """There was a certificate, and the data was held against it."""
    refuted: bool
    """The data is not what was certified: such a run is never certified anew."""
    covered: tuple[str, ...]
    """Parts of the data that the certificate covers: tables of the database, and files relative to the run folder."""
    uncovered: Mapping[str, str]
    """Files in the run folder that it does not cover, each with what can be said of it."""


def inspect(run: RunReader, *, measured_now: bool = False) -> Inspection:
    """Recompute everything from the raw data; changes nothing. Raises `StoreError` when the run is damaged.

    `measured_now`: the run has just come to its end, so a certificate is not due yet.
    """
    with _no_garbage_collection():
        issued = run.certificate()
        data, hashes = read_run_data(run), hash_data(run)
        changed = list(changes(run, issued, hashes))
        told = [*changed, *contradictions(run, issued), *(() if measured_now else late(run, issued))]
        integrity = Check(
            id="data-changed",
            threat="the data was changed after it was certified",
            severity="invalid",
            look=lambda _: iter(told),
            saw=PARTS,
            assumes="no two different sets of data have one SHA-256: identity",
            otherwise="a forger who rewrites data and certificate together is not found out",
        )
        _ = data.summary  # computed now: checks read what is there
        judgement = judge(data, (*CHECKS, integrity))
        certificate = certify(data, judgement, hashes, run.state().state)
        refuted = any(isinstance(item, Finding) for item in changed)
        covered = tuple(issued.data if issued else hashes)
        others = uncovered(run, covered)
        return Inspection(certificate, judgement.findings, issued is not None, refuted, covered, others)


@contextmanager
def _no_garbage_collection() -> Generator[None]:
    """Checks make many objects and no cycles: looking for some again and again takes a third of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def issue(store: RunStore, *, measured_now: bool = False) -> Inspection:
    """Inspect a run, and keep certificate and findings with it, unless its data refutes an earlier certificate."""
    inspection = inspect(store, measured_now=measured_now)
    if not inspection.refuted:
        store.set_certificate(inspection.certificate, inspection.findings)
    return inspection


def refuse_changed_data(run: RunReader) -> None:
    """Before more is added to a certified run, which gives it a new certificate: what is there must be what was
    certified, or the change would never be noticed again. Raises `StoreError`.
    """
    issued = run.certificate()
    if issued is None and run.certificate_file() is None:
        return
    found = [item for item in changes(run, issued, hash_data(run)) if isinstance(item, Finding)]
    if found:
        raise StoreError(f"{run.folder}: cannot be resumed: {found[0].message}", fix=f"{REMEDY}; --out names a folder")


def foresee(data: RunData) -> tuple[Finding, ...]:
    """What checks have to say before anything is measured."""
    return judge(data, BEFORE).findings
