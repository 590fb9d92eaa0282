"""What the other rows of a table say about one that breaks their law."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from specmeter.audit.read.frame import Frame
from specmeter.audit.read.grids import grids
from specmeter.audit.read.laws import baseline_rows, broken
from specmeter.audit.read.meaning import streams_of


def frame(text: str) -> Frame:
    grid = grids(text, Path("a.md"))[0]
    return Frame(grid, streams_of(grid))


def told(text: str) -> dict[str, list[str]]:
    """Place of a row -> what is said of it."""
    its = frame(text)
    return {its.grid.places[row]: [str(line) for line in lines] for row, lines in broken(its).items()}


RATIOS = """
| engine | predictable | unpredictable | ratio |
|---|---|---|---|
| GGUF | 11.91 tok/s | 11.78 tok/s | 1.01x |
| GGUF mtp | 11.40 tok/s | 5.14 tok/s | 2.22x |
| MLX | 38.36 tok/s | 20.26 tok/s | 1.89x |
"""
COUNTS = """
| prompt | draft | acc | rate | tok/s |
|---|---|---|---|---|
| code | 139 | 138 | 0.993 | 19.5 |
| explain | 118 | 117 | 0.992 | 13.7 |
| qa | 109 | 107 | 0.982 | 13.8 |
| story | 109 | 105 | 0.963 | 12.9 |
| summary | 35 | 35 | 1.000 | 16.0 |
| translation | 13 | 12 | 0.923 | 12.4 |
"""
BASELINE = """
| method | tok/s | speedup |
|---|---|---|
| tree | 193.4 | 1.62x |
| assisted | 161.9 | 1.36x |
| linear 6 | 133.1 | 1.11x |
| linear 8 | 128.9 | 1.08x |
| plain | 119.4 | 1.00x |
"""
MEANS = """
| Query | Baseline (t/s) | SpecDec (t/s) | Accept Rate | Speedup |
|---|---|---|---|---|
| Math | 57.45 | 85.86 | 62.9% | +49.5% |
| Poetry | 56.93 | 62.34 | 44.1% | +9.5% |
| Code | 57.15 | 86.05 | 60.7% | +50.5% |
| Science | 57.19 | 71.14 | 50.9% | +24.4% |
| Translation | 57.14 | 63.26 | 42.2% | +10.7% |
| Average | 57.17 | 73.73 | 52.2% | +29.0% |
"""
INTERVALS = """
| arm | delta % |
|---|---|
| n1 | +44.96 [+43.45, +46.54] |
| n2 | +58.84 [+55.90, +61.89] |
| n3 | +52.36 [+48.49, +56.55] |
| n4 | +45.03 [+39.44, +50.73] |
"""
CHANGES = """
| prompt | before | after | change |
|---|---|---|---|
| A | 20.46 t/s | 25.11 t/s | +22.7% |
| B | 15.22 t/s | 20.46 t/s | +34.4% |
| C | 18.91 t/s | 18.10 t/s | -4.3% |
"""


@pytest.mark.parametrize(
    ("text", "old", "new", "says"),
    [
        (RATIOS, "1.89x", "2.89x", "38.36 / 20.26"),
        (COUNTS, "118 | 117", "118 | 121", "give 1.025"),
        (MEANS, "52.2%", "58.2%", "mean of 5 rows is 52.16"),
        (MEANS, "+24.4%", "+42.4%", "give +24.39%"),
        (INTERVALS, "+58.84", "+68.84", "outside its own interval [55.9, 61.89]"),
        (CHANGES, "+34.4%", "+74.4%", "give +34.43%"),
    ],
)
def test_a_row_that_breaks_what_all_others_keep_contradicts_itself(text: str, old: str, new: str, says: str) -> None:
    assert told(text) == {}
    forged = text.replace(old, new, 1)
    assert forged != text
    lines = told(forged)
    assert len(lines) == 1, lines
    assert says in next(iter(lines.values()))[0]


def test_a_row_with_another_baseline_than_the_others_is_left_alone() -> None:
    """Prompts have baselines of their own: 21.4 tok/s for the long one, here in the table and there not."""
    rows = [("math", 23.0, 97.8, 4.3), ("algebra", 23.1, 104.6, 4.5), ("code", 22.9, 70.9, 3.1)]
    rows += [("blog", 23.1, 49.3, 2.1), ("ruler", 23.0, 69.5, 3.0), ("6,000-token summary", 21.4, 34.3, 1.6)]
    table = "| Prompt | Plain | DFlash | Speedup |\n|---|---|---|---|\n"
    table += "".join(f"| {name} | {plain} tok/s | {fast} tok/s | {ratio}x |\n" for name, plain, fast, ratio in rows)
    assert told(table) == {}
    table = "| Prompt | DFlash | Speedup |\n|---|---|---|\n"
    assert told(table + "".join(f"| {name} | {fast} tok/s | {ratio}x |\n" for name, _, fast, ratio in rows)) == {}
    mine = BASELINE.replace("| tree |", "| large tree (batch 8) |").replace("1.62x", "1.21x")
    assert told(mine) == {}


def test_agreement_by_chance_or_by_rounding_is_no_law() -> None:
    """Batch sizes, depths and their products agree within rounding of 1, as whole numbers do."""
    table = "| B | PP | N_KV | S_PP t/s |\n|---|---|---|---|\n"
    sizes = [(pp, b) for pp in (512, 4096, 8192) for b in (1, 2, 4, 8, 16, 32)]
    table += "".join(f"| {b} | {pp} | {b * (pp + 32)} | {2000 + 7 * b + pp / 31:.2f} |\n" for pp, b in sizes)
    assert told(table) == {}
    assert told(RATIOS.replace("1.01x", "1x").replace("2.22x", "2x").replace("1.89x", "3x")) == {}
    assert told(RATIOS.replace("1.01x", "1.09x").replace("1.89x", "2.89x")) == {}


def test_a_summary_of_another_kind_keeps_no_law() -> None:
    text = BASELINE.replace("| plain |", "| median | 140.0 | 1.52x |\n| plain |")
    assert told(text) == {}
    assert told(MEANS.replace("52.2%", "54.0%")) == {}, "a pooled share is no mean of its rows"


def test_a_row_says_what_else_explains_it() -> None:
    sums = MEANS.replace("| 57.45 |", "| 57.45 |").replace("Accept Rate", "Tokens").replace("| 52.2%", "| 1,300")
    for old, new in (("62.9%", "310"), ("44.1%", "250"), ("60.7%", "290"), ("50.9%", "240"), ("42.2%", "210")):
        sums = sums.replace(old, new)
    assert told(sums) == {}, "a total among means"
    runs = "| run | tokens | time (s) | tok/s |\n|---|---|---|---|\n"
    for n, seconds, decoding in ((500, 2.57, 2.57), (731, 2.9, 2.9), (512, 3.3, 3.3), (640, 2.4, 2.4), (590, 3.4, 3.0)):
        runs += f"| {n} | {n} | {seconds} s | {n / decoding:.2f} tok/s |\n"
    assert told(runs) == {}, "a run also reads its prompt"
    assert len(told(runs.replace("3.4 s", "6.4 s"))) == 1


def test_the_row_with_one_is_the_baseline_if_the_others_refer_to_it() -> None:
    its = frame(BASELINE)
    assert {its.label[row] for row in baseline_rows(its)} == {"plain"}
    two = """
| model | mode | tok/s | vs plain |
|---|---|---|---|
| 26B | plain | 80.797 | 1.00x |
| 26B | DFlash | 120.372 | 1.49x |
| 31B | plain | 25.076 | 1.00x |
| 31B | DFlash | 30.629 | 1.22x |
"""
    assert baseline_rows(frame(two)) == {0, 2}
    assert baseline_rows(frame(two.replace("1.49x", "1.84x").replace("1.22x", "1.55x"))) == set()


def test_a_wide_table_is_quick() -> None:
    rng = random.Random(1)
    head = [f"{n} {('t/s', 'time', 'speedup')[n % 3]}" for n in range(21)]
    rows = [[f"{rng.uniform(1, 100):.2f}" for _ in head] for _ in range(40)]
    its = frame("\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * 21, *rows]))
    start = time.process_time()
    assert broken(its) == {}
    assert time.process_time() - start < 0.25
