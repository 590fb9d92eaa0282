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

from specmeter.audit.read.cells import EMPTY, MAX_TEXT, NAME, NUMBER, RESULTS, clean, is_number, numbers, unit_of
from specmeter.audit.read.grid import MAX_COLUMNS, Row, Table

_LINE = 2_000
"""Characters of a line that is more than a part of a sentence."""
_MARKER = re.compile(r"^\s*(?:[-*•+>]\s+|#{1,6}\s+|\d{1,3}[.)]\s+)+")
_STAMP = re.compile(
    r"^\s*\[?\d{4}-\d\d-\d\d[ T][\d:.,]{5,15}\]?(?:\s-\s(?:INFO|DEBUG|WARNING)\s-)?\s*|^\s*\[?INFO\]?:?\s+", re.I
)

# --- gaps ------------------------------------------------------------------------------------------------------------

_WIDE = re.compile(r"\S+(?: \S+)*")
_WORD = re.compile(r"[^\s()]\S*(?: \([^()]{0,40}\))?(?: (?:toks?|tokens?|t)/s(?:ec)?(?!\S)(?: \([^()]{0,40}\))?)?")
_NO_HEADING = re.compile(r"[,.;:]$|--|\S ?[=:](?!/)\s?[-+~≈]?\d")
_NOTHING = re.compile(r"[\s|+:=─━═{}\[\]`,;*#-]+")
_TITLE = re.compile(r"\s*#{1,6}\s.*|.*[:：]\s*|\s*[=─━═-]{2,}.*[=─━═-]{2,}\s*", re.S)


def gaps(page: Sequence[str]) -> list[Table]:
    """Rows under a line of headings that nothing but gaps divide."""
    found: list[Table] = []
    at = end = 0
    while at < len(page):
        rows = _under_headings(page, at, _WIDE) or _under_headings(page, at, _WORD) or _headless(page, at)
        if rows:
            above, begun = "\n".join(page[end:at])[-_LINE:].strip(), at
            at = end = _number(rows[-1][0])
            found.append(Table(rows, 1, "gaps", above, used=set(range(begun + 1, end + 1))))
        else:
            at += 1
    return found


def _cut(line: str, by: re.Pattern[str]) -> list[re.Match[str]]:
    return list(by.finditer(line[:_LINE].replace("\t", "   ")))[:MAX_COLUMNS]


def _under_headings(page: Sequence[str], first: int, by: re.Pattern[str]) -> list[Row]:
    heads = _cut(page[first], by)
    least = 2 if by is _WIDE else 3
    names = [clean(head.group()) for head in heads]
    decimals = sum(re.search(r"\d\.\d", name) is not None for name in names)
    if len(heads) < least or "|" in page[first] or 2 * decimals >= len(heads):
        return []
    if any(is_number(name) or _NO_HEADING.search(name) for name in names):
        return []
    rows = [(f"line {first + 1}", names)]
    skipped = False
    for number in range(first + 1, len(page)):
        found = _cut(page[number], by)
        cells = _nearest(found, heads) if by is _WIDE else _in_order([clean(it.group()) for it in found], len(heads))
        fits = 1 < len(found) < len(heads) + 2 and len(cells) == len(heads) and any(map(is_number, cells))
        if not fits and skipped:
            break
        if skipped := not fits:
            continue
        rows.append((f"line {number + 1}", cells))
    numeric = sum(is_number(cell) for _, cells in rows[1:] for cell in cells)
    return rows if numeric + (len(rows) > 2) >= (2 if by is _WIDE else 4) else []


def _in_order(cells: list[str], count: int) -> list[str]:
    """Cells of a line with single spaces: a name may have several words, and the last cell two."""
    numeric = 0
    while numeric < len(cells) and is_number(cells[-1 - numeric]):
        numeric += 1
    if len(cells) > count and numeric == count - 1:
        return [" ".join(cells[:-numeric]), *cells[-numeric:]]
    return [*cells[: count - 1], " ".join(cells[count - 1 :])] if len(cells) == count + 1 else cells


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
        if len(cells) < 2 or units[0] or not units[1]:
            break
        rows.append((f"line {number + 1}", [cells[0], " ".join(cells[1:])]))
    return [("", ["", ""]), *rows] if len(rows) > 1 else []


# --- pairs of a key and a value --------------------------------------------------------------------------------------

