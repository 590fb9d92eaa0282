"""The latency model of `specmeter_studies.latency`, fitted to drafts that were measured through several networks.

Each block is fitted on its own, and intervals are Student's over blocks: of the parameters, and of whatever follows
from them, so that parameters which vary together do so in predictions too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specmeter.errors import UsageError
from specmeter.numbers.estimates import student_mean
from specmeter.record import Estimate, Network, Record, network_of
from specmeter_studies.latency import DraftStep, LatencyModel, fit_latency, least_model, output_bytes
from specmeter_studies.library.cross_device.costs import Backend

if TYPE_CHECKING:
    from specmeter_studies.study import ArmResult


_MIN_NETWORKS = 2
"""Networks that a fit needs where bytes are known; one more where they are not."""


@dataclass(frozen=True)
class Through:
    """Drafts through one network."""

    name: str
    network: Network
    overhead_ms: tuple[float, ...]
    """Block by block, the same ones through every network: what a drafted token takes longer than here."""


@dataclass(frozen=True)
class Fitted:
    """The model of each block, and what it was fitted to."""

    models: tuple[LatencyModel, ...]
    points: tuple[Through, ...]
    counted_bytes: float | None
    """Per drafted token, both directions, by the kernel's count; None where it was not counted."""
    fitted_bytes: bool
    """Whether the bytes were fitted: they are those that drafting waits for, not all that cross."""
    vocabulary: int | None
    forwards: float | None
    """Of the draft, with an output, per drafted token."""

    def estimate(self, of: Callable[[LatencyModel], float], unit: str) -> Estimate:
        """Something that follows from the model, with its interval."""
        values = [of(model) for model in self.models]
        method = f"fits of {len(values)} blocks; Student's t over blocks"
        return student_mean(values, unit, method, alone="fit of one block, or of blocks all alike; no interval")

    def for_vocabulary(self, vocabulary: int) -> Fitted:
        """The same with outputs of another vocabulary. Raises `UsageError` where the measured one is not known."""
        if self.vocabulary is None or self.forwards is None:
            raise UsageError(
                "--vocabulary: the vocabulary size of the run's draft model is unknown",
                fix="leave --vocabulary out, or use a run whose log contains the size",
            )
        more = self.forwards * (output_bytes(vocabulary) - output_bytes(self.vocabulary))
        models = tuple(LatencyModel(it.fixed_ms, it.trips, it.bytes_ + more) for it in self.models)
        counted = None if self.counted_bytes is None else self.counted_bytes + more
        return Fitted(models, self.points, counted, self.fitted_bytes, vocabulary, self.forwards)

    def covers(self, network: Network) -> bool:
        """Whether a network lies among the measured ones; beyond them the model is extrapolated."""
        if not self.points:
            return True
        rtts = [point.network.rtt_ms for point in self.points]
        rates = [point.network.mbit_per_s or float("inf") for point in self.points]
        rate = network.mbit_per_s or float("inf")
        return min(rtts) <= network.rtt_ms <= max(rtts) and min(rates) <= rate <= max(rates)


def at_least(drafted: int, vocabulary: int) -> Fitted:
    """What holds without any measurement: no overhead is smaller."""
    model = least_model(drafted, vocabulary)
    return Fitted((model,), (), None, False, vocabulary, model.trips)


class Forecast(Record):
    """What is to be expected of drafts through one network."""

    rtt_ms: float
    mbit_per_s: float | None
    overhead_ms: Estimate
    """What a drafted token takes longer than the draft itself computes."""
    speedup: Estimate | None
    """Over decoding without speculation; None where a step is not known."""
    over_here: Estimate | None
    """Decode rate over that with the same draft on this machine."""
    extrapolated: bool
    """The network lies outside of those that were measured."""


