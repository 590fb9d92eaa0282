"""What specmeter says about the paper's own numbers; each expectation is arithmetic on what the paper printed."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from claims_of import values
from specmeter.messages import Message
from specmeter.record import Estimate
from specmeter_studies import findings
from specmeter_studies.from_claims import rulings
from specmeter_studies.library.moe_306.equations import equations, rounds, tokens_generated, traffic
from specmeter_studies.library.moe_306.lines import MOE, SMALL, at, by_length, label, overall, speculative, suite
from specmeter_studies.library.moe_306.published import published, swept_words
from specmeter_studies.library.moe_306.rulings import refuted_by
from specmeter_studies.study import ClaimRuling, StudyData, StudyFindings, StudyTable


@cache
def data() -> StudyData:
    return published()


@cache
def found() -> StudyFindings:
    return findings("moe-306", data())


def claim(claim_id: str) -> ClaimRuling:
    return next(claim for claim in found().claims if claim.id == claim_id)


def table(key: str) -> StudyTable:
    return next(table for table in found().tables if table.key == key)


def texts(made: StudyTable, row: int) -> list[str]:
    """Cells of a row as they would be shown; struck ones in ~."""
    shown: list[str] = []
    for cell in made.rows[row]:
        value = cell.value.point if isinstance(cell.value, Estimate) else cell.value
        text = str(cell.text) if value is None else f"{value:.{cell.digits}f}"
        shown.append(f"~{text}~" if cell.struck else text)
    return shown


def test_all_306_runs_are_there_in_their_suites() -> None:
    counted: Counter[str] = Counter()
    for line in overall(data()):
        assert suite(line) == line.suite
        counted[line.suite] += line.requests
    assert len(data().results) == 306
    assert counted == {"A": 18, "B": 144, "C": 36, "D": 72, "F": 36}
    assert tokens_generated(data()) == 256


def test_no_speculative_row_of_the_tables_is_plausible() -> None:
    lines = speculative(data())
    assert len(lines) == 18
    for line in lines:
        assert line.verdict == "implausible"
        assert line.speedup is None
        assert line.claimed_speedup is not None
    assert Counter(map(refuted_by, lines)) == {
        "speedup-above-tau": 9,
        "speedup-above-cost-bound": 9,
    }


def test_the_sweep_over_lengths_says_100_percent_everywhere_and_is_suspect() -> None:
    drafted = [line for line in by_length(data()) if line.speculates]
    assert [line.prompt_tokens for line in drafted] == [32, 64, 128, 256, 512, 1024]
    for line in drafted:
        assert line.acceptance is not None
        assert line.acceptance.point == 1
        assert line.verdict == "suspect"
    speedups = [round(line.speedup.point, 2) for line in drafted if line.speedup]
    assert speedups == [1.26, 1.24, 1.2, 1.19, 1.19, 1.19]  # the paper: 1.26 at 32 tokens, about 1.19 from 256


def test_lengths_of_the_sweep_are_words_of_a_text_that_ends_before_most_of_them() -> None:
    assert swept_words() == {32: 32, 64: 64, 128: 128, 256: 156, 512: 156, 1024: 156}
    rates = {
        line.prompt_tokens: line.decode_rate.point for line in by_length(data()) if line.speculates and line.decode_rate
    }
    same = [rates[length] for length in (256, 512, 1024)]
    assert max(same) / min(same) < 1.0012
    assert "256, 512, 1024" in str(claim("contribution-4").found)


RULINGS = {
    "contribution-1": "contradicted",  # 21 of 216 generations
    "contribution-2": "contradicted",  # 0.24 % of 16 permits 1.04
    "contribution-3": "contradicted",  # its own Figure 1: 35e9 gain less than 9e9
    "contribution-4": "contradicted",  # three of its six lengths are one prompt
    "finding-1": "contradicted",
    "finding-2": "cannot tell",
    "finding-3": "cannot tell",
    "finding-4": "contradicted",
    "practice-1": "contradicted",
    "practice-2": "cannot tell",
    "practice-3": "contradicted",  # its own Table 5: 1.05, 0.98, 1.12
    "practice-4": "contradicted",  # its own suite F: all accepted, and 1.26x at most
    "equation-2": "contradicted",  # 19.4 where 1.26 is printed
    "moe-tax": "contradicted",  # 1139 GB/s of 800
    "verification-cost": "cannot tell",
    "range": "contradicted",  # its own Table 5: 8 of 12 outside
    "lossless": "cannot tell",
    "draft-cost": "contradicted",  # 138.0 and 110.4 tok/s
    "moe-slower": "supported",
    "compute-bound": "contradicted",  # 2 x 4e9 x 67.2 of 27e12
    "figure-5-cause": "contradicted",  # no rate contains the prompt
    "section-5-2": "contradicted",  # 16 rounds of 1.04 tokens
    "experts": "contradicted",
    "section-5-3": "cannot tell",
}
COUNTS = {"contribution-4", "finding-4", "figure-5-cause", "section-5-2", "experts"}
VALUES = {
    "contribution-1", "contribution-2", "contribution-3", "finding-1",
    "practice-1", "practice-3", "practice-4", "equation-2", "range",
}  # fmt: skip


def test_rulings() -> None:
    assert {claim.id: claim.ruling for claim in found().claims} == RULINGS


@pytest.mark.parametrize(
    ("claim_id", "code", "numbers"),
    [
        ("contribution-1", "moe-306.generations", {"n": 216, "over": 21, "highest": 11.4, "means": 4.0}),
        ("contribution-1", "moe-306.generations.swept", {"n": 18}),
        (
            "contribution-2",
            "moe-306.too_high",
            {"broken": 6, "claimed": 12, "speedup": 1.30, "share": 0.245, "tau": 1.04},
        ),
        ("contribution-2", "moe-306.too_high.unpaid", {"unpaid": 6}),
        ("contribution-2", "moe-306.paid", {"permitted": 0.153}),
        ("contribution-2", "moe-306.paid.format", {"permitted": 0.188}),
        ("contribution-2", "moe-306.format", {"measured": "BF16", "drafts_in": "UD-Q8_K_XL", "most": 1.28}),
        ("contribution-3", "moe-306.printed", {"many": label("moe_q4"), "low": 1.18, "high": 1.64}),
        ("finding-1", "moe-306.too_high", {"broken": 6, "claimed": 6}),
        ("practice-1", "moe-306.too_high", {"broken": 2, "claimed": 2, "tau": 1.04}),
        ("finding-2", "study.some_of", {"number": 4, "of": 4}),
        ("finding-2", "moe-306.broken", {"n": 4, "bound": "speedup-above-tau"}),
        ("practice-3", "study.some_of", {"number": 18, "of": 18}),
        ("practice-3", "moe-306.broken", {"n": 9, "bound": "speedup-above-tau"}),
        ("practice-3", "moe-306.curve.at", {"gamma": 4, "speedup": 1.05}),
        ("range", "moe-306.outside.printed", {"n": 8, "of": 12}),
        ("draft-cost", "study.interval", {"point": 1.25, "low": 1.24, "high": 1.26}),
        ("compute-bound", "moe-306.arithmetic.of", {"share": 0.82, "peak": 27}),
        ("figure-5-cause", "moe-306.prompts", {"whole": 234, "rows": 234, "words": 156}),
        ("figure-5-cause", "moe-306.prompts", {"tokens": 20, "ms": 85.0, "low": 55.0, "high": 55.3}),
        ("section-5-2", "moe-306.rounds", {"give": 16.6, "tokens": 256, "needed": 246.6, "ms": 14.9}),
        ("section-5-2", "moe-306.rounds.plain", {"ms": 18.1}),
        ("experts", "moe-306.experts.published", {"experts": 256, "used": 8}),
        ("lossless", "moe-306.no_texts", {"low": 0.2336, "high": 0.8235}),
        ("finding-4", "moe-306.lengths.one_prompt", {"words": 156, "low": 65.82, "high": 65.89}),
        ("practice-4", "moe-306.well.printed", {"n": 6, "low": 1.19, "high": 1.26}),
        ("equation-2", "moe-306.equation_2.printed", {"by_equation": 19.4, "printed": 1.26}),
        ("moe-tax", "study.interval", {"point": 1933.0}),
        ("moe-tax", "moe-306.tax.limit", {"limit": 800.0}),
        ("moe-tax", "moe-306.tax.reads", {"share": 0.086}),
    ],
)
def test_what_was_found_names_numbers_and_bounds(claim_id: str, code: str, numbers: dict[str, Any]) -> None:
    held = values(claim(claim_id).found, code)
    for name, number in numbers.items():
        assert held[name] == (number if isinstance(number, str | int | Message) else pytest.approx(number, rel=5e-3)), (
            name
        )


def test_every_ruling_says_what_it_rests_on() -> None:
    for it in found().claims:
        decided = it.ruling in ("supported", "contradicted")
        expected = "counts" if it.id in COUNTS else "printed values" if it.id in VALUES else "intervals"
        assert it.rests_on == (expected if decided else ""), it.id


def test_the_root_cause_is_told_from_counts_in_raw_logs() -> None:
    """134 of 174 verifications of 35B-A3B with 0.8B failed: 40 at gamma 4 took place in each log, 23 at gamma 8."""
    note = values(data().notes[0], "moe-306.note.root_cause")
    assert (note["failed"], note["asked"]) == (134, 174)
    logs = table("raw-logs")
    assert len(logs.rows) == 17
    told = {texts(logs, row)[0]: texts(logs, row)[2:5] for row in range(17)}
    assert told["sd_35B_Q4_0.8B_Q8_k4"] == ["174", "40", "134"]
    assert told["sd_9B_Q8_2B_Q8_k8"] == ["189", "23", "166"]
    assert {took for _, took, _ in told.values()} == {"40", "23"}


def test_no_bound_that_is_broken_holds_with_a_draft_as_fast_as_its_format_permits() -> None:
    for row in equations(data()):
        claimed = row.line.claimed_speedup
        assert claimed is not None
        assert (row.format is not None) == (row.line.draft == SMALL)
        assert row.permitted_at_most is not None
        assert claimed > row.permitted_at_most


def test_the_page_counts_as_the_audit_does() -> None:
    audited = Counter(ruling.verdict for ruling in rulings("moe-306"))
    assert str(data().notes[-1]).endswith(f"{audited['implausible']} implausible, {audited['possible']} possible.")
    runs = Counter(ruling.verdict for ruling in rulings("moe-306", "moe-306/runs.csv"))
    shown = Counter(result.verdict for result in data().results)
    assert (shown["implausible"], shown["invalid"]) == (runs["implausible"], runs["impossible"]) == (216, 0)


def test_equations_on_the_papers_numbers() -> None:
    """MoE Q4, 0.8B, gamma 16: acceptance 0.00238, so tau 1.038; 16 x 1.26 / 1.038; c = 55.28 / 138.04."""
    row = next(r for r in equations(data()) if r.line is at(data(), "moe_q4", SMALL, 16))
    assert row.tau == pytest.approx(1 + 16 * 0.0023825)
    assert row.draft_cost == pytest.approx(55.27768 / 138.03983, rel=1e-5)
    assert row.permitted == pytest.approx(row.tau / (1 + 16 * 55.27768 / 138.03983), rel=1e-5)
    assert row.claimed == pytest.approx(16 * 1.26 / row.tau)
    assert row.nothing_accepted is None


def test_traffic_by_all_bytes_and_by_active_ones() -> None:
    by_target = {row.line.target: row for row in traffic(data()) if not row.line.speculates}
    four = by_target["moe_q4"]
    assert four.whole is not None
    assert four.whole.point / 1e9 == pytest.approx(20.6 * 55.27768, rel=1e-5)  # the paper: 1138
    assert four.least is not None
    assert four.least.point / 1e9 == pytest.approx(20.6 * 3 / 35 * 55.27768, rel=1e-5)
    assert all(row.least is not None and row.least.point < 800e9 for row in by_target.values())


def test_rounds_that_are_shorter_than_a_token() -> None:
    """The paper: 16 rounds of 229 ms; with tau there are 247 of 14.9 ms, where one plain token takes 18.1."""
    row = next(r for r in rounds(data(), 256) if r.line is at(data(), "moe_q4", SMALL, 16))
    assert (row.paper_rounds, round(row.paper_ms.point)) == (16, 229)
    assert round(row.rounds) == 247
    assert row.plain_ms is not None
    assert row.ms.point == pytest.approx(14.89, abs=0.01)
    assert row.ms.point < row.plain_ms.point == pytest.approx(18.09, abs=0.01)


def test_tables_print_what_the_paper_prints() -> None:
    assert [made.key for made in found().tables] == [
        "table-2", "table-3", "table-4", "table-5", "table-6", "equations", "section-5-2", "section-5-2-rounds",
        "raw-logs",
    ]  # fmt: skip
    assert texts(table("table-3"), -1) == ["total", "", "306"]
    assert [texts(table("table-4"), row)[0:4:3] for row in range(6)] == [
        ["Dense 0.8B", "138.0"],
        ["Dense 2B", "110.4"],
        ["MoE Q4", "55.3"],
        ["MoE Q8", "49.9"],
        ["Dense 4B", "67.2"],
        ["Dense 9B", "33.4"],
    ]
    assert texts(table("table-5"), 2) == ["MoE Q4", "0.8B", "16", "69.7", "1.26", "0.2", "-"]
    assert texts(table("table-6"), 5)[-1] == "no valid pair"


def test_figures_mark_what_is_false() -> None:
    figures = {figure.key: figure for figure in found().figures}
    assert set(figures) == {
        "figure-1", "figure-2", "figure-3", "figure-4", "figure-5-throughput", "figure-5-speedup",
    }  # fmt: skip
    assert {point.verdict for key in ("figure-1", "figure-2") for point in figures[key].points} == {"implausible"}
    assert len(figures["figure-2"].points) == 18
    assert len(figures["figure-3"].points) == 24
    assert {(point.x, round(point.y, 2)) for point in figures["figure-1"].points} == {
        (3.0, 1.18), (3.0, 1.22), (4.0, 0.98), (9.0, 1.64),
    }  # fmt: skip
    assert {line.target for line in speculative(data(), "B")} == set(MOE)
