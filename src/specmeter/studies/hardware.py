"""hardware-comparison: the same models on several machines, and whether memory sets their pace.

    utilisation = rate x bytes of weights that one token reads / bandwidth

is the share of the time that reading the weights at full bandwidth would take. Where it is above one half, most of the
time goes into reading; where it is below, something else takes most of it, whatever that is. If memory alone set the
pace, rates would go with bandwidths from machine to machine, and every model on one machine would move as many bytes
per second as the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from specmeter.audit.published.table import half_digit, rows
from specmeter.estimates import scaled
from specmeter.machines import Machine, MachineLine, MachineTable, from_quality, merge, ratio_of_rates
from specmeter.record import Estimate
from specmeter.studies import apple_published
from specmeter.studies.from_claims import printed_rate, rulings
from specmeter.studies.study import Axis, Point, StudyCell, StudyData, StudyFigure, StudyTable
from specmeter.studies.telling import quoted, ruling

if TYPE_CHECKING:
    from specmeter.record import Verdict
    from specmeter.studies.study import ClaimRuling, Finding

TITLE = "The same models on three Apple machines: rates, bandwidth utilisation, ratios"
SOURCE = apple_published.SOURCE
PARTS = ("hardware-comparison",)

HALF = 0.5
"""Utilisation above which reading takes most of the time."""
FAITHFUL = 0.9
"""Share of the bandwidths' ratio that a rate has to reach for going with bandwidth."""
CLAIMED_RATIO = 3.3
PRINTED = {"M2 Ultra": (64.0, 69.1), "M1 Max": (66.0, 70.9), "M2 Pro": (77.0, 82.4)}
"""Utilisation of the 9B model in percent, by the page and by the document's data."""
_GIB = 2**30

_BANDWIDTH = {"M2 Ultra": 800e9, "M1 Max": 400e9, "M2 Pro": 200e9}
"""As the document states them."""
_NAMES = {"0.8B Q8_0": "0.8B_Q8", "2B Q8_0": "2B_Q8", "9B Q8_0": "9B_Q8", "35B-A3B Q8_0 (MoE)": "35B_Q8"}
DENSE = "9B_Q8"
"""The model of the page's table."""


def published() -> StudyData:
    """Ten rows of llama-bench: three models on three machines, and the mixture on the largest one."""
    table = _published_table()
    return StudyData(
        study="hardware-comparison",
        origin="published",
        title="published by the document, with the audit's verdicts",
        machine=", ".join(machine.name for machine in table.machines),
        machines=table,
        notes=(
            "Rates of the M2 Ultra have intervals from the standard deviations of four runs; of the other machines the "
            "document prints rates alone.",
            "Bandwidths are peaks as the document states them.",
        ),
    )


def claims(data: StudyData) -> tuple[ClaimRuling, ...]:
    """What the data says about each claim."""
    table = machine_table(data)
    where = "project page, finding 1 and table of machines"
    return (
        ruling(
            "memory-bound",
            "Token generation is bound by memory, not by arithmetic.",
            where,
            _memory_bound(table),
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
            _scales(table),
        ),
        ruling(
            "utilisation",
            "The 9B model uses 64 % of the M2 Ultra's bandwidth, 66 % of the M1 Max's, 77 % of the M2 Pro's.",
            "table of machines; data: 69.1, 70.9, 82.4 %",
            _utilisation(table),
        ),
    )


def tables(data: StudyData) -> tuple[StudyTable, ...]:
    """The table of machines, for every model."""
    table = machine_table(data)
    return () if table is None or not table.lines else (rates_table(table), *_printed_table(table))


def figures(data: StudyData) -> tuple[StudyFigure, ...]:
    """Rates by bandwidth, and utilisation. The document draws neither."""
    table = machine_table(data)
    if table is None:
        return ()
    return tuple(figure for figure in (rate_figure(table), utilisation_figure(table)) if figure.points)


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


# --- tables and figures ----------------------------------------------------------------------------------------------


