"""Numbers as people print them, and headings as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmeter.audit.read.columns import COLUMNS, CONDITIONS, in_group, understand
from specmeter.audit.read.document import Number, parse_number


@pytest.mark.parametrize(
    ("cell", "value", "half", "unit"),
    [
        ("1.15×", 1.15, 0.005, "x"),
        ("1.15x", 1.15, 0.005, "x"),
        ("1.15 X", 1.15, 0.005, "x"),
        ("$1.15\\times$", 1.15, 0.005, "x"),
        ("+25.7%", 25.7, 0.05, "%"),
        ("−25.2%", -25.2, 0.05, "%"),
        ("–2.8 %", -2.8, 0.05, "%"),
        ("2.6\\%", 2.6, 0.05, "%"),
        ("15.2 GB", 15.2, 0.05, "gb"),
        ("800 GB/s", 800, 0.5, "gb/s"),
        ("3.22 GiB", 3.22, 0.005, "gib"),
        ("**1,163.9**", 1163.9, 0.05, ""),
        ("1,163,900", 1163900, 0.5, ""),
        ("1'163.9", 1163.9, 0.05, ""),
        ("1\u202f163.9", 1163.9, 0.05, ""),
        ("1,26", 1.26, 0.005, ""),
        ("★ 69.7", 69.7, 0.05, ""),
        ("<b>69.7</b>", 69.7, 0.05, ""),
        ("`69.7 tok/s`", 69.7, 0.05, "tok/s"),
        ("138.0 ± 0.3", 138.0, 0.3, ""),
        ("138,0 ± 0,3", 138.0, 0.3, ""),
        ("138.0 +/- 0.01", 138.0, 0.05, ""),
        ("55.29711", 55.29711, 0.000005, ""),
        ("55.", 55, 0.5, ""),
        (".5", 0.5, 0.05, ""),
        ("1.2e3", 1200, 50, ""),
        ("9.022e-05", 9.022e-5, 5e-9, ""),
        ("-0", 0, 0.5, ""),
        ("59–67", 63, 4.5, ""),
        ("0.52-0.94", 0.73, 0.215, ""),
        ("52% - 94%", 73, 21.5, "%"),
        ("1.5x-2.5x", 2, 0.55, "x"),
        ("30 to 37 t/s", 33.5, 4, "t/s"),
    ],
)
def test_numbers(cell: str, value: float, half: float, unit: str) -> None:
    number = parse_number(cell)
    assert number is not None
    assert (number.value, number.half, number.unit) == (pytest.approx(value), pytest.approx(half), unit)


def test_signs_and_tildes_are_kept() -> None:
    assert parse_number("+26%") == Number(26, 0.5, "%", signed=True, approximate=False)
    assert parse_number("~26%") == Number(26, 0.5, "%", signed=False, approximate=True)


def test_decimal_commas_where_they_are_known_to_be() -> None:
    number = parse_number("1.163,9", decimal_comma=True)
    assert number is not None
    assert number.value == pytest.approx(1163.9)
    assert parse_number("1,263", decimal_comma=True) == Number(1.263, 0.0005, "", signed=False, approximate=False)


@pytest.mark.parametrize("cell", ["", " ", "-", "—", "–", "n/a", "None", "**-**", "…"])
def test_nothing(cell: str) -> None:
    assert parse_number(cell) is None


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("nan", "not finite"),
        ("-inf", "not finite"),
        ("<4%", "limit"),
        ("OOM", "not a number"),
        ("1.2.3", "not a number"),
        ("1,23,4", "not a number"),
        ("67–59", "more than one"),
        ("59–67–70", "more than one"),
        ("1.2-x", "more than one"),
        ("44.2 [42.1, 46.2]", "more than one"),
        ("1e400", "more than"),
        ("9" * 39, "more than"),
        ("9" * 2000, "too long"),
        ("=1+1", "not a number"),
        ("١٢", "not a number"),
    ],
)
def test_what_is_no_number_says_why(cell: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_number(cell)


@given(st.text(max_size=80))
def test_no_cell_is_too_strange(cell: str) -> None:
    try:
        number = parse_number(cell)
    except ValueError as error:
        str(error)
    else:
        assert number is None or (abs(number.value) <= 1e15 and number.half >= 0)


@given(st.floats(-1e14, 1e14, allow_nan=False), st.integers(0, 6))
def test_what_python_prints_is_read_back(value: float, digits: int) -> None:
    number = parse_number(f"{value:.{digits}f}")
    assert number is not None
    assert number.value == float(f"{value:.{digits}f}")
    assert abs(number.value - value) <= number.half * (1 + 1e-6) + abs(value) * 1e-15


HEADINGS = {
    ("decode_rate", ""): (
        *("tok/s", "Tokens per second", "mean_tps", "Avg TPS平均 TPS", "TG (tok/s)TG (tok/s)", "t/s", "toks/s"),
        *("tg t/s", "Spec t/s", "avg_pred_t/s", "Decode (tok/s)"),
        *("速度", "生成速度 (tokens/s)", "吞吐量（t/s）", "投机 tok/s"),
    ),
    ("gamma", ""): ("γ", "draft_len", "n_max", "n-max", "draft-n-max", "草稿长度", "草稿長度"),
    ("acceptance", "%"): ("α (%)", "Avg Accept%平均接受率", "acceptance_pct", "平均接受率(%)", "Acceptance (%)[^1]"),
    ("acceptance", ""): ("acceptanceRate", "接受率", "Acceptance<sup>2</sup>"),
    ("speedup", ""): ("Speedup加速", "加速比", "Speedup¹", "**Speedup ¹²**", "Speedup<sup>a</sup>"),
    ("change", ""): ("vs Baseline",),
    ("change", "%"): ("pooled_delta_pct", "Δ%"),
    ("size_bytes", "gb"): ("Size (GB)",),
    ("size_bytes", "b"): ("model_size_bytes",),
    ("size_bytes", "mb"): ("size_mb",),
    ("predicted_ms", "ms"): ("predicted_ms", "Decode (ms)"),
    ("predicted_ms", "ns"): ("avg_ns",),
    ("wall_ms", "s"): ("duration (s)", "spec wall time (s)"),
    ("bandwidth", "gb/s"): ("Mem BW (GB/s)",),
    ("target", ""): ("**Target**", "目标模型"),
    ("prompt_key", ""): ("prompt_key",),
    ("baseline_rate", ""): (
        *("Baseline t/s", "no spec", "w/o SD (tok/s)", "base_avg_pred_t/s", "base avg pred t/s"),
        *("基线", "基線 tok/s"),
    ),
    ("draft_rate", ""): ("draft t/s", "草稿 tok/s"),
    ("acceptance_length", ""): ("#Mean accepted tokens", "mean_accepted_tokens", "acceptance_length", "接受长度"),
    ("draft", ""): ("草稿模型",),
    ("device", ""): ("顯卡",),
    ("perplexity", ""): ("PPL",),
    ("prompt_rate", ""): ("avg_prompt_t/s", "Prefill (t/s)"),
    ("repeat", ""): ("repeat",),
    ("baseline_wall_ms", "s"): ("wall off (s)",),
    ("speedup", "mtp"): ("Speedup (MTP)",),
}
"""(name, unit) -> headings that say so."""


@pytest.mark.parametrize(("text", "said"), [(text, said) for said, texts in HEADINGS.items() for text in texts])
def test_headings(text: str, said: tuple[str, str]) -> None:
    heading = understand(text)
    assert heading is not None
    assert (heading.name, heading.unit) == said


@pytest.mark.parametrize(
    "text",
    [
        *("", "loss", "PP (tok/s)", "TG Speedup", "Note备注", "rerun", "x" * 10_000, "备注", "温度计 tok/s"),
        *("Throughput (req/s)", "Δ tok/s", "avg_ttft_t/s", "latency_speedup", "tg_speedup_vs_f16"),
    ],
)
def test_other_headings_are_not_known(text: str) -> None:
    assert understand(text) is None


@pytest.mark.parametrize(
    ("text", "group", "name"),
    [
        ("DFlash t/s", "DFlash", "decode_rate"),
        ("HumanEval Speedup", "HumanEval", "speedup"),
        ("GSM8K τ", "GSM8K", "tau"),
        ("MTP Q4 Accept", "MTP Q4", "acceptance"),
        ("数学 加速比", "数学", "speedup"),
        ("HumanEval Speedup¹", "HumanEval", "speedup"),
        ("GSM8K Speedup<sup>2</sup>", "GSM8K", "speedup"),
    ],
)
def test_headings_that_begin_with_a_method_or_data_set(text: str, group: str, name: str) -> None:
    found = in_group(text, beside_baseline=False)
    assert found is not None
    assert (found[0], found[1].name) == (group, name)


def test_a_name_that_says_nothing_needs_a_baseline_beside_it() -> None:
    assert in_group("BF16 x", beside_baseline=False) is None
    assert in_group("BF16 x", beside_baseline=True) is not None
    for text in ("PP t/s", "prompt tok/s", "Speedup 0.8B", "total tok/s", "TG Speedup"):
        assert in_group(text, beside_baseline=True) is None


def test_no_name_means_two_columns() -> None:
    names = [name for column in COLUMNS for name in (column.name, *column.aliases)] + list(CONDITIONS)
    assert sorted(names) == sorted(set(names))
    for column in COLUMNS:
        for name in (column.name, *column.aliases):
            heading = understand(name)
            assert heading is not None, name
            assert heading.name == column.name, name
