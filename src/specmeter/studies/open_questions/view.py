"""open-questions: tables and figures. The document has none: these are ours."""

from __future__ import annotations

from collections.abc import Sequence

from specmeter.record import Estimate
from specmeter.studies.moe306.lines import label
from specmeter.studies.open_questions.claims import CONTEXTS, GAMMA, GREEDY, MIXTURES, SAMPLED, drafting, part
from specmeter.studies.study import ArmResult, Axis, Point, StudyCell, StudyData, StudyFigure, StudyTable

_TITLES = {
    GAMMA: "Longer drafts",
    CONTEXTS: "Longer contexts",
    GREEDY: "Temperature 0",
    SAMPLED: "Temperature 0.8",
    MIXTURES: "Mixtures as drafts",
}


def tables(data: StudyData) -> tuple[StudyTable, ...]:
    """One per question; memory and energy of all parts."""
    made = [_arms(data, name) for name in _TITLES] + [_memory(data), _energy(data)]
    return tuple(table for table in made if table.rows)


def figures(data: StudyData) -> tuple[StudyFigure, ...]:
    """Speedup by draft length and by context."""
    made = (_by_gamma(data), _by_context(data))
    return tuple(figure for figure in made if figure.points)


def _arms(data: StudyData, name: str) -> StudyTable:
    own = part(data, name)
    lines = own.arms if name != CONTEXTS else [line for line in own.arms if line.prompt_tokens is not None]
    if name != CONTEXTS:
        lines = [line for line in lines if line.prompt is None and line.prompt_tokens is None]
    lines = sorted(lines, key=lambda line: (line.target, line.draft or "", line.prompt_tokens or 0, line.gamma or 0))
    return StudyTable(
        key=name,
        title=f"{_TITLES[name]} ({name})",
        about="A step's cost is tau over the speedup: how many plain tokens take as long as one step.",
        columns=(
            "target",
            "draft",
            "prompt tokens",
            "gamma",
            "tok/s",
            "speedup",
            "accepted",
            "tau",
            "step [plain tokens]",
        ),
        rows=tuple(_row(line) for line in lines),
        verdicts=tuple(line.of_rate for line in lines),
    )


def _row(line: ArmResult) -> tuple[StudyCell, ...]:
    cost = None
    if line.tau is not None and line.speedup is not None and line.speedup.point:
        cost = line.tau.point / line.speedup.point
    struck = line.of_rate == "invalid"
    return (
        StudyCell(text=label(line.target)),
        StudyCell(text=label(line.draft or "-")),
        StudyCell(text=f"{line.prompt_tokens:,}" if line.prompt_tokens else "-"),
        StudyCell(text=str(line.gamma or "-")),
        StudyCell(text="-", value=line.decode_rate, digits=1, struck=struck),
        StudyCell(text="-" if line.speculates else "baseline", value=line.speedup),
        StudyCell(text="-", value=line.acceptance, digits=3, struck=struck),
        StudyCell(text="-", value=line.tau, struck=struck),
        StudyCell(text="-", value=cost),
    )


def _memory(data: StudyData) -> StudyTable:
    gammas = {(line.suite, line.config): line.gamma for line in drafting(data)}
    rows = [
        (
            StudyCell(text=name),
            StudyCell(text=label(price.target)),
            StudyCell(text=label(price.draft)),
            StudyCell(text=str(gammas.get((name, price.arm_id)) or "-")),
            *(
                StudyCell(value=value / 1e6, digits=1)
                for value in (
                    price.weights_bytes,
                    price.kv_bytes,
                    price.buffers_bytes,
                    price.target_bytes,
                    price.total_bytes,
                )
            ),
            StudyCell(value=100 * price.share, digits=1),
            StudyCell(text=_buys(price.buys.name if price.buys else None, price.bits_now, price.bits_for_it)),
        )
        for name, price in data.memory
    ]
    return StudyTable(
        key="memory",
        title="Memory of drafts, and what the same bytes would buy",
        about="As the engine printed it, else by the headers. Types by the bits that they have on Llama-3.1-8B.",
        columns=(
            "part",
            "target",
            "draft",
            "gamma",
            "weights [MB]",
            "KV cache [MB]",
            "buffers [MB]",
            "target's own [MB]",
            "in all [MB]",
            "of the target [%]",
            "the target instead",
        ),
        rows=tuple(rows),
    )


def _buys(name: str | None, now: float | None, then: float | None) -> str:
    if now is None or then is None:
        return "-"
    return f"{now:.2f} to {then:.2f} bits per weight: {name or 'no better type fits'}"


def _energy(data: StudyData) -> StudyTable:
    lines = [
        line
        for line in data.arms
        if line.prompt is None and line.prompt_tokens is None and line.energy is not None and line.energy.per_token
    ]
    rows = [
        (
            StudyCell(text=line.suite),
            StudyCell(text=line.config),
            StudyCell(text="-", value=energy.per_token, digits=3),
            StudyCell(text="baseline" if not line.speculates else "-", value=energy.ratio, struck=line.comparison_only),
            StudyCell(text="-", value=energy.power_w, digits=1),
            StudyCell(text="-", value=energy.above_idle, digits=3),
            StudyCell(text="-", value=energy.ratio_above_idle, struck=line.comparison_only),
        )
        for line in lines
        if (energy := line.energy) is not None
    ]
    return StudyTable(
        key="energy",
        title="Electric energy per token",
        about="Of whole requests, prompts included, whatever used it; at rest: before the run, nothing started.",
        columns=(
            "part",
            "configuration",
            "J/token",
            "over baseline",
            "power [W]",
            "above rest [J/token]",
            "above rest, over baseline",
        ),
        rows=tuple(rows),
        verdicts=tuple(line.of_rate for line in lines),
    )


def _by_gamma(data: StudyData) -> StudyFigure:
    found = [(line, line.gamma) for line in drafting(part(data, GAMMA))]
    return _speedups(
        found,
        key="longer-drafts",
        title="Speedup by draft length",
        about="The document stopped at 16.",
        x="gamma [tokens]",
    )


def _by_context(data: StudyData) -> StudyFigure:
    lines = sorted(part(data, CONTEXTS).arms, key=lambda line: line.prompt_tokens or 0)
    return _speedups(
        [(line, line.prompt_tokens) for line in lines if line.speculates],
        key="longer-contexts",
        title="Speedup by length of the prompt",
        about="The document stopped at 1,024 tokens.",
        x="prompt [tokens]",
    )


def _speedups(
    found: Sequence[tuple[ArmResult, int | None]], *, key: str, title: str, about: str, x: str
) -> StudyFigure:
    """Speedups of lines by a number of tokens, a series for each target."""
    points = [
        _point(line, line.speedup, x=float(tokens), series=label(line.target))
        for line, tokens in found
        if tokens is not None and line.speedup is not None
    ]
    return StudyFigure(
        key=key,
        title=title,
        about=about,
        kind="lines",
        x=Axis(title=x, log=True),
        y=Axis(title="speedup", ratio=True),
        series_title="target",
        points=tuple(points),
    )


def _point(line: ArmResult, estimate: Estimate, *, x: float, series: str) -> Point:
    return Point.of(estimate, x=x, series=series, label=line.config, verdict=line.verdict)
