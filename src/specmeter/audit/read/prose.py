"""Results as people tell them in a sentence: `went from 23 to 41 t/s with 71% acceptance`.

A paragraph or an item of a list is a claim where it says a speed of decoding (or a time per token) or a speedup, and
anything of drafts. Of two speeds its words must say which is that without drafts; speeds of prompts are left out, and
of more than two nothing is read. What it says twice in different ways is left out, too: nothing shows which number
belongs to which.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import shorten
from typing import NamedTuple

from specmeter.audit.claim import family_by_name, read_settings
from specmeter.audit.read.columns import METHODS_IN_HEADINGS
from specmeter.audit.read.grid import Grid

_LONGEST = 4_000
"""Characters of a paragraph."""
_MOST = 1_000
"""Claims of a text."""
_N = r"[~≈]?(?<![a-zA-Z0-9_.])\d{1,6}(?:[.,]\d{1,4})?"
_UNIT = r"\s?(?:(?:toks?|tokens?|t)\s?(?:/|per\s)\s?s(?:ec(?:ond)?)?|tps)(?![a-zA-Z0-9_])"
_MS = r"\s?ms(?:\s?(?:/|per\s)\s?tok(?:en)?)?(?![a-zA-Z0-9_])"


class _Speed(NamedTuple):
    """A way to say how fast."""

    heading: str
    plain: str
    """The heading of the same without drafts."""
    one: re.Pattern[str]
    from_to: re.Pattern[str]
    unit: str = ""


def _speed(heading: str, plain: str, printed: str, unit: str = "") -> _Speed:
    return _Speed(
        heading,
        plain,
        re.compile(rf"({_N}){printed}", re.I),
        re.compile(
            rf"({_N})(?:{printed})?\s?(?:(?:up |down )?to|→|[-=]+>)\s?({_N}){printed}"
            rf"|{printed} \w+ from ({_N}) to ({_N})"
            rf"|从\s?({_N})(?:{printed})?\s?[提升高增加涨变降低下了快慢]{{0,4}}[到至]\s?({_N}){printed}",
            re.I,
        ),
        unit,
    )


_RATES = _speed("decode_rate", "baseline_rate", _UNIT)
_TIMES = _speed("ms_per_token", "baseline_ms_per_token", _MS, " ms")
_RATE, _FROM_TO = _RATES.one, _RATES.from_to
_PER_TOKEN = re.compile(r"\btpot\b|\btime per (?:output |generated )?token\b|\bms\s?(?:/|per\s)\s?tok", re.I)
_BARE = re.compile(
    rf"{_UNIT}(?: (?:up |down )?to|.{{0,60}}?(?:\b(?:vs\.?|versus)|\bwith (?:the|a|my) (?:drafts?(?: model)?|drafter)))"
    rf"(?: at| is|:)? ({_N})(?=\s*(?:[(;]|,\s|\.(?:\s|$)|$))",
    re.I,
)
"""A speed that leaves its unit to the one before it."""
_RANGE = re.compile(r"\b(?:rang\w+|var(?:y|ies|ied)|between|anywhere|fluctuat\w+|depend\w+)\b", re.I)
_PLAIN = re.compile(
    r"\b(?:baseline|without|w/o|vanilla|off|before|stock|plain|no (?:drafts?|spec\w*|sd|mtp|eagle\S*))(?![\w])", re.I
)
_OF_PROMPTS = re.compile(r"\b(?:prompt|prefill|pp\d*|input|ttft)\b", re.I)
_CLAUSE = re.compile(
    r"[,;()]|[.!?]\s|\b(?:and|but|vs|versus|while|instead of|compared (?:to|with)|over)\b|→|[-=]+>", re.I
)
_SPEEDUP = re.compile(
    rf"({_N}\s?[x×])\s?(?:speed|faster|as fast|gain|boost|uplift|improve)"
    rf"|speed-?up (?:of |is |was |= ?|: ?)?({_N}\s?[x×])"
    rf"|(\+?{_N}\s?%)\s?(?:faster|speed-?up|uplift)"
    rf"|{_UNIT}\s?\((?!1(?:[.,]0+)?\s?[x×])({_N}\s?[x×])\s?[),;]",
    re.I,
)
_IS = r"(?:\s|of|is|was|at|=|:|around|about){1,6}"
_SHARE = re.compile(
    rf"({_N}\s?%?)\s?(?:draft |token )?accept(?:ance|ed)?\b(?! len)"
    rf"|accept(?:ance|ed)?(?: rate| ratio)?{_IS}({_N}\s?%?)"
    rf"|接受率[\s为是约：:]{{0,3}}({_N}\s?%?)",
    re.I,
)
_LENGTH = re.compile(rf"accept\w*[ _-]len\w*{_IS}({_N})", re.I)
_COUNTS = re.compile(
    r"\b(\d{1,9}) (?:out )?of (?:the )?(\d{1,9}) (?:draft\w*|proposed)(?: tokens)?(?: were| was| got)? accepted"
    r"|\baccepted[ :=]{1,3}(\d{1,9}) (?:out )?of (?:the )?(\d{1,9}) (?:draft|proposed)"
    r"|\bdrafted[ :=]{1,3}(?P<drafted>\d{1,9})[, ]{1,2}(?:and )?accepted[ :=]{1,3}(?P<accepted>\d{1,9})\b(?!\.\d|%)",
    re.I,
)
_DRAFTED = re.compile(r"(?<!of )(?<!of the )\b(\d{1,2}) draft(?:ed)? tokens\b", re.I)
_LENGTH_N = re.compile(
    r"\b(?:(?:mtp|eagle\S*|draft\w*|dflash|spec\w*)[ ,(]{1,3}n ?= ?"
    r"|draft (?:(?:length|depth)[ :=]{1,3}(?:of )?|of ))(\d{1,2})\b(?!\.\d|%)",
    re.I,
)
_ITEM = re.compile(rf"\s*(?:[-*+>#]+|\d{{1,2}}[.)])\s|[^:：\n]{{1,60}}[:：] ?{_N}{_UNIT}", re.I)
_SENTENCE = re.compile(r"(?<=[.;!?])\s+")


def read_prose(lines: Sequence[str]) -> Iterator[Grid]:
    """A table of one row for each claim. In a list an item that tells plain decoding alone is the others' baseline."""
    found, plain, end = 0, "", 0
    for number, paragraph, after in _paragraphs(lines):
        plain, end = plain if number == end else "", after
        if (alone := _plain_alone(paragraph)) is not None:
            plain = alone
            continue
        parts = _SENTENCE.split(paragraph) if len(_FROM_TO.findall(paragraph)) > 1 else [paragraph]
        for part in parts:
            cells = _claimed(part)
            if plain and "decode_rate" in cells:
                cells = {"baseline_rate": plain, **cells}
            if cells and found < _MOST:
                found += 1
                grid = Grid([(name,) for name in cells], place=f"text at line {number}", above=part)
                grid.rows.append((f"line {number}", list(cells.values())))
                yield grid


