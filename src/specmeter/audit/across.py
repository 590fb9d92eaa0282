"""What rows of a table show only together: timing noise, and rows that stand out.

Noise is a property of the table that is judged, taken from what it measured more than once. Repeats are rows that are
alike in everything that says what was run, and rows without drafts next to their baselines. With s the standard
deviation of the logarithms of their rates, pooled over all such groups, two timings of one configuration differ by less
than

    t_(0.995, degrees of freedom) x sqrt(2) x s

in 99 of 100 cases. With few repeats noise is what they differ by, and at least `USUAL`. Decoding without speculation
against plain decoding on a controlled GPU differs by 2 to 6 % from prompt to prompt and from repeat to repeat.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import pvariance

from specmeter.audit.claim import Claim, length_binds, may_be_tree, printed, without_length
from specmeter.messages import Message, Value
from specmeter.numbers.stats import t_critical
from specmeter.theory import bounds

# --- noise ------------------------------------------------------------------------------------------------------------

USUAL = 0.06
"""Relative difference of two timings of one thing where the table does not show it."""
MIN_SPREAD = 0.02
"""Repeats of one sitting may agree better than two configurations of it would."""
MAX_SPREAD = 0.25
"""Rows that differ by more are unsteady: nothing about the table, and about them nothing within that difference."""
QUOTED_DIGITS = 8
ENOUGH = 5
"""Degrees of freedom from which on repeats say how steady a table is."""

Key = tuple[object, ...]


@dataclass(frozen=True)
class TimingNoise:
    """What two timings of one configuration may differ by."""

    share: float
    origin: Message
    """Where the number is from."""
    unsteady: Mapping[Key, float] = field(default_factory=dict[Key, float])
    """Configurations, and places of plain rows, whose own repeats differ by far more."""

    def of(self, claim: Claim) -> float:
        """The noise of one row, its own repeats and those of its baseline included."""
        return max(self.share, *(self.unsteady.get(key, 0.0) for key in (configuration(claim), _place_of(claim))))


def noise_of(claims: Sequence[Claim]) -> TimingNoise:
    """The noise of a table, from its own repeats and baselines."""
    near: list[Sequence[float]] = []
    largest = 0.0
    unsteady: dict[Key, float] = {}
    for keys, rates in _groups(claims):
        spread = max(rates) / min(rates) - 1
        if spread <= MAX_SPREAD:
            near.append(rates)
            largest = max(largest, spread)
        else:
            unsteady |= {key: max(spread, unsteady.get(key, 0.0)) for key in keys}
    strange = Message("audit.noise_unsteady", most=MAX_SPREAD) if unsteady else ""
    rows = sum(map(len, near))
    freedom = rows - len(near)
    if not freedom:
        return TimingNoise(USUAL, Message("audit.noise_usual", unsteady=strange), unsteady)
    if freedom < ENOUGH:
        return TimingNoise(max(USUAL, largest), Message("audit.noise_few", largest=largest, unsteady=strange), unsteady)
    squares = sum(len(rates) * pvariance(map(math.log, rates)) for rates in near)
    share = t_critical(freedom, 0.99) * math.sqrt(2 * squares / freedom)
    seen = Message("audit.noise_repeats", rates=rows, configurations=len(near), unsteady=strange)
    return TimingNoise(min(MAX_SPREAD, max(MIN_SPREAD, share)), seen, unsteady)


def noise_of_row(claim: Claim, noise: float) -> float:
    """Noise of one row: at least that of the table, and more where its own standard deviations say so."""
    pairs = (claim.decode_rate, claim.decode_rate_sd), (claim.baseline_rate, claim.baseline_rate_sd)
    spread = math.hypot(*(deviation / rate for rate, deviation in pairs if rate and deviation))
    # A deviation takes several runs; four where nothing says how many.
    return max(noise, min(MAX_SPREAD, 2 * spread / math.sqrt(claim.runs or 4)))


def _groups(claims: Sequence[Claim]) -> Iterator[tuple[tuple[Key, ...], Sequence[float]]]:
    """(keys of the rows that they concern, rates of one configuration, two and more)."""
    alike: dict[tuple[Key, ...], list[float]] = {}
    for claim in claims:
        if claim.decode_rate is None or claim.problem is not None:
            continue
        keys = (configuration(claim), _place_of(claim))[: 2 if claim.drafted_nothing else 1]
        alike.setdefault(keys, []).append(claim.decode_rate)
        if len(claim.samples) > 1:
            yield keys, claim.samples
        if claim.drafted_nothing and claim.method != "none" and claim.baseline_rate is not None:
            yield keys, (claim.decode_rate, claim.baseline_rate)
    for keys, rates in alike.items():
        measured = [*{rate for rate in rates if _is_quoted(rate)}, *(rate for rate in rates if not _is_quoted(rate))]
        if len(measured) > 1:
            yield keys, measured


def _is_quoted(rate: float) -> bool:
    """Whether a rate has so many digits that finding it again is finding the same measurement."""
    return len(f"{rate:.12g}".replace(".", "").strip("0")) >= QUOTED_DIGITS


def configuration(claim: Claim) -> Key:
    """All that says what was run and how; drafts that were accepted alike are of the same text."""
    where = (*_place_of(claim), claim.concurrency, claim.window, claim.size_bytes, claim.runs, claim.prompt_n)
    if claim.drafted_nothing:
        return ("plain", *where, "" if claim.target else claim.label)
    share = None if claim.acceptance is None else round(claim.acceptance, 2)
    drafts = (claim.draft, claim.method, claim.gamma, claim.p_min, claim.tree, claim.synthetic)
    return ("drafts", *where, claim.label, *drafts, share, claim.accepted, claim.predicted_n)


def _place_of(claim: Claim) -> Key:
    """What a row and its baseline have in common."""
    return (claim.source, claim.target, claim.engine, claim.device, *sorted(claim.conditions.items()))


# --- what stands out --------------------------------------------------------------------------------------------------

BY_CHANCE = 0.01
"""Pairs of equal timings that a table may be expected to have by chance, at most, where a pair is worth a note."""
REPEATED_DIGITS, REPEATED = 4, 3
"""The same for repeats of one configuration, where all of them are equal: digits and rows, at least."""
MANY = 12
"""Printed numbers, at least, before their last digits are looked at: two digits of ten would do by chance in 0.2^12."""
SAME_RATIO_ROWS = 5
"""Rows, at least, whose rates are one and the same multiple of their baselines."""


def notes_across(claims: Sequence[Claim]) -> tuple[Message, ...]:
    """Each thing that stands out."""
    looks = (_copies, _still, _round_digits, _one_ratio, _elsewhere, _curves)
    return tuple(line for look in looks for line in look(claims))


def _copies(claims: Sequence[Claim]) -> Iterator[Message]:
    """Runs that took the same time to all digits. A baseline's rate may be quoted in several rows."""
    timings: dict[tuple[str, str], list[tuple[float, Claim]]] = {}
    repeats: dict[tuple[str, Key], list[tuple[float, Claim]]] = {}
    for claim in claims:
        field = "predicted_ms" if claim.predicted_ms is not None else "decode_rate"
        value = getattr(claim, field)
        if value is not None and not (field == "decode_rate" and claim.drafted_nothing):
            timings.setdefault((claim.source, field), []).append((value, claim))
            repeats.setdefault((field, configuration(claim)), []).append((value, claim))
    found: dict[tuple[str, float], list[str]] = {}
    for (source, field), rows in timings.items():
        values = [value for value, _ in rows]
        unit = max(_unit(claim, field) for _, claim in rows)
        spread = max(values) - min(values)
        if spread > 0 and len(rows) * (len(rows) - 1) / 2 * unit / spread <= BY_CHANCE:
            for value, claim in rows:
                found.setdefault((source, value), []).append(claim.row)
    for (field, _), rows in repeats.items():
        alike = len({value for value, _ in rows}) == 1 and len(rows) >= REPEATED
        if alike and min(_significant_digits(claim, field) for _, claim in rows) >= REPEATED_DIGITS:
            found[rows[0][1].source, rows[0][0]] = [claim.row for _, claim in rows]
    copies = [rows for rows in found.values() if len(rows) > 1]
    if copies:
        more = Message("audit.more_copies", count=len(copies) - 3) if len(copies) > 3 else ""
        yield Message("audit.copies", examples=[_listed(rows) for rows in copies[:3]], more=more)


