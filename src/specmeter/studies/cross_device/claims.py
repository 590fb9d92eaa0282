"""What data says about the document's claims on drafts by RPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specmeter.numbers.estimates import above, below
from specmeter.studies.cross_device.costs import Backend, backends, shared_acceptance
from specmeter.studies.telling import by_counts, by_values, fallen, only_of, quoted, ruling, share

if TYPE_CHECKING:
    from specmeter.record import Estimate
    from specmeter.studies.study import ClaimRuling, StudyData
    from specmeter.studies.telling import Found

REDUCTION = (0.79, 0.83)
"""Of throughput, as claimed."""
OVERHEAD_MS = (51.0, 57.0)
"""Per drafted token, as claimed."""
_SMALL, _LARGE = 0.1, 0.5
"""Share of the overhead that bytes take at most to be no cause of it, and at least to be its main one."""
_PER_OPERATION = 10
"""A forward has at least so many operations: fewer answers than that are no call for each."""
_WIDE = 10
"""An interval that reaches so many times the point says nothing."""
_NAMED = "drafts of 0.8B on an M1 Max and an M2 Pro, over 1 Gbit/s"
_PAGE = "project page, finding 6 and table of cross-device speculation"


def claims(data: StudyData) -> tuple[ClaimRuling, ...]:
    """What the data says about each claim."""
    found = backends(data)
    remote = [backend for backend in found if backend.remote]
    withdrawn = [backend for backend in backends(data, withdrawn=True) if backend.remote]
    return (
        ruling(
            "reduction",
            "A draft by RPC costs 79 to 83 % of the throughput with a local draft.",
            _PAGE,
            only_of(data, _NAMED, _cost(remote)),
        ),
        ruling(
            "overhead-per-token",
            "Each token drafted by RPC takes 51 to 57 ms more than on the remote machine by itself.",
            f"{_PAGE}; data, `rpc_overhead_per_token_ms`",
            only_of(data, _NAMED, _overhead(remote)),
        ),
        ruling(
            "per-operation-calls",
            "The overhead comes from a call of the protocol for each operation of the draft.",
            f"{_PAGE}; data, `rpc_overhead_root_cause`",
            _calls(remote),
        ),
        ruling("not-bandwidth", "The overhead is not the network's bandwidth.", _PAGE, _bandwidth(data, remote)),
        ruling(
            "first-runs-local",
            "The first results (-2 %) are invalid: their drafts ran on the local machine, silently.",
            _PAGE,
            _first_runs(data, withdrawn),
        ),
        ruling(
            "acceptance-tells",
            "Acceptance identical to that of the local draft confirms that a draft ran locally.",
            f"{_PAGE}; data, `investigation_notes`",
            _acceptance(remote),
        ),
        ruling(
            "not-viable",
            "Drafting on another machine by RPC is not viable.",
            "data, `key_findings.conclusion`",
            _viable(remote),
        ),
    )


def _cost(remote: Sequence[Backend]) -> Found:
    known = [backend for backend in remote if backend.believable and backend.to_local is not None]
    if not known:
        return "cannot tell", _nothing(remote)
    shown = "; ".join(f"{backend.name} {_reduction(backend.to_local)}" for backend in known)
    outside = [backend for backend in known if _beyond(backend.to_local, 1 - REDUCTION[1], 1 - REDUCTION[0])]
    inside = [backend for backend in known if _within(backend.to_local, 1 - REDUCTION[1], 1 - REDUCTION[0])]
    if outside:
        return (
            "contradicted",
            f"{shown}: what RPC costs is a matter of network, models and machines, not of RPC as such.",
        )
    return ("supported" if len(inside) == len(known) else "cannot tell"), f"{shown}."


def _overhead(remote: Sequence[Backend]) -> Found:
    known = [backend for backend in remote if backend.overhead_ms is not None and backend.line.stands]
    if not known:
        return _printed_overhead(remote)
    shown = "; ".join(f"{backend.name} {quoted(backend.overhead_ms, 2, ' ms')}" for backend in known)
    if any(_beyond(backend.overhead_ms, *OVERHEAD_MS) for backend in known):
        return "contradicted", f"A drafted token takes longer there by: {shown}; network and machines decide."
    inside = all(_within(backend.overhead_ms, *OVERHEAD_MS) for backend in known)
    return ("supported" if inside else "cannot tell"), f"A drafted token takes longer there by: {shown}."


def _printed_overhead(remote: Sequence[Backend]) -> Found:
    """Of invalid rows nothing is believed, but printed numbers can refute each other."""
    printed = [backend for backend in remote if backend.overhead_ms is not None]
    if not printed:
        return "cannot tell", _nothing(remote)
    rates = "; ".join(
        f"{backend.name}: {backend.place.block_ms[0]:.1f} ms - {1000 / (backend.place.alone_rate or 1):.1f} ms = "
        f"{quoted(backend.overhead_ms, 1, ' ms')}"
        for backend in printed
        if backend.place.alone_rate
    )
    against = [
        f"{backend.name} on {row.prompt}: {row.why.removeprefix('draft-time-bound: ')}"
        for backend in printed
        for row in backend.rows
        if row.why.startswith("draft-time-bound")
    ]
    if against:
        return by_values(
            "contradicted",
            f"By its own rates it is {rates}; and at those rates drafting alone takes longer than runs did: "
            f"{'; '.join(against)}.",
        )
    return "cannot tell", f"By its own rates it is {rates}; no run of it can be believed."


def _calls(remote: Sequence[Backend]) -> Found:
    known = [backend for backend in remote if backend.proven and backend.other_answers is not None]
    if not known:
        return (
            "cannot tell",
            "Nothing here counts calls. llama.cpp's protocol has one command for a whole graph, and one answer for its "
            "output.",
        )
    shown = "; ".join(
        f"{backend.name}: {backend.place.forwards} forwards brought {backend.place.received_bytes:,.0f} bytes back, "
        f"each one output of {backend.place.vocabulary} numbers, which leaves at most {backend.other_answers or 0:.1f} "
        "other answers per drafted token"
        for backend in known
    )
    most = max(backend.other_answers or 0.0 for backend in known)
    if most < _PER_OPERATION:
        return by_counts(
            "contradicted", f"{shown}. A forward is one command with one answer, not one for each operation."
        )
    return "cannot tell", f"{shown}."


def _bandwidth(data: StudyData, remote: Sequence[Backend]) -> Found:
    known = [
        backend
        for backend in remote
        if backend.proven and backend.transfer_ms is not None and backend.overhead_ms is not None
    ]
    if not known:
        return "cannot tell", _least_transfer(data)
    shares = [(backend, (backend.transfer_ms or 0.0), backend.overhead_ms) for backend in known]
    shown = "; ".join(
        f"{backend.name}: {sum(backend.bytes_per_token or (0, 0)) / 1e3:,.1f} kB per drafted token, which take at "
        f"least {transfer:.2f} ms at 1 Gbit/s, of an overhead of {quoted(overhead, 2, ' ms')}"
        for backend, transfer, overhead in shares
    )
    if any(it is not None and it.high is not None and transfer >= _LARGE * it.high for _, transfer, it in shares):
        return "contradicted", f"{shown}: on the document's network bytes alone would be most of it."
    small = all(it is not None and it.low is not None and transfer <= _SMALL * it.low for _, transfer, it in shares)
    return ("supported" if small else "cannot tell"), f"{shown}."


def _least_transfer(data: StudyData) -> str:
    vocabulary = next((place.vocabulary for place in data.places if place.machine and place.vocabulary), None)
    if vocabulary is None:
        return "Nobody counted bytes here."
    size = 4 * vocabulary
    least = 1000 * size / (1e9 / 8)
    return (
        f"No bytes were published. Each forward of the draft sends its output back, {vocabulary:,} numbers or "
        f"{size / 1e6:.2f} MB, which takes at least {least:.1f} ms at 1 Gbit/s: {least / OVERHEAD_MS[0]:.0%} of 51 ms, "
        "before any graph is sent."
    )


def _first_runs(data: StudyData, withdrawn: Sequence[Backend]) -> Found:
    """By what logs say of the runs; their rates beside the local draft's decide nothing."""
    if not withdrawn:
        told = "These runs are the document's own; none of them is in this data."
        return ("cannot tell" if data.origin == "published" else "does not apply here"), told
    rates = "; ".join(f"{backend.name.partition(' (')[0]} {_change(backend.to_local)}" for backend in withdrawn)
    logged = [backend for backend in withdrawn if backend.place.held_by]
    went = [backend for backend in logged if any(it.startswith("RPC") for it in backend.place.held_by)]
    told = "; ".join(f"{it.name.partition(' (')[0]}: {', '.join(it.place.held_by)}" for it in went or logged)
    if went:
        return by_counts(
            "contradicted", f"Drafts lay on the other machine ({told}). Rates beside the local draft: {rates}."
        )
    if logged:
        logs = sum(len(it.place.held_by) for it in logged)
        runs = sum(row.decode_rate is not None for it in withdrawn for row in it.rows)
        if logs >= runs:
            return by_counts("supported", f"Logs of all say so ({told}). Rates beside the local draft: {rates}.")
        return (
            "cannot tell",
            f"Logs say so of {logs} of {runs} runs ({told}); of the others there is none, and rates beside the local "
            f"draft's decide nothing: {rates}.",
        )
    return "cannot tell", f"No log of them says where the draft lay. Rates beside the local draft: {rates}."


