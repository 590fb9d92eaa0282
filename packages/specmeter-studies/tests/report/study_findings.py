"""What a study may find, in every form that there is: for pages, charts and tables of studies."""

from __future__ import annotations

from typing import Literal

from specmeter.messages import Message
from specmeter.record import Estimate, Verdict
from specmeter_studies.show.document import StudyDocument
from specmeter_studies.study import (
    ArmResult,
    Axis,
    ClaimRuling,
    ModelUsed,
    Point,
    PromptResult,
    Ran,
    RulingWord,
    StudyCell,
    StudyData,
    StudyFigure,
    StudyFindings,
    StudyTable,
)

TYPES = ("F16", "Q8_0", "Q6_K", "Q4_K_M", "Q2_K")


def estimate(point: float, unit: str = "x") -> Estimate:
    """With an interval of 5 % to either side."""
    return Estimate(point=point, low=0.95 * point, high=1.05 * point, n=3, unit=unit, method="made up")


def figures(open_verdict: Verdict | None, more: str = "") -> tuple[StudyFigure, ...]:
    """A figure of every kind; `open_verdict` have the points that are not invalid."""

    def point(x: float | str, y: float, series: str = "", facet: str = "", verdict: Verdict | None = None) -> Point:
        label = f"{series} at {x}{more}"
        return Point(
            series=series + more if series else "",
            facet=facet + more if facet else "",
            x=x + more if isinstance(x, str) else x,
            y=y,
            low=0.93 * y,
            high=1.07 * y,
            label=label,
            verdict=verdict or open_verdict,
        )

    gammas = tuple(
        point(gamma, 1.05 + 0.05 * gamma, draft, target, "invalid" if gamma == 8 else None)
        for target in ("moe", "dense")
        for draft in ("small", "large")
        for gamma in (4, 8, 16)
    )
    many = tuple(
        point(0.05 * number, 30.0 + number, f"configuration {number}", verdict="invalid" if number % 5 == 0 else None)
        for number in range(19)
    )
    speedup = Axis(title=Message("speedup" + more), ratio=True, log=True)
    rate = Axis(title=Message("decode rate, tok/s" + more))
    return (
        StudyFigure(
            key="figure-1",
            title=Message("Lines in panels" + more),
            about=Message("Intervals are ours." + more),
            kind="lines",
            x=Axis(title=Message("gamma" + more)),
            y=speedup,
            series_title=Message("draft" + more),
            points=gammas,
        ),
        StudyFigure(
            key="figure-2",
            title=Message("Names in rows" + more),
            kind="points",
            x=Axis(title=Message("configuration")),
            y=Axis(title=Message("speedup"), ratio=True),
            points=(point("first", 1.2), point("second", 0.8, verdict="invalid"), point("third", 1.6)),
        ),
        StudyFigure(
            key="figure-3",
            title=Message("Grouped bars" + more),
            kind="bars",
            x=Axis(title=Message("prompt"), order=("zh", "fact", "absent")),
            y=rate,
            series_title=Message("configuration"),
            points=tuple(
                point(prompt, 60.0 + place, series, verdict="invalid" if place == 1 and series == "draft" else None)
                for place, prompt in enumerate(("fact", "code", "zh"))
                for series in ("plain", "draft")
            ),
        ),
        StudyFigure(
            key="figure-4",
            title=Message("Bars by number" + more),
            kind="bars",
            x=Axis(title=Message("gamma")),
            y=Axis(title=Message("speedup"), ratio=True),
            points=(point(16, 1.3), point(4, 1.1), point(8, 1.2)),
        ),
        StudyFigure(
            key="figure 5 / b",
            title=Message("Many series" + more),
            kind="points",
            x=Axis(title=Message("acceptance")),
            y=Axis(title=Message("tok/s"), log=True),
            series_title=Message("configuration"),
            points=many,
        ),
        StudyFigure(
            key="figure-6",
            title=Message("A line over names, with a zero on an axis of logarithms" + more),
            kind="lines",
            x=Axis(title=Message("type"), order=TYPES),
            y=Axis(title=Message("change"), log=True),
            points=tuple(Point(x=name, y=0.1 * place, verdict=open_verdict) for place, name in enumerate(TYPES)),
        ),
        StudyFigure(
            key="figure-7",
            title=Message("Nothing but false numbers" + more),
            kind="points",
            x=Axis(title=Message("active parameters"), log=True),
            y=speedup,
            series_title=Message("target"),
            points=(point(3.3, 1.2, "moe", verdict="invalid"), point(9.0, 1.6, "dense", verdict="invalid")),
        ),
        StudyFigure(
            key="figure-8", title=Message("Nothing at all"), kind="bars", x=Axis(title=Message("x")), y=rate, points=()
        ),
    )


