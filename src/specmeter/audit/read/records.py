"""A grid under one reading: what each row says of itself and of its baseline, by the names of a claim's fields.

The baseline of a row is a row of the same conditions (model, machine, context, batch, concurrency). If several fit,
they give a range and no mean: a mean over short and long contexts is the baseline of neither.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from specmeter.audit.claim import Range, draft_lengths
from specmeter.audit.read.cells import EMPTY, Num, numbers
from specmeter.audit.read.frame import METHOD, Frame, Shared
from specmeter.audit.read.meaning import COUNTS, Meaning
from specmeter.audit.read.words import IGNORE, norm, requests_at_once

Reading = tuple[Meaning, ...]
"""One meaning for each stream of a grid."""

OWN = {
    "rate": "decode_rate", "token_time": "token_ms", "wall_time": "wall_ms", "decode_time": "predicted_ms",
    "step_time": "step_ms", "steps_per_s": "steps_per_s", "tokens": "predicted_n", "drafted": "drafted",
    "accepted": "accepted", "steps": "steps", "tau": "tau", "accepted_per_step": "tau", "acceptance": "acceptance",
    "gamma": "gamma", "size": "size_bytes", "draft_rate": "draft_rate", "concurrency": "concurrency",
    "prompt_rate": "prompt_rate",
}  # fmt: skip
"""Quantity -> field of the row itself."""
OF_BASELINE = {
    "rate": "baseline_rate", "token_time": "baseline_token_ms", "wall_time": "baseline_wall_ms",
    "decode_time": "baseline_predicted_ms",
}  # fmt: skip
"""Quantity -> field of its baseline; of other quantities a baseline's value says nothing about the row."""
EXTRA = frozenset({
    "p_min", "runs", "repeat", "prompt_n", "prompt_ms", "prompt_rate_sd", "decode_rate_sd", "perplexity",
    "perplexity_sd", "bytes_per_token", "bandwidth_bytes_per_s", "claimed_bandwidth_bytes_per_s", "experts",
    "speed_ratio", "target_forwards", "failed_forwards", "failed_draft_forwards", "tree_width", "devices",
})  # fmt: skip
"""Fields that only a column with that very name gives."""
_POSITIVE = OF_BASELINE.keys() | {"step_time", "steps_per_s", "draft_rate", "size", "prompt_rate", "concurrency"}
_SHARED = {"acceptance", "tau", "accepted_per_step", "accepted", "drafted", "steps"}
"""Quantities that belong to one method or data set, not to all groups of a row."""
_ANCHORS = (("rate",), ("token_time",), ("decode_time",), ("wall_time",), ("speedup", "gain"),
            ("tau", "accepted_per_step", "acceptance"))  # fmt: skip
"""What makes a group of columns: the first of these of which there are any."""

_RATES = ("decode_rate", "token_ms", "predicted_ms", "wall_ms")
_OF_PAIRS = {"num", "den", "before", "after"}

_SLOWER = re.compile(r"long|slow|worse|less|fewer|lower", re.I)
_SLOW = re.compile(r"\bslow(?:er|down|s|ed)?\b|\bdrop(?:s|ped)?\b|慢|下降|降低|减速", re.I)
_SHORTER = re.compile(
    r"\b(?:less|shorter|reduced|saved|lower) (?:\w+ )?(?:time|latency)|\btime (?:saved|reduction)", re.I
)
_FAST = re.compile(r"fast|speed-?up|快|提升|提速", re.I)
_SWITCH = re.compile(r"off|no|none|false|0|disabled", re.I)
_MACHINE = re.compile(r"machine|device|gpu|hardware|card|chip|host", re.I)
REPEAT = re.compile(
    r"\brun|rep|block|seed|^#|\bid\b|index|sample|note|comment|parity|status|date|commit|link|source|file|output"
    r"|^(?:invocation|position|item|attempt)$",
    re.I,
)
_SIZES = re.compile(
    r"\b\d+(?:\.\d+)?b\b|\bq\d\w*|\bfp?\d+\b|\bint\d\b|\b\d+\s?k\b|\b(?:bs|batch|np|c|conc\w*)[ =]?\d+\b"
    r"|\b\d+ ?(?:users?|clients|streams|slots|w)\b",
    re.I,
)
"""Words of a label that say which model or load: a baseline has none of them that the row lacks."""
_BYTES = 1e6
"""Sizes from here on are in bytes."""
_MANY = 2_000
"""Baselines up to which those with other gaps in their conditions are looked through."""


