"""What a check is, and how it says what it found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from specmeter.record import Finding, Severity, Truth
from specmeter.validity.checks.request_data import RequestData
from specmeter.validity.checks.run_data import RunData
from specmeter.verdicts import Evidence, Findings


@dataclass(frozen=True)
class Check:
    """One threat to validity, and the pure function that looks for it."""

    id: str
    threat: str
    """What goes wrong in measurements, in a few words."""
    severity: Severity
    """The most that it finds. Where a check for `invalid` had nothing to look at, an arm is at most suspect."""
    look: Callable[[RunData], Findings]
    saw: tuple[str, ...]
    """Parts of the run's data that it reads, by the names of `specmeter.store.hashes.PARTS`."""
    needs: tuple[Truth, ...] = ()
    """What the engine must tell; of an engine that does not, nothing was looked at."""
    before: bool = False
    """Also looks at an experiment before anything is measured, when there are no sessions and no requests."""
    assumes: str = field(kw_only=True)
    """What has to hold for its heaviest finding to be right. For `invalid` that is counting, identity or arithmetic,
    and nothing about the machine, its noise, or the engine's version."""
    otherwise: str = field(kw_only=True)
    """What follows where that does not hold: what the check does then, or how wrong a finding of it would be."""


def about_request(
    check: str, severity: Severity, request: RequestData, message: str, remedy: str, **evidence: Evidence
) -> Finding:
    """A finding about one request."""
    row = request.row
    return Finding(
        check=check,
        severity=severity,
        scope="request",
        message=message,
        remedy=remedy,
        evidence=evidence,
        arm_id=row.arm_id,
        invocation=row.invocation,
        block=row.block,
        prompt_id=row.prompt_id,
    )