def forecast(model: Fitted, network: Network, step: DraftStep | None) -> Forecast:
    """Overhead and speedup through `network`."""

    def of(part: Callable[[float], float]) -> Callable[[LatencyModel], float]:
        return lambda it: part(it.overhead_ms(network.rtt_ms, network.mbit_per_s))

    here = None if step is None else step.speedup_here
    return Forecast(
        rtt_ms=network.rtt_ms,
        mbit_per_s=network.mbit_per_s,
        overhead_ms=model.estimate(of(lambda ms: ms), "ms"),
        speedup=None if step is None else model.estimate(of(step.speedup), "x"),
        over_here=None if step is None or here is None else model.estimate(of(lambda ms: step.speedup(ms) / here), "x"),
        extrapolated=not model.covers(network),
    )


def break_even(model: Fitted, overhead_ms: float, mbit_per_s: float | None) -> Estimate | None:
    """The round-trip time in ms up to which a drafted token has at most this overhead; None: at any it has more."""
    if any(it.trips <= 0 for it in model.models):
        return None
    found = model.estimate(lambda it: (overhead_ms - it.overhead_ms(0.0, mbit_per_s)) / it.trips, "ms")
    return found if found.point >= 0 else None


def fitted(found: Sequence[Backend], networks: Mapping[str, Network] | None = None) -> Fitted:
    """The model from a run's drafts here and elsewhere. `networks` says what lies between, by the arm's name, where no
    relay does.

    Raises `UsageError` where there is no local draft beside them, or too few networks.
    """
    points = list(_through(found, networks or {}))
    if not points:
        raise UsageError(
            "the run needs the same draft model twice: on this machine, and on another one over a known network",
            fix="measure one: `specmeter study run cross-device --variant bench --variant relay`; for your own "
            "machines, describe the network: --network ARM=relay:0.4ms@1000Mbit",
        )
    proven = [backend for backend in found if backend.remote and backend.place.drafted]
    crossed = [sum(both) for backend in proven if (both := backend.bytes_per_token) is not None]
    counted = sum(crossed) / len(crossed) if crossed else None
    vocabulary = next((it.place.vocabulary for it in proven if it.place.vocabulary), None)
    drafted = sum(it.place.drafted for it in proven)
    forwards = sum(it.place.forwards for it in proven) / drafted if drafted else None
    rates = {point.network.mbit_per_s for point in points}
    free = len(rates) > 1 and len(points) > _MIN_NETWORKS
    known = counted
    if known is None and vocabulary is not None and forwards is not None:
        known = forwards * output_bytes(vocabulary)
    models = tuple(
        fit_latency(
            [point.network.rtt_ms for point in points],
            [point.network.mbit_per_s for point in points],
            [point.overhead_ms[block] for point in points],
            bytes_=None if free else known or 0.0,
        )
        for block in range(len(points[0].overhead_ms))
    )
    return Fitted(models, tuple(points), counted, free, vocabulary, forwards)


def step_of(local: Backend, plain: ArmResult | None) -> DraftStep | None:
    """What a step of the local draft takes and emits; None where rates, tau or acceptance are not known."""
    line, draft = local.line, local.draft_ms
    if plain is None or plain.decode_rate is None or line.decode_rate is None or draft is None:
        return None
    if line.tau is None or line.acceptance is None or line.acceptance.point <= 0:
        return None
    plain_ms, tau = 1000 / plain.decode_rate.point, line.tau.point
    drafted = (tau - 1) / line.acceptance.point
    if drafted <= 0:
        return None
    whole = tau * 1000 / line.decode_rate.point
    return DraftStep(
        plain_ms=plain_ms,
        tau=tau,
        drafted=drafted,
        rest=(whole - drafted * draft.point) / plain_ms,
        here_ms=draft.point,
        there_ms=draft.point,
    )


def _through(found: Sequence[Backend], networks: Mapping[str, Network]) -> Iterator[Through]:
    """Drafts through known networks, in the blocks in which all of them and the local one drafted."""
    usable = [
        (backend, network, backend.beyond_local)
        for backend in found
        if backend.remote and backend.believable and backend.beyond_local
        if (network := networks.get(backend.name) or network_of(backend.place.machine)) is not None
    ]
    for backend, network, ms in usable:
        shared = tuple(ms[block] for block in sorted(ms) if all(block in other for _, _, other in usable))
        if shared:
            yield Through(backend.name, network, shared)
