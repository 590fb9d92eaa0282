"""The sessions of each arm, and values of theirs that should be the same as others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from specmeter.analysis.request_table import BlockKey
from specmeter.record import Arm, EngineIdentity, Session
from specmeter.validity.checks.run_data import RunData

MOST_SHOWN = 6
"""Differences that a finding lists at most."""


class Value(NamedTuple):
    """One value that should be the same as another."""

    name: str
    expected: object
    seen: object
    """None: the engine does not say."""

    @property
    def text(self) -> str:
        return f"{self.name} is {shown(self.seen)}, not {shown(self.expected)}"


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


def as_evidence(values: Iterable[Value]) -> dict[str, str]:
    """What a finding keeps of them."""
    return {value.name: f"{shown(value.seen)}, not {shown(value.expected)}" for value in values}


def shown(value: object) -> str:
    """A value as a finding prints it, cut where it is long."""
    text = "not said" if value is None else str(value)
    return text if len(text) <= 100 else text[:97] + "..."
