"""Search for the joint reading of a grid and rule its rows: refused only what no likely reading allows."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from itertools import combinations

from ..equations import RANK, Check, checks
from .meaning import IGNORE, Meaning, Stream, streams_of
from .records import Frame, Reading, Records
from .cells import numbers
from .grids import Grid, grids, turned

RIVAL = 2.7
"""A reading this many nats below the best one still counts as a rival, which may excuse a row."""
BREACH = {"possible": 0.0, "contradiction": 2.2, "implausible": 1.4, "impossible": 2.6}
MOST_READINGS = 160
MOST_ROWS = 40


@dataclass
class Ruling:
    line: int
    label: str
    verdict: str
    why: str


@dataclass
class Understood:
    heading: str
    slot: str
    meaning: str
    certainty: float


@dataclass
class Audit:
    rulings: list[Ruling] = field(default_factory=list)
    columns: list[Understood] = field(default_factory=list)
    unread: str = ""
    delegated: bool = False


@dataclass
class Scored:
    reading: Reading
    prior: float
    rows: dict[int, list[Check]]
    """Checks by row."""
    evidence: dict[int, dict[str, float]]
    """By row and law what speaks for the reading (agreement) and against it (equations that fail)."""
    bounds: dict[int, float]
    """Of each row what breaches of bounds cost the reading: together little, as a false table breaks them in every row."""

    def __post_init__(self) -> None:
        self.sums: dict[str, float] = {}
        for laws in self.evidence.values():
            for law, value in laws.items():
                self.sums[law] = self.sums.get(law, 0.0) + value
        self.whole = (
            self.prior
            + sum(max(-9.0, min(14.0, v)) for v in self.sums.values())
            + max(-2.0, -sum(self.bounds.values()))
        )

    def total(self, without: int | None = None) -> float:
        """Prior and evidence, of all rows or of all but one; no law counts for more than a few rows."""
        own = self.evidence.get(without) if without is not None else None
        if not own and without not in self.bounds:
            return self.whole
        value = self.prior + max(-2.0, -sum(n for r, n in self.bounds.items() if r != without))
        for law, total in self.sums.items():  # agreement in the row itself is evidence, a breach there is the question
            value += max(-9.0, min(14.0, total - min(0.0, own.get(law, 0.0) if own else 0.0)))
        return value


def weigh(frame: Frame, reading: Reading, rows: list[int] | None = None) -> Scored:
    by_row: dict[int, list[Check]] = {}
    evidence: dict[int, dict[str, float]] = {}
    bounds: dict[int, float] = {}
    for record in Records(frame, reading).all(rows):
        found = list(checks(record))
        by_row.setdefault(record.row, []).extend(found)
        mine = evidence.setdefault(record.row, {})
        for check in found:
            if check.holds:
                mine[check.key] = mine.get(check.key, 0.0) + check.info
            elif check.identity:
                mine[check.key] = mine.get(check.key, 0.0) - BREACH[check.verdict]
            elif not check.learned:
                bounds[record.row] = BREACH["implausible"]
    prior = sum(m.prior for m in reading) + _fit(reading, frame.streams)
    return Scored(reading, prior, by_row, evidence, bounds)


def _fit(reading: Reading, streams: list[Stream]) -> float:
    """What meanings of several columns do to each other: a second column of the same is unlikely, a pair is likely."""
    value = 0.0
    sides = {(m.quantity, m.side) for m in reading}
    rate = any(q in {"R", "T", "DT"} for q, _ in sides)
    for m in reading:
        if m.quantity == "S" and m.basis == "rate" and not rate and any(q == "W" for q, _ in sides):
            value -= 6.0
    if (
        {("W", "base"), ("DT", "")} <= sides
        or {("DT", "base"), ("W", "")} <= sides
        or {("DT", "base"), ("W", "sd")} <= sides
        or {("W", "base"), ("DT", "sd")} <= sides
    ):
        value -= 5.0
    runs = [
        s
        for s, m in zip(streams, reading)
        if m.quantity == "R" and m.side != "base" and s.own and not re.search(r"median|average|run|\d", s.heading, re.I)
    ]
    value -= 3.5 * (len(runs) - len({s.scope for s in runs}))
    for q in ("A", "GAMMA", "TAU", "K", "D", "STEPS"):
        value -= 0.8 * max(0, sum(m.quantity == q for m in reading) - 2)
    return value


def search(frame: Frame, streams: list[Stream]) -> list[Scored]:
    """Readings around the one of the best priors: all that differ in one or two streams, then a climb."""
    best = tuple(s.candidates[0] for s in streams)
    rows = list(range(len(frame.grid.rows)))
    if len(rows) > MOST_ROWS:
        step = len(rows) / MOST_ROWS
        rows = sorted({int(i * step) for i in range(MOST_ROWS)})
    flips = [(i, m, m.prior - s.candidates[0].prior) for i, s in enumerate(streams) for m in s.candidates[1:]]
    options: list[tuple[float, Reading]] = [(0.0, best)]
    for i, m, cost in flips:
        options.append((cost, best[:i] + (m,) + best[i + 1 :]))
    for (i, m, a), (j, n, b) in combinations(flips, 2):
        if i != j and a + b > -7:
            two = list(best)
            two[i], two[j] = m, n
            options.append((a + b, tuple(two)))
    options.sort(key=lambda it: -it[0])
    limit = max(25, min(MOST_READINGS, 4000 // max(1, len(rows))))
    seen: dict[Reading, Scored] = {}
    for _, reading in options[:limit]:
        seen[reading] = weigh(frame, reading, rows)
    top = max(seen.values(), key=Scored.total)
    for _ in range(2):  # climb from the best
        for i, s in enumerate(streams):
            for m in s.candidates:
                reading = top.reading[:i] + (m,) + top.reading[i + 1 :]
                if reading not in seen and len(seen) < limit + 80:
                    seen[reading] = weigh(frame, reading, rows)
        better = max(seen.values(), key=Scored.total)
        if better is top:
            break
        top = better
    return sorted(seen.values(), key=lambda it: -it.total())


def strength(scored: Scored, streams: list[Stream]) -> float:
    """How well headings explain the cells below them, for choosing which way a table lies."""
    explained = sum(
        len(s.values) * m.points * (0.3 if m.quantity in {"COND", "CONC"} else 0.9 if m.quantity == IGNORE else 1.0)
        for s, m in zip(streams, scored.reading)
    )
    return explained / max(1, sum(len(s.values) for s in streams)) + 0.12 * (scored.total() - scored.prior)


def audit_grid(grid: Grid) -> Audit:
    tried = []
    for way in [grid, turned(grid)]:
        if way is None:
            continue
        streams = streams_of(way)
        if not streams:
            continue
        frame = Frame(way, streams)
        found = search(frame, streams)
        tried.append((strength(found[0], streams) + (0.6 if way is grid else 0.0), way, frame, streams, found))
    if not tried:
        return Audit(unread="no numbers")
    _, way, frame, streams, found = max(tried, key=lambda it: it[0])
    extra = _changes(grid) if way is not grid else []
    out = Audit(columns=_columns(streams, found))
    best = found[0]
    if all(m.quantity in {IGNORE, "COND", "CONC", "GAMMA", "SIZE", "PRE", "RX", "N"} for m in best.reading):
        out.unread = "no column is understood as a speed, a share or a count of drafts"
        return out
    full = {id(s): weigh(frame, s.reading) for s in found[:1]}
    best_full = full[id(best)]
    for r in range(len(way.rows)):
        top = max(s.total(r) for s in found)
        rivals = [s for s in found if s.total(r) > top - RIVAL][:40]
        verdicts = []
        for s in rivals:
            rows = s.rows if r in s.rows or len(way.rows) <= MOST_ROWS else weigh(frame, s.reading, [r]).rows
            verdicts.append((_worst(_with_learned(rows.get(r, []), s, r)), s))
        (rank, check), _ = min(verdicts, key=lambda it: RANK[it[0][0]])
        held = best_full.rows.get(r)
        if not held and not any(r in s.values for s, m in zip(streams, best.reading) if m.quantity != IGNORE):
            continue
        tested = [c for c in held or [] if c.law not in {"acceptance <= 1", "acceptance in range"}]
        word = rank if RANK[rank] else "possible" if tested else "cannot tell"
        out.rulings.append(Ruling(way.lines[r], frame.label[r], word, check.why if check else ""))
    out.rulings += extra
    return out


CHANGE = re.compile(r"\b(change|delta|diff\w*|gain|improve\w*|uplift)\b|Δ|变化", re.I)


def _changes(grid: Grid) -> list[Ruling]:
    """Of a table on its side, whose columns are two runs and their change: changes that are not those of their rows."""
    for c in (c for c in range(2, len(grid.head)) if CHANGE.search(grid.head[c])):
        good, bad = 0, []
        for r, row in enumerate(grid.rows):
            a, b, change = (numbers(row[x]) for x in (c - 2, c - 1, c))
            if not (a and b and change and a[0].value > 0 and change[0].unit == "%"):
                continue
            low, high = (100 * (x / y - 1) for x, y in ((b[0].lo, a[0].hi), (b[0].hi, max(a[0].lo, 1e-9))))
            off = max(low - change[0].hi, change[0].lo - high, 0.0)
            if off <= 1.0:
                good += 1
            elif off > 4.0:
                bad.append(
                    (
                        r,
                        f"{row[c]}, but {row[c - 2]} and {row[c - 1]} give {100 * (b[0].value / a[0].value - 1):+.1f} %",
                    )
                )
        if good >= 2 and len(bad) <= good / 2:
            return [Ruling(grid.lines[r], grid.rows[r][0], "contradiction", why) for r, why in bad]
    return []


def _with_learned(found: list[Check], scored: Scored, r: int) -> list[Check]:
    """The checks of a row; what need not hold at all is a contradiction where it holds sharply in the other rows."""
    out = []
    for check in found:
        if check.learned:
            others = [c for x, cs in scored.rows.items() if x != r for c in cs if c.law == check.law]
            if sum(c.holds and c.info > 1 for c in others) < max(2, len(others) - 1) or len(others) < 2:
                continue
            check = replace(check, verdict="contradiction")
        out.append(check)
    return out


def _worst(found: list[Check]) -> tuple[str, Check | None]:
    bad = [c for c in found if not c.holds]
    if not bad:
        return "possible", None
    worst = max(bad, key=lambda c: RANK[c.verdict])
    return worst.verdict, worst


def _columns(streams: list[Stream], found: list[Scored]) -> list[Understood]:
    top = found[0].total()
    weights = [math.exp(max(-30, s.total() - top)) for s in found]
    whole = sum(weights)
    out = []
    for i, stream in enumerate(streams):
        meaning = found[0].reading[i]
        share = (
            sum(
                w
                for w, s in zip(weights, found)
                if str(s.reading[i]) == str(meaning) and s.reading[i].scale == meaning.scale
            )
            / whole
        )
        out.append(Understood(stream.heading, stream.slot, str(meaning), share))
    return out


ENGINE = re.compile(
    r"llama_perf|llama_print_timings|slot print_timing|slot +release|SpecDecoding metrics|Speculative metrics:|Decode batch|eval time =|draft acceptance(?: rate)? =|Serving Benchmark Result|\bn_drafted +=|tokens-per-sec|\[ Prompt: "
)


def audit_text(text: str, name: str = "") -> Audit:
    """The audit of a file; engines' own logs and JSON are left to the present readers."""
    if re.search(r"\.(json|jsonl|log|ya?ml|sql)$", name) or text.lstrip()[:1] in {"{", "["} or ENGINE.search(text):
        return Audit(delegated=True)
    out = Audit()
    found = grids(text, name)
    for grid in found:
        one = audit_grid(grid)
        out.rulings += one.rulings
        out.columns += one.columns
        if one.unread:
            out.unread = one.unread
    if out.rulings:
        out.unread = ""
    elif not out.unread:
        out.unread = "no table, key/value lines or sentence with numbers"
    return out
