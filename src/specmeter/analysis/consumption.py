"""What tokens cost in electric energy: joules per token of an arm, and over its baseline's.

Of every answered request whose energy was read, J is the energy of the whole request, its prompt included, and n the
tokens generated. An arm's energy per token is (sum of J) / (sum of n), with the interval of a ratio over blocks. Its
ratio to the baseline is taken as a speedup is: per block over the prompts that both have there, geometric mean over
blocks, Student's t. With S the speedup prompts included, ratio x S is how much more *power* the arm draws.

Above idle, the power that the machine drew at rest, before anything was started, is taken off for the duration of each
request. Without the prompt, what a request had taken when its first token came is left out, and that token too.

Nothing is said if readings cover less than 90 % of the time (short requests, slow sensors), or if the sources changed
within the arm or against its baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from specmeter.analysis.requests import Key, RequestTable, common, distinct
from specmeter.messages import Message
from specmeter.numbers.stats import Pair, Pool, geometric_speedup, pooled_ratio, speedup_over_invocations
from specmeter.record import Estimate, PowerMeter, Record, RequestEnergy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.numbers.stats import Floats, Ints
    from specmeter.store import RunReader

    Bools = NDArray[np.bool_]


MAX_UNSEEN = 0.1
"""Share of an arm's time that may be without readings."""


class Consumption(Record):
    """What an arm's tokens cost in energy; estimates are None where that cannot be told, and `why` says so."""

    sources: tuple[str, ...]
    """What was read, see `PowerMeter`."""
    requests: int
    """Requests whose energy was read."""
    requests_ok: int
    """Answered requests in all."""
    unseen: float
    """Share of their time without readings."""
    why: Message | None = None
    """Why nothing is said, or no ratio; None where all is."""
    per_token: Estimate | None = None
    """Joules per generated token, prompts included."""
    ratio: Estimate | None = None
    """The same over the baseline's; below 1 saves energy. None for baselines."""
    power_w: float | None = None
    """Mean power while its requests ran."""
    idle_w: float | None = None
    """At rest; None where that is not known."""
    above_idle: Estimate | None = None
    """Joules per token beyond those that the machine takes at rest."""
    ratio_above_idle: Estimate | None = None
    decoding: Estimate | None = None
    """Joules per token without what was taken until the first one had come."""
    ratio_decoding: Estimate | None = None


class Energies:
    """Energy of a run's requests, as summaries need it."""

    def __init__(self, requests: Sequence[RequestEnergy], meters: Sequence[PowerMeter]) -> None:
        self.by_key: Mapping[Key, RequestEnergy] = {
            (it.invocation, it.block, it.arm_id, it.prompt_id): it for it in requests
        }
        self.idle_w: dict[tuple[str, ...], float] = {}
        """Sources -> power at rest by them, the lowest of all starts: whatever disturbed a rest only adds to it."""
        for meter in meters:
            if meter.idle_w is not None:
                self.idle_w[meter.sources] = min(meter.idle_w, self.idle_w.get(meter.sources, meter.idle_w))
        self._sources: dict[str, set[tuple[str, ...]]] = {}
        for it in requests:
            self._sources.setdefault(it.arm_id, set()).add(tuple(it.joules))

    def sources(self, *arm_ids: str) -> set[tuple[str, ...]]:
        """The different sets of sources that these arms were read with."""
        return {sources for arm_id in arm_ids for sources in self._sources.get(arm_id, ())}


def energies_of(run: RunReader) -> Energies | None:
    """Energy of a run's requests; None where none was read. Raises `StoreError`."""
    requests = tuple(run.energies())
    meters = [host.power_meter for host in run.hosts() if host.power_meter is not None]
    return Energies(requests, meters) if requests else None


