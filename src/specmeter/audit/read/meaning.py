"""Streams of numbers and what each may mean: a quantity, a side and a scale, each with a log prior.

A stream is what stands at the same place of the cells of a column: in `223.3 (1.41x)` there are two. The words of its
heading, the units and sizes of its numbers and the text around are evidence; `meanings.toml` says for what. Nothing is
decided here: the other rows decide between candidates (`readings`).
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from specmeter.audit.read.cells import EMPTY, Num, is_number, numbers
from specmeter.audit.read.grid import Grid
from specmeter.audit.read.options import TableOptions
from specmeter.audit.read.words import (
    IGNORE,
    LIMIT,
    Column,
    Rule,
    canonical,
    column_named,
    is_plain,
    is_task,
    known_column,
    load,
    norm,
    requests_at_once,
    scope_of,
    side_of,
    split_bracket,
)

COUNTS = frozenset({"tokens", "drafted", "accepted", "steps", "concurrency", "gamma"})
SIDED = frozenset({"rate", "token_time", "wall_time", "decode_time", "step_time", "steps_per_s", "tokens", "itl"})
"""Quantities of either side; the others say nothing of a baseline, or compare the two."""
TIMES = frozenset({"itl", "token_time", "wall_time", "decode_time", "step_time"})
BRACKET, OWN_WORDS = 0.45, 0.6
"""Weight of what the parentheses of a heading say, and of the words beside the first number of a cell."""
FARTHEST = 7.5
"""Nats below the best candidate at which others are dropped."""
MOST = 6
"""Candidates of a stream."""
RIVALS = -1.5
"""Prior of the other quantity of a canonical name."""


@dataclass(frozen=True)
class Meaning:
    """One candidate of a stream, and how likely it is before anything is compared."""

    quantity: str
    side: str = ""
    """`base`, `sd`, or nothing where the row decides."""
    prior: float = 0.0
    """Nats below the best candidate."""
    scale: float = 1.0
    basis: str = ""
    """Of a speedup: `rate` of decoding or `time` of the whole run; of a draft length: `block`, one more than that; of a
    time per token: `chunk`, of the baseline only."""
    points: float = 0.0
    """Evidence in the heading as such, for choosing between a grid and the grid on its side."""

    def __str__(self) -> str:
        return f"{self.quantity}{'.' + self.side if self.side else ''}{'/' + self.basis if self.basis else ''}"


@dataclass
class Stream:
    """The numbers that stand at the same place of the cells of a column."""

    column: int
    slot: str
    """`first`, `num`, `den`, `before`, `after`, a unit, or `plain`; the second of a kind has a 2 behind it."""
    heading: str
    values: dict[int, Num]
    """Row -> number."""
    scope: frozenset[str] = frozenset()
    """Words of the heading that tell a method or data set."""
    candidates: list[Meaning] = field(default_factory=list[Meaning])
    mean: bool = False
    own: bool = False
    """Whether it is the first number of its cell."""
    known: Column | None = None
    """Of a certain heading, or one that was chosen."""


def name_of(meaning: Meaning) -> str:
    """The canonical name of a meaning."""
    quantity = "relative" if meaning.quantity == "speedup" and meaning.scale != 1.0 else meaning.quantity
    side = "base" if meaning.side == "base" else ""
    names = [it for it in load().columns if it.quantity == quantity and not it.rival]
    names.sort(key=lambda it: (it.side != side, it.name != quantity))
    return names[0].name if names else IGNORE


# --- streams ----------------------------------------------------------------------------------------------------------

_OF_NAMES = {"target", "quant", "device", "engine"}
"""Columns whose numbers are parts of names: `14B Q4_K_M`."""


def streams_of(grid: Grid, options: TableOptions | None = None) -> list[Stream]:
    """The numbers of a grid in streams with their candidates; what the user says of a column comes first."""
    options = options or TableOptions()
    page = Page(grid)
    out: list[Stream] = []
    for at, heading in enumerate(grid.head):
        cells = {r: row[at] for r, row in enumerate(grid.rows) if row[at] and not EMPTY.fullmatch(row[at])}
        numeric = {r: numbers(cell) for r, cell in cells.items() if is_number(cell)}
        few = len(numeric) * 3 < len(cells) or (len(numeric) * 2 < len(cells) and len(numeric) < 2)
        few |= len(numeric) * 2 <= len(cells) and any(
            len(cell.split()) > 2 and r not in numeric and not is_plain(cell) for r, cell in cells.items()
        )  # sentences
        named = known_column(heading)
        if not numeric or few or (named is not None and named.name in _OF_NAMES and heading not in options.columns):
            continue
        slots = _slots(numeric)
        for slot, values in slots.items():
            own = slot.split()[0] in {"first", "num", "before"}
            name = options.meaning_of(heading, "" if own else slot)
            known = column_named(name) or column_named("condition") if name else canonical(heading) if own else None
            stream = Stream(at, slot, heading, values, scope_of(heading), own=own, known=known)
            facts = Facts(stream, page, slots=slots)
            stream.mean = load().patterns["mean"].search(facts.said) is not None
            stream.candidates = candidates(facts)
            out.append(stream)
    return _sides_by_others(out)


def _slots(numeric: Mapping[int, list[Num]]) -> dict[str, dict[int, Num]]:
    """Place -> row -> number. A first number of another kind than the others' has a place of its own."""
    slots: dict[str, dict[int, Num]] = {}
    firsts = [found[0].unit for found in numeric.values() if found[0].unit]
    seconds = {num.unit for found in numeric.values() for num in found[1:]} - {""}
    plain = any(not found[0].unit for found in numeric.values())
    usual = max(dict.fromkeys(firsts), key=lambda unit: (firsts.count(unit), unit == "rate")) if firsts else ""
    for r, found in numeric.items():
        seen: dict[str, int] = {}
        for n, num in enumerate(found):
            roles = {"num", "den", "before", "after"}
            kind = num.role if num.role in roles else num.unit or "plain"
            if n == 0 and num.role not in {"num", "before"}:
                apart = num.unit not in {"", usual} and {num.unit, usual} & {"rate", "ms", "size", "mspt"}
                kind = f"first {num.unit}" if apart else "first"
                if plain and num.unit in seconds:
                    kind = num.unit  # `60%` below `180 (60%)`
            seen[kind] = seen.get(kind, 0) + 1
            slots.setdefault(kind if seen[kind] == 1 else f"{kind}{seen[kind]}", {})[r] = num
    return slots


