"""What can be believed: findings, verdicts, the certificate."""

from __future__ import annotations

from typing import Literal

from specmeter.record.base import Record

Severity = Literal["invalid", "suspect", "note"]
"""What a finding does to what it is about: the number is false; it may not mean what it says; good to know."""

Verdict = Literal["valid", "suspect", "invalid"]

Standing = Literal["valid", "suspect", "implausible", "invalid"]
"""The verdict about a number. Ours come from the checks of a run. Of published ones nothing is ever shown to be valid:
`invalid` is *impossible* by arithmetic or counting, `implausible` breaks a bound that rests on named assumptions."""


class Finding(Record):
    """Something that a validity check saw."""

    check: str
    """Which check: `conservation`, `host-busy`, ..."""
    severity: Severity
    """What it does to that which it is about."""
    scope: Literal["request", "arm", "run"]
    """What it is about."""
    message: str
    """What is wrong, in one sentence with its numbers."""
    remedy: str
    """What to do about it."""
    evidence: dict[str, bool | int | float | str | None] = {}
    """The numbers, or the lines of a log, that show it."""
    arm_id: str | None = None
    """The arm; None for the whole run."""
    invocation: int | None = None
    """Of the request; None unless the scope is `request`, as the next two."""
    block: int | None = None
    """Of the request."""
    prompt_id: str | None = None
    """Of the request."""


class Unchecked(Record):
    """What a check could not examine: then the absence of a finding is not a pass."""

    reason: str
    arm_id: str | None = None
    """The arm it could not examine; None for the whole run."""
    applies: bool = True
    """False where there is nothing to be checked (an arm without a draft model has no draft to compare)."""


class CheckOutcome(Record):
    """How one check ended."""

    check: str
    threat: str
    """What goes wrong in measurements, that this check looks for."""
    status: Literal["passed", "partly", "skipped", "found"]
    """`partly`: nothing found, but some of the run could not be checked; `skipped`: none of it could."""
    invalid: int = 0
    """Findings of this severity; the same for the next two."""
    suspect: int = 0
    note: int = 0
    unchecked: tuple[Unchecked, ...] = ()
    saw: tuple[str, ...]
    """Parts of the run's data that it read; `Certificate.data` has their hashes."""


class Certificate(Record):
    """What was checked, on which data, and what follows."""

    specmeter: str
    """Version that checked."""
    checked_at: float
    state: Literal["complete", "partial", "failed"]
    """Of the run when it was checked."""
    verdict: Verdict
    """Of the run: the worst of its arms and of findings about the whole of it."""
    arms: dict[str, Verdict]
    """Arm id -> verdict; an arm is no better than its baseline."""
    requests: dict[Verdict, int]
    """How many requests have which verdict."""
    checks: tuple[CheckOutcome, ...]
    data: dict[str, str]
    """Part of the run's data -> SHA-256 of it."""
