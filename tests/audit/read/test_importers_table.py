"""Tables in every form that people have them: what is read, how units are settled, and what is said about the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmeter.audit.claim import Claim
from specmeter.audit.judge import rule_claim
from specmeter.audit.read import document, grid
from specmeter.audit.read.options import TableOptions, table_options
from specmeter.audit.read.table import read_table, read_table_file
from specmeter.audit.reading import detect
from specmeter.errors import UsageError
from specmeter.messages import Message

CSV = """target,draft,gamma,tok/s,Speedup,Acceptance
MoE Q4,none,0,55.3,,
MoE Q4,0.8B,16,69.7,1.26x,0.2%
MoE Q4,0.8B,4,63.4,1.15x,2.6%
"""


def claims(text: str, tmp_path: Path, name: str = "table.csv", options: TableOptions | None = None) -> list[Claim]:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return list(read_table_file(path, options))


def verdicts(found: list[Claim]) -> list[str]:
    return [rule_claim(claim).verdict for claim in found]


def test_a_csv_with_its_baseline(tmp_path: Path) -> None:
    baseline, best, other = claims(CSV, tmp_path)
    assert baseline.method == "none"
    assert (best.row, best.label) == ("line 3", "MoE Q4 / 0.8B")
    assert (best.speedup, best.gamma, best.decode_rate, best.baseline_rate) == (1.26, 16, 69.7, 55.3)
    assert best.acceptance == pytest.approx(0.002)
    assert best.rounding["acceptance"] == pytest.approx(0.0005)
    assert best.rounding["speedup"] == pytest.approx(0.005)
    assert verdicts([best, other]) == ["implausible", "cannot tell"], "6 % of noise"


OBJECTS = (
    {"target": "MoE Q4", "draft": "none", "tps": 55.3},
    {"target": "MoE Q4", "draft": "0.8B", "gamma": 16, "tps": 69.7, "speedup": 1.26, "acceptance_pct": 0.2},
    {"target": "MoE Q4", "draft": "0.8B", "gamma": 4, "tps": 63.4, "speedup": "1.15x", "acceptance_pct": "2.6%"},
)
LINES = [" | ".join(line.split(",")) for line in CSV.strip().split("\n")]
MARKDOWN = "\n".join(f"| {line} |" for line in [LINES[0], "---|:-:|--:|---|---|---", *LINES[1:]])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", CSV.replace(",", "\t")),
        ("a.csv", CSV.replace(",", ";")),
        ("a.csv", "\ufeff# made by hand\n" + CSV.replace("\n", "\r\n")),
        ("a.csv", CSV.replace("1.26x", '"1.26x"')),
        ("a.csv", CSV.replace(",", ";").replace(".", ",")),
        ("a.md", f"Text before.\n\n{MARKDOWN}\n\nText after."),
        ("a.json", json.dumps(OBJECTS)),
        ("a.json", json.dumps({"host": "here", "rows": OBJECTS}, indent=1)),
        ("a.jsonl", "\n\n".join(json.dumps(item) for item in OBJECTS)),
    ],
)
def test_every_form_says_the_same(name: str, text: str, tmp_path: Path) -> None:
    found = claims(text, tmp_path, name)
    assert detect(tmp_path / name) == "table"
    assert [claim.method for claim in found] == ["none", None, None]
    assert [claim.baseline_rate for claim in found] == [None, 55.3, 55.3]
    assert found[1].acceptance == pytest.approx(0.002)
    assert verdicts(found)[1:] == ["implausible", "cannot tell"], "6 % of noise"


def test_utf_16_as_spreadsheets_save_it(tmp_path: Path) -> None:
    path = tmp_path / "excel.txt"
    path.write_bytes(CSV.replace(",", "\t").encode("utf-16"))
    assert len(list(read_table_file(path))) == 3


# --- units -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heading", "cells", "share"),
    [
        ("acceptance", ("2.6%", "0.2%"), 0.002),
        ("acceptance (%)", ("2.6", "0.2"), 0.002),
        ("acceptance", ("2.6", "0.2"), 0.002),
        ("acceptance", ("2.6%", "2.2"), 0.022),
        ("acceptance_pct", ("60", "0.2%"), 0.002),
        ("acceptance_pct", ("60%", "0.2"), 0.002),
        ("acceptance", ("62%", "0.2"), 0.2),
        ("acceptance", ("0.6", "0.2"), 0.2),
        ("acceptance", ("0.0", "0"), 0.0),
    ],
)
def test_percent_or_fraction(heading: str, cells: tuple[str, str], share: float, tmp_path: Path) -> None:
    text = f"speedup,gamma,{heading}\n" + "".join(f"1.1,4,{cell}\n" for cell in cells)
    assert claims(text, tmp_path)[-1].acceptance == pytest.approx(share)


def test_percent_in_a_heading_above_fractions_may_be_either(tmp_path: Path) -> None:
    claim = claims("speedup,gamma,acceptance_pct\n2.1,4,0.6\n2.0,4,0.5\n", tmp_path)[0]
    assert {claim.acceptance, *(other.acceptance for row in claim.rivals for other in row)} == {0.6, 0.006}
    assert verdicts([claim]) == ["possible"]


def test_counts_settle_a_column_of_both(tmp_path: Path) -> None:
    text = "speedup,gamma,acceptance,drafted,accepted\n1.9,4,0.6,100,60\n1.1,4,65,100,65\n1.1,4,70,100,70\n"
    assert [row.acceptance for row in claims(text, tmp_path)] == [0.6, 0.65, 0.7]


def test_counts_settle_the_unit_with_decimal_commas_too(tmp_path: Path) -> None:
    text = "name;speedup;gamma;acceptance;drafted;accepted\na;1,9;4;0,6;100;60\nb;1,9;4;0,2;100;20\n"
    assert [row.acceptance for row in claims(text, tmp_path)] == [0.6, 0.2]


def test_options_settle_the_unit(tmp_path: Path) -> None:
    text = "speedup,gamma,draft_acceptance\n1.13,4,0.04\n"
    fraction = claims(text, tmp_path, options=TableOptions({"draft_acceptance": "acceptance"}))
    percent = claims(text, tmp_path, options=TableOptions({"draft_acceptance": "acceptance_percent"}))
    assert verdicts(fraction) == ["possible"]
    assert verdicts(percent) == ["implausible"]
    assert percent[0].acceptance == pytest.approx(0.0004)


def test_counts_of_the_same_row_settle_the_unit(tmp_path: Path) -> None:
    text = "speedup,gamma,n_drafted,n_accept,accept_rate\n1.03,4,732,17,{}\n"
    for cell in ("0.02322", "2.322", "2.322%"):
        read = claims(text.format(cell), tmp_path)[0]
        assert 0.02322 in [round(it.acceptance or 0, 6) for it in (read, *(it for row in read.rivals for it in row))]
        assert verdicts([read]) == ["possible"]
    percent = claims(text.replace("17", "1").format("0.14"), tmp_path)[0]
    assert verdicts([percent]) == ["possible"], "1 of 732 is 0.14 %"


def test_changes_and_ratios(tmp_path: Path) -> None:
    text = "config,vs Baseline\na,+25.7%\nb,−25.2%\nc,1.26×\nnone,baseline\nd,+0.0%\n"
    up, down, ratio, same = claims(text, tmp_path)
    assert up.speedup == pytest.approx(1.257)
    assert up.rounding["speedup"] == pytest.approx(0.0005)
    assert (down.speedup, ratio.speedup, same.speedup) == (pytest.approx(0.748), 1.26, 1.0)


def test_sizes_times_and_bandwidths(tmp_path: Path) -> None:
    text = "size (GB),device,Mem BW,eval_ms_per_token,duration_s,tokens\n20.6,M2 Ultra,800 GB/s,18.084,5.0,256\n"
    claim = claims(text, tmp_path)[0]
    assert claim.size_bytes == pytest.approx(20.6e9)
    assert claim.rounding["size_bytes"] == pytest.approx(0.05e9)
    assert claim.bandwidth_bytes_per_s == 800e9
    assert claim.decode_rate == pytest.approx(1000 / 18.084)
    assert claim.wall_ms == 5000
    assert claims("model_size,size_note,tok/s\n3453087744,,61.98\n", tmp_path)[0].size_bytes == 3453087744
    unsaid = claims("size,tok/s,duration\n3.45,61.98,4\n", tmp_path)[0]
    assert (unsaid.size_bytes, unsaid.wall_ms) == (None, 4000)


def test_a_speed_ratio_is_a_cost(tmp_path: Path) -> None:
    text = "Draft Model,k,Speed Ratio,Avg Accept%,Avg TPS,vs Baseline\n2B Q8,4,2.61×,3.4%,48.5,+14.3%\n"
    ruling = rule_claim(claims(text, tmp_path)[0])
    assert (ruling.verdict, ruling.bound) == ("implausible", "speedup-above-cost-bound")


# --- baselines -------------------------------------------------------------------------------------------------------


def test_baselines_are_those_of_the_same_target_machine_and_prompt(tmp_path: Path) -> None:
    text = """target,machine,draft,prompt,gamma,tok/s