def _plain_alone(text: str) -> str | None:
    """The speed of an item that tells of plain decoding and nothing else: `baseline: 23 t/s`."""
    rates = _RATE.findall(text)
    told = _PLAIN.search(text) and not (_OF_PROMPTS.search(text) or re.search(r"accept|with\b|接受", text, re.I))
    return rates[0] if len(rates) == 1 and told else None


def _paragraphs(lines: Sequence[str]) -> Iterator[tuple[int, str, int]]:
    """(line, text, line after it), up to an empty line or the next item of a list."""
    held: list[str] = []
    for number, line in enumerate([*lines, ""], start=1):
        new = _ITEM.match(line) is not None
        if held and (new or not line.strip()):
            if sum(map(len, held)) <= _LONGEST:
                yield number - len(held), " ".join(held), number
            held = []
        if line.strip():
            held.append(line.strip().strip("*_`>#- "))


def _claimed(text: str) -> dict[str, str]:
    """Heading -> cell of the claim that a text makes; empty where it makes none that can be told."""
    whole = text
    bare = _BARE.search(text)
    if bare is not None and len(_RATE.findall(text[: bare.end()])) == 1:
        text = f"{text[: bare.end()]} t/s{text[bare.end() :]}"
    counts = list(_COUNTS.finditer(text))
    text = _COUNTS.sub(" ", text)
    cells = _speeds(text)
    said = {"speedup": _once(_SPEEDUP, text), "acceptance fraction": _once(_SHARE, text)}
    share = said["acceptance fraction"]
    if share and "%" not in share and float(share.strip("~≈ ").replace(",", ".")) > 1:
        said["acceptance fraction"] = ""
    said["acceptance length"] = _once(_LENGTH, text)
    pieces = (read_settings(piece) for piece in re.split(r"[,;.]\s", text))
    lengths = {f"{piece['gamma']:g}" for piece in pieces if "gamma" in piece}
    lengths |= {*_DRAFTED.findall(text), *_LENGTH_N.findall(text)}
    said["gamma"] = lengths.pop() if len(lengths) == 1 else ""
    names = dict.fromkeys(name.lower() for name in METHODS_IN_HEADINGS.findall(text))
    said["method"] = " + ".join(name for name in names if family_by_name(name) not in {"unknown", "none"})
    if len(counts) == 1:
        accepted, drafted = counts[0]["accepted"], counts[0]["drafted"]
        if accepted is None:
            accepted, drafted = filter(None, counts[0].groups())
        said |= {"accepted": accepted, "drafted": drafted}
    said = {name: cell for name, cell in said.items() if cell}
    if not (cells or "speedup" in said) or not (names or said.keys() - {"speedup"}):
        return {}
    return {"label": shorten(whole, 60, placeholder=" …"), **cells, **said}