_METRIC = re.compile(r"(?:\w{1,40}:)?([a-z][a-z0-9_]{3,80})(?:\{([^{}]{0,400})\})?\s+([0-9.]+(?:e[+-]?\d+)?)\s*", re.I)
_LEADER = re.compile(r"(\S.{0,80}?)(?:\s{2,}|\t+|\s?\.{3,60}\s?)(\S.{0,60})")
"""A key and a value with nothing but a gap or dots between them."""
_POSITION = re.compile(r'position="?(\d{1,3})')
_PARTS = re.compile(r"(?:[,;|]\s+|[，；。]\s*)(?![^()（）]{0,80}[)）])|\s+[|·•]\s+|\s{2,}|\t+")
_EQUALS = re.compile(r" (?=[^\s=:(]{1,40}=[^=])")
_KEY = re.compile(r"(.{1,90}?)(?:\s?=|\s?:(?!\d)|\s[–—-](?=\s[~≈+]?\d))\s*(\S.{0,120})")
_VALUE = re.compile(r"\W{0,3}(?:about |around |avg |mean |up to )?\W{0,3}\d", re.I)
_SIDES = re.compile(r"\b(?:vs|versus|against)\b|\([^()]{0,60}:\s?\d", re.I)
_MOST_WORDS = 9
"""Words of a key, or before it."""


@dataclass
class _Entry:
    place: str
    name: str
    cells: dict[str, str] = field(default_factory=dict[str, str])
    places: dict[str, str] = field(default_factory=dict[str, str])


def _is_value(text: str) -> bool:
    return is_number(text) and _VALUE.match(text) is not None and not _SIDES.search(text)


def _pairs_of(line: str) -> tuple[str, list[tuple[str, str]]]:
    """(what stands before, [(key, value)]) of a line; no pairs if none has a number."""
    if metric := _METRIC.fullmatch(line):
        position = _POSITION.search(metric[2] or "")
        key = metric[1].removesuffix("_total") + (f" {position[1]}" if position else "")
        return "", [(key, metric[3])] if "_" in key else []
    if (leader := _LEADER.fullmatch(line.strip())) and _is_value(clean(leader[2])) and not is_number(clean(leader[1])):
        line = f"{leader[1]}: {leader[2]}"
    line = re.sub(r" *= *(?=[\d~+-])", "=", re.sub(r"[:：]\s+", ": ", _STAMP.sub("", line, count=1)))
    before: list[str] = []
    found: list[tuple[str, str]] = []
    for part in (part for whole in _PARTS.split(line) for part in _EQUALS.split(whole)):
        piece = clean(part).strip('*•> "')
        pair = _KEY.fullmatch(piece)
        while pair and not _is_value(pair[2]) and (inner := _KEY.fullmatch(pair[2])) and _is_value(inner[2]):
            before, pair = [*before, pair[1]], inner
        if pair and pair[1].count("(") != pair[1].count(")"):
            pair = None
        if pair and "=" in part and len(NUMBER.sub("", pair[2]).split()) > 1:
            return "", []  # a sentence in which a setting is named
        if pair and (_is_value(pair[2]) or EMPTY.fullmatch(pair[2]) or len(pair[2].split()) < 5):
            found.append((pair[1].strip('*•> "'), pair[2].rstrip(",;. ")))
        elif found and _is_value(piece) and _is_value(found[-1][1]):
            found[-1] = (found[-1][0], f"{found[-1][1]}, {piece}")
        elif not found:
            before.append(piece)
        elif NUMBER.search(piece):
            return "", []
    name = ", ".join(filter(None, before))
    if len(found) == 1 and name and "," in line:
        name, found = "", [(f"{name}, {found[0][0]}", found[0][1])]
    words = [name, *(key for key, _ in found)]
    told = any(num.unit in RESULTS for it in words for num in numbers(it))
    if told or max(len(it.split()) for it in words) > _MOST_WORDS or not any(_is_value(value) for _, value in found):
        return "", []
    return name, found


_ITEM = re.compile(r"\s{0,8}(?:[-*•+]|\d{1,2}[.)])\s+([^:：]{1,80}?)\s*[:：]\s+(\S.{0,400})")


