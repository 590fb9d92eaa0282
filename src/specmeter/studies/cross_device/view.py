"""Tables and figures of drafts on other machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from specmeter.errors import UsageError
from specmeter.record import Estimate
from specmeter.studies.cross_device.costs import Backend, backends
from specmeter.studies.cross_device.latency import Fitted, fitted
from specmeter.studies.study import Axis, Point, Standing, StudyCell, StudyFigure, StudyTable, claimed_cell, own_cell
from specmeter.studies.telling import quoted

if TYPE_CHECKING:
    from specmeter.record import Network
    from specmeter.studies.study import StudyData
    from specmeter.theory.latency import LatencyModel


_WORSE: tuple[Standing | None, ...] = (None, "valid", "suspect", "implausible", "invalid")
"""A mean is as good as the worst of what it is a mean of."""


def tables(data: StudyData) -> tuple[StudyTable, ...]:
    """The document's table, where the drafts ran, what networks cost them, and its withdrawn runs."""
    found, withdrawn = backends(data), backends(data, withdrawn=True)
    made = [_summary(found)] if found else []
    if any(backend.place.held_by or backend.place.received_bytes is not None for backend in found):
        made.append(_proof(found))
    if (model := _model(found)) is not None:
        made.append(_networks(model, found))
    if withdrawn:
        made.append(_first(withdrawn))
    return tuple(made)


def figures(data: StudyData) -> tuple[StudyFigure, ...]:
    """Rates by place, and what a drafted token takes there."""
    found = backends(data)
    made = [
        StudyFigure(
            key="rates",
            title="Decode rate by the place of the draft",
            about="The document prints means over prompts only.",
            kind="bars",
            x=Axis(title="draft runs on", order=tuple(backend.name for backend in found)),
            y=Axis(title="tok/s"),
            series_title="prompt",
            points=tuple(_rates(found)),
        ),
        StudyFigure(
            key="drafting",
            title="Time per drafted token by the place of the draft",
            kind="points",
            x=Axis(title="draft runs on", order=tuple(backend.name for backend in found)),
            y=Axis(title="ms per drafted token"),
            points=tuple(_drafting(found)),
        ),
    ]
    return tuple(figure for figure in made if figure.points)


def _summary(found: Sequence[Backend]) -> StudyTable:
    return StudyTable(
        key="table-1",
        title="Drafts here and on other machines",
        about="The document has neither plain decoding beside it nor intervals. Its draft rate is that of drafting; "
        "the draft's own rate there is llama-bench's.",
        columns=("draft runs on", "tok/s", "vs local", "speedup over plain", "draft tok/s", "its own rate there"),
        rows=tuple(
            (
                StudyCell(text=backend.name),
                own_cell(backend.line, backend.line.decode_rate, 1),
                _beside(backend),
                _speedup(backend),
                own_cell(backend.line, _per_second(backend.draft_ms), 1),
                StudyCell(value=backend.place.alone_rate, text="-", digits=1),
            )
            for backend in found
        ),
        verdicts=tuple(backend.line.of_rate for backend in found),
    )


def _proof(found: Sequence[Backend]) -> StudyTable:
    return StudyTable(
        key="where",
        title="Where the draft really ran",
        about="By the engine's account of its buffers, and by the bytes that the kernel counted on the connection "
        "while requests were answered. A draft that ran here leaves it silent.",
        columns=(
            "draft",
            "asked onto",
            "weights held by",
            "kB out per drafted token",
            "kB back per drafted token",
            "other answers per drafted token, at most",
            "ms per drafted token",
            "more than here, ms",
        ),
        rows=tuple(
            (
                StudyCell(text=backend.name),
                StudyCell(text=backend.place.machine or "this machine"),
                StudyCell(text=", ".join(backend.place.held_by) or "-"),
                *_traffic(backend),
                StudyCell(value=backend.other_answers, text="-", digits=1),
                StudyCell(value=backend.draft_ms, text="-"),
                StudyCell(value=backend.overhead_ms, text="-"),
            )
            for backend in found
        ),
        verdicts=tuple(backend.line.of_rate for backend in found),
    )


def _model(found: Sequence[Backend]) -> Fitted | None:
    try:
        return fitted(found)
    except UsageError:  # no known networks, or too few
        return None


