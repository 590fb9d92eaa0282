"""Numbers as people print them, in a cell and alone."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmeter.audit.read.cells import clean, is_number, numbers, point
from specmeter.audit.reading import row_defaults
from specmeter.errors import UsageError


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
        ("3.22 GiB", 3.22 * 1.024**3, 0.005 * 1.024**3, "size"),
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
    ("option", "text", "value", "half"),
    [
        ("baseline_rate", "23", 23, 0.5),
        ("baseline_rate", "1,163.9 tok/s", 1163.9, 0.05),
        ("baseline_rate", "138.0 ± 0.3", 138.0, 0.3),
        ("draft_rate", ".5 t/s", 0.5, 0.05),
        ("draft_rate", "55.", 55, 0.5),
        ("draft_rate", "1.2e3", 1200, 50),
        ("bandwidth", "800 GB/s", 800e9, 0.5e9),
        ("bandwidth", "2000", 2000e9, 0.5e9),
        ("bytes_per_token", "3.22 GiB", 3.22 * 2**30, 0.005 * 2**30),
        ("bytes_per_token", "20.6GB", 20.6e9, 0.05e9),
    ],
)
def test_a_number_that_a_user_gives(option: str, text: str, value: float, half: float) -> None:
    given = row_defaults(**{option: text})  # pyright: ignore[reportArgumentType]
    assert [*given.values.values(), *given.rounding.values()] == [pytest.approx(value), pytest.approx(half)]


@pytest.mark.parametrize("text", ["", "-", "n/a", "nan", "<4%", ".", "1.2.3", "44.2 [42.1, 46.2]", "1e400", "9" * 39,
                                  "9" * 2000, "١٢", "-5", "0"])  # fmt: skip
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a number|not above 0"):
        row_defaults(baseline_rate=text)


@given(st.text(max_size=80))
def test_no_cell_is_too_strange(cell: str) -> None:
    with contextlib.suppress(UsageError):
        row_defaults(baseline_rate=cell)
    assert all(num.lo <= num.value <= num.hi for num in numbers(clean(cell)))


@given(st.floats(0, 1e14, allow_nan=False), st.integers(1, 6))
def test_what_python_prints_is_read_back(value: float, digits: int) -> None:
    (number,) = numbers(f"{value:.{digits}f}")
    assert number.value == float(f"{value:.{digits}f}")
    assert abs(number.value - value) <= (number.hi - number.value) * (1 + 1e-6) + abs(value) * 1e-15