def _nested(slots: Mapping[str, Mapping[int, Num]]) -> bool:
    """Whether a bracket of the heading speaks of numbers in brackets: `tok/s (speedup)` above `223.3 (1.41x)`."""
    return len(slots) > 1 and any(num.bracket for values in slots.values() for num in values.values())


def _sides_by_others(streams: list[Stream]) -> list[Stream]:
    """A speed without a side may be the baseline of one with drafts, and the other way round."""
    tops = [stream.candidates[0] for stream in streams]
    for quantity in ("rate", "token_time", "wall_time", "decode_time"):
        sides = {meaning.side for meaning in tops if meaning.quantity == quantity}
        for other, own in (("sd", "base"), ("base", "sd")):
            if other in sides and own not in sides and "" in sides:
                for stream, meaning in zip(streams, tops, strict=True):
                    if meaning.quantity == quantity and not meaning.side and stream.known is None:
                        stream.candidates.append(replace(meaning, side=own, prior=-1.0))
    return streams


class Page:
    """What the streams of a grid share."""

    def __init__(self, grid: Grid) -> None:
        self.kind, self.rows = grid.kind, len(grid.rows)
        self.prose = grid.kind.startswith("prose")
        words = [cell for row in grid.rows[:12] for cell in row if not is_number(cell)]
        self.words = " ".join([grid.context[-2000:], *words])[:6000]
        head = [norm(heading) for heading in grid.head]
        self.above = " ".join([norm(grid.context.rpartition("\n")[2][-LIMIT:]), *head[:1]])
        self.rates = any("tokps" in heading for heading in head)
        first = (num.unit for row in grid.rows[:2] for cell in row[:64] for num in numbers(cell[:LIMIT]))
        self.speeds = self.rates or "rate" in first
        self.speaks = any(map(load().patterns["speaks"].search, head))
        self.times = any(map(load().patterns["times"].search, head))
        cells = zip(head[:64], grid.rows[0] if grid.rows else [], strict=False)
        self.row = " ; ".join(f"{heading} {cell[:40]}" for heading, cell in cells)
        columns = range(len(grid.head))
        self.beside = " ; ".join(head[:64])
        self.ones = any(all(re.fullmatch(r"1(\.0*)?x?", row[at]) for row in grid.rows) for at in columns)


