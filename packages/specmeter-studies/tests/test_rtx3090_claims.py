"""Every claim of rtx3090-19 can be supported and contradicted by data that say so; other data leave it open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import rtx3090_data as made
from claims_of import ruled, rulings, said, values
from originals import rows
from rtx3090_data import Made
from said import codes
from specmeter.record import Estimate
from specmeter_studies import findings
from specmeter_studies.library.rtx3090_19.lines import F16, LONGER, OTHER_VOCABULARY, lines, noise, ratio, summed
from specmeter_studies.library.rtx3090_19.mechanism import budget, budgets_of_requests, saturation
from specmeter_studies.library.rtx3090_19.published import published
from specmeter_studies.study import PromptResult, RulingWord, StudyData

LONG = tuple(LONGER)
LOSING, WINNING = Made(0.8), Made(1.4)
FULL = Made(0.8, 300, 300)
"""All accepted, and slower: by more time than any experts explain."""
SLIGHT = Made(0.97, 300, 300)
"""All accepted, and a little slower."""
ALMOST = Made(0.97, 300, 299)
"""The same with a counter that has said something else than 100 %."""


# --- the document's numbers ------------------------------------------------------------------------------------------


def test_what_the_published_numbers_say_of_each_claim() -> None:
    assert rulings(published()) == {
        "no-gain": "supported",
        "bimodal-tail": "contradicted",
        "full-acceptance": "cannot tell",
        "kv-quantization": "supported",
        "output-length": "supported",
        "output-length-unchanged": "contradicted",
        "silent-failure": "supported",
        "draft-choice": "cannot tell",
        "saturation-threshold": "cannot tell",  # the formula says nothing of what texts choose
        "saturation-explains": "cannot tell",
        "active-parameters": "contradicted",
        "larger-gains": "cannot tell",
    }


@pytest.mark.parametrize(
    ("claim", "code", "numbers"),
    [
        ("no-gain", "rtx3090-19.no_gain", {"slower": 14, "compared": 14}),
        ("no-gain", "rtx3090-19.best", {"name": "ngmod-n32"}),
        ("no-gain", "rtx3090-19.change", {"point": -1.5, "low": -2.1, "high": -0.9}),
        ("no-gain", "rtx3090-19.repeated", {"n": 2, "share": 0.0014}),
        ("bimodal-tail", "rtx3090-19.tail", {"slow": 8, "asked": 16}),
        ("bimodal-tail", "rtx3090-19.tail.others", {"low": 0.88, "high": 0.99}),
        ("bimodal-tail", "rtx3090-19.tail.dips", {"humps": 0, "piles": 16}),
        ("full-acceptance", "rtx3090-19.all_accepted", {"counted": 13, "low": 0.012, "high": 0.14}),
        ("full-acceptance", "rtx3090-19.beyond", {"over": 7, "share": 0.05, "any": 13, "counted": 13}),
        ("full-acceptance", "rtx3090-19.beyond.requests", {"beyond": 28, "requests": 65}),
        ("kv-quantization", "rtx3090-19.kv.requests", {"plain": 7, "low": 137.7, "high": 137.9}),
        ("kv-quantization", "rtx3090-19.kv.requests", {"drafted": 3, "slowest": 67.3, "fastest": 97.5}),
        ("output-length", "rtx3090-19.lengths.of", {"tokens": 300, "more_tokens": 1000}),
        ("output-length", "rtx3090-19.change", {"point": -18.0, "low": -18.5, "high": -17.5}),
        ("output-length-unchanged", "rtx3090-19.change", {"point": -9.4, "low": -10.2, "high": -8.6}),
        ("output-length-unchanged", "rtx3090-19.other_texts", {"tokens": 6855}),
        ("output-length-unchanged", "study.count", {"n": 6826}),
        ("silent-failure", "rtx3090-19.silent", {"drafted": 0, "requests": 10, "change": -0.3}),
        ("draft-choice", "rtx3090-19.change", {"point": -19.0}),
        ("draft-choice", "rtx3090-19.drafts.one", {}),
        (
            "saturation-threshold",
            "rtx3090-19.threshold",
            {"used": 8, "experts": 256, "sparsity": 0.031, "tokens": 94.4, "threshold": 95},
        ),
        ("saturation-explains", "rtx3090-19.explains", {"most": 72, "experts": 256, "union": 63.7}),
        ("saturation-explains", "rtx3090-19.explains.blind", {"over": 7, "losing": 13}),
        ("active-parameters", "rtx3090-19.larger.of", {"used": 8, "experts": 256, "tokens": 95, "own_tokens": 95}),
    ],
)
def test_the_numbers_that_published_rulings_rest_on(claim: str, code: str, numbers: dict[str, Any]) -> None:
    held = values(said(published(), claim), code)
    for name, number in numbers.items():
        assert held[name] == (number if isinstance(number, str | int) else pytest.approx(number, rel=0.05)), name


def test_published_rows_are_the_documents_own() -> None:
    known = lines(published())
    for row in rows("rtx3090_19_summary.csv"):
        line = known[row["config"]]
        assert line.sums is not None
        assert (line.pooled, line.reference) == (float(row["pooled_tok_s"]), row["reference"])
        assert line.sums.mean_rate == float(row["request_mean_tok_s"])
        if line.believable and line.reference != line.name:
            assert ratio(known, line) is not None
    unlike = {name: line.arm for name, line in known.items() if not line.believable}
    assert set(unlike) == {F16, OTHER_VOCABULARY}
    # Only their comparisons are at fault: 113.7, 121.3 and 135.3 tok/s are ordinary rates, and no row is impossible.
    assert all(arm.comparison_only and arm.of_rate is None and arm.verdict == "invalid" for arm in unlike.values())
    assert known[F16].arm.claimed_speedup == pytest.approx(1 - 0.1619)
    assert known[F16].arm.speedup is None
    assert sum(len(line.results) for line in known.values()) == 190


def test_published_requests_add_up_to_the_summary() -> None:
    for line in lines(published()).values():
        added, printed = summed(line.results), line.sums
        assert added is not None
        assert printed is not None
        whole = ("generated", "drafted", "accepted", "drafting")
        assert [getattr(added, name) for name in whole] == [getattr(printed, name) for name in whole]
        for name in ("mean_rate", "median_rate", "lowest_rate", "highest_rate", "rate_sd", "decode_ms"):
            assert getattr(added, name) == pytest.approx(getattr(printed, name), abs=0.0011), (line.name, name)


def test_repetitions_give_the_interval() -> None:
    """Two repetitions: Student's t at two degrees of freedom is 4.303."""
    known = lines(made.study(noise=0.01))
    repeated = noise(known)
    assert repeated is not None
    assert repeated.n == 2
    found = ratio(known, known["ngram-mod-n24"])
    assert found is not None
    assert found.low is not None
    assert found.point / found.low == pytest.approx((1.01) ** 4.3027, rel=1e-3)
    own = known["ngmod-n8"].arm.model_copy(update={"speedup": estimate(1.2, 1.1, 1.3)})
    data = made.study()
    swapped = tuple(own if arm.config == own.config else arm for arm in data.arms)
    again = lines(StudyData("rtx3090-19", "measured", "made up", arms=swapped))
    assert ratio(again, again["ngmod-n8"]) == own.speedup


