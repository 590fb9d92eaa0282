"""Checks whether the settings that were asked for were in force, with the same defaults in every session.

What was asked for is in the arms; what was in force was read back from the engine and is in the sessions. Engines of
different age print different things, so a value that is not printed is a gap and no finding, unless its neighbours
are printed and it alone is missing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from specmeter.engines.llama_cpp.spec import PRINTED_NAMES, any_remote
from specmeter.messages import Message
from specmeter.record import Arm, DeviceUse, EngineTraits, Session
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import MAX_SHOWN, Check, Value, as_evidence, distinct, not_checkable, of_arm, shown
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.checks.sessions import in_force, sessions_by_arm

_NOT_READ_BACK = Message("unchecked.not_read_back")

# --- default-drift ---------------------------------------------------------------------------------------------------

_PRINTED_P = 0.005
"""Some methods print p_min with two digits."""
_VOLATILE = frozenset({"warnings"})
"""Read back, but no settings."""


def default_drift(data: RunData) -> Findings:
    """Values in force that change between sessions of one arm, or differ from what the arm set.

    An engine's defaults are part of the configuration: the same command line once meant gamma 16 with p_min 0.75 and
    means gamma 3 with p_min 0 today. All values are exact, so any difference is one; p_min is compared to half a
    percent, because some methods print two digits of it.

    Assumes: the settings read back from the engine are in force.
    Otherwise: an engine that reports other values than it uses is judged wrongly: suspect at most.
    """
    by_arm = sessions_by_arm(data)
    for arm in data.arms.values():
        sessions = by_arm[arm.id]
        if not any(session.resolved for session in sessions):
            yield not_checkable(arm.id, _NOT_READ_BACK)
            continue
        changed = list(_changes(sessions))
        if changed:
            yield of_arm(
                "suspect",
                arm.id,
                Message("default-drift.found", value=_then(changed[0])),
                **as_evidence(changed),
            )
        other = distinct(
            it
            for session in sessions
            for it in _drafting(arm, session, data.traits)
            if it.seen is not None and not _alike(it)
        )
        if other:
            yield of_arm(
                "suspect",
                arm.id,
                Message("default-drift.drafts", value=other[0].message),
                Message("default-drift.fix_drafts"),
                **as_evidence(other),
            )


def _then(value: Value) -> Message:
    return Message("default-drift.value", name=value.name, was=shown(value.expected), then=shown(value.seen))


def _changes(sessions: Sequence[Session]) -> Iterator[Value]:
    """Values that a later session has otherwise than the first one, each once."""
    first = sessions[0].resolved
    reference = dict(_flat(first))
    seen: set[str] = set()
    for session in sessions[1:]:
        if session.resolved == first:
            continue
        for name, value in _flat(session.resolved):
            if name in reference and reference[name] != value and name not in seen and len(seen) < MAX_SHOWN:
                seen.add(name)
                yield Value(name, reference[name], value)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(cast("dict[str, Any]", value), f"{prefix}{name}.")
        elif name not in _VOLATILE:
            yield prefix + name, value


def _drafting(arm: Arm, session: Session, traits: EngineTraits) -> Iterator[Value]:
    """What the arm sets about drafting, and what its methods have in force."""
    for method in arm.methods:
        values = in_force(session, method)
        if not values:
            continue
        for field in traits.parameters(method):
            asked = getattr(arm, field)
            if asked is not None:
                seen = next((values[name] for name in PRINTED_NAMES[field] if name in values), None)
                yield Value(Message("check.of_method", field=field, method=method), asked, seen)


def _alike(value: Value) -> bool:
    if isinstance(value.expected, float) and isinstance(value.seen, int | float):
        return abs(value.expected - value.seen) <= _PRINTED_P
    return value.expected == value.seen


# --- flag-inert ------------------------------------------------------------------------------------------------------


def flag_inert(data: RunData) -> Findings:
    """Options that were set, and that the engine changed, dropped or never mentions.

    Engines round some values up or down on purpose, which does not make a finding: the context to a multiple of 256 per
    slot, a batch that is larger than the context down to it.

    Assumes: the settings read back from the engine are in force, and roundings are those of llama.cpp.
    Otherwise: other engines may round differently: suspect at most.
    """
    by_arm = sessions_by_arm(data)
    for arm in data.arms.values():
        sessions = by_arm[arm.id]
        if not any(session.resolved for session in sessions):
            yield not_checkable(arm.id, _NOT_READ_BACK)
            continue
        inert = distinct(it for session in sessions for it in _inert(data, arm, session))
        if inert:
            yield of_arm(
                "suspect",
                arm.id,
                Message("flag-inert.found", value=inert[0].message),
                **as_evidence(inert),
            )
        if silent := sorted({name for session in sessions for name in _silent(data, arm, session)}):
            yield not_checkable(arm.id, Message("unchecked.values_unknown", names=silent))


def _inert(data: RunData, arm: Arm, session: Session) -> Iterator[Value]:
    for value in _settings(arm, session):
        if value.seen is not None and value.seen != value.expected:
            yield value
    if session.speculating is not False and not data.simulated:
        active = session.resolved.get("methods")
        if isinstance(active, list) and active:
            for method in arm.methods:
                if method != "none" and method not in cast("list[object]", active):
                    yield Value(
                        Message("flag-inert.method", method=method),
                        Message("flag-inert.active"),
                        Message("flag-inert.not_started"),
                    )
    for value in _drafting(arm, session, data.traits):
        if value.seen is not None and not _alike(value):
            yield value
        elif value.seen is None and not data.simulated:
            # Its neighbours are printed and it is not: the method does not know it.
            yield value._replace(seen=Message("flag-inert.not_mentioned"))
    if arm.synthetic_rates and not data.simulated and session.id in data.logs and not data.logs[session.id].synthetic:
        yield Value("synthetic_rates", Message("flag-inert.synthetic"), Message("flag-inert.not_mentioned"))


def _silent(data: RunData, arm: Arm, session: Session) -> Iterator[str]:
    """Options that were set and of which the engine says nothing at all."""
    if data.simulated:
        return
    for value in _settings(arm, session):
        if value.seen is None:
            yield str(value.name)
    if arm.engine.extra_flags:
        yield "extra_flags"
    if arm.synthetic_rates and session.id not in data.logs:
        yield "synthetic_rates"
    if not session.resolved.get("method_parameters"):
        asked = (field for method in arm.methods for field in data.traits.parameters(method))
        yield from (field for field in asked if getattr(arm, field) is not None)


def _settings(arm: Arm, session: Session) -> Iterator[Value]:
    """The engine's settings that the experiment names, with what is in force brought to the same form."""
    asked, read = arm.engine, session.resolved
    yield Value("context", asked.full_context, _rounded_up(read.get("n_ctx"), asked.full_context, 256 * asked.slots))
    yield Value("slots", asked.slots, read.get("total_slots"))
    if asked.threads is not None:
        yield Value("threads", asked.threads, read.get("threads"))
    if asked.batch is not None:
        yield Value("batch", _least(asked.batch, read.get("n_ctx")), read.get("n_batch"))
    if asked.ubatch is not None:
        yield Value("ubatch", _least(asked.ubatch, read.get("n_batch")), read.get("n_ubatch"))
    if asked.flash_attention in ("on", "off"):
        yield Value("flash_attention", asked.flash_attention, _switch(read.get("flash_attention")))
    if asked.mmap is not None:
        yield Value("mmap", "mmap" if asked.mmap else "none", read.get("load_mode"))
    for name in ("kv_type_k", "kv_type_v"):
        if getattr(asked, name) is not None:
            yield Value(name, getattr(asked, name), read.get(name))
    # Behind a relay, the address that was connected to is another one than was asked for.
    remote = _connected(session) or asked.rpc
    yield from _placement("", asked.gpu_layers, asked.devices, session.layers_offloaded, session.devices, remote)
    if arm.draft is None:
        return
    for name in ("draft_kv_type_k", "draft_kv_type_v"):
        if getattr(asked, name) is not None:
            yield Value(name, getattr(asked, name), read.get(name))
    yield from _placement(
        "draft_",
        asked.draft_gpu_layers,
        asked.draft_devices,
        session.draft_layers_offloaded,
        session.draft_devices,
        remote,
    )


