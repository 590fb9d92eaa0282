"""Figures of studies as charts: every form compiles, and a false number is a cross and nothing else."""

from __future__ import annotations

import json
import re
from itertools import product
from typing import Any, Literal

import pytest
from study_findings import figures, found

from specmeter.messages import LANGUAGES, Message, words
from specmeter.show.figure import Figure, specification
from specmeter.show.palette import PAGE, PRINT
from specmeter_studies.show.figures import drawn
from specmeter_studies.study import Axis, Point, StudyFigure


def of(key: str, origin: Literal["measured", "published"] = "published") -> Figure:
    (figure,) = [it for it in figures("valid" if origin == "measured" else None) if it.key == key]
    return drawn(figure, origin, key)


def spec_of(figure: Figure, panel: int = 0, language: Literal["en", "zh"] = "en") -> dict[str, Any]:
    return specification(figure.panels[panel], words(language), PAGE)


def layers(spec: dict[str, Any], mark: str) -> list[dict[str, Any]]:
    return [layer for layer in spec["layer"] if layer["mark"]["type"] == mark]


@pytest.mark.parametrize("origin", ["measured", "published"])
def test_every_form_compiles_in_both_languages_for_page_and_paper(origin: Literal["measured", "published"]) -> None:
    converter = pytest.importorskip("vl_convert", reason="vl-convert is not installed")
    panels = [panel for figure in found(origin).figures for panel in figure.panels]
    assert len(panels) == 8  # two panels of the first figure, one of six others, and none of the empty one
    for panel, language, (palette, width) in product(panels, LANGUAGES, ((PAGE, None), (PRINT, 400))):
        spec = specification(panel, words(language), palette, width=width)
        compiled = converter.vegalite_to_vega({**spec, "datasets": {"table": list(panel.data)}})
        assert compiled["marks"]


def test_no_formula_of_a_statistic_is_in_a_specification() -> None:
    for panel in (panel for figure in found().figures for panel in figure.panels):
        text = json.dumps(specification(panel, words("en"), PAGE))
        assert not re.search(r'"(aggregate|calculate|bin|regression|loess|density|quantile|window)"', text)


def test_a_false_number_is_a_cross_without_interval_that_no_line_touches() -> None:
    figure = of("figure-1")
    for place, panel in enumerate(figure.panels):
        false = [datum for datum in panel.data if datum["mark"] == "impossible"]
        assert {datum["x"] for datum in false} == {8.0}
        assert all(datum["low"] is None and datum["high"] is None for datum in false)
        spec = spec_of(figure, place)
        (line,) = layers(spec, "line")
        assert line["transform"] == [{"filter": "datum.mark != 'impossible'"}]
        marks = layers(spec, "point")
        crosses = [layer for layer in marks if layer["transform"] == [{"filter": "datum.mark == 'impossible'"}]]
        assert len(crosses) == 1
        assert crosses[0]["mark"]["filled"] is False
        kinds = [layer["transform"][0]["filter"] for layer in marks if layer is not crosses[0]]
        # Of a document nothing is shown to be true; what is false keeps the symbol of its series under the cross.
        assert kinds == ["datum.mark != 'solid'"]


@pytest.mark.parametrize(
    ("origin", "language", "said"),
    [
        ("published", "en", "published, but impossible"),
        ("published", "zh", "已发表，但不可能"),
        ("measured", "en", "measured, but invalid"),
        ("measured", "zh", "测得，但无效"),
    ],
)
def test_the_legend_says_what_a_cross_is(
    origin: Literal["measured", "published"], language: Literal["en", "zh"], said: str
) -> None:
    for key in ("figure-1", "figure-2", "figure-3", "figure-7"):
        spec = spec_of(of(key, origin), language=language)
        legends = [layer["encoding"]["opacity"]["legend"] for layer in spec["layer"] if "opacity" in layer["encoding"]]
        assert [legend["labelExpr"] for legend in legends] == [f"'{said}'"]
    assert "labelExpr" not in json.dumps(spec_of(of("figure-6", origin))["layer"])


def test_only_checked_and_valid_numbers_are_solid() -> None:
    point = {"x": 1.0, "y": 2.0}
    axes = {"x": Axis(title=Message("x")), "y": Axis(title=Message("y")), "kind": "points", "key": "k", "title": "t"}

    def marks(origin: Literal["measured", "published"], *verdicts: Any) -> list[Any]:
        points = tuple(Point.model_validate({**point, "verdict": verdict}) for verdict in verdicts)
        figure = drawn(StudyFigure.model_validate({**axes, "points": points}), origin, "k")
        return [datum["mark"] for datum in figure.panels[0].data]

    assert marks("measured", "valid", "suspect", None, "invalid") == ["solid", "suspect", "hollow", "impossible"]
    assert marks("published", None, "implausible", "invalid") == ["hollow", "implausible", "impossible"]
    # Perplexities and sizes come without verdicts: nothing is said against them.
    assert marks("measured", None, None) == ["solid", "solid"]


