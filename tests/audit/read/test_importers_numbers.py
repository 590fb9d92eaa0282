"""Numbers as people print them, and headings as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
