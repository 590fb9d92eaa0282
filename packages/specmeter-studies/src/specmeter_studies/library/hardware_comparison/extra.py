"""hardware-comparison: the same models on several machines, and whether memory sets their pace.

    utilisation = rate x bytes of weights that one token reads / bandwidth

is the share of the time that reading the weights at full bandwidth would take. Where it is above one half, most of the
time goes into reading; where it is below, something else takes most of it, whatever that is. If memory alone set the
pace, rates would go with bandwidths from machine to machine, and every model on one machine would move as many bytes
per second as the others.

hardware-comparison: what the document prints of its three machines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from specmeter.audit import published as tables
from specmeter.numbers.estimates import above, below, printed, quotient, scaled
from specmeter.record import Estimate
from specmeter_studies.machines import Machine, MachineLine, MachineTable, from_quality, merge
from specmeter_studies.measured import printed_rate, rulings, verdict_of
from specmeter_studies.rules import lies
from specmeter_studies.study import StudyCell, StudyData, by_counts, by_values, quoted

if TYPE_CHECKING:
    from specmeter.record import Standing
    from specmeter_studies.study import Found


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
        title="published by the document, with the audit's verdicts",
        machine=", ".join(machine.name for machine in table.machines),
        machines=table,
        notes=(
            "Rates of the M2 Ultra have intervals from the standard deviations of four runs; of the other "
            "machines the document prints rates alone.",
            "Bandwidths are peaks as the document states them.",
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


DENSE = "9B_Q8"
"""The model of the page's table."""
PRINTED = {"M2 Ultra": (64.0, 69.1), "M1 Max": (66.0, 70.9), "M2 Pro": (77.0, 82.4)}
"""Utilisation of the 9B model in percent, by the page and by the document's data."""


def machine_table(data: StudyData) -> MachineTable | None:
    """The machines of the data: those that were put together, or the one that a study was measured on."""
    if data.machines is not None:
        return data.machines
    names = [report.host.cpu or "machine" for report in data.quality]
    told = [f"{name} ({number})" if names.count(name) > 1 else name for number, name in enumerate(names, start=1)]
    sides = [from_quality(report, name) for report, name in zip(data.quality, told, strict=True)]
    return merge(sides) if sides else None


def of_machines(table: MachineTable) -> StudyData:
    """Machines that were put together, as data of this study: what claims, tables and figures are made from."""
    return StudyData(
        study="hardware-comparison",
        origin="measured",
        title=f"{table.what} on {len(table.machines)} machines",
        machine=", ".join(f"{machine.name} ({machine.device})" for machine in table.machines),
        machines=table,
        notes=table.differences,
    )


def plain(table: MachineTable | None) -> tuple[MachineLine, ...]:
    """Generation without drafts, measured and not false."""
    if table is None:
        return ()
    return tuple(line for line in table.lines if line.decodes and not line.speculates and line.rate is not None)


def documented(table: MachineTable | None) -> Iterator[tuple[str, Estimate]]:
    """The document's name of a machine -> utilisation by the model of its table."""
    for line in plain(table):
        name = document_name(table.machine(line.machine)) if table is not None else None
        if name is not None and line.subject == DENSE and line.utilisation is not None:
            yield name, line.utilisation


def document_name(machine: Machine) -> str | None:
    """The document's name for a machine; None for others."""
    name = machine.device.removeprefix("Apple ")
    return name if name in PRINTED else None


def rated(data: StudyData) -> list[Mapping[str, object]]:
    """Every line that has a rate or a verdict."""
    table = machine_table(data)
    lines = () if table is None else table.lines
    return [_rated(table, it) for it in lines if table and (it.rate is not None or it.verdict is not None)]


def generating(data: StudyData) -> list[Mapping[str, object]]:
    """Those of generation without drafts, measured and not false."""
    table = machine_table(data)
    return [_rated(table, line) for line in plain(table) if table is not None]


def _rated(table: MachineTable, line: MachineLine) -> Mapping[str, object]:
    rate = StudyCell(value=line.rate, text="invalid" if line.verdict == "invalid" else "-", digits=1)
    series = f"{line.subject}{' with drafts' if line.speculates else ''}"
    name = f"{line.subject} on {line.machine}"
    told = "" if line.utilisation is None else f"{name} ({_percent(line.utilisation)})"
    machine = table.machine(line.machine)
    return {"line": line, "machine": machine, "name": name, "series": series, "rate": rate, "told": told}