def _still(claims: Sequence[Claim]) -> Iterator[Message]:
    """Repeats that do not differ at all."""
    rows: list[str] = []
    for claim in claims:
        exact = claim.decode_rate_sd == 0 and (claim.runs or 2) > 1 and _significant_digits(claim, "decode_rate") > 3
        if exact or (len(claim.samples) > 2 and len(set(claim.samples)) == 1):
            rows.append(claim.row)
    if rows:
        yield Message("audit.still", rows=_listed(rows))


def _round_digits(claims: Sequence[Claim]) -> Iterator[Message]:
    """Rates that end in 0 and 5 only, in the last digit that not all of them have as a 0."""
    printed = [
        (claim.decode_rate, claim.rounding["decode_rate"])
        for claim in claims
        if claim.decode_rate is not None and claim.rounding.get("decode_rate", 0.0) > 0
    ]
    if len(printed) < MANY:
        return
    unit = 2 * max(half for _, half in printed)
    whole = [round(rate / unit) for rate, _ in printed]
    while any(whole) and all(number % 10 == 0 for number in whole):
        whole = [number // 10 for number in whole]
    if len(set(whole)) > MANY / 2 and all(number % 5 == 0 and number >= 10 for number in whole):
        yield Message("audit.round_digits", count=len(whole))


def _one_ratio(claims: Sequence[Claim]) -> Iterator[Message]:
    """Rates that are one multiple of their baselines, to all digits."""
    ratios: dict[float, list[Claim]] = {}
    for claim in claims:
        if not (claim.decode_rate and claim.baseline_rate) or claim.decode_rate == claim.baseline_rate:
            continue
        if min(_significant_digits(claim, field) for field in ("decode_rate", "baseline_rate")) >= 3:
            ratios.setdefault(round(claim.decode_rate / claim.baseline_rate, 4), []).append(claim)
    for ratio, rows in ratios.items():
        if len(rows) >= SAME_RATIO_ROWS and len({claim.decode_rate for claim in rows}) >= SAME_RATIO_ROWS:
            yield Message("audit.one_ratio", count=len(rows), ratio=ratio, rows=_listed([claim.row for claim in rows]))


def _elsewhere(claims: Sequence[Claim]) -> Iterator[Message]:
    """Baselines of another machine: said so, or found because a printed speedup fits no other plain row."""
    plain: dict[str, list[tuple[float, str, str]]] = {}  # device, or "" for all -> sorted (rate, row, device)
    own: set[tuple[str, str | None]] = set()
    for claim in claims:
        if claim.baseline_device and claim.device and claim.baseline_device.lower() != claim.device.lower():
            devices = {"baseline_device": claim.baseline_device, "device": claim.device}
            yield Message("audit.baseline_elsewhere", row=claim.row, **devices)
        if claim.method == "none" and claim.decode_rate and claim.device:
            for device in ("", claim.device):
                plain.setdefault(device, []).append((claim.decode_rate, claim.row, claim.device))
            own.add((claim.device, claim.target))
    for rows in plain.values():
        rows.sort()
    for claim in claims:
        if claim.method == "none" or not (claim.speedup and claim.decode_rate and claim.device):
            continue
        if (claim.device, claim.target) not in own or abs(claim.speedup - 1) <= _CLOSE:
            continue
        implied = claim.decode_rate / claim.speedup
        near = _nearest(plain[""], implied)
        if near is not None and _nearest(plain[claim.device], implied) is None:
            said = {"row": claim.row, "plain": near[1], "on": near[2], "device": claim.device}
            yield Message("audit.speedup_elsewhere", **said)


def _curves(claims: Sequence[Claim]) -> Iterator[Message]:
    """Tokens per step that fall as drafts grow, or grow faster than before, in rows that differ in nothing else."""
    curves: dict[Key, dict[float, Claim]] = {}
    twice: set[Key] = set()
    for claim in claims:
        is_plain = claim.drafted_nothing or claim.synthetic or may_be_tree(claim) or not length_binds(claim)
        if claim.tau is None or not claim.gamma or is_plain:
            continue
        drafts = (claim.draft, claim.method, claim.p_min, claim.concurrency, without_length(claim.label))
        key = (*_place_of(claim), *drafts)
        twice |= {key} if claim.gamma in curves.setdefault(key, {}) else set()
        curves[key][claim.gamma] = claim
    for key, curve in curves.items():
        ranges = {gamma: tau for gamma in sorted(curve) if (tau := printed(curve[gamma], "tau")) is not None}
        fault = bounds.curve_fault([(gamma, tau.low, tau.high) for gamma, tau in ranges.items()])
        if key in twice or fault is None:
            continue
        points = {name: at for name in ("before", "at", "after") if (at := getattr(fault, name)) is not None}
        found = {f"tau_{name}": ranges[at].value for name, at in points.items()} | {**points, "error": fault.error}
        code = "audit.curve_falls" if fault.after is None else "audit.curve_bends"
        yield Message(code, curve=curve[fault.at].label or curve[fault.at].row, **found)


def _nearest(plain: Sequence[tuple[float, str, str]], rate: float) -> tuple[float, str, str] | None:
    """Which of these sorted rows is nearest; None where none is within `_CLOSE`."""
    at = bisect_left(plain, rate, key=lambda row: row[0])
    near = min(plain[max(0, at - 1) : at + 1], key=lambda row: abs(row[0] - rate), default=None)
    return near if near and abs(near[0] / rate - 1) < _CLOSE else None


_CLOSE = 0.01


def _unit(claim: Claim, field: str) -> float:
    """The last printed digit; of a number that says nothing of its rounding, the last digit that it has."""
    half = claim.rounding.get(field, 0.0)
    return 2 * half if half > 0 else 10.0 ** -len(f"{getattr(claim, field):.12g}".partition(".")[2])


def _significant_digits(claim: Claim, field: str) -> int:
    """Significant digits of a printed number."""
    return len(str(max(1, round(abs(getattr(claim, field)) / _unit(claim, field)))))


def _listed(rows: Sequence[str]) -> Value:
    return Message("audit.more_rows", rows=rows[:4], count=len(rows) - 4) if len(rows) > 4 else rows
