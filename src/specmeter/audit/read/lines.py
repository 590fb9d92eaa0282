"""Text without marked tables -> tables: columns divided by gaps, `key: value` lines, console lines, lists, sentences.

Gaps, with a line of dashes or without:         Console lines, and dumps of counters:

    category   samples  t/s   accept_rate           code_python   pred= 192 draft= 163 rate=0.834 tok/s=135.4
    ---------  -------  ----  -----------           accept len: 4.50, gen throughput (token/s): 604.01
    chat       12       93.1  0.62                  vllm:spec_decode_num_drafts_total{engine="0"} 4687

In such lines a key that comes again begins the next row, and a line without a value names the rows below it. If all
values are of one kind (`off: 41 t/s`, `on: 77 t/s`), each key is the name of a row instead. In sentences each number is
a column whose heading is the words around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from specmeter.audit.read.cells import EMPTY, MAX_COLUMNS, MAX_TEXT, NUMBER, Row, Table, clean, is_number, numbers

_LINE = 2_000
"""Characters of a line that is more than a part of a sentence."""
_MARKER = re.compile(r"\s*(?:[-*•+>]\s+|#{1,6}\s+|\d{1,3}[.)]\s+)+")
_STAMP = re.compile(
    r"\s*\[?\d{4}-\d\d-\d\d[ T][\d:.,]{5,15}\]?(?:\s-\s(?:INFO|DEBUG|WARNING)\s-)?\s*|\s*\[?INFO\]?:?\s+", re.I
)

# --- gaps ------------------------------------------------------------------------------------------------------------

_WIDE = re.compile(r"\S+(?: \S+)*")
_WORD = re.compile(r"[^\s()]\S*(?: \([^()]{0,40}\))?(?: (?:toks?|tokens?|t)/s(?:ec)?(?!\S)(?: \([^()]{0,40}\))?)?")
_DASHES = re.compile(r"[\s|+:=─━═-]+")


def gaps(page: Sequence[str]) -> list[Table]:
    """Rows under a line of headings that nothing but gaps divide."""
    found: list[Table] = []
    at = end = 0
    while at < len(page):
        rows = _under_headings(page, at, _WIDE) or _under_headings(page, at, _WORD) or _headless(page, at)
        if rows:
            found.append(Table(rows, 1, "gaps", "\n".join(page[end:at])[-_LINE:].strip()))
            at = end = int(rows[-1][0].removeprefix("line "))
        else:
            at += 1
    return found


def _cut(line: str, by: re.Pattern[str]) -> list[re.Match[str]]:
    return list(by.finditer(line[:_LINE].replace("\t", "   ")))[:MAX_COLUMNS]


def _under_headings(page: Sequence[str], first: int, by: re.Pattern[str]) -> list[Row]:
    heads = _cut(page[first], by)
    least = 2 if by is _WIDE else 3
    if len(heads) < least or "|" in page[first] or any(is_number(clean(head.group())) for head in heads):
        return []
    if any(head.group().endswith((",", ".", ";")) or _PAIRED.search(head.group()) for head in heads):
        return []
    rows = [(f"line {first + 1}", [clean(head.group()) for head in heads])]
    for number in range(first + 1, len(page)):
        cells = _cut(page[number], by)
        if _DASHES.fullmatch(page[number][:_LINE]) and page[number].strip():
            continue
        fits = len(cells) == len(heads) or (by is _WIDE and 2 <= len(cells) < len(heads))
        if not fits or not any(is_number(clean(cell.group())) for cell in cells):
            break
        rows.append((f"line {number + 1}", _nearest(cells, heads)))
    numeric = sum(is_number(cell) for _, cells in rows[1:] for cell in cells)
    enough = 2 if by is _WIDE and len(heads) > 2 else 3 if by is _WIDE else max(4, len(heads))
    return rows if numeric + (len(rows) > 2) >= enough else []


def _nearest(cells: list[re.Match[str]], heads: list[re.Match[str]]) -> list[str]:
    """Cells under the headings nearest to them; in their order if they are as many."""
    if len(cells) == len(heads):
        return [clean(cell.group()) for cell in cells]
    found = [""] * len(heads)
    for cell in cells:
        gap = [max(head.start() - cell.end(), cell.start() - head.end()) for head in heads]
        at = min(range(len(heads)), key=gap.__getitem__)
        found[at] = f"{found[at]} {clean(cell.group())}".strip()
    return found


def _headless(page: Sequence[str], first: int) -> list[Row]:
    """Lines of a name and numbers with units: `D1     21.3 tok/s   1.44x`."""
    rows: list[Row] = []
    for number in range(first, len(page)):
        cells = [clean(cell.group()) for cell in _cut(page[number], _WIDE)]
        units = [numbers(cell)[0].unit if is_number(cell) else "" for cell in cells]
        if len(cells) < 2 or units[0] or not units[1] or (rows and len(cells) < 2):
            break
        rows.append((f"line {number + 1}", [cells[0], " ".join(cells[1:])]))
    return [("", ["", ""]), *rows] if len(rows) > 1 else []


# --- pairs of a key and a value --------------------------------------------------------------------------------------

_METRIC = re.compile(r"(?:\w{1,40}:)?([a-z][a-z0-9_]{3,80})(?:\{([^{}]{0,400})\})?\s+([0-9.]+(?:e[+-]?\d+)?)\s*", re.I)
_POSITION = re.compile(r'position="?(\d{1,3})')
_PARTS = re.compile(r"[,;|，；]\s+|\s+[|·•]\s+|\s{2,}|\t+")
_EQUALS = re.compile(r" (?=[^\s=:]{1,40}=[^=])")
_PAIRED = re.compile(r"\S ?[=:](?!/)\s?[-+~≈]?\d")
_KEY = re.compile(r"(.{1,90}?)\s?(?:=|:(?!\d))\s*(\S.{0,120})")
_MOST_WORDS = 12


@dataclass
class _Entry:
    place: str
    name: str
    cells: dict[str, str] = field(default_factory=dict[str, str])
    places: dict[str, str] = field(default_factory=dict[str, str])


def _pairs_of(line: str) -> tuple[str, list[tuple[str, str]]]:
    """(what stands before, [(key, value)]) of a line; no pairs if none has a number."""
    if metric := _METRIC.fullmatch(line):
        position = _POSITION.search(metric[2] or "")
        key = metric[1].removesuffix("_total") + (f" {position[1]}" if position else "")
        return "", [(key, metric[3])] if "_" in key else []
    line = re.sub(r" *= *(?=[\d~+-])", "=", _STAMP.sub("", line, count=1))
    name, pairs = "", list[tuple[str, str]]()
    for whole in _PARTS.split(line):
        for part in _EQUALS.split(whole):
            piece = clean(part).strip("*• ")
            found = _KEY.fullmatch(piece)
            if found is not None and (is_number(found[2]) or EMPTY.fullmatch(found[2]) or len(found[2].split()) < 5):
                pairs.append((found[1].strip("*•> "), found[2]))
            elif pairs and is_number(piece) and is_number(pairs[-1][1]):
                pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]}, {piece}")
            elif not pairs:
                name = f"{name}, {piece}".strip(", ")
    if len(pairs) == 1 and name and "," in line:
        return "", [(f"{name}, {pairs[0][0]}", pairs[0][1])] if is_number(pairs[0][1]) else []
    return name, pairs if any(is_number(value) for _, value in pairs) else []


def pairs(page: Sequence[str]) -> list[Table]:
    """Lines of keys and values, and what stands around them."""
    entries: list[_Entry] = []
    name, begun = "", True
    others: list[str] = []
    for number, line in enumerate(page, start=1):
        if not line.strip() or _DASHES.fullmatch(line[:_LINE]) or re.match(r"# (?:HELP|TYPE) ", line):
            continue
        before, told = _pairs_of(_MARKER.sub("", line[:_LINE], count=1)) if len(line) <= _LINE else ("", [])
        if not told or max(len(key.split()) for key, _ in told) > _MOST_WORDS:
            stated = _KEY.fullmatch(clean(_STAMP.sub("", line, count=1)))
            if stated and len(stated[2].split()) < 5 and len(stated[1].split()) < 4 and entries and not begun:
                entries[-1].cells.setdefault(stated[1], stated[2])
                continue
            others.append(line)
            name, begun = clean(_STAMP.sub("", line, count=1)).strip("-=#*: "), True
            continue
        place = f"line {number}"
        for key, value in told:
            if begun or key in entries[-1].cells or (before and before != name):
                entries.append(_Entry(place, " ".join(dict.fromkeys(filter(None, (name[:120], before))))))
                begun, before = False, ""
            entries[-1].cells[key] = value
            entries[-1].places[key] = place
    context = "\n".join(others)[:_LINE]
    return [table for group in _alike(entries) for table in _listed_or_keyed(group, context)]


def _alike(entries: list[_Entry]) -> list[list[_Entry]]:
    """Entries that share keys, together."""
    groups: list[tuple[set[str], list[_Entry]]] = []
    for entry in entries:
        mine = entry.cells.keys()
        near = next((it for it in groups[-20:] if 2 * len(it[0] & mine) >= min(len(it[0]), len(mine))), None)
        if near is None:
            groups.append((set(mine), [entry]))
        else:
            near[0].update(mine)
            near[1].append(entry)
    return [group for _, group in groups]


def _listed_or_keyed(entries: list[_Entry], context: str) -> Iterator[Table]:
    """Keys as names of rows if all values are of one kind, else as columns."""
    kinds = {
        (numbers(value)[0].unit, min(2, len(numbers(value)))) if is_number(value) else ("", 0)
        for entry in entries for value in entry.cells.values()
    }  # fmt: skip
    one_kind = len({unit for unit, _ in kinds}) == 1 and ("", 1) not in kinds and ("", 0) not in kinds
    if one_kind and max(len(entry.cells) for entry in entries) > 1:
        rows: list[Row] = [("", ["", "result"])]
        for entry in entries:
            rows += [("", [entry.name, ""])] if entry.name and len(entries) > 1 else []
            rows += [(entry.places.get(key, entry.place), [key, value]) for key, value in entry.cells.items()]
        yield Table(rows, 1, "list", context)
        return
    keys = list(dict.fromkeys(key for entry in entries for key in entry.cells))[:MAX_COLUMNS]
    body = [(entry.place, [entry.name, *(entry.cells.get(key, "") for key in keys)]) for entry in entries]
    yield Table([("", ["", *keys]), *body], 1, "keys", context, spans=True)


_ITEM = re.compile(r"\s*(?:[-*•+]|\d{1,3}[.)])\s+(.{1,80}?)(?:[:：]|\s[–—-]\s|→|->)\s*(\S.{0,200})")


def items(page: Sequence[str]) -> list[Table]:
    """A list whose items are a name and numbers: `- draft 1: 65 tokens, 27.25 tok/s, 1.27x`."""
    rows: list[Row] = []
    for number, line in enumerate(page, start=1):
        found = _ITEM.fullmatch(line[:_LINE].rstrip())
        if found and is_number(value := clean(found[2])) and any(num.unit for num in numbers(value)):
            rows.append((f"line {number}", [clean(found[1]), value]))
    context = "\n".join(line for line in page if not _MARKER.match(line))[:_LINE]
    return [Table([("", ["", "result"]), *rows], 1, "list", context)] if len(rows) > 1 else []


# --- sentences -------------------------------------------------------------------------------------------------------

_RATE = r"(?:(?:tokens?|toks?|t)(?:/| per )s\w*|tps|ms)"
_FROM_TO = re.compile(
    rf"(?:\bfrom|从|由)\s?(?:about |around |约)?([~≈]?\d[\d.,]{{0,9}})\s?({_RATE})?\s?(?:\([^()]{{0,60}}\))?\s?"
    rf"(?:\bto|up to|→|[提升高增加涨变降低下了快慢]{{0,4}}[到至为])\s?(?:about |around |约)?"
    rf"([~≈]?\d[\d.,]{{0,9}})\s?({_RATE})?",
    re.I,
)
_APART = re.compile(
    r"[,;)(]|\b(?:and|to|vs\.?|versus|from|but|against|compared (?:to|with)|while|whereas|over)\b|→|[，；而和]", re.I
)
_BREAK = re.compile(r"(?<=[a-z\d%)*])[.;!。；]\s+|(?<=[^\W\d_])\.\s+|\s—\s|\s;\s", re.I)
_TOGETHER = re.compile(r"\s*(?:/|of|out of|of the|±|→|–|-|to)\s*|\s?(?:\w{1,12} )?\(", re.I)
_AROUND = 60


def sentences(page: Sequence[str]) -> list[Table]:
    """A paragraph or an item of a list as one row."""
    found: list[Table] = []
    for start, text in _paragraphs(page):
        text = _FROM_TO.sub(lambda it: f"baseline {it[1]} {it[2] or it[4] or ''}, after {it[3]} {it[4] or ''}", text)
        head, cells = [""], [""]
        for piece in _BREAK.split(text):
            for words, cell in _numbers_of(piece):
                head.append(words)
                cells.append(cell)
        if len(cells) > 1 and any(num.unit for cell in cells for num in numbers(cell)):
            place = f"line {start + 1}"
            found.append(Table([("", head[:MAX_COLUMNS]), (place, cells[:MAX_COLUMNS])], 1, "prose", text))
    return found


def _paragraphs(page: Sequence[str]) -> Iterator[tuple[int, str]]:
    """(first line, text) up to an empty line or the next item; short lines stay apart in it."""
    at = 0
    for number, line in enumerate([*page, ""]):
        if not line.strip() or _MARKER.match(line):
            part = [clean(_MARKER.sub("", it, count=1), MAX_TEXT) for it in page[at:number]]
            if any(part) and sum(map(len, part)) <= MAX_TEXT:
                yield (
                    at,
                    (" ; " if len(part) > 1 and all(len(it) < 60 for it in part) else " ").join(filter(None, part)),
                )
            elif any(part):
                yield from ((at + index, it) for index, it in enumerate(part) if it)
            at = number


def _numbers_of(piece: str) -> Iterator[tuple[str, str]]:
    """(words around, number) of each number; what a slash, an arrow or a bracket joins stays together."""
    spans: list[tuple[int, int]] = []
    for found in NUMBER.finditer(piece):
        between = piece[spans[-1][1] : found.start()] if spans else ""
        joined = spans and _TOGETHER.fullmatch(between)
        if joined and ("(" not in between or _alone_in_bracket(piece, found)):
            spans[-1] = (spans[-1][0], found.end() + ("(" in between))
        else:
            spans.append(found.span())
    cuts: list[tuple[str, str]] = []
    edges = [(0, 0), *spans, (len(piece), len(piece))]
    for index, ((_, end), (start, _)) in enumerate(pairwise(edges)):
        # Words between two numbers belong to the first up to a comma or `vs`, then to the second.
        between = piece[end:start]
        cut = _APART.search(between) if index else None
        if index == 0:
            cuts.append(("", between))
        elif cut is not None:
            cuts.append((between[: cut.start()], between[cut.end() :]))
        else:
            last = index == len(spans)
            cuts.append((between if last else "", between if re.search(r"[^\W\d_]{2}", between) and not last else ""))
    for (start, end), (_, before), (after, _) in zip(spans, cuts, cuts[1:], strict=False):
        words = re.sub(r"[,:()]", " ", f"{before[-_AROUND:]} {after[:40]}")
        yield " ".join(words.split()), piece[start:end]


def _alone_in_bracket(piece: str, found: re.Match[str]) -> bool:
    """Whether a share or a factor is all that a bracket holds."""
    return piece[found.end() : found.end() + 1] == ")" and found.group().rstrip()[-1:] in {"%", "x"}
