"""Whether the engine was the one that was asked for, with room for its target, and alone.

Whether the settings that were asked for were in force, on the same defaults in every session.

What was asked for lies in the arms; what was in force was read back from the engine and lies in the sessions. Engines
of different age print different things, so a value that is not printed is a gap and no finding, unless its neighbours
are printed and it alone is missing.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import numpy as np

from specmeter.analysis.requests import BlockKey
from specmeter.engines.llama_cpp.spec import PRINTED_NAMES, any_remote
from specmeter.messages import Message
from specmeter.record import Arm, DeviceUse, EngineIdentity, EngineTraits, Session
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import (
    MOST_SHOWN,
    Check,
    Value,
    as_evidence,
    beside_baseline,
    distinct,
    identity_of,
    in_force,
    not_applicable,
    of_arm,
    of_run,
    server_of,
    sessions_by_arm,
    shown,
    target_devices_known,
    unseen,
)
from specmeter.validity.checks.run_data import RequestData, RunData

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

    Assumes: what the engine read back is in force.
    Otherwise: an engine that prints something else than it uses is accused wrongly, or not at all: suspect at most.
    """
    by_arm = sessions_by_arm(data)
    for arm in data.arms.values():
        sessions = by_arm[arm.id]
        if not any(session.resolved for session in sessions):
            yield unseen(arm.id, _NOT_READ_BACK)
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
                Message("default-drift.drafts", value=other[0].told),
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
            if name in reference and reference[name] != value and name not in seen and len(seen) < MOST_SHOWN:
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

    Assumes: what the engine read back is in force, and roundings are those that llama.cpp makes.
    Otherwise: other engines may round otherwise: suspect at most.
    """
    by_arm = sessions_by_arm(data)
    for arm in data.arms.values():
        sessions = by_arm[arm.id]
        if not any(session.resolved for session in sessions):
            yield unseen(arm.id, _NOT_READ_BACK)
            continue
        inert = distinct(it for session in sessions for it in _inert(data, arm, session))
        if inert:
            yield of_arm(
                "suspect",
                arm.id,
                Message("flag-inert.found", value=inert[0].told),
                **as_evidence(inert),
            )
        if silent := sorted({name for session in sessions for name in _silent(data, arm, session)}):
            yield unseen(arm.id, Message("unchecked.values_unknown", names=silent))


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
        yield Value("synthetic_rates", Message("flag-inert.dice"), Message("flag-inert.not_mentioned"))


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

    Remote buffers are printed with the machine's address, and numbered anew on each machine: the `RPC1` of two machines
    with a device each holds its weights in `RPC0[10.0.0.3:50052]`.
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


SETTINGS_CHECKS: tuple[Check, ...] = (
    Check("default-drift", "suspect", default_drift, saw=("arms", "sessions", "requests"), needs=("settings",)),
    Check("flag-inert", "suspect", flag_inert, saw=("arms", "sessions", "requests", "logs"), needs=("settings",)),
)


# --- two-binaries ----------------------------------------------------------------------------------------------------

_BUILD = re.compile(r"\bb?(\d{1,9})[- ]\(?([0-9a-f]{6,40}|unknown)\b")
_UNKNOWN = ("0", "unknown")


def two_binaries(data: RunData) -> Findings:
    """More than one engine in a run, or a program that was built from another source than it says.

    Identities are compared to the byte. A build is a number and a commit; builds without them (packages that were made
    outside of a repository print `0 (unknown)`) agree with anything.

    Assumes: one build is one set of bytes, and prints one build number.
    Otherwise: the same source built twice has other bytes: suspect at most.
    """
    if not data.sessions:
        yield unseen(None, Message("unchecked.no_session"))
        return
    engines: dict[tuple[object, ...], EngineIdentity] = {}
    known: dict[int, tuple[object, ...]] = {}
    for session in data.sessions.values():
        # Sessions share their engine's record; its libraries need not be sorted again for each of them.
        key = known.get(id(session.engine)) or identity_of(session.engine)
        known[id(session.engine)] = key
        engines.setdefault(key, session.engine)
    if len(engines) > 1:
        first, second = list(engines.values())[:2]
        yield of_run(
            "suspect",
            Message(
                "two-binaries.found",
                engines=len(engines),
                difference=_what_differs(first, second),
            ),
            **{f"engine {place}": f"{it.build} {it.binary_sha256[:16]}" for place, it in enumerate(engines.values())},
        )
    if data.simulated:
        return
    yield from _other_builds(data)


def _what_differs(first: EngineIdentity, second: EngineIdentity) -> Message:
    if first.binary_sha256 != second.binary_sha256:
        return Message("two-binaries.binaries", first=first.binary_sha256[:12], second=second.binary_sha256[:12])
    libraries = sorted(
        name
        for name in {**first.libraries, **second.libraries}
        if first.libraries.get(name) != second.libraries.get(name)
    )
    if libraries:
        return Message("two-binaries.library", name=libraries[0])
    return Message("two-binaries.builds", first=first.build, second=second.build)


def _other_builds(data: RunData) -> Findings:
    """Sessions whose log names another build than the engine's identity."""
    wrong: list[tuple[Session, str]] = []
    silent = 0
    for session in data.sessions.values():
        log = data.logs.get(session.id)
        printed = [text for text in (log.build if log else "", session.resolved.get("build")) if isinstance(text, str)]
        builds = [build for text in printed if (build := _build_of(text)) is not None]
        silent += not builds
        differing = [text for text in printed if _differ(_build_of(text), _build_of(session.engine.build))]
        if differing:
            wrong.append((session, differing[0]))
    if wrong:
        session, printed_build = wrong[0]
        yield of_run(
            "suspect",
            Message(
                "two-binaries.log",
                sessions=len(wrong),
                build_in_log=printed_build[:80],
                build_of_engine=session.engine.build[:80],
            ),
            Message("two-binaries.fix_log"),
            build_in_log=printed_build[:200],
            build_of_engine=session.engine.build[:200],
            arm=session.arm_id,
        )
    elif silent == len(data.sessions):
        yield unseen(None, Message("unchecked.no_build_in_log"))


