"""quant-acceptance: perplexity beside acceptance, both rulings of every claim, and the quick variant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import specmeter_studies as studies
import stand_in_quality
from claims_of import values
from quant_data import model, study
from ratio_data import Made, data
from specmeter.analysis.quality import ModelRole
from specmeter.cli import invoke
from specmeter.experiments.file import load
from specmeter.messages import Message
from specmeter_studies.folder import StudyFolder
from specmeter_studies.quality.plan import load_plan
from specmeter_studies.study import PromptResult, StudyData

NAME = "quant-acceptance"
SIZE = {"4B_Q8": 4.5, "4B_Q4": 2.7, "4B_Q2": 1.8, "small": 0.5}
LOSS = {"4B_Q8": 1.0, "4B_Q4": 1.05, "4B_Q2": 1.6, "small": 3.0}
PROMPTS = ("code", "fact", "reason", "edit")


def joined(acceptance: dict[str, float], speedup: dict[str, float], *, verdict: str = "valid") -> StudyData:
    """4B_Q4 and 4B_Q2 draft for 4B_Q8, and a small draft for all three."""
    arms = [
        Made("4B_Q8", draft, 4, speedup[draft], acceptance[draft], verdict=verdict)  # type: ignore[arg-type]
        for draft in ("4B_Q4", "4B_Q2")
    ]
    arms += [Made(target, "small", 4, 1.2, 0.5) for target in ("4B_Q8", "4B_Q4", "4B_Q2")]
    runs = data(NAME, {"4B_Q8": 20.0, "4B_Q4": 30.0, "4B_Q2": 40.0}, arms)
    ladder = study(
        NAME,
        [model(name, SIZE[name], 20.0, loss=LOSS[name], role=ModelRole(family=name[:2], bits=4)) for name in SIZE],
    )
    rows = tuple(
        PromptResult(
            config=f"4B_Q8/{draft}/g4",
            target="4B_Q8",
            draft=draft,
            method="draft-simple",
            prompt=prompt,
            drafted=100,
            accepted=round(100 * acceptance[draft]) + place,
            verdict=verdict,  # type: ignore[arg-type]
        )
        for draft in ("4B_Q4", "4B_Q2")
        for place, prompt in enumerate(PROMPTS if draft == "4B_Q4" else reversed(PROMPTS))
    )
    return replace(runs, results=rows, quality=ladder.quality)


def rulings(found: StudyData) -> dict[str, tuple[str, Message]]:
    return {claim.id: (claim.ruling, claim.found) for claim in studies.findings(NAME, found).claims}


def test_a_format_that_costs_perplexity_costs_acceptance() -> None:
    found = rulings(joined({"4B_Q4": 0.9, "4B_Q2": 0.6}, {"4B_Q4": 1.1, "4B_Q2": 1.3}))
    ruling, said = found["acceptance-follows-perplexity"]
    assert ruling == "supported"
    assert (said.values["worse"], said.values["better"]) == ("4B_Q2", "4B_Q4")
    assert values(said.values["lost"], "study.interval")["point"] == pytest.approx(30)
    assert found["fewest-bits-gain"][0] == "supported"


def test_draft_lengths_are_series_of_their_own() -> None:
    made = joined({"4B_Q4": 0.9, "4B_Q2": 0.6}, {"4B_Q4": 1.1, "4B_Q2": 1.3})
    longer = tuple(
        line.model_copy(update={"config": line.config.replace("g4", "g8"), "gamma": 8})
        for line in made.arms
        if line.gamma
    )
    rows = tuple(row.model_copy(update={"config": row.config.replace("g4", "g8"), "gamma": 8}) for row in made.results)
    both = replace(made, arms=(*made.arms, *longer), results=(*made.results, *rows))
    assert rulings(both)["acceptance-follows-perplexity"][1].values["pairs"] == 2
    (points,) = (it.points for it in studies.findings(NAME, both).figures if it.key == "acceptance-by-perplexity")
    assert {point.series for point in points} == {
        f"formats of the {what}, gamma {gamma}"
        for what in ("draft model 4B, with 4B_Q8", "target model 4B, with small")
        for gamma in (4, 8)
    }


def test_and_the_opposite() -> None:
    found = rulings(joined({"4B_Q4": 0.6, "4B_Q2": 0.9}, {"4B_Q4": 1.3, "4B_Q2": 1.1}))
    assert found["acceptance-follows-perplexity"][0] == "contradicted"
    assert found["fewest-bits-gain"][0] == "contradicted"


def test_what_cannot_be_told_is_left_so() -> None:
    found = rulings(joined({"4B_Q4": 0.8, "4B_Q2": 0.8}, {"4B_Q4": 1.2, "4B_Q2": 1.2}))
    assert found["acceptance-follows-perplexity"][0] == "cannot tell"
    assert found["fewest-bits-gain"][0] == "cannot tell"
    bad = rulings(joined({"4B_Q4": 0.9, "4B_Q2": 0.6}, {"4B_Q4": 1.1, "4B_Q2": 1.3}, verdict="invalid"))
    assert {ruling for ruling, _ in bad.values()} == {"cannot tell"}


def test_one_row_has_everything_of_a_pair_and_marks_are_labelled_by_bits() -> None:
    found = studies.findings(NAME, joined({"4B_Q4": 0.9, "4B_Q2": 0.6}, {"4B_Q4": 1.1, "4B_Q2": 1.3}))
    (table,) = found.tables
    assert len(table.rows) == 5
    assert all(len(row) == len(table.columns) for row in table.rows)
    by_key = {figure.key: figure for figure in found.figures}
    points = by_key["acceptance-by-perplexity"].points
    series = {point.series for point in points}
    assert series == {"formats of the draft model 4B, with 4B_Q8", "formats of the target model 4B, with small"}
    assert {point.name for point in points if "draft" in point.series} == {"5.1", "3.4"}
    assert len(by_key["rate-by-perplexity"].points) == 3, "made-up arms have no rate of their own"


def test_without_perplexities_the_arms_are_shown_and_nothing_is_claimed() -> None:
    runs = replace(joined({"4B_Q4": 0.9, "4B_Q2": 0.6}, {"4B_Q4": 1.1, "4B_Q2": 1.3}), quality=())
    found = studies.findings(NAME, runs)
    assert len(found.tables[0].rows) == 5
    assert found.figures == ()
    assert {claim.ruling for claim in found.claims} == {"cannot tell"}


def test_published_runs_stand_beside_the_published_ladder() -> None:
    found = studies.findings(NAME, studies.find(NAME).published())  # type: ignore[arg-type]
    (table,) = found.tables
    assert [row[6].text for row in table.rows] == ["4B_Q2", "4B_Q3", "4B_Q4", "4B_Q6"]
    assert set(table.verdicts) == {"invalid"}
    assert {claim.ruling for claim in found.claims} == {"cannot tell"}
    assert [point.name for point in found.figures[0].points] == ["3.4", "4.3", "5.2", "6.6"]


@pytest.mark.parametrize("variants", [(), ("bench",), ("bench", "quick")])
def test_models_of_one_name_are_one_model(variants: tuple[str, ...]) -> None:
    experiment = load(NAME, variants=variants).experiment
    plan = load_plan("quant-perplexity", variants=variants).value
    used = experiment.targets | experiment.drafts
    assert {name: it.reference for name, it in plan.models.items()} == used


def test_one_command_measures_and_one_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in_quality.install(monkeypatch)
    out = tmp_path / "study"
    command = ["study", "run", NAME, "--variant", "bench", "--variant", "quick", "--out", str(out)]
    models = load(NAME).experiment
    drafts = "{token_ms: 0.8, other_acceptance: [0.8], size_bytes: 2000000}"
    changes = [
        f"engine.mock={{drafts: {{dense: {drafts}, small: {drafts}}}}}",
        "engine.kind=mock",
        "engine.context=1024",
    ]
    changes += [f"targets.{name}=mock:dense" for name in models.targets]
    changes += [f"drafts.{name}=mock:{'dense' if name in models.targets else 'small'}" for name in models.drafts]
    assert invoke([*command, *(word for change in changes for word in ("--set", f"{NAME}.{change}"))]) in (0, 1)
    found = StudyFolder(out).data()
    (table,) = studies.findings(NAME, found).tables
    assert len(table.rows) == 9
    shown = [cell for row in table.rows for cell in row]
    assert not any(cell.text == "-" and cell.value is None and not cell.struck for cell in shown)
    capsys.readouterr()
    assert invoke(["study", "show", str(out)]) in (0, 1)
