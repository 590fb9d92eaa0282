"""What several checks look at: an arm's sessions with their logs, and the law that counters keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from specmeter.audit.read.engine_log import LogSigns, Sign
from specmeter.engines.llama_cpp.traits import PRINTED_NAMES
from specmeter.record import Arm, Session, Unchecked
from specmeter.validity.checks.request_data import RequestData
from specmeter.validity.checks.run_data import RunData

LONGEST_DRAFT = 64
"""The longest draft of any method by default (`ngram-mod`), where none was read back."""
SMALLEST_BATCH = 512
"""No llama.cpp server has a smaller batch by default: where none was read back, a prompt takes no more forwards."""


def unseen(arm_id: str | None, reason: str) -> Unchecked:
    """A blind spot: there is something to check, and no data to check it by."""
    return Unchecked(arm_id=arm_id, reason=reason)


def not_applicable(arm_id: str | None, reason: str) -> Unchecked:
    """Nothing to be checked here."""
    return Unchecked(arm_id=arm_id, reason=reason, applies=False)


SHARED = "requests share the machine: the time of one depends on those beside it"
"""Why times of single requests under load say nothing of the machine."""


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
                # The first prompt of a session (with its words reversed) is the one that it was calibrated with.
                self._batch[row.session_id] = self._calibrate(row.session_id, row.prompt_n or 0)
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