def _build_of(text: str) -> tuple[str, str] | None:
    found = _BUILD.search(text)
    return None if found is None else (found.group(1), found.group(2))


def _differ(one: tuple[str, str] | None, other: tuple[str, str] | None) -> bool:
    if one is None or other is None:
        return False
    numbers = one[0] != other[0] and _UNKNOWN[0] not in (one[0], other[0])
    commits = not one[1].startswith(other[1]) and not other[1].startswith(one[1])
    return numbers or (commits and _UNKNOWN[1] not in (one[1], other[1]))


# --- memory-fit ------------------------------------------------------------------------------------------------------

_SAME_SIZE = 0.01
_SAME_BYTES = 2 * 2**20


def memory_fit(data: RunData) -> Findings:
    """A target that lies otherwise in memory than its baseline's, because a draft took the room.

    Noted as well: a target of which a GPU holds some layers only, as with `-ngl 99` and 150 layers.
    Layers on devices, the context of a slot, and the target's weights and KV cache per device are compared between
    sessions of one block. Sizes may differ by 1 % or 2 MiB, since logs print them rounded. Compute buffers are left
    out: verifying a draft may need larger ones, and they say nothing about where the target lies. Left out as well is
    the size of weights for arms that load drafting heads into the target, and the cache of a recurrent target that
    keeps snapshots for rolling back.

    Assumes: buffers of the same size in the same place are read at the same speed; logs round sizes to 1 % or 2
    MiB.
    Otherwise: a smaller difference goes unnoticed, a harmless one is suspect at most.
    """
    arms = [arm for arm in data.arms.values() if arm.baseline_id is not None]
    if data.simulated or not arms:
        yield not_applicable(
            None, Message("unchecked.nothing_in_memory") if data.simulated else Message("unchecked.no_baseline")
        )
        return
    by_arm = sessions_by_arm(data)
    for arm_id, sessions in by_arm.items():
        partly = next((it.layers_offloaded for it in sessions if it.layers_offloaded and it.layers_offloaded[0]), None)
        if partly is not None and partly[0] < partly[1]:
            said = Message("memory-fit.partly", there=partly[0], layers=partly[1])
            yield of_arm("note", arm_id, said, Message("memory-fit.fix_partly"))
    for arm in arms:
        pairs = list(beside_baseline(arm, by_arm))
        baseline = data.arms.get(arm.baseline_id or "")
        known = [
            pair
            for pair in pairs
            if target_devices_known(arm, pair[0]) and baseline and target_devices_known(baseline, pair[1])
        ]
        if not known:
            yield unseen(arm.id, Message("unchecked.target_place_unknown"))
            continue
        moved = distinct(it for mine, base in known for it in _moved(arm, mine, base))
        if moved:
            yield of_arm(
                "suspect",
                arm.id,
                Message("memory-fit.found", value=moved[0].told),
                blocks=len({(mine.invocation, mine.block) for mine, _ in known}),
                **as_evidence(moved),
            )


