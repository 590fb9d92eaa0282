"""A run under inspection: every check on its raw data, verdicts, and whether the data was changed since."""

from __future__ import annotations

import gc
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

from specmeter.checks import BEFORE, CHECKS
from specmeter.checks.check import Check, Findings, about_run
from specmeter.checks.hashes import PARTS, changed, hash_data
from specmeter.checks.judge import certify, judge
from specmeter.checks.run_data import RunData, read_run_data
from specmeter.errors import StoreError
from specmeter.record import Certificate, Finding, Unchecked
from specmeter.store.run import CERTIFICATE_NAME

if TYPE_CHECKING:
    from specmeter.store import RunReader, RunStore

_MAX_CERTIFICATE = 64 * 1024 * 1024
_PARTS_SHOWN = 5
_REMEDY = "measure again, or get the run folder from where it was certified"


@dataclass(frozen=True)
class Inspection:
    """What an inspection found."""

    certificate: Certificate
    findings: tuple[Finding, ...]
    certified_before: bool
    """There was a certificate, and the data was held against it."""


def inspect(run: RunReader) -> Inspection:
    """Recompute everything from the raw data; changes nothing. Raises `StoreError` when the run is damaged."""
    with _no_garbage_collection():
        return _inspect(run)


def _inspect(run: RunReader) -> Inspection:
    issued = run.certificate()
    data, hashes = read_run_data(run), hash_data(run)
    integrity = Check(
        id="data-changed",
        threat="the data was changed after it was certified",
        severity="invalid",
        look=partial(_look_for_changes, run, issued, hashes),
        saw=PARTS,
        assumes="no two different sets of data have one SHA-256: identity",
        otherwise="somebody who rewrites data and certificate together is not found out",
    )
    judgement = judge(data, (*CHECKS, integrity))
    certificate = certify(data, judgement, hashes, run.state().state)
    return Inspection(certificate, judgement.findings, issued is not None)


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


def issue(store: RunStore) -> Inspection:
    """Inspect a run that has just been measured, and keep the certificate and all findings with it."""
    inspection = inspect(store)
    store.set_certificate(inspection.certificate, inspection.findings)
    return inspection


def refuse_changed_data(run: RunReader) -> None:
    """Before more is added to a certified run, which gives it a new certificate: what is there must be what was
    certified, or the change would never be noticed again. Raises `StoreError`.
    """
    issued = run.certificate()
    if issued is None:
        return
    found = [item for item in _look_for_changes(run, issued, hash_data(run)) if isinstance(item, Finding)]
    if found:
        raise StoreError(f"{run.folder}: cannot be resumed: {found[0].message}", fix=f"{_REMEDY}; --out names a folder")


def foresee(data: RunData) -> tuple[Finding, ...]:
    """What checks have to say before anything is measured."""
    return judge(data, BEFORE).findings


def _look_for_changes(
    run: RunReader, issued: Certificate | None, hashes: Mapping[str, str], _data: RunData | None = None
) -> Findings:
    if issued is None:
        yield Unchecked(reason="the run has no certificate yet", applies=False)
        return
    if parts := changed(issued.data, dict(hashes)):
        shown = ", ".join(parts[:_PARTS_SHOWN]) + (", ..." if len(parts) > _PARTS_SHOWN else "")
        message = f"what lies in the run folder is not what was certified: {shown} changed since"
        yield about_run("data-changed", "invalid", message, _REMEDY, parts=shown, count=len(parts))
    if (problem := _file_differs(run, issued)) is not None:
        yield about_run("data-changed", "invalid", f"{CERTIFICATE_NAME} {problem}", _REMEDY, file=CERTIFICATE_NAME)


def _file_differs(run: RunReader, issued: Certificate) -> str | None:
    """Why the certificate beside the database is not the one in it; None when it is."""
    path = run.folder / CERTIFICATE_NAME
    try:
        if path.stat().st_size > _MAX_CERTIFICATE:
            return "is far too large"
        document: Any = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return "is gone"
    except (OSError, ValueError, RecursionError):
        return "cannot be read"
    if not isinstance(document, dict):
        return "is not a certificate"
    found = cast("dict[str, Any]", document)
    shown, count = found.pop("findings", None), found.pop("findings_left_out", None)
    try:
        # As records: fields that a later version adds are missing in both.
        said = Certificate.model_validate(found)
    except ValidationError:
        return "is not a certificate"
    if said != issued:
        return "does not say what the run's database says"
    total = sum(1 for _ in run.findings())
    if not isinstance(shown, list) or not isinstance(count, int) or len(cast("list[Any]", shown)) + count != total:
        return "does not hold the findings of the run's database"
    return None