def consumption(
    table: RequestTable, energies: Energies, arm: tuple[str, Ints], baseline: tuple[str, Ints] | None, level: float
) -> Consumption | None:
    """What the rows of an arm (id, rows) took; None where no energy was read."""
    (arm_id, rows), several = arm, len(table.invocations) > 1
    metered = rows[table.metered[rows]]
    if not len(metered):
        return None
    sources = next(iter(energies.sources(arm_id)))
    idle_w = energies.idle_w.get(sources)
    found = Consumption(
        sources=sources,
        requests=len(metered),
        requests_ok=int(table.ok[rows].sum()),
        unseen=_unseen(table, metered),
        idle_w=idle_w,
    )
    if (why := _doubt(table, energies, arm_id, metered)) is not None:
        return found.model_copy(update={"why": why})
    unit, of = (table.invocation, "invocations") if several else (table.cell, "blocks")
    tokens = table.tokens + 1  # the first one takes energy too
    above = None if idle_w is None else table.joules - idle_w * table.seconds
    timed = metered[np.isfinite(table.prompt_j[metered])]
    after = table.joules - table.prompt_j

    def per_token(joules: Floats, rows: Ints = metered, tokens: Ints = tokens) -> Estimate | None:
        parts = table.parts(rows, unit, joules, tokens)
        if any(part < 0 for part, _ in parts) or not any(part > 0 for part, _ in parts):
            return None
        return pooled_ratio(parts, unit="J/token", of=of, level=level)

    changes: dict[str, object] = {
        "per_token": per_token(table.joules),
        "power_w": float(table.joules[metered].sum() / table.seconds[metered].sum()),
        "above_idle": None if above is None else per_token(above),
        "decoding": per_token(after, timed, table.tokens),
    }
    if baseline is not None:
        base_id, base = baseline[0], baseline[1][table.metered[baseline[1]]]
        why = _doubt(table, energies, base_id, base) if len(base) else Message("consumption.baseline_unread")
        if why is None and len(energies.sources(arm_id, base_id)) > 1:
            why = Message("consumption.other_sources")
        if why is not None:
            changes["why"] = Message("consumption.no_ratio", why=why)
        else:
            changes["ratio"] = _ratio(table, metered, base, table.joules, tokens, several, level)
            changes["ratio_above_idle"] = (
                None if above is None else _ratio(table, metered, base, above, tokens, several, level)
            )
            same = base[np.isfinite(table.prompt_j[base])]
            changes["ratio_decoding"] = _ratio(table, timed, same, after, table.tokens, several, level)
    return found.model_copy(update=changes)


def _doubt(table: RequestTable, energies: Energies, arm_id: str, rows: Ints) -> Message | None:
    """Why the joules of an arm are not known; None where they are."""
    if len(energies.sources(arm_id)) > 1:
        return Message("consumption.sources_changed")
    if (unseen := _unseen(table, rows)) > MAX_UNSEEN:
        return Message("consumption.between_readings", unseen=unseen)
    return None if table.joules[rows].sum() > 0 else Message("consumption.stood_still")


def _unseen(table: RequestTable, rows: Ints) -> float:
    return float(table.unseen_s[rows].sum() / table.seconds[rows].sum())


def _ratio(
    table: RequestTable, rows: Ints, base: Ints, joules: Floats, tokens: Ints, several: bool, level: float
) -> Estimate | None:
    """Energy per token over the baseline's, on the prompts that both have in a block."""
    shared = common(table.key[rows], table.key[base])
    pairs: dict[int, list[Pair]] = {}
    cells: list[int] = distinct(table.cell[rows]).tolist()
    for cell in cells:
        sides: list[Pool] = []
        for side in (rows, base):
            here = side[(table.cell[side] == cell) & np.isin(table.key[side], shared)]
            # A pool's rate is tokens / ms; with joules and tokens in their places it is joules per token.
            sides.append(Pool(float(joules[here].sum()), float(tokens[here].sum())))
        if not all(side.ms > 0 for side in sides):
            continue  # one of them has nothing in this block
        if not all(side.tokens > 0 for side in sides):
            return None  # below idle power: what it was at rest is not known well enough
        pairs.setdefault(table.cells[cell][0], []).append((sides[0], sides[1]))
    if not pairs:
        return None
    if several:
        return speedup_over_invocations(list(pairs.values()), level=level).estimate
    return geometric_speedup(next(iter(pairs.values())), level=level)
