"""The reports of a probe and of a text's routing: what they mean, then their numbers and the models that fit them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from specmeter.messages import Message
from specmeter.numbers.estimates import above, below
from specmeter.probe.doubts import suspicions
from specmeter.probe.reading import batch_sentence, cycle, fits, sentence, surface_fits, surface_of, told_apart
from specmeter.show.report import Report, Section, Tabled, Text
from specmeter.show.table import Cell, Column, Row, Table, estimate_cell, numbers, row
from specmeter.text import estimated, milliseconds, percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from specmeter.probe.record import Probe
    from specmeter.probe.routing import RandomTokens, RoutingSummary
    from specmeter.record import Estimate, ModelIdentity
    from specmeter.show.report import Block
    from specmeter.theory.curves import CostFit, CostSurface, SurfaceFit


def report(probe: Probe, path: Path) -> Report:
    """A probe that is kept in a file."""
    models, doubts, surface = fits(probe), suspicions(probe), surface_of(probe)
    threads, busy = probe.settings.threads, next((it for it in doubts if it.code == "probe-doubt.busy"), None)
    how = Message(
        "probed.how",
        model=probe.target.reference,
        cpu=probe.host.cpu,
        threads=Message("probed.threads", count=threads) if threads else Message("probed.all_cores"),
        depth=probe.depth,
        source=Message(f"probed.{probe.source}"),
        engine=probe.engine.version,
    )

    def document() -> dict[str, object]:
        curve = probe.target_ms
        told: dict[str, object] = {
            "file": str(path),
            "suspicions": list(doubts),
            "probe": probe.model_dump(mode="json"),
            "verification": [
                curve.verification_estimate(point.tokens - 1).model_dump(mode="json") for point in curve.points
            ],
            "fits": [_as_json(fit) for fit in models],
            "sentence": sentence(probe),
            "cycle": None if (line := cycle(probe)) is None else asdict(line),
        }
        if surface is not None:
            told["surface"] = {
                "sentence": batch_sentence(surface),
                "target_efficiency": [
                    {
                        "sequences": point.sequences,
                        "tokens": point.tokens,
                        **surface.target_efficiency(point.sequences, point.tokens - 1).model_dump(mode="json"),
                    }
                    for point in probe.batches
                ],
                "fits": [_as_json(fit) for fit in surface_fits(probe)],
            }
        return told

    return Report(
        target=probe.target.reference,
        headline=sentence(probe) if busy is None else busy,
        document=document,
        sections=[
            Section("probe", [Text(how), *([] if busy is None else [Text(sentence(probe), "doubtful")])]),
            Section("probe", [Tabled(_curve(probe, models), caption=False), *_parts(probe)]),
            Section("probe", _fitted("fits", models)),
            *([] if surface is None else _surface(probe, surface)),
        ],
        closing=[
            *([Text(_again(probe))] if probe.disturbed_percent else []),
            *(Text(Message("probed.suspect", doubt=it), "doubtful") for it in doubts),
            *([Text(Message("probed.unused"))] if doubts else []),
            Text(Message("probed.kept", path=str(path)), at="screen", whole=True),
        ],
    )


def _again(probe: Probe) -> Message:
    shares = [percent(share / 100) for share in probe.disturbed_percent]
    return Message("probed.again", times=len(shares) + 1, shares=shares)


def warnings(probe: Probe, name: str) -> list[Message]:
    """What is said of a probe that was named though it is suspect; it is used all the same."""
    return [Message("probed.warning", name=name, doubt=doubt) for doubt in suspicions(probe)]


def _curve(probe: Probe, models: Sequence[CostFit]) -> Table:
    rows = [
        row(
            str(point.tokens),
            _number(point.ms),
            _number(probe.target_ms.verification_estimate(point.tokens - 1)),
            f"{point.ms.point / point.tokens:.2f}",
            *(percent(model.residuals[place], 1, signed=True) for model in models[:1]),
        )
        for place, point in enumerate(probe.target_ms.points)
    ]
    columns = (
        *numbers("n", "T(n) ms", "v = T(n)/T(1)"),
        Column("ms_per_token", "number"),
        *(Column("fit", "number", Message("probed.fit", model=model.model), narrow="drop") for model in models[:1]),
    )
    return Table("curve", columns, rows)


def _parts(probe: Probe) -> Iterator[Block]:
    """What whole cycles, the draft and the rest of a step take, and which experts are read."""
    if (line := cycle(probe)) is not None:
        fails: Message | str = ""
        if line.fails_at is not None:
            code = "probed.line.below" if line.off < 0 else "probed.line.above"
            fails = Message(code, width=line.fails_at, off=abs(line.off))
        drafts = Message("probed.line.drafts" if probe.draft_ms is not None else "probed.line.free")
        known = {"k0": line.k0, "c": line.c, "first": line.first, "last": line.last, "r2": line.r2}
        yield Text(Message("probed.line", **known, drafts=drafts, fails=fails))
    if probe.draft_ms is not None and probe.draft is not None:
        points = [
            Message("probed.at", n=it.tokens, value=estimated(it.ms, 3, exact=True)) for it in probe.draft_ms.points
        ]
        yield Text(Message("probed.draft", draft=probe.draft.reference, points=points))
    if probe.overhead_ms is not None:
        yield Text(Message("probed.rest", ms=estimated(probe.overhead_ms, 3, " ms", exact=True)))
    if (union := probe.union) is not None:
        points = [Message("probed.at", n=it.tokens, value=f"{it.union.point:.1f}") for it in union.points]
        yield Text(Message("probed.union", experts=union.experts, used=union.used, points=points))


def _fitted(name: str, models: Sequence[CostFit | SurfaceFit]) -> list[Block]:
    """The models that fit, the best first."""
    if not models:
        return []
    rows = [
        row(
            model.model,
            _formula(model.model, model.parameters, curve=name == "fits"),
            percent(model.rms, 1),
            percent(max(model.residuals, key=abs), 1, signed=True),
            f"{model.aicc:.1f}",
        )
        for model in models
    ]
    columns = (
        *(Column("model"), Column("formula", title=Message(f"column.formula.{name}"))),
        *(Column(key, "number") for key in ("typical_residual", "largest_residual")),
        *numbers("AICc"),
    )
    alike = [] if told_apart(models) else [Text(Message("probed.alike"))]
    return [Tabled(Table(name, columns, rows), caption=False), *alike]


def _formula(model: str, parameters: dict[str, float], *, curve: bool) -> str:
    known = {name: f"{value:.3g}" for name, value in parameters.items()}
    if not curve:
        return ", ".join(f"{name} {value}" for name, value in known.items())
    more = {"roofline": "{slope} max(0, n - {knee})", "experts": "{slope} n + {expert} U(n)"}.get(model, "{slope} n")
    return f"{{floor}} + {more}".format(**known)


def _surface(probe: Probe, surface: CostSurface) -> Iterator[Section]:
    """T(b, n): a row for each b, with what verification then costs, and the models that fit."""
    counts = sorted({point.tokens for point in probe.batches})
    unions = {(point.sequences, point.tokens): point.union for point in probe.batches}
    memory = Message("probed.unified" if probe.kv_unified else "probed.streams")
    about = Text(Message("probed.surface", memory=memory, depth=surface.depth))
    yield Section("several", [about, Text(batch_sentence(surface))])
    times: list[Row] = []
    shares: list[Row] = []
    read: list[Row] = []
    for b, _ in surface.curves:
        measured = [n for n in counts if surface.covers(b, n)]
        blank = [""] * (len(counts) - len(measured))
        found = [surface.estimate(b, n) for n in measured]
        rate = f"{1000 * b / found[0].point:.1f}"
        efficiencies = (estimate_cell(surface.target_efficiency(b, n - 1), 2) for n in measured[1:])
        times.append(row(str(b), *(estimate_cell(ms, 1) for ms in found), *blank, rate))
        shares.append(row(str(b), *efficiencies, *blank))
        read.append(row(str(b), *(f"{it.point:.1f}" if (it := unions[b, n]) else "" for n in measured), *blank))
    ms = numbers("b", *(f"T(b, {n}) ms" for n in counts))
    by_n = numbers("b", *(f"n = {n}" for n in counts))
    yield Section("several", [Tabled(Table("batches", (*ms, Column("plain_rate", "number")), times), caption=False)])
    experts = [Tabled(Table("unions", by_n, read))] if any(unions.values()) else []
    yield Section("several", [Tabled(Table("efficiency", (by_n[0], *by_n[2:]), shares)), *experts])
    yield Section("several", _fitted("surface_fits", surface_fits(probe)))


def _number(found: Estimate) -> Cell:
    """A number, with its interval where it has one."""
    return Cell(f"{found.point:.2f}", found.point) if found.low is None else estimate_cell(found, 2)


def _as_json(fit: CostFit | SurfaceFit) -> dict[str, object]:
    return {"model": fit.model, "parameters": fit.parameters, "residuals": fit.residuals, "rms": fit.rms}


# --- routing ---------------------------------------------------------------------------------------------------------


def routing(model: ModelIdentity, found: RoutingSummary, path: Path) -> Report:
    """Unions beside uniform routing, overlap and balance."""
    sizes = {"experts": found.experts, "used": found.used, "layers": found.layers}
    random = [] if found.random is None else [Section("routing", [Text(_on_random_tokens(found, found.random))])]
    return Report(
        target=model.reference,
        headline=Message("routed.of", model=model.reference, tokens=found.tokens, segments=found.segments, **sizes),
        document=lambda: {"file": str(path), "routing": found.model_dump(mode="json")},
        sections=[
            Section("routing", [Tabled(unions(found), caption=False)]),
            Section("routing", [Text(it) for it in _read(found)]),
            *random,
        ],
        closing=[Text(Message("probed.kept", path=str(path)), at="screen", whole=True)],
    )


def unions(found: RoutingSummary) -> Table:
    """Different experts that n consecutive tokens choose, beside uniform routing."""
    rows = [
        row(
            str(point.tokens),
            _number(point.union),
            f"{uniform:.2f}",
            percent(point.union.point / uniform),
            *(() if found.random is None else (f"{found.random.union.points[place].union.point:.2f}",)),
        )
        for place, (point, uniform) in enumerate(zip(found.union.points, found.uniform, strict=True))
    ]
    keys = ("experts_read", "experts_uniform", "share", *(() if found.random is None else ("random_tokens",)))
    return Table("experts", (*numbers("n"), *(Column(key, "number") for key in keys)), rows)


def _read(found: RoutingSummary) -> Iterator[Message]:
    """How consecutive tokens overlap, and how evenly experts are chosen."""
    for fit in found.overlaps:
        yield Message(f"routed.overlap.{fit.model}", parameter=fit.parameter, rms=fit.rms)
    yield Message("routed.shared", shared=found.shared, either=found.neighbours)
    entropies, largest = [it.entropy for it in found.loads], [it.largest for it in found.loads]
    yield Message(
        "routed.balance",
        entropies=_range(entropies, 2),
        largest=_range(largest, 1),
        unused=sum(load.unused for load in found.loads),
        all=found.experts * found.layers,
    )
    hottest = [Message("routed.hot", layer=hot.layer, expert=hot.expert, load=hot.load) for hot in found.hottest]
    yield Message("routed.hottest", experts=hottest)


def _on_random_tokens(found: RoutingSummary, random: RandomTokens) -> Message:
    """What random tokens choose and how fast they are."""
    rate, times = random.faster, Message("routed.too_short")
    if rate is not None and random.text_ms is not None and random.random_ms is not None:
        shown = "faster" if above(rate, 1.0) else "slower" if below(rate, 1.0) else "alike"
        times = Message(
            "routed.times",
            random=milliseconds(random.random_ms.point),
            text=milliseconds(random.text_ms.point),
            rates=Message(f"routed.{shown}", rate=estimated(rate, 2, exact=True)),
        )
    return Message(
        "routed.random",
        chosen=_range(random.chosen, 0),
        experts=found.experts,
        by_text=_range(random.chosen_by_text, 0),
        shared=random.shared,
        of_text=found.shared,
        times=times,
    )


def _range(values: Sequence[float], digits: int) -> str | Message:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else Message("routed.range", low=low, high=high)
