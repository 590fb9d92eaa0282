"""Tables of `specmeter study latency`: the model, what it foretells, and up to which distance a draft pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from specmeter.show.table import Row, Table, numbers, row, text
from specmeter.show.terminal.console import output
from specmeter.text import estimated as told
from specmeter.text import milliseconds, size
from specmeter_studies.library.cross_device.fitting import break_even

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specmeter.record import Estimate
    from specmeter_studies.latency import DraftStep
    from specmeter_studies.library.cross_device.fitting import Fitted, Forecast


_PLAIN, _HERE = "no speculation", "drafting on this machine"


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
    screen = output()
    screen.say_all((*_answers(model, step, rates), *_model_lines(model)), wrap=False)
    screen.line()
    screen.table(_forecast_table(model, step, found))
    if any(it.extrapolated for it in found):
        screen.say("* outside the measured networks", tone="faint")
    if measured is not None:
        screen.line()
        screen.table(_fit_table(measured))
    if step is not None:
        here = "" if step.here_ms is None else f" ({milliseconds(step.here_ms)} here)"
        screen.line()
        screen.say(
            f"a step yields {step.tau:.2f} tokens and drafts {step.drafted:.2f}, in {milliseconds(step.there_ms)} each "
            f"there{here}; the rest takes {step.rest:.2f} baseline tokens of {milliseconds(step.plain_ms)}",
            tone="faint",
            wrap=False,
        )


def _answers(model: Fitted, step: DraftStep | None, rates: Sequence[float]) -> Iterator[str]:
    for rate, than, room, at in _break_evens(model, step, rates):
        if at is not None:
            most = "" if model.points else "at most "
            distance = most + told(at, 2, " ms", exact=True)
            yield f"at {rate:g} Mbit/s drafting there is faster than {than} up to an RTT of {distance}"
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
    fixed = told(model.estimate(lambda it: it.fixed_ms, "ms"), 2, " ms", exact=True)
    trips = told(model.estimate(lambda it: it.trips, "1"), 2, " RTT", exact=True)
    crossing = told(model.estimate(lambda it: it.bytes_ / 1e3, "kB"), 1, " kB", exact=True)
    formula = f"{fixed} + {trips} + {crossing} / bandwidth"
    if not model.points:
        yield f"extra time per draft token there: at least {formula}"
        return
    yield f"extra time per draft token there: {formula}"
    blocks = f"{len(model.models)} blocks" if len(model.models) > 1 else "one block: no interval"
    line = f"  fitted to {len(model.points)} networks, {blocks}"
    if model.counted_bytes is not None:
        how = "bytes are fitted" if model.fitted_bytes else "bytes are as counted"
        line += f"; {how}: {size(model.counted_bytes)} cross the network per draft token"
    yield line


def _forecast_table(model: Fitted, step: DraftStep | None, found: Sequence[Forecast]) -> Table:
    least = not model.points
    headings = ["RTT ms", "Mbit/s", "extra ms per draft token" + (", at least" if least else "")]
    if step is not None:
        headings.append("speedup" + (", at most" if least else ""))
        headings += [] if step.here_ms is None else ["rate vs. drafting here"]
    rows = [
        row(
            f"{it.rtt_ms:g}{'*' if it.extrapolated else ''}",
            f"{it.mbit_per_s:g}",
            *(told(value, 2, exact=True) for value in (it.overhead_ms, it.speedup, it.over_here)[: len(headings) - 2]),
        )
        for it in found
    ]
    return Table("forecasts", numbers(*headings), rows)


def _fit_table(model: Fitted) -> Table:
    rows: list[Row] = []
    for point in model.points:
        rtt, rate = point.network
        fitted = model.estimate(lambda it, rtt=rtt, rate=rate: it.overhead_ms(rtt, rate), "ms")
        mean = sum(point.overhead_ms) / len(point.overhead_ms)
        bandwidth = "unlimited" if rate is None else f"{rate:g}"
        rows.append(row(point.name, f"{rtt:g}", bandwidth, f"{mean:.2f}", told(fitted, 2, exact=True)))
    return Table("fit", (*text("place"), *numbers("RTT ms", "Mbit/s", "measured ms", "model ms")), rows)