a,m1,none,code,0,50
a,m1,none,text,0,60
a,m2,none,code,0,70
a,m1,d,code,4,55
a,m1,d,poem,4,55
a,m2,d,text,4,75
b,m1,d,code,4,75
"""
    found = {claim.row: claim for claim in claims(text, tmp_path)}
    assert found["line 5"].baseline_rate == 50
    assert [found[f"line {n}"].baseline_rate for n in (6, 7, 8)] == [None, None, None], "none of that prompt or target"


def test_a_reference_column_names_the_baseline(tmp_path: Path) -> None:
    text = "config,reference,tok_s\nbase-a,base-a,100\nbase-b,base-b,50\nx,base-b,60\n"
    assert claims(text, tmp_path)[-1].baseline_rate == 50


@pytest.mark.parametrize("word", ["none", "Baseline", "**vanilla**", "no SD"])
def test_words_for_a_baseline(word: str, tmp_path: Path) -> None:
    assert claims(f"config,tok_s,acceptance\n{word},100,\nsd,120,0.5\n", tmp_path)[1].baseline_rate == 100


# --- rows and files that are wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("1.2,-4,50%", "gamma is -4: it must be at least 0"),
        ("1.2,4,-5%", "acceptance is -0.05: it must be at least 0"),
        ("1.2,4", "2 cells under 3 headings"),
        ("1.2,4,50%,7", "4 cells under 3 headings"),
    ],
)
def test_a_bad_row_says_why_and_leaves_the_others(row: str, problem: str, tmp_path: Path) -> None:
    found = {it.row: it for it in claims(f"speedup,gamma,acceptance\n{row}\n1.2,4,50%\n", tmp_path)}
    assert str(found["line 2"].problem) == problem
    assert (found["line 2"].speedup, found["line 3"].problem) == (None, None)
    assert verdicts([found["line 2"], found["line 3"]]) == ["cannot tell", "possible"]


@pytest.mark.parametrize("row", ["nan,4,50%", "inf,4,50%", "OOM,4,50%", "0,4,50%", "1.2,4,1e12%", "1.2,1e300,50%"])
def test_a_cell_that_is_no_number_of_its_kind_is_left_out(row: str, tmp_path: Path) -> None:
    odd, good = claims(f"speedup,gamma,acceptance\n{row}\n1.2,4,50%\n", tmp_path)
    assert None in {odd.speedup, odd.gamma, odd.acceptance}
    assert (good.speedup, good.gamma, good.acceptance) == (1.2, 4, 0.5)


@pytest.mark.parametrize("cell", ["0", "OOM", "-1.2x"])
def test_a_speedup_that_is_none_is_said(cell: str, tmp_path: Path) -> None:
    text = f"method,tok/s,speedup\nnone,40,1.0x\neagle,60,{cell}\nmtp,80,2.0x\n"
    plain, odd, good = claims(text, tmp_path)
    assert (odd.speedup, odd.decode_rate, odd.baseline_rate, good.speedup) == (None, 60, 40, 2)
    assert ([cell in str(note) for note in odd.notes], plain.notes, good.notes) == ([True], (), ())
    bare = claims(f"method,speedup\neagle,{cell}\nmtp,2.0x\n", tmp_path)
    assert [cell in str(claim.problem) for claim in bare] == [True, False]


def test_a_row_of_the_draft_by_itself_is_its_rate(tmp_path: Path) -> None:
    text = "target,draft,device,gamma,tok/s\nt,none,A,,40\nD,none,A,,200\nD,none,A,,210\nd,none,B,,90\n"
    found = claims(f"{text}t,d,A,4,53\nt,d,C,4,53\nt,e,A,4,53\n", tmp_path)
    assert [claim.draft_rate for claim in found] == [None, None, None, None, 205, None, None]
    assert (found[4].baseline_rate, found[4].rounding["draft_rate"]) == (40, 5.5)
    assert (found[1].baseline_rate, found[1].method) == (None, "none")


def test_a_limit_is_no_value(tmp_path: Path) -> None:
    above = claims("speedup,gamma,acceptance\n1.9,4,>4%\n1.9,4,4%\n", tmp_path)
    assert verdicts(above) == ["possible", "implausible"]


def test_a_cell_of_words_or_several_numbers_leaves_its_row_readable(tmp_path: Path) -> None:
    rows = ("2,1.5,50%,2.0 narr / 5.2 code", "2,1.5,as before,2.0", "2,47.8 avg (36.6–53.8),50%,2.0", "2,1.5,50%,2.0")
    read = claims("n_max,tok/s,acceptance,tau\n" + "\n".join(rows) + "\n", tmp_path)
    assert [(claim.decode_rate, claim.acceptance, claim.tau) for claim in read] == [
        (1.5, 0.5, 2.0),
        (1.5, None, 2.0),
        (47.8, 0.5, 2.0),
        (1.5, 0.5, 2.0),
    ]
    assert {claim.baseline_rate for claim in read} == {None}, "`as before` is no baseline"


@pytest.mark.parametrize(
    ("cell", "low", "high"),
    [
        ("73.3 / 106.1", 73.25, 106.15),
    ],
)
def test_several_numbers_of_a_cell_are_anything_between_them(
    cell: str, low: float, high: float, tmp_path: Path
) -> None:
    (claim,) = claims(f"tok/s,acceptance\n{cell},0.69 / 0.79\n", tmp_path)
    assert claim.decode_rate is not None
    assert claim.decode_rate - claim.rounding["decode_rate"] == pytest.approx(low)
    assert claim.decode_rate + claim.rounding["decode_rate"] == pytest.approx(high)
    assert claim.acceptance == pytest.approx(0.74)


def test_a_cell_may_hold_both_sides_a_deviation_or_a_length(tmp_path: Path) -> None:
    (sides,) = claims("n_max,Decode Δ\n2,22.7 → 40.6 (+79%)\n", tmp_path)
    assert (sides.baseline_rate, sides.decode_rate, sides.speedup) == (22.7, 40.6, pytest.approx(1.79))
    (_, mean) = claims("name,tok/s\noff,31.00/0.07\ndraft,39.57/0.03 (1.28x)\n", tmp_path)
    assert (mean.decode_rate, mean.speedup) == (39.57, 1.28)
    (plain, one) = claims("DRAFT,tok/s median,tokens/forward\n0,5.89,1.01\n1,5.96,1.90\n", tmp_path)
    assert (plain.method, one.gamma, one.tau, plain.averaged) == ("none", 1, 1.9, ("decode_rate",))


def test_a_column_of_sentences_is_none_of_numbers(tmp_path: Path) -> None:
    rows = "40,drops the 2nd patch\n41,recovers 20%\n"
    for claim in claims(f"tok/s,impact\n{rows}", tmp_path):
        assert (claim.problem, claim.speedup) == (None, None)


def test_a_slash_between_counts_or_unlike_numbers_is_no_range(tmp_path: Path) -> None:
    assert claims("tok/s,acceptance\n40,180 / 300\n", tmp_path)[0].drafted == 300
    assert claims("tok/s,acceptance\n31.00 / 0.07,0.5\n", tmp_path)[0].decode_rate == 31


def test_json_of_runs_is_read_with_what_their_settings_say(tmp_path: Path) -> None:
    """Settings beside numbers hold for them; a grader's `pred` claims nothing, and `decoding: greedy` names none."""
    settings = {"model": "m", "decoding": "greedy", "concurrency": 8, "engine_args": {"num_speculative_tokens": 5}}
    run = {"config": settings, "measured": {"acceptance_rate": 0.25, "throughput": 90.0}, "graded": [{"pred": "337.5"}]}
    for text in (json.dumps(run), json.dumps([run, run])):
        for claim in claims(text, tmp_path, "runs.json"):
            assert (claim.problem, claim.target, claim.concurrency, claim.gamma) == (None, "m", 8, 5)
            assert (claim.decode_rate, claim.acceptance, claim.method) == (90.0, 0.25, None)


