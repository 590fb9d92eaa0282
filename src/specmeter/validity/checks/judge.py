"""From a run's data to findings, verdicts and the certificate."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from specmeter import __version__
from specmeter.record import TRUTHS, Arm, Certificate, CheckOutcome, Finding, Unchecked, Verdict
from specmeter.record.verdict import VERDICTS, RequestId, request_verdicts, worst
from specmeter.validity.checks.check import Check, unseen
from specmeter.validity.checks.run_data import RunData


@dataclass(frozen=True)
class Judgement:
    """What all checks say together."""

    outcomes: tuple[CheckOutcome, ...]
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
    outcomes: list[CheckOutcome] = []
    blind: list[Unchecked] = []
    for check in checks:
        found: list[Finding] = []
        unchecked: list[Unchecked] = []
        if lacking := [TRUTHS[truth] for truth in check.needs if truth not in data.traits.tells]:
            unchecked.append(unseen(None, f"the engine does not tell {lacking[0]}"))
        else:
            for item in check.look(data):
                if isinstance(item, Finding):
                    found.append(item)
                else:
                    unchecked.append(item)
        findings += found
        outcomes.append(_outcome(check, found, unchecked, data))
        if check.severity == "invalid":
            blind += [gap for gap in unchecked if gap.applies]
    valid: Verdict = "valid"
    own: dict[str, Verdict] = dict.fromkeys(data.arms, valid)
    run = valid
    for finding in findings:
        verdict = VERDICTS[finding.severity]
        if finding.scope == "run":
            run = worst((run, verdict))
        elif finding.arm_id is not None:
            own[finding.arm_id] = worst((own.get(finding.arm_id, "valid"), verdict))
    for gap in blind:
        for arm_id in data.arms if gap.arm_id is None else (gap.arm_id,):
            own[arm_id] = worst((own[arm_id], "suspect"))
    arms: dict[str, Verdict] = {arm.id: _with_baseline(arm, own, run) for arm in data.arms.values()}
    verdict = worst((run, *arms.values()))
    return Judgement(tuple(outcomes), tuple(findings), verdict, arms, request_verdicts(findings))


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


def _with_baseline(arm: Arm, own: Mapping[str, Verdict], run: Verdict) -> Verdict:
    verdicts: list[Verdict] = [own[arm.id]]
    if arm.baseline_id is not None:
        verdicts.append(own.get(arm.baseline_id, "invalid"))
    if run == "invalid":
        verdicts.append(run)
    return worst(verdicts)


def _outcome(check: Check, found: Sequence[Finding], unchecked: Sequence[Unchecked], data: RunData) -> CheckOutcome:
    counts = Counter(finding.severity for finding in found)
    blind = {gap.arm_id for gap in unchecked}
    status: Literal["passed", "partly", "skipped", "found"] = "passed"
    if found:
        status = "found"
    elif None in blind or blind >= set(data.arms):
        status = "skipped"
    elif any(gap.applies for gap in unchecked):
        status = "partly"
    return CheckOutcome(
        check=check.id,
        threat=check.threat,
        status=status,
        invalid=counts["invalid"],
        suspect=counts["suspect"],
        note=counts["note"],
        unchecked=tuple(unchecked),
        saw=check.saw,
    )