def estimate(point: float, low: float, high: float) -> Estimate:
    return Estimate(point=point, low=low, high=high, n=3, unit="x", method="made up; Student t over blocks")


def test_time_that_no_union_of_experts_explains() -> None:
    """Ten requests of 300 tokens at 10 ms: 2,990 tokens; 300 drafted by a model, 150 of them rejected."""
    known = lines(made.study())
    by_model, by_lookup = (budget(known, known[name]) for name in ("draft-q35-08b-max8", "ngram-cache"))
    assert by_model is not None
    assert by_lookup is not None
    assert by_lookup.most_ms == pytest.approx(10 * (2990 + 150))
    assert by_model.most_ms == pytest.approx(10 * (2990 + 150 + 300))
    assert by_model.spent_ms == pytest.approx(10 * 2990 / 0.8)
    assert by_model.unexplained == pytest.approx(1 - 3440 * 0.8 / 2990)
    assert budget(known, known["baseline"]) is None
    published_lines = lines(published())
    (result, time), *_ = budgets_of_requests(published_lines, published_lines["ngram-cache"])
    assert (result.prompt, result.drafted) == ("reasoning", 51)
    assert time.most_ms == pytest.approx(2214.012)
    assert time.spent_ms == pytest.approx(4596.852)


def test_a_configuration_that_drafted_nothing_is_no_gain_and_no_doubt() -> None:
    """Where the counter tells: one that counts accepted tokens alone may hide drafts."""
    idle = {"ngmod-n8": Made(1.001, 0, 0, 1.0)}
    assert rulings(made.study(changes=idle))["no-gain"] == "supported"
    assert "rtx3090-19.idle" in codes(said(made.study(changes=idle), "no-gain"))
    assert rulings(made.study(lambda _: FULL, idle))["no-gain"] == "cannot tell"


