"""Every table of a run: its columns, and where its rows are found.

Rates are computed by `specmeter.numbers.rates`, never taken from the engine.

What a column of a table is, and how columns follow from the fields of records.

A new field of a record is a new column, with the field's docstring as its description. Nested records are JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, cast, get_args, get_origin

from specmeter.analysis.load.summary import CellFigures, measured_cells
from specmeter.analysis.positions import AcceptedLength, ArmPositions, PositionRate, positions
from specmeter.analysis.prediction.forecast import PredictionOutcome
from specmeter.analysis.reading import certified, read_run
from specmeter.errors import UsageError
from specmeter.numbers import rates
from specmeter.numbers.estimates import bare
from specmeter.probe.draft_lengths import DraftLength, draft_lengths
from specmeter.record import (
    EngineIdentity,
    Estimate,
    ExpertUnion,
    Finding,
    Margin,
    Prediction,
    Prompt,
    Record,
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
from specmeter.record.base import descriptions
from specmeter.record.verdict import request_verdicts, worst
from specmeter.show.export import TableName
from specmeter.store import RunReader
from specmeter.theory.experts import expected_union

ColumnType = Literal["integer", "number", "boolean", "text", "integers", "numbers", "json"]


@dataclass(frozen=True)
class ExportColumn:
    """One column: how it is called, what it holds, and where that is found."""

    name: str
    type: ColumnType
    """`integers` and `numbers` are lists; `json` is anything nested. Any value may be missing (None)."""
    description: str
    read: Callable[[Any], Any]
    """From the source of a row to the value."""


def columns_of(
    record: type[Record], get: Callable[[Any], Any] = lambda it: it, *, leave: Collection[str] = (), prefix: str = ""
) -> Iterator[ExportColumn]:
    """A column for each field; `get` finds the record in the source of a row, None where there is none."""
    told = descriptions(record)
    for name, field in record.model_fields.items():
        if name not in leave:
            kind = _column_type(field.annotation)
            description = " ".join(told.get(name, "").split())
            yield ExportColumn(prefix + name, kind, description, _reader(get, name, plain=kind != "json"))


def estimated(name: str, description: str, get: Callable[[Any], Estimate | None]) -> Iterator[ExportColumn]:
    """An estimate and the ends of its interval."""

    def end(which: Literal["point", "low", "high"]) -> Callable[[Any], float | None]:
        return lambda source: None if (found := get(source)) is None else getattr(found, which)

    yield ExportColumn(name, "number", description, end("point"))
    yield ExportColumn(f"{name}_low", "number", "Lower end of its interval.", end("low"))
    yield ExportColumn(f"{name}_high", "number", "Upper end.", end("high"))


def _reader(get: Callable[[Any], Any], name: str, *, plain: bool) -> Callable[[Any], Any]:
    def read(source: Any) -> Any:
        record = get(source)
        if record is None:
            return None
        value = getattr(record, name)
        return value if plain else _data(value)

    return read


def _data(value: Any) -> Any:
    """JSON data for what is not a plain column: nested records, tuples of them, mappings."""
    if isinstance(value, Record):
        return value.model_dump(mode="json")
    if isinstance(value, tuple | list):
        return [_data(item) for item in cast("Sequence[Any]", value)]
    return value


def _column_type(annotation: Any) -> ColumnType:
    """By the annotation of a field; None counts as a missing value of any type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        kinds: set[ColumnType] = {_column_type(part) for part in arguments if part is not NoneType}
        return kinds.pop() if len(kinds) == 1 else "json"
    if origin is Annotated:
        return _column_type(arguments[0])
    if origin is Literal or annotation is str:
        return "text"
    if origin is tuple:
        kinds: set[ColumnType] = {_column_type(part) for part in arguments if part is not Ellipsis}
        return "integers" if kinds == {"integer"} else "numbers" if kinds == {"number"} else "json"
    plain: dict[Any, ColumnType] = {bool: "boolean", int: "integer", float: "number"}
    return plain.get(annotation, "json")


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
    rows: Callable[[RunReader], Iterator[Any]]
    """Sources of its rows, one at a time."""


def _reply(source: _Attempt) -> Reply | None:
    return source.request.reply


def _timings(source: _Attempt) -> Timings | None:
    return source.request.reply.timings if source.request.reply else None


def _derived(
    name: str, kind: ColumnType, description: str, rule: Callable[[Reply], int | float | None]
) -> ExportColumn:
    def read(source: _Attempt) -> int | float | None:
        return rule(source.request.reply) if source.request.reply else None

    return ExportColumn(name, kind, description, read)


_ATTEMPT = ExportColumn(
    "attempt",
    "integer",
    "1 for the first try; failed tries before it are kept in the run folder.",
    lambda source: source.attempt,
)

