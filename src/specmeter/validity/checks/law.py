"""The conservation law of counters: every token was accepted, or comes from a forward of the target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from specmeter.engines.llama_cpp.spec import PRINTED_NAMES
from specmeter.record import Arm, Session
from specmeter.validity.checks.requests import Requests
from specmeter.validity.checks.sessions import server_of

LONGEST_DRAFT = 64
"""The longest draft of any method by default (`ngram-mod`), where none was read back."""
SMALLEST_BATCH = 512
"""No llama.cpp server has a smaller batch by default: where none was read back, a prompt takes no more forwards."""


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


class Gap(NamedTuple):
    """What is left of `predicted_n - 1 - (accepted + F)`. Above 0, tokens came out that no successful forward stands
    behind. Below 0, forwards emitted nothing."""

    least: int
    most: int
    idle: int
    """Most forwards that may honestly have emitted nothing.

    Accepted tokens beyond a stop are counted and cut off: no more than one draft. Not at the limit, which engines know
    when they draft: in 440 requests that ended there, by every method, the law closed to the token. A restored
    checkpoint may cost a forward of its own.
    """


class Law:
    """How far an arm's counters are from `predicted_n - 1 = accepted + F`, request by request.

    F are target forwards after the prompt: those counted during the request without those of the prompt. A prompt takes
    one per batch, so a long one takes more than the short one that the session was calibrated with. Where the batch
    was read back, their number is known; where not, it is a range, and so is what is left over.
    """

    def __init__(self, arm: Arm, sessions: Iterable[Session], requests: Requests) -> None:
        self._sessions = {session.id: session for session in sessions}
        self._batch: dict[str, tuple[int, int]] = {}
        for (session_id,), mine in requests.groups("session_id"):
            # The first prompt of a server (with its words reversed) is the one that it was calibrated with.
            server = server_of(self._sessions, session_id)
            if server not in self._batch:
                self._batch[server] = self._calibrate(session_id, mine[0].row.prompt_n or 0)
            self._batch[session_id] = self._batch[server]
        self._draft = {name: longest_draft(arm, session) for name, session in self._sessions.items()}

    def _calibrate(self, session_id: str, prompt_n: int) -> tuple[int, int]:
        """(batch size, forwards beyond one per batch); a batch of 0 is unknown, and then the second is the most."""
        session = self._sessions.get(session_id)
        counted = None if session is None else session.prompt_forwards
        batch = None if session is None else session.resolved.get("n_batch")
        if not isinstance(batch, int) or batch < 1:
            return 0, counted or 1
        return batch, 0 if counted is None else counted - max(1, -(-prompt_n // batch))

    def prompt_forwards(self, session_id: str, prompt_n: int) -> tuple[int, int]:
        """Fewest and most forwards that a prompt can have taken."""
        least = 1 if prompt_n else 0
        batch, beyond = self._batch[session_id]
        if not batch:
            return least, max(beyond, -(-prompt_n // SMALLEST_BATCH))
        exact = max(least, -(-prompt_n // batch))
        return max(least, min(exact, exact + beyond)), max(exact, exact + beyond)

    def gaps(self, requests: Requests) -> Iterator[Gap | None]:
        """Of each; None where the engine counted no forwards."""
        counted = requests.values(
            "session_id", "prompt_n", "predicted_n", "draft_n", "draft_n_accepted", "decodes", "restores", "stop_reason"
        )
        for session_id, prompt_n, predicted_n, drafted, accepted, decodes, restores, stop_reason in counted:
            if decodes is None or not predicted_n:
                yield None
                continue
            fewest, most = self.prompt_forwards(session_id, prompt_n or 0)
            left = predicted_n - 1 - (accepted or 0) - round(decodes)
            cut_off = bool(drafted) and stop_reason != "limit"
            idle = restores + (self._draft.get(session_id, LONGEST_DRAFT) if cut_off else 0)
            yield Gap(left + fewest, left + most, idle)
