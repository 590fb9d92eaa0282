"""All documents on one page: does speculation help a mixture of experts, when, and why the documents disagree.

Nothing on it is written down here: sentences get their numbers from published rows, from rulings, and from runs of
specmeter's own (`library/bench.csv`, made by `scripts/bench_rows.py`), and each number links to its row of data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

import specmeter_studies as studies
from specmeter.audit import published as tables
from specmeter.messages import Message
from specmeter.numbers.estimates import above, below, exceeds
from specmeter.record import Estimate, Record
from specmeter.show.figure import Figure
from specmeter.show.report import Chart, Command, Report, Section, Tabled, Text
from specmeter.show.table import Cell, Column, Kind, Row, Table, Tone, estimate_cell
from specmeter_studies.library.rtx3090_aug.extra import BLOCKED, InMatrix, matrix, over_runs, timed
from specmeter_studies.rungs import percent_change
from specmeter_studies.show import found_since, twin
from specmeter_studies.show.document import published_findings
from specmeter_studies.show.figures import drawn
from specmeter_studies.show.tables import own_rows, rows_of_data
from specmeter_studies.study import Axis, ClaimRuling, Point, StudyFigure
from specmeter_studies.telling import quoted

ALL = "all"
LOG, LOG_PROMPT = "sd_35B_Q4_0.8B_Q8_k4", "math"
"""The raw log whose two rates two documents print."""
_LOGS, _RUNS = "apple/logs.csv", "apple/sd_runs.csv"
_TONES: dict[str, Tone] = {"supported": "good", "contradicted": "bad", "cannot tell": "doubtful"}


class Measured(Record):
    """A configuration of a run of our own on bench models."""

    id: str
    device: str
    run: str
    by: str
    """What its run varies: `length` of drafts, or `load`."""
    verdict: str
    target: str
    """`dense` or `moe`."""
    model: str
    """Its reference: `bench:dense-200m`."""
    gamma: int
    clients: int
    speedup: Estimate
    acceptance: float
    experts: tuple[float, float] | None
    """Distinct experts that one token and a verification of gamma + 1 tokens choose in a layer; None: dense."""


def measured() -> list[Measured]:
    """What specmeter measured itself."""
    return [_measured(it) for it in own_rows("bench.csv")]


def _measured(cells: Mapping[str, str]) -> Measured:
    ends = {"point": cells["speedup"], "low": cells["low"], "high": cells["high"], "n": cells["blocks"]}
    experts = (cells["experts_one"], cells["experts_step"]) if cells["experts_one"] else None
    made = {"speedup": {**ends, "unit": "x", "of": "blocks", "method": cells["method"]}, "experts": experts}
    kept = {name: cells[name] for name in Measured.model_fields if name not in made}
    return Measured.model_validate(kept | made)


@dataclass(frozen=True)
class _TwoRates:
    """One log, read in two ways."""

    generated: float
    """Of the plain rate, in percent: generated tokens over their time."""
    in_all: float
    """The same of the tokens that the target read and generated, over the life of its context."""
    tokens: int
    decode_s: float
    all_tokens: int
    all_s: float
    failed: int
    steps: int


def _two_rates() -> _TwoRates:
    log = _row(_LOGS, LOG)
    printed = _printed()
    plain, tokens, decode_s = float(log["baseline_rate"]), int(log["predicted_n"]), float(log["predicted_ms"]) / 1e3
    return _TwoRates(
        generated=100 * (tokens / decode_s / plain - 1),
        in_all=100 * (float(printed["decode_rate"]) / plain - 1),
        tokens=tokens,
        decode_s=decode_s,
        all_tokens=tokens + int(printed["prompt_n"]),
        all_s=float(printed["wall_ms"].partition("±")[0]) / 1e3,
        failed=int(log["failed_forwards"]),
        steps=int(log["steps"]),
    )


def _printed() -> Mapping[str, str]:
    """The row of that log's run in the document's data."""
    named = {"target": "35B_Q4", "draft": "0.8B_Q8", "gamma": "4", "prompt": LOG_PROMPT}
    return next(it for it in tables.cells(_RUNS) if all(it[key] == value for key, value in named.items()))


def _row(name: str, place: str) -> Mapping[str, str]:
    return next(it for it in tables.cells(name) if it["source_place"] == place)


# --- the answer -------------------------------------------------------------------------------------------------------


def report() -> Report:
    """The page of all documents."""
    every = dict(published_findings(studies.names()))
    found, second = every["rtx3090-aug"].data, every["rtx3090-38"].data
    lines = [it for it in matrix(found) if it.line.speculates and it.line.suite == BLOCKED[0]]
    gaining = [it for it in lines if above(it.line.speedup, 1)]
    losing = [it for it in lines if below(it.line.speedup, 1)]
    rates, shares = _two_rates(), [it.share for it in timed(found)]
    runs = quoted(percent_change(over_runs()), "%")
    claims = [(name, claim) for name, it in every.items() for claim in it.claims]
    counts = {it: sum(claim.ruling == it for _, claim in claims) for it in dict.fromkeys(c.ruling for _, c in claims)}
    return Report(
        target="Speculative decoding and MoE models",
        document=lambda: _as_data(claims),
        headline=Message("documents.headline", gaining=len(gaining), losing=len(losing), of=len(lines)),
        look="speculate" if gaining else "stop",
        answer=[
            Text(Message("documents.gains", gains=_told(gaining), runs=runs), row=_of_matrix(gaining)),
            Text(Message("documents.loses", losses=_told(losing)), row=_of_matrix(losing)),
            *_cause(shown=True),
            *twin.answer(),
            *found_since.answer(second),
            Text(
                Message(
                    "documents.disagree",
                    generated=rates.generated,
                    in_all=rates.in_all,
                    failed=rates.failed,
                    steps=rates.steps,
                    share=100 * fmean(shares),
                ),
                row=f"log-{LOG}",
            ),
            Text(Message("documents.here")),
            Command(["specmeter", "advise", "TARGET.gguf"]),
        ],
        facts=[
            Message(
                "documents.counts",
                claims=len(claims),
                supported=counts.get("supported", 0),
                contradicted=counts.get("contradicted", 0),
                open=counts.get("cannot tell", 0),
            )
        ],
        sections=[
            Section("reconciled", [Tabled(_reconciled(rates, shares))]),
            *twin.section(),
            Section(
                "measured_here",
                [
                    *_cause(shown=False),
                    Chart(partial(_chart, by_clients=False)),
                    Chart(partial(_chart, by_clients=True)),
                    *_above_tokens(),
                    Tabled(_here()),
                ],
            ),
            Section(
                "found_since",
                [
                    Text(Message("documents.since"), at="page"),
                    Tabled(_since(lines)),
                    *found_since.blocks(second),
                ],
            ),
            Section("claims", [Tabled(_ruled(claims), most=20)]),
            Section("rows", [Tabled(it, at="details") for it in (*_rows(), *found_since.rows(), _behind(claims))]),
        ],
        filters={
            "document": [(it, it) for it in dict.fromkeys(name for name, _ in claims)],
            "ruling": [(it, Message(f"ruling.{it}")) for it in counts],
        },
    )


def _of_matrix(lines: Sequence[InMatrix]) -> str:
    """The row of the first of them."""
    return f"matrix-{lines[0].line.config}" if lines else ""


def _told(lines: Sequence[InMatrix]) -> list[Message]:
    return [
        Message("documents.one", name=it.line.config.removeprefix("spec-"), change=quoted(it.change, "%"))
        for it in lines
    ]


def _cause(*, shown: bool) -> Iterator[Text]:
    """Dense against mixture on each machine where it is `shown` to gain less, or is not, and what verifying reads."""
    by_device: dict[str, dict[tuple[str, int], Measured]] = {}
    for it in measured():
        if it.by == "length" and it.verdict == "valid":
            by_device.setdefault(it.device, {})[it.target, it.gamma] = it
    for device, found in by_device.items():
        pairs = [
            (found["dense", gamma], it)
            for (kind, gamma), it in found.items()
            if kind == "moe" and ("dense", gamma) in found and it.experts
        ]
        if not pairs:
            continue
        dense, moe = min(pairs, key=lambda pair: abs(pair[1].gamma - 4))
        assert moe.experts is not None
        if exceeds(dense.speedup, moe.speedup) != shown:
            continue
        longest = max(pairs, key=lambda pair: pair[1].gamma)
        said = Message(
            "documents.cause" if shown else "documents.no_cause",
            device=device,
            gamma=moe.gamma,
            dense=quoted(dense.speedup, "x"),
            moe=quoted(moe.speedup, "x"),
            tokens=moe.gamma + 1,
            union=moe.experts[1] / moe.experts[0],
            longest=longest[1].gamma,
            long_dense=quoted(longest[0].speedup, "x"),
            long_moe=quoted(longest[1].speedup, "x"),
        )
        yield Text(said, row=f"bench-{moe.id}", at="everywhere" if shown else "page")


def _above_tokens() -> Iterator[Text]:
    """Rows whose speedup exceeds the tokens of a step: true where a forward over several tokens costs less than one."""
    above_it = [it for it in measured() if it.verdict == "valid" and above(it.speedup, 1 + it.gamma * it.acceptance)]
    for it in above_it:
        tokens = 1 + it.gamma * it.acceptance
        said = Message(
            "documents.above_tokens",
            arm=f"bench {it.target}",
            device=it.device,
            gamma=it.gamma,
            speedup=quoted(it.speedup, "x"),
            tokens=tokens,
            n=it.gamma + 1,
            forward=tokens / it.speedup.point,
        )
        yield Text(said, row=f"bench-{it.id}", at="page")


# --- tables -----------------------------------------------------------------------------------------------------------


def _table(name: str, columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    return Table(name, tuple(columns), rows, Message(f"documents.table.{name}"))


def _column(key: str, kind: Kind = "text") -> Column:
    return Column(key, kind, Message(f"documents.column.{key}"))


def _reconciled(rates: _TwoRates, shares: Sequence[float]) -> Table:
    """A row for each reason why the documents disagree, and how much it makes."""
    logs = [it for it in tables.cells(_LOGS) if it["steps"] and it["failed_forwards"]]
    failing = [int(it["failed_forwards"]) / int(it["steps"]) for it in logs]
    log = f"log-{LOG}"
    rows = [
        (
            "rate",
            Message("documents.rate.size", generated=rates.generated, in_all=rates.in_all),
            log,
            {"tokens": rates.tokens, "decode_s": rates.decode_s, "all_tokens": rates.all_tokens, "all_s": rates.all_s},
        ),
        (
            "failed",
            Message("documents.failed.size", failed=rates.failed, steps=rates.steps),
            log,
            {"logs": len(logs), "low": 100 * min(failing), "high": 100 * max(failing)},
        ),
        (
            "checkpoints",
            Message("documents.checkpoints.size", share=100 * fmean(shares)),
            "timed-0",
            {"passes": len(shares)},
        ),
    ]
    columns = tuple(map(_column, ("cause", "what_happened", "documents", "how_much")))
    return _table(
        "reconciled",
        columns,
        [
            Row(
                (
                    Cell(Message(f"documents.{name}")),
                    Cell(Message(f"documents.{name}.happened", **values), row="run" if name == "rate" else row),
                    Cell(Message(f"documents.{name}.whose")),
                    Cell(size, row=row),
                )
            )
            for name, size, row, values in rows
        ],
    )


def _here() -> Table:
    columns = (
        Column("target"),
        replace(_column("device"), narrow="drop"),
        replace(Column("run"), narrow="drop"),
        Column("clients", "number"),
        Column("gamma", "number"),
        Column("speedup", "number"),
        _column("accepted", "number"),
        _column("experts", "number"),
        Column("verdict"),
    )
    return _table(
        "measured_here",
        columns,
        [
            Row(
                (
                    Cell(it.model, code=True),
                    Cell(it.device),
                    Cell(it.run),
                    Cell(str(it.clients), it.clients),
                    Cell(str(it.gamma), it.gamma),
                    _linked(estimate_cell(it.speedup, 2), f"bench-{it.id}"),
                    _linked(Cell(f"{100 * it.acceptance:.0f}", it.acceptance), f"bench-{it.id}"),
                    _linked(
                        Cell(f"{it.experts[1] / it.experts[0]:.1f}", it.experts[1] / it.experts[0]), f"bench-{it.id}"
                    )
                    if it.experts
                    else Cell("-"),
                    Cell(Message(f"verdict.{it.verdict}")),
                )
            )
            for it in measured()
        ],
    )


def _chart(*, by_clients: bool) -> Figure | None:
    """Speedup by draft length or by number of clients: dense beside mixture, a panel for each machine."""
    points = tuple(
        Point(
            y=it.speedup.point,
            low=it.speedup.low,
            high=it.speedup.high,
            x=float(it.clients if by_clients else it.gamma),
            series=f"bench {it.target}",
            facet=it.device,
        )
        for it in measured()
        if it.by == ("load" if by_clients else "length")
    )
    key = "by-clients" if by_clients else "by-length"
    figure = StudyFigure(
        key=key,
        title=Message(f"documents.{key}"),
        kind="lines",
        x=Axis(title=Message("documents.clients" if by_clients else "documents.gamma")),
        y=Axis(title=Message("speedup"), ratio=True),
        series_title=Message("target"),
        points=points,
    )
    return drawn(figure, "measured", key) if points else None


def _since(lines: Sequence[InMatrix]) -> Table:
    columns = (Column("arm"), _column("change", "number"), _column("accepted", "number"))
    rows = [
        Row(
            (
                Cell(it.line.config, code=True),
                _linked(estimate_cell(it.change, 1), f"matrix-{it.line.config}"),
                _linked(_percent(it.line.acceptance), f"matrix-{it.line.config}"),
            )
        )
        for it in lines
    ]
    return _table("found_since", columns, rows)


def _percent(share: Estimate | None) -> Cell:
    return Cell("-") if share is None else Cell(f"{100 * share.point:.0f}", share.point)


def _linked(cell: Cell, row: str) -> Cell:
    return replace(cell, row=row)


def _ruled(claims: Sequence[tuple[str, ClaimRuling]]) -> Table:
    columns = (Column("document"), Column("claim"), Column("ruling"), Column("found", narrow="drop"))
    rows = [
        Row(
            (
                Cell(name),
                Cell(claim.claim),
                Cell(Message(f"ruling.{claim.ruling}"), tone=_TONES.get(claim.ruling, "faint")),
                Cell(claim.told, row=f"claim-{name}-{claim.id}"),
            ),
            filed={"document": name, "ruling": claim.ruling},
        )
        for name, claim in claims
    ]
    return Table("claims", columns, rows)


def _behind(claims: Sequence[tuple[str, ClaimRuling]]) -> Table:
    """The numbers that each ruling says, unrounded, and where the claim stands."""
    columns = (Column("document"), *(Column(f"source_{it}", title=it) for it in ("id", "where", "numbers")))
    rows = [
        Row(
            (Cell(name), Cell(claim.id, code=True), Cell(claim.where), Cell("; ".join(_numbers(claim.found)) or "-")),
            id=f"claim-{name}-{claim.id}",
        )
        for name, claim in claims
    ]
    return _table("rows_claims", columns, rows)


def _numbers(said: Message) -> Iterator[str]:
    for name, value in said.values.items():
        for it in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(it, Message):
                yield from _numbers(it)
            elif isinstance(it, (int, float)):
                yield f"{name} {it:.6g}"


def _rows() -> Iterator[Table]:
    """The rows of data that numbers of the page link to."""
    logs = [it for it in tables.cells(_LOGS) if it["steps"]]
    yield rows_of_data(
        "rows_logs",
        logs,
        [f"log-{it['source_place']}" for it in logs],
        (
            "source_place",
            "decode_rate",
            "baseline_rate",
            "predicted_n",
            "predicted_ms",
            "prompt_n",
            "drafted",
            "accepted",
            "steps",
            "failed_forwards",
        ),
    )
    printed = ("source_place", "decode_rate", "rate_window", "baseline_rate", "predicted_n", "prompt_n", "wall_ms")
    yield rows_of_data("rows_run", [_printed()], ["run"], printed)
    matrix_rows = [it for it in tables.cells("rtx3090-aug/matrix.csv") if it["run"] == BLOCKED[0]]
    names = [it["label"].partition(", ")[0] for it in matrix_rows]
    yield rows_of_data(
        "rows_matrix",
        matrix_rows,
        [f"matrix-{it}" for it in names],
        ("source_place", "decode_rate", "baseline_rate", "change_percent", "ci_low", "ci_high", "drafted", "accepted"),
    )
    timers = tables.cells("rtx3090-aug/checkpoints.csv")
    yield rows_of_data(
        "rows_timers",
        timers,
        [f"timed-{place}" for place in range(len(timers))],
        (
            "source_place",
            "decode_rate",
            "baseline_rate",
            "created",
            "restored",
            "create_s",
            "restore_target_s",
            "restore_draft_s",
        ),
    )
    if own := own_rows("bench.csv"):
        yield rows_of_data("rows_bench", own, [f"bench-{it['id']}" for it in own], tuple(own[0])[1:])
    yield from twin.source()


def _as_data(claims: Sequence[tuple[str, ClaimRuling]]) -> dict[str, object]:
    return {
        "claims": [{"study": name, **claim.model_dump(mode="json")} for name, claim in claims],
        "measured": [it.model_dump(mode="json") for it in measured()],
    }
