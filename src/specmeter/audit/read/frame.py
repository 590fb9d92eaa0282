"""What all readings of a grid have in common: names and roles of its rows, and which columns are conditions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from specmeter.audit.claim import Range, draft_lengths, drafts_of_vllm
from specmeter.audit.read.cells import EMPTY, is_number
from specmeter.audit.read.grid import Grid
from specmeter.audit.read.meaning import Meaning, Stream
from specmeter.audit.read.words import is_plain, known_column, load, norm, side_of

_NO_METHOD = re.compile(
    r"prompt|task|dataset|model$|target|comment|note|workload|hardware|gpu|machine|parity|domain|category|reference"
    r"|source|document|compared|baseline[ _](?:of|label)",
    re.I,
)
METHOD = re.compile(r"method|config|mode|arm|setup|variant|strategy|spec|draft|^$|run|name|engine|label|metric", re.I)
_LENGTHS = re.compile(r"len|τ|tau|per (?:step|round|cycle|pass|draft)|accepted tokens?$|长度", re.I)
_BARE = re.compile(r"[-+]?[\d.,]+(?:[eE][-+]?\d+)?%?")
_OVER = re.compile(r"\b(?:over|across|of) (?:all )?(?:prompts?|requests?|tasks?|samples?|datasets?|runs?)", re.I)
_OF_PROMPT = re.compile(r"\bpp ?\d*\b|\bprefill\b|prompt (?:processing|eval)|\bttft\b", re.I)
_BUSY = re.compile(r"\b(?:parallel|concurren\w+|batch(?:ed)?|np)\b", re.I)
_TREE = re.compile(r"tree|medusa|eagle|hydra|top-?k", re.I)


@dataclass
class Shared:
    """What readings that agree on draft lengths and conditions have in common."""

    roles: list[str]
    bases: list[int]
    """Rows without speculation."""
    conditions: list[dict[int, str]] = field(default_factory=list[dict[int, str]])
    """Cells of columns that a row and its baseline have in common."""
    repeats: list[dict[int, str]] = field(default_factory=list[dict[int, str]])
    """The same of columns that only count or name the rows."""
    machines: list[dict[int, str]] = field(default_factory=list[dict[int, str]])
    by_key: dict[tuple[str | None, ...], list[int]] = field(default_factory=dict[tuple[str | None, ...], list[int]])
    by_target: dict[tuple[str, ...], list[int]] = field(default_factory=dict[tuple[str, ...], list[int]])

    def key(self, row: int) -> tuple[str | None, ...]:
        return tuple(cells.get(row) for cells in self.conditions)


class Frame:
    """What is the same under all readings of a grid: names and roles of rows, and which columns are conditions."""

    def __init__(self, grid: Grid, streams: Sequence[Stream]) -> None:
        self.grid, self.streams = grid, streams
        rows = range(len(grid.rows))
        numeric = {stream.column for stream in streams}
        self.words = [
            {
                r: cell
                for r in rows
                if (cell := grid.rows[r][c])
                and not EMPTY.fullmatch(cell)
                and (c not in numeric or not is_number(cell))
                and not _BARE.fullmatch(cell)
            }
            for c in range(len(grid.head))
        ]
        sides = [
            {r: side_of(text) if c not in numeric or is_plain(text) else "" for r, text in cells.items()}
            for c, cells in enumerate(self.words)
        ]
        columns = {column.name: c for c, head in enumerate(grid.head) if (column := known_column(head)) is not None}
        self.named = {name: self.words[c] for name, c in columns.items()}
        """Cells of columns of texts, by name."""
        self.method = self._method_columns(sides)
        self.reference = self._references()
        self.of_prompt = [_OF_PROMPT.search(" ".join(self.words_of(r))) is not None for r in rows]
        self.role = [self._role(r, sides) for r in rows]
        if "base" in self.role:
            naming = [c for c in self.method if any(self.role[r] == "base" for r in self.words[c])]
            for r in rows:
                if not self.role[r] and any(r in self.words[c] for c in naming):
                    self.role[r] = "sd" if self.reference.get(r) else "?"
        self.label = [" ".join(dict.fromkeys(self.words_of(r)))[:160] for r in rows]
        said = [f"{label} {' '.join(grid.head)} {grid.context}" for label in self.label]
        self.busy = [_BUSY.search(text) is not None for text in said]
        """Whether several requests were served at once, by the words."""
        self.chain = [_TREE.search(text) is None or drafts_of_vllm(text) for text in said]
        """Whether drafts are chains, as far as words say."""
        self.mean = [it.mean and (not _LENGTHS.search(it.heading) or bool(_OVER.search(it.heading))) for it in streams]
        """Whether a stream holds means of several runs; a length is a mean over steps by nature."""
        self.middle = [median(abs(num.value) for num in stream.values.values()) for stream in streams]
        dens = {stream.column: i for i, stream in enumerate(streams) if stream.slot == "den"}
        self.other = [dens.get(stream.column) if stream.slot == "num" else None for stream in streams]
        """Of the first number of a pair `73.3 / 106.1`, the stream of the second."""
        self.shared: dict[object, Shared] = {}
        self.lengths: dict[tuple[int, str], int | None] = {}
        self.numbers: dict[tuple[int, int, Meaning], Range | None] = {}
        headings = [norm(stream.heading) for stream in streams]
        self.said_percent = [load().patterns["percent"].search(heading) is not None for heading in headings]
        self.said_size = [load().heading_units["size"].search(heading) is not None for heading in headings]
        self.percent = [any(num.unit == "%" for num in stream.values.values()) for stream in streams]
        self.method_words = {c: {r: norm(text) for r, text in self.words[c].items()} for c in range(len(grid.head))}

    def _method_columns(self, sides: list[dict[int, str]]) -> list[int]:
        """Columns that say whether a row speculates."""
        many = len(self.grid.rows)
        tells = [
            len(set(it.values())) > 1 or len(it) < many or many == 1 or self.grid.head[c] == "method"
            for c, it in enumerate(self.words)
        ]
        named = [c for c, cells in enumerate(sides) if cells and tells[c] and not _NO_METHOD.search(self.grid.head[c])]
        plain = [c for c in named if "base" in sides[c].values()]
        both = [c for c, cells in enumerate(sides) if {"base", "sd"} <= set(cells.values())]
        spoken = [c for c in named if "sd" in sides[c].values() and METHOD.search(self.grid.head[c])]
        return (
            plain
            or both
            or spoken
            or [c for c, cells in enumerate(sides) if cells and not tells[c] and METHOD.search(self.grid.head[c])]
        )

    def _role(self, r: int, sides: list[dict[int, str]]) -> str:
        if self.of_prompt[r]:
            return "?"
        said = [sides[c][r] for c in self.method if sides[c].get(r)]
        role = "base" if "base" in said else said[0] if said else ""
        role = role or (side_of(self.grid.sections[r]) if r < len(self.grid.sections) else "")
        return role or ("sd" if self.method and draft_lengths(" ".join(self.words_of(r))) else "")

    def _references(self) -> dict[int, list[int]]:
        """Rows that a column names as the baseline of a row, by their labels."""
        labels, its = self.named.get("label", {}), self.named.get("reference", {})
        return {r: [b for b, label in labels.items() if label == name and b != r] for r, name in its.items()}

    def model(self, r: int, name: Literal["target", "draft"]) -> tuple[str, ...]:
        """A model of a row and the machine that runs it, as far as columns of their own say."""
        return tuple(self.named.get(it, {}).get(r, "").lower() for it in (name, "device"))

    def words_of(self, r: int) -> list[str]:
        """The texts of a row."""
        return [cells[r] for cells in self.words if r in cells]

    def gamma_of(self, r: int, heading: str) -> int | None:
        """The draft length that the row, its headings or the text above say, if they say one."""
        if (r, heading) not in self.lengths:
            self.lengths[r, heading] = self._gamma_of(r, heading)
        return self.lengths[r, heading]

    def _gamma_of(self, r: int, heading: str) -> int | None:
        for text in (self.label[r], heading, self.grid.context):
            found = set(draft_lengths(text))
            if found:
                adapts = text is self.grid.context and re.search(r"adaptive|dynamic", text, re.I)
                return found.pop() if len(found) == 1 and not adapts else None
        return None