def printed_shares(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Utilisation that the document prints of its machines, and what follows from its rates; with GiB for GB too."""
    for name, share in documented(machine_table(data)):
        page, in_data = PRINTED[name]
        gib = share.point * 1e9 / 2**30
        yield {"name": name, "share": share, "page": page, "in_data": in_data, "with_gib": gib}


FAITHFUL = 0.9
"""Share of the bandwidths' ratio that a rate has to reach for going with bandwidth."""
CLAIMED_RATIO, ABOUT = 3.3, 0.05
"""As printed, and by which share a ratio that is `about` so much may differ."""


def memory_bound(data: StudyData) -> Found:
    """Whether reading the weights takes more than half of the time, everywhere."""
    return lies(
        generating(data),
        "line.utilisation",
        low=0.5,
        own_table=data,
        told="told",
        found={
            "supported": "Reading weights takes more than half of the time everywhere: {shown}.",
            "contradicted": "Reading all weights at full bandwidth takes less than half of the time in {against} of "
            "{n} cases: {shown}.",
            "cannot tell": "No interval lies below one half, and not all lie above it: {shown}.",
        },
        empty="No rate of generation with a known bandwidth: give it (--bandwidth) or measure it.",
    )


def machine_ratio(data: StudyData) -> Found:
    """The document's own pair of machines, on the model of its table."""
    table = machine_table(data)
    here = {known: machine.name for machine in (table.machines if table else ()) if (known := document_name(machine))}
    ratios: dict[str, Estimate] = {}
    if table is not None and {"M2 Ultra", "M2 Pro"} <= here.keys():
        ratios = dict(_ratios(table, here["M2 Ultra"], here["M2 Pro"]))
    if DENSE not in ratios:
        names = ", ".join(machine.device for machine in table.machines) if table is not None else ""
        if not names:
            return "cannot tell", "Nothing was measured."
        return "does not apply here", f"The claim is about two machines; measured on {names}."
    said = "; ".join(f"{subject} {quoted(ratio)}" for subject, ratio in ratios.items())
    ratio = ratios[DENSE]
    told = f"Judged by the 9B model, the only one in the page's table; the smaller ones of its data gain less: {said}."
    if ratio.low is not None and ratio.high is not None:
        least, most = CLAIMED_RATIO * (1 - ABOUT), CLAIMED_RATIO * (1 + ABOUT)
        inside = above(ratio, least) and below(ratio, most)
        outside = above(ratio, most) or below(ratio, least)
        return ("supported" if inside else "contradicted" if outside else "cannot tell"), told
    return by_values("supported" if round(ratio.point, 1) == CLAIMED_RATIO else "contradicted", told)


def scales(data: StudyData) -> Found:
    """Of the machines that lie furthest apart in bandwidth: whether rates do so as well."""
    table, printed = machine_table(data), data.origin == "published"
    known = [it for it in (table.machines if table is not None else ()) if it.bandwidth_bytes_per_s is not None]
    if table is None or len({it.bandwidth_bytes_per_s for it in known}) < 2:
        return (
            "cannot tell",
            "Machines of two bandwidths are needed: merge several with `specmeter compare --machines`.",
        )
    slow = min(known, key=lambda it: it.bandwidth_bytes_per_s or 0)
    fast = max(known, key=lambda it: it.bandwidth_bytes_per_s or 0)
    assert slow.bandwidth_bytes_per_s
    assert fast.bandwidth_bytes_per_s
    times = fast.bandwidth_bytes_per_s / slow.bandwidth_bytes_per_s
    ratios = dict(_ratios(table, fast.name, slow.name))
    if not ratios:
        return "cannot tell", f"Nothing was measured on both {fast.name} and {slow.name}."
    said = "; ".join(f"{subject} {quoted(ratio)}" for subject, ratio in ratios.items())
    head = (
        f"{fast.name} has {times:.2f} times the bandwidth of {slow.name} and generates this many times as fast: {said}"
    )
    least = FAITHFUL * times
    less = f"{head}: less than bandwidth gives, and less for smaller models, where other work takes time."
    if all(above(ratio, least) for ratio in ratios.values()):
        return "supported", f"{head}."
    if any(below(ratio, least) for ratio in ratios.values()):
        return "contradicted", less
    if printed and any(_single(ratio) < least for ratio in ratios.values()):
        return by_values("contradicted", less)
    if printed and all(above(ratio, least) or _single(ratio) >= least for ratio in ratios.values()):
        return by_values("supported", f"{head}.")
    return "cannot tell", f"{head}; the intervals do not decide."


def _single(value: Estimate) -> float:
    """A printed value that has no interval; not a number where it has one, which then decides."""
    return value.point if value.low is None else math.nan


def _ratios(table: MachineTable, fast: str, slow: str) -> Iterator[tuple[str, Estimate]]:
    for subject in dict.fromkeys(line.subject for line in plain(table)):
        rates = {line.machine: line for line in plain(table) if line.subject == subject}
        ours, theirs = rates.get(fast), rates.get(slow)
        if ours is None or theirs is None or ours.rate is None or theirs.rate is None:
            continue
        first = table.machines[0].name
        if slow == first and ours.ratio is not None:
            yield subject, ours.ratio
        else:
            yield subject, quotient(ours.rate, theirs.rate, unit="x", method="ratio of two rates")


def utilisation(data: StudyData) -> Found:
    """Whether the page's figures follow from its rates, sizes and bandwidths."""
    table = machine_table(data)
    known = list(documented(table))
    if not known:
        shares = [(line, line.utilisation) for line in plain(table) if line.utilisation is not None]
        told = "The claim is about three machines that are not here."
        return ("does not apply here", f"{told} Here: {_named(shares)}.") if shares else ("cannot tell", told)
    said = ", ".join(f"{_percent(share)} on {name}" for name, share in known)
    if not all(_printed_right(name, share) for name, share in known):
        return by_counts(
            "contradicted",
            f"Rate times the file's bytes over bandwidth is {said}. The page's figures are those with GiB "
            "instead of GB; the document's own data has others again (69.1, 70.9, 82.4 %).",
        )
    return by_counts("supported", f"{said}.")


def _printed_right(machine: str, share: Estimate) -> bool:
    """Whether the page's figure is what follows, to the last digit that it prints."""
    return abs(100 * share.point - PRINTED[machine][0]) <= 0.5  # printed in whole percent


def _percent(share: Estimate) -> str:
    return quoted(scaled(share, 100, "%"), 1, " %").replace(" (no interval)", "")


def _named(shares: Sequence[tuple[MachineLine, Estimate]]) -> str:
    return ", ".join(f"{line.subject} on {line.machine} ({_percent(share)})" for line, share in shares[:12])
