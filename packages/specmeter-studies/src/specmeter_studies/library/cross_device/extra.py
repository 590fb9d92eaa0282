"""cross-device: what its claims need to be told by (bytes, logs, buffers), and rows of its tables.

A draft runs on another machine by llama.cpp's RPC; the document's first result had never left home.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from specmeter.engines.registry import spec_of
from specmeter.errors import EngineError, UsageError
from specmeter.messages import Message
from specmeter.numbers.estimates import above, below
from specmeter_studies.from_claims import reason_of
from specmeter_studies.library.cross_device.costs import Backend, backends, shared_acceptance
from specmeter_studies.library.cross_device.fitting import Fitted, fitted
from specmeter_studies.rules import lies
from specmeter_studies.telling import by_counts, by_values, fallen, quoted, sentence, several, share

if TYPE_CHECKING:
    from specmeter.experiments.file import LoadedExperiment
    from specmeter.record import Arm, Estimate, Network
    from specmeter_studies.latency import LatencyModel
    from specmeter_studies.study import Found, Standing, StudyData

REDUCTION = (0.17, 0.21)
"""Rate with a draft elsewhere over that with the local one, as claimed."""
OVERHEAD_MS = (51.0, 57.0)
"""Per drafted token, as claimed."""
_SMALL, _LARGE = 0.1, 0.5
"""Share of the overhead that bytes take at most to be no cause of it, and at least to be its main one."""
_NONE_REMOTE = Message("cross-device.none_remote")
_PER_OPERATION = 10
"""A forward has at least this many operations: fewer answers than that are no call for each."""
_NO_ADDRESS = Message("cross-device.no_address")
_NO_RPC = Message("cross-device.no_rpc")


def needs(part: str, loaded: LoadedExperiment, arms: Sequence[Arm]) -> Mapping[str, Message]:  # noqa: ARG001
    """Arms whose remote machine is not named, does not answer, or cannot be used by this engine -> why."""
    from specmeter.engines.llama_cpp.engine import NativeEngine

    spec = loaded.experiment.engine
    traits = spec_of(spec.kind).traits
    found: dict[str, Message] = {}
    for arm in arms:
        if not any(name.startswith("RPC") for name in arm.engine.draft_devices) or traits.simulated:
            continue
        if "rpc" not in traits.settings:
            found[arm.id] = _NO_RPC
        elif not arm.engine.rpc:
            found[arm.id] = _NO_ADDRESS
        else:
            try:
                NativeEngine(Path(spec.binary) if spec.binary else None).check_machines(arm.engine.rpc)
            except EngineError as error:
                found[arm.id] = Message("study.lacks.error", error=error.message, fix=error.fix)
    return found


def remotes(data: StudyData) -> list[Backend]:
    """Drafts that were to run on another machine, in the runs that the document stands by."""
    return [backend for backend in backends(data) if backend.remote]


def reduction(data: StudyData) -> Found:
    """Whether drafts elsewhere leave 17 to 21 % of the rate."""
    return lies(
        remotes(data),
        "believed_to_local",
        low=REDUCTION[0],
        high=REDUCTION[1],
        told="reduction",
        found={
            "contradicted": "cross-device.depends",
        },
        empty=_NONE_REMOTE,
    )


def not_viable(data: StudyData) -> Found:
    """Whether every draft elsewhere is slower than no speculation."""
    return lies(remotes(data), "line.speedup", high=1, found="cross-device.over_plain", empty=_NONE_REMOTE)


def overhead(data: StudyData) -> Found:
    """By what was measured, else by whether the printed rates agree with each other."""
    remote = remotes(data)
    known = [backend for backend in remote if backend.overhead_ms is not None and backend.line.stands]
    if not known:
        return _printed_overhead(remote)
    shown = [Message("cross-device.overhead.of", name=it.name, ms=quoted(it.overhead_ms, " ms")) for it in known]
    if any(_beyond(backend.overhead_ms, *OVERHEAD_MS) for backend in known):
        return "contradicted", Message("cross-device.overhead.other", shown=shown)
    inside = all(_within(backend.overhead_ms, *OVERHEAD_MS) for backend in known)
    return ("supported" if inside else "cannot tell"), Message("cross-device.overhead", shown=shown)


def _printed_overhead(remote: Sequence[Backend]) -> Found:
    """Of invalid rows nothing is believed, but printed numbers can refute each other."""
    printed = [backend for backend in remote if backend.overhead_ms is not None]
    if not printed:
        return "cannot tell", _nothing(remote)
    rates = [
        Message(
            "cross-device.printed",
            name=backend.name,
            drafting=backend.place.block_ms[0],
            alone=1000 / backend.place.alone_rate,
            ms=quoted(backend.overhead_ms, " ms"),
        )
        for backend in printed
        if backend.place.alone_rate
    ]
    against = [
        Message("cross-device.against", name=backend.name, prompt=row.prompt, why=why)
        for backend in printed
        for row in backend.rows
        if (why := reason_of(row.why, "draft-time-bound")) is not None
    ]
    if against:
        return by_values("contradicted", Message("cross-device.own_rates", rates=rates, against=against))
    return "cannot tell", Message("cross-device.none_stands", rates=rates)


def calls(data: StudyData) -> Found:
    """Whether this many answers came back as a call for each operation would bring; of the document, whose llama.cpp
    has had one command for a whole graph since its first RPC backend (pull request 6829, May 2024), by that command."""
    remote = remotes(data)
    known = [backend for backend in remote if backend.proven and backend.other_answers is not None]
    if not known:
        nothing = Message("cross-device.no_calls")
        return by_counts("contradicted", nothing) if data.origin == "published" else ("cannot tell", nothing)
    shown = [
        Message(
            "cross-device.answers",
            name=backend.name,
            forwards=backend.place.forwards,
            bytes=backend.place.received_bytes,
            vocabulary=backend.place.vocabulary,
            answers=backend.other_answers or 0,
        )
        for backend in known
    ]
    if max(backend.other_answers or 0.0 for backend in known) < _PER_OPERATION:
        return by_counts("contradicted", Message("cross-device.one_command", shown=shown))
    return "cannot tell", sentence(several(shown))


def bandwidth(data: StudyData) -> Found:
    """By the bytes that crossed, at the document's 1 Gbit/s."""
    remote = remotes(data)
    known = [
        backend
        for backend in remote
        if backend.proven and backend.transfer_ms is not None and backend.overhead_ms is not None
    ]
    if not known:
        return "cannot tell", _least_transfer(data)
    shares = [(backend, (backend.transfer_ms or 0.0), backend.overhead_ms) for backend in known]
    shown = several(
        Message(
            "cross-device.bytes",
            name=backend.name,
            kb=sum(backend.bytes_per_token or (0, 0)) / 1e3,
            transfer=transfer,
            overhead=quoted(overhead, " ms"),
        )
        for backend, transfer, overhead in shares
    )
    if any(it is not None and it.high is not None and transfer >= _LARGE * it.high for _, transfer, it in shares):
        return "contradicted", Message("cross-device.bytes_alone", shown=shown)
    small = all(it is not None and it.low is not None and transfer <= _SMALL * it.low for _, transfer, it in shares)
    return ("supported" if small else "cannot tell"), sentence(shown)