class Facts:
    """What tests ask about a stream, by the names in `meanings.toml`."""

    def __init__(self, stream: Stream, page: Page, *, slots: Mapping[str, Mapping[int, Num]]) -> None:
        self.stream, self.page, self.slot, self.own = stream, page, stream.slot.rstrip("23456789"), stream.own
        self.second = not stream.own and self.slot not in {"den", "after"}
        several, nested = len(slots) > 1, _nested(slots)
        values = list(stream.values.values())
        bracket = split_bracket(stream.heading)[1]
        self.heading = norm(stream.heading)
        self.words = norm(" ".join(num.words for num in values[:12] if num.words))
        self.said = f"{self.heading} {self.words}"
        text = self.heading if stream.own or self.slot == "num" or not several else norm(bracket[:LIMIT])
        text = "" if text is not self.heading and len(bracket) <= 2 else text
        main, inside = split_bracket(text)
        self.main = load().patterns["setting"].sub(" ", main).strip(" =:;,.")
        self.inside = "" if stream.own and nested else inside
        units = [num.unit for num in values if num.unit]
        self.unit = max(dict.fromkeys(units), key=units.count) if units else ""
        self.unit_in_cells = bool(self.unit)
        self.mixed = 0 < 3 * units.count(self.unit) < 2 * len(values)
        """Most numbers have another unit than the usual one, or none: as in a table on its side."""
        if not self.unit and stream.own:
            found = (unit for unit, pattern in load().heading_units.items() if pattern.search(self.heading))
            self.unit = next(found, "")
        self.middle = statistics.median(abs(num.value) for num in values)
        self.least = min(num.hi for num in values)
        self.whole = all(num.value.is_integer() for num in values)
        self.signed = 2 * sum(num.signed for num in values) > len(values)
        self.any_signed = any(num.signed for num in values)
        self.constant = len(values) == page.rows and len({num.value for num in values}) == 1
        self.factor = stream.own and "x" in slots
        """Whether a factor stands behind it: `41 (1.78x)`."""
        self.split = any(not num.value.is_integer() for num in slots.get("num", {}).values())
        self.split &= all(num.value >= 2 for num in slots.get("den", {}).values())
        """Whether it is of a mean: `1.9 of 3`."""
        self.negative = any(num.value < 0 for num in values)
        beside = side_of(self.words) if self.second else ""
        self.side = {"before": "base", "after": "sd"}.get(self.slot) or beside or side_of(stream.heading)
        self.task = is_task(stream.heading) or re.match(r"\W*\d", stream.heading) is not None
        known = known_column(stream.heading)
        name = re.sub(r"[^a-z0-9]+", "_", stream.heading[:LIMIT].lower()).strip("_")
        self.load = requests_at_once(stream.heading) is not None
        self.label = name in load().conditions or (known is not None and known.kind == "text")
        """The heading is that of a column of words."""
        self.ones = page.ones and 0.2 < self.middle < 12
        self.bare = False
        """The heading names only a method or data set; decided when words and units have had their say."""

    @cached_property
    def table(self) -> str:
        """The heading, the text above the table and the words in its rows."""
        return f"{self.stream.heading} {self.page.words}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)  # what holds of the whole grid


