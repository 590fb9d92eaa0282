"""Every kind of number has one form, wherever it is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import specmeter
from specmeter.record import Estimate
from specmeter.text import (
    amount,
    bandwidth,
    brackets,
    counted,
    duration,
    estimated,
    milliseconds,
    percent,
    rate,
    ratio,
    size,
)

NUMBER = Estimate(point=1.928, low=1.85, high=2.014, n=4, unit="1", method="m")
POINT = Estimate(point=1.928, n=1, unit="1", method="m")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (brackets(NUMBER.model_copy(update={"low": 0.001, "high": 0.002}), 1), "[<0.1, <0.1]"),
        (brackets(NUMBER.model_copy(update={"low": -0.6, "high": 0.03}), 1), "[-0.6, 0.0]"),
        (size(0), "0 B"),
        (size(999), "999 B"),
        (size(1000), "1.0 kB"),
        (size(400_111_111), "400.1 MB"),
        (size(999_960_000), "1.0 GB"),
        (size(2**30), "1.1 GB"),
        (size(3.2e12), "3.2 TB"),
        (bandwidth(38.44e9), "38.4 GB/s"),
        (amount(3.31e9), "3.31 B"),
        (amount(4e8), "400 M"),
        (amount(12), "12"),
        (percent(0.744), "74%"),
        (percent(0.744, 1), "74.4%"),
        (percent(0.031, 1, signed=True), "+3.1%"),
        (ratio(2.1), "2.10x"),
        (rate(58.44), "58.4 tok/s"),
        (milliseconds(3.424), "3.42 ms"),
        (duration(45.4), "45 s"),
        (duration(200), "3 min 20 s"),
        (duration(7500), "2 h 05 min"),
        (counted(1, "prompt"), "1 prompt"),
        (counted(1200, "entry", "entries"), "1,200 entries"),
        (estimated(NUMBER, 2), "1.93 [1.85, 2.01]"),
        (estimated(NUMBER, 2, "x"), "1.93x [1.85, 2.01]"),
        (estimated(NUMBER, 0, scale=100), "193 [185, 201]"),
        (estimated(POINT, 2), "1.93 [?]"),
        (estimated(POINT, 2, " ms", exact=True), "1.93 ms"),
        (estimated(None, 2), "-"),
    ],
)
def test_one_form(told: str, said: str) -> None:
    assert told == said


def test_nothing_else_words_a_size() -> None:
    """A size is written by `size`: no other module divides bytes and names a unit, and none counts in powers of two.

    Left out: tables of studies with their documents' units, what is parsed, and what a user types into a flag.
    """
    source = Path(specmeter.__file__).parent
    form = re.compile(r"/ ?(1e9|1e6|2\*\*[123]0|GIB|MIB)[^}]*\} ?(GB|MB|kB|GiB|MiB|KiB)\b")
    found = {
        f"{path.relative_to(source).as_posix()}: {line.strip()}"
        for path in source.rglob("*.py")
        if not path.relative_to(source).as_posix().startswith(("studies/", "audit/counters"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if form.search(line)
    }
    assert {it for it in found if "size=" not in it and "ask for at least" not in it} == {
        'text.py: return f"{bytes_per_s / 1e9:.1f} GB/s"'
    }