def _once(pattern: re.Pattern[str], text: str) -> str:
    """The number that a text says in this way; empty where it says several, or none."""
    found = {next(filter(None, match.groups())) for match in pattern.finditer(text)}
    return found.pop() if len(found) == 1 else ""


def _speeds(text: str) -> dict[str, str]:
    """The speed with drafts, and that without where the words say which is which."""
    said = _way(text)
    plain, drafts = _sides(text, said)
    return {name: f"{cell}{said.unit}" for name, cell in ((said.plain, plain), (said.heading, drafts)) if cell}


def _way(text: str) -> _Speed:
    """Whether a text tells times per token, or rates."""
    return _TIMES if _PER_TOKEN.search(text) and not _RATE.search(text) else _RATES


def _sides(text: str, said: _Speed) -> tuple[str, str]:
    """(without drafts, with them); empty where the words do not say, the first also where it is not told."""
    changes = said.from_to.findall(text)
    if len(changes) == 1 and len(said.one.findall(text)) <= 2 and not _RANGE.search(text):
        plain, drafts = filter(None, changes[0])
        return ("", "") if _OF_PROMPTS.search(text) else (plain, drafts)
    speeds = list(said.one.finditer(text))
    sides: dict[bool, list[str]] = {True: [], False: []}
    for index, speed in enumerate(speeds):
        before = text[speeds[index - 1].end() if index else 0 : speed.start()]
        after = text[speed.end() : speeds[index + 1].start() if index + 1 < len(speeds) else speed.end() + 40]
        around = f"{_CLAUSE.split(before)[-1]} | {_CLAUSE.split(after)[0]}"
        if not _OF_PROMPTS.search(around):
            sides[_PLAIN.search(around) is not None].append(speed.group(1))
    if len(sides[False]) != 1 or len(sides[True]) > 1 or _RANGE.search(text):
        return "", ""
    return "".join(sides[True]), sides[False][0]


def lacks(text: str) -> str:
    """What a text that tells of speeds lacks to be a claim; empty where it tells of none."""
    text = text[:_LONGEST]
    speeds = [" ".join(match.group(0).split()) for match in _way(text).one.finditer(text)]
    if not speeds:
        return "no speed in it has a unit, such as `41 t/s`" if re.search(r"\baccept|\bspecul", text, re.I) else ""
    if len(speeds) == 1:
        return f"beside {speeds[0]!r} it names no second speed with a unit, no speedup, and nothing of drafts"
    return f"of its speeds ({', '.join(speeds[:4])}) it does not say which is that without drafts, and which with them"