def rates_table(table: MachineTable) -> StudyTable:
    """One row for each thing on each machine."""
    made = [line for line in table.lines if line.rate is not None or line.verdict is not None]
    return StudyTable(
        key="machines",
        title="Rates of several machines, and what they ask of memory",
        about="The document's columns (machine, bandwidth, generation, prompt, utilisation) for every model, one row "
        "for each. Utilisation is of weights that decoding one token reads; of a mixture the chosen experts only.",
        columns=(
            "model",
            "test",
            "machine",
            "bandwidth, GB/s",
            "tok/s",
            "over the first machine",
            "weights per token, GB",
            "moved, GB/s",
            "utilisation, %",
        ),
        rows=tuple(_row(line, table.machine(line.machine)) for line in made),
        verdicts=tuple(line.verdict for line in made),
    )


def rate_figure(table: MachineTable) -> StudyFigure:
    """Rates of generation over bandwidth: parallel to the diagonal where memory sets the pace."""
    points = [
        _point(line, x=bandwidth / 1e9, estimate=line.rate)
        for line in _plain(table)
        if line.rate is not None and (bandwidth := table.machine(line.machine).bandwidth_bytes_per_s) is not None
    ]
    return StudyFigure(
        key="rate-by-bandwidth",
        title="Generation by memory bandwidth",
        about="Where memory alone set the pace, lines would rise as steeply as bandwidth does.",
        kind="lines",
        x=Axis(title="bandwidth, GB/s", log=True),
        y=Axis(title="tok/s", log=True),
        series_title="model",
        points=tuple(points),
    )


def utilisation_figure(table: MachineTable) -> StudyFigure:
    """Utilisation by model and machine."""
    order = tuple(dict.fromkeys(line.subject for line in _plain(table)))
    points = [
        Point(
            series=line.machine,
            x=line.subject,
            y=100 * line.utilisation.point,
            low=None if line.utilisation.low is None else 100 * line.utilisation.low,
            high=None if line.utilisation.high is None else 100 * line.utilisation.high,
            label=f"{line.subject} on {line.machine}",
            verdict=line.verdict,
        )
        for line in _plain(table)
        if line.utilisation is not None
    ]
    return StudyFigure(
        key="utilisation",
        title="Share of the bandwidth that generation uses",
        kind="bars",
        x=Axis(title="model", order=order),
        y=Axis(title="utilisation, %"),
        series_title="machine",
        points=tuple(points),
    )


def _row(line: MachineLine, machine: Machine) -> tuple[StudyCell, ...]:
    peak = machine.bandwidth_bytes_per_s
    return (
        StudyCell(text=line.subject),
        StudyCell(text=line.test),
        StudyCell(text=line.machine),
        StudyCell(value=None if peak is None else peak / 1e9, text="unknown", digits=0),
        StudyCell(value=line.rate, text="invalid" if line.verdict == "invalid" else "-", digits=1),
        StudyCell(value=line.ratio, text="-"),
        StudyCell(value=None if line.bytes_per_token is None else line.bytes_per_token / 1e9, text="-", digits=3),
        StudyCell(value=_times(line.moved_bytes_per_s, 1e-9, "GB/s"), text="-", digits=1),
        StudyCell(value=_times(line.utilisation, 100, "%"), text="-", digits=1),
    )


def _printed_table(table: MachineTable) -> Iterator[StudyTable]:
    """What the page prints beside what follows from its rates, where these are the document's machines."""
    found = list(_documented(table))
    if not found:
        return
    yield StudyTable(
        key="utilisation-printed",
        title="Utilisation as printed, and as it follows from rate, size and bandwidth",
        about="GB are 10^9 bytes, as in the bandwidths. Dividing GiB by GB gives what the page prints.",
        columns=("machine", "by the page, %", "by its data, %", "from bytes, %", "with GiB for GB, %"),
        rows=tuple(
            (
                StudyCell(text=name),
                StudyCell(value=PRINTED[name][0], digits=0),
                StudyCell(value=PRINTED[name][1], digits=1),
                StudyCell(value=_times(share, 100, "%"), digits=1),
                StudyCell(value=100 * share.point * 1e9 / _GIB, digits=1),
            )
            for name, share in found
        ),
    )