@dataclass
class Record:
    """One row, or one group of columns of it, under one reading."""

    row: int
    group: str
    """What its columns have in common, if the row has several groups: `HumanEval`."""
    role: str
    """`base`, `sd`, `?` (neither can be said) or nothing."""
    known: dict[str, Range] = field(default_factory=dict[str, Range])
    """By the names of a claim's fields; times in ms, rates per second, shares as fractions."""
    origin: dict[str, int] = field(default_factory=dict[str, int])
    """Field -> the stream that it comes from."""
    own: set[str] = field(default_factory=set[str])
    """Fields of which the row has a number."""
    positions: list[Range] = field(default_factory=list[Range])
    speedup_of: Literal["decoding", "run"] = "decoding"
    headings: list[str] = field(default_factory=list[str])
    """Of its rates, times and speedups."""
    baselines: tuple[int, ...] = ()
    """Rows that the baseline comes from; empty if it is in the row."""
    elsewhere: tuple[str, str] | None = None
    """Machine of the baseline and of the row, if they differ."""
    tentative: bool = False
    """Whether nothing says that its baseline is its own but speedups in the other rows."""
    apart: bool = False
    """Whether its rates are of the whole row, and its speedup is of one data set: `math` beside `tok/s`."""
    several: bool = False
    """Whether the row has other groups."""


