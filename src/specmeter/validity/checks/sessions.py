"""The sessions that answered an arm's requests: their logs, and the settings that were in force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from specmeter.analysis.requests import BlockKey
from specmeter.engines.llama_cpp.log_signs import LogSigns, Sign
from specmeter.record import Arm, EngineIdentity, Session
from specmeter.validity.checks.requests import Requests
from specmeter.validity.checks.run_data import RunData


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


def logs_of(data: RunData, requests: Requests) -> Logs:
    """Logs of the sessions that answered these requests; sessions that a retry replaced are not among them."""
    ids = set(requests.different("session_id"))
    known = [data.sessions[name] for name in data.sessions if name in ids]
    read = tuple((session, data.logs[session.id]) for session in known if session.id in data.logs)
    return Logs(read, len(ids))


def server_of(sessions: Mapping[str, Session], session_id: str) -> str:
    """The process of a session, which several may have shared."""
    session = sessions.get(session_id)
    return session_id if session is None or session.server is None else session.server


def used_sessions(data: RunData, requests: Requests) -> list[Session]:
    """Sessions that answered these requests, in the order of starting."""
    ids = set(requests.different("session_id"))
    return [session for name, session in data.sessions.items() if name in ids]


def first_line(sign: Sign) -> str | None:
    """The first line of a log that gave a sign."""
    return sign.samples[0] if sign.samples else None


def sessions_by_arm(data: RunData) -> dict[str, list[Session]]:
    """Arm id -> its sessions that answered something, in the order of starting; every arm has an entry."""
    found: dict[str, list[Session]] = {arm_id: [] for arm_id in data.arms}
    answered = {arm_id: set(requests.different("session_id")) for arm_id, requests in data.by_arm.items()}
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
