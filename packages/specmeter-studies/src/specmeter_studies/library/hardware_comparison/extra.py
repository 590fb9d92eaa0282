"""hardware-comparison: the same models on several machines, and whether memory sets their pace.

    utilisation = rate x bytes of weights that one token reads / bandwidth

is the share of the time that reading the weights at full bandwidth would take. Where it is above one half, most of the
time goes into reading; where it is below, something else takes most of it, whatever that is. If memory alone set the
pace, rates would go with bandwidths from machine to machine, and every model on one machine would move as many bytes
per second as the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from specmeter.messages import Message
from specmeter.numbers.estimates import above, below, quotient
from specmeter.record import Estimate
from specmeter_studies.machines import Machine, MachineLine, MachineTable, from_quality, merge
from specmeter_studies.rules import lies
from specmeter_studies.study import StudyCell, StudyData
from specmeter_studies.telling import by_counts, by_values, in_percent, quoted, sentence

if TYPE_CHECKING:
    from specmeter_studies.study import Found


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
        title=Message("hardware-comparison.machines", what=table.what, n=len(table.machines)),
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
    rate = StudyCell(value=line.rate, text=Message("verdict.invalid") if line.verdict == "invalid" else "-", digits=1)
    series = Message("hardware-comparison.drafts", subject=line.subject) if line.speculates else line.subject
    name = Message("hardware-comparison.on", subject=line.subject, machine=line.machine)
    told = "" if line.utilisation is None else _share(line, line.utilisation)
    machine = table.machine(line.machine)
    return {"line": line, "machine": machine, "name": name, "series": series, "rate": rate, "message": told}


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
        told="message",
        found={
            "supported": "hardware-comparison.most_time",
            "contradicted": "hardware-comparison.less_time",
            "cannot tell": "hardware-comparison.open",
        },
        empty=Message("hardware-comparison.no_rate"),
    )


def machine_ratio(data: StudyData) -> Found:
    """The document's own pair of machines, on the model of its table."""
    table = machine_table(data)
    here = {known: machine.name for machine in (table.machines if table else ()) if (known := document_name(machine))}
    ratios: dict[str, Estimate] = {}
    if table is not None and {"M2 Ultra", "M2 Pro"} <= here.keys():
        ratios = dict(_ratios(table, here["M2 Ultra"], here["M2 Pro"]))
    if DENSE not in ratios:
        devices = [machine.device for machine in table.machines] if table is not None else []
        if not devices:
            return "cannot tell", Message("hardware-comparison.nothing")
        return "does not apply here", Message("hardware-comparison.other_machines", devices=devices)
    ratio = ratios[DENSE]
    told = Message("hardware-comparison.by_one_model", ratios=_told(ratios))
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
        return "cannot tell", Message("hardware-comparison.needs_two")
    slow = min(known, key=lambda it: it.bandwidth_bytes_per_s or 0)
    fast = max(known, key=lambda it: it.bandwidth_bytes_per_s or 0)
    assert slow.bandwidth_bytes_per_s
    assert fast.bandwidth_bytes_per_s
    times = fast.bandwidth_bytes_per_s / slow.bandwidth_bytes_per_s
    ratios = dict(_ratios(table, fast.name, slow.name))
    if not ratios:
        return "cannot tell", Message("hardware-comparison.not_both", fast=fast.name, slow=slow.name)
    head = Message("hardware-comparison.times", fast=fast.name, times=times, slow=slow.name, ratios=_told(ratios))
    least = FAITHFUL * times
    less = Message("hardware-comparison.less", head=head)
    if all(above(ratio, least) for ratio in ratios.values()):
        return "supported", sentence(head)
    if any(below(ratio, least) for ratio in ratios.values()):
        return "contradicted", less
    if printed and any(_single(ratio) < least for ratio in ratios.values()):
        return by_values("contradicted", less)
    if printed and all(above(ratio, least) or _single(ratio) >= least for ratio in ratios.values()):
        return by_values("supported", sentence(head))
    return "cannot tell", Message("hardware-comparison.undecided", head=head)


def _told(ratios: Mapping[str, Estimate]) -> list[Message]:
    return [Message("study.row", name=subject, number=quoted(ratio)) for subject, ratio in ratios.items()]


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
        told = Message("hardware-comparison.three_machines")
        if not shares:
            return "cannot tell", told
        here = [_share(*it) for it in shares[:12]]
        return "does not apply here", Message("hardware-comparison.here", told=told, shares=here)
    said = [Message("hardware-comparison.share", share=in_percent(share), name=name) for name, share in known]
    if not all(_printed_right(name, share) for name, share in known):
        return by_counts("contradicted", Message("hardware-comparison.wrong", shares=said))
    return by_counts("supported", Message("hardware-comparison.right", shares=said))


def _printed_right(machine: str, share: Estimate) -> bool:
    """Whether the page's figure is what follows, to the last digit that it prints."""
    return abs(100 * share.point - PRINTED[machine][0]) <= 0.5  # printed in whole percent


def _share(line: MachineLine, share: Estimate) -> Message:
    percent = in_percent(share)
    return Message("hardware-comparison.on_machine", subject=line.subject, machine=line.machine, share=percent)