def _claims(more: str) -> tuple[tuple[str, str, str, RulingWord, str], ...]:
    return (
        ("a", "It is faster." + more, "section 1", "contradicted", "No." + more),
        ("b", "Acceptance falls.", "Figure 4" + more, "supported", "0.7 to 0.4."),
        ("c", "It holds elsewhere.", "section 6", "cannot tell", "Unmeasured."),
    )


def found(
    origin: Literal["measured", "published"] = "published", more: str = "", prefix: str = "", study: str = "moe-306"
) -> StudyDocument:
    """A study with everything; `more` is put behind every text that comes from outside."""
    rows = (
        (StudyCell(text="moe/plain" + more), StudyCell(value=estimate(60.0, "tok/s"), digits=1), StudyCell(text="-")),
        (
            StudyCell(text="moe/draft/g8" + more),
            StudyCell(value=estimate(90.0, "tok/s"), digits=1),
            StudyCell(value=1.625, digits=3),
        ),
        (StudyCell(text="dense/draft/g8"), StudyCell(value=70.25, digits=2), StudyCell(value=1.25, struck=True)),
    )
    verdicts: tuple[Verdict | None, ...] = (None, "invalid", "invalid")
    table = StudyTable(
        key="table-4",
        title=Message("Mean rates" + more),
        about=Message("Intervals are ours." + more),
        columns=tuple(map(Message, ("configuration" + more, "rate, tok/s", "speedup"))),
        rows=rows,
        verdicts=verdicts,
    )
    plain = StudyTable(
        key="table-5",
        title=Message("Suites"),
        columns=tuple(map(Message, ("suite", "requests"))),
        rows=((rows[0][0], rows[0][2]),),
    )
    why = "speedup-above-tau: 1.625 > 1.04"
    data = StudyData(
        study=study,
        origin=origin,
        title=Message("made up for a test" + more),
        machine="a machine" + more,
        notes=("Mind this first." + more,),
        parts=(
            Ran(part="moe-306", status="measured"),
            Ran(part="suite-e" + more, status="skipped", reason=Message("needs a model that is not here" + more)),
        ),
        models=(
            ModelUsed(name="moe", reference="hf:a/b" + more, size_bytes=2e10, parameters=3.5e10, bytes_per_token=2e9),
        ),
        results=(PromptResult(config="moe/draft/g8" + more, target="moe", prompt="fact", decode_rate=90.0),),
        arms=(
            ArmResult(config="moe/plain", target="moe", requests=3, decode_rate=estimate(60.0)),
            ArmResult(
                config="moe/draft/g8" + more,
                target="moe" + more,
                draft="small",
                method="draft-simple",
                gamma=8,
                requests=3,
                decode_rate=estimate(90.0),
                claimed_speedup=1.625,
                verdict="invalid",
                why=Message(why + more),
            ),
        ),
    )
    claims = tuple(
        ClaimRuling(id=name, claim=Message(claim), where=Message(where), ruling=ruling, found=Message(said))
        for name, claim, where, ruling, said in _claims(more)
    )
    shapes = figures("valid" if origin == "measured" else None, more)
    return StudyDocument(
        "A study" + more, "An author, 2026" + more, StudyFindings(data, claims, (table, plain), shapes), prefix
    )
