"""What rows show only together: copies, digits too regular, baselines of another machine. Notes, never verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from specmeter.audit.printed import number

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim

FINE_DIGITS = 6
"""Significant digits from which on two timings are not alike by chance."""
MANY = 12
"""Printed numbers, at least, before their last digits are looked at: two digits of ten would do by chance in 0.2^12."""
SAME_RATIO_ROWS = 5
"""Rows, at least, whose rates are one and the same multiple of their baselines."""


def notes(claims: Sequence[Claim]) -> tuple[str, ...]:
    """Each thing that stands out, in one line."""
    found = (_copies(claims), _still(claims), _round_digits(claims), _one_ratio(claims), _elsewhere(claims))
    return tuple(line for lines in found for line in lines)


def _copies(claims: Sequence[Claim]) -> Iterator[str]:
    """Runs that took the same time to the last of many digits."""
    alike: dict[tuple[str, str, float], list[str]] = {}
    for claim in claims:
        for field in ("predicted_ms", "decode_rate"):
            value = getattr(claim, field)
            if value is not None and _digits(claim, field) >= FINE_DIGITS:
                alike.setdefault((claim.source, field, value), []).append(claim.row)
                break
    rows = [found for found in alike.values() if len(found) > 1]
    if rows:
        examples = "; ".join(_listed(found) for found in rows[:3])
        more = f"; and {len(rows) - 3} more" if len(rows) > 3 else ""
        yield f"identical to the last of {FINE_DIGITS} digits and more, as if copied: {examples}{more}"


def _still(claims: Sequence[Claim]) -> Iterator[str]:
    """Repeats that do not differ at all."""
    rows = [
        claim.row
        for claim in claims
        if (len(claim.samples) > 2 and len(set(claim.samples)) == 1)
        or (claim.decode_rate_sd == 0 and (claim.runs or 2) > 1 and _digits(claim, "decode_rate") > 3)
    ]
    if rows:
        yield f"a standard deviation of 0, as no timing has: {_listed(rows)}"


def _round_digits(claims: Sequence[Claim]) -> Iterator[str]:
    """Rates that end in 0 and 5 only."""
    last: Counter[int] = Counter()
    for claim in claims:
        half = claim.rounding.get("decode_rate", 0.0)
        if claim.decode_rate is not None and half > 0 and _digits(claim, "decode_rate") >= 3:
            last[round(claim.decode_rate / (2 * half)) % 10] += 1
    if last.total() >= MANY and set(last) <= {0, 5} and len(last) > 1:
        yield f"all {last.total()} rates end in 0 or 5: rounded, or made up"


def _one_ratio(claims: Sequence[Claim]) -> Iterator[str]:
    """Rates that are one multiple of their baselines, to all digits."""
    ratios: dict[float, list[str]] = {}
    for claim in claims:
        if claim.decode_rate and claim.baseline_rate and min(_digits(claim, f) for f in _BOTH) >= 3:
            ratio = claim.decode_rate / claim.baseline_rate
            if ratio != 1:
                ratios.setdefault(round(ratio, 4), []).append(claim.row)
    for ratio, rows in ratios.items():
        rates = {claim.decode_rate for claim in claims if claim.row in rows}
        if len(rows) >= SAME_RATIO_ROWS and len(rates) >= SAME_RATIO_ROWS:
            where = _listed(rows)
            yield f"{len(rows)} rates are exactly {number(ratio)} times their baselines, as if reckoned: {where}"


_BOTH = ("decode_rate", "baseline_rate")


def _elsewhere(claims: Sequence[Claim]) -> Iterator[str]:
    """Baselines of another machine: said so, or found because a printed speedup fits no other plain row."""
    for claim in claims:
        if claim.baseline_device and claim.device and claim.baseline_device.lower() != claim.device.lower():
            yield f"{claim.row}: the baseline was measured on {claim.baseline_device}, the row on {claim.device}"
    plain = [claim for claim in claims if claim.method == "none" and claim.decode_rate and claim.device]
    for claim in claims:
        if claim.method == "none" or not (claim.speedup and claim.decode_rate and claim.device):
            continue
        implied = claim.decode_rate / claim.speedup
        near = [row for row in plain if row.decode_rate and abs(row.decode_rate / implied - 1) < _CLOSE]
        own = [row for row in plain if row.device == claim.device and row.target == claim.target]
        if near and own and not any(row.device == claim.device for row in near) and abs(claim.speedup - 1) > _CLOSE:
            where = near[0]
            yield (
                f"{claim.row}: its speedup fits the plain rate of {where.device} ({where.row}), not that of its own "
                f"machine ({claim.device})"
            )


_CLOSE = 0.01


def _digits(claim: Claim, field: str) -> int:
    """Significant digits of a printed number; as many as a float holds where nothing says how it was printed."""
    value, half = getattr(claim, field), claim.rounding.get(field, 0.0)
    if half > 0:
        return len(str(max(1, round(abs(value) / (2 * half)))))
    return len(f"{value:.15g}".replace(".", "").strip("0"))


def _listed(rows: Sequence[str]) -> str:
    shown = ", ".join(rows[:4])
    return f"{shown} and {len(rows) - 4} more" if len(rows) > 4 else shown