def items(page: Sequence[str]) -> list[Table]:
    """Lists whose items are a name and its results: `- n-max 3: 20.1 tok/s (+62%), acc 0.74`."""
    found: list[Table] = []
    run: list[Row] = []
    for number, line in enumerate([*page, ""], start=1):
        item = _ITEM.fullmatch(line)
        name, told = (clean(item[1]), clean(item[2])) if item else ("", "")
        if item and is_number(told) and not is_number(name) and any(num.unit in RESULTS for num in numbers(told)):
            run.append((f"line {number}", [name, told]))
            continue
        if len(run) > 2 and any(len(numbers(cells[1])) > 1 for _, cells in run):
            first = _number(run[0][0])
            context = "\n".join(page[max(0, first - 6) : first - 1]).strip()
            used = {_number(place) for place, _ in run}
            found.append(Table([("", ["", "result"]), *run], 1, "list", context, used=used))
        run = []
    return found


def pairs(page: Sequence[str]) -> list[Table]:
    """Lines of keys and values, and what stands around them."""
    entries: list[_Entry] = []
    name, begun, apart = "", True, False
    ahead: dict[str, str] = {}  # what `Model: A` lines say of the entry below them
    others: list[str] = []
    titles: list[str] = []
    for number, line in enumerate(page, start=1):
        if not line.strip() or _NOTHING.fullmatch(line[:_LINE]) or re.match(r"# (?:HELP|TYPE) ", line):
            titles, apart = titles if line.strip() else [], True
            continue
        is_title = len(line) > _LINE or _TITLE.fullmatch(line)
        before, told = ("", []) if is_title else _pairs_of(_MARKER.sub("", line, count=1))
        if not told:
            text = clean(_STAMP.sub("", line, count=1))
            stated = None if is_title or begun else _KEY.fullmatch(text)
            if stated and len(stated[2].split()) < 5 and len(stated[1].split()) < 4:
                next_one = apart or ahead or stated[1] in entries[-1].cells
                (ahead if next_one else entries[-1].cells)[stated[1]] = stated[2]
                continue
            others.append(line)
            title = text.strip("-=#*: ")
            titles = [] if any(num.unit in RESULTS for num in numbers(title)) else [*titles[-2:], title]
            name = ", ".join(it for it in titles if len(it) < 80) or "".join(titles[-1:])[:120]
            begun = True
            continue
        place, titles, apart = f"line {number}", [], False
        for key, value in told:
            if begun or ahead or key in entries[-1].cells or (before and before != name):
                entries.append(_Entry(place, " ".join(dict.fromkeys(filter(None, (name, before)))), dict(ahead)))
                begun, before = False, ""
                ahead.clear()
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
    """Keys as names of rows if their values are of one kind, else as columns."""
    units = {id(entry): {key: _units(value) for key, value in entry.cells.items()} for entry in entries}
    every = [it for found in units.values() for it in found.values()]
    kinds = {it[0] if it else "" for it in every}
    several = {it[0] for found in units.values() for it in found.values() if len(set(it)) > 1 and it[0]}
    several = {kind for kind in several if max(sum(it[:1] == [kind] for it in u.values()) for u in units.values()) > 1}
    if len(kinds) == 1 and "" not in kinds and max(len(entry.cells) for entry in entries) > 1:
        several = kinds
    rows: list[Row] = []
    for entry in entries if several else ():
        listed = {key: value for key, value in entry.cells.items() if set(units[id(entry)][key][:1]) & several}
        rows += [(entry.places.get(key, entry.place), [entry.name, key, value]) for key, value in listed.items()]
        entry.cells = {key: value for key, value in entry.cells.items() if key not in listed}
    if rows:
        several_names = len({cells[0] for _, cells in rows}) > 1
        rows = rows if several_names else [(place, cells[1:]) for place, cells in rows]
        head = ("", ["", "", "result"][not several_names :])
        yield Table([head, *rows], 1, "list", context, spans=True, used={_number(place) for place, _ in rows})
    entries = [entry for entry in entries if any(map(is_number, entry.cells.values()))]
    keys = list(dict.fromkeys(key for entry in entries for key in entry.cells))[:MAX_COLUMNS]
    body = [(entry.place, [entry.name, *(entry.cells.get(key, "") for key in keys)]) for entry in entries]
    if body:
        used = {_number(place) for entry in entries for place in entry.places.values()}
        yield Table([("", ["", *keys]), *body], 1, "keys", context, spans=True, used=used)


def _number(place: str) -> int:
    return int(place.removeprefix("line "))


def _units(value: str) -> list[str]:
    """The units of a value, those that are printed."""
    return [num.unit for num in numbers(value) if num.unit] if _is_value(value) else []


# --- sentences -------------------------------------------------------------------------------------------------------

