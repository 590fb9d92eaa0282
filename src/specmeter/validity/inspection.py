"""Inspects a run: runs every check on its raw data, makes verdicts and the certificate, and sees later changes."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from specmeter import __version__
from specmeter.analysis.reading import Measured
from specmeter.errors import StoreError
from specmeter.messages import Message
from specmeter.record import TRUTHS, Arm, Certificate, CheckOutcome, Finding, Issue, Truth, Unchecked, Verdict
from specmeter.record.verdict import VERDICTS, RequestId, about_arm, request_verdicts, worst
from specmeter.store import RequestKey
from specmeter.store.integrity import (
    FIX,
    PARTS,
    certificate_beside,
    changes,
    contradictions,
    hash_data,
    late,
    lost,
    uncovered,
)
from specmeter.validity.checks.check import Check
from specmeter.validity.checks.registry import BEFORE, CHECKS
from specmeter.validity.checks.run_data import RunData, read_run_data

if TYPE_CHECKING:
    from specmeter.record import ModelIdentity
    from specmeter.store import RunReader, RunStore


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
    baseline, and findings about the whole run that are `invalid`. The run is as bad as its worst arm, controls
    included, and the findings about it. What an engine does not tell is not a finding; what it does tell and is not
    there is one, where it could have shown a number to be false.
    """
    looked = _looked(data, checks)
    findings: list[Finding] = []
    outcomes: list[CheckOutcome] = []
    for check in checks:
        unchecked = list(dict.fromkeys(item for item in looked[check.id] if isinstance(item, Unchecked)))
        found = [item for item in looked[check.id] if isinstance(item, Finding)]
        found += _missing(check, unchecked, data)
        findings += found
        outcomes.append(_outcome(check, found, unchecked, data))
    valid: Verdict = "valid"
    own: dict[str, Verdict] = dict.fromkeys(data.arms, valid)
    run = valid
    for finding in findings:
        verdict = VERDICTS[finding.severity]
        if finding.scope == "run":
            run = worst((run, verdict))
        elif finding.arm_id is not None:
            own[finding.arm_id] = worst((own.get(finding.arm_id, "valid"), verdict))
    arms: dict[str, Verdict] = {arm.id: _with_baseline(arm, own, run) for arm in data.arms.values()}
    verdict = worst((run, *arms.values()))
    return Judgement(tuple(outcomes), tuple(findings), verdict, arms, request_verdicts(findings))


def _looked(data: RunData, checks: Sequence[Check]) -> dict[str, list[Finding | Unchecked]]:
    """What each check says, by its id; of several devices one after the other, so that what checks sort for themselves
    is kept of one at a time."""
    found: dict[str, list[Finding | Unchecked]] = {}
    tells = data.traits.tells
    for check in checks:
        lacking = tuple[Truth, ...](truth for truth in check.needs if truth not in tells)
        found[check.id] = []
        if lacking:
            said = Message("unchecked.not_told", what=TRUTHS[lacking[0]])
            found[check.id].append(Unchecked(reason=said, untold=lacking))
    able = [check for check in checks if not found[check.id]]
    for device, part in data.devices():
        for check in able:
            if check.per_device:
                found[check.id] += (_on(device, item) for item in check.look(part))
    for check in able:
        if not check.per_device:
            found[check.id] += check.look(data)
        if check.reads and set(check.reads).isdisjoint(tells):
            found[check.id] = [_untold(item, check.reads) for item in found[check.id]]
    return found


def _untold(item: Finding | Unchecked, truths: tuple[Truth, ...]) -> Finding | Unchecked:
    gap = isinstance(item, Unchecked) and item.applies
    return item.model_copy(update={"untold": truths}) if gap else item


def _missing(check: Check, unchecked: Sequence[Unchecked], data: RunData) -> Iterator[Finding]:
    """What could have shown a number to be false, is told by this engine, and is not there; arms without any answer
    have no number."""
    for gap in unchecked if check.severity == "invalid" else ():
        if gap.applies and not gap.untold:
            for arm_id in (it for it in data.arms if gap.arm_id in (None, it) and data.by_arm[it]):
                said = Message("evidence-missing.found", reason=gap.reason)
                yield about_arm(check.id, "suspect", arm_id, said, Message("evidence-missing.fix"))