def _placement(
    prefix: str,
    gpu_layers: int | None,
    devices: Sequence[str],
    offloaded: tuple[int, int] | None,
    uses: Sequence[DeviceUse],
    remote: Sequence[str],
) -> Iterator[Value]:
    holding = [use.device for use in uses if use.model_buffer_bytes > 0]
    if gpu_layers is not None:
        # An engine without any GPU says nothing of layers, whatever number it was given.
        nothing = 0 if holding and all(device.startswith("CPU") for device in holding) else None
        wanted = gpu_layers if offloaded is None else min(gpu_layers, offloaded[1])
        yield Value(f"{prefix}gpu_layers", wanted, nothing if offloaded is None else offloaded[0])
    for device in devices:
        used = any(_same_device(device, name, remote) for name in holding)
        yield Value(f"{prefix}devices", device, (device if used else ", ".join(holding)) if holding else None)


def _connected(session: Session) -> tuple[str, ...]:
    """Addresses of remote machines, as the engine was given them."""
    given = dict(itertools.pairwise(session.argv)).get("--rpc", "")
    return tuple(given.split(",")) if given else ()


def _same_device(asked: str, holding: str, remote: Sequence[str]) -> bool:
    """Whether a buffer's device is the one that was asked for.

    Remote buffers are printed with the machine's address, and numbered again on each machine: the `RPC1` of two
    machines with a device each holds its weights in `RPC0[10.0.0.3:50052]`.
    """
    if asked == "none":
        return holding.startswith("CPU")
    if len(remote) > 1 and any_remote((asked,)):
        return any(holding.endswith(f"[{address}]") for address in remote)
    return holding == asked or holding.startswith(f"{asked}[")


def _rounded_up(value: object, asked: int, step: int) -> object:
    return asked if isinstance(value, int) and asked <= value < asked + step else value


def _least(asked: int, limit: object) -> int:
    return min(asked, limit) if isinstance(limit, int) else asked


def _switch(value: object) -> str | None:
    words = {"enabled": "on", "on": "on", "1": "on", "true": "on"}
    words |= {"disabled": "off", "off": "off", "0": "off", "false": "off"}
    return words.get(str(value).lower())


CHECKS: tuple[Check, ...] = (
    Check("default-drift", "suspect", default_drift, saw=("arms", "sessions", "requests"), needs=("settings",)),
    Check("flag-inert", "suspect", flag_inert, saw=("arms", "sessions", "requests", "logs"), needs=("settings",)),
)
