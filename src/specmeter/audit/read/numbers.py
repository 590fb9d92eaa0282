"""Numbers as people print them: `1.15×`, `+25.7%`, `−25.2 %`, `**1,163.9**`, `138.0 ± 0.3`, `800 GB/s`.

Thousands may be separated by commas, apostrophes, underscores or thin spaces, in groups of three. A comma before any
other number of digits is a decimal comma; where commas are known to be decimal (a file with semicolons between its
fields) they always are. A range (`0.52-0.94`) is its middle, give or take half of it. Nothing else is guessed: what
does not read as one number with one unit is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_CELL = 1_000
"""Characters of a number with its decoration; a longer cell is not a number."""
LARGEST = 1e15

_EMPTY = frozenset({"", "-", "--", "---", "—", "–", "n/a", "na", "n.a.", "none", "null", "?", "...", "…", "/"})
_NOTE = re.compile(
    r"~~[^~]{0,80}~~|(?<=[0-9x×%*_])\s*(?:<sup>[^<>]{0,40}</sup>|\[\^[^\[\]]{1,20}\]|[⁰¹²³⁴-⁹ᵃ-ᶻ]+(?=[\s*_)]*$))"
)
"""What was crossed out, and the marks of footnotes behind a number."""
_DECORATION = re.compile(r"</?(?:b|i|em|strong|sup|sub)>|\*+|`+|[★☆✓✔✗†‡§$]|\\(?=%)")
_NUMBER = re.compile(
    r"(?P<sign>[+-])?\s*(?P<digits>[0-9][0-9,.'’_\u00a0\u2009\u202f]*|\.[0-9]+)(?P<exponent>[eE][+-]?[0-9]{1,3})?"
)
_UNIT = re.compile(r"[a-zA-Z%/×µ ]{0,24}")
_UNCERTAINTY = re.compile(r"\s*(?:±|\+/-|\+-|\\pm)\s*(?P<half>[0-9]+(?:[.,][0-9]+)?)")
_RANGE = re.compile(r"\s*(?:-|–|—|~|to\b|\.\.)\s*")
_GROUPED = re.compile(r"[0-9]{1,3}(?:([,.'’_\u00a0\u2009\u202f])[0-9]{3})(?:\1[0-9]{3})*")


@dataclass(frozen=True)
class Number:
    """One printed number."""

    value: float
    half: float
    """Half a unit of its last digit, or its printed uncertainty or half of its range where that is more."""
    unit: str
    """Lower case, without spaces; empty where none is printed."""
    signed: bool
    """Printed with a plus or minus."""
    approximate: bool
    """Printed with a tilde or the like."""


def parse(cell: str, *, decimal_comma: bool = False) -> Number | None:
    """The number in a cell, None for an empty cell or a dash.

    Raises `ValueError` with a reason for anything else.
    """
    if len(cell) > MAX_CELL:
        raise ValueError("is too long for a number")
    text = _plain(cell)
    if text.lower() in _EMPTY:
        return None
    approximate = text[0] in "~≈≃"
    text = text.lstrip("~≈≃ ")
    match = _NUMBER.match(text)
    if match is None:
        raise ValueError(_reason(text))
    digits, decimals = _digits(match["digits"], decimal_comma)
    exponent = int(match["exponent"][1:]) if match["exponent"] else 0
    value = float(f"{digits}e{exponent}")
    if value > LARGEST:
        raise ValueError(f"is more than {LARGEST:.0e}")
    half = 0.5 * 10.0 ** (exponent - decimals)
    rest = text[match.end() :]
    if (uncertainty := _UNCERTAINTY.match(rest)) is not None:
        half = max(half, float(_digits(uncertainty["half"], decimal_comma and "." not in uncertainty["half"])[0]))
        rest = rest[uncertainty.end() :]
    elif match["sign"] is None and (wide := _upper(rest, value, decimal_comma)) is not None:
        value, half, rest = wide
    rest = rest.strip()
    if not _UNIT.fullmatch(rest):
        raise ValueError("is more than one number with a unit")
    unit = rest.replace(" ", "").replace("×", "x").lower()
    return Number(-value if match["sign"] == "-" else value, half, unit, match["sign"] is not None, approximate)


def _upper(rest: str, low: float, decimal_comma: bool) -> tuple[float, float, str] | None:
    """(middle, half, what follows) where a number goes on as a range: `-0.94`, `x-1.6x`, ` % to 80 %`."""
    dash = re.match(r"[%x×]?" + _RANGE.pattern, rest)
    match = None if dash is None else re.match(_NUMBER.pattern, rest[dash.end() :])
    if dash is None or match is None or match["sign"] or match["exponent"]:
        return None
    digits, decimals = _digits(match["digits"], decimal_comma)
    high = float(digits)
    if not low < high <= LARGEST:
        return None
    return (low + high) / 2, (high - low) / 2 + 0.5 * 10.0**-decimals, rest[dash.end() + match.end() :]


def _plain(cell: str) -> str:
    text = _DECORATION.sub("", _NOTE.sub("", cell)).replace("\\times", "×").replace("倍", "x").replace("％", "%")
    return text.replace("−", "-").replace("﹣", "-").replace("–", "-", 1).strip() if text.strip() else ""


def _digits(raw: str, decimal_comma: bool) -> tuple[str, int]:
    """Digits with a decimal point, and how many follow it."""
    comma_is_point = decimal_comma or ("." not in raw and raw.count(",") == 1 and not _GROUPED.fullmatch(raw))
    whole, _, fraction = raw.partition("," if comma_is_point else ".")
    if _GROUPED.fullmatch(whole):
        whole = re.sub(r"[^0-9]", "", whole)
    if not re.fullmatch(r"[0-9]*", whole) or not re.fullmatch(r"[0-9]*", fraction) or not whole + fraction:
        raise ValueError("is not a number")
    if len(whole) + len(fraction) > 400:
        raise ValueError("has too many digits")
    return f"{whole or '0'}.{fraction or '0'}", len(fraction)


def _reason(text: str) -> str:
    if text.lower().lstrip("+-") in {"nan", "inf", "infinity", "infx"}:
        return "is not finite"
    if text.startswith(("<", ">", "≤", "≥")):
        return "is a limit, not a value"
    return "is not a number"


# --- units, lower case and without spaces -> their factor; one table for files and for options

RATES: dict[str, float] = dict.fromkeys(
    ("", "tok/s", "toks/s", "t/s", "tokens/s", "tps", "token/s", "tokens/sec", "tok/sec", "toks/sec"), 1.0
)
"""To tokens per second."""
TIMES: dict[str, float] = {"ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "µs": 1e-3, "ns": 1e-6}
"""To milliseconds."""
BYTES: dict[str, float] = {
    **dict.fromkeys(("b", "byte", "bytes"), 1.0),
    **{f"{letter}b": 1000.0**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024.0**power for power, letter in enumerate("kmgt", 1)},
}
"""To bytes."""