def _point(line: MachineLine, *, x: float, estimate: Estimate) -> Point:
    return Point(
        series=f"{line.subject}{' with drafts' if line.speculates else ''}",
        x=x,
        y=estimate.point,
        low=estimate.low,
        high=estimate.high,
        label=f"{line.subject} on {line.machine}",
        verdict=line.verdict,
    )


def _times(estimate: Estimate | None, factor: float, unit: str) -> Estimate | None:
    return None if estimate is None else scaled(estimate, factor, unit)


# --- claims ----------------------------------------------------------------------------------------------------------


def _plain(table: MachineTable | None) -> tuple[MachineLine, ...]:
    """Generation without drafts, measured and not false."""
    if table is None:
        return ()
    return tuple(line for line in table.lines if line.decodes and not line.speculates and line.rate is not None)


def _memory_bound(table: MachineTable | None) -> tuple[Finding, str]:
    known = [(line, line.utilisation) for line in _plain(table) if line.utilisation is not None]
    if not known:
        return "cannot tell", "No rate of generation with a known bandwidth: give it (--bandwidth) or measure it."
    over = [(line, share) for line, share in known if _low(share) > HALF]
    under = [(line, share) for line, share in known if _high(share) < HALF]
    if not under and len(over) == len(known):
        return "supported", f"Reading weights takes more than half of the time everywhere: {_named(over)}."
    if under:
        true = f" It does for {_named(over)}." if over else ""
        return (
            "contradicted",
            f"Reading all weights at full bandwidth takes less than half of the time of {_named(under)}.{true}",
        )
    return "cannot tell", f"Intervals reach across one half: {_named(known)}."


def _machine_ratio(table: MachineTable | None) -> tuple[Finding, str]:
    """The document's own pair of machines, on the model of its table."""
    here = {known: machine.name for machine in (table.machines if table else ()) if (known := _known(machine))}
    ratios: dict[str, Estimate] = {}
    if table is not None and {"M2 Ultra", "M2 Pro"} <= here.keys():
        ratios = dict(_ratios(table, here["M2 Ultra"], here["M2 Pro"]))
    if DENSE not in ratios:
        names = ", ".join(machine.device for machine in table.machines) if table is not None else ""
        return "cannot tell", f"The claim is about two machines; measured on {names or 'none'}."
    said = "; ".join(f"{subject} {quoted(ratio)}" for subject, ratio in ratios.items())
    ratio = ratios[DENSE]
    if round(ratio.point, 1) == CLAIMED_RATIO or _low(ratio) <= CLAIMED_RATIO <= _high(ratio):
        return "supported", f"For the 9B model of the table it is; smaller ones gain less: {said}."
    return "contradicted", f"{said}."


def _scales(table: MachineTable | None) -> tuple[Finding, str]:
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
    if all(_low(ratio) >= FAITHFUL * times for ratio in ratios.values()):
        return "supported", f"{head}."
    if any(_high(ratio) < FAITHFUL * times for ratio in ratios.values()):
        return (
            "contradicted",
            f"{head}: less than bandwidth gives, and the less the smaller the model, where something else takes time.",
        )
    return "cannot tell", f"{head}; intervals do not decide."


def _ratios(table: MachineTable, fast: str, slow: str) -> Iterator[tuple[str, Estimate]]:
    for subject in dict.fromkeys(line.subject for line in _plain(table)):
        rates = {line.machine: line for line in _plain(table) if line.subject == subject}
        ours, theirs = rates.get(fast), rates.get(slow)
        if ours is None or theirs is None or ours.rate is None or theirs.rate is None:
            continue
        first = table.machines[0].name
        if slow == first and ours.ratio is not None:
            yield subject, ours.ratio
        else:
            yield subject, ratio_of_rates(ours.rate, theirs.rate)


def _utilisation(table: MachineTable | None) -> tuple[Finding, str]:
    known = list(_documented(table))
    if not known:
        shares = [(line, line.utilisation) for line in _plain(table) if line.utilisation is not None]
        here = f" Here: {_named(shares)}." if shares else ""
        return "cannot tell", f"The claim is about three machines, none of which is here.{here}"
    said = ", ".join(f"{_percent(share)} on {name}" for name, share in known)
    if not all(_printed_right(name, share) for name, share in known):
        return (
            "contradicted",
            f"Rate times bytes of the file over bandwidth is {said}. The page's figures are those with GiB in the "
            "place of GB; the document's own data prints others again (69.1, 70.9, 82.4 %).",
        )
    return "supported", f"{said}."