def _acceptance(remote: Sequence[Backend]) -> Found:
    proven = [(backend, both) for backend in remote if backend.proven and (both := backend.same_acceptance())]
    same = [(backend, both) for backend, both in proven if both[1] and both[0] == both[1]]
    if same:
        shown = "; ".join(f"{backend.name}: {both[0]} of {both[1]} requests" for backend, both in same)
        return by_counts(
            "contradicted",
            f"These drafts ran on the other machine, by buffers and bytes, with the local draft's acceptance to the "
            f"token: {shown}. Greedy drafts are the same wherever they are made.",
        )
    if proven:
        other = sum(both[1] - both[0] for _, both in proven)
        compared = sum(both[1] for _, both in proven)
        if compared and other == compared:
            return by_counts(
                "supported",
                f"All of {compared} requests drafted there have another acceptance than those drafted here.",
            )
        return (
            "cannot tell",
            f"{other} of {compared} requests drafted there have another acceptance than those drafted here.",
        )
    if len(remote) > 1 and not any(backend.place.held_by for backend in remote):
        first, second = remote[:2]
        equal, compared = shared_acceptance(first.rows, second.rows)
        if compared and equal == compared:
            return (
                "cannot tell",
                f"In the document's second runs {first.name} and {second.name}, two machines, have identical "
                f"acceptance on {equal} of {compared} prompts, as greedy drafts have wherever they are made. But it "
                f"is not the local draft's ({share(first.line.acceptance)} and {share(_local(first))}), so no run is "
                "here that was surely remote and has the local acceptance.",
            )
    return "cannot tell", _nothing(remote)