def _moved(arm: Arm, mine: Session, base: Session) -> Iterator[Value]:
    if mine.layers_offloaded is not None and base.layers_offloaded is not None:
        # Drafting heads inside the target are layers more; what counts is what had to stay behind.
        behind, usual = (total - there for there, total in (mine.layers_offloaded, base.layers_offloaded))
        if behind != usual:
            yield Value(Message("memory-fit.layers_left"), usual, behind)
    elif mine.layers_offloaded != base.layers_offloaded:
        yield Value(Message("memory-fit.layers"), base.layers_offloaded, mine.layers_offloaded)
    for name in ("n_ctx", "slot_context"):
        expected, seen = base.resolved.get(name), mine.resolved.get(name)
        if expected is not None and seen is not None and expected != seen:
            yield Value(name, expected, seen)
    heads = "draft-mtp" in arm.methods
    snapshots = mine.resolved.get("n_rs_seq") != base.resolved.get("n_rs_seq")
    for use in base.devices:
        now = next((it for it in mine.devices if it.device == use.device), DeviceUse(device=use.device))
        if not heads and not _same_size(use.model_buffer_bytes, now.model_buffer_bytes):
            yield Value(
                Message("memory-fit.weights", device=use.device), use.model_buffer_bytes, now.model_buffer_bytes
            )
        if not snapshots and not _same_size(use.kv_buffer_bytes, now.kv_buffer_bytes):
            yield Value(Message("memory-fit.kv_cache", device=use.device), use.kv_buffer_bytes, now.kv_buffer_bytes)


def _same_size(one: int, other: int) -> bool:
    return abs(one - other) <= max(_SAME_BYTES, _SAME_SIZE * max(one, other))


# --- server-shared ---------------------------------------------------------------------------------------------------

_RISE = 0.02
"""Least rise of the share of accepted tokens from the first to the last request of a session."""
_RISE_T = 4.0
"""Least ratio of the slope to its standard error."""


def server_shared(data: RunData) -> Findings:
    """Servers that more than one request, client, block or arm left its traces in.

    More than one slot, a prompt cache, prompt tokens found in the cache (unless prompts are read once, by the run's own
    design: said as a note), a session that served another arm or block: each is exact. A method that drafts from
    earlier requests (`ngram-mod`) does so within a block, whose server answers all prompts: that is what is measured,
    the interval is over servers, and a note says it. A server that it shares over blocks makes these depend on each
    other. For all other n-gram arms the share of accepted tokens is compared over the places of one prompt in the
    sessions of different blocks: greedy text repeats itself exactly, so without a shared table it does not depend on
    the place at all. It is called a rise from 0.02 of the tokens between first and last place on, at four times its
    standard error.

    Assumes: greedy text repeats itself, so that acceptance does not depend on the place in a session unless
    something is kept.
    Otherwise: a rise by chance passes four standard errors rarely: suspect at most.
    """
    by_arm = sessions_by_arm(data)
    if not data.sessions:
        yield unseen(None, Message("unchecked.no_session"))
        return
    if data.experiment.design.reads_once:
        kept = sum(bool(it.row.cache_n) for requests in data.by_arm.values() for it in requests)
        read = Message("server-shared.read_once", requests=kept)
        yield of_run("note", read, Message("server-shared.read_once_fix"))
    for arm in data.arms.values():
        requests = data.by_arm[arm.id]
        if not requests:
            yield unseen(arm.id, data.unanswered(arm.id))
            continue
        evidence = _shared(data, arm, by_arm[arm.id], requests)
        if evidence:
            yield of_arm(
                "suspect",
                arm.id,
                Message("server-shared.found", how=tuple(evidence.values())),
                **evidence,
            )
        elif (method := _remembering(data, arm)) is not None and max(_places(data, requests)) > 0:
            yield of_arm("note", arm.id, Message("server-shared.remembers", method=method))


def _shared(
    data: RunData, arm: Arm, sessions: Sequence[Session], requests: Sequence[RequestData]
) -> dict[str, Message]:
    """What was shared -> how it shows."""
    found: dict[str, Message] = {}
    slots = max(
        (it for s in sessions if isinstance(it := s.resolved.get("total_slots"), int)), default=arm.engine.slots
    )
    if slots > 1 and arm.load is None:
        found["slots"] = Message("server-shared.slots", slots=slots)
    cached = [it.row.cache_n for it in requests if it.row.cache_n]
    if cached and not data.experiment.design.reads_once:
        found["cached"] = Message(
            "server-shared.cached", cached=len(cached), requests=len(requests), tokens=max(cached)
        )
    elif arm.engine.prompt_cache:
        found["cached"] = Message("server-shared.prompt_cache")
    strangers = sum(_strange(data.sessions.get(it.row.session_id), it) for it in requests)
    if strangers:
        found["sessions"] = Message("server-shared.strangers", requests=strangers)
    if "lookup" in data.traits.drafters(arm.methods):
        found |= _shared_table(data, arm, requests)
    return found


def _strange(session: Session | None, request: RequestData) -> bool:
    if session is None:
        return False
    row = request.row
    return (session.arm_id, session.invocation, session.block) != (row.arm_id, row.invocation, row.block)