def _networks(model: Fitted, found: Sequence[Backend]) -> StudyTable:
    by_name = {backend.name: backend for backend in found}
    fixed = quoted(model.estimate(lambda it: it.fixed_ms, "ms"), 2, " ms")
    trips = quoted(model.estimate(lambda it: it.trips, "1"), 2, "")
    size = quoted(model.estimate(lambda it: it.bytes_ / 1e3, "kB"), 1, " kB")
    return StudyTable(
        key="networks",
        title="What the network costs a drafted token",
        about="Not in the document. The other machine was this one behind relays, so both ends share a processor. "
        f"Fitted: {fixed} + {trips} round trips + {size} / bandwidth. `specmeter latency` says what follows for other "
        "networks, vocabularies and models.",
        columns=("draft runs on", "RTT, ms", "bandwidth, Mbit/s", "more than here, ms", "by the model, ms"),
        rows=tuple(
            (
                StudyCell(text=point.name),
                StudyCell(value=point.network.rtt_ms, digits=1),
                StudyCell(value=point.network.mbit_per_s, text="unlimited", digits=0),
                StudyCell(value=by_name[point.name].overhead_ms, text="-"),
                StudyCell(value=model.estimate(_through(point.network), "ms")),
            )
            for point in model.points
        ),
        verdicts=tuple(by_name[point.name].line.of_rate for point in model.points),
    )


def _through(network: Network) -> Callable[[LatencyModel], float]:
    return lambda model: model.overhead_ms(network.rtt_ms, network.mbit_per_s)


def _first(withdrawn: Sequence[Backend]) -> StudyTable:
    return StudyTable(
        key="withdrawn",
        title="The first runs, which the document withdrew",
        about="Their drafts were to run on other machines and ran at home.",
        columns=("draft asked onto", "prompt", "tok/s", "accepted, %"),
        rows=tuple(
            (
                StudyCell(text=backend.name.partition(" (")[0]),
                StudyCell(text=row.prompt),
                StudyCell(value=row.decode_rate, text="failed", digits=1, struck=row.verdict == "invalid"),
                StudyCell(
                    value=None if row.acceptance is None else 100 * row.acceptance,
                    text="-",
                    struck=row.acceptance is not None and row.verdict == "invalid",
                ),
            )
            for backend in withdrawn
            for row in backend.rows
        ),
        verdicts=tuple(row.verdict for backend in withdrawn for row in backend.rows),
    )


def _beside(backend: Backend) -> StudyCell:
    if backend.local is None:
        return StudyCell(text="baseline")
    return StudyCell(value=backend.to_local, text="-", struck=not backend.believable)


def _speedup(backend: Backend) -> StudyCell:
    line = backend.line
    if line.speedup is not None:
        return StudyCell(value=line.speedup)
    return claimed_cell(line)


def _traffic(backend: Backend) -> tuple[StudyCell, StudyCell]:
    crossed = backend.bytes_per_token
    if crossed is None:
        text = "not counted" if backend.remote else "-"
        return StudyCell(text=text), StudyCell(text=text)
    return StudyCell(value=crossed[0] / 1e3, digits=1), StudyCell(value=crossed[1] / 1e3, digits=1)


def _per_second(ms: Estimate | None) -> Estimate | None:
    """A rate from a time: its ends change places."""
    if ms is None or ms.point <= 0:
        return None
    low, high = ((None if end is None or end <= 0 else 1000 / end) for end in (ms.high, ms.low))
    ends = {"low": low, "high": high} if low is not None and high is not None else {"low": None, "high": None}
    return ms.model_copy(update={"point": 1000 / ms.point, "unit": "tok/s", **ends})


def _rates(found: Sequence[Backend]) -> Iterator[Point]:
    for backend in found:
        prompts = dict.fromkeys(row.prompt for row in backend.rows)
        for prompt in prompts:
            rows = [row for row in backend.rows if row.prompt == prompt and row.decode_rate is not None]
            if rows:
                label = f"{backend.name}, {prompt}: mean of {len(rows)}"
                y = sum(row.decode_rate or 0.0 for row in rows) / len(rows)
                yield Point(
                    series=prompt,
                    x=backend.name,
                    y=y,
                    label=label,
                    verdict=_WORSE[max(_WORSE.index(row.verdict) for row in rows)],
                )


def _drafting(found: Sequence[Backend]) -> Iterator[Point]:
    for backend in found:
        ms = backend.draft_ms
        if ms is not None:
            yield Point.of(ms, x=backend.name, verdict=backend.line.of_rate)