def test_empty_trailing_cells_and_rows_are_nothing(tmp_path: Path) -> None:
    found = claims("speedup,gamma,acceptance\n1.2,4,50%,,\n,,\n\n1.3,4,50%\n", tmp_path)
    assert [claim.row for claim in found] == ["line 2", "line 5"]


def test_unknown_columns_are_listed(tmp_path: Path) -> None:
    assert claims("speedup,RAM,note\n1.2,11.0,good\n", tmp_path)[0].notes == (
        Message("read.columns_left", columns=["RAM"]),
    )


@pytest.mark.parametrize(
    ("content", "message", "fix"),
    [
        (b"", "is empty", "results"),
        (b"  \n\n", "is empty", "results"),
        (b"target,draft\nx,y\n", "no column is understood", "--column HEADING=MEANING"),
        (b"speedup\n1.2\xff\n", "not UTF-8 text (byte 0xff at position 11)", "UTF-8"),
        (b"speedup\n1.2\0\n", "NUL bytes", "CSV"),
        (b"PK\x03\x04abc", "compressed or binary", "decompress"),
        (b'speedup,note\n1.2,"open\n', "not CSV", "quote"),
        (b"[1, 2]", "no table and no sentence with a result", "use a table"),
        (b'[{"speedup": 1.2},', "not JSON", "list of objects"),
        (b'"speedup"', "it has no number", "use a table"),
        (b"[]", "it has no number", "use a table"),
        (b"speedup\n" + b"1" * 5_000_000, "a line of", "table"),
        (b"# nothing\n", "only comments", "results"),
        (b"[" * 100_000, "no table", "use a table"),
        (b'[{"speedup": ' + b"1" * 5000 + b"}]", "not JSON", "list of objects"),
    ],
)
def test_a_bad_file_says_why_and_what_to_do(content: bytes, message: str, fix: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        list(read_table_file(path))
    assert message in caught.value.message
    assert str(path) in caught.value.message
    assert fix in caught.value.fix


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.csv", tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            list(read_table_file(path))
        with pytest.raises(UsageError, match="cannot be read"):
            detect(path)


def test_too_large_a_file_is_refused_before_it_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MAX_BYTES", 100)
    with pytest.raises(UsageError, match="more than"):
        claims(CSV + CSV, tmp_path)
    monkeypatch.undo()
    for most, what in (("MAX_ROWS", "rows"), ("MAX_CELLS", "cells")):
        monkeypatch.setattr(grid, most, 2)
        with pytest.raises(UsageError, match=what):
            claims(CSV, tmp_path)
        monkeypatch.undo()


def test_a_column_can_be_chosen_among_several(tmp_path: Path) -> None:
    text = "Speedup 0.8B,speedup,PPL\n1.3,1.1,7\n"
    chosen = claims(text, tmp_path, options=TableOptions({"Speedup 0.8B": "speedup"}))
    assert chosen[0].speedup == 1.3
    with pytest.raises(UsageError, match="no such meaning"):
        table_options({"PPL": "nonsense"})


def test_json_lines_that_are_broken_are_rows_with_a_problem(tmp_path: Path) -> None:
    found = claims('{"speedup": 1.2}\n{"speedup": \n[1]\n{"speedup": NaN}\n{"speedup": {"a": 1}}\n', tmp_path)
    assert [(claim.row, claim.problem is None) for claim in found] == [
        ("line 1", True),
        ("line 2", False),
        ("line 3", False),
    ]


def test_a_page_with_several_tables(tmp_path: Path) -> None:
    text = """# Results
| Model | Note |
|---|---|
| a | b |

| Target目标模型 | γ | tok/s | Speedup加速 | Acceptance接受率 |
|---|---|---|---|---|
| ★ MoE Q4 | 16 | 69.7 | 1.26× | 0.2% |
| Speedup | Speedup | a |
|---|---|---|
| 1 | 2 | 3 |

text with | a bar
"""
    found = claims(text, tmp_path, "page.md")
    assert [claim.row for claim in found] == ["line 8", "line 11"]
    assert (found[0].target, found[0].gamma, found[0].speedup) == ("MoE Q4", 16, 1.26)


def test_labels_are_bounded(tmp_path: Path) -> None:
    assert len(claims(f"label,speedup\n{'x' * 5000},1.1\n", tmp_path)[0].label) <= 200


def test_prompt_processing_is_no_decode_rate(tmp_path: Path) -> None:
    text = """model_label,n_prompt,n_gen,avg_tps,stddev_tps,avg_ns
9B_Q8,512,0,1163.9,1.5,439889833
9B_Q8,0,128,42.42,0.04,3017368625
"""
    (decode,) = claims(text, tmp_path)
    assert (decode.decode_rate, decode.predicted_n) == (42.42, 128)


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.text(max_size=300),
        st.lists(st.text(alphabet='speedup,gamma;\t|-"\n0123.%x{}[]:', max_size=40), max_size=12).map("\n".join),
    )
)
def test_no_text_is_too_strange(text: str) -> None:
    try:
        found = list(read_table(text or " ", Path("table"), TableOptions()))
    except UsageError as error:
        str(error)
    else:
        for claim in found:
            rule_claim(claim)


def test_what_a_row_says_of_itself_is_kept(tmp_path: Path) -> None:
    text = (
        "source_document,source_place,target,method,gamma,repeat,tok/s,acceptance_fraction,pp t/s,ppl,ppl_std,"
        "rate_window,draft_elsewhere,claim_notes\n"
        '"A paper, 2026","Table 3, row 1",big,draft-simple,4,2,50.0,0.01,900.0,11.05,0.6,all tokens,yes,one | two\n'
    )
    (claim,) = claims(text, tmp_path)
    assert (claim.document, claim.row) == ("A paper, 2026", "Table 3, row 1")
    assert (claim.repeat, claim.prompt_rate, claim.perplexity, claim.perplexity_sd) == (2, 900.0, 11.05, 0.6)
    assert (claim.window, claim.draft_elsewhere, claim.notes) == ("all tokens", True, ("one", "two"))
    assert claim.acceptance == 0.01


def test_a_window_that_does_not_exist_is_a_problem_of_its_row(tmp_path: Path) -> None:
    first, second = claims("tok/s,rate_window\n50.0,all tokens\n50.0,a while\n", tmp_path)
    assert first.problem is None
    assert second.problem == Message("unread.value", name="window", value="a while")
