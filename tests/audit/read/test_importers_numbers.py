"""Numbers as people print them, in a cell and alone."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmeter.audit.read.cells import clean, is_number, numbers, point
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
        ("15.2 GB", 15.2, 0.05, "size"),
        ("800 GB/s", 800, 0.5, "other"),
        ("3.22 GiB", 3.22 * 1.074, 0.005 * 1.074, "size"),
        ("**1,163.9**", 1163.9, 0.05, ""),
        ("1,163,900", 1163900, 0.5, ""),
        ("1'163.9", 1163.9, 0.05, ""),
        ("1\u202f163.9", 1163.9, 0.05, ""),
        ("1,26", 1.26, 0.005, ""),
        ("★ 69.7", 69.7, 0.05, ""),
        ("<b>69.7</b>", 69.7, 0.05, ""),
        ("`69.7 tok/s`", 69.7, 0.05, "rate"),
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
        ("30 to 37 t/s", 33.5, 4, "rate"),
        ("90<sup>2</sup>", 90, 0.5, ""),
        ("2.25x[^1]", 2.25, 0.005, "x"),
        ("**109.6**¹", 109.6, 0.05, ""),
        ("~~190~~ 90", 90, 0.5, ""),
        ("2.10 倍", 2.1, 0.005, "x"),
    ],
)
def test_numbers(cell: str, value: float, half: float, unit: str) -> None:
    (number,) = numbers(clean(cell))
    assert (number.value, number.hi - number.value) == (pytest.approx(value), pytest.approx(half))
    assert number.value - number.lo == pytest.approx(half)
    assert number.unit == unit
    assert number.signed is cell.startswith(("+", "-", "−", "–"))


def test_decimal_commas_where_they_are_known_to_be() -> None:
    assert [point(cell) for cell in ("1.163,9", "1,263", "12,5 t/s")] == ["1163.9", "1.263", "12.5 t/s"]


@pytest.mark.parametrize("cell", ["", " ", "-", "—", "–", "n/a", "None", "**-**", "…", "nan", "-inf", "OOM", "1.2.3",
                                  "1,23,4", "9" * 39, "9" * 2000, "١٢", "v2.11.2", "Q4_K_M"])  # fmt: skip
def test_what_is_no_number(cell: str) -> None:
    assert not is_number(clean(cell))


@pytest.mark.parametrize(
    ("text", "value", "half", "unit"),
    [
        ("23", 23, 0.5, ""),
        ("1,163.9 tok/s", 1163.9, 0.05, "tok/s"),
        ("800 GB/s", 800, 0.5, "gb/s"),
        ("3.22 GiB", 3.22, 0.005, "gib"),
        ("138.0 ± 0.3", 138.0, 0.3, ""),
        ("-25.2%", -25.2, 0.05, "%"),
        ("9.022e-05", 9.022e-5, 5e-9, ""),
        (".5", 0.5, 0.05, ""),
        ("55.", 55, 0.5, ""),
        ("~26%", 26, 0.5, "%"),
    ],
)
def test_a_number_alone(text: str, value: float, half: float, unit: str) -> None:
    assert parse_number(text) == Number(pytest.approx(value), pytest.approx(half), unit)


@pytest.mark.parametrize("text", ["", " ", "-", "n/a", "None"])
def test_nothing(text: str) -> None:
    assert parse_number(text) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nan", "not a number"),
        ("<4%", "not a number"),
        (".", "not a number"),
        ("1.2.3", "not a number"),
        ("1,23", "not a number"),
        ("44.2 [42.1, 46.2]", "not a number"),
        ("1e400", "more than"),
        ("9" * 39, "more than"),
        ("9" * 2000, "too long"),
        ("١٢", "not a number"),
    ],
)
def test_what_is_no_number_says_why(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_number(text)


@given(st.text(max_size=80))
def test_no_cell_is_too_strange(cell: str) -> None:
    with contextlib.suppress(ValueError):
        number = parse_number(cell)
        assert number is None or (abs(number.value) <= 1e15 and number.half >= 0)
    assert all(num.lo <= num.value <= num.hi for num in numbers(clean(cell)))


@given(st.floats(-1e14, 1e14, allow_nan=False), st.integers(0, 6))
def test_what_python_prints_is_read_back(value: float, digits: int) -> None:
    number = parse_number(f"{value:.{digits}f}")
    assert number is not None
    assert number.value == float(f"{value:.{digits}f}")
    assert abs(number.value - value) <= number.half * (1 + 1e-6) + abs(value) * 1e-15