class Records:
    """The records of a grid under one reading."""

    def __init__(self, frame: Frame, reading: Reading) -> None:
        self.frame, self.reading = frame, reading
        self.by: dict[str, list[int]] = {}
        for i, meaning in enumerate(reading):
            self.by.setdefault(meaning.quantity, []).append(i)
        said = tuple(tuple(self.by.get(quantity, ())) for quantity in ("gamma", "condition", "concurrency", "size"))
        if said not in frame.shared:  # most readings differ in nothing of this
            roles = self._roles()
            frame.shared[said] = Shared(roles, [r for r, role in enumerate(roles) if role == "base"])
            self._find_conditions(frame.shared[said])
        self.shared = frame.shared[said]
        self.groups = list(self._groups())

    def all(self, rows: Sequence[int] | None = None) -> Iterator[Record]:
        """Those of some rows, or of all, in order."""
        for r in range(len(self.frame.grid.rows)) if rows is None else rows:
            for group, members in self.groups:
                if (record := self._record(r, group, members)) is not None:
                    yield record

    # --- roles and baselines ---------------------------------------------------------------------------------------

    def _roles(self) -> list[str]:
        """Roles of rows, a draft length of 0 among what says them."""
        roles = list(self.frame.role)
        for i in self.by.get("gamma", []):
            stream = self.frame.streams[i]
            for r in range(len(roles)) if stream.own else ():
                length = stream.values.get(r)
                if length is not None and length.value == 0 and roles[r] != "sd":
                    roles[r] = "base"
                elif length is not None and length.value > 0 and not self.frame.of_prompt[r]:
                    roles[r] = "base" if roles[r] == "base" and not self._is_switch(r) else "sd"
                elif length is None and not roles[r] and not self.frame.method:
                    cell = self.frame.grid.rows[r][stream.column]
                    roles[r] = "base" if EMPTY.fullmatch(cell) else ""
        return roles

    def _is_switch(self, r: int) -> bool:
        """Whether `off` in a row that drafts is the switch of something else."""
        columns = [c for c in self.frame.method if r in self.frame.words[c]]
        named = any(not _SWITCH.fullmatch(self.frame.words[c][r]) for c in columns)
        accepts = any(
            (share := self.frame.streams[i].values.get(r)) is not None and share.value > 0
            for i in self.by.get("acceptance", [])
        )
        return accepts and not named and not any(METHOD.search(self.frame.grid.head[c]) for c in columns)

    def _find_conditions(self, shared: Shared) -> None:
        """Fill in the columns that a row and its baseline have in common, and those that name machines."""
        grid, streams = self.frame.grid, self.frame.streams
        columns: list[tuple[int, dict[int, str], bool]] = [
            (c, cells, False)
            for c, cells in self.frame.method_words.items()
            if cells and c not in self.frame.method and 2 * len(cells) > len(grid.rows)
        ]
        if grid.kind in {"list", "keys"} and self.frame.method_words[0]:  # what stands above the rows
            above = self.frame.method_words[0]
            columns.append((0, {r: above.get(r, "") for r in range(len(grid.rows))}, False))
        for quantity in ("condition", "concurrency", "size"):
            for i in self.by.get(quantity, []):
                if streams[i].own:
                    cells = {r: repr(number.value) for r, number in streams[i].values.items()}
                    columns.append((streams[i].column, cells, quantity == "concurrency"))
        plain = set(shared.bases)
        for c, cells, always in columns:
            left, right = {cells[r] for r in cells if r in plain}, {cells[r] for r in cells if r not in plain}
            if always or left & right or not left or not right:
                repeats = REPEAT.search(grid.head[c]) is not None and not always
                (shared.repeats if repeats else shared.conditions).append(cells)
            elif _MACHINE.search(grid.head[c]):
                shared.machines.append(cells)
            elif len(left) > 1 and len(left | right) < len(grid.rows):
                (shared.repeats if REPEAT.search(grid.head[c]) else shared.conditions).append(cells)
        for b in shared.bases:
            shared.by_key.setdefault(shared.key(b), []).append(b)
            shared.by_target.setdefault(self.frame.model(b, "target"), []).append(b)

    def baselines(self, r: int) -> list[int]:
        """Rows without speculation that are otherwise like this one."""
        grid, label = self.frame.grid, self.frame.label
        if r in self.frame.reference:
            return self.frame.reference[r]
        shared = self.shared
        bases = shared.by_key.get(shared.key(r), [])
        if not bases and len(shared.bases) <= _MANY:
            bases = [
                b
                for b in shared.bases
                if all(b not in cells or r not in cells or cells[b] == cells[r] for cells in shared.conditions)
            ]
        if grid.sections and any(grid.sections[b] == grid.sections[r] for b in bases):
            bases = [b for b in bases if grid.sections[b] == grid.sections[r]]
        mine = {word.lower() for word in _SIZES.findall(label[r])}
        found = [b for b in bases if not mine or {word.lower() for word in _SIZES.findall(label[b])} <= mine]
        same = [b for b in found if all(cells.get(b) == cells.get(r) for cells in shared.repeats)]
        return same or found

    # --- groups of columns -------------------------------------------------------------------------------------------

    def _groups(self) -> Iterator[tuple[str, list[int]]]:
        """(name, streams): one group for each method or data set that has a speed of its own."""
        streams, reading = self.frame.streams, self.reading
        anchors = self._anchors()
        anchored = {streams[i].column for i in anchors}
        beside = {
            streams[i].column
            for q in ("speedup", "gain", "acceptance")
            for i in self.by.get(q, [])
            if not streams[i].own and streams[i].slot not in _OF_PAIRS
        } - anchored
        told = [(streams[i].scope, reading[i].quantity) for i in anchors]
        columns = {
            streams[i].column: one[0] if told.count(one) == 1 else one[0] | {norm(streams[i].heading)}
            for i, one in zip(anchors, told, strict=True)
        }
        names = {scope: self.frame.grid.head[c] for c, scope in columns.items()}
        for stream in streams:
            if stream.column in beside and stream.own:
                columns[stream.column] = stream.scope
                names.setdefault(stream.scope, stream.heading)
        if len(names) <= 1:
            yield "", list(range(len(streams)))
            return
        everything, common = frozenset[str]().union(*names), next(iter(names)).intersection(*names)
        in_turn = self._in_turn(columns, len(names))
        for scope, heading in names.items():
            mine = [
                i
                for i in range(len(streams))
                if (
                    in_turn[i] == scope
                    if i in in_turn
                    else self._in_group(i, scope, columns, everything, common, names)
                )
            ]
            bases = [i for i in mine if reading[i].side == "base"]
            near = [i for i in bases if (streams[i].scope - common) & scope]
            if near and len(near) < len(bases):
                mine = [i for i in mine if i not in bases or i in near]
            elif not near and len({streams[i].scope for i in bases if reading[i].quantity == "rate"}) > 1:
                mine = [i for i in mine if i not in bases]
            kept = [word for word in heading.split() if scope & set(re.findall(r"[\w.+=]+|[^\x00-\x7f]+", norm(word)))]
            name = " ".join(kept).strip(" :[],")
            yield (name if name.count("(") == name.count(")") else name.strip("() ")) or heading, mine

    def _in_turn(self, columns: Mapping[int, frozenset[str]], groups: int) -> dict[int, frozenset[str]]:
        """Streams under one heading that comes again behind each group: `HumanEval`, `τ`, `GSM8K`, `τ`."""
        found: dict[int, frozenset[str]] = {}
        by_heading: dict[tuple[str, str], list[int]] = {}
        for i, stream in enumerate(self.frame.streams):
            if stream.column not in columns and self.reading[i].quantity in _SHARED:
                by_heading.setdefault((stream.heading, stream.slot), []).append(i)
        for same in by_heading.values():
            before = [max((c for c in columns if c < self.frame.streams[i].column), default=-1) for i in same]
            if len(same) == groups == len({*before} - {-1}):
                found |= {i: columns[c] for i, c in zip(same, before, strict=True)}
        return found

    def _anchors(self) -> list[int]:
        """The streams that make groups: of the first kind that has some of several methods or data sets, or some."""
        found = [
            [
                i
                for quantity in quantities
                for i in self.by.get(quantity, [])
                if self.reading[i].side != "base" and self.frame.streams[i].own
            ]
            for quantities in _ANCHORS
        ]
        told = ({(self.reading[i].quantity, self.frame.streams[i].scope) for i in them} for them in found)
        several = [them for them, kinds in zip(found, told, strict=True) if len(kinds) > len({it for it, _ in kinds})]
        return next(iter(several), next(filter(None, found), list[int]()))

    def _in_group(
        self, i: int, scope: frozenset[str], columns: dict[int, frozenset[str]], everything: frozenset[str],
        common: frozenset[str], names: dict[frozenset[str], str],
    ) -> bool:  # fmt: skip
        stream, meaning = self.frame.streams[i], self.reading[i]
        own = stream.scope - common
        if stream.column in columns:
            return columns[stream.column] == scope
        if meaning.side == "base":
            return True
        if own & everything:
            return len(own & scope) == max(len(own & other) for other in names) > 0
        shared = meaning.quantity in _SHARED or (meaning.quantity == "gamma" and self.frame.grid.kind == "prose")
        loads = all(requests_at_once(heading) for heading in names.values())
        return loads or not shared or (not scope and frozenset[str]() in names)

    # --- one record --------------------------------------------------------------------------------------------------

    def _number(self, i: int, r: int) -> Range | None:
        """A number of a stream in the unit of its field."""
        if r not in self.frame.streams[i].values:
            return None
        key = i, r, self.reading[i]
        if key not in self.frame.numbers:
            self.frame.numbers[key] = self._scaled(i, r)
        return self.frame.numbers[key]

    def _scaled(self, i: int, r: int) -> Range | None:
        stream, meaning = self.frame.streams[i], self.reading[i]
        num = stream.values.get(r)
        if num is None:
            return None
        scale, quantity = meaning.scale, meaning.quantity
        as_gain = quantity == "gain" or (quantity == "speedup" and num.unit == "%" and scale == 1.0)
        if as_gain and num.unit in {"x", "%"}:
            return _gain(num, f"{num.words} {stream.heading}", -1.0 if quantity == "gain" else 0.0)
        if quantity in {"gain", "acceptance"} and self.frame.percent[i]:
            if quantity == "gain":
                return None
            if quantity == "acceptance" and not self.frame.said_percent[i]:  # a column that has both: 0.62 and 58 %
                scale = 0.01 if num.unit == "%" or num.value > 1 else 1.0
        elif quantity == "acceptance" and num.value > 1.3:
            scale = 0.01
        if num.unit in {"ms", "mspt", "msps"}:
            scale = 1.0
        if quantity == "size":  # GB, as cells and headings say sizes; else bytes
            if num.unit != "size" and not self.frame.said_size[i] and scale == 1.0 and num.value < _BYTES:
                return None
            scale *= 1e9 if num.value * scale < _BYTES else 1.0
        if quantity in COUNTS and float(num.value).is_integer() and num.hi - num.lo <= 1:
            return Range(num.value, num.value, num.value)
        low, high = sorted((num.lo * scale, num.hi * scale))
        mate = self.frame.other[i]
        if mate is not None and self.reading[mate].quantity == IGNORE and quantity != "accepted":
            other = self.frame.streams[mate].values.get(r)
            if other is not None and 0 < num.value / 3 < other.value < 3 * num.value:  # anything between the two
                low, high = min(low, other.lo * scale), max(high, other.hi * scale)
                return Range(low, (low + high) / 2, high)
        return Range(low, num.value / 100 if scale == 0.01 else num.value * scale, high)

    def _record(self, r: int, group: str, members: Sequence[int]) -> Record | None:
        frame, streams, reading = self.frame, self.frame.streams, self.reading
        role = self.shared.roles[r]
        if role == "base" and {"base", "sd"} <= {reading[i].side for i in members if r in streams[i].values}:
            role = ""  # the columns say the sides
        record = Record(r, group, role, several=len(self.groups) > 1, tentative=role == "?")
        matched: list[int] | None = None
        beside = {reading[i].quantity for i in members if reading[i].side == "base" and r in streams[i].values}
        for i in members:
            quantity, side = reading[i].quantity, reading[i].side
            if quantity in {IGNORE, "other_rate"}:
                continue
            here = self._number(i, r)
            if here is not None and here.value <= 0 and quantity in _POSITIVE:
                here = None
            if quantity in OF_BASELINE.keys() - beside and not side and role != "base" and not frame.of_prompt[r]:
                matched = self.baselines(r) if matched is None else matched
                self._take_baseline(record, i, matched)
            if here is not None:
                self._take(record, i, here, side)
                if role == "sd" and quantity in OF_BASELINE:
                    self._take_change(record, i)
        if not record.known and not record.positions:
            return None
        if role != "base" and "draft_rate" not in record.known and (draft := frame.model(r, "draft"))[0]:
            rates = [i for i in members if reading[i].quantity == "rate" and reading[i].side != "sd"]
            alone = [(b, i) for b in self.shared.by_target.get(draft, [])[:_MANY] for i in rates]
            found = [it for b, i in alone if (it := self._number(i, b)) is not None and it.value > 0]
            if found:
                record.known["draft_rate"] = _together(found)
        record.apart = self._is_apart(record)
        if role == "base" and drafts(record.known):
            record.role = ""  # the baseline of a comparison of drafts
        if "gamma" not in record.known and role != "base":
            heading = " ".join(record.headings)
            alone = record.several and frame.grid.kind == "prose"  # of a sentence, its own part only
            length = next(iter(draft_lengths(heading)), None) if alone else frame.gamma_of(r, heading)
            if length:
                record.known["gamma"] = Range(length, length, length)
        return record

    def _is_apart(self, record: Record) -> bool:
        """Whether a group's speedup has a scope that the rates which it shares with other groups lack."""
        speedup = record.origin.get("speedup")
        if not record.several or speedup is None:
            return False
        scope = self.frame.streams[speedup].scope
        rates = [self.frame.streams[record.origin[name]] for name in _RATES if name in record.origin]
        return bool(scope and rates) and not any(stream.scope & scope for stream in rates)

    def _take(self, record: Record, i: int, here: Range, side: str) -> None:
        """Put a number of the row where it belongs."""
        stream, meaning = self.frame.streams[i], self.reading[i]
        quantity = meaning.quantity
        if meaning.basis == "chunk" and "base" not in {side, record.role}:
            return
        if quantity in {"speedup", "gain", "time_change"}:
            if quantity == "gain":
                here = Range(1 + here.low, round(1 + here.value, 9), 1 + here.high)
            elif quantity == "time_change":
                here = here.plus(-1) if meaning.scale == 1 else here  # a ratio of times
                if here.low <= -1:
                    return
                here = Range(1 / (1 + here.high), 1 / (1 + here.value), 1 / (1 + here.low))
            if here.value > 0:
                again = "speedup" in record.known
                record.known["speedup_again" if again else "speedup"] = here
                record.origin["speedup_again" if again else "speedup"] = i
                if not again:
                    of_run = quantity == "time_change" and "wall_time" in self.by
                    record.speedup_of = "run" if meaning.basis == "time" or of_run else "decoding"
                record.headings.append(stream.heading)
        elif quantity == "position":
            record.positions.append(here)
        else:
            alone = record.role == "base" and OWN.get(quantity) not in record.own
            fields = OF_BASELINE if side == "base" and not alone else OWN
            name = fields.get(quantity, quantity if quantity in EXTRA else None)
            if quantity == "condition" and stream.known is not None and stream.known.name in EXTRA:
                name = stream.known.name
            if name is None:
                return
            if quantity == "gamma" and meaning.basis == "block":  # a block that counts the target's own token
                here = Range(here.low - 1, here.value - 1, here.high - 1)
            elif quantity == "accepted_per_step":
                here = Range(here.low + 1, here.value + 1, here.high + 1)
            record.own.add(name)
            _put(record, name, here, i, COUNTS)
            if quantity in OF_BASELINE and side != "base":
                record.headings.append(stream.heading)

    def _take_change(self, record: Record, i: int) -> None:
        """Of a grid on its side: take the change that a column of the upright one gives for this row of it."""
        quantity, cell = self.reading[i].quantity, self.frame.grid.changes.get(self.frame.streams[i].heading, "")
        found = numbers(cell) if "speedup" not in record.known and not _SLOWER.search(cell) else []
        if not found or found[0].unit not in {"x", "%"} or (quantity != "rate" and found[0].unit == "%"):
            return
        low, value, high = found[0].lo, found[0].value, found[0].hi
        if found[0].unit == "%":
            low, value, high = 1 + low / 100, 1 + value / 100, 1 + high / 100
        if value > 0:
            record.known["speedup"], record.origin["speedup"] = Range(low, value, high), i
            record.speedup_of = "run" if quantity == "wall_time" else "decoding"

    def _take_baseline(self, record: Record, i: int, rows: Sequence[int]) -> None:
        """Take the baseline of a number from the rows without speculation."""
        name = OF_BASELINE[self.reading[i].quantity]
        found = [number for b in rows if (number := self._number(i, b)) is not None and number.value > 0]
        if not found or name in record.known:
            return
        record.known[name] = _together(found)
        record.origin[name] = i
        record.baselines = tuple(rows)
        for cells in self.shared.machines:
            plain, own = cells.get(rows[0]), cells.get(record.row)
            if plain and own and plain != own:
                record.elsewhere = plain, own


