"""Tables of `specmeter latency`: the model, what it foretells, and up to which distance a draft pays."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from specmeter.show.terminal.run import interval
from specmeter.show.terminal.text import output_console
from specmeter.studies.library.cross_device.latency import break_even

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from specmeter.record import Estimate
    from specmeter.studies.library.cross_device.latency import Fitted, Forecast
    from specmeter.theory.latency import DraftStep

_PLAIN, _HERE = "plain decoding", "drafting on this machine"


def document(
    model: Fitted, step: DraftStep | None, found: Sequence[Forecast], rates: Sequence[float]
) -> dict[str, Any]:
    """Everything, for `--json`."""
    parameters = {
        "fixed_ms": model.estimate(lambda it: it.fixed_ms, "ms"),
        "round_trips": model.estimate(lambda it: it.trips, "1"),
        "bytes": model.estimate(lambda it: it.bytes_, "bytes"),
    }
    ends = [
        {"mbit_per_s": rate, "than": than, "rtt_ms": None if at is None else at.model_dump(mode="json")}
        for rate, than, _, at in _break_evens(model, step, rates)
    ]
    return {
        "measured": bool(model.points),
        "model": {name: value.model_dump(mode="json") for name, value in parameters.items()},
        "bytes_fitted": model.fitted_bytes,
        "bytes_counted": model.counted_bytes,
        "vocabulary": model.vocabulary,
        "points": [
            {"name": it.name, **it.network._asdict(), "overhead_ms": list(it.overhead_ms)} for it in model.points
        ],
        "step": None if step is None else asdict(step),
        "forecasts": [it.model_dump(mode="json") for it in found],
        "faster_below": ends,
    }


def print_forecasts(
    model: Fitted,
    step: DraftStep | None,
    found: Sequence[Forecast],
    rates: Sequence[float],
    *,
    measured: Fitted | None,
) -> None:
    """The answer first, then the model, the forecasts, and what the `measured` one was fitted to."""
    console = output_console()
    for line in (*_answers(model, step, rates), *_model_lines(model)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print()
    console.print(_forecast_table(model, step, found))
    if any(it.extrapolated for it in found):
        console.print("* outside of the networks that were measured", style="dim", markup=False)
    if measured is not None:
        console.print()
        console.print(_fit_table(measured))
    if step is not None:
        here = "" if step.here_ms is None else f" ({step.here_ms:.2f} ms here)"
        console.print(
            f"\na step emits {step.tau:.2f} tokens and drafts {step.drafted:.2f}, in {step.there_ms:.2f} ms each "
            f"there{here}; the rest of it takes {step.rest:.2f} plain tokens of {step.plain_ms:.2f} ms",
            style="dim",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _answers(model: Fitted, step: DraftStep | None, rates: Sequence[float]) -> Iterator[str]:
    for rate, than, room, at in _break_evens(model, step, rates):
        if at is not None:
            most = "" if model.points else "at most "
            yield f"at {rate:g} Mbit/s drafting there is faster than {than} up to a RTT of {most}{_shown(at, 2)} ms"
        else:
            why = "" if room > 0 else ", even without a network"
            yield f"at {rate:g} Mbit/s drafting there is slower than {than} at any distance{why}"


def _break_evens(
    model: Fitted, step: DraftStep | None, rates: Sequence[float]
) -> Iterator[tuple[float, str, float, Estimate | None]]:
    """(bandwidth, than what, the overhead that can be borne in ms, the RTT up to which it is)."""
    if step is None:
        return
    for rate in rates:
        for than, room in ((_PLAIN, step.bearable_ms), (_HERE, step.saved_ms)):
            if room is not None:
                yield rate, than, room, break_even(model, room, rate)


def _model_lines(model: Fitted) -> Iterator[str]:
    fixed = _shown(model.estimate(lambda it: it.fixed_ms, "ms"), 2)
    trips = _shown(model.estimate(lambda it: it.trips, "1"), 2)
    size = _shown(model.estimate(lambda it: it.bytes_ / 1e3, "kB"), 1)
    formula = f"{fixed} ms + {trips} RTT + {size} kB / bandwidth"
    if not model.points:
        yield f"a drafted token takes longer there than it computes, by at least {formula}"
        return
    yield f"a drafted token takes longer there than it computes, by {formula}"
    blocks = f"{len(model.models)} blocks" if len(model.models) > 1 else "one block: no interval"
    told = f"  fitted to {len(model.points)} networks, {blocks}"
    if model.counted_bytes is not None:
        how = "bytes are fitted" if model.fitted_bytes else "bytes are those counted"
        told += f"; {how}: {model.counted_bytes / 1e3:.1f} kB cross the network per drafted token"
    yield told


def _forecast_table(model: Fitted, step: DraftStep | None, found: Sequence[Forecast]) -> Table:
    least = not model.points
    headings = ["RTT ms", "Mbit/s", "more ms per drafted token" + (", at least" if least else "")]
    if step is not None:
        headings.append("speedup over plain" + (", at most" if least else ""))
        headings += [] if step.here_ms is None else ["rate over drafting here"]
    table = _table(headings)
    for it in found:
        mark = "*" if it.extrapolated else ""
        cells = [f"{it.rtt_ms:g}{mark}", f"{it.mbit_per_s:g}", _shown(it.overhead_ms, 2)]
        cells += [_shown(value, 2) for value in (it.speedup, it.over_here)]
        table.add_row(*cells[: len(headings)])
    return table


def _fit_table(model: Fitted) -> Table:
    table = _table(["place", "RTT ms", "Mbit/s", "measured ms", "model ms"])
    table.columns[0].justify = "left"
    for point in model.points:
        rtt, rate = point.network
        told = model.estimate(lambda it, rtt=rtt, rate=rate: it.overhead_ms(rtt, rate), "ms")
        mean = sum(point.overhead_ms) / len(point.overhead_ms)
        table.add_row(
            point.name, f"{rtt:g}", "unlimited" if rate is None else f"{rate:g}", f"{mean:.2f}", _shown(told, 2)
        )
    return table


def _table(headings: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right", header_style="bold")
    return table


def _shown(estimate: Estimate | None, digits: int) -> str:
    """With its interval where there is one."""
    if estimate is None or estimate.low is None:
        return "-" if estimate is None else f"{estimate.point:.{digits}f}"
    return interval(estimate, digits)
