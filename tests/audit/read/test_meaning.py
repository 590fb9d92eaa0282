"""What headings and their cells most likely mean, before rows are compared."""

from __future__ import annotations

import pytest

from specmeter.audit.read.grids import Grid
from specmeter.audit.read.meaning import (
    Stream,
    canonical,
    in_english,
    is_plain,
    known_column,
    load,
    name_of,
    requests_at_once,
    side_of,
    streams_of,
)


def streams(headings: str, *rows: str, context: str = "", chosen: dict[str, str] | None = None) -> list[Stream]:
    """The streams of a table of these headings and rows, cells separated by bars."""
    split = [[cell.strip() for cell in line.split("|")] for line in (headings, *rows)]
    grid = Grid(split[0], split[1:], [], context=context, kind="table", sections=[""] * len(rows))
    return streams_of(grid, chosen)


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
    ("模型 | 基线 (tok/s) | 投机 (tok/s) | 加速比", "a | 30.1 | 61.9 | 2.06x", "rate.base rate.sd speedup/rate"),
]


@pytest.mark.parametrize(("headings", "row", "expected"), TABLES)
def test_what_a_heading_and_its_cells_mean(headings: str, row: str, expected: str) -> None:
    assert meanings(headings, row) == expected.split()


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


def test_words() -> None:
    assert in_english("平均接受长度").strip() == "mean acceptance length"
    assert is_plain("target/none")
    assert not is_plain("n-gram, none")
    assert requests_at_once("np=2") == 2
    assert requests_at_once("4 users") == 4