def _remembering(data: RunData, arm: Arm) -> str | None:
    """A method of the arm that drafts from earlier requests of its server."""
    return next((it for it in arm.methods if (method := data.traits.method(it)) is not None and method.remembers), None)


def _shared_table(data: RunData, arm: Arm, requests: Sequence[RequestData]) -> dict[str, Message]:
    if (method := _remembering(data, arm)) is not None:
        blocks: dict[str, set[BlockKey]] = {}
        for row in (it.row for it in requests):
            blocks.setdefault(server_of(data.sessions, row.session_id), set()).add((row.invocation, row.block))
        most = max(map(len, blocks.values()))
        return {"table": Message("server-shared.table", method=method, blocks=most)} if most > 1 else {}
    rise = _rise(requests, _places(data, requests)) if arm.load is None else None
    return {} if rise is None else {"rise": Message("server-shared.rise", rise=rise)}


def _places(data: RunData, requests: Sequence[RequestData]) -> list[int]:
    """Of each request the number of requests that its server had answered before."""
    counts: dict[str, int] = {}
    places: list[int] = []
    for request in requests:
        server = server_of(data.sessions, request.row.session_id)
        place = counts.get(server, 0)
        counts[server] = place + 1
        places.append(place)
    return places


def _rise(requests: Sequence[RequestData], places: Sequence[int]) -> float | None:
    """Rise of the share of accepted tokens over a session, prompts held fixed; None where there is none to speak of."""
    rows = [it.row for it in requests]
    numbers: dict[str, int] = {}
    prompt = np.array([numbers.setdefault(row.prompt_id, len(numbers)) for row in rows])
    share = np.array([(row.draft_n_accepted or 0) / max(1, (row.predicted_n or 0) - 1) for row in rows])
    place = np.array(places, dtype=np.float64)
    per_prompt = np.bincount(prompt)
    share = share - (np.bincount(prompt, share) / per_prompt)[prompt]
    moved = place - (np.bincount(prompt, place) / per_prompt)[prompt]
    spread, freedom = float(moved @ moved), len(rows) - len(numbers) - 1
    if spread == 0 or freedom < 5:
        return None
    slope = float(moved @ share) / spread
    left = share - slope * moved
    error = math.sqrt(float(left @ left) / freedom / spread)
    rise = slope * float(place.max())
    return rise if rise >= _RISE and slope >= _RISE_T * error else None


# --- server-found ----------------------------------------------------------------------------------------------------


def server_found(data: RunData) -> Findings:
    """A server that ran already, and was asked: where it computes, and whether what is compared is one model.

    Two servers of one machine take memory and caches from each other though only one of them is at work. What servers
    say of their models is compared as far as both say it.

    Assumes: a server answers for itself: no proxy speaks for others.
    Otherwise: what was told is of another server than what was measured: suspect at most.
    """
    if not data.sessions:
        yield unseen(None, Message("unchecked.no_session"))
        return
    if not data.traits.asked:
        yield not_applicable(None, Message("unchecked.started_here"))
        return
    models = {it.arm_id: cast("dict[str, Any]", it.resolved.get("model") or {}) for it in data.sessions.values()}
    for arm in data.arms.values():
        mine, plain = models.get(arm.id, {}), models.get(arm.baseline_id or "", {})
        if differing := sorted(it for it in mine.keys() & plain.keys() if mine[it] != plain[it]):
            said = Message("server-found.models", what=", ".join(differing))
            yield of_arm("suspect", arm.id, said, Message("server-found.fix_models"))
    for name in dict.fromkeys(str(it.resolved["named"]) for it in data.sessions.values() if it.resolved.get("named")):
        yield of_run("note", Message("server-found.named", name=name), Message("server-found.fix_models"))
    if not data.traits.watched:
        yield of_run("note", Message("server-found.unseen"), Message("server-found.fix_unseen"))
    servers = {it.server: it.resolved for it in data.sessions.values() if it.server is not None}
    hosts = {urlsplit(str(it.get("url"))).hostname for it in servers.values()}
    if len(servers) > len(hosts):
        said = Message("server-found.shared", servers=len(servers), host=min(map(str, hosts)))
        yield of_run("note", said, Message("server-found.fix_shared"))


CHECKS: tuple[Check, ...] = (
    Check("two-binaries", "suspect", two_binaries, saw=("engines", "sessions", "logs"), needs=("identity",)),
    Check("memory-fit", "suspect", memory_fit, saw=("arms", "sessions", "requests")),
    Check("server-shared", "suspect", server_shared, saw=("arms", "sessions", "requests")),
    Check("server-found", "suspect", server_found, saw=("engines", "sessions")),
)