_RATE = r"(?:(?:tokens?|toks?|t)(?:/| per )s\w*|tps|ms(?:(?: ?/ ?| per )tok(?:en)?)?)"
_RANGES = re.compile(r"\b(?:rang\w+|var(?:y|ies|ied)|between|anywhere|fluctuat\w+|depend\w+)\b", re.I)
_FROM_TO = re.compile(
    rf"(?:\bfrom|从|由)\s?(?:about |around |约)?([~≈]?\d[\d.,]{{0,9}})\s?({_RATE})?\s?(?:\([^()]{{0,60}}\))?\s?"
    rf"(?:\bto|up to|→|[提升高增加涨变降低下了快慢]{{0,4}}[到至为])\s?(?:about |around |约)?"
    rf"([~≈]?\d[\d.,]{{0,9}})\s?({_RATE})?",
    re.I,
)
_APART = re.compile(
    r"[,;)(]|(?<=accepted):|\b(?:and|to|vs\.?|versus|from|but|against|compared (?:to|with)|while|whereas|over)\b"
    r"|→|[，；而和]",
    re.I,
)
_BREAK = re.compile(r"(?<=[a-z\d%)*])[.;!。；]\s+|(?<=[^\W\d_])\.\s+|\s—\s|\s;\s", re.I)
_TOGETHER = re.compile(r"\s*(?:/|of|out of|of the|±|→|–|-|to)\s*|\s?(?:\w{1,12} )?\(", re.I)
_GLUED = re.compile(r"(?:[A-Za-z][A-Za-z0-9_.]{0,15}-|\b(?:RTX|GTX|RX) )$")
_SHARES = re.compile(r"(?:(?:[01]?\.\d{1,5}|\d{1,3}(?:\.\d{1,3})?%)\s*[,/]?\s*){2,24}")
"""Shares one after the other, such as those of each position."""
_FOR = re.compile(r"(?<=\w)\s(?:for|at|with|using|when|on)\s", re.I)
_AROUND = 60
_MOST_LINES = 5_000
"""Lines of a text that is read as sentences."""
_MOST_NUMBERS = 32
"""Numbers of a paragraph that is one result."""
_WRAPPED = 100
"""Characters of a line, at most, in a text whose lines are broken where they are full."""
_MEASURE = re.compile(r"accept|draft|specul|(?-i:\b(?:AL|MAT)\b)|\brate|length|speed|\btok|接受|τ|\btau\b", re.I)


def _sides(told: re.Match[str]) -> str:
    """`from 23 to 41 t/s` with words that say which is which."""
    plain, unit, drafted, other = told.groups("")
    what = _OF_WHAT.search(told.string[max(0, told.start() - 40) : told.start()])
    return f" baseline {plain} {unit or other}, after {what[1] if what else ''} {drafted} {other or unit}"


_OF_WHAT = re.compile(r"\b(TPOT|TTFT|ITL|latency|(?:wall )?time|prompt|prefill)\b[^.;]*$", re.I)


def sentences(page: Sequence[str]) -> list[Table]:
    """A paragraph or an item of a list as one row."""
    found: list[Table] = []
    for start, text in _paragraphs(page) if len(page) < _MOST_LINES else ():
        text = text if _RANGES.search(text) else _FROM_TO.sub(_sides, text)
        head, cells = [""], [""]
        rate = ""
        for words, cell in (it for piece in _BREAK.split(text) for it in _numbers_of(piece)):
            units = [num.unit for num in numbers(cell)]
            rate = cell if units[0] == "rate" else rate
            if rate and units[:2] == ["", "x"]:  # `baseline 23 tok/s, with the draft 41 (1.78x)`
                cell = cell.replace(" (", " t/s (", 1)
            shares = [cell]
            if len(units) > 2 and re.search(r"\bpos", words, re.I) and _SHARES.fullmatch(cell):
                shares = re.split(r"\s*[,/]\s*", cell)
            head += [f"{words} {at}" for at in range(1, len(shares) + 1)] if shares[1:] else [words]
            cells += shares
        nums = [num for cell in cells for num in numbers(cell)]
        if any(num.unit for num in nums) or (_MEASURE.search(text) and ("." in "".join(cells) or len(nums) > 1)):
            place = f"line {start + 1}"
            found.append(Table([("", head[:_MOST_NUMBERS]), (place, cells[:_MOST_NUMBERS])], 1, "prose", text))
    return found