def _least_transfer(data: StudyData) -> Message:
    vocabulary = next((place.vocabulary for place in data.places if place.machine and place.vocabulary), None)
    if vocabulary is None:
        return Message("cross-device.no_bytes")
    size = 4 * vocabulary
    least = 1000 * size / (1e9 / 8)
    share = least / OVERHEAD_MS[0]
    return Message("cross-device.least_bytes", vocabulary=vocabulary, mb=size / 1e6, least=least, share=share)


def first_runs(data: StudyData) -> Found:
    """By what logs say of the runs; their rates beside the local draft's decide nothing."""
    withdrawn = [backend for backend in backends(data, withdrawn=True) if backend.remote]
    if not withdrawn:
        told = Message("cross-device.not_here")
        return ("cannot tell" if data.origin == "published" else "does not apply here"), told
    rates = [
        Message("cross-device.rate", name=it.name.partition(" (")[0], change=_change(it.to_local)) for it in withdrawn
    ]
    logged = [backend for backend in withdrawn if backend.place.held_by]
    went = [backend for backend in logged if any(it.startswith("RPC") for it in backend.place.held_by)]
    held = [
        Message("cross-device.held", name=it.name.partition(" (")[0], by=it.place.held_told) for it in went or logged
    ]
    if went:
        return by_counts("contradicted", Message("cross-device.lay_there", held=held, rates=rates))
    if logged:
        logs = sum(len(it.place.held_by) for it in logged)
        runs = sum(row.decode_rate is not None for it in withdrawn for row in it.rows)
        if logs >= runs:
            return by_counts("supported", Message("cross-device.all_logs", held=held, rates=rates))
        return "cannot tell", Message("cross-device.some_logs", logs=logs, runs=runs, held=held, rates=rates)
    return "cannot tell", Message("cross-device.no_logs", rates=rates)


