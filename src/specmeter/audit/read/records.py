"""A grid under one reading -> records: per row and group of columns what is known of the baseline and of the run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .cells import EMPTY, Num, is_number
from .meaning import COUNTS, IGNORE, Meaning, Stream, norm, side_of
from .grids import Grid

Reading = tuple[Meaning, ...]
_GAMMA = re.compile(
    r"(?:n[-_ ]?max|draft[-_ ]?(?:max|n|len|length|tokens|block[-_ ]size)|γ|gamma|num[-_ ](?:spec\w*[-_ ]tokens|steps|speculative[-_ ]tokens)|spec[-_ ](?:tokens|len)|\bk|\bn|depth|mtp[- ]draft|heads?|draft)\s*[=: _]\s*(\d{1,2})\b(?!\.)|\bmtp[-_ ]?(\d{1,2})\b(?!b)",
    re.I,
)
_METHODS = ["mtp", "eagle", "dflash", "medusa", "n-?gram", "suffix", "lookahead", "draft model"]


@dataclass(frozen=True)
class Iv:
    """A value with what its rounding leaves open."""

    value: float
    lo: float
    hi: float
    mean: bool = False
    stream: int = -1

    def __truediv__(self, other: "Iv") -> "Iv":
        return Iv(
            self.value / other.value,
            self.lo / max(other.hi, 1e-12),
            self.hi / max(other.lo, 1e-12),
            self.mean or other.mean,
        )

    def __mul__(self, other: "Iv") -> "Iv":
        return Iv(self.value * other.value, self.lo * other.lo, self.hi * other.hi, self.mean or other.mean)

    def plus(self, by: float) -> "Iv":
        return Iv(self.value + by, self.lo + by, self.hi + by, self.mean, self.stream)

    def times(self, by: float) -> "Iv":
        return Iv(self.value * by, self.lo * by, self.hi * by, self.mean, self.stream)

    def hull(self, other: "Iv") -> "Iv":
        return Iv(
            (self.value + other.value) / 2,
            min(self.lo, other.lo),
            max(self.hi, other.hi),
            self.mean or other.mean,
            self.stream,
        )


@dataclass
class Record:
    row: int
    group: str
    role: str
    label: str
    known: dict[str, Iv] = field(default_factory=dict)
    positions: list[Iv] = field(default_factory=list)
    speedups: list[tuple[str, Iv, bool]] = field(default_factory=list)
    """(basis, value, whether it stands in the same cell as the rate)"""
    text: str = ""
    base_from: str = ""
    several: bool = False
    """Whether the row has other groups, so that what belongs to all may be of any."""
    other_machine: str = ""
    loads_differ: bool = False
    synthetic: bool = False
    only_base: bool = False
    unsteady: bool = False
    """Whether its baselines differ by more than a quarter: then they bound nothing."""


class Frame:
    """What is the same under all readings of a grid: names of rows, their roles, the columns that are conditions."""

    def __init__(self, grid: Grid, streams: list[Stream]) -> None:
        self.grid, self.streams = grid, streams
        number_columns = {s.column for s in streams}
        rows = range(len(grid.rows))
        self.words = {
            c: {
                r: grid.rows[r][c]
                for r in rows
                if grid.rows[r][c]
                and (c not in number_columns or not is_number(grid.rows[r][c]))
                and not EMPTY.fullmatch(grid.rows[r][c])
            }
            for c in range(len(grid.head))
        }
        sides = {c: {r: side_of(text) for r, text in cells.items()} for c, cells in self.words.items()}
        free = [
            c
            for c in sides
            if not re.search(
                r"prompt|task|dataset|model$|target|comment|note|workload|hardware|gpu|machine|parity",
                grid.head[c],
                re.I,
            )
        ]
        method = [c for c in free if "base" in sides[c].values()] or [
            c for c in sides if "base" in sides[c].values() and "sd" in sides[c].values()
        ]
        self.method = method or [
            c
            for c in free
            if "sd" in sides[c].values()
            and re.search(
                "method|config|mode|arm|setup|variant|strategy|spec|draft|^$|run|name|engine", grid.head[c] or "", re.I
            )
        ]
        self.role: list[str] = []
        for r in rows:
            said = [sides[c][r] for c in self.method if sides[c].get(r)]
            role = "base" if "base" in said else said[0] if said else ""
            if role == "base" and said[0] == "sd" and len(self.method) > 1 and c_first_clear(self, sides, r):
                role = "sd"
            self.role.append(role or (side_of(grid.sections[r]) if grid.sections and r < len(grid.sections) else ""))
        for r in rows:
            if re.search(r"\bpp ?\d+\b|\bprefill\b|prompt (processing|eval)|\bttft\b", self.row_words(r), re.I):
                self.role[r] = "?"
        if "base" in self.role:
            speculative = [c for c in self.method if any(self.role[r] == "base" for r in self.words[c])]
            for r in rows:
                if not self.role[r] and any(r in self.words[c] for c in speculative):
                    self.role[r] = "?"
        self.label = [
            " ".join(dict.fromkeys(v for c in self.words for v in [self.words[c].get(r)] if v))[:70] for r in rows
        ]
        self.context_side = side_of(grid.context)
        self.text = " ".join([grid.context, *grid.head])

    def row_words(self, r: int) -> str:
        return " ".join(v for c in self.words for v in [self.words[c].get(r)] if v)

    def gamma_of(self, r: int, heading: str) -> int | None:
        for text in (self.label[r], heading):
            found = {int(m[1] or m[2]) for m in _GAMMA.finditer(text.replace("`", ""))}
            if len(found) == 1:
                return found.pop()
            if found:
                return None
        if re.search("adaptive|dynamic", self.grid.context, re.I):
            return None
        found = {int(m[1] or m[2]) for m in _GAMMA.finditer(self.grid.context)}
        return found.pop() if len(found) == 1 else None


def c_first_clear(frame: Frame, sides: dict[int, dict[int, str]], r: int) -> bool:
    return False


SHARES = {"A", "TAU", "TAUX", "K", "D", "STEPS"}
MACHINE = re.compile(r"machine|device|gpu|hardware|card|chip|host", re.I)
REPEAT = re.compile(
    r"\brun|rep|block|seed|^#|\bid\b|index|sample|note|comment|parity|status|date|commit|link|source|file", re.I
)


class Records:
    """The records of a reading. Baselines are those of the same conditions; several give a range and no mean."""

    def __init__(self, frame: Frame, reading: Reading) -> None:
        self.frame, self.reading = frame, reading
        grid, streams = frame.grid, frame.streams
        self.by: dict[str, list[int]] = {}
        for i, meaning in enumerate(reading):
            self.by.setdefault(meaning.quantity, []).append(i)
        self.roles = list(frame.role)
        for i in self.by.get("GAMMA", []):
            if not streams[i].own:
                continue
            for r in range(len(grid.rows)):
                num = streams[i].values.get(r)
                if num is not None and num.value == 0 and self.roles[r] != "sd":
                    self.roles[r] = "base"
                elif num is not None and num.value > 0 and not self.roles[r]:
                    self.roles[r] = "sd"
                elif num is None and self.roles[r] == "" and len(streams[i].values) < len(grid.rows):
                    cell = grid.rows[r][streams[i].column]
                    self.roles[r] = "base" if not self.frame.method and EMPTY.fullmatch(cell) else self.roles[r]
        conditions = [
            (c, {r: norm(v) for r, v in cells.items()})
            for c, cells in frame.words.items()
            if c not in frame.method and cells
        ]
        numeric = {s.column for s in streams}
        conditions = [(c, v) for c, v in conditions if c not in numeric or len(v) > len(grid.rows) / 2]
        for q in ("COND", "CONC", "SIZE"):
            conditions += [
                (streams[i].column, {r: repr(n.value) for r, n in streams[i].values.items()})
                for i in self.by.get(q, [])
                if streams[i].own
            ]
        bases = [r for r, role in enumerate(self.roles) if role == "base"]
        others = [r for r, role in enumerate(self.roles) if role != "base"]
        self.conditions = []
        self.machines = []
        for c, values in conditions:
            left, right = {values.get(r) for r in bases} - {None}, {values.get(r) for r in others} - {None}
            if left & right or not left or not right or any(c == streams[i].column for i in self.by.get("CONC", [])):
                self.conditions.append((c, values, bool(REPEAT.search(grid.head[c]))))
            elif MACHINE.search(grid.head[c]):
                self.machines.append((c, values))
            elif len(left) > 1 and len(left | right) < len(grid.rows):
                self.conditions.append((c, values, bool(REPEAT.search(grid.head[c]))))
        self.bases = bases

    def baselines(self, r: int) -> list[int]:
        grid = self.frame.grid
        sizes = re.compile(
            r"\b\d+(?:\.\d+)?b\b|\bq\d\w*|\bfp?\d+\b|\bint\d\b|\b\d+\s?k\b|\b(?:bs|batch|np|c|conc\w*)[ =]?\d+\b|\b\d+ ?(?:users?|clients|streams|slots|w)\b",
            re.I,
        )

        def alike(b: int, strict: bool) -> bool:
            if (
                grid.sections
                and grid.sections[b] != grid.sections[r]
                and any(grid.sections[x] == grid.sections[r] for x in self.bases)
            ):
                return False
            for _, values, repeat in self.conditions:
                if repeat and not strict:
                    continue
                if values.get(b) is not None and values.get(r) is not None and values[b] != values[r]:
                    return False
            mine, its = ({w.lower() for w in sizes.findall(self.frame.label[x])} for x in (r, b))
            return its <= mine or len(its) == 0 or not mine

        return [b for b in self.bases if alike(b, False)]

    def iv(self, i: int, r: int) -> Iv | None:
        num = self.frame.streams[i].values.get(r)
        if num is None:
            return None
        scale = self.reading[i].scale
        if (
            self.reading[i].quantity == "G"
            and num.unit != "%"
            and any(n.unit == "%" for n in self.frame.streams[i].values.values())
        ):
            return None
        if num.unit == "%" and scale == 1.0 and self.reading[i].quantity == "A":
            scale = 0.01
        if (
            num.unit != "%"
            and scale == 0.01
            and self.reading[i].quantity == "A"
            and any(n.unit == "%" for n in self.frame.streams[i].values.values())
            and num.value <= 1
        ):
            scale = 1.0
        if num.unit in {"ms", "mspt", "msps"} and scale != 1.0:
            scale = 1.0
        if self.reading[i].quantity in COUNTS and float(num.value).is_integer() and num.hi - num.lo <= 1.0:
            return Iv(num.value, num.value, num.value, self.frame.streams[i].mean, i)
        return Iv(num.value * scale, num.lo * scale, num.hi * scale, self.frame.streams[i].mean, i)

    def groups(self) -> list[tuple[frozenset[str], list[int]]]:
        """Columns that belong together: one group a method or data set that has a speed of its own."""
        streams, reading = self.frame.streams, self.reading
        anchors: list[int] = []
        for quantities in (("R",), ("T", "DT", "W"), ("S", "G"), ("TAU", "TAUX", "A")):
            anchors = [
                i
                for q in quantities
                for i in self.by.get(q, [])
                if reading[i].side != "base"
                and streams[i].own
                or q in {"S", "G"}
                and i in self.by.get(q, [])
                and not streams[i].own
                and False
            ]
            if anchors:
                break
        scopes = list(dict.fromkeys(streams[i].scope for i in anchors))
        beside = {streams[i].column for q in ("S", "G", "A") for i in self.by.get(q, []) if not streams[i].own} - {
            streams[i].column for i in anchors
        }
        scopes += [s.scope for s in streams if s.column in beside and s.own and s.scope not in scopes]
        if len(scopes) <= 1:
            return [(scopes[0] if scopes else frozenset(), list(range(len(streams))))]
        out = []
        everything = frozenset().union(*scopes)
        common = frozenset.intersection(*scopes)
        columns = {streams[i].column: streams[i].scope for i in anchors} | {
            s.column: s.scope for s in streams if s.column in beside
        }
        for g in scopes:
            mine = []
            for i, stream in enumerate(streams):
                own = stream.scope - common
                if stream.column in columns:
                    if columns[stream.column] == g:
                        mine.append(i)
                elif reading[i].side == "base":
                    mine.append(i)
                elif own & everything:
                    best = max(len(own & s) for s in scopes)
                    if len(own & g) == best and own & g:
                        mine.append(i)
                elif g or reading[i].quantity not in SHARES or frozenset() in scopes:
                    if not g or reading[i].quantity not in SHARES:
                        mine.append(i)
            bases = [i for i in mine if reading[i].side == "base"]
            near = [i for i in bases if (streams[i].scope - common) & g]
            if near and len(near) < len(bases):
                mine = [i for i in mine if i not in bases or i in near]
            elif not near and len({streams[i].scope for i in bases if reading[i].quantity == "R"}) > 1:
                mine = [i for i in mine if i not in bases]
            out.append((g, mine))
        return out

    def all(self, rows: list[int] | None = None) -> list[Record]:
        out = []
        groups = self.groups()
        for r in rows if rows is not None else range(len(self.frame.grid.rows)):
            for g, members in groups:
                record = self._record(r, g, members, len(groups) > 1)
                if record:
                    out.append(record)
        return out

    def _record(self, r: int, g: frozenset[str], members: list[int], several: bool) -> Record | None:
        streams, reading, frame = self.frame.streams, self.reading, self.frame
        role = self.roles[r]
        record = Record(r, " ".join(sorted(g)) if several else "", role, frame.label[r], several=several)
        known = record.known
        headings = set()
        matched: list[int] | None = None
        for i in members:
            m = reading[i]
            q = m.quantity
            if q == IGNORE or q in {"COND", "RX", "PRE"}:
                continue
            here = self.iv(i, r)
            if here is not None and here.value <= 0 and q in {"R", "T", "W", "DT", "MSPS", "PS", "RD", "S", "SIZE"}:
                here = None
            if q in {"R", "T", "W", "DT", "MSPS", "PS", "N", "D", "K", "STEPS", "TAU"} and not m.side:
                if here is not None:
                    side = "b" if role == "base" else "s"
                    _put(known, q + side, here)
                    if q in {"R", "T", "W", "DT"}:
                        headings.add(streams[i].heading)
                if role != "base" and q in {"R", "T", "W", "DT"}:
                    if matched is None:
                        matched = self.baselines(r) if role != "?" else []
                    found = [x for x in (self.iv(i, b) for b in matched) if x is not None and x.value > 0]
                    if found and q + "b" not in known:
                        hull = found[0]
                        for x in found[1:]:
                            hull = hull.hull(x)
                        known[q + "b"] = hull
                        record.unsteady = (
                            record.unsteady
                            or len(found) > 1
                            and max(x.value for x in found) > 1.25 * min(x.value for x in found)
                        )
                        record.base_from = f"row {', '.join(str(frame.grid.lines[b]) for b in matched[:3])}"
                        for c, values in self.machines:
                            if len({values.get(b) for b in matched} | {values.get(r)}) > 1:
                                record.other_machine = f"{values.get(matched[0])} / {values.get(r)}"
            elif here is None:
                continue
            elif m.side:
                _put(known, q + ("b" if m.side == "base" else "s"), here)
                if m.side == "base":
                    record.base_from = record.base_from or "cell"
                if m.side == "sd":
                    headings.add(streams[i].heading)
            elif q in {"S", "G"}:
                value = here.plus(1.0) if q == "G" else here
                beside = not streams[i].own and any(
                    reading[j].quantity == "R" and streams[j].column == streams[i].column and streams[j].own
                    for j in members
                )
                record.speedups.append((m.basis, value, beside))
                headings.add(streams[i].heading)
            elif q == "POS":
                record.positions.append(here)
            elif q == "TG":
                if here.value > -1:
                    record.speedups.append(
                        (
                            "time",
                            Iv(1 / (1 + here.value), 1 / (1 + here.hi), 1 / max(0.01, 1 + here.lo), False, i),
                            False,
                        )
                    )
            else:
                _put(known, q, here)
        if not known and not record.speedups and not record.positions:
            return None
        record.only_base = role == "base" and self.bases == [r]
        record.synthetic = any(
            re.search(r"synth\w*[ _]acc|acc\w*[ _]synth|simulated[ _]acc", frame.grid.head[c], re.I)
            and re.match(r"(?i)(yes|true|1\b)", frame.grid.rows[r][c])
            for c in range(len(frame.grid.head))
        )
        loads = {n.value for i in self.by.get("CONC", []) for b in self.bases for n in [streams[i].values.get(b)] if n}
        record.loads_differ = bool(loads) and "CONC" in known and known["CONC"].value not in loads
        text = " ".join([record.label, *headings])
        record.text = text + " " + frame.grid.context
        if "GAMMA" not in known and role != "base":
            gamma = frame.gamma_of(r, " ".join(headings))
            if gamma:
                known["GAMMA"] = Iv(gamma, gamma, gamma)
        return record


def _put(known: dict[str, Iv], key: str, value: Iv) -> None:
    if key not in known:
        known[key] = value
    elif known[key].mean and not value.mean or not known[key].mean and value.mean:
        known[key] = known[key].hull(value)
    elif COUNTS & {key.rstrip("bs")}:
        return
    else:
        known[key] = known[key].hull(value)