def _paragraphs(page: Sequence[str]) -> Iterator[tuple[int, str]]:
    """(first line, text) up to an empty line or the next item; a line that ends and tells several numbers is a
    paragraph of its own if the others are such lines, too."""
    at = 0
    for number, line in enumerate([*page, ""]):
        if line.strip() and not _MARKER.match(line):
            continue
        part = [clean(_MARKER.sub("", it, count=1), MAX_TEXT) for it in page[at:number]]
        told = [it for it in part if re.search(r"\d", it)]
        alone = all(it.endswith((".", ";", ":", "。", "；", ")")) for it in part[:-1]) and _tell(told[1:], 3)
        short = len(part) > 1 and all(len(it) < 60 for it in part)
        alone |= _tell(told, 3) and max(map(len, part), default=0) > _WRAPPED
        alone |= short and _tell(told, 2)
        many = sum(len(numbers(it)) for it in told) > _MOST_NUMBERS
        if (alone and len(told) > 2) or many or sum(map(len, part)) > MAX_TEXT:
            yield from ((at + index, it) for index, it in enumerate(part) if it)
        elif any(part):
            yield at, (" ; " if short else " ").join(filter(None, part))
        at = number


def _tell(texts: list[str], least: int) -> bool:
    """Whether each of them tells that many numbers, one of them with a unit."""
    return all(len(nums := numbers(it)) >= least and any(num.unit for num in nums) for it in texts)


def _numbers_of(piece: str) -> Iterator[tuple[str, str]]:
    """(words around, number) of each number; what a slash, an arrow or a bracket joins stays together."""
    spans: list[tuple[int, int]] = []
    for found in NUMBER.finditer(piece):
        glued = _GLUED.search(piece[max(0, found.start() - 20) : found.start()]) is not None
        if (
            NAME.match(piece[found.start() :][:20])
            or (glued and unit_of(found) not in RESULTS)
            or not numbers(found.group())
        ):
            continue  # `Qwen3-8B`, `2x RTX 3090`
        between = piece[spans[-1][1] : found.start()] if spans else ""
        joined = spans and (_TOGETHER.fullmatch(between) or _SHARES.fullmatch(piece[spans[-1][0] : found.end()]))
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
        if cut is None and index and _TOLD.search(between):
            cut = re.search(r":\s*$", between)
        if cut is None and index and not re.search(r"[^\W\d_]", cuts[-1][1]):
            cut = _FOR.search(between)  # `1.9 accept length for draft 2`
        if index == 0:
            cuts.append(("", between))
        elif cut is not None and piece[start : start + 1] != "(":
            cuts.append((between[: cut.start()], between[cut.end() :]))
        else:
            named = re.search(r"[^\W\d_]{2}|[\u3400-\u9fff]", between)
            cuts.append((between, "") if piece[start : start + 1] in {"", "("} else ("", between if named else ""))
    setting = words = ""
    for (start, end), (_, before), (after, _) in zip(spans, cuts, cuts[1:], strict=False):
        first = numbers(piece[start:end])[0]
        is_speed = first.unit in {"rate", "ms"} and setting
        own = _IN.sub("", before) + ("" if is_speed else after)
        if not re.search(r"[^\W\d_]", own) and piece[:start].rstrip().endswith("(") and _TOLD.search(words):
            before = words
        elif not re.search(r"[^\W\d_]", own) and first.unit:
            # `MTP n=4 41 t/s`, `MTP (n=4) 41 t/s`: both numbers are of MTP.
            aside = _ASIDE.search(piece[max(0, start - 200) : start])
            before = NUMBER.split(aside[1])[-1] if aside else f"{setting} {before}"
        setting = "" if first.unit in RESULTS else before
        if len(before) > _AROUND:
            before = before[-_AROUND:].partition(" ")[2]
        words = " ".join(re.sub(r"[,:()]", " ", f"{before} {after[:40]}").split()).rstrip(" .")
        yield words, piece[start:end].strip()


_ASIDE = re.compile(r"([^(),;]{1,60})\([^()]{0,100}\)\s?:?\s?$")
_TOLD = re.compile(r"accept|faster|slower|speed-?up", re.I)
"""Words that also describe a number in brackets behind them. The words after them belong to the next number."""
_IN = re.compile(r"\b(?:in|at)\b")


def _alone_in_bracket(piece: str, found: re.Match[str]) -> bool:
    """Whether a share or a factor is all that a bracket holds."""
    return piece[found.end() : found.end() + 1] == ")" and found.group().rstrip()[-1:] in {"%", "x"}