def evidence(facts: Facts) -> list[tuple[Rule, float]]:
    """The rules that hold of a stream, each with its weight."""
    book = load()
    found: list[tuple[Rule, float]] = [(_START, 1.0)]
    for rule in book.words:
        if rule.pattern.search(facts.main):
            found.append((rule, 1.0))
        elif facts.inside and rule.pattern.search(facts.inside):
            found.append((rule, BRACKET))
        if facts.words and rule.pattern.search(facts.words):
            found.append((rule, OWN_WORDS if facts.own else 1.0))
    named = frozenset(tally(found))
    for rule in book.rules:
        if all(test(facts, named) for test in rule.tests):
            found = [] if rule.alone else found
            found.append((rule, 1.0))
    score = tally(found, allowed(facts, tally(found)))
    named = facts.side or (
        (facts.stream.scope or is_task(facts.main)) and not facts.rates and not facts.kind.startswith("csv")
    )
    silent = all(points <= 2 for quantity, points in score.items() if quantity != IGNORE)
    facts.bare = bool(named) and silent and facts.own and not (facts.unit or facts.prose)
    known = frozenset(score)
    return found + [(rule, 1.0) for rule in book.checks if all(test(facts, known) for test in rule.tests)]


_START = Rule({IGNORE: 1.0})


def tally(found: Iterable[tuple[Rule, float]], within: frozenset[str] | None = None) -> dict[str, float]:
    """Points of each quantity that something speaks for."""
    score: dict[str, float] = {}
    named: set[str] = set()
    for rule, weight in found:
        for quantity, points in rule.points.items():
            score[quantity] = score.get(quantity, 0.0) + points * weight
            if points > 0:
                named.add(quantity)
    return {it: points for it, points in score.items() if it in named and (within is None or it in within)}


def allowed(facts: Facts, score: Mapping[str, float]) -> frozenset[str] | None:
    """Quantities that the unit allows; None: all. A unit of the heading counts only if it fits what the words say."""
    within = load().units.get(facts.unit)
    if within is None or facts.unit_in_cells:
        return within
    kept = max((points for it, points in score.items() if it in within - {IGNORE}), default=0.0)
    return within if kept + 1 >= max(score.values(), default=0.0) else None


def candidates(facts: Facts) -> list[Meaning]:
    """What a stream may mean, the best first."""
    if (known := facts.stream.known) is not None:
        return _certain(known, facts)
    found = evidence(facts)
    score = tally(found, allowed(facts, tally(found)))
    score.setdefault(IGNORE, 1.0)
    ranked = sorted(score.items(), key=lambda it: -it[1])[:4]
    top, sharp = ranked[0][1], load().sharp
    out = [
        replace(form, points=min(points, 2.0 if facts.bare else 6.0))
        for quantity, points in ranked
        if (points - top) * sharp >= -FARTHEST
        for form in forms(quantity, (points - top) * sharp, facts)
    ]
    if all(meaning.quantity != IGNORE for meaning in out):
        out.append(Meaning(IGNORE, "", max(-FARTHEST, (score[IGNORE] - top) * sharp)))
    unique: dict[Meaning, Meaning] = {}
    for meaning in sorted(out, key=lambda it: -it.prior):
        unique.setdefault(replace(meaning, prior=0.0, points=0.0), meaning)
    return list(unique.values())[:MOST]


_FIELDS = {"bandwidth": "bandwidth_bytes_per_s", "claimed_bandwidth": "claimed_bandwidth_bytes_per_s"}
_IN_GIGA = {"bytes": 1e9, "bandwidth": 1e9}
"""Kinds whose numbers are in GB, or in bytes if they are larger than any of these."""
_GIGA = 1e6