def _together(found: Sequence[Range]) -> Range:
    """Their mean, which may be anything between them."""
    mean = sum(it.value for it in found) / len(found)
    return Range(min(it.low for it in found), mean, max(it.high for it in found))


def _gain(num: Num, words: str, plus: float) -> Range:
    """A change as a speedup, `plus` added: `+12%`, `12% slower`, `37% less time`, `1.12x`."""
    low, value, high = num.lo, num.value, num.hi
    if num.unit == "%":
        less = not num.signed and (_SLOW.search(words) or _SHORTER.search(words)) and not _FAST.search(words)
        low, value, high = (1 - high / 100, 1 - value / 100, 1 - low / 100) if less else (
            1 + low / 100, 1 + value / 100, 1 + high / 100
        )  # fmt: skip
        if less and _SHORTER.search(words) and low > 0:
            low, value, high = 1 / high, 1 / value, 1 / low
    return Range(low + plus, value + plus, high + plus)


def drafts(known: Mapping[str, Range]) -> bool:
    """Whether numbers show that drafts were accepted."""
    one = known.get("tau")
    return (one is not None and one.low > 1.05) or any(
        name in known and known[name].low > 0 for name in ("acceptance", "accepted")
    )


def _put(record: Record, name: str, value: Range, i: int, counts: Collection[str]) -> None:
    """A number that two columns give: the first of counts, else the range of both."""
    other = record.known.get(name)
    if other is not None:
        if name in counts or name == "predicted_n":
            return
        value = Range(min(other.low, value.low), (other.value + value.value) / 2, max(other.high, value.high))
    record.known[name] = value
    record.origin.setdefault(name, i)
