"""What a check is, and how it says what it found.

What several checks look at: an arm's sessions with their logs, and the law that counters keep.

The sessions of each arm, and values of theirs that should be the same as others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from specmeter.analysis.requests import BlockKey
from specmeter.engines.llama_cpp.log_signs import LogSigns, Sign
from specmeter.engines.llama_cpp.spec import PRINTED_NAMES
from specmeter.messages import Message
from specmeter.record import Arm, EngineIdentity, Finding, Session, Severity, Truth, Unchecked
from specmeter.record.verdict import Evidence, Findings, about_run
from specmeter.validity.checks.run_data import RequestData, RunData


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

    apart: bool = False
    """Looks at each device by itself, where several measured: at its clock, its samples, its memory."""

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


LONGEST_DRAFT = 64
"""The longest draft of any method by default (`ngram-mod`), where none was read back."""
SMALLEST_BATCH = 512
"""No llama.cpp server has a smaller batch by default: where none was read back, a prompt takes no more forwards."""


def unseen(arm_id: str | None, reason: Message) -> Unchecked:
    """A blind spot: there is something to check, and no data to check it by."""
    return Unchecked(arm_id=arm_id, reason=reason)


def not_applicable(arm_id: str | None, reason: Message) -> Unchecked:
    """Nothing to be checked here."""
    return Unchecked(arm_id=arm_id, reason=reason, applies=False)


SHARED = Message("unchecked.shared")
"""Why times of single requests under load say nothing of the machine."""


NONE = Message("check.none")


def answered(data: RunData) -> Iterator[tuple[Arm, Sequence[RequestData]]]:
    """Arms with their answered requests; arms without any are left out: what is missing is another check's business."""
    for arm_id, requests in data.by_arm.items():
        if requests:
            yield data.arms[arm_id], requests


def compared_arms(data: RunData) -> list[Arm]:
    """Arms that are compared with a baseline."""
    return [arm for arm in data.arms.values() if arm.baseline_id is not None]


class Logs(NamedTuple):
    """What the logs say of the sessions that answered an arm's requests."""

    read: tuple[tuple[Session, LogSigns], ...]
    sessions: int
    """How many sessions there were."""

    @property
    def missing(self) -> int:
        """Sessions whose log could not be read."""
        return self.sessions - len(self.read)

    def all(self, name: str) -> Sign:
        """One sign over all sessions."""
        signs: list[Sign] = [getattr(log, name) for _, log in self.read]
        return Sign(sum(sign.count for sign in signs), tuple(line for sign in signs for line in sign.samples))


def logs_of(data: RunData, requests: Iterable[RequestData]) -> Logs:
    """Logs of the sessions that answered these requests; sessions that a retry replaced are not among them."""
    ids = {request.row.session_id for request in requests}
    known = [data.sessions[name] for name in data.sessions if name in ids]
    read = tuple((session, data.logs[session.id]) for session in known if session.id in data.logs)
    return Logs(read, len(ids))


def server_of(sessions: Mapping[str, Session], session_id: str) -> str:
    """The process of a session, which several may have shared."""
    session = sessions.get(session_id)
    return session_id if session is None or session.server is None else session.server


def used_sessions(data: RunData, requests: Iterable[RequestData]) -> list[Session]:
    """Sessions that answered these requests, in the order of starting."""
    ids = {request.row.session_id for request in requests}
    return [session for name, session in data.sessions.items() if name in ids]


def first_line(sign: Sign) -> str | None:
    """The first line of a log that gave a sign."""
    return sign.samples[0] if sign.samples else None


def longest_draft(arm: Arm, session: Session | None) -> int:
    """Most tokens that any method of the arm drafts in a step."""
    found = [arm.gamma] if arm.gamma is not None else []
    if session is not None:
        for values in session.resolved.get("method_parameters", {}).values():
            found += [values[name] for name in PRINTED_NAMES["gamma"] if isinstance(values.get(name), int)]
        found += [
            value for name in ("gamma", "speculative.n_max") if isinstance(value := session.resolved.get(name), int)
        ]
    return max(found, default=LONGEST_DRAFT)


# --- the conservation law --------------------------------------------------------------------------------------------