def _on(device: str, item: Finding | Unchecked) -> Finding | Unchecked:
    if not device or not isinstance(item, Finding):
        return item
    return item.model_copy(update={"evidence": {**item.evidence, "device": device}})


def certify(
    data: RunData,
    judgement: Judgement,
    hashes: Mapping[str, str],
    state: Literal["complete", "partial", "failed"],
    issues: Sequence[Issue] = (),
) -> Certificate:
    """The certificate of a run whose parts have these hashes."""
    counted: dict[Verdict | Literal["unanswered"], int] = {"valid": 0, "suspect": 0, "invalid": 0}
    for *key, status in data.requests.values(*RequestKey._fields, "status"):
        verdict = judgement.requests.get(RequestKey(*key), "valid") if status == "ok" else "unanswered"
        counted[verdict] = counted.get(verdict, 0) + 1
    return Certificate(
        specmeter=__version__,
        checked_at=time.time(),
        state=state,
        verdict=judgement.verdict,
        arms=dict(judgement.arms),
        requests=counted,
        checks=judgement.outcomes,
        untold=tuple(dict.fromkeys(it for of in judgement.outcomes for gap in of.unchecked for it in gap.untold)),
        asked=data.traits.asked,
        data=dict(hashes),
        issues=tuple(issues),
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
        status=status,
        invalid=counts["invalid"],
        suspect=counts["suspect"],
        note=counts["note"],
        unchecked=tuple(unchecked),
        saw=check.saw,
    )


@dataclass(frozen=True)
class Inspection:
    """What an inspection found."""

    certificate: Certificate
    findings: tuple[Finding, ...]
    certified_before: bool
    """There was a certificate, and the data was held against it."""
    refuted: bool
    """The data is not what was certified: such a run is never certified again."""
    covered: tuple[str, ...]
    """Parts of the data that the certificate covers: tables of the database, and files relative to the run folder."""
    uncovered: Mapping[str, str]
    """Files in the run folder that it does not cover, each with what can be said of it."""
    issues: tuple[Issue, ...] = ()
    """Every time that the run was certified before."""
    arms: tuple[Arm, ...] = ()
    """Those of the run."""
    models: tuple[ModelIdentity, ...] = ()
    """Those of the run."""
    measured: Measured | None = None
    """What was summarised and hashed on the way; None for a folder without a run."""


def inspect(run: RunReader, *, measured_now: bool = False) -> Inspection:
    """Recompute everything from the raw data; changes nothing. Raises `StoreError` when the run is damaged.

    `measured_now`: the run has just come to its end, so a certificate is not due yet.
    """
    with _no_garbage_collection():
        issued = run.certificate()
        data, hashes = read_run_data(run), hash_data(run)
        changed = list(changes(run, issued, hashes))
        told = [*changed, *contradictions(run), *(() if measured_now else late(run, issued))]
        integrity = Check("data-changed", "invalid", lambda _: iter(told), saw=PARTS)
        measured = Measured(data.summary, hashes)  # summarised now: checks read what is there
        judgement = judge(data, (*CHECKS, integrity))
        before = issued or certificate_beside(run)
        earlier = before.issues if before else ()
        issues = (*earlier, Issue(at=time.time(), by="run" if measured_now else "check"))
        certificate = certify(data, judgement, hashes, run.state().state, issues)
        refuted = any(isinstance(item, Finding) for item in changed)
        covered = tuple(issued.data if issued else hashes)
        others = uncovered(run, covered)
        known, found = (tuple(run.arms()), tuple(run.models())), judgement.findings
        return Inspection(certificate, found, issued is not None, refuted, covered, others, earlier, *known, measured)


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


def certify_run(store: RunStore, *, measured_now: bool = False) -> Inspection:
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
    certified = issued is not None or run.certificate_file() is not None
    told = changes(run, issued, hash_data(run)) if certified else lost(run)
    found = [item for item in told if isinstance(item, Finding)]
    if found:
        raise StoreError(f"{run.folder}: cannot be resumed: {found[0].message}", fix=f"{FIX} (into another --out)")


def predict_findings(data: RunData) -> tuple[Finding, ...]:
    """What checks have to say before anything is measured."""
    looked = _looked(data, BEFORE)
    return tuple(it for check in BEFORE for it in looked[check.id] if isinstance(it, Finding))
