"""What the numbers of a table do to each other, whatever they mean: a row that breaks what all others keep.

A column may be the ratio, the change or the sum of two others, speedups may refer to one row with 1.00x, a row or a
column may hold means or totals. The other rows show which of these laws a table keeps: all of them agree within
rounding, with numbers so precise that it is no chance. Only then a row that clearly misses contradicts itself.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

from specmeter.audit.read.cells import Num
from specmeter.audit.read.frame import Frame
from specmeter.audit.read.meaning import COUNTS, Stream
from specmeter.messages import Message, Value
from specmeter.text import number

CHANCE, EXPLAINED = 1e-3, 0.05
"""Most that the agreement of the other rows may be likely without a law, all attempts counted: of a law that a row
breaks, and of one that no row breaks, which only excuses."""
FAR, POINT = 0.03, 0.01
"""Share by which a number misses at least, beyond rounding; of changes in percent, one point."""
COARSE = 0.05
"""Rounding, as a share of a number, from which on it may agree with anything."""
MEANS = 2e-3
"""Share by which a mean of speedups differs from the ratio of means."""
OVERHEAD = 0.2
"""Share by which the time of a run exceeds that of its decoding, at most: in a table that has both for the others."""
POOLED = 0.2
"""A mean that weighs its rows differs from the plain one by less than this share of their range, of few rows by less
than the share of one."""
MOST_STREAMS, MOST_CELLS, MOST_SUMMARIES, MOST_LINES = 60, 20_000, 12, 2
KEPT = -1
_CHANGES = {"change", "loss"}
_GAINS = {"speedup", "gain", "relative", "time_change"}
_SPEEDS = {"rate", "token_time", "wall_time", "decode_time"}
_SETTINGS = {"condition", "concurrency", "gamma", "size", "ignore"}
_MEAN = re.compile(r"(?<![a-z])(?:average|avg|mean|overall)(?![a-z])|平均|均值|总体", re.I)
_OTHER = re.compile(
    r"(?<![a-z])(?:all|aggregate|combined|macro|best|worst|max(?:imum)?|min(?:imum)?|std\w*|p\d\d|peak|range)"
    r"(?![a-z])|median|pooled|weight|geo\w*mean|harmonic|Δ|中位|加权|几何|最大|最小",
    re.I,
)
"""What sums up others in another way: no law is expected of it."""


class Span(NamedTuple):
    """Where a number lies."""

    low: float
    high: float

    def over(self, other: Span) -> Span:
        return Span(self.low / other.high, self.high / other.low)

    def plus(self, other: Span) -> Span:
        return Span(self.low + other.low, self.high + other.high)

    def scaled(self, by: float, plus: float = 0.0) -> Span:
        return Span(*sorted((self.low * by + plus, self.high * by + plus)))


Spans = Mapping[int, Span]
"""By row."""


class Pair(NamedTuple):
    """A printed number and what a law gives for it."""

    printed: Span
    given: Span
    spread: float
    """Range in which it might lie without the law."""
    far: float
    """Distance beyond rounding from which on it contradicts the law."""
    near: float = 1e-6
    """Share up to which it keeps the law."""

    @property
    def gap(self) -> float:
        return max(self.given.low - self.printed.high, self.printed.low - self.given.high)

    @property
    def fits(self) -> bool:
        """Whether they agree; numbers may also be cut off instead of rounded."""
        return self.gap <= (self.printed.high - self.printed.low) / 2 + self.near * abs(self.given.high)

    @property
    def chance(self) -> float:
        width = self.printed.high - self.printed.low + self.given.high - self.given.low
        width += 2 * max(0.0, self.gap) + 1e-6 * abs(self.given.high)
        return min(1.0, width / self.spread) if self.spread > 0 else 1.0


def odd_one(pairs: Mapping[int, Pair], attempts: float) -> int | None:
    """The one number that breaks what all others keep, `KEPT` if none does, None if this is no law.

    `attempts`: how many laws were tried.
    """
    odd = [key for key, pair in pairs.items() if not pair.fits]
    if len(odd) > 1 or len(pairs) - len(odd) < 2 or (odd and pairs[odd[0]].gap <= pairs[odd[0]].far):
        return None
    chance = attempts * math.prod(pair.chance for key, pair in pairs.items() if key not in odd)
    return None if chance > (CHANCE if odd else EXPLAINED) else odd[0] if odd else KEPT


def broken(frame: Frame) -> dict[int, list[Message]]:
    """Row -> what in it breaks a law that all other rows keep."""
    table = _Table(frame)
    found: dict[int, list[Message]] = {}
    for laws in (table.derived, table.summing, table.outside):
        for row, line in laws():
            if len(lines := found.setdefault(row, [])) < MOST_LINES and line not in lines:
                lines.append(line)
    return found


def baseline_rows(frame: Frame) -> set[int]:
    """Rows with a printed speedup of exactly 1, if the speeds of nearly all others are as many times theirs."""
    table = _Table(frame)
    for t in (t for t in table.all if table.told[t]):
        for _, printed in table.forms(t):
            exact = {r for r, it in printed.items() if abs(sum(it) - 2) < 1e-9 and it.high - it.low < 0.11}
            for speeds in (table.spans[a] for a in table.all if table.speeds[a] and a != t):
                others = [r for r in printed if r not in exact and r in speeds and speeds[r].low > 0]
                bases = [speeds[b] for b in exact if b in speeds and speeds[b].low > 0]
                ways = ([speeds[r].over(it) for it in bases] + [it.over(speeds[r]) for it in bases] for r in others)
                fit = [
                    any(_pair(printed[r], it, "", MEANS).fits for it in way)
                    for r, way in zip(others, ways, strict=True)
                ]
                if bases and sum(fit) >= max(1, len(others) - 1):
                    return exact
    return set()


class _Table:
    def __init__(self, frame: Frame) -> None:
        self.frame, self.grid = frame, frame.grid
        most = min(MOST_STREAMS, MOST_CELLS // max(1, len(self.grid.rows)))
        self.streams = [it for it in frame.streams if len(it.values) > 1][:most]
        self.all = range(len(self.streams))
        self.units = [_unit(stream) for stream in self.streams]
        self.likely = [stream.candidates[0].quantity if stream.candidates else "" for stream in self.streams]
        self.told = [self.units[t] == "x" or self.likely[t] in _GAINS for t in self.all]
        """Whether a column says that it compares others."""
        self.speeds = [self.likely[t] in _SPEEDS or self.units[t] in {"rate", "ms", "mspt"} for t in self.all]
        self.rows = range(len(self.grid.rows))
        named = {r: " ".join(text for text in frame.words_of(r) if len(text) <= 40) for r in self.rows}
        self.sums = {r for r, name in named.items() if _MEAN.search(name) or _OTHER.search(name)}
        self.means = [r for r in sorted(self.sums) if not _OTHER.search(named[r])]
        self.spans = [
            {r: _span(it, self.likely[t] in COUNTS) for r, it in self.streams[t].values.items() if r not in self.sums}
            for t in self.all
        ]
        self.ordered = [sorted((sum(its[r]) / 2, t) for t, its in enumerate(self.spans) if r in its) for r in self.rows]
        """Of each row, (number, stream) in order of size."""
        self.kept = set[int]()
        """Columns that a law gives in every row."""

    def _line(self, law: str, form: str, t: int, row: int, pair: Pair, **values: Value) -> tuple[int, Message]:
        name, num, given = _name(self.streams[t]), self.streams[t].values[row], sum(pair.given) / 2
        value, made = _shown(num.value, num.unit), _made(given, form) if form else _shown(given, num.unit)
        return row, Message(f"law.{law}", name=name, value=value, made=made, **values)

    # --- ratios, changes and sums ------------------------------------------------------------------------------------

    def derived(self) -> Iterator[tuple[int, Message]]:
        """Columns that two others give."""
        columns = [t for t in self.all if len(self.spans[t]) > 2]
        terms = [t for t in columns if all(span.low > 0 for span in self.spans[t].values())]
        alike = {a: {b for b in terms if a != b and self._alike(a, b)} for a in terms}
        speeds = {a: {b for b in its if self.speeds[a] or self.speeds[b]} for a, its in alike.items()}
        seen: list[set[int]] = []
        varied = [t for t in columns if len(set(self.spans[t].values())) > 1]
        for t in sorted(varied, key=lambda t: (not self.told[t], self.likely[t] in COUNTS)):
            terms_of, forms = speeds if self.told[t] else alike, list(self.forms(t))
            attempts = len(forms) * sum(len(its - {t}) for a, its in terms_of.items() if a != t) / 2
            laws: list[tuple[int, str, int, int, float, dict[int, Pair]]] = []
            for form, printed in forms:
                for a in (a for a in terms_of if a != t):
                    for b in self._partners(form, printed, a) & terms_of[a] - {t}:
                        by = 1000.0 if form == "rate" and self.units[b] == "ms" else 1.0
                        pairs = self._pairs(t, form, printed, by, a, b)
                        odd = odd_one(pairs, attempts * (1 if self.told[t] else len(pairs)))
                        laws += [(odd, form, a, b, by, pairs)] if odd is not None else []
            if any(odd == KEPT for odd, *_ in laws):
                self.kept.add(t)
                continue
            for odd, form, a, b, by, pairs in laws:
                if {t, a, b} in seen or (self._sums_up(a, odd) and self._sums_up(b, odd)):
                    continue
                seen.append({t, a, b})
                left, right = self.streams[a], self.streams[b]
                numbers_of = {"left": left.values[odd].value, "right": right.values[odd].value / by}
                said = {"a": _name(left), "b": _name(right), "rows": len(pairs) - 1, **numbers_of}
                yield self._line("sum" if form == "sum" else "ratio", form, t, odd, pairs[odd], **said)

    def _alike(self, a: int, b: int) -> bool:
        """Whether the ratio or the sum of two columns means something."""
        units = {self.units[a], self.units[b]}
        counted = self.likely[a] in COUNTS and self.units[b] == "ms"
        return counted or units == {"%"} or (len(units - {""}) < 2 and units.isdisjoint({"x", "pp", "%"}))

    def _partners(self, form: str, printed: Spans, a: int) -> set[int]:
        """Columns that may give another together with this one: in one of two rows at least they do."""
        found = set[int]()
        for r in [r for r, span in printed.items() if span.low > 0 and r in self.spans[a]][:2]:
            made, mine = sum(printed[r]) / 2, sum(self.spans[a][r]) / 2
            for need in {"sum": [made - mine], "rate": [mine / made, 1000 * mine / made]}.get(form, [mine / made]):
                low, high = (bisect_left(self.ordered[r], (need * by, 0)) for by in (1 - COARSE, 1 + COARSE))
                found |= {b for _, b in self.ordered[r][low:high]}
        return found

    def forms(self, t: int) -> Iterator[tuple[str, Spans]]:
        """A column as ratios: what it says if it is a ratio, or 1 + what it says if it is a change."""
        spans, unit = self.spans[t], self.units[t]
        signed = any(it.signed for it in self.streams[t].values.values())
        if unit in {"", "x", "tps"}:
            yield "ratio", spans
        if unit == "%":
            yield "share", {r: span.scaled(0.01) for r, span in spans.items()}
        if unit == "%" or (unit == "" and (signed or self.likely[t] in {"gain", "time_change"})):
            yield "change", {r: span.scaled(0.01, 1.0) for r, span in spans.items()}
            yield "loss", {r: span.scaled(-0.01, 1.0) for r, span in spans.items()}
        elif unit != "x":
            yield "sum", spans
        if self.likely[t] == "rate":
            yield "rate", spans

    def _pairs(self, t: int, form: str, printed: Spans, by: float, a: int, b: int) -> dict[int, Pair]:
        """Nothing if more than one row misses, or if rounding is coarse."""
        pairs: dict[int, Pair] = {}
        left, right, fit = self.spans[a], self.spans[b], list[int]()
        likely, near = self.likely[t], MEANS if self.told[t] else 1e-6
        for r, span in printed.items():
            if span.low > 0 and r in left and r in right:
                given = left[r].plus(right[r]) if form == "sum" else left[r].over(right[r]).scaled(by)
                pairs[r] = _pair(span, given, form, near)
                if pairs[r].fits:
                    fit.append(r)
                elif len(pairs) > len(fit) + 1:
                    return {}
        if len(fit) < 2 or median((printed[r].high - printed[r].low) / printed[r].high for r in fit) > COARSE:
            return {}
        spread = _spread(printed[r] for r in fit)
        # If one of the two gives as much alone, this is no law of both.
        for t, power in ((a, 1), (b, 1 if form == "sum" else -1)):
            spread = min(spread, max(abs(power * _log(self.spans[t][r]) - _log(printed[r])) for r in fit))
        far = (
            OVERHEAD
            if len({"rate", "wall_time", "decode_time"} & {likely, self.likely[a], self.likely[b]}) > 1
            else 0.0
        )
        return {
            r: it._replace(spread=spread * it.given.high, far=max(it.far, far * it.given.high))
            for r, it in pairs.items()
        }

    def _sums_up(self, t: int, row: int) -> bool:
        """Whether a number is the mean or the median of the others, as in a row that sums them up without saying so."""
        mine, others = self.spans[t][row], [sum(it) / 2 for r, it in self.spans[t].items() if r != row]
        return any(mine.low * 0.999 <= it <= mine.high * 1.001 for it in (fmean(others), median(others)))

    def _conditions(self) -> Iterator[Mapping[int, str]]:
        """Row -> section, text or setting, of each column that has them."""
        yield {r: text for r, text in enumerate(self.grid.sections) if text}
        yield from (cells for c, cells in enumerate(self.frame.words) if cells and c not in self.frame.method)
        for t in self.all:
            values = self.streams[t].values
            if self.likely[t] in _SETTINGS and all(it.value.is_integer() for it in values.values()):
                yield {r: repr(it.value) for r, it in values.items()}

    # --- means ------------------------------------------------------------------------------------------------------

    def summing(self) -> Iterator[tuple[int, Message]]:
        """Rows of means of others."""
        for row in self.means[:MOST_SUMMARIES]:
            groups = self._groups(row)
            laws = [self._row(row, rows) for rows in groups]
            odd = [(odd_one(pairs, len(groups)), pairs, group) for pairs, group in zip(laws, groups, strict=True)]
            found = {t for t, _, _ in odd if t is not None}
            for t, pairs, group in odd:
                if t is not None and found == {t} and t != KEPT and t not in self.kept:
                    yield self._line("mean", "", t, row, pairs[t], of=len(group), columns=len(pairs) - 1)
                    break

    def _groups(self, row: int) -> list[tuple[int, ...]]:
        """Rows that a row may sum up: all, those above up to the last such row, those of its section or setting."""
        plain = [r for r in self.rows if r not in self.sums]
        above = [r for r in plain if r < row]
        last = max((r for r in self.sums if above and r < above[-1]), default=-1)
        same = (tuple(r for r in plain if row in keys and keys.get(r) == keys[row]) for keys in self._conditions())
        found = (tuple(plain), tuple(r for r in above if r > last), *same)
        return [rows for rows in dict.fromkeys(found) if len(rows) > 1]

    def _row(self, row: int, rows: Sequence[int]) -> dict[int, Pair]:
        """Stream -> what a row says and the mean of the rows that it sums up."""
        pairs: dict[int, Pair] = {}
        for t, stream in enumerate(self.streams):
            if row not in stream.values or self.likely[t] in _SETTINGS or any(r not in self.spans[t] for r in rows):
                continue
            parts = [self.spans[t][r] for r in rows]
            given = Span(fmean(it.low for it in parts), fmean(it.high for it in parts))
            spread = max(it.high for it in parts) - min(it.low for it in parts)
            printed = _span(stream.values[row], False)
            if printed.low <= sum(it.high for it in parts) and sum(it.low for it in parts) <= printed.high:
                continue  # a total among means
            pooled = math.inf if len(rows) < 3 else max(POOLED, 1 / len(rows)) * spread
            far = max(FAR * max(abs(given.high), abs(printed.high)), pooled)
            pairs[t] = Pair(printed, given, spread, far)
        return pairs

    def outside(self) -> Iterator[tuple[int, Message]]:
        """Numbers outside the interval that stands behind them in brackets."""
        for stream in (it for it in self.streams if it.own):
            mates = [it.values for it in self.streams if it.column == stream.column and it is not stream]
            rows = [r for r in stream.values if all(r in it and it[r].bracket for it in mates)]
            if len(rows) < 4 or len(mates) != 2 or any(mates[0][r].unit != mates[1][r].unit for r in rows):
                continue
            out = [r for r in rows if not mates[0][r].lo <= stream.values[r].value <= mates[1][r].hi]
            if len(out) == 1:
                low, high, num = mates[0][out[0]].value, mates[1][out[0]].value, stream.values[out[0]]
                said = {"name": _name(stream), "value": _shown(num.value, num.unit), "rows": len(rows) - 1}
                yield out[0], Message("law.outside", low=low, high=high, **said)


def _span(num: Num, count: bool) -> Span:
    """Whole counts are not rounded."""
    exact = count and num.hi - num.lo <= 1 and num.value.is_integer()
    return Span(num.value, num.value) if exact else Span(num.lo, num.hi)


def _pair(printed: Span, given: Span, form: str, near: float) -> Pair:
    most = max(given.high, printed.high)
    return Pair(printed, given, 0.0, POINT * max(1.0, most) if form in _CHANGES else FAR * most, near)


def _log(span: Span) -> float:
    return math.log(sum(span) / 2)


def _spread(spans: Iterable[Span]) -> float:
    """Range of their logarithms."""
    logs = [_log(span) for span in spans]
    return max(logs) - min(logs)


def _unit(stream: Stream) -> str:
    unit = Counter(it.unit for it in stream.values.values()).most_common(1)[0][0]
    return unit or ("%" if stream.own and re.search(r"%|percent|(?<![a-z])pct(?![a-z])", stream.heading, re.I) else "")


def _name(stream: Stream) -> str:
    return stream.heading.rpartition(" | ")[2][:40] or stream.heading[:40]


def _shown(value: float, unit: str) -> str:
    return number(value) + {"x": "x", "%": "%", "ms": " ms", "rate": " tok/s"}.get(unit, "")


def _made(value: float, form: str) -> str:
    """What a law gives, in the form that is printed."""
    if form in _CHANGES:
        return f"{100 * (value - 1 if form == 'change' else 1 - value):+.4g}%"
    return f"{100 * value:.4g}%" if form == "share" else number(value)