def _certain(column: Column, facts: Facts) -> list[Meaning]:
    """The candidates of a column that is known: its forms, in its own scale."""
    if not column.quantity:
        name = _FIELDS.get(column.name, column.name)
        scale = _scales("decode_time", facts)[0][0] if column.kind == "time" else _IN_GIGA.get(column.kind, 1.0)
        return [Meaning(name, scale=1.0 if facts.middle > _GIGA else scale, points=6.0)]
    out: list[Meaning] = []
    for quantity in filter(None, (column.quantity, column.rival)):
        side = column.side or ("" if quantity not in SIDED else facts.side)
        facts.side = column.side
        prior = 0.0 if quantity == column.quantity else RIVALS
        out += [replace(form, side=side and form.side, points=6.0) for form in forms(quantity, prior, facts)]
    same = {column.quantity, column.rival, *(["speedup"] if column.quantity == "relative" else [])}
    out = [it for it in out if it.quantity in same]
    if column.kind == "share":
        out = [replace(it, scale=column.scale) for it in out]
    if column.rival and facts.least < 0.97:  # no length with the target's own token is below 1
        out = [it for it in out if it.quantity != "tau"] or out
    return out


def forms(quantity: str, prior: float, facts: Facts) -> list[Meaning]:
    """A quantity with its side and scale, and what it may be as well."""
    scales = _scales(quantity, facts)
    side = facts.side if quantity in SIDED else ""
    given = load().forms.get(quantity)
    if given is None:
        return [Meaning(quantity, side, prior - cost, scale) for scale, cost in scales]
    out: list[Meaning] = []
    for form in given:
        if all(test(facts, frozenset()) for test in form.tests):
            mine = side if form.side is None and form.quantity in SIDED else ""
            out += [Meaning(form.quantity, mine, prior - form.cost - cost, scale, form.basis) for scale, cost in scales]
    return out


def _scales(quantity: str, facts: Facts) -> list[tuple[float, float]]:
    """(scale, cost in nats) of numbers: to milliseconds, or to a share."""
    texts = load().patterns
    if quantity in TIMES:
        if facts.unit_in_cells or facts.unit not in {"ms", "", "mspt"}:
            return [(1.0, 0.0)]
        if texts["minutes"].search(facts.heading):
            return [(60000.0, 0.0)]
        seconds = texts["seconds"].search(facts.heading) and not texts["milliseconds"].search(facts.heading)
        if facts.unit or seconds or texts["milliseconds"].search(facts.heading):
            return [(1000.0 if seconds else 1.0, 0.0)]
        return [(1000.0, 0.0), (1.0, 0.7)] if facts.middle < 500 else [(1.0, 0.0), (1000.0, 1.0)]
    if quantity == "gain":
        bare = facts.unit != "%" and facts.middle < 1.5 and not texts["percent"].search(facts.heading)
        return [(1.0, 0.0), (0.01, 1.0)] if bare else [(0.01, 0.0)]
    if quantity == "time_change":
        if facts.unit == "x" or (facts.unit != "%" and not facts.negative and facts.middle < 5):
            return [(1.0, 0.0)]
        lower = texts["lower"].search(facts.heading) is not None
        return [(0.01, 0.0)] if facts.negative else [(-0.01, 0.0 if lower else 1.5), (0.01, 6.0 if lower else 3.0)]
    if quantity == "relative":
        return [(0.01 if facts.middle > 20 else 1.0, 0.0)]
    if quantity in {"acceptance", "position"}:
        percent = facts.unit == "%" or texts["percent"].search(facts.heading) is not None
        in_cells = any(num.unit == "%" for num in facts.stream.values.values())
        if percent and not in_cells and facts.middle <= 1.0:
            return [(1.0, 0.0), (0.01, 2.0)] if quantity == "acceptance" else [(0.01, 0.0)]
        if percent or quantity == "position":
            return [(0.01 if percent or facts.middle > 1.3 else 1.0, 0.0)]
        fractions = [(1.0, 0.0 if facts.middle <= 1.3 else 2.0)] if facts.least <= 1.3 else []
        return [(0.01, 0.0 if facts.middle > 1.3 else 2.0 if facts.middle < 0.3 else 3.0), *fractions]
    return [(1.0, 0.0)]
