"""What headings and their cells most likely mean, before rows are compared."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from specmeter.audit.claim import draft_lengths
from specmeter.audit.read.cells import clean
from specmeter.audit.read.grid import Grid
from specmeter.audit.read.meaning import Stream, name_of, streams_of
from specmeter.audit.read.options import TableOptions
from specmeter.audit.read.words import (
    canonical,
    in_english,
    is_plain,
    known_column,
    load,
    requests_at_once,
    side_of,
)

LABELS = Path(__file__).parents[2] / "data/audit/columns.tsv"


def streams(headings: str, *rows: str, context: str = "", chosen: dict[str, str] | None = None) -> list[Stream]:
    """The streams of a table of these headings and rows, cells separated by bars."""
    split = [[cell.strip() for cell in line.split("|")] for line in (headings, *rows)]
    grid = Grid(split[0], split[1:], [], context=context, kind="table", sections=[""] * len(rows))
    return streams_of(grid, TableOptions(chosen or {}))


def meanings(headings: str, *rows: str, context: str = "") -> list[str]:
    """`heading: meaning` of each stream, in order."""
    return [str(stream.candidates[0]) for stream in streams(headings, *rows, context=context)]


TABLES = [
    ("Domain | Baseline t/s | DFlash t/s (accept)", "GSM8K | 100.6 | 246.4 (53.2%)", "rate.base rate.sd acceptance"),
    ("Task | MTP tok/s (speedup)", "code | 223.3 (1.41x)", "rate.sd speedup/rate"),
    ("Task | EAGLE tok/s (accept length)", "code | 373.3 (3.2)", "rate.sd tau"),
    ("Config | tok/s (short ctx) | tok/s (long ctx)", "Baseline | 60 | 20", "rate rate"),
    (
        "n_max | tok/s | accept | accepted/drafted",
        "4 | 38.1 | 71.2% | 412/530",
        "gamma rate acceptance accepted drafted",
    ),
    ("Method | TPOT (ms) | Speedup vs AR", "EAGLE-3 | 8.2 | 2.1x", "token_time speedup/rate"),
    (
        "batch_size | steps | num_draft_tokens | throughput | accept_length",
        "1 | 3 | 4 | 870.35 | 2.017",
        "concurrency gamma condition rate tau",
    ),
    ("a | num_drafts | num_draft_tokens | num_accepted_tokens", "x | 4687 | 46870 | 12368", "steps drafted accepted"),
    (
        "a | vllm:spec_decode_num_drafts_total | vllm:spec_decode_num_draft_tokens_total",
        "x | 4687 | 46870",
        "steps drafted",
    ),
    ("a | Baseline | MTP | Difference (%)", "x | 8.18 | 6.90 | +15.65", "rate.base rate.sd gain/rate"),
    ("a | accept rate | gen throughput (token/s)", "x | 1.49 | 120.5", "tau rate"),
    ("Name | pred | draft | acc | rate", "x | 192 | 139 | 138 | 0.993", "tokens drafted accepted acceptance"),
    (
        "a | ms/token | ms/step | steps/s | GB",
        "x | 20.1 | 60.2 | 16.6 | 12.1 GB",
        "token_time step_time steps_per_s ignore",
    ),
    ("a | Mean TPOT (ms) | Median ITL (ms) | P99 TTFT (ms)", "x | 21.8 | 21.7 | 222.4", "token_time ignore ignore"),
    ("a | Pos 0 | Pos 1 | mean len", "x | 0.83 | 0.65 | 2.98", "position position tau"),
    ("Set | result", "HumanEval | 218.23 tok/s (AR 58.25, 3.75x, AL 7.12)", "rate rate.base speedup/rate tau"),
    ("Task | MTP | Delta t/s | E3 over E1", "code | 45.1 t/s | 4.0 | 1.012", "rate.sd ignore ignore"),
    ("Config | k | Mean ITL (ms)", "baseline | 0 | 25.0", "gamma token_time/chunk"),
    ("Time (s) | Total time (s) | tok/s", "4.0 | 5.0 | 64.0", "decode_time wall_time rate"),
    ("模型 | 基线 (tok/s) | 投机 (tok/s) | 加速比", "a | 30.1 | 61.9 | 2.06x", "rate.base rate.sd speedup/rate"),
]


@pytest.mark.parametrize(("headings", "row", "expected"), TABLES)
def test_what_a_heading_and_its_cells_mean(headings: str, row: str, expected: str) -> None:
    assert meanings(headings, row) == expected.split()


def test_most_labelled_columns_are_told() -> None:
    """The labels and their format are those of `scripts/fit_meanings.py`."""
    told = [it.candidates[0].quantity in right for it, right in labelled()]
    assert len(told) > 1000
    assert sum(told) > 0.98 * len(told)


def labelled() -> Iterator[tuple[Stream, set[str]]]:
    """Each labelled stream and the quantities that its label allows."""
    with LABELS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    for _, group in groupby(rows, lambda row: (row["file"], row["grid"])):
        columns = list(group)
        cells = [[cell.strip() for cell in column["cells"].split(" ¦ ")] for column in columns]
        height = max(map(len, cells))
        body = [[column[r] if r < len(column) else "" for column in cells] for r in range(height)]
        head, above, kind = [it["heading"] for it in columns], columns[0]["above"], columns[0]["kind"]
        for stream in streams_of(Grid(head, body, [], context=above, kind=kind, sections=[""] * height)):
            labels = dict(it.split("=", 1) for it in columns[stream.column]["meaning"].split("; ") if "=" in it)
            if stream.slot in labels and stream.known is None:
                yield stream, {it.partition(".")[0] for it in labels[stream.slot].split("|")}


def test_a_canonical_heading_is_certain() -> None:
    found = streams("label | decode_rate | baseline_rate | p_min | acceptance_percent", "a | 40.1 | 20.2 | 0.75 | 61")
    assert [stream.known and stream.known.name for stream in found] == [
        "decode_rate", "baseline_rate", "p_min", "acceptance_percent",
    ]  # fmt: skip
    assert [str(stream.candidates[0]) for stream in found] == ["rate", "rate.base", "condition", "acceptance"]
    assert found[3].candidates[0].scale == 0.01
    assert len(found[0].candidates) == 1


def test_a_chosen_meaning_leaves_no_other() -> None:
    (found,) = streams("name | value", "a | 61", "b | 55", chosen={"value": "acceptance_percent"})
    assert [(str(it), it.scale) for it in found.candidates] == [("acceptance", 0.01)]


def test_every_name_is_of_one_column() -> None:
    names = [name for it in load().columns for name in (it.name, *it.aliases)]
    assert len(names) == len(set(names))


def test_every_meaning_has_a_canonical_name() -> None:
    for stream in streams("a | wall s | TPOT ms off | accept", "x | 3.1 | 20.5 | 0.71"):
        assert canonical(name_of(stream.candidates[0])) or known_column(name_of(stream.candidates[0]))


@pytest.mark.parametrize(
    ("text", "side"),
    [
        ("without speculation", "base"), ("MTP off", "base"), ("no-MTP tok/s", "base"), ("基线", "base"),
        ("MTP", "sd"), ("speedup vs baseline", ""), ("spec on", "sd"),
        ("Qwen3 base + draft model", "sd"), ("tok/s", ""),
    ],
)  # fmt: skip
def test_side(text: str, side: str) -> None:
    assert side_of(text) == side


@pytest.mark.parametrize(
    ("label", "length"),
    [
        ("MTP-1", 1), ("MTP3", 3), ("D2", 2), ("nd1", 1), ("EAGLE-3, K=4", 4), ("DFlash n3", 3), ("spec_k8", 8),
        ("MTP Speculative (MTP-4)", 4), ("main d=1", 1), ("heads=3", 3), ("--speculative-num-steps 3", 3),
        ("EAGLE-3", None), ("Qwen3.6-27B-MTP-Q8_0", None), ("MTP 27B", None), ("n=5 runs", None), ("top-k 4", None),
        ("MTP 2.5x", None), ("draft 0.6B", None), ("draft 1 token/s", None),
    ],
)  # fmt: skip
def test_a_label_tells_a_draft_length(label: str, length: int | None) -> None:
    assert draft_lengths(label)[:1] == ([] if length is None else [length])


def test_words() -> None:
    assert in_english("平均接受长度").strip() == "mean acceptance length"
    assert is_plain("target/none")
    assert not is_plain("n-gram, none")
    assert requests_at_once("np=2") == 2
    assert requests_at_once("4 users") == 4


HEADINGS = {
    "rate": (
        "20.5",
        "tok/s;Tokens per second;mean_tps;Avg TPS平均 TPS;TG (tok/s);Spec t/s;avg_pred_t/s",
    ),
    "rate.base": ("20.5", "Baseline t/s;no spec;w/o SD (tok/s);base_avg_pred_t/s;基线;基線 tok/s"),
    "gamma": ("4", "γ;draft_len;n_max;draft-n-max;草稿长度;草稿長度"),
    "acceptance": ("0.62", "α (%);Avg Accept%平均接受率;平均接受率(%);Acceptance (%)[^1];acceptanceRate;MTP Q4 Accept"),
    "speedup": ("1.26", "Speedup加速;加速比;Speedup¹;**Speedup ¹²**;Speedup<sup>a</sup>;Speedup (MTP);数学 加速比"),
    "gain": ("+26.1%", "vs Baseline;pooled_delta_pct;Δ%"),
    "wall_time": ("12.5", "duration (s);spec wall time (s);wall off (s)"),
    "draft_rate": ("140.2", "draft t/s;草稿 tok/s"),
    "tau": ("2.4", "#Mean accepted tokens;mean_accepted_tokens;acceptance_length;接受长度;GSM8K τ"),
    "prompt_rate": ("800.5", "avg_prompt_t/s;Prefill (t/s);PP (tok/s)"),
    "other_rate": ("7.5", "Throughput (req/s)"),
    "ignore": ("7.5", ";loss;avg_ttft_t/s"),
}


@pytest.mark.parametrize(("said", "heading"), [(it, h) for it, (_, them) in HEADINGS.items() for h in them.split(";")])
def test_headings_as_people_write_them(said: str, heading: str) -> None:
    cells = [[HEADINGS[said][0]], [HEADINGS[said][0]]]
    (stream,) = streams_of(Grid([clean(heading)], cells, ["line 1", "line 2"]))
    first = stream.candidates[0]
    assert first.quantity == said.partition(".")[0]
    assert first.side == "base" or not said.endswith(".base")