def acceptance(data: StudyData) -> Found:
    """Whether drafts that surely ran elsewhere have the local draft's acceptance all the same."""
    remote = remotes(data)
    proven = [(backend, both) for backend in remote if backend.proven and (both := backend.same_acceptance())]
    same = [(backend, both) for backend, both in proven if both[1] and both[0] == both[1]]
    if same:
        shown = [Message("cross-device.requests", name=it.name, same=both[0], all=both[1]) for it, both in same]
        return by_counts("contradicted", Message("cross-device.same", shown=shown))
    if proven:
        other = sum(both[1] - both[0] for _, both in proven)
        compared = sum(both[1] for _, both in proven)
        if compared and other == compared:
            return by_counts("supported", Message("cross-device.all_differ", compared=compared))
        return "cannot tell", Message("cross-device.some_differ", other=other, compared=compared)
    if len(remote) > 1 and not any(backend.place.held_by for backend in remote):
        first, second = remote[:2]
        equal, compared = shared_acceptance(first.rows, second.rows)
        if compared and equal == compared:
            return "cannot tell", Message(
                "cross-device.second_runs",
                first=first.name,
                second=second.name,
                equal=equal,
                compared=compared,
                share=share(first.line.acceptance),
                local=share(first.local.line.acceptance if first.local is not None else None),
            )
    return "cannot tell", _nothing(remote)


def _nothing(remote: Sequence[Backend]) -> Message:
    if not remote:
        return _NONE_REMOTE
    bad = [backend.line for backend in remote if not backend.line.stands]
    if bad:
        first = next(backend for backend in remote if not backend.line.stands)
        none = fallen(bad, len(remote))
        return Message("study.fallen.row", fallen=none, row=first.name, why=first.line.why or "")
    local = remote[0].local
    if local is not None and not local.line.stands:
        return Message("cross-device.local_falls", why=local.line.why or "")
    return Message("cross-device.lack", n=len(remote))


def _change(ratio: Estimate | None) -> float | Message:
    return Message("unknown") if ratio is None else ratio.point - 1


def _beyond(estimate: Estimate | None, low: float, high: float) -> bool:
    """Whether the whole interval lies outside of [low, high]."""
    return below(estimate, low) or above(estimate, high)


def _within(estimate: Estimate | None, low: float, high: float) -> bool:
    if estimate is None or estimate.low is None or estimate.high is None:
        return False
    return low <= estimate.low and estimate.high <= high


# --- rows of tables and figures ---------------------------------------------------------------------------------------


def proven(data: StudyData) -> tuple[Backend, ...]:
    """All places, where any says by buffers or bytes where its draft ran."""
    found = backends(data)
    known = any(it.place.held_by or it.place.received_bytes is not None for it in found)
    return found if known else ()


def networks(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Every network that the model is fitted to; none where they are not known, or too few."""
    model = _model(data)
    places = {backend.name: backend for backend in backends(data)}
    for point in model.points if model else ():
        place = places[point.name]
        by_model = model.estimate(_through(point.network), "ms") if model else None
        numbers = {"overhead_ms": place.overhead_ms, "by_model": by_model}
        yield {"line": place.line, "name": point.name, "network": point.network, **numbers}


def fit(data: StudyData) -> dict[str, Message]:
    """The fitted parameters."""
    model = _model(data)
    assert model is not None
    return {
        "fixed": quoted(model.estimate(lambda it: it.fixed_ms, "ms"), " ms"),
        "trips": quoted(model.estimate(lambda it: it.trips, "1")),
        "size": quoted(model.estimate(lambda it: it.bytes_ / 1e3, "kB"), " kB"),
    }


def _model(data: StudyData) -> Fitted | None:
    try:
        return fitted(backends(data))
    except UsageError:  # no known networks, or too few
        return None


def _through(network: Network) -> Callable[[LatencyModel], float]:
    return lambda model: model.overhead_ms(network.rtt_ms, network.mbit_per_s)


def withdrawn(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Requests of the runs that the document withdrew."""
    for it in backends(data, withdrawn=True):
        for row in it.rows:
            yield {"place": it.name.partition(" (")[0], "result": row, "is_false": row.verdict == "invalid"}


_WORSE: tuple[Standing | None, ...] = (None, "valid", "suspect", "implausible", "invalid")
"""A mean is as good as the worst of what it is a mean of."""


def means(data: StudyData) -> Iterator[Mapping[str, object]]:
    """The mean over repeats of every prompt in every place."""
    for it in backends(data):
        for prompt in dict.fromkeys(row.prompt for row in it.rows) or ("",):
            rows = [row for row in it.rows if row.prompt == prompt and row.decode_rate is not None]
            yield {
                "place": it.name,
                "prompt": prompt,
                "name": Message("cross-device.mean", name=it.name, prompt=prompt, n=len(rows)),
                "rate": fmean(row.decode_rate or 0.0 for row in rows) if rows else None,
                "verdict": _WORSE[max((_WORSE.index(row.verdict) for row in rows), default=0)],
            }