def _viable(remote: Sequence[Backend]) -> Found:
    known = [backend for backend in remote if backend.line.speedup is not None and backend.line.stands]
    if not known:
        return "cannot tell", _nothing(remote)
    shown = "; ".join(f"{backend.name} {quoted(backend.line.speedup)}" for backend in known)
    if any(above(backend.line.speedup, 1.0) for backend in known):
        return "contradicted", f"Beside plain decoding: {shown}."
    slower = all(below(backend.line.speedup, 1.0) for backend in known)
    return ("supported" if slower else "cannot tell"), f"Beside plain decoding: {shown}."


def _nothing(remote: Sequence[Backend]) -> str:
    if not remote:
        return "No draft was made on another machine here."
    bad = [backend for backend in remote if not backend.line.stands]
    if bad:
        return f"{fallen([it.line for it in bad], len(remote))} {bad[0].name}: {bad[0].line.why}."
    local = remote[0].local
    if local is not None and not local.line.stands:
        return f"The local draft that they are compared with does not stand: {local.line.why}."
    return f"{len(remote)} arms with a remote draft have no number for it."


def _local(backend: Backend) -> Estimate | None:
    return backend.local.line.acceptance if backend.local is not None else None


def _reduction(ratio: Estimate | None) -> str:
    if ratio is None:
        return "unknown"
    if ratio.low is None or ratio.high is None:
        return f"{1 - ratio.point:.1%} less (no interval)"
    if ratio.high > _WIDE * ratio.point:
        return f"{1 - ratio.point:.1%} less (too uncertain for an interval: blocks differ by more than themselves)"
    return f"{1 - ratio.point:.1%} [{1 - ratio.high:.1%}, {1 - ratio.low:.1%}] less"


def _change(ratio: Estimate | None) -> str:
    return "unknown" if ratio is None else f"{ratio.point - 1:+.1%}"


def _beyond(estimate: Estimate | None, low: float, high: float) -> bool:
    """Whether the whole interval lies outside of [low, high]."""
    return below(estimate, low) or above(estimate, high)


def _within(estimate: Estimate | None, low: float, high: float) -> bool:
    if estimate is None or estimate.low is None or estimate.high is None:
        return False
    return low <= estimate.low and estimate.high <= high