def test_panels_share_their_scales_and_are_told_apart() -> None:
    figure = of("figure-1")
    specs = [spec_of(figure, place) for place in range(2)]
    assert [spec["title"]["text"] for spec in specs] == ["moe", "dense"]
    scales = [layers(spec, "line")[0]["encoding"]["y"]["scale"] for spec in specs]
    assert scales[0] == scales[1]
    assert scales[0]["type"] == "log"
    low, high = scales[0]["domain"]
    assert low < 1 < 1.07 * (1.05 + 0.05 * 16) < high


def test_marks_that_stand_aside_stay_inside_and_a_file_explains_only_what_it_draws() -> None:
    made = figures("valid")[0]
    beside = [it.model_copy(update={"y": 1.5, "x": 4, "series": name}) for it in made.points[:1] for name in "abcd"]
    elsewhere = made.points[0].model_copy(update={"facet": "other", "series": "a", "x": 8})
    figure = drawn(made.model_copy(update={"points": (*beside, elsewhere)}), "measured", "f")
    most = max(abs(float(datum["dodge"] or 0)) for datum in figure.panels[0].data)
    told = [specification(it, words("en"), PRINT, width=320)["layer"] for it in figure.panels]
    of = [next(it["encoding"] for it in layers if "shape" in it["encoding"]) for layers in told]
    assert [it["x"]["scale"]["padding"] > most > 0 for it in of] == [True, True]
    assert [it["shape"]["legend"]["values"] for it in of] == [["a", "b", "c", "d"], ["a"]]


def test_names_keep_the_order_they_are_given_and_numbers_their_own() -> None:
    rows = spec_of(of("figure-3"))["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert rows == ["zh", "fact", "code"]
    by_number = [layer for layer in spec_of(of("figure-4"))["layer"] if layer["mark"]["type"] == "bar"]
    assert by_number[0]["encoding"]["y"]["scale"]["domain"] == ["4", "8", "16"]
    assert by_number[0]["encoding"]["x"]["scale"]["domain"][0] == 0  # a bar that does not begin at zero lies
    along = layers(spec_of(of("figure-6")), "line")[0]["encoding"]["x"]
    assert along["scale"]["domain"] == ["F16", "Q8_0", "Q6_K", "Q4_K_M", "Q2_K"]


def test_zero_has_no_logarithm() -> None:
    y = layers(spec_of(of("figure-6")), "line")[0]["encoding"]["y"]
    assert "type" not in y["scale"]
    assert y["scale"]["domain"] == [0, 0.4]


def test_nineteen_series_are_told_apart_by_colour_and_shape() -> None:
    (marks, *_) = layers(spec_of(of("figure 5 / b")), "point")
    looks = list(
        zip(marks["encoding"]["color"]["scale"]["range"], marks["encoding"]["shape"]["scale"]["range"], strict=True)
    )
    assert len(looks) == len(set(looks)) == 19


def test_ratios_have_a_line_at_one_and_other_axes_have_none() -> None:
    def ones(key: str) -> int:
        return sum("datum" in side for layer in spec_of(of(key))["layer"] for side in layer["encoding"].values())

    assert [ones(key) for key in ("figure-1", "figure-2", "figure-4", "figure-7")] == [1, 1, 1, 1]
    assert [ones(key) for key in ("figure-3", "figure 5 / b", "figure-6")] == [0, 0, 0]


def test_a_claimed_value_is_written_beside_its_cross_where_there_is_room() -> None:
    def labels(points: tuple[tuple[float, float], ...]) -> list[Any]:
        made = tuple(Point(x=x, y=y, verdict="invalid") for x, y in points)
        figure = StudyFigure(
            key="k",
            title=Message("t"),
            kind="points",
            x=Axis(title=Message("x")),
            y=Axis(title=Message("y")),
            points=(*made, Point(x=0, y=0)),
        )
        data = drawn(figure, "published", "k").panels[0].data
        return [datum["claimed"] for datum in data if datum["mark"] == "impossible"]

    assert labels(((1, 10), (5, 7.25))) == ["10", "7.25"]
    # The lower of two crosses that lie upon each other would be written across the upper one.
    assert labels(((1, 10), (1, 9.9))) == ["10", None]
    assert set(labels(tuple((float(n), 5.0) for n in range(1, 13)))) == {None}