def _documented(table: MachineTable | None) -> Iterator[tuple[str, Estimate]]:
    """The document's name of a machine -> utilisation by the model of its table."""
    for line in _plain(table):
        name = _known(table.machine(line.machine)) if table is not None else None
        if name is not None and line.subject == DENSE and line.utilisation is not None:
            yield name, line.utilisation


def _known(machine: Machine) -> str | None:
    """The document's name for a machine; None for others."""
    name = machine.device.removeprefix("Apple ")
    return name if name in PRINTED else None


def _printed_right(machine: str, share: Estimate) -> bool:
    """Whether the page's figure is what follows, to the last digit that it prints."""
    return abs(100 * share.point - PRINTED[machine][0]) <= half_digit("64")


def _low(estimate: Estimate) -> float:
    return estimate.low if estimate.low is not None else estimate.point


def _high(estimate: Estimate) -> float:
    return estimate.high if estimate.high is not None else estimate.point


def _percent(share: Estimate) -> str:
    return quoted(scaled(share, 100, "%"), 1, " %").replace(" (no interval)", "")


def _named(shares: Sequence[tuple[MachineLine, Estimate]]) -> str:
    return ", ".join(f"{line.subject} on {line.machine} ({_percent(share)})" for line, share in shares[:12])


# --- what was published ----------------------------------------------------------------------------------------------


def _published_table() -> MachineTable:
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
    rates = dict(_published_rates())
    keys = dict.fromkeys(key[:2] for key in rates)
    lines = [
        _published_line(subject, test, machine, rates)
        for subject, test in keys
        for machine in machines
        if (subject, test, machine.name) in rates
    ]
    return MachineTable(what="llama-bench, as published", machines=machines, lines=tuple(lines))


Rated = tuple[Estimate, float | None, "Verdict | None"]
"""Rate, bytes per token, verdict."""


def _published_rates() -> Iterator[tuple[tuple[str, str, str], Rated]]:
    """(model, test, machine) -> what is printed."""
    spread = {
        ruled.claim.label: printed_rate(ruled.claim)
        for ruled in rulings("apple", "apple/bench.csv")
        if ruled.claim.decode_rate is not None
    }
    printed = rows("apple_multimodel.csv")
    for ruled, row in zip(rulings("apple", "apple/multimodel.csv"), printed, strict=True):
        claim = ruled.claim
        subject, machine = _NAMES[row["model"]], claim.device or ""
        rate = spread.get(subject) if machine == "M2 Ultra" else None
        rate = rate if rate is not None else printed_rate(claim)
        verdict: Verdict | None = "invalid" if ruled.verdict == "impossible" else None
        if rate is not None:
            yield (subject, "tg128", machine), (rate, claim.bytes_per_token or claim.size_bytes, verdict)
        prompt = Estimate(point=float(row["pp_tps"]), n=1, unit="tok/s", method="as printed; no interval")
        yield (subject, "pp512", machine), (prompt, None, verdict)


def _published_line(subject: str, test: str, machine: Machine, rates: dict[tuple[str, str, str], Rated]) -> MachineLine:
    rate, size, verdict = rates[subject, test, machine.name]
    first = rates.get((subject, test, next(iter(_BANDWIDTH))))
    moved = None if size is None else scaled(rate, size, "B/s")
    peak = machine.bandwidth_bytes_per_s
    return MachineLine(
        machine=machine.name,
        subject=subject,
        test=test,
        decodes=test == "tg128",
        rate=rate,
        ratio=ratio_of_rates(rate, first[0]) if first is not None and machine.name != "M2 Ultra" else None,
        bytes_per_token=size,
        moved_bytes_per_s=moved,
        utilisation=scaled(moved, 1 / peak, "1") if moved is not None and peak else None,
        verdict=verdict,
    )
