"""Findings, verdicts, the certificate, and the one rule that turns findings into verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Literal

from pydantic import Field

from specmeter.messages import Message
from specmeter.record.base import Record
from specmeter.record.spec import Truth

Severity = Literal["invalid", "suspect", "note"]
"""What a finding does to what it is about: the number is false; a check failed: not to publish; good to know."""

Verdict = Literal["valid", "suspect", "invalid"]

Standing = Literal["valid", "suspect", "implausible", "invalid"]
"""The verdict about a number. Ours come from the checks of a run. Of published ones nothing is ever shown to be valid:
`invalid` is *impossible* by arithmetic or counting, `implausible` breaks a bound that rests on named assumptions."""


class Finding(Record):
    """A finding of a validity check."""

    check: str
    """Id of the check: `conservation`, `host-busy`, ..."""
    severity: Severity
    """`invalid`, `suspect` or `note`."""
    scope: Literal["request", "arm", "run"]
    """What it applies to."""
    message: Message
    """What is wrong, in one sentence with numbers."""
    remedy: Message
    """What to do about it."""
    evidence: dict[str, bool | int | float | str | Message | None] = {}
    """The numbers or log lines that show it."""
    arm_id: str | None = None
    """Id of the configuration; None for the whole run."""
    invocation: int | None = None
    """Of the request; None unless the scope is `request`."""
    block: int | None = None
    """Of the request."""
    prompt_id: str | None = None
    """Of the request."""


class Unchecked(Record):
    """What a check could not examine: then the absence of a finding is not a pass."""

    reason: Message
    arm_id: str | None = None
    """The arm it could not examine; None for the whole run."""
    applies: bool = True
    """False where there is nothing to be checked (an arm without a draft model has no draft to compare)."""
    untold: Annotated[tuple[Truth, ...], Field(exclude_if=lambda value: not value)] = ()
    """What this engine does not tell, for want of which it could not."""


class CheckOutcome(Record):
    """How one check ended."""

    check: str
    status: Literal["passed", "partly", "skipped", "found"]
    """`partly`: nothing found, but some of the run could not be checked; `skipped`: none of it could."""
    invalid: int = 0
    """Findings of this severity; the same for the next two."""
    suspect: int = 0
    note: int = 0
    unchecked: tuple[Unchecked, ...] = ()
    saw: tuple[str, ...]
    """Parts of the run's data that it read; `Certificate.data` has their hashes."""


class Issue(Record):
    """That a certificate was issued."""

    at: float
    by: Literal["run", "check"]
    """`run`: when it had been measured; `check`: afterwards, so that nothing says what the data was before."""


class Certificate(Record):
    """What was checked, on which data, and the verdicts."""

    specmeter: str
    """Version that checked."""
    checked_at: float
    state: Literal["complete", "partial", "failed"]
    """Of the run when it was checked."""
    verdict: Verdict
    """Of the run: the worst of its arms and of findings about the whole run."""
    arms: dict[str, Verdict]
    """Arm id -> verdict; an arm is no better than its baseline."""
    requests: dict[Verdict | Literal["unanswered"], int]
    """Number of requests per verdict, and of unanswered ones."""
    checks: tuple[CheckOutcome, ...]
    untold: Annotated[tuple[Truth, ...], Field(exclude_if=lambda value: not value)] = ()
    """What the engine does not report, so that no check could examine it."""
    asked: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the engine was an already running server."""
    data: dict[str, str]
    """Part of the run's data -> its SHA-256."""
    issues: tuple[Issue, ...] = ()
    """All times the run was certified, this one last."""


VERDICTS: dict[Severity, Verdict] = {"invalid": "invalid", "suspect": "suspect", "note": "valid"}
"""What a finding makes of that which it is about."""
_RANK: dict[Verdict, int] = {"valid": 0, "suspect": 1, "invalid": 2}

RequestId = tuple[int, int, str, str]
"""(invocation, block, arm id, prompt id); equal to `store.RequestKey`."""

_ORDER: tuple[Severity, ...] = ("invalid", "suspect", "note")
_ARMS_SHOWN = 3

Findings = Iterator[Finding | Unchecked]
Evidence = bool | int | float | str | Message | None


def about_run(check: str, severity: Severity, message: Message, remedy: Message, **evidence: Evidence) -> Finding:
    """A finding about the run as a whole. Its evidence is the values of its message, and what else is given here."""
    shown = _shown_by(message) | evidence
    return Finding(check=check, severity=severity, scope="run", message=message, remedy=remedy, evidence=shown)


def about_arm(
    check: str, severity: Severity, arm_id: str, message: Message, remedy: Message, **evidence: Evidence
) -> Finding:
    """A finding about an arm as a whole, with its evidence as above."""
    found = about_run(check, severity, message, remedy, **evidence)
    return found.model_copy(update={"scope": "arm", "arm_id": arm_id})


def _shown_by(message: Message) -> dict[str, Evidence]:
    """Values of a message that are evidence as they stand: numbers, texts, yes or no."""
    shown: dict[str, Evidence] = {}
    for name, value in message.values.items():
        if isinstance(value, float):
            if isfinite(value):
                shown[name] = value
        elif isinstance(value, bool | int | str) and value != "":
            shown[name] = value
    return shown


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of some verdicts; valid when there are none."""
    ranked = sorted(verdicts, key=_RANK.__getitem__)
    return ranked[-1] if ranked else "valid"


def request_verdicts(findings: Iterable[Finding]) -> dict[RequestId, Verdict]:
    """Requests that are not valid in themselves, by the findings about them alone."""
    found: dict[RequestId, Verdict] = {}
    for finding in findings:
        verdict = VERDICTS[finding.severity]
        if finding.scope == "request" and verdict != "valid":
            key = (finding.invocation or 0, finding.block or 0, finding.arm_id or "", finding.prompt_id or "")
            found[key] = worst((found.get(key, "valid"), verdict))
    return found


@dataclass
class Group:
    """Findings of one check and severity; the first one speaks for all."""

    first: Finding
    count: int
    arms: list[str]
    """Ids of the arms it is about."""
    differ: bool = False
    """They do not all say the same."""

    def message_for(self, arm: str | Message | None) -> Message:
        """What the first one says; that it is about `arm`, where it speaks for others."""
        if arm is None or not self.differ or len(self.arms) < 2:
            return self.first.message
        return Message("finding.of", arm=arm, told=self.first.message)

    def where(self, called: Callable[[str], str | Message] = str) -> Message:
        """`dense: no speculation (12 requests)`, or `whole run`; `called`: what arms are called, their ids unless
        told."""
        if not self.arms:
            return Message("finding.whole_run")
        more = len(self.arms) - _ARMS_SHOWN
        return Message(
            "finding.where",
            arms=[called(it) for it in self.arms[:_ARMS_SHOWN]],
            more=Message("finding.more_arms", count=more) if more > 0 else "",
            requests=Message("finding.requests", count=self.count)
            if self.first.scope == "request" and self.count > 1
            else "",
        )


def grouped(findings: Iterable[Finding]) -> list[Group]:
    """Findings by check and severity, the worst first."""
    groups: dict[tuple[str, str, str], Group] = {}
    for finding in findings:
        key = (finding.check, finding.severity, finding.scope)
        group = groups.setdefault(key, Group(finding, 0, []))
        group.count += 1
        group.differ |= finding.message != group.first.message
        if finding.arm_id is not None and finding.arm_id not in group.arms:
            group.arms.append(finding.arm_id)
    return sorted(groups.values(), key=lambda group: _ORDER.index(group.first.severity))
