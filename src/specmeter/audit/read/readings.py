"""Readings of a grid compete: the equations that its other rows keep decide between likely meanings.

A reading gives each stream of numbers one meaning. Its weight is the prior of its meanings plus what equations between
the numbers say: sharp agreement speaks for it, disagreement against it. Bounds say nothing here: a reading that obeys
them would explain a forgery away. For the ruling on a row only the *other* rows may speak against a reading.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from specmeter.audit.equations import Equation, equations
from specmeter.audit.read.frame import Frame
from specmeter.audit.read.grid import Grid, turned
from specmeter.audit.read.laws import baseline_rows
from specmeter.audit.read.meaning import TIMES, Meaning, Stream, name_of, streams_of
from specmeter.audit.read.options import TableOptions
from specmeter.audit.read.records import Reading, Record, Records
from specmeter.audit.read.words import IGNORE

RIVAL = 2.7
"""A reading this many nats below the best one may still excuse a row."""
BROKEN = 2.2
"""Nats against a reading for an equation that fails by more than rounding and means explain."""
_LEAST, _MOST = -9.0, 14.0
"""What one equation counts in all rows together, at most."""
OF_SPEEDUP = frozenset({"speedup-of-rates", "speedup-of-token-times", "speedup-of-decoding", "speedup-of-run"})
"""Laws that show whose baseline a row without speculation is."""
VERY_SHARP = 3.5
"""Nats from which on one other row shows that a table keeps a law."""
_PLAIN = frozenset({"baseline_rate", "baseline_token_ms", "baseline_predicted_ms", "baseline_wall_ms"})
UNLIKE = 25
"""Factor between typical numbers of two columns, above which they are hardly both rates."""
MOST_SINGLE, MOST_PAIRS = 60, 30
"""Readings that differ from the likeliest one in one and in two streams, at most."""
_FARTHEST, _HOPELESS = -7.0, -9.0
"""Nats of prior, and of all evidence, from which on a change is not tried together with others."""
MOST_OF_ONE = 16
"""The same of a grid of one row, whose readings no other row can tell apart."""
MOST_ROWS = 24
"""Rows that are looked at for evidence; longer tables are sampled."""
MOST_RIVALS = 12
_SHOWN = {"rate", "token_time", "wall_time", "decode_time", "speedup", "gain", "time_change", "relative", "acceptance",
          "tau", "accepted_per_step", "drafted", "accepted", "position", "step_time", "steps_per_s",
          "perplexity"}  # fmt: skip
"""Quantities of which a grid must have one to be a claim."""


@dataclass
class Scored:
    """A reading with its evidence."""

    reading: Reading
    prior: float
    rows: dict[int, dict[str, float]]
    """Row -> law -> nats for (agreement) and against the reading."""
    sums: dict[str, float] = field(default_factory=dict[str, float])
    kept: dict[str, dict[int, float]] = field(default_factory=dict[str, dict[int, float]])
    """Law that need not hold -> row -> how sharply it holds there, in nats."""

    def __post_init__(self) -> None:
        for laws in self.rows.values():
            for law, nats in laws.items():
                self.sums[law] = self.sums.get(law, 0.0) + nats
        self.total = self.prior + sum(map(_bounded, self.sums.values()))

    def without(self, row: int) -> float:
        """The weight without what speaks against it in this row."""
        own = self.rows.get(row)
        if not own:
            return self.total
        return self.prior + sum(_bounded(nats - min(0.0, own.get(law, 0.0))) for law, nats in self.sums.items())

    def laws_of(self, row: int) -> tuple[str, ...]:
        """Laws that need not hold, and do in nearly all other rows."""
        found: list[str] = []
        for law, rows in self.kept.items():
            others = [nats for r, nats in rows.items() if r != row]
            held = sum(nats > 1 for nats in others)
            if held >= max(2, len(others) - 1) or (len(others) == 1 and others[0] > VERY_SHARP):
                found.append(law)
        return tuple(found)


def _bounded(nats: float) -> float:
    return max(_LEAST, min(_MOST, nats))


@dataclass
class Understood:
    """A grid with its readings, the best first."""

    frame: Frame
    found: list[Scored]
    other: Frame | None = None
    """The grid the other way round, if it can lie so."""

    @property
    def best(self) -> Reading:
        return self.found[0].reading

    @property
    def claims_something(self) -> bool:
        """Whether any column is understood as more than a setting."""
        return any(meaning.quantity in _SHOWN for meaning in self.best)

    def certainty(self, i: int) -> float:
        """Share of the weight of all readings that gives a stream its meaning, by the name that users have for it."""
        top = self.found[0].total
        weights = [math.exp(max(-30.0, scored.total - top)) for scored in self.found]
        name, scale = name_of(self.best[i]), self.best[i].scale
        read = ((weight, scored.reading[i]) for weight, scored in zip(weights, self.found, strict=True))
        same = (weight for weight, it in read if (name_of(it), it.scale) == (name, scale))
        return sum(same) / sum(weights)

    def rivals(self, row: int) -> list[Scored]:
        """Other readings within reach of the best, as far as the other rows tell."""
        weights = [(scored.without(row), scored) for scored in self.found]
        top = max(weight for weight, _ in weights)
        near = sorted((it for it in weights if it[0] > top - RIVAL), key=lambda it: -it[0])
        return [scored for _, scored in near if scored is not self.found[0]]


def understand(grid: Grid, options: TableOptions) -> Understood | None:
    """The readings of a grid, upright or on its side; None without numbers."""
    tried: list[tuple[float, Understood]] = []
    for way in (grid, turned(grid)):
        if way is None:
            continue
        streams = streams_of(way, options)
        if streams:
            frame = Frame(way, streams)
            if "base" not in frame.role:
                for r in baseline_rows(frame):
                    frame.role[r] = "base"
            found = search(frame)
            strength = explained(found[0], streams) + (0.6 if way is grid else 0.0)
            tried.append((strength, Understood(frame, found)))
    tried.sort(key=lambda it: -it[0])
    for _, other in tried[1:]:
        tried[0][1].other = other.frame
    return tried[0][1] if tried else None


def explained(scored: Scored, streams: Sequence[Stream]) -> float:
    """How well headings explain the cells below them: to choose which way a table lies."""
    share = {"condition": 0.3, "concurrency": 0.3, IGNORE: 0.9}
    points = sum(
        len(stream.values) * meaning.points * share.get(meaning.quantity, 1.0)
        for stream, meaning in zip(streams, scored.reading, strict=True)
    )
    cells = max(1, sum(len(stream.values) for stream in streams))
    mixed = sum(len(stream.values) for stream in streams if _is_mixed(stream))
    return (points - MIXED * mixed) / cells + 0.12 * (scored.total - scored.prior)


MIXED = 3.0
"""Points that a number of a column loses whose numbers are not of one kind."""


def _is_mixed(stream: Stream) -> bool:
    """Whether some numbers of a column have a unit and others none, or they differ too much to be of one kind."""
    units = [num.unit for num in stream.values.values()]
    sizes = [abs(num.value) for num in stream.values.values() if num.value]
    bare = units.count("")
    return 0 < bare < len(units) or (len(sizes) > 1 and max(sizes) > 40 * min(sizes) and not any(units))


def search(frame: Frame) -> list[Scored]:
    """The likeliest reading, all that differ in one stream, the most promising that differ in two, and a climb."""
    streams = frame.streams
    first = tuple(stream.candidates[0] for stream in streams)
    step = max(1.0, len(frame.grid.rows) / MOST_ROWS)
    rows = sorted({int(n * step) for n in range(min(len(frame.grid.rows), MOST_ROWS))})
    seen: dict[Reading, Scored] = {}

    def total(changes: Mapping[int, Meaning], of: Reading = first) -> float:
        reading = tuple(changes.get(i, meaning) for i, meaning in enumerate(of))
        if reading not in seen:
            seen[reading] = weigh(frame, reading, rows)
        return seen[reading].total

    start = total({})
    flips = [(i, it, it.prior - first[i].prior) for i, stream in enumerate(streams) for it in stream.candidates[1:]]
    flips = sorted(flips, key=lambda flip: -flip[2])[: MOST_SINGLE if len(rows) > 1 else MOST_OF_ONE]
    alone = [(i, it, cost, total({i: it}) - start) for i, it, cost in flips]
    pairs = [
        (gain + more, {i: one, j: other})
        for (i, one, a, gain), (j, other, b, more) in combinations(alone, 2)
        if i != j and a + b > _FARTHEST
    ]
    for _, changes in sorted(pairs, key=lambda pair: -pair[0])[: min(MOST_PAIRS, len(alone))]:
        total(changes)
    top = max(seen.values(), key=lambda it: it.total)
    for _ in range(2):
        for i, it, _, gain in alone:
            if gain > _HOPELESS and top.reading is not first:
                total({i: it}, top.reading)
        better = max(seen.values(), key=lambda it: it.total)
        if better is top:
            break
        top = better
    return sorted(seen.values(), key=lambda it: -it.total)


def equations_of(record: Record, frame: Frame) -> Iterator[Equation]:
    """The equations of a record."""
    return equations(
        record.known,
        positions=record.positions,
        averaged={name for name, i in record.origin.items() if frame.mean[i]},
        speedup_of=record.speedup_of,
        busy=frame.busy[record.row],
        chain=frame.chain[record.row],
        baseline=record.role == "base",
    )


def weigh(frame: Frame, reading: Reading, rows: Sequence[int] | None = None) -> Scored:
    """The reading with what the equations of these rows say."""
    evidence: dict[int, dict[str, float]] = {}
    kept: dict[str, dict[int, float]] = {}
    for record in Records(frame, reading).all(rows):
        mine = evidence.setdefault(record.row, {})
        for equation in equations_of(record, frame):
            origin = next((record.origin[name] for name in equation.fields if name in record.origin), -1)
            law = f"{equation.law} {origin}"
            open_baseline = record.apart or (record.tentative and record.own.isdisjoint(_PLAIN))
            learned = equation.learned or (open_baseline and equation.law in OF_SPEEDUP)
            if learned:
                kept.setdefault(equation.law, {})[record.row] = equation.info if equation.holds else -1.0
            nats = equation.info if equation.holds else 0.0 if learned else -BROKEN
            mine[law] = mine.get(law, 0.0) + nats
    prior = sum(meaning.prior for meaning in reading) + fit(reading, frame)
    return Scored(reading, prior, evidence, kept=kept)


_RESULTS = {"speedup", "gain", "token_time", "decode_time", "wall_time", "time_change"}
_SAYS_RUN = re.compile(r"median|average|run|\d", re.I)


def fit(reading: Reading, frame: Frame) -> float:
    """What meanings of several columns do to each other: a second column of the same thing is unlikely."""
    nats, streams = 0.0, frame.streams
    sides = {(meaning.quantity, meaning.side) for meaning in reading}
    quantities = {quantity for quantity, _ in sides}
    decoding = bool(quantities & {"rate", "token_time", "decode_time"})
    for meaning in reading:
        if meaning.quantity == "speedup" and meaning.basis == "rate" and not decoding and "wall_time" in quantities:
            nats -= 6.0
    drafted = [frame.middle[i] for i, meaning in enumerate(reading) if meaning.quantity == "drafted"]
    if drafted and any(
        meaning.quantity == "accepted" and frame.middle[i] > 10 * max(drafted) for i, meaning in enumerate(reading)
    ):
        nats -= 6.0  # it is a draft length
    if "draft_rate" in quantities and not sides & {("rate", ""), ("rate", "sd")} and not quantities & _RESULTS:
        nats -= 4.0  # a draft model's speed alone is no result
    plain, own = ({it for it, side in sides if it in TIMES and (side == "base") is base} for base in (True, False))
    if plain and own and not plain & own:
        nats -= 5.0  # times of two kinds
    rates = [
        stream.scope
        for stream, meaning in zip(streams, reading, strict=True)
        if meaning.quantity == "rate" and meaning.side != "base" and stream.own and not _SAYS_RUN.search(stream.heading)
    ]
    nats -= 3.5 * (len(rates) - len(set(rates)))
    sizes = [frame.middle[i] for i, meaning in enumerate(reading) if meaning.quantity == "rate" and frame.middle[i] > 0]
    if sizes and max(sizes) > UNLIKE * min(sizes):
        nats -= 5.0
    for quantity in ("accepted", "drafted", "steps"):
        its = [
            it.scope for it, meaning in zip(streams, reading, strict=True) if it.own and meaning.quantity == quantity
        ]
        nats -= 4.0 * (len(its) - len(set(its)))
    for quantity in ("acceptance", "gamma", "tau", "accepted", "drafted", "steps"):
        nats -= 0.8 * max(0, sum(meaning.quantity == quantity for meaning in reading) - 2)
    return nats
