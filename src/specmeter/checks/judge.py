"""From a run's data to findings, verdicts and the certificate."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from specmeter import __version__
from specmeter.checks.check import Check
from specmeter.checks.run_data import RunData
from specmeter.record import Arm, Certificate, Finding, Outcome, Severity, Unchecked, Verdict

_WORSE: dict[Severity, Verdict] = {"invalid": "invalid", "suspect": "suspect", "note": "valid"}
_RANK: dict[Verdict, int] = {"valid": 0, "suspect": 1, "invalid": 2}
RequestId = tuple[int, int, str, str]
"""(invocation, block, arm id, prompt id)"""


@dataclass(frozen=True)
class Judgement:
    """What all checks say together."""

    outcomes: tuple[Outcome, ...]
    findings: tuple[Finding, ...]
    """In the order of the checks."""
    verdict: Verdict
    """Of the run."""
    arms: Mapping[str, Verdict]
    requests: Mapping[RequestId, Verdict]
    """Only those that are not valid in themselves."""


def judge(data: RunData, checks: Sequence[Check]) -> Judgement:
    """Let every check look, and draw the verdicts.

    A request is as bad as the findings about it. An arm is as bad as its worst request, the findings about it, its
    baseline, and findings about the whole run that are `invalid`; it is at most suspect where a check that could have
    found it invalid had nothing to look at. The run is as bad as its worst arm, controls included, and the findings
    about it.
    """
    findings: list[Finding] = []
    outcomes: list[Outcome] = []
    blind: list[Unchecked] = []
    for check in checks:
        found, unchecked = _look(check, data)
        findings += found
        outcomes.append(_outcome(check, found, unchecked, data))
        if check.severity == "invalid":
            blind += [gap for gap in unchecked if gap.applies]
    requests: dict[RequestId, Verdict] = {}
    own: dict[str, Verdict] = {arm_id: "valid" for arm_id in data.arms}
    run: Verdict = "valid"
    for finding in findings:
        verdict = _WORSE[finding.severity]
        if finding.scope == "run":
            run = worst((run, verdict))
        elif finding.arm_id is not None:
            own[finding.arm_id] = worst((own.get(finding.arm_id, "valid"), verdict))
        if finding.scope == "request" and verdict != "valid":
            key = (finding.invocation or 0, finding.block or 0, finding.arm_id or "", finding.prompt_id or "")
            requests[key] = worst((requests.get(key, "valid"), verdict))
    for gap in blind:
        for arm_id in data.arms if gap.arm_id is None else (gap.arm_id,):
            own[arm_id] = worst((own[arm_id], "suspect"))
    arms: dict[str, Verdict] = {arm.id: _with_baseline(arm, own, run) for arm in data.arms.values()}
    return Judgement(tuple(outcomes), tuple(findings), worst((run, *arms.values())), arms, requests)


def certify(
    data: RunData, judgement: Judgement, hashes: Mapping[str, str], state: Literal["complete", "partial", "failed"]
) -> Certificate:
    """The certificate of a run whose parts have these hashes."""
    answered = Counter[Verdict]()
    for request in data.requests:
        row = request.row
        key = (row.invocation, row.block, row.arm_id, row.prompt_id)
        answered[judgement.requests.get(key, "valid")] += 1
    return Certificate(
        specmeter=__version__,
        checked_at=time.time(),
        state=state,
        verdict=judgement.verdict,
        arms=dict(judgement.arms),
        requests={"valid": answered["valid"], "suspect": answered["suspect"], "invalid": answered["invalid"]},
        checks=judgement.outcomes,
        data=dict(hashes),
    )


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of some verdicts; valid when there are none."""
    return max(verdicts, key=_RANK.__getitem__, default="valid")


def _with_baseline(arm: Arm, own: Mapping[str, Verdict], run: Verdict) -> Verdict:
    verdicts: list[Verdict] = [own[arm.id]]
    if arm.baseline_id is not None:
        verdicts.append(own.get(arm.baseline_id, "invalid"))
    if run == "invalid":
        verdicts.append(run)
    return worst(verdicts)


def _look(check: Check, data: RunData) -> tuple[list[Finding], list[Unchecked]]:
    found: list[Finding] = []
    unchecked: list[Unchecked] = []
    for item in check.look(data):
        if isinstance(item, Finding):
            found.append(item)
        else:
            unchecked.append(item)
    return found, unchecked


def _outcome(check: Check, found: Sequence[Finding], unchecked: Sequence[Unchecked], data: RunData) -> Outcome:
    counts = Counter(finding.severity for finding in found)
    blind = {gap.arm_id for gap in unchecked}
    status: Literal["passed", "partly", "skipped", "found"] = "passed"
    if found:
        status = "found"
    elif None in blind or blind >= set(data.arms):
        status = "skipped"
    elif any(gap.applies for gap in unchecked):
        status = "partly"
    return Outcome(
        check=check.id,
        threat=check.threat,
        status=status,
        invalid=counts["invalid"],
        suspect=counts["suspect"],
        note=counts["note"],
        unchecked=tuple(unchecked),
        saw=check.saw,
    )
