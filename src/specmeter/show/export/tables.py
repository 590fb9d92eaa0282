"""Every table of a run: its columns, and where its rows are found.

Rates are computed by `specmeter.numbers.rates`, never taken from the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

from specmeter.analysis.load.figures import CellFigures, measured_cells
from specmeter.analysis.positions import AcceptedLength, ArmPositions, PositionRate, positions
from specmeter.analysis.prediction.outcomes import PredictionOutcome
from specmeter.analysis.reading import RunReport, certified, read_run
from specmeter.analysis.summary import ArmSummary, KindSummary
from specmeter.errors import UsageError
from specmeter.numbers import rates
from specmeter.numbers.estimates import bare
from specmeter.numbers.reconciled import Reconciled, acceptance_record, reconciled
from specmeter.probe.draft_lengths import DraftLength, draft_lengths
from specmeter.record import (
    EngineIdentity,
    Estimate,
    ExpertUnion,
    Finding,
    Margin,
    Prediction,
    Prompt,
    Reply,
    Request,
    RequestEnergy,
    Sending,
    Session,
    Step,
    Telemetry,
    TextRouting,
    Timings,
    Verdict,
)
from specmeter.record.verdict import request_verdicts, worst
from specmeter.show.export.columns import ColumnType, ExportColumn, columns_of, estimated
from specmeter.store import RunReader
from specmeter.theory.roofline import expected_union


class _Attempt(NamedTuple):
    """Source of a row of `requests`."""

    attempt: int
    request: Request
    verdict: Verdict | None


class _StepOf(NamedTuple):
    """Source of a row of `steps`."""

    attempt: int
    request: Request
    number: int
    step: Step


class _EnergyOf(NamedTuple):
    """Source of a row of `energy`."""

    energy: RequestEnergy
    joules: float
    tokens: int | None


class _Summed(NamedTuple):
    """Source of a row of `summary`."""

    run: RunReport
    arm: ArmSummary
    kind: str
    part: KindSummary

    @property
    def cited(self) -> Estimate | None:
        return self.part.speedup if self.kind else self.run.cited(self.arm)


class _Placed(NamedTuple):
    """Source of a row of `positions` or `accepted_lengths`; without an item where the engine shows no steps."""

    arm: ArmPositions
    item: PositionRate | AcceptedLength | None


class _Union(NamedTuple):
    """Source of a row of `routing`; without an estimate where it was not read."""

    routing: TextRouting
    layer: int | None
    tokens: int | None
    union: Estimate | None

    @property
    def of(self) -> ExpertUnion | None:
        return self.routing.union

    @property
    def uniform(self) -> float | None:
        if self.of is None or self.tokens is None:
            return None
        return expected_union(float(self.tokens), self.of.experts, self.of.used)


class ExportTable(NamedTuple):
    """A kind of table."""

    columns: tuple[ExportColumn, ...]
    rows: Callable[[RunReader], Iterable[Any]]
    """Sources of its rows, one at a time."""


def _reply(source: _Attempt) -> Reply | None:
    return source.request.reply


def _timings(source: _Attempt) -> Timings | None:
    return source.request.reply.timings if source.request.reply else None


def _reconciled(source: _Attempt) -> Reconciled | None:
    return reconciled(source.request.reply) if source.request.reply else None


def _derived(
    name: str, kind: ColumnType, description: str, rule: Callable[[Reply], int | float | None]
) -> ExportColumn:
    def read(source: _Attempt) -> int | float | None:
        return rule(source.request.reply) if source.request.reply else None

    return ExportColumn(name, kind, description, read)


_ATTEMPT = ExportColumn(
    "attempt",
    "integer",
    "Number of the attempt, from 1; failed attempts stay in the run folder.",
    lambda source: source.attempt,
)

_REQUESTS = (
    *columns_of(Request, lambda source: source.request, leave={"reply"}),
    _ATTEMPT,
    ExportColumn(
        "verdict",
        "text",
        "`valid`, `suspect` or `invalid`: the worst of the request and its configuration; empty before a check.",
        lambda source: source.verdict,
    ),
    *columns_of(Timings, _timings),
    _derived(
        "decode_tok_s",
        "number",
        "(predicted_n - 1) / predicted_ms, per second.",
        lambda reply: rates.decode_rate(reply.timings),
    ),
    _derived(
        "prompt_tok_s", "number", "prompt_n / prompt_ms, per second.", lambda reply: rates.prompt_rate(reply.timings)
    ),
    _derived("acceptance", "number", "draft_n_accepted / draft_n.", lambda reply: rates.acceptance_rate(reply.timings)),
    _derived(
        "tau", "number", "Tokens per forward pass of the target.", lambda reply: rates.tau(reply.timings, reply.steps)
    ),
    _derived(
        "target_forwards",
        "integer",
        "Forward passes of the target after the prompt.",
        lambda reply: rates.target_forwards(reply.timings, reply.steps),
    ),
    *columns_of(Reconciled, _reconciled, prefix="reconciled_"),
    ExportColumn(
        "spec_decode_acceptance",
        "json",
        "Acceptance record in the format of NVIDIA's AIPerf, if the steps are known.",
        lambda source: acceptance_record(source.request.reply) if source.request.reply else None,
    ),
    _derived("step_n", "integer", "Number of recorded steps (table `steps`).", lambda reply: len(reply.steps)),
    *columns_of(Reply, _reply, leave={"timings", "steps"}),
)

_STEP_KEYS = ("invocation", "block", "arm_id", "prompt_id")
_STEPS = (
    *columns_of(Request, lambda source: source.request, leave=Request.model_fields.keys() - set(_STEP_KEYS)),
    _ATTEMPT,
    ExportColumn("step", "integer", "Number of the step in its request, from 0.", lambda source: source.number),
    *columns_of(Step, lambda source: source.step),
)


def _attempts(store: RunReader) -> Iterator[_Attempt]:
    certificate, findings = certified(store)
    own = request_verdicts(findings)
    for attempt, request in store.attempts(superseded=False):
        verdict: Verdict | None = None
        if certificate is not None:
            key = (request.invocation, request.block, request.arm_id, request.prompt_id)
            verdict = worst((own.get(key, "valid"), certificate.arms.get(request.arm_id, "invalid")))
        yield _Attempt(attempt, request, verdict)


def _steps(store: RunReader) -> Iterator[_StepOf]:
    for attempt, request in store.attempts(superseded=False):
        for number, step in enumerate(request.reply.steps if request.reply else ()):
            yield _StepOf(attempt, request, number, step)


def _energies(store: RunReader) -> Iterator[_EnergyOf]:
    tokens: dict[tuple[int, int, str, str], int | None] = {row.key: row.predicted_n for row in store.rows()}
    for it in store.energies():
        key = (it.invocation, it.block, it.arm_id, it.prompt_id)
        yield _EnergyOf(it, sum(it.joules.values()), tokens.get(key))


def _sums(store: RunReader) -> Iterator[_Summed]:
    run = read_run(store.folder)
    for arm in run.summary.arms:
        yield from (_Summed(run, arm, kind, part) for kind, part in {"": arm, **arm.kinds}.items())


def _outcomes(store: RunReader) -> Iterator[PredictionOutcome]:
    return iter(read_run(store.folder).predictions if store.predictions() else ())


def _load_cells(store: RunReader) -> Iterator[CellFigures]:
    return (cell.figures for cell in measured_cells(store))


def _placed(store: RunReader) -> Iterator[_Placed]:
    for arm in positions(store):
        yield from (_Placed(arm, place) for place in arm.positions or (None,))


def _accepted_lengths(store: RunReader) -> Iterator[_Placed]:
    for arm in positions(store):
        yield from (_Placed(arm, length) for length in arm.lengths or (None,))


def _over(figures: CellFigures, above: str, below: str, scale: float) -> float | None:
    """A ratio of two numbers of a cell; None where one is missing."""
    over, under = getattr(figures, above), getattr(figures, below)
    return None if over is None or not under else scale * over / under


def _unions(store: RunReader) -> Iterator[_Union]:
    for routing in store.routing():
        if routing.union is None:
            yield _Union(routing, None, None, None)
            continue
        for place, point in enumerate(routing.union.points):
            yield _Union(routing, None, point.tokens, point.union)
            for layer, unions in routing.layers.items():
                mean = bare(unions[place], "experts", "mean over texts", n=point.union.n)
                yield _Union(routing, layer, point.tokens, mean)


_PREDICTIONS = (
    *columns_of(Prediction, lambda outcome: outcome.prediction, leave={"speedup"}),
    *estimated("predicted", "Predicted speedup.", lambda it: it.prediction.speedup),
    *estimated("measured", "Measured speedup; empty if there is no trustworthy one.", lambda it: it.measured),
    ExportColumn("error", "number", "predicted / measured - 1.", lambda it: it.error),
    ExportColumn("inside", "boolean", "Whether the measured value is in the predicted interval.", lambda it: it.inside),
)

_SUMMARY = (
    ExportColumn("arm_id", "text", "Id of the configuration.", lambda it: it.arm.arm_id),
    ExportColumn("baseline_id", "text", "Id of its baseline.", lambda it: it.arm.baseline_id),
    ExportColumn("kind", "text", "Prompt type; empty: all prompts.", lambda it: it.kind),
    ExportColumn(
        "verdict",
        "text",
        "`valid`, `suspect` or `invalid`; empty before a check.",
        lambda it: it.run.certificate and it.run.certificate.arms.get(it.arm.arm_id),
    ),
    *estimated("decode_tok_s", "Tokens per second while decoding.", lambda it: it.part.decode_rate),
    *estimated(
        "speedup",
        "Speedup with the interval to cite (corrected for picking the best; not if none helps, nor per prompt type).",
        lambda it: it.cited,
    ),
    *estimated("speedup_alone", "The same without that correction.", lambda it: it.part.speedup),
    *estimated(
        "with_prompt", "Speedup including prompt processing.", lambda it: it.part.gain and it.part.gain.with_prompt
    ),
    *estimated("acceptance", "Accepted / draft tokens, interval over prompts.", lambda it: it.part.acceptance),
    *estimated("tau", "Tokens per forward pass of the target, interval over prompts.", lambda it: it.part.tau),
    ExportColumn("n", "integer", "Number of blocks (or invocations).", lambda it: it.cited and it.cited.n),
)

_POSITIONS = (
    *columns_of(ArmPositions, lambda it: it.arm, leave={"positions", "lengths"}),
    *columns_of(PositionRate, lambda it: it.item, leave={"conditional", "unconditional"}),
    *estimated(
        "conditional",
        "Accepted / reached, interval over prompts; empty if no step got there.",
        lambda it: it.item and it.item.conditional,
    ),
    *estimated(
        "unconditional",
        "Accepted / all drafts, including shorter ones; interval over prompts.",
        lambda it: it.item and it.item.unconditional,
    ),
)

_ACCEPTED_LENGTHS = (
    *columns_of(ArmPositions, lambda it: it.arm, leave={"positions", "lengths"}),
    *columns_of(AcceptedLength, lambda it: it.item, leave={"share"}),
    *estimated(
        "share", "Share of all steps with a draft, interval over prompts.", lambda it: it.item and it.item.share
    ),
)

_SERVED = tuple(
    ExportColumn(
        name, "number", description, lambda it, above=above, below=below, scale=scale: _over(it, above, below, scale)
    )
    for name, description, above, below, scale in (
        ("throughput_tok_s", "tokens / window_ms, per second.", "tokens", "window_ms", 1000.0),
        ("decode_throughput_tok_s", "full_tokens / full_ms, per second.", "full_tokens", "full_ms", 1000.0),
        ("per_client_tok_s", "decode_tokens / decode_ms, per second.", "decode_tokens", "decode_ms", 1000.0),
        ("requests_per_s", "requests_done / window_ms, per second.", "requests_done", "window_ms", 1000.0),
        ("goodput_per_s", "requests_good / window_ms, per second.", "requests_good", "window_ms", 1000.0),
        ("in_flight", "request_ms / window_ms.", "request_ms", "window_ms", 1.0),
        ("window_share", "window_ms / duration_ms.", "window_ms", "duration_ms", 1.0),
    )
)
_MEASURES = {
    "ttft": "Time to first token, counted from when the request was due",
    "ttft_sent": "Time to first token, counted from when the request was sent",
    "tpot": "Time per output token",
    "itl": "Inter-token latency",
    "e2el": "End-to-end latency, from sending to the last token",
}
_LATENCIES = tuple(
    ExportColumn(
        f"{measure}_{name}",
        "number",
        f"{told}: {which}.",
        lambda it, m=measure, n=name: getattr(getattr(it, m), n, None),
    )
    for measure, told in _MEASURES.items()
    for name, which in (
        ("mean_ms", "mean"),
        ("p50_ms", "median"),
        ("p95_ms", "95th percentile"),
        ("p99_ms", "99th percentile"),
    )
)
_LOAD = (*columns_of(CellFigures, leave=set(_MEASURES)), *_LATENCIES, *_SERVED)

_ROUTING = (
    *columns_of(TextRouting, lambda it: it.routing, leave={"tokens", "union", "layers"}),
    ExportColumn("read_tokens", "integer", "Tokens of these outputs.", lambda it: it.routing.tokens),
    ExportColumn("layer", "integer", "Layer; empty: mean over all layers.", lambda it: it.layer),
    ExportColumn("tokens", "integer", "n, the number of consecutive tokens.", lambda it: it.tokens),
    *estimated("union", "Distinct experts that n tokens choose in a layer.", lambda it: it.union),
    ExportColumn("uniform", "number", "The same for uniform random routing.", lambda it: it.uniform),
    ExportColumn("experts", "integer", "Experts in a layer.", lambda it: it.of and it.of.experts),
    ExportColumn("used", "integer", "Experts chosen per token.", lambda it: it.of and it.of.used),
)


TABLES: dict[TableName, ExportTable] = {
    "requests": ExportTable(_REQUESTS, _attempts),
    "summary": ExportTable(_SUMMARY, _sums),
    "sessions": ExportTable(
        (
            *columns_of(Session, leave={"engine"}),
            *columns_of(EngineIdentity, lambda session: session.engine, prefix="engine_", leave={"traits"}),
        ),
        RunReader.sessions,
    ),
    "steps": ExportTable(_STEPS, _steps),
    "telemetry": ExportTable(tuple(columns_of(Telemetry)), RunReader.telemetry),
    "prompts": ExportTable(tuple(columns_of(Prompt)), RunReader.prompts),
    "findings": ExportTable(
        (
            *columns_of(Finding),
            ExportColumn("code", "text", "Id of the message, the same in every language.", lambda it: it.message.code),
        ),
        RunReader.findings,
    ),
    "energy": ExportTable(
        (
            *columns_of(RequestEnergy, lambda source: source.energy),
            ExportColumn("energy_j", "number", "Joules of all sources.", lambda source: source.joules),
            ExportColumn("tokens", "integer", "Tokens generated, including the first.", lambda source: source.tokens),
            ExportColumn(
                "j_per_token",
                "number",
                "energy_j / tokens; empty if nothing was generated.",
                lambda source: source.joules / source.tokens if source.tokens else None,
            ),
        ),
        _energies,
    ),
    "margins": ExportTable(tuple(columns_of(Margin)), RunReader.margins),
    "predictions": ExportTable(_PREDICTIONS, _outcomes),
    "profiles": ExportTable(tuple(columns_of(DraftLength)), draft_lengths),
    "positions": ExportTable(_POSITIONS, _placed),
    "accepted_lengths": ExportTable(_ACCEPTED_LENGTHS, _accepted_lengths),
    "routing": ExportTable(_ROUTING, _unions),
    "load": ExportTable(_LOAD, _load_cells),
    "sendings": ExportTable(tuple(columns_of(Sending)), RunReader.sendings),
}


def find(name: str) -> ExportTable:
    """A table by its name. Raises `UsageError` for an unknown one."""
    for known, table in TABLES.items():
        if known == name:
            return table
    raise UsageError(f"{name}: no such table", fix=f"use one of {', '.join(TABLES)}")


TableName = Literal[
    "requests",
    "summary",
    "sessions",
    "steps",
    "telemetry",
    "prompts",
    "findings",
    "energy",
    "margins",
    "predictions",
    "profiles",
    "positions",
    "accepted_lengths",
    "routing",
    "load",
    "sendings",
]
