"""hardware-comparison: whether memory sets the pace, as the document claims, ruled from data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from specmeter.numbers.estimates import above, below, quotient, scaled
from specmeter.studies.hardware.table import DENSE, PRINTED, document_name, documented, machine_table, plain
from specmeter.studies.telling import by_counts, by_values, quoted, ruling

if TYPE_CHECKING:
    from specmeter.analysis.machines import MachineLine, MachineTable
    from specmeter.record import Estimate
    from specmeter.studies.study import ClaimRuling, Finding, StudyData
    from specmeter.studies.telling import Found

HALF = 0.5
"""Utilisation above which reading takes most of the time."""
FAITHFUL = 0.9
"""Share of the bandwidths' ratio that a rate has to reach for going with bandwidth."""
CLAIMED_RATIO, ABOUT = 3.3, 0.05
"""As printed, and by which share a ratio that is `about` so much may differ."""


def claims(data: StudyData) -> tuple[ClaimRuling, ...]:
    """What the data says about each claim."""
    table = machine_table(data)
    printed = data.origin == "published"
    where = "project page, finding 1 and table of machines"
    return (
        ruling(
            "memory-bound",
            "Token generation is bound by memory, not by arithmetic.",
            where,
            _memory_bound(table, printed=printed),
        ),
        ruling(
            "machine-ratio",
            "The M2 Ultra (800 GB/s) generates about 3.3 times as fast as the M2 Pro (200 GB/s) on the same model.",
            where,
            _machine_ratio(table),
        ),
        ruling(
            "scales-with-bandwidth",
            "That is what memory bandwidth gives: from machine to machine, rates go with it.",
            where,
            _scales(table, printed=printed),
        ),
        ruling(
            "utilisation",
            "The 9B model uses 64 % of the M2 Ultra's bandwidth, 66 % of the M1 Max's, 77 % of the M2 Pro's.",
            "table of machines; data: 69.1, 70.9, 82.4 %",
            _utilisation(table),
        ),
    )


def _memory_bound(table: MachineTable | None, *, printed: bool) -> Found:
    known = [(line, line.utilisation) for line in plain(table) if line.utilisation is not None]
    if not known:
        return "cannot tell", "No rate of generation with a known bandwidth: give it (--bandwidth) or measure it."
    over = [(line, share) for line, share in known if above(share, HALF) or (printed and _single(share) > HALF)]
    under = [(line, share) for line, share in known if below(share, HALF) or (printed and _single(share) < HALF)]
    single = [(line, share) for line, share in known if share.low is None]
    rest = f" Without an interval, and not counted: {_named(single)}." if single and not printed else ""
    rule = by_values if single and printed else _by_intervals
    if known and len(over) == len(known):
        return rule("supported", f"Reading weights takes more than half of the time everywhere: {_named(over)}.")
    if under:
        true = f" It does for {_named(over)}." if over else ""
        return rule(
            "contradicted",
            f"Reading all weights at full bandwidth takes less than half of the time of {_named(under)}.{true}{rest}",
        )
    return "cannot tell", f"No interval lies below one half, and not all lie above it: {_named(known)}."


def _machine_ratio(table: MachineTable | None) -> Found:
    """The document's own pair of machines, on the model of its table."""
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
    told = f"Held against the 9B model, the only one in the page's table; smaller ones of its data gain less: {said}."
    if ratio.low is not None and ratio.high is not None:
        least, most = CLAIMED_RATIO * (1 - ABOUT), CLAIMED_RATIO * (1 + ABOUT)
        inside = above(ratio, least) and below(ratio, most)
        outside = above(ratio, most) or below(ratio, least)
        return ("supported" if inside else "contradicted" if outside else "cannot tell"), told
    return by_values("supported" if round(ratio.point, 1) == CLAIMED_RATIO else "contradicted", told)


def _scales(table: MachineTable | None, *, printed: bool) -> Found:
    """Of the machines that lie furthest apart in bandwidth: whether rates do so as well."""
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
    head = f"{fast.name} has {times:.2f} times the bandwidth of {slow.name} and generates so many times as fast: {said}"
    least = FAITHFUL * times
    less = f"{head}: less than bandwidth gives, and the less the smaller the model, where something else takes time."
    if all(above(ratio, least) for ratio in ratios.values()):
        return "supported", f"{head}."
    if any(below(ratio, least) for ratio in ratios.values()):
        return "contradicted", less
    if printed and any(_single(ratio) < least for ratio in ratios.values()):
        return by_values("contradicted", less)
    if printed and all(above(ratio, least) or _single(ratio) >= least for ratio in ratios.values()):
        return by_values("supported", f"{head}.")
    return "cannot tell", f"{head}; intervals do not decide."


def _by_intervals(ruling: Finding, told: str) -> Found:
    return ruling, told


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


def _utilisation(table: MachineTable | None) -> Found:
    known = list(documented(table))
    if not known:
        shares = [(line, line.utilisation) for line in plain(table) if line.utilisation is not None]
        told = "The claim is about three machines, none of which is here."
        return ("does not apply here", f"{told} Here: {_named(shares)}.") if shares else ("cannot tell", told)
    said = ", ".join(f"{_percent(share)} on {name}" for name, share in known)
    if not all(_printed_right(name, share) for name, share in known):
        return by_counts(
            "contradicted",
            f"Rate times bytes of the file over bandwidth is {said}. The page's figures are those with GiB in the "
            "place of GB; the document's own data prints others again (69.1, 70.9, 82.4 %).",
        )
    return by_counts("supported", f"{said}.")


def _printed_right(machine: str, share: Estimate) -> bool:
    """Whether the page's figure is what follows, to the last digit that it prints."""
    return abs(100 * share.point - PRINTED[machine][0]) <= 0.5  # printed in whole percent


def _percent(share: Estimate) -> str:
    return quoted(scaled(share, 100, "%"), 1, " %").replace(" (no interval)", "")


def _named(shares: Sequence[tuple[MachineLine, Estimate]]) -> str:
    return ", ".join(f"{line.subject} on {line.machine} ({_percent(share)})" for line, share in shares[:12])