# --- both directions -------------------------------------------------------------------------------------------------

TURNED = made.study(changes=dict.fromkeys(LONG, WINNING))
ALIKE = made.study(lambda _: Made(0.8, lowest=0.4))

CASES: dict[str, dict[RulingWord, StudyData]] = {
    "no-gain": {
        "supported": made.study(),
        "contradicted": made.study(changes={"ngmod-n8": WINNING}),
        "cannot tell": made.study(noise=0.2),
    },
    "bimodal-tail": {
        "contradicted": made.study(changes={"ngmod-n8": Made(0.9, lowest=0.8)}),
        "cannot tell": made.study(changes={OTHER_VOCABULARY: Made(1.0, 0, 0, 0.4, "invalid")}),
    },
    "full-acceptance": {
        "supported": made.study(lambda _: SLIGHT),
        "contradicted": made.study(),
        "cannot tell": made.study(lambda _: FULL),
    },
    "kv-quantization": {
        "supported": made.study(f16_baseline=True),
        "contradicted": made.study(changes={F16: Made(1.0)}, f16_baseline=True),
        "cannot tell": made.study(),
    },
    "output-length": {
        "supported": made.study(),
        "contradicted": TURNED,
        "cannot tell": made.study(noise=0.2),
    },
    "output-length-unchanged": {
        "supported": made.study(),
        "contradicted": TURNED,
        "cannot tell": made.study(noise=0.02),
    },
    "silent-failure": {
        "supported": made.study(),
        "contradicted": made.study(changes={OTHER_VOCABULARY: Made(0.7, 200, 3)}),
        "cannot tell": made.study(changes={OTHER_VOCABULARY: Made(0.7, 0, 0, 0.4, "invalid")}),
    },
    "draft-choice": {
        "supported": made.study(second_draft=LOSING),
        "contradicted": made.study(second_draft=WINNING),
        "cannot tell": made.study(),
    },
    "saturation-threshold": {
        "supported": made.study(read=250.0),
        "contradicted": made.study(read=120.0),
        "cannot tell": made.study(),
    },
    "saturation-explains": {
        "supported": made.study(lambda name: ALMOST if name == "ngmod-n8" else SLIGHT),
        "contradicted": made.study(changes={"ngmod-n8": WINNING}),
        "cannot tell": made.study(lambda _: SLIGHT),
    },
    "active-parameters": {
        "supported": made.study(larger=(128, 16)),
        "contradicted": made.study(larger=(256, 8)),
        "cannot tell": made.study(),
    },
    "larger-gains": {"cannot tell": made.study()},
}


@pytest.mark.parametrize(("claim", "ruling"), [(claim, ruling) for claim, cases in CASES.items() for ruling in cases])
def test_a_claim_is_ruled_as_the_data_say(claim: str, ruling: RulingWord) -> None:
    assert rulings(CASES[claim][ruling])[claim] == ruling


def test_every_claim_has_its_cases() -> None:
    assert set(CASES) == set(rulings(published()))


def test_a_counter_that_only_says_all_gives_no_reason_for_a_loss() -> None:
    """Slower than experts explain, at 100 % everywhere: rejected drafts may be left out, so nothing is ruled."""
    told = ruled(made.study(lambda _: FULL))["saturation-explains"]
    assert told.ruling == "cannot tell"
    assert "rtx3090-19.explains.blind" in codes(told.found)


