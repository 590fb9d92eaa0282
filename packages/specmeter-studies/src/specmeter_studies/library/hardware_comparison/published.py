"""hardware-comparison: what the document prints of its three machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from specmeter.audit import published as tables
from specmeter.messages import Message
from specmeter.numbers.estimates import printed, quotient, scaled
from specmeter.record import Estimate
from specmeter_studies.from_claims import printed_rate, rulings, verdict_of
from specmeter_studies.machines import Machine, MachineLine, MachineTable
from specmeter_studies.study import StudyData

if TYPE_CHECKING:
    from specmeter.record import Standing


_BANDWIDTH = {"M2 Ultra": 800e9, "M1 Max": 400e9, "M2 Pro": 200e9}
"""As the document states them."""

Rated = tuple[Estimate, float | None, "Standing | None"]
"""Rate, bytes per token, verdict."""


def published() -> StudyData:
    """Ten rows of llama-bench: three models on three machines, and the mixture on the largest one."""
    table = _table()
    return StudyData(
        study="hardware-comparison",
        origin="published",
        title=Message("apple.published"),
        machine=", ".join(machine.name for machine in table.machines),
        machines=table,
        notes=(
            Message("hardware-comparison.intervals"),
            Message("hardware-comparison.bandwidths"),
        ),
    )


def _table() -> MachineTable:
    machines = tuple(
        Machine(
            name=name,
            device=f"Apple {name}",
            hostname_sha256="",
            bandwidth_bytes_per_s=bandwidth,
            bandwidth_source="given",
        )
        for name, bandwidth in _BANDWIDTH.items()
    )
    rates = dict(_rates())
    keys = dict.fromkeys(key[:2] for key in rates)
    lines = [
        _line(subject, test, machine, rates)
        for subject, test in keys
        for machine in machines
        if (subject, test, machine.name) in rates
    ]
    return MachineTable(what="llama-bench, as published", machines=machines, lines=tuple(lines))


def _rates() -> Iterator[tuple[tuple[str, str, str], Rated]]:
    """(model, test, machine) -> what is printed."""
    spread = {
        claim.target: printed_rate(claim) for claim in tables.table("apple/bench.csv") if claim.decode_rate is not None
    }
    for ruled in rulings("apple", "apple/multimodel.csv"):
        claim = ruled.claim
        subject, machine = claim.target or "", claim.device or ""
        rate = spread.get(subject) if machine == "M2 Ultra" else None
        rate = rate if rate is not None else printed_rate(claim)
        verdict, _ = verdict_of(ruled)
        if rate is not None:
            yield (subject, "tg128", machine), (rate, claim.bytes_per_token or claim.size_bytes, verdict)
        if claim.prompt_rate is not None:
            yield (subject, "pp512", machine), (printed(claim.prompt_rate, "tok/s"), None, verdict)


def _line(subject: str, test: str, machine: Machine, rates: dict[tuple[str, str, str], Rated]) -> MachineLine:
    rate, size, verdict = rates[subject, test, machine.name]
    largest = next(iter(_BANDWIDTH))
    first = rates.get((subject, test, largest)) if machine.name != largest else None
    moved = None if size is None else scaled(rate, size, "B/s")
    peak = machine.bandwidth_bytes_per_s
    return MachineLine(
        machine=machine.name,
        subject=subject,
        test=test,
        decodes=test == "tg128",
        rate=rate,
        ratio=None if first is None else quotient(rate, first[0], unit="x", method="ratio of two rates"),
        bytes_per_token=size,
        moved_bytes_per_s=moved,
        utilisation=scaled(moved, 1 / peak, "1") if moved is not None and peak else None,
        verdict=verdict,
    )