class Law:
    """How far an arm's counters are from `predicted_n - 1 = accepted + F`, request by request.

    F are target forwards after the prompt: those counted during the request without those of the prompt. A prompt takes
    one per batch, so a long one takes more than the short one that the session was calibrated with. Where the batch
    was read back, their number is known; where not, it is a range, and so is what is left over.
    """

    def __init__(self, arm: Arm, sessions: Iterable[Session], requests: Iterable[RequestData]) -> None:
        self._sessions = {session.id: session for session in sessions}
        self._batch: dict[str, tuple[int, int]] = {}
        for request in requests:
            row = request.row
            if row.session_id not in self._batch:
                # The first prompt of a server (with its words reversed) is the one that it was calibrated with.
                server = server_of(self._sessions, row.session_id)
                if server not in self._batch:
                    self._batch[server] = self._calibrate(row.session_id, row.prompt_n or 0)
                self._batch[row.session_id] = self._batch[server]
        self._draft = {name: longest_draft(arm, session) for name, session in self._sessions.items()}

    def _calibrate(self, session_id: str, prompt_n: int) -> tuple[int, int]:
        """(batch size, forwards beyond one per batch); a batch of 0 is unknown, and then the second is the most."""
        session = self._sessions.get(session_id)
        counted = None if session is None else session.prompt_forwards
        batch = None if session is None else session.resolved.get("n_batch")
        if not isinstance(batch, int) or batch < 1:
            return 0, counted or 1
        return batch, 0 if counted is None else counted - max(1, -(-prompt_n // batch))

    def prompt_forwards(self, request: RequestData) -> tuple[int, int]:
        """Fewest and most forwards that the request's prompt can have taken."""
        prompt_n = request.row.prompt_n or 0
        least = 1 if prompt_n else 0
        batch, beyond = self._batch[request.row.session_id]
        if not batch:
            return least, max(beyond, -(-prompt_n // SMALLEST_BATCH))
        exact = max(least, -(-prompt_n // batch))
        return max(least, min(exact, exact + beyond)), max(exact, exact + beyond)

    def gap(self, request: RequestData) -> tuple[int, int] | None:
        """Least and most of `predicted_n - 1 - (accepted + F)`; None where the engine counted no forwards.

        Above 0, tokens came out that no successful forward stands behind. Below 0, forwards emitted nothing.
        """
        if request.decodes is None or not request.row.predicted_n:
            return None
        fewest, most = self.prompt_forwards(request)
        left = request.row.predicted_n - 1 - (request.row.draft_n_accepted or 0) - round(request.decodes)
        return left + fewest, left + most

    def idle_forwards(self, request: RequestData) -> int:
        """Most forwards that may honestly have emitted nothing.

        Accepted tokens beyond a stop are counted and cut off: no more than one draft. Not at the limit, which engines
        know when they draft: in 440 requests that ended there, by every method, the law closed to the token. A restored
        checkpoint may cost a forward of its own.
        """
        cut_off = bool(request.row.draft_n) and request.row.stop_reason != "limit"
        return request.restores + (self._draft.get(request.row.session_id, LONGEST_DRAFT) if cut_off else 0)


MOST_SHOWN = 6
"""Differences that a finding lists at most."""


class Value(NamedTuple):
    """One value that should be the same as another."""

    name: str | Message
    expected: object
    seen: object
    """None: the engine does not say."""

    @property
    def told(self) -> Message:
        return Message("check.value", name=self.name, seen=shown(self.seen), expected=shown(self.expected))


def sessions_by_arm(data: RunData) -> dict[str, list[Session]]:
    """Arm id -> its sessions that answered something, in the order of starting; every arm has an entry."""
    found: dict[str, list[Session]] = {arm_id: [] for arm_id in data.arms}
    answered = {arm_id: {it.row.session_id for it in requests} for arm_id, requests in data.by_arm.items()}
    for session in data.sessions.values():
        if session.id in answered.get(session.arm_id, ()):
            found[session.arm_id].append(session)
    return found


def beside_baseline(arm: Arm, by_arm: Mapping[str, Sequence[Session]]) -> Iterator[tuple[Session, Session]]:
    """Each session of an arm with one of its baseline in the same block."""
    baselines: dict[BlockKey, Session] = {}
    for session in by_arm.get(arm.baseline_id or "", ()):
        baselines.setdefault((session.invocation, session.block), session)
    for session in by_arm.get(arm.id, ()):
        if (baseline := baselines.get((session.invocation, session.block))) is not None:
            yield session, baseline


def in_force(session: Session, method: str) -> dict[str, object]:
    """A method's parameters as the engine says them itself, by its own names; empty where it says nothing.

    The mock engine says them for all methods together.
    """
    methods = session.resolved.get("method_parameters")
    own: object = cast("dict[str, object]", methods).get(method) if isinstance(methods, dict) else None
    if isinstance(own, dict) and own:
        return cast("dict[str, object]", own)
    whole = "speculative."
    return {name.removeprefix(whole): value for name, value in session.resolved.items() if name.startswith(whole)}


def target_devices_known(arm: Arm, session: Session) -> bool:
    """Whether the devices are those of the target alone.

    Logs of old builds do not say where the draft begins, so that its buffers are counted among the target's.
    """
    return bool(session.devices) and (arm.draft is None or bool(session.draft_devices))


def identity_of(engine: EngineIdentity) -> tuple[object, ...]:
    """What makes an engine the same engine: kind, build, and the bytes of its binary and its libraries."""
    return engine.kind, engine.build, engine.binary_sha256, tuple(sorted(engine.libraries.items()))


def distinct(values: Iterable[Value]) -> list[Value]:
    """The first value of each name, as many as are shown."""
    return list({value.name: value for value in reversed(list(values))}.values())[::-1][:MOST_SHOWN]


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
