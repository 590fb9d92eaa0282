"""What a check is, and how it reports its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from specmeter.messages import Message
from specmeter.record import Arm, Finding, Severity, Truth, Unchecked
from specmeter.record.verdict import Evidence, Findings, about_run
from specmeter.validity.checks.request_data import RequestData
from specmeter.validity.checks.requests import Requests
from specmeter.validity.checks.run_data import RunData


@dataclass(frozen=True)
class Check:
    """One threat to validity, and the pure function that looks for it. Its docstring ends with what has to hold for its
    heaviest finding to be right ("Assumes:"; for `invalid` counting, identity or arithmetic, and nothing about the
    machine, its noise, or the engine's version), and with what follows where that does not hold ("Otherwise:")."""

    id: str
    """`threat.ID` in the catalogues says what goes wrong in measurements, that this check looks for."""
    severity: Severity
    """The most that it finds. If a check for `invalid` lacks data that the engine tells, that is a suspect finding."""
    look: Callable[[RunData], Findings]
    saw: tuple[str, ...]
    """Parts of the run's data that it reads, by the names of `specmeter.store.integrity.PARTS`."""
    needs: tuple[Truth, ...] = ()
    """What the engine must tell; of an engine that does not, nothing was looked at."""
    reads: tuple[Truth, ...] = ()
    """What it looks at, where the engine tells any of it; of an engine that tells none, nothing is missing."""
    before: bool = False
    """Also looks at an experiment before anything is measured, when there are no sessions and no requests."""

    per_device: bool = False
    """Looks at each device on its own, where several measured: at its clock, its samples, its memory."""

    @property
    def assumes(self) -> str:
        return self._said[0]

    @property
    def otherwise(self) -> str:
        return self._said[1]

    @property
    def _said(self) -> tuple[str, str]:
        said = " ".join((self.look.__doc__ or "").split()).partition(" Assumes: ")[2]
        assumed, _, otherwise = said.removesuffix(".").partition(". Otherwise: ")
        return assumed, otherwise


def of_run(severity: Severity, message: Message, remedy: Message | None = None, /, **evidence: Evidence) -> Finding:
    """A finding about the whole run, of the check with whose id the code of its message begins; what to do is `ID.fix`
    of the catalogue where nothing else is given."""
    check = message.code.partition(".")[0]
    return about_run(check, severity, message, remedy or Message(f"{check}.fix"), **evidence)


def of_arm(
    severity: Severity, arm_id: str, message: Message, remedy: Message | None = None, /, **evidence: Evidence
) -> Finding:
    """A finding about an arm, as above."""
    return of_run(severity, message, remedy, **evidence).model_copy(update={"scope": "arm", "arm_id": arm_id})


def of_request(
    severity: Severity, request: RequestData, message: Message, remedy: Message | None = None, /, **evidence: Evidence
) -> Finding:
    """A finding about one request, as above."""
    where = {name: getattr(request.row, name) for name in ("arm_id", "invocation", "block", "prompt_id")}
    return of_run(severity, message, remedy, **evidence).model_copy(update={"scope": "request", **where})


def not_checkable(arm_id: str | None, reason: Message) -> Unchecked:
    """A blind spot: there is something to check, and no data to check it by."""
    return Unchecked(arm_id=arm_id, reason=reason)


def not_applicable(arm_id: str | None, reason: Message) -> Unchecked:
    """Nothing to be checked here."""
    return Unchecked(arm_id=arm_id, reason=reason, applies=False)


SHARED = Message("unchecked.shared")
"""Why times of single requests under load say nothing of the machine."""


NONE = Message("check.none")


def answered(data: RunData) -> Iterator[tuple[Arm, Requests]]:
    """Arms with their answered requests; arms without any are left out: what is missing is another check's business."""
    for arm_id, requests in data.by_arm.items():
        if requests:
            yield data.arms[arm_id], requests


def compared_arms(data: RunData) -> list[Arm]:
    """Arms that are compared with a baseline."""
    return [arm for arm in data.arms.values() if arm.baseline_id is not None]


MAX_SHOWN = 6
"""Differences that a finding lists at most."""


class Value(NamedTuple):
    """One value that should be the same as another."""

    name: str | Message
    expected: object
    seen: object
    """None: the engine does not say."""

    @property
    def message(self) -> Message:
        return Message("check.value", name=self.name, seen=shown(self.seen), expected=shown(self.expected))


def distinct(values: Iterable[Value]) -> list[Value]:
    """The first value of each name, as many as are shown."""
    return list({value.name: value for value in reversed(list(values))}.values())[::-1][:MAX_SHOWN]


def as_evidence(values: Iterable[Value]) -> dict[str, Evidence]:
    """What a finding keeps of them."""
    return {
        str(value.name): Message("check.differs", seen=shown(value.seen), expected=shown(value.expected))
        for value in values
    }


def shown(value: object) -> int | float | str | Message:
    """A value as a finding shows it, cut where it is long."""
    if isinstance(value, Message | int | float) and not isinstance(value, bool):
        return value
    text = str(value)
    return Message("check.not_said") if value is None else text if len(text) <= 100 else text[:97] + "..."
