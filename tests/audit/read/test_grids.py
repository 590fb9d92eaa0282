"""Layouts of public results -> grids of cells, without a word about what they mean."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmeter.audit.read.cells import clean, is_number, numbers
from specmeter.audit.read.grid import Grid, turned
from specmeter.audit.read.grids import grids
from specmeter.errors import UsageError


def read(text: str, name: str = "page.md") -> list[Grid]:
    return grids(text, Path(name))


def cells(text: str, name: str = "page.md") -> list[list[str]]:
    (grid,) = read(text, name)
    return [grid.head, *grid.rows]


# --- one table in each layout ----------------------------------------------------------------------------------------

TABLE = [["method", "tok/s", "accept"], ["none", "41.0", ""], ["MTP n=3", "77.1", "62%"]]
SAME = {
    "Markdown": "| method | tok/s | accept |\n|---|---|---|\n| none | 41.0 | |\n| **MTP** n=3 | 77.1 | 62% |\n",
    "without outer bars": "method | tok/s | accept\n-- | -- | --\nnone | 41.0 | \nMTP n=3 | 77.1 | 62%\n",
    "CSV": "method,tok/s,accept\nnone,41.0,\nMTP n=3,77.1,62%\n",
    "tabs": "method\ttok/s\taccept\nnone\t41.0\t\nMTP n=3\t77.1\t62%\n",
    "semicolons": "method;tok/s;accept\nnone;41,0;\nMTP n=3;77,1;62%\n",
    "dashes": "method   tok/s  accept\n-------  -----  ------\nnone     41.0\nMTP n=3  77.1   62%\n",
    "gaps": "method    tok/s  accept\nnone       41.0\nMTP n=3    77.1     62%\n",
    "box": "+---------+------+-------+\n| method | tok/s | accept |\n+---------+------+-------+\n| none | 41.0 | |\n"
    "| MTP n=3 | 77.1 | 62% |\n+---------+------+-------+\n",
    "rich": "┏━━━━━━━┳━━━━━━┳━━━━━━┓\n┃ method ┃ tok/s ┃ accept ┃\n┡━━━━━━━╇━━━━━━╇━━━━━━┩\n│ none │ 41.0 │ │\n"
    "│ MTP n=3 │ 77.1 │ 62% │\n└───────┴──────┴──────┘\n",
    "HTML": "<table><tr><th>method<th>tok/s<th>accept</tr><tr><td>none<td>41.0<td></tr>"
    "<tr><td>MTP n=3<td>77.1<sup>1</sup><td>62%</table>",
    "LaTeX": "\\begin{tabular}{lrr}\nmethod & tok/s & accept \\\\ \\midrule\nnone & 41.0 & \\\\\n"
    "MTP n=3 & \\textbf{77.1} & 62\\% \\\\\n\\end{tabular}",
    "JSON": json.dumps([
        {"method": "none", "tok/s": "41.0", "accept": None}, {"method": "MTP n=3", "tok/s": "77.1", "accept": "62%"}
    ]),
}  # fmt: skip


@pytest.mark.parametrize("layout", SAME)
def test_the_same_table_in_every_layout(layout: str) -> None:
    assert cells(SAME[layout]) == TABLE


@pytest.mark.parametrize(("layout", "first"), [("Markdown", 5), ("CSV", 4), ("gaps", 4), ("dashes", 5), ("LaTeX", 5)])
def test_rows_know_their_line(layout: str, first: int) -> None:
    (grid,) = read(("\n\n" if layout == "CSV" else "# a title\n\n") + SAME[layout])
    assert grid.places == [f"line {first}", f"line {first + 1}"]


# --- layouts that say more or less than a table ----------------------------------------------------------------------

OTHERS = {
    "an empty corner": (
        " | tok/s | accept | speedup\n-- | -- | -- | --\n1 | 140 | 82% | \n",
        [["", "tok/s", "accept", "speedup"], ["1", "140", "82%", ""]],
    ),
    "headings below a line of their groups": (
        "| | AL | |\n|---|---|---|\n| K | Eagle 1 | Eagle 3 |\n| 2 | 2.1 | 2.36 |\n",
        [["K", "AL | Eagle 1", "AL | Eagle 3"], ["2", "2.1", "2.36"]],
    ),
    "a metric and its value": (
        "| Metric | Value |\n|---|---|\n| tok/s | 93.1 |\n| acceptance | 62% |\n",
        [["Metric", "Value"], ["tok/s", "93.1"], ["acceptance", "62%"]],
    ),
    "single spaces": (
        "Benchmark Eagle3 MTP Difference\nMT-Bench 224.09 224.92 MTP +0.4%\nGSM8K 248.71 241.88 Eagle3 +2.8%\n",
        [["Benchmark", "Eagle3", "MTP", "Difference"], ["MT-Bench", "224.09", "224.92", "MTP +0.4%"],
         ["GSM8K", "248.71", "241.88", "Eagle3 +2.8%"]],
    ),
    "names and numbers without headings": (
        "AR     14.8 tok/s   1.00x\nD1     21.3 tok/s   1.44x\n",
        [["", ""], ["AR", "14.8 tok/s 1.00x"], ["D1", "21.3 tok/s 1.44x"]],
    ),
    "console lines": (
        "  code_python   pred= 192 draft= 139 acc= 138 rate=0.993 tok/s=19.5\n"
        "  summarize     pred=  55 draft=  35 acc=  35 rate=n/a tok/s=16.0\n",
        [["", "pred", "draft", "acc", "rate", "tok/s"], ["code_python", "192", "139", "138", "0.993", "19.5"],
         ["summarize", "55", "35", "35", "n/a", "16.0"]],
    ),
    "a listing per configuration": (
        "w/o spec:\n#questions: 80, Throughput: 88.61 token/s, Acceptance length: 1.00\n"
        "EAGLE3:\n#questions: 80, Throughput: 234.54 token/s, Acceptance length: 5.88\n",
        [["", "#questions", "Throughput", "Acceptance length"], ["w/o spec", "80", "88.61 token/s", "1.00"],
         ["EAGLE3", "80", "234.54 token/s", "5.88"]],
    ),
    "titles above lines": (
        "=== baseline ===\ntok/s: 40.1\nwall: 12.3 s\n\n=== MTP n=3 ===\ntok/s: 80.2\nwall: 6.2 s\nacceptance: 71%\n",
        [["", "tok/s", "wall", "acceptance"], ["baseline", "40.1", "12.3 s", ""], ["MTP n=3", "80.2", "6.2 s", "71%"]],
    ),
    "counters": (
        "num_drafts: 4687\nnum_draft_tokens: 46870\nnum_accepted_tokens: 52368\n",
        [["", "num_drafts", "num_draft_tokens", "num_accepted_tokens"], ["", "4687", "46870", "52368"]],
    ),
    "a gap or dots before the value": (
        "Throughput (tok/s)      41.2\nAcceptance rate         0.71\nMean length ........... 2.98\n",
        [["", "Throughput (tok/s)", "Acceptance rate", "Mean length"], ["", "41.2", "0.71", "2.98"]],
    ),
    "YAML": (
        "results:\n  baseline:\n    tok_s: 40.1\n  mtp:\n    tok_s: 60.2\n    acceptance: 0.7\n",
        [["", "tok_s", "acceptance"], ["results, baseline", "40.1", ""], ["mtp", "60.2", "0.7"]],
    ),
    "a baseline in a bracket": (
        "Speed: 41 t/s (baseline: 23 t/s), 71% accepted",
        [["", "Speed", "baseline", "accepted"], ["", "41 t/s", "23 t/s", "71%"]],
    ),
    "Prometheus": (
        "# TYPE vllm:spec_decode_num_drafts_total counter\n"
        'vllm:spec_decode_num_drafts_total{engine="0"} 4687.0\n'
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 2400.0\n',
        [["", "spec_decode_num_drafts", "spec_decode_num_accepted_tokens_per_pos 1"], ["", "4687.0", "2400.0"]],
    ),
    "a list of configurations": (
        "speed, -SD: 18.05 tokens/second\nspeed, +SD: 29.66 tokens/second\n",
        [["", "result"], ["speed, -SD", "18.05 tokens/second"], ["speed, +SD", "29.66 tokens/second"]],
    ),
    "runs": (
        "Run 1: 500 tokens, 3.80s, 231.0 t/s\nRun 2: 500 tokens, 3.76s, 232.8 t/s\n",
        [["", "result"], ["Run 1", "500 tokens, 3.80s, 231.0 t/s"], ["Run 2", "500 tokens, 3.76s, 232.8 t/s"]],
    ),
    "a sentence": (
        "20.46 tokens/second with speculative decoding, and 15.22 without it, a gain of 74%",
        [["", "with speculative decoding", "and without it", "a gain of"], ["", "20.46 tokens/second", "15.22", "74%"]],
    ),
    "an arrow in a bracket": ("We see 1.87x (63 -> 80 tok/s).", [["", "We see", ""], ["", "1.87x", "63 → 80 tok/s"]]),
    "two rates in a bracket": (
        "Short context (1K): depth=3 is +6.2% faster (44.27 vs 41.67 tok/s)",
        [["", "Short context", "depth=", "is faster", "is faster"], ["", "1K", "3", "+6.2%", "41.67 tok/s → 44.27"]],
    ),
    "lines below one another": (
        "run            tok/s   (per prompt below)\n  baseline     18.1 tok/s   accept 1.00\n"
        "              chat 18.1  ·  code 18.1  ·  math 18.0\n  cap=2        34.4 tok/s   accept 2.49  (1.90x)\n",
        [["run", "tok/s", "(per prompt below)"], ["baseline", "18.1 tok/s", "accept 1.00"],
         ["cap=2", "34.4 tok/s", "accept 2.49 (1.90x)"]],
    ),
    "a share in a bracket": ("MTP gives 20 tok/s (+91%)", [["", "MTP gives"], ["", "20 tok/s (+91%)"]]),
    "shares of positions": (
        "GLM-5.2, 2x RTX 3090; acceptance at the draft positions (0.834 / 0.653 / 0.494, mean length 2.98)",
        [["", *(f"acceptance at the draft positions {at}" for at in (1, 2, 3)), "mean length"],
         ["", "0.834", "0.653", "0.494", "2.98"]],
    ),
    "a range": ("It ranges from 23 to 41 t/s.", [["", "It ranges from"], ["", "23 to 41 t/s"]]),
    "times": (
        "TPOT dropped from 50ms/token to 30ms/token",
        [["", "TPOT dropped baseline", "after TPOT"], ["", "50 ms/token", "30 ms/token"]],
    ),
    "counts": ("accepted 94982/93000 draft tokens", [["", "accepted draft tokens"], ["", "94982/93000"]]),
    "counts in words": ("- 9 draft tokens, 18 accepted", [["", "draft tokens", "accepted"], ["", "9", "18"]]),
    "only a share": ("60.35% aggregate acceptance", [["", "aggregate acceptance"], ["", "60.35%"]]),
    "Chinese": (
        "吞吐从23 tok/s提升到41 tok/s，接受率71%，加速1.78倍。",
        [["", "吞吐 baseline 提升", "after", "接受率", "加速"], ["", "23 tok/s", "41 tok/s", "71%", "1.78倍"]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", OTHERS)
def test_what_a_layout_holds(layout: str) -> None:
    text, expected = OTHERS[layout]
    assert cells(text) == expected


def test_a_table_wins_and_the_text_above_is_its_context() -> None:
    page = "I get 20 t/s.\n\n## synthetic accept mode\n\n" + SAME["Markdown"] + "\nNow at 8k:\n\n" + SAME["Markdown"]
    first, second = read(page)
    assert first.context == "I get 20 t/s.\n\n## synthetic accept mode"
    assert (second.context, second.places[0]) == ("Now at 8k:", f"line {page.split(chr(10)).index('Now at 8k:') + 5}")


def test_counters_in_json_next_to_a_sentence() -> None:
    found = read('Counters:\n\n```json\n{"num_drafts": 4687,\n "num_draft_tokens": 46870}\n```\nfrom 23 to 41 t/s\n')
    assert [grid.kind for grid in found] == ["json", "prose"]
    assert (found[0].head, found[0].rows, found[0].places) == (
        ["num_drafts", "num_draft_tokens"], [["4687", "46870"]], ["line 4"]
    )  # fmt: skip


def test_rows_below_a_line_across_have_a_section() -> None:
    page = "| m | t/s | acc |\n|---|---|---|\n| **9B** | | |\n| a | 1.5 | 2% |\n| 27B | 27B | 27B |\n| b | 2.5 | 3% |\n"
    (grid,) = read(page)
    assert (grid.sections, [row[0] for row in grid.rows]) == (["9B", "27B"], ["a", "b"])


def test_a_row_of_csv_that_slid_is_a_fault() -> None:
    (grid,) = read("a,b t/s,c\nx,1.5,2\ny,2.5\nz,3.5,4\n", "a.csv")
    assert (grid.places, [place for place, _ in grid.faults]) == (["line 2", "line 4"], ["line 3"])


def test_a_grid_on_its_side() -> None:
    (grid,) = read(
        "| | off | on | change |\n|---|---|---|---|\n| tok/s | 41.0 | 77.1 | +88% |\n| wall | 61 s | 41 s | |\n"
    )
    side = turned(grid)
    assert side is not None
    assert (side.head, side.rows) == (["", "tok/s", "wall"], [["off", "41.0", "61 s"], ["on", "77.1", "41 s"]])
    assert side.places == ["column off", "column on"]


# --- JSON in a tree --------------------------------------------------------------------------------------------------


def test_keys_around_rows_are_columns_if_they_vary() -> None:
    runs = {size: {arm: {"tok_s": rate, "n": 64} for arm, rate in (("off", 40), ("mtp", 60))} for size in ("9B", "27B")}
    assert cells(json.dumps({"config": {"engine": "vllm"}, "by_model": runs})) == [
        ["section", "label", "engine", "tok_s", "n"],
        *([size, arm, "vllm", rate, "64"] for size in ("9B", "27B") for arm, rate in (("off", "40"), ("mtp", "60"))),
    ]


def test_parts_of_a_row_are_columns() -> None:
    text = json.dumps(
        {"runs": [{"run": run, "baseline": {"tps": 30}, "mtp": {"tps": 60, "tau": 2.5}} for run in (1, 2)]}
    )
    assert cells(text)[:2] == [["run", "baseline tps", "mtp tps", "mtp tau"], ["1", "30", "60", "2.5"]]


def test_broken_json_says_where() -> None:
    with pytest.raises(UsageError, match="line 2 column 12"):
        read('[{"speedup": 1.2},\n {"tau": 2,, }]')


# --- cells -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("223.3 (1.41x, 53%)", [(223.3, ""), (1.41, "x"), (53, "%")]),
        ("373.3 (3.2)", [(373.3, ""), (3.2, "")]),
        ("**1,163.9** t/s", [(1163.9, "rate")]),
        ("~~38~~ 41 tok/s[^1]", [(41, "rate")]),
        ("2,5x", [(2.5, "x")]),
        ("0.668,0.843", [(0.668, ""), (0.843, "")]),
        ("138.0 ± 0.3", [(138, "")]),
        ("5m 3s", [(303_000, "ms")]),
        ("加速 1.78 倍, 每秒 41 个/秒, 12 毫秒", [(1.78, "x"), (41, "rate"), (12, "ms")]),
        ("−25.2 %", [(-25.2, "%")]),
        ("Q4_K_M v2.11.2", []),
    ],
)
def test_numbers_of_a_cell(cell: str, expected: list[tuple[float, str]]) -> None:
    assert [(pytest.approx(num.value), num.unit) for num in numbers(clean(cell))] == expected


def test_pairs_and_ranges() -> None:
    assert [num.role for num in numbers("412/530")] == ["num", "den"]
    assert [num.role for num in numbers(clean("63 -> 80 tok/s"))] == ["before", "after"]
    assert [(num.value, num.role) for num in numbers(clean("+77% (124 vs 70 tok/s)"))] == [
        (77, ""), (70, "before"), (124, "after")
    ]  # fmt: skip
    assert [num.role for num in numbers("0.834 / 0.653 / 0.494")] == ["", "", ""]
    (spread,) = numbers("0.52-0.94")
    assert (spread.lo, spread.hi) == (pytest.approx(0.515), pytest.approx(0.945))
    assert [is_number(cell) for cell in ("41 t/s (warm)", "Qwen3-8B", "n/a", "RTX 3090")] == [True, False, False, False]


# --- hostile texts ---------------------------------------------------------------------------------------------------

_PIECES = [
    "|", "---", "\n", "\n\n", "1.5", " t/s", "%", "a: ", "x=", ",", "; ", "(", ")", "from 1 to ", "→", "±", "{", "}",
    '{"a": 1}', "[", "]", "<table>", "<td>", "\\begin{tabular}", "&", "\\\\", "~~", "**", "_", "`", "# ", "- ", "  ",
    "\t", "接受率", "从", "│", "━", "=", "9" * 30, "1,234", "word", ". ", "of ", "accept ", "\0", "٣", "1e-9", "--",
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(_PIECES), max_size=40).map("".join), st.sampled_from(["a.md", "a.csv", "a.json"]))
def test_no_text_is_too_strange(text: str, name: str) -> None:
    with contextlib.suppress(UsageError):
        for grid in read(text, name):
            assert {len(row) for row in grid.rows} <= {len(grid.head)}
            assert len(grid.rows) == len(grid.places) == len(grid.sections)
            turned(grid)


@pytest.mark.parametrize(
    "piece", ["1±1 ", "a=1 ", "[a](", "1,", "(", "~~", "a: 1, ", "<s>", '{"a":', "-", " ", "K=", "1/"]
)
def test_time_is_linear_on_long_lines(piece: str) -> None:
    spent: list[float] = []
    for count in (20_000, 80_000):
        begun = time.process_time()
        for frame in ("{}", "x t/s\n{}", "| a | b |\n|---|---|\n| {} | 2 |"):
            with contextlib.suppress(UsageError):
                read(frame.replace("{}", piece * (count // len(piece))))
        spent.append(time.process_time() - begun)
    assert spent[1] < 8 * spent[0] + 0.5