_REQUESTS = (
    *columns_of(Request, lambda source: source.request, leave={"reply"}),
    _ATTEMPT,
    ExportColumn(
        "verdict",
        "text",
        "`valid`, `suspect` or `invalid`, the worst of the request and its arm; empty for a run not checked yet.",
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
        "tau", "number", "Tokens emitted per target forward.", lambda reply: rates.tau(reply.timings, reply.steps)
    ),
    _derived(
        "target_forwards",
        "integer",
        "Forwards of the target after the prompt.",
        lambda reply: rates.target_forwards(reply.timings, reply.steps),
    ),
    _derived("step_n", "integer", "Steps recorded; see the table `steps`.", lambda reply: len(reply.steps)),
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


def _outcomes(store: RunReader) -> Iterator[PredictionOutcome]:
    return iter(read_run(store.folder).predictions if store.predictions() else ())


def _margins(store: RunReader) -> Iterator[Margin]:
    return iter(store.margins())


def _lengths(store: RunReader) -> Iterator[DraftLength]:
    return iter(draft_lengths(store))


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


def _load_cells(store: RunReader) -> Iterator[CellFigures]:
    return (cell.figures for cell in measured_cells(store))


def _sendings(store: RunReader) -> Iterator[Sending]:
    return store.sendings()


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
    *estimated("measured", "Measured speedup; empty where there is none that can be believed.", lambda it: it.measured),
    ExportColumn("error", "number", "predicted / measured - 1.", lambda it: it.error),
    ExportColumn(
        "inside", "boolean", "Whether what was measured lies in the predicted interval.", lambda it: it.inside
    ),
)

_POSITIONS = (
    *columns_of(ArmPositions, lambda it: it.arm, leave={"positions", "lengths"}),
    *columns_of(PositionRate, lambda it: it.item, leave={"conditional", "unconditional"}),
    *estimated(
        "conditional",
        "Accepted / reached, interval over prompts; empty where no step got so far.",
        lambda it: it.item and it.item.conditional,
    ),
    *estimated(
        "unconditional",
        "Accepted / drafts, too short ones included; interval over prompts.",
        lambda it: it.item and it.item.unconditional,
    ),
)

_ACCEPTED_LENGTHS = (
    *columns_of(ArmPositions, lambda it: it.arm, leave={"positions", "lengths"}),
    *columns_of(AcceptedLength, lambda it: it.item, leave={"share"}),
    *estimated("share", "Of the steps that had a draft, interval over prompts.", lambda it: it.item and it.item.share),
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
_LATENCIES = tuple(
    ExportColumn(
        f"{measure}_{name}",
        "number",
        f"{told}: {which}.",
        lambda it, m=measure, n=name: getattr(getattr(it, m), n, None),
    )
    for measure, told in (("ttft", "Time to first token"), ("tpot", "Time per output token"))
    for name, which in (("mean_ms", "mean"), ("p50_ms", "median"), ("p95_ms", "95 %"), ("p99_ms", "99 %"))
)
_LOAD = (*columns_of(CellFigures, leave={"ttft", "tpot"}), *_LATENCIES, *_SERVED)

_ROUTING = (
    *columns_of(TextRouting, lambda it: it.routing, leave={"tokens", "union", "layers"}),
    ExportColumn("read_tokens", "integer", "Tokens of these texts.", lambda it: it.routing.tokens),
    ExportColumn("layer", "integer", "Number of the layer; empty for the mean over all.", lambda it: it.layer),
    ExportColumn("tokens", "integer", "n: consecutive tokens.", lambda it: it.tokens),
    *estimated("union", "Distinct experts of a layer that n tokens choose.", lambda it: it.union),
    ExportColumn("uniform", "number", "The same if routing were uniform.", lambda it: it.uniform),
    ExportColumn("experts", "integer", "Experts of a layer to choose from.", lambda it: it.of and it.of.experts),
    ExportColumn("used", "integer", "Experts chosen for a token.", lambda it: it.of and it.of.used),
)


TABLES: dict[TableName, ExportTable] = {
    "requests": ExportTable(_REQUESTS, _attempts),
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
    "findings": ExportTable(tuple(columns_of(Finding)), RunReader.findings),
    "energy": ExportTable(
        (
            *columns_of(RequestEnergy, lambda source: source.energy),
            ExportColumn("energy_j", "number", "Joules of all sources together.", lambda source: source.joules),
            ExportColumn("tokens", "integer", "Tokens generated, the first included.", lambda source: source.tokens),
            ExportColumn(
                "j_per_token",
                "number",
                "energy_j / tokens; empty where nothing was generated.",
                lambda source: source.joules / source.tokens if source.tokens else None,
            ),
        ),
        _energies,
    ),
    "margins": ExportTable(tuple(columns_of(Margin)), _margins),
    "predictions": ExportTable(_PREDICTIONS, _outcomes),
    "profiles": ExportTable(tuple(columns_of(DraftLength)), _lengths),
    "positions": ExportTable(_POSITIONS, _placed),
    "accepted_lengths": ExportTable(_ACCEPTED_LENGTHS, _accepted_lengths),
    "routing": ExportTable(_ROUTING, _unions),
    "load": ExportTable(_LOAD, _load_cells),
    "sendings": ExportTable(tuple(columns_of(Sending)), _sendings),
}


def find(name: str) -> ExportTable:
    """A table by its name. Raises `UsageError` for an unknown one."""
    for known, table in TABLES.items():
        if known == name:
            return table
    raise UsageError(f"{name} is not a table of a run", fix=f"choose one of {', '.join(TABLES)}")
