"""From findings to verdicts: the one rule, for the checks that make them and for whoever tells people."""

from __future__ import annotations

from collections.abc import Iterable

from specmeter.record import Finding, Severity, Verdict

VERDICTS: dict[Severity, Verdict] = {"invalid": "invalid", "suspect": "suspect", "note": "valid"}
"""What a finding makes of that which it is about."""
_RANK: dict[Verdict, int] = {"valid": 0, "suspect": 1, "invalid": 2}

RequestId = tuple[int, int, str, str]
"""(invocation, block, arm id, prompt id); equal to `store.RequestKey`."""


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
