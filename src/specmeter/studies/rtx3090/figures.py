"""rtx3090-19: the document's three plots: per prompt, mean by configuration, acceptance against speed."""

from __future__ import annotations

from specmeter.studies.rtx3090.lines import Line, Lines, lines, ratio
from specmeter.studies.study import Axis, Point, StudyData, StudyFigure


def figures(data: StudyData) -> tuple[StudyFigure, ...]:
    """All figures that this data fills."""
    known = lines(data)
    made = (_per_prompt(known), _by_configuration(known), _acceptance(known))
    return tuple(figure for figure in made if figure.points)


def _per_prompt(known: Lines) -> StudyFigure:
    prompts = dict.fromkeys(result.prompt for line in known.values() for result in line.results)
    points = [
        Point(
            series=_kind(line),
            facet=f"up to {result.max_tokens} tokens" if result.max_tokens else "",
            x=result.prompt,
            y=result.decode_rate,
            label=f"{line.name}, {result.drafted or 0} tokens drafted",
            verdict=result.verdict,
        )
        for line in known.values()
        for result in line.results
        if result.decode_rate is not None
    ]
    return StudyFigure(
        key="per-prompt",
        title="Decode rate per prompt",
        about="One mark for each request; of the document's, those of three configurations.",
        kind="points",
        x=Axis(title="prompt", order=tuple(prompts)),
        y=Axis(title="decode rate [tok/s]"),
        series_title="method",
        points=tuple(points),
    )


def _by_configuration(known: Lines) -> StudyFigure:
    points: list[Point] = []
    for line in known.values():
        if line.sums is None or line.pooled is None:
            continue
        told = "baseline" if line.reference == line.name else f"over {line.reference}: {_told(known, line)}"
        for series, rate in (("mean of requests", line.sums.mean_rate), ("pooled", line.pooled)):
            points.append(Point(series=series, x=line.name, y=rate, label=told, verdict=line.arm.of_rate))
    return StudyFigure(
        key="mean-by-configuration",
        title="Mean decode rate by configuration",
        about="The document shows means of requests; the pooled rate is added, which slow requests weigh down more.",
        kind="bars",
        x=Axis(title="configuration", order=tuple(known)),
        y=Axis(title="decode rate [tok/s]"),
        series_title="rate",
        points=tuple(points),
    )


def _told(known: Lines, line: Line) -> str:
    found = ratio(known, line)
    return f"no ratio ({line.arm.why})" if found is None else f"{found.point:.3f} x"


def _acceptance(known: Lines) -> StudyFigure:
    points: list[Point] = []
    for line in known.values():
        for result in line.results:
            if result.acceptance is not None and result.decode_rate is not None:
                label = f"{line.name}, {result.prompt}: {result.accepted} of {result.drafted}"
                points.append(
                    Point(
                        series=_kind(line),
                        facet="single requests",
                        x=100 * result.acceptance,
                        y=result.decode_rate,
                        label=label,
                        verdict=result.verdict,
                    )
                )
        if line.sums is not None and line.sums.drafted and line.pooled is not None:
            points.append(
                Point(
                    series=_kind(line),
                    facet="configurations",
                    x=100 * line.acceptance,
                    y=line.pooled,
                    label=f"{line.name}: {line.sums.accepted} of {line.sums.drafted}",
                    verdict=line.arm.of_rate,
                )
            )
    return StudyFigure(
        key="acceptance-speed",
        title="Counted acceptance against decode rate",
        about="What drafted nothing has no acceptance and no mark. Where the counter leaves rejected drafts out, every "
        "mark lies at 100 %.",
        kind="points",
        x=Axis(title="accepted / drafted [%]"),
        y=Axis(title="decode rate [tok/s]"),
        series_title="method",
        points=tuple(points),
    )


def _kind(line: Line) -> str:
    return "plain" if not line.drafts else line.arm.method