def test_claims_about_the_documents_models_do_not_apply_to_others() -> None:
    data = made.study(experts=(32, 4), larger=(32, 4))
    ours = replace(data, models=tuple(it.model_copy(update={"stand_in": True}) for it in data.models))
    elsewhere = {name for name, ruling in rulings(ours).items() if ruling == "does not apply here"}
    assert elsewhere == {"saturation-threshold", "active-parameters", "larger-gains"}
    threshold = values(said(ours, "saturation-threshold"), "rtx3090-19.threshold")
    assert (threshold["used"], threshold["experts"]) == (4, 32)


def test_a_second_draft_that_was_found_invalid_is_not_called_missing() -> None:
    told = ruled(made.study(second_draft=LOSING._replace(verdict="invalid")))["draft-choice"]
    assert told.ruling == "cannot tell"
    invalid = values(told.found, "rtx3090-19.drafts.invalid")
    assert values(invalid["names"], "rtx3090-19.names")["names"] == ["draft-second-max16"]


def test_a_second_mode_in_every_configuration() -> None:
    """Half of the requests at half the rate, on prompts of their own: that is bimodal."""
    data = made.study(changes={OTHER_VOCABULARY: Made(0.7, 30, 3, 0.4)})
    prompts = [f"p{number}" for number in range(40)]
    results = [
        PromptResult(
            config=arm.config,
            target="moe",
            method=arm.method,
            prompt=prompt,
            decode_rate=made.PLAIN * (0.45 if arm.speculates and number % 2 else 1.0) * (1 + number / 10_000),
        )
        for arm in data.arms
        for number, prompt in enumerate(prompts)
    ]
    ruling = ruled(StudyData("rtx3090-19", "measured", "made up", tuple(results), data.arms))["bimodal-tail"]
    assert ruling.ruling == "supported"
    dips = values(ruling.found, "rtx3090-19.tail.dips")
    assert (dips["humps"], dips["piles"]) == (16, 16)


def test_no_data_decides_nothing() -> None:
    empty = StudyData("rtx3090-19", "measured", "nothing measured")
    assert set(rulings(empty).values()) == {"cannot tell"}
    assert findings("rtx3090-19", empty).tables == findings("rtx3090-19", empty).figures == ()
    assert saturation(empty) is None


# --- tables and figures ----------------------------------------------------------------------------------------------


def test_tables_of_the_published_numbers() -> None:
    tables = {table.key: table for table in findings("rtx3090-19", published()).tables}
    summary = tables["summary"]
    columns = rows("rtx3090_19_summary.csv")[0]
    assert [column.code for column in summary.columns[: len(columns)]] == list(columns)
    order = [row["config"] for row in rows("rtx3090_19_summary.csv")]
    assert [row[0].text for row in summary.rows] == order
    for row, printed in zip(summary.rows, rows("rtx3090_19_summary.csv"), strict=True):
        for cell, (name, value) in zip(row, printed.items(), strict=False):
            if name not in ("config", "reference"):
                assert isinstance(cell.value, float), name
                assert cell.value == pytest.approx(float(value), abs=0.006), name
    struck = {row[0].text for row in summary.rows if row[5].struck}
    assert struck == {F16, OTHER_VOCABULARY}
    assert len(tables["controls"].rows) == 7
    assert len(tables["saturation"].rows) == 16
    assert len(tables["requests"].rows) == 190


def test_figures_of_the_published_numbers() -> None:
    figures = {figure.key: figure for figure in findings("rtx3090-19", published()).figures}
    assert {key: len(figure.points) for key, figure in figures.items()} == {
        "per-prompt": 190,
        "mean-by-configuration": 38,
        "acceptance-speed": 82,
    }
    assert {point.x for point in figures["acceptance-speed"].points} == {100.0}
    # Ordinary rates carry no mark: what is unlike is said of the comparison.
    rates = figures["mean-by-configuration"].points
    assert {point.verdict for point in rates} == {None}
    assert {round(point.y, 1): point.label for point in rates if point.x == F16}[113.7].startswith("over baseline: no")
