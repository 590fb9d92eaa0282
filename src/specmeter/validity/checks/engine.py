"""Checks of the engine: was it the one that was asked for, with room for its target, and alone?"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import numpy as np

from specmeter.analysis.requests import BlockKey
from specmeter.messages import Message
from specmeter.record import Arm, DeviceUse, EngineIdentity, Session
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import (
    Check,
    Value,
    as_evidence,
    distinct,
    not_applicable,
    not_checkable,
    of_arm,
    of_run,
)
from specmeter.validity.checks.requests import Requests
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.checks.sessions import (
    beside_baseline,
    identity_of,
    server_of,
    sessions_by_arm,
    target_devices_known,
)

# --- two-binaries ----------------------------------------------------------------------------------------------------

_BUILD = re.compile(r"\bb?(\d{1,9})[- ]\(?([0-9a-f]{6,40}|unknown)\b")
_UNKNOWN = ("0", "unknown")


def two_binaries(data: RunData) -> Findings:
    """More than one engine in a run, or a program that was built from another source than it says.

    Identities are compared to the byte. A build is a number and a commit; builds without them (packages that were made
    outside of a repository print `0 (unknown)`) agree with anything.

    Assumes: one build is one set of bytes, with one build number.
    Otherwise: the same source built twice has other bytes: suspect at most.
    """
    if not data.sessions:
        yield not_checkable(None, Message("unchecked.no_session"))
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
        yield not_checkable(None, Message("unchecked.no_build_in_log"))


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

    Assumes: buffers of the same size in the same place are read at the same speed; logs round sizes to 1% or 2 MiB.
    Otherwise: smaller differences go unnoticed, and harmless ones are reported: suspect at most.
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
            yield not_checkable(arm.id, Message("unchecked.weights_unknown"))
            continue
        moved = distinct(it for mine, base in known for it in _moved(arm, mine, base))
        if moved:
            yield of_arm(
                "suspect",
                arm.id,
                Message("memory-fit.found", value=moved[0].message),
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

    Assumes: greedy output repeats, so acceptance does not depend on when a request ran, unless the server keeps
    something.
    Otherwise: a chance rise rarely exceeds four standard errors: suspect at most.
    """
    by_arm = sessions_by_arm(data)
    if not data.sessions:
        yield not_checkable(None, Message("unchecked.no_session"))
        return
    if data.experiment.design.reads_once:
        kept = sum(int((requests.whole("cache_n") != 0).sum()) for requests in data.by_arm.values())
        read = Message("server-shared.read_once", requests=kept)
        yield of_run("note", read, Message("server-shared.read_once_fix"))
    for arm in data.arms.values():
        requests = data.by_arm[arm.id]
        if not requests:
            yield not_checkable(arm.id, data.unanswered(arm.id))
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


def _shared(data: RunData, arm: Arm, sessions: Sequence[Session], requests: Requests) -> dict[str, Message]:
    """What was shared -> how it shows."""
    found: dict[str, Message] = {}
    slots = max(
        (it for s in sessions if isinstance(it := s.resolved.get("total_slots"), int)), default=arm.engine.slots
    )
    if slots > 1 and arm.load is None:
        found["slots"] = Message("server-shared.slots", slots=slots)
    cached = [count for (count,) in requests.values("cache_n") if count]
    if all(prompt.turn is not None for prompt in data.prompts.values()):
        pass  # a session is continued as it was served
    elif cached and not data.experiment.design.reads_once:
        found["cached"] = Message(
            "server-shared.cached", cached=len(cached), requests=len(requests), tokens=max(cached)
        )
    elif arm.engine.prompt_cache:
        found["cached"] = Message("server-shared.prompt_cache")
    places, which = requests.distinct("session_id", "arm_id", "invocation", "block")
    strange = [_strange(data.sessions.get(session_id), place) for session_id, *place in places]
    strangers = int(np.array(strange)[which].sum())
    if strangers:
        found["sessions"] = Message("server-shared.strangers", requests=strangers)
    if "lookup" in data.traits.drafters(arm.methods):
        found |= _shared_table(data, arm, requests)
    return found


def _strange(session: Session | None, place: Sequence[str | int]) -> bool:
    return session is not None and [session.arm_id, session.invocation, session.block] != place


def _remembering(data: RunData, arm: Arm) -> str | None:
    """A method of the arm that drafts from earlier requests of its server."""
    return next((it for it in arm.methods if (method := data.traits.method(it)) is not None and method.remembers), None)


def _shared_table(data: RunData, arm: Arm, requests: Requests) -> dict[str, Message]:
    if (method := _remembering(data, arm)) is not None:
        blocks: dict[str, set[BlockKey]] = {}
        for session_id, invocation, block in requests.distinct("session_id", "invocation", "block")[0]:
            blocks.setdefault(server_of(data.sessions, session_id), set()).add((invocation, block))
        most = max(map(len, blocks.values()))
        return {"table": Message("server-shared.table", method=method, blocks=most)} if most > 1 else {}
    rise = _rise(requests, _places(data, requests)) if arm.load is None else None
    return {} if rise is None else {"rise": Message("server-shared.rise", rise=rise)}


def _places(data: RunData, requests: Requests) -> list[int]:
    """Of each request the number of requests that its server had answered before."""
    counts: dict[str, int] = {}
    places: list[int] = []
    for (session_id,) in requests.values("session_id"):
        server = server_of(data.sessions, session_id)
        place = counts.get(server, 0)
        counts[server] = place + 1
        places.append(place)
    return places


def _rise(requests: Requests, places: Sequence[int]) -> float | None:
    """Rise of the share of accepted tokens over a session, prompts held fixed; None where there is none to speak of."""
    prompts, prompt = requests.distinct("prompt_id")
    share = requests.whole("draft_n_accepted") / np.maximum(1, requests.whole("predicted_n") - 1)
    place = np.array(places, dtype=np.float64)
    per_prompt = np.bincount(prompt)
    share = share - (np.bincount(prompt, share) / per_prompt)[prompt]
    moved = place - (np.bincount(prompt, place) / per_prompt)[prompt]
    spread, freedom = float(moved @ moved), len(requests) - len(prompts) - 1
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

    Assumes: a server answers for itself, with no proxy in between.
    Otherwise: the reported facts belong to another server than the one measured: suspect at most.
    """
    if not data.sessions:
        yield not_checkable(None, Message("unchecked.no_session"))
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
