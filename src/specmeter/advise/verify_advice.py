"""Whether an advice is what was measured: by its certificate.

An advice is certified when its last number is in: certificate.json has the SHA-256 of its record, of its grid, and of
the certificate of every stage, which in turn covers a run; that of a schedule has those of its advices. Signatures are
of this file, as with runs. Any later change of the record is seen by that.

Someone who changes the record and certifies it again is not found. An advice that is not finished has no certificate,
and says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from specmeter import __version__
from specmeter.advise.advice import GRID_NAME, read_advice, write_advice
from specmeter.advise.stage import line_by
from specmeter.analysis.reading import read_run
from specmeter.errors import SpecmeterError, StoreError
from specmeter.files import oddity, remove_inside
from specmeter.messages import Message
from specmeter.record import Certificate, Issue
from specmeter.record.verdict import VERDICTS, about_run, worst
from specmeter.store import RunStore
from specmeter.store.integrity import (
    FIX,
    GONE,
    certificate_in,
    changed,
    hash_files,
    is_changed,
    uncertified,
)
from specmeter.store.locate import ADVICE_NAME
from specmeter.store.reader import CERTIFICATE_NAME
from specmeter.store.run import SIGNATURE_NAME, write_document
from specmeter.validity.inspection import Inspection, inspect

if TYPE_CHECKING:
    from pathlib import Path

    from specmeter.advise.advice import Advice, Doubt
    from specmeter.record import Finding, Verdict

CHANGED = "data-changed"
"""The check that finds a folder changed."""
_WITHHELD: dict[str, object] = {
    **{"decision": "undecided", "why_undecided": "changed", "verdict": "invalid", "rival": ""},
    **dict.fromkeys(("arm", "speedup", "over_prompts", "speedup_of", "tau", "host", "engine", "again")),
    **dict.fromkeys(("command", "by_kind", "outcomes", "settings"), ()),
}
"""Where the record was changed."""


# --- what a reader sees ----------------------------------------------------------------------------------------------


def examined(advice: Advice, folder: Path) -> Advice:
    """The advice of a folder as it may be told: of one that is not what was measured no number is left. The line to
    paste is that of its runs, whatever stands in the record."""
    if is_changed(folder, _parts(advice)) or any(differences(advice, folder)):
        return withheld(advice)
    told = doubted(advice, doubt_of(folder) if advice.finished else "")
    return told.model_copy(update={"command": _line(advice, folder)}) if advice.command else told


def doubt_of(folder: Path) -> Doubt:
    """What the certificate of a folder lacks, or that another version computed what it covers."""
    issued, _ = certificate_in(folder)
    return uncertified(folder) or ("version" if issued is not None and issued.specmeter != __version__ else "")


def withheld(advice: Advice) -> Advice:
    """What is left of an advice that was changed."""
    return advice.model_copy(update=_WITHHELD)


def doubted(advice: Advice, doubt: Doubt) -> Advice:
    """An advice that is suspect at best where there is a doubt about its certificate."""
    verdict: Verdict | None = worst((advice.verdict or "valid", "suspect")) if doubt else advice.verdict
    return advice.model_copy(update={"uncertified": doubt, "verdict": verdict})


def _parts(advice: Advice) -> list[str]:
    """Files that the certificate of an advice covers."""
    return [ADVICE_NAME, GRID_NAME, *(f"{it.folder}/{CERTIFICATE_NAME}" for it in advice.stages)]


def _line(advice: Advice, folder: Path) -> tuple[str, ...]:
    """The line to paste, by the run that measured its arm; by the first stage where none did."""
    arm, baseline = advice.served, advice.baseline
    if arm is None or baseline is None:
        return ()
    places = [it.folder for it in advice.stages if it.stage != "settings"]
    for place in [it for it in (advice.confirmation, *places) if it]:
        with suppress(SpecmeterError), RunStore.open(folder / place, readonly=True) as store:
            models = {it.name: it for it in store.models()}
            if arm.draft and advice.draft is not None:
                models.setdefault(arm.draft, advice.draft)
            if line := line_by(store, baseline, arm, models):
                return line
    return ()


# --- what was changed ----------------------------------------------------------------------------------


def differences(advice: Advice, folder: Path) -> Iterator[Message]:
    """Stages that were changed or cannot be read."""
    for stage in advice.stages:
        try:
            report = read_run(folder / stage.folder)
        except SpecmeterError as error:
            yield Message("advice.unreadable", stage=stage.folder, problem=error.message)
            continue
        if stage.certificate_sha256 is None:
            continue  # it continues
        edited = any(it.check == CHANGED and it.severity == "invalid" for it in report.findings)
        if edited or report.certificate_sha256 != stage.certificate_sha256:
            yield Message("advice.stage_changed", stage=stage.folder)


# --- certificates ----------------------------------------------------------------------------------------------------


def inspect_advice(folder: Path) -> Inspection:
    """Every stage checked again, and the record held against all of them. Raises `UsageError` where it is none."""
    advice = read_advice(folder)
    found: list[Finding] = []
    verdicts: dict[str, Verdict] = {}
    for stage in advice.stages:
        verdicts[stage.folder] = "invalid"
        with suppress(StoreError), RunStore.open(folder / stage.folder, readonly=True) as store:  # `differences` say it
            run = inspect(store)
            verdicts[stage.folder] = run.certificate.verdict
            of_stage = (it for it in run.findings if it.check == CHANGED and it.severity != "note")
            found += found_in(stage.folder, of_stage)
    found += [about_run(CHANGED, "invalid", it, FIX) for it in differences(advice, folder)]
    answer: list[Verdict] = (
        [verdicts.get(advice.confirmation, "invalid")] if advice.confirmation else list(verdicts.values())
    )
    return inspected(folder, _parts(advice), verdicts, answer, found, finished=advice.finished)


def found_in(part: str, findings: Iterable[Finding]) -> list[Finding]:
    """Findings of a part, as those of the record that is made of it."""
    return [
        about_run(it.check, it.severity, Message("advice.of", part=part, told=it.message), it.remedy) for it in findings
    ]


def inspected(
    folder: Path,
    parts: Sequence[str],
    verdicts: Mapping[str, Verdict],
    answer: Sequence[Verdict],
    found: Sequence[Finding],
    *,
    finished: bool,
) -> Inspection:
    """The same of any record that is made of others: their `verdicts`, those that its `answer` rests on, and what was
    `found`."""
    issued, problem = certificate_in(folder)
    hashes = hash_files(folder, parts)
    told: list[Message] = []
    if issued is not None and (edited := changed(issued.data, hashes)):
        told.append(Message("advice.edited", parts=edited))
    elif issued is None and problem is not None and problem != GONE:
        told.append(problem)
    every = [*(about_run(CHANGED, "invalid", it, FIX) for it in told), *found]
    if finished and (doubt := doubt_of(folder)):
        every.append(about_run(CHANGED, "suspect", Message(f"advice.{doubt}"), Message("data-changed.fix_late")))
    verdict = worst((*answer, *(VERDICTS[it.severity] for it in every)))
    earlier = issued.issues if issued else ()
    certificate = _certificate(
        verdict, verdicts, hashes, (*earlier, Issue(at=time.time(), by="check")), finished=finished
    )
    covered = tuple(issued.data if issued else hashes)
    own = {CERTIFICATE_NAME, SIGNATURE_NAME, *hashes, *covered}
    others = {it.name: oddity(folder, it.name) or "" for it in sorted(folder.iterdir()) if it.is_file()}
    left = {name: odd for name, odd in others.items() if name not in own}
    refuted = any(it.severity == "invalid" and it.check == CHANGED for it in every)
    return Inspection(certificate, tuple(every), issued is not None, refuted, covered, left, earlier)


def keep_certificate(folder: Path, inspection: Inspection) -> bool:
    """Keep a certificate with a folder that is finished and has none, unless it is refuted; whether it was issued."""
    fit = inspection.certificate.state == "complete" and not inspection.refuted and not inspection.certified_before
    if fit:
        _keep(folder, inspection.certificate)
    return fit


def certify(
    folder: Path, parts: Sequence[str], verdicts: Mapping[str, Verdict], verdict: Verdict, earlier: Sequence[Issue] = ()
) -> None:
    """Issue the certificate of what has just been measured."""
    issues = (*earlier, Issue(at=time.time(), by="run"))
    _keep(folder, _certificate(verdict, verdicts, hash_files(folder, parts), issues, finished=True))


def certify_advice(advice: Advice, folder: Path, earlier: Sequence[Issue] = ()) -> None:
    """The same of an advice."""
    verdicts: dict[str, Verdict] = {it.folder: it.verdict or "suspect" for it in advice.stages}
    certify(folder, _parts(advice), verdicts, advice.verdict or "valid", earlier)


def amend(folder: Path, programs: tuple[str, ...]) -> None:
    """Keep the other programs that a certified advice has lines for, and certify it again; others stay as they are."""
    advice = read_advice(folder)
    if advice.programs == programs or uncertified(folder) or examined(advice, folder).why_undecided == "changed":
        return
    issued, _ = certificate_in(folder)
    remove_inside(folder, CERTIFICATE_NAME)  # killed here, it has none, and does not look changed
    advice = advice.model_copy(update={"programs": programs})
    write_advice(advice, folder)
    certify_advice(advice, folder, issued.issues if issued else ())


def _certificate(
    verdict: Verdict,
    verdicts: Mapping[str, Verdict],
    hashes: Mapping[str, str],
    issues: Sequence[Issue],
    *,
    finished: bool,
) -> Certificate:
    return Certificate(
        specmeter=__version__,
        checked_at=issues[-1].at,
        state="complete" if finished else "partial",
        verdict=verdict,
        arms=dict(verdicts),
        requests={},
        checks=(),
        data=dict(hashes),
        issues=tuple(issues),
    )


def _keep(folder: Path, certificate: Certificate) -> None:
    """A signature of what was certified before goes."""
    remove_inside(folder, SIGNATURE_NAME)
    write_document(folder, CERTIFICATE_NAME, f"{json.dumps(certificate.model_dump(mode='json'), indent=2)}\n")
