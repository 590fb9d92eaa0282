"""Tables as people publish them: two rows of headings, merged cells, HTML, LaTeX, plain text, JSON in a tree."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmeter.audit.claim import Claim
from specmeter.audit.judge import rule_claim
from specmeter.audit.read.options import TableOptions
from specmeter.audit.read.table import read_table
from specmeter.audit.reading import detect
from specmeter.errors import UsageError


def claims(text: str, tmp_path: Path | None = None) -> list[Claim]:
    if tmp_path is not None:  # found by its content, whatever it is called
        path = tmp_path / "a.bin"
        path.write_text(text, encoding="utf-8")
        assert detect(path) == "table"
    return list(read_table(text, Path("page"), TableOptions()))


def told(found: list[Claim], *names: str) -> list[tuple[Any, ...]]:
    values = ([getattr(claim, name) for name in names] for claim in found)
    return [tuple(round(value, 9) if isinstance(value, float) else value for value in row) for row in values]


# --- two rows of headings --------------------------------------------------------------------------------------------

MARKDOWN = """Speedups of EAGLE.

|       |        | MT-bench |   | HumanEval |   |
|:-:|:-:|:-:|:-:|:-:|:-:|
| Model | Method | Speedup  | τ | Speedup   | τ |
| Vicuna 13B | [SpS](https://example.org/sps) | 1.93x | 2.27 | 2.23x | 2.57 |
| | **EAGLE-3** | **5.58x** | 6.65 | 6.47x | 7.54 |
"""
CSV = """Model,Method,MT-bench,,HumanEval,
,,Speedup,tau,Speedup,tau
Vicuna 13B,SpS,1.93x,2.27,2.23x,2.57
,EAGLE-3,5.58x,6.65,6.47x,7.54
"""
HTML = """<html><body><script>alert("<table><tr><td>1")</script><table border=1>
<thead><tr><th rowspan="2">Model<th rowspan=2>Method</th><th colspan="2">MT-bench</th><th colspan=2>HumanEval</tr>
<tr><th>Speedup</th><th>&tau;</th><th>Speedup</th><th>τ</th></tr></thead><!-- <tr><td>9</td></tr> -->
<tr><td rowspan="2">Vicuna 13B</td><td>SpS</td><td>1.93x<sup>a</sup></td><td>2.27</td><td>2.23x</td><td>2.57</td></tr>
<tr><td><b>EAGLE-3</b></td><td><b>5.58x</b></td><td>6.65</td><td>6.47x</td><td>7.54</td></tr></table></body></html>"""
LATEX = r"""\begin{table}[t]\centering
\begin{tabular}{@{}ll|cc|cc@{}}
\toprule
 & & \multicolumn{2}{c}{MT-bench} & \multicolumn{2}{c}{HumanEval} \\ \cmidrule(lr){3-4} \cmidrule(lr){5-6}
Model & Method & Speedup & $\tau$ & Speedup & $\tau$ \\ \midrule % ends here
\multirow{2}{*}{Vicuna 13B} & SpS~\citep{leviathan} & 1.93$\times$ & 2.27 & 2.23x & 2.57 \\
 & \textbf{EAGLE-3} & \textbf{5.58x} & 6.65 & 6.47$\times$ & 7.54 \\
\bottomrule
\end{tabular}\end{table}"""
EXPECTED = [
    ("Vicuna 13B / SpS / MT-bench", 1.93, 2.27),
    ("Vicuna 13B / SpS / HumanEval", 2.23, 2.57),
    ("Vicuna 13B / EAGLE-3 / MT-bench", 5.58, 6.65),
    ("Vicuna 13B / EAGLE-3 / HumanEval", 6.47, 7.54),
]


@pytest.mark.parametrize("text", [MARKDOWN, CSV, HTML, LATEX])
def test_a_pair_of_columns_is_a_claim_in_every_form(text: str, tmp_path: Path) -> None:
    found = claims(text, tmp_path)
    assert told(found, "label", "speedup", "tau") == EXPECTED
    assert [claim.conditions["group"] for claim in found] == ["MT-bench", "HumanEval"] * 2
    assert [claim.method for claim in found] == ["sps", "sps", "draft-eagle3", "draft-eagle3"]
    assert {rule_claim(claim).verdict for claim in found} == {"possible"}


def test_rows_are_named_by_their_line() -> None:
    assert [claim.row for claim in claims(MARKDOWN)][::2] == ["line 6, MT-bench", "line 7, MT-bench"]
    assert [claim.row for claim in claims(LATEX)][::2] == ["line 6, MT-bench", "line 7, MT-bench"]
    assert [claim.row for claim in claims(HTML)][::2] == ["line 4, MT-bench", "line 5, MT-bench"]
    assert [claim.row for claim in claims(CSV)][::2] == ["line 3, MT-bench", "line 4, MT-bench"]


def test_a_heading_above_its_data_sets() -> None:
    text = "| Method | Speedup | | Acceptance | |\n|---|---|---|---|---|\n| | GSM8K | MBPP | GSM8K | MBPP |\n"
    found = claims(text + "| SD | 1.5x | 1.7x | 60% | 70% |\n")
    assert told(found, "speedup", "acceptance") == [(1.5, 0.6), (1.7, 0.7)]


def test_baselines_are_those_of_the_same_data_set() -> None:
    text = "| Method | GSM8K | | MBPP | |\n|---|---|---|---|---|\n| | t/s | τ | t/s | τ |\n"
    found = claims(text + "| Vanilla | 40 | 1 | 50 | 1 |\n| SD | 60 | 2 | 90 | 2.5 |\n")
    assert told(found, "decode_rate", "baseline_rate") == [(40, None), (50, None), (60, 40), (90, 50)]


def test_spec_bench_s_leaderboard() -> None:
    text = """| Models | Multi-turn Conversation | Translation | Summa-rization | #Mean Accepted Tokens | Overall |
| --- | :---: | :---: | :---: | :---: | :---: |
| [SAMD[EAGLE2]](https://github.com/hyx1999/SAM-Decoding)🏅 | **2.85x** | **1.83x** | **2.64x** | **4.61** | **2.38x** |
| [PLD](https://example.org) | 1.64x | 1.15x | 2.46x | 1.73 | 1.64x |
"""
    found = claims(text)
    assert len(found) == 8
    assert told(found[-4:], "speedup", "tau") == [(1.64, None), (1.15, None), (2.46, None), (1.64, 1.73)]
    assert found[0].method == "samd[eagle2]🏅"
    # A task may gain more than all tasks together emit per step, so their mean is held against their mean alone.
    assert "impossible" not in {rule_claim(claim).verdict for claim in found}


def test_methods_beside_each_other() -> None:
    text = "| Category | Baseline t/s | MTP BF16 t/s | BF16 x | BF16 Accept | MTP Q4 t/s | Q4 x | Q4 Accept |\n"
    found = claims(
        text + "|---|---|---|---|---|---|---|---|\n| code | 56.4 | 52.3 | 0.93x | 57% | 53.5 | 0.95x | 51% |\n"
    )
    assert told(found, "decode_rate", "baseline_rate", "speedup", "acceptance") == [
        (52.3, 56.4, 0.93, 0.57),
        (53.5, 56.4, 0.95, 0.51),
    ]
    bare = claims("| Card | Baseline | MTP | DFlash |\n|---|---|---|---|\n| x | 130.9 | 161.2 | 118.8 |\n")
    assert told(bare, "method", "decode_rate", "baseline_rate") == [
        ("draft-mtp", 161.2, 130.9),
        ("draft-dflash", 118.8, 130.9),
    ]
    combined = claims("| Model | Baseline | MTP |\n|---|---|---|\n| a | `130.9 t/s` | `161.2 t/s @ 73.9%` |\n")
    assert told(combined, "decode_rate", "baseline_rate") == [(161.2, 130.9)]
    assert combined[0].acceptance == pytest.approx(0.739)


def test_data_sets_above_rates() -> None:
    text = "| n-max | Overall | P1 code (py) | P2 prose | Acceptance |\n|---|---|---|---|---|\n"
    found = claims(text + "| off | 61.4 | 61.6 | 61.3 | — |\n| 2 | 118.9 (+94%) | 130.1 | 99.0 | 0.56-0.92 |\n")
    assert told(found[3:], "decode_rate", "baseline_rate", "gamma") == [
        (118.9, 61.4, 2),
        (130.1, 61.6, 2),
        (99, 61.3, 2),
    ]
    assert found[3].acceptance == pytest.approx(0.74)
    assert found[3].rounding["acceptance"] == pytest.approx(0.185)
    assert found[4].acceptance is None
    lengths = "| category | DFlash t1 | DFlash2 t1 |\n| --- | ---: | ---: |\n| coding | 3.99 | 5.10 |\n"
    assert {rule_claim(claim).verdict for claim in claims(lengths)} == {"cannot tell"}, (
        "nothing says that these are rates"
    )


def test_columns_told_apart_by_parentheses_or_a_prefix() -> None:
    text = "| n_max | t/s (plain) | t/s (speculative) | accepted/drafted |\n|:-:|:-:|:-:|:-:|\n"
    text += "| 2 | 109.75 | 157.46 | 80.3% |\n"
    assert told(claims(text), "decode_rate", "baseline_rate", "gamma") == [(157.46, 109.75, 2)]
    assert claims(text)[0].acceptance == pytest.approx(0.803)
    both = claims("method,speedup (MT-bench),speedup (GSM8K)\nx,1.2,1.3\n")
    assert [claim.speedup for claim in both] == [1.2, 1.3]
    text = "| prompt | spec off: TTFT | decode t/s | MTP: TTFT | decode t/s | ratio |\n|---|---|---|---|---|---|\n"
    found = claims(text + "| a | 2.59 s | 36.24 | 2.80 s | 56.05 | 1.55x |\n")
    assert told(found, "decode_rate", "baseline_rate", "speedup") == [(56.05, 36.24, 1.55)]


# --- merged cells, sections, tables on their side --------------------------------------------------------------------


def test_empty_cells_are_filled_only_where_the_structure_shows_it() -> None:
    text = "target,draft,gamma,tok/s\na,none,0,50\n,d,4,60\nb,none,0,70\n,,,\n,d,4,80\n"
    assert told(claims(text), "target", "baseline_rate") == [("a", None), ("a", 50), ("b", None), ("b", 70)]
    draft = claims("target,draft,tok/s\na,d,60\na,,50\n")
    assert draft[1].draft is None


def test_a_line_across_a_table_holds_for_those_below() -> None:
    latex = LATEX.replace(r"\multirow", r"\multicolumn{6}{c}{Temperature=0} \\ \midrule" + "\n" + r"\multirow")
    assert {claim.conditions["section"] for claim in claims(latex)} == {"Temperature=0"}
    text = "| Method | t/s | γ |\n|---|---|---|\n| **Greedy** | | |\n| none | 40 | 0 |\n| SD | 60 | 4 |\n"
    text += "| **T = 1** | | |\n| none | 30 | 0 |\n| SD | 50 | 4 |\n"
    found = claims(text)
    assert told(found, "baseline_rate") == [(None,), (40,), (None,), (30,)]
    assert [claim.conditions["section"] for claim in found] == ["Greedy", "Greedy", "T = 1", "T = 1"]


def test_a_table_on_its_side() -> None:
    text = (
        "| Metric | Baseline | Speculative |\n|---|---|---|\n| tok/s | 40.1 | 60.2 |\n| Acceptance rate | - | 65% |\n"
    )
    baseline, spec = claims(text)
    assert (baseline.label, baseline.method, baseline.decode_rate) == ("Baseline", "none", 40.1)
    assert (spec.decode_rate, spec.baseline_rate, spec.acceptance) == (60.2, 40.1, 0.65)


def test_columns_of_a_fixed_width(tmp_path: Path) -> None:
    text = """Summary (elapsed=10.0s)
category  samples  avg_prompt_t/s  avg_pred_t/s  avg_latency  accept_rate
--------  -------  --------------  ------------  -----------  -----------
coding    2        707.44          87.08         11.984s      0.7012
overall   3        n/a             80.00         9.1s         n/a
"""
    found = claims(text, tmp_path)
    assert told(found, "label", "runs", "decode_rate", "acceptance") == [
        ("coding", 2, 87.08, 0.7012),
        ("overall", 3, 80, None),
    ]
    assert found[0].averaged == ("decode_rate",)
    compared = """category  base_avg_pred_t/s  spec_avg_pred_t/s  decode_speedup  latency_speedup  accept_rate
--------  -----------------  -----------------  --------------  ---------------  -----------
coding    40.10              87.08              2.17x           2.00x            0.7012
"""
    assert told(claims(compared, tmp_path), "decode_rate", "baseline_rate", "speedup") == [(87.08, 40.1, 2.17)]


def test_drawn_tables_and_lines_of_pairs(tmp_path: Path) -> None:
    box = "┏━━━━━┳━━━━━┓\n┃ method ┃ t/s ┃\n┡━━━━━╇━━━━━┩\n│ none │ 40 │\n│ SD │ 60 │\n└─────┴─────┘\n"
    ascii_box = "+------+-----+\n| method | t/s |\n+------+-----+\n| none | 40 |\n| SD | 60 |\n+------+-----+\n"
    for text in (box, ascii_box):
        assert told(claims(text, tmp_path), "method", "decode_rate", "baseline_rate") == [
            ("none", 40, None),
            ("sd", 60, 40),
        ]
    pairs = "warm-up\n  code_python   pred= 192 draft= 163 acc= 136 rate=0.834 tok/s=135.4\n"
    pairs += "  qa            pred= 192 draft= 176 acc= 132 rate=0.750 tok/s=127.0\n"
    found = claims(pairs, tmp_path)
    assert told(found, "label", "predicted_n", "drafted", "accepted", "decode_rate") == [
        ("warm-up code_python", 192, 163, 136, 135.4),
        ("warm-up qa", 192, 176, 132, 127.0),
    ]
    assert found[0].acceptance == pytest.approx(0.834)


def test_ik_s_report(tmp_path: Path) -> None:
    text = """| task | run | stage | tokens | stop | time(s) | tok/s | rounds | accepted |   rate | a.len | pos accept |
|------|-----|-------|--------|------|---------|-------|--------|----------|--------|-------|------------|
| code |   1 | base  |    759 | eog  |  21.068 | 36.03 |      - |        - |      - |     - | -          |
| code |   1 | mtp   |    759 | eog  |  11.068 | 68.58 |    220 |  538/660 | 81.52% |  3.45 | 90% 80% 75% |
"""
    plain, drafted = claims(text, tmp_path)
    assert plain.method == "none"
    assert (drafted.accepted, drafted.drafted, drafted.steps, drafted.tau) == (538, 660, 220, 3.45)
    assert drafted.baseline_rate == 36.03


# --- words that mean several things ----------------------------------------------------------------------------------


def test_chinese_tables(tmp_path: Path) -> None:
    text = """| 方法 | 草稿长度 | 速度 (t/s) | 加速比 | 接受率 |
|------|---|------|------|------|
| 基线 | - | 72.3 | 1.00x | - |
| 投机解码 | 5 | 132.4 | **1.83x** | 74.6% |
"""
    for page in (text, text.replace("线", "線").replace("长", "長").replace("机", "機")):
        plain, spec = claims(page, tmp_path)
        assert plain.method == "none"
        assert (spec.gamma, spec.decode_rate, spec.speedup, spec.baseline_rate) == (5, 132.4, 1.83, 72.3)
        assert spec.acceptance == pytest.approx(0.746)


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("t/s,speedup,mean_accepted_tokens\n60,1.5,4\n", {4, 5}),
        ("t/s,speedup,acceptance_length\n60,1.5,0.8\n", {1.8}),
        ("t/s,accepted,drafts,acceptance_length\n60,100,50,2.0\n60,120,50,2.4\n60,80,50,1.6\n", {2.6}),
        ("t/s,accepted,drafts,acceptance_length\n60,100,50,3.0\n60,120,50,3.4\n60,80,50,2.6\n", {2.6}),
        ("name,t/s,accept len\nvanilla,40,0\nx,60,1.4\n", {2.4}),
        ("name,t/s,tau\nx,60,2.4\n", {2.4}),
        ("name,t/s,accepted_drafts_per_step\nx,60,1.4\n", {2.4}),
        ("name,t/s,Accepted tokens/step\nx,60,2.4\n", {2.4, 3.4}),
    ],
)
def test_whether_a_length_counts_the_target_s_own_token(text: str, lengths: set[float]) -> None:
    claim = claims(text)[-1]
    read = {it.tau for it in (claim, *(it for other in claim.rivals for it in other))} - {None}
    assert read == lengths


def test_draft_tokens_are_all_of_them_or_those_of_a_step() -> None:
    total = claims("speedup,num_draft_tokens,num_accepted_tokens,num_drafts\n1.2,500,300,125\n")[0]
    assert (total.drafted, total.gamma, total.accepted, total.steps) == (500, None, 300, 125)
    assert claims("speedup,num_draft_tokens\n1.2,5000\n")[0].drafted == 5000
    step = claims("speedup,num_draft_tokens\n1.2,5\n")[0]
    assert (step.drafted, step.gamma) == (None, 5)


def test_an_acceptance_above_all_reaches_the_judge() -> None:
    claim = claims("speedup,gamma,acceptance\n1.9,4,108%\n")[0]
    assert (claim.acceptance, claim.problem) == (1.08, None)
    mixed = claims("speedup,gamma,acceptance\n1.9,4,0.62\n1.9,4,1.08\n")
    assert [claim.acceptance for claim in mixed] == [0.62, 1.08]


def test_means_over_prompts_are_told_from_sums() -> None:
    text = "target,mean speedup over prompts,pooled acceptance,gamma,prompts\na,1.66,33.5%,4,20\n"
    claim = claims(text)[0]
    assert (claim.averaged, claim.pooled, claim.runs) == (("speedup",), ("acceptance",), 20)


def test_draft_lengths_in_names() -> None:
    text = "| config | decode tok/s | acceptance |\n|---|---|---|\n| no speculation | 174 | — |\n"
    found = claims(text + "| n-gram, k=5 | 125 | 27% |\n| n-max 4, `--spec-draft-p-min 0.60` | 164 | 55% |\n")
    assert told(found, "gamma", "p_min", "baseline_rate") == [(None, None, None), (5, None, 174), (4, 0.6, 174)]


def test_columns_of_times_are_no_rates() -> None:
    claim = claims(
        "samples,mean acceptance length,baseline (s),speculative (s),speedup\n20,2.44,382.29,224.20,1.71x\n"
    )[0]
    assert (claim.decode_rate, claim.baseline_rate, claim.speedup) == (None, None, 1.71)


# --- JSON in a tree --------------------------------------------------------------------------------------------------


def test_results_in_a_tree(tmp_path: Path) -> None:
    text = json.dumps(
        {
            "metadata": {"machine": {"memory_gb": 192}},
            "sd": {
                "machine": "M2",
                "baselines": {"9B": {"tg_tps": 42.42, "pp_tps": 900.0, "model": "Q 9B"}},
                "draft_speeds": {"0.8B": 140.19},
                "results": [
                    {"target": "9B", "draft": "0.8B", "k": 4, "speedup_vs_baseline": 0.257, "avg_eff_tps": 53.31},
                    {"target": "9B", "draft": "0.8B", "k": 8, "speedup_vs_baseline": -0.12, "avg_eff_tps": 37.0,
                     "by_prompt": [{"prompt": "code", "accept_rate": 0.04, "eff_tps": 35.0}]},
                ],
            },
        }
    )  # fmt: skip
    found = claims(text, tmp_path)
    spec = [claim for claim in found if claim.draft]
    assert told(spec, "target", "gamma", "device") == [("9B", 4, "M2"), ("9B", 8, "M2"), ("9B", 8, "M2")]
    assert [claim.speedup for claim in spec] == [pytest.approx(1.257), pytest.approx(0.88), None]
    by_prompt = next(claim for claim in found if claim.conditions.get("prompt") == "code")
    assert (by_prompt.decode_rate, by_prompt.gamma, by_prompt.acceptance) == (35.0, 8, 0.04)
    assert spec[0].row == "sd.results, row 1"
    decoding = [claim for claim in found if claim.decode_rate]
    assert told(decoding, "decode_rate", "method", "baseline_rate", "draft_rate") == [
        (42.42, "none", None, None), (140.19, "none", None, None),
        (53.31, None, 42.42, 140.19), (37.0, None, 42.42, 140.19), (35.0, None, 42.42, 140.19),
    ]  # fmt: skip


def test_rates_alone_are_those_of_the_nearest_model_of_that_name() -> None:
    row = {"target": "9B", "draft": "0.8B", "gamma": 4, "tps": 53, "acceptance": 0.03}
    result = [row, row | {"target": "4B"}, row | {"draft": "none", "tps": 41}, row | {"baseline_tps": 40}]
    near = {"baselines": {"9B": {"tg_tps": 42}}, "draft_speeds": {"0.8B": {"tg_tps": 140}}, "results": result}
    tree = {"near": near, "baselines": [{"model": "9B", "tg_tps": 20}, {"model": "4B", "tg_tps": 80}]}
    found = [claim for claim in claims(json.dumps(tree)) if claim.target and claim.gamma]
    assert told(found, "baseline_rate", "draft_rate") == [(42, 140), (80, 140), (None, None), (40, 140)]
    twice = {"baselines": {"M1": {"9B": {"tps": 20}}, "M2": {"9B": {"tps": 40}}}, "results": [row]}
    assert told([one for one in claims(json.dumps(twice)) if one.gamma], "baseline_rate") == [(None,)]


_CELL = {"batch_size": 8, "steps": 3, "topk": 1, "num_draft_tokens": 4}


def _cell(baseline: float, *rates: float) -> dict[str, object]:
    plain = [{"Name": "without EAGLE3", "output_throughput": baseline}] if baseline else []
    spec = [{"Name": "EAGLE3", "output_throughput": rate, "accept_length": 1.8} for rate in rates]
    return {**_CELL, "metrics": [*plain, *spec]}


def test_a_baseline_in_the_same_list_is_the_only_one() -> None:
    nested = {"Scout": {"gsm8k": [_cell(100.5, 150.5)], "math": [_cell(50.5, 99.5), _cell(0, 99.5)]},
              "Dense": {"gsm8k": [_cell(0, 99.5)]}}  # fmt: skip
    found = [claim for claim in claims(json.dumps(nested)) if claim.method != "none"]
    assert told(found, "baseline_rate", "gamma") == [
        (100.5, 3), (50.5, 3), (None, 3), (None, 3)
    ]  # fmt: skip


def test_baselines_of_several_benchmarks_are_no_baseline_of_another() -> None:
    lines = "method,dataset,tok/s,gamma\nnone,gsm8k,40,\nnone,math,60,\neagle,gsm8k,80,3\neagle,{},90,3\n"
    assert told(claims(lines.format("math"))[2:], "baseline_rate") == [(40,), (60,)]
    assert told(claims(lines.format("chat"))[2:], "baseline_rate") == [(40,), (None,)]


def test_objects_named_by_their_keys() -> None:
    text = json.dumps({"baseline": {"tok_s": 40}, "spec": {"tok_s": 60, "acceptance_pct": 61, "n_max": 4}})
    assert told(claims(text), "label", "method", "baseline_rate") == [("baseline", "none", None), ("spec", "spec", 40)]


def test_a_change_beside_perplexities_is_theirs() -> None:
    text = json.dumps([{"quant": "Q8_0", "ppl": 11.08, "delta_ppl": 0.02, "delta_pct": 0.18, "tg_tps": 54.02}])
    claim = claims(text)[0]
    assert (claim.speedup, claim.decode_rate) == (None, 54.02)


def test_a_count_with_its_share() -> None:
    page = "| gamma | Drafted | Accepted | t/s |\n|---|---|---|---|\n"
    page += "| 4 | 300 | 180 (60%) | 61 |\n| 4 | 300 | 180/300 (60%) | 61 |\n| 4 | 300 | 60% (180/300) | 61 |\n"
    assert told(claims(page), "drafted", "accepted", "acceptance") == [(300, 180, 0.6)] * 3
    few = "gamma,accepted,speedup\n4,80 (60%),2.5\n4,12 (60%),2.5\n"
    assert told(claims(few), "accepted", "acceptance") == [(80, 0.6), (12, 0.6)]
    mixed = "drafted,accepted,t/s\n300,180 (60%),61\n300,60.0%,62\n"
    assert told(claims(mixed), "accepted") == [(180,), (None,)]


def test_accepted_tokens_of_a_step_may_count_the_target_s_own() -> None:
    page = "| Config | k | Accepted tokens per step | Speedup |\n|---|---|---|---|\n| MTP-1 | 1 | 1.86 | 1.64x |\n"
    assert rule_claim(claims(page)[0]).verdict == "possible"
    plain = page + "| none | 0 | 1.00 | 1.00x |\n"
    assert told(claims(plain), "tau") == [(1.86,), (1.0,)]


def test_footnotes_are_not_part_of_a_number() -> None:
    page = "| t/s | speedup |\n|---|---|\n| 90<sup>2</sup> | 2.25x[^1] |\n| 90[^2] | 2.25x |\n| 90.0¹ | 2.25x |\n"
    assert told(claims(page), "decode_rate", "speedup") == [(90.0, 2.25)] * 3


def test_synthetic_prompts_are_not_synthetic_acceptance() -> None:
    told_of = "prompt,{},speedup,tau\np1,yes,2.1,2.9\np2,no,2.3,3.1\n"
    assert told(claims(told_of.format("synthetic")), "synthetic") == [(False,), (False,)]
    assert told(claims(told_of.format("synthetic_acceptance")), "synthetic") == [(True,), (False,)]


def test_an_option_for_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="no such heading"):
        list(read_table("speedup,tau\n1.2,2\n", Path("page"), TableOptions({"nope": "speedup"})))


def test_a_page_that_begins_with_a_badge_is_no_json() -> None:
    page = "[![CI](https://ci.example/badge.svg)](https://ci.example)\n\n| speedup | tau |\n|---|---|\n| 1.2 | 2 |\n"
    assert [(claim.speedup, claim.tau) for claim in claims(page)] == [(1.2, 2.0)]
    with pytest.raises(UsageError, match="not JSON"):
        claims('[{"speedup": 1.2, "tau": }]')


def test_a_table_in_a_cell_is_one_of_its_own() -> None:
    inner = "<table><tr><th>gamma<th>t/s</tr><tr><td>4<td>99</tr></table>"
    page = f"<table>{_CELLS}</tr><tr><td>1.2<td>2 {inner}</tr>\n<tr><td>1.3<td>2.5</tr></table>"
    found = [(claim.speedup, claim.tau, claim.gamma, claim.decode_rate) for claim in claims(page)]
    assert found == [(1.2, 2.0, None, None), (1.3, 2.5, None, None), (None, None, 4, 99.0)]
    unclosed = f"<table>{_CELLS}</tr><tr><td>1.2<td>2</td></tr>{inner}"
    assert [claim.tau for claim in claims(unclosed)] == [2.0, None]


# --- hostile pages ---------------------------------------------------------------------------------------------------

_CELLS = "<tr><th>speedup<th>tau"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<table>" * 20_000 + _CELLS + "<tr><td>1.2<td>2", None),
        ("<table" * 50_000, "no table"),
        (f"<table>{_CELLS}" + "<!--" * 50_000, "no table"),
        (f"<table>{_CELLS}<tr><td>" + "&lt;" * 100_000 + "<td>2</table>", None),
        (f"<table>{_CELLS}<tr><td rowspan=99999999>1.2<td>2" + "<tr><td>3" * 50 + "</table>", None),
        ("<table><tr><th colspan=999999999>speedup<tr><td>1</table>", None),
        ("<table>" + "<tr>" + "<td colspan=1000>1" * 3_000 + "</table>", "cells"),
        ("<table><tr><td>" + "x" * 5_000_000 + "</table>", "MB"),
        (f"<table>{_CELLS}<tr><td>1<td>2</table>" * 501, "more than 500 tables"),
        (r"\begin{tabular}{ll} speedup & tau \\ 1 & 2 \\ \end{tabular}" * 501, "more than 500 tables"),
        ("<table>" + "<" * 200_000 + "</table>", "no table"),
        (r"\begin{tabular}{ll}" + "{" * 100_000 + r"\end{tabular}", "nested too deeply"),
        (r"\begin{tabular}" * 30_000, r"has no \end"),
        (r"\begin{tabular}{ll} speedup & tau \\ 1.2", r"table at line 1 has no \end"),
        (r"\begin{tabular}{ll} speedup & tau \\ 1 & 2 \\ " + "x" * 2_000_000 + r"\end{tabular}", "MB"),
        (r"\begin{tabular}{l}" + r"\multicolumn{9999}{c}{1} & " * 500 + r"\\ 1 \\ \end{tabular}", "cells"),
        (r"\begin{tabular}{l}" + r"\multicolumn{9999}{c}{1} & " * 30_000 + r"\\ 1 \\ \end{tabular}", "cells"),
        (r"\def\a{\a\a}\begin{tabular}{ll} speedup & tau \\ \a & 2 \\ \input{/etc/passwd} & 2 \\ \end{tabular}", None),
        ("| speedup | tau |\n|---|---|\n| " + "[a](" * 20_000 + " | 2 |", None),
        ("| speedup | tau |\n|---|---|\n| " + "[" * 50_000 + " | 2 |", None),
        ("|" * 50_000 + "\n" + "|-" * 25_000 + "|\n", "columns"),
        ("speedup tau\n" + "--- " * 30_000 + "\n1 2", "no table"),
        ("│ speedup │ tau │\n" + "┼" * 50_000 + "\n│ 1.2 │ 2 │", "no table"),
        ('{"a":' * 5_000 + "1" + "}" * 5_000, "nested too deeply"),
        ('{"a": [' * 10 + '{"speedup": 1.2}' + "]}" * 10, "no table"),
    ],
)  # fmt: skip
def test_hostile_pages_cost_nothing_and_do_nothing(text: str, message: str | None) -> None:
    begun = time.process_time()
    if message is None:
        for claim in claims(text):
            assert "root" not in claim.label
            rule_claim(claim)
    else:
        with pytest.raises(UsageError) as caught:
            claims(text)
        assert message in caught.value.message
        assert caught.value.fix
    assert time.process_time() - begun < 10


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["<table>", "<tr>", "<td>", "<th colspan=2>", "<td rowspan=3>", "</table>", "speedup", "tau", "1.2x", "\n",
             "|", "---", "| t/s |", r"\begin{tabular}{ll}", r"\end{tabular}", " & ", r"\\", r"\multicolumn{2}{c}{x}",
             r"\multirow{2}{*}{1}", r"\midrule", "│", "━", "速度", "HumanEval", "τ", "none", "40", "{", "}", "-- ", "%"]
        ),
        max_size=40,
    ).map("".join)
)  # fmt: skip
def test_no_page_is_too_strange(text: str) -> None:
    try:
        found = claims(text or " ")
    except UsageError as error:
        str(error)
    else:
        for claim in found:
            rule_claim(claim)


@pytest.mark.parametrize("text", [MARKDOWN, CSV, HTML, LATEX])
def test_a_page_that_is_cut_off_anywhere(text: str) -> None:
    for end in range(0, len(text), 7):
        try:
            claims(text[:end] or " ")
        except UsageError as error:
            str(error)


def test_sentences_may_say_times_per_token(tmp_path: Path) -> None:
    for text in (
        "TPOT went from 40 ms to 25 ms with MTP, 71% acceptance, draft length 3",
        "Without drafts 40 ms/token, with a draft of 4 tokens 25 ms/token, 71% accepted",
    ):
        (claim,) = claims(text, tmp_path)
        assert (claim.baseline_rate, claim.decode_rate, claim.acceptance) == (25, 40, 0.71)
        assert claim.gamma == (3 if "MTP" in text else 4)
    (first,) = claims("TTFT went from 40 ms to 25 ms with MTP, 71% acceptance", tmp_path)
    assert (first.decode_rate, first.baseline_rate, first.wall_ms) == (None, None, None)
