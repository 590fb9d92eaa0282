"""moe-306: the paper's Figures 1 to 5. What is drawn of a false speedup is what was claimed, marked as such."""

from __future__ import annotations

from specmeter.numbers.estimates import scaled
from specmeter.record import Estimate
from specmeter.studies.moe306.lines import (
    DENSE,
    GAMMAS,
    LARGE,
    MOE,
    SMALL,
    at,
    baseline_of,
    by_length,
    label,
    model,
    named,
    overall,
    refuted,
    speculative,
)
from specmeter.studies.study import ArmResult, Axis, Point, StudyData, StudyFigure

GAMMA_OF_FIGURE_1 = 8


def figures(data: StudyData) -> tuple[StudyFigure, ...]:
    """All figures that this data fills."""
    made = (
        _by_parameters(data),
        _by_gamma(data),
        _throughput(data),
        _acceptance(data),
        _throughput_by_length(data),
        _speedup_by_length(data),
    )
    return tuple(figure for figure in made if figure.points)


def _by_parameters(data: StudyData) -> StudyFigure:
    points: list[Point] = []
    for target in (*DENSE, *MOE):
        line, used = at(data, target, SMALL, GAMMA_OF_FIGURE_1), model(data, target)
        if line is None or used is None or not used.active_parameters:
            continue
        series = "mixture of experts" if used.experts else "dense"
        total = f"{(used.parameters or 0) / 1e9:.3g}e9 parameters in all"
        points += _speedup(data, line, series=series, x=used.active_parameters / 1e9, label=f"{named(line)}, {total}")
    return StudyFigure(
        key="figure-1",
        title=f"Figure 1: speedup against active parameters (draft {label(SMALL)}, gamma {GAMMA_OF_FIGURE_1})",
        about="The paper takes MoE above the line through the dense models as proof that total parameters decide.",
        kind="points",
        x=Axis(title="parameters that one token uses [1e9]", log=True),
        y=Axis(title="speedup", ratio=True),
        series_title="target",
        points=tuple(points),
    )


def _by_gamma(data: StudyData) -> StudyFigure:
    points: list[Point] = []
    for line in speculative(data):
        if line.gamma is not None:
            points += _speedup(
                data, line, series=label(line.target), facet=_draft(line), x=line.gamma, label=named(line)
            )
    return StudyFigure(
        key="figure-2",
        title="Figure 2: speedup against draft length, per draft",
        kind="lines",
        x=Axis(title="gamma [tokens]"),
        y=Axis(title="speedup", ratio=True),
        series_title="target",
        points=tuple(points),
    )


def _throughput(data: StudyData) -> StudyFigure:
    points: list[Point] = []
    order: list[str] = []
    for target in (*MOE, "dense_0.8b", "dense_2b", *DENSE):
        plain = [line for line in overall(data, "A", "C") if line.target == target and not line.speculates]
        drafted = [
            line for draft in (SMALL, LARGE) for gamma in GAMMAS if (line := at(data, target, draft, gamma)) is not None
        ]
        for line in (*plain, *drafted):
            if line.decode_rate is None:
                continue
            order.append(named(line))
            points.append(
                _point(
                    line,
                    line.decode_rate,
                    series="mixture of experts" if target in MOE else "dense",
                    x=named(line),
                    label="with drafts" if line.speculates else "by itself",
                )
            )
    return StudyFigure(
        key="figure-3",
        title="Figure 3: decode rate of all configurations",
        kind="bars",
        x=Axis(title="configuration", order=tuple(order)),
        y=Axis(title="decode rate [tok/s]"),
        series_title="target",
        points=tuple(points),
    )


def _acceptance(data: StudyData) -> StudyFigure:
    points = [
        _point(line, scaled(line.acceptance, 100), series=label(line.target), facet=_draft(line), x=line.gamma)
        for line in speculative(data)
        if line.gamma is not None and line.acceptance is not None
    ]
    return StudyFigure(
        key="figure-4",
        title="Figure 4: acceptance against draft length, per draft",
        about="Accepted / drafted tokens; intervals over prompts, since greedy text repeats itself.",
        kind="lines",
        x=Axis(title="gamma [tokens]"),
        y=Axis(title="acceptance [%]"),
        series_title="target",
        points=tuple(points),
    )


def _throughput_by_length(data: StudyData) -> StudyFigure:
    points = [
        _point(
            line,
            line.decode_rate,
            series=f"draft {label(line.draft or '')}, gamma {line.gamma}" if line.speculates else "by itself",
            x=line.prompt_tokens or 0,
        )
        for line in by_length(data)
        if line.decode_rate is not None
    ]
    return StudyFigure(
        key="figure-5-throughput",
        title="Figure 5, left: decode rate against prompt length",
        kind="lines",
        x=Axis(title="prompt [tokens]", log=True),
        y=Axis(title="decode rate [tok/s]"),
        series_title="MoE Q4",
        points=tuple(points),
    )


def _speedup_by_length(data: StudyData) -> StudyFigure:
    points: list[Point] = []
    for line in by_length(data):
        if line.speculates and baseline_of(data, line) is not None:
            points += _speedup(data, line, series=named(line), x=line.prompt_tokens or 0, label=named(line))
    return StudyFigure(
        key="figure-5-speedup",
        title="Figure 5, right: speedup against prompt length",
        kind="lines",
        x=Axis(title="prompt [tokens]", log=True),
        y=Axis(title="speedup", ratio=True),
        series_title="configuration",
        points=tuple(points),
    )


def _speedup(data: StudyData, line: ArmResult, *, series: str, x: float, label: str, facet: str = "") -> list[Point]:
    """A point where there is a speedup, or a false one."""
    if line.speedup is not None:
        return [_point(line, line.speedup, series=series, facet=facet, x=x, label=label)]
    false = refuted(data, line)
    if false is None:
        return []
    shown = f"{label}: false: {line.why}"
    return [Point(series=series, facet=facet, x=x, y=false, label=shown, verdict=line.verdict)]


def _point(line: ArmResult, value: Estimate, *, series: str, x: float | str, facet: str = "", label: str = "") -> Point:
    return Point.of(value, series=series, facet=facet, x=x, label=label or named(line), verdict=line.verdict)


def _draft(line: ArmResult) -> str:
    return f"draft {label(line.draft or line.method)}"
