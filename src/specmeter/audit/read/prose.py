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

from specmeter.audit.claim import draft_lengths, family_by_name
from specmeter.audit.read.columns import METHODS_IN_HEADINGS, WHOLE_RUN, in_english
from specmeter.audit.read.grid import Grid

_LONGEST = 4_000
"""Characters of a paragraph."""
_MAX_CLAIMS = 1_000
"""Claims of a text."""
_N = r"[~≈]?(?<![a-zA-Z0-9_.])\d{1,6}(?:[.,]\d{1,4})?"
_UNIT = r"\s?(?:(?:toks?|tokens?|t)\s?(?:/|per\s)\s?s(?:ec(?:ond)?)?|tps)(?![a-zA-Z0-9_])"
_PERCENT_WORD = re.compile(r"(?<=\d)\s?(?:per ?cent|pct)\b", re.I)
_PUNCTUATION = str.maketrans({"，": ", ", "、": ", ", "。": ". ", "；": "; ", "：": ": ", "（": " (", "）": ") "})
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
            rf"|[从由]\s?({_N})(?:{printed})?\s?[提升高增加涨变降低下了快慢]{{0,4}}[到至为]\s?({_N}){printed}",
            re.I,
        ),
        unit,
    )


_RATES = _speed("decode_rate", "baseline_rate", _UNIT)
_TIMES = _speed("ms_per_token", "baseline_ms_per_token", _MS, " ms")
_PER_TOKEN = re.compile(
    r"\btpot\b|\b(?:time|latency) per (?:output |generated )?token\b|(?<![a-z])ms\s?(?:/|per\s)\s?tok"
    r"|每个?\s?(?:token|词元)\s?的?(?:耗时|时间|延迟)",
    re.I,
)
_BARE = re.compile(
    rf"{_UNIT}(?: (?:up |down )?to|.{{0,60}}?(?:\b(?:vs\.?|versus)|\bwith (?:the|a|my) (?:drafts?(?: model)?|drafter)))"
    rf"(?: at| is|:)? ({_N})(?=\s*(?:[(;]|,\s|\.(?:\s|$)|$))",
    re.I,
)
"""A speed that leaves its unit to the one before it."""
_RANGE = re.compile(r"\b(?:rang\w+|var(?:y|ies|ied)|between|anywhere|fluctuat\w+|depend\w+)\b", re.I)
_PLAIN = re.compile(
    r"\b(?:baseline|without|w/o|vanilla|autoregressive|off|before|stock|plain|ohne"
    r"|no (?:drafts?|spec\w*|sd|mtp|eagle\S*)|base(?=\s*[:=(~≈\d|]|\s(?:is|was|at|speed|rate)\b))(?!\w)",
    re.I,
)
_OF_PROMPTS = re.compile(r"\b(?:prompt|prefill|pp\d*|input|ttft)\b", re.I)
_CLAUSE = re.compile(
    r"[,;()]|[.!?]\s|\b(?:and|but|vs|versus|while|instead of|compared (?:to|with)|over)\b|→|[-=]+>", re.I
)
_SPEEDUP = re.compile(
    rf"({_N}\s?[x×])\s?(?:speed|faster|as fast|gain|boost|uplift|improve)"
    rf"|speed[- ]?up (?:of |is |was |= ?|: ?)?({_N}\s?[x×])"
    r"|speed[- ]?up (?:of |is |was |= ?|: ?)(\d{1,2}[.,]\d{1,3})"
    r"(?=\s?(?:[,;)]|\.(?:\s|$)|$|(?:at|with|for|over|on|and) ))"
    rf"|加速比?[\s为是约达了到:]{{0,3}}({_N}\s?(?:[x×]|倍))"
    rf"|(\+?{_N}\s?%)\s?(?:speed-?up|uplift)"
    rf"|{_UNIT}\s?\((?!1(?:[.,]0+)?\s?[x×])({_N}\s?[x×])\s?[),;]",
    re.I,
)
_EXACTLY = "".join(
    f"(?<!{word})" for word in ("about ", "around ", "roughly ", "almost ", "nearly ", "over ", "than ", "to ")
)
_CHANGE = re.compile(
    rf"{_EXACTLY}(?<![\w.,~≈–-])(\d{{1,4}}(?:[.,]\d{{1,2}})?\s?%)\s?(?:faster|quicker)"
    r"(?! (?:prompt|prefill|pp\b|ttft)| than (?!(?:the |my )?(?:baseline|plain|vanilla|stock|no |without|before)))"
    rf"|(?:(?:faster|quicker) by|快了?|速度提升了?)\s?(\d{{1,4}}(?:[.,]\d{{1,2}})?\s?%)",
    re.I,
)
"""`60% faster` needs no sign: its speedup is 1.6."""
_PERCENT_OF = re.compile(
    rf"({_N})\s?%\s?(?:as fast|of (?:the|its|my|that) (?:(?:baseline|original|plain|normal|usual) )?speed)", re.I
)
_IS = r"(?:\s|of|is|was|at|=|:|~|≈|around|about){1,6}"
_SHARE = re.compile(
    rf"({_N}\s?%?)\s?(?:draft |token )?accept(?:ance|ed)?\b(?! len)"
    rf"|({_N}\s?%) of (?:them|(?:the |its |all )?(?:draft\w*|proposed|guessed)(?: tokens)?)"
    r" (?:(?:is|are|was|were|get|gets|got|being) )?accepted\b"
    rf"|accept(?:ance|ed)?(?: rate| ratio)?{_IS}({_N}\s?%?)"
    rf"|(?:α|\balpha){_IS}({_N}\s?%?)"
    rf"|接受率[\s为是约:]{{0,3}}({_N}\s?%?)",
    re.I,
)
_LENGTH = re.compile(rf"accept\w*[ _-]len\w*{_IS}({_N})", re.I)
_PERCENT = rf"{_N}\s?%"
_OF = r"(?:out )?of (?:the )?"
_COUNTS = re.compile(
    rf"(?<![\d.,])(\d{{1,9}}) {_OF}(\d{{1,9}}) (?:draft\w*|proposed)(?: tokens)?(?: were| was| got)? accepted"
    rf"(?:\s?\((?P<behind>{_PERCENT})\))?"
    rf"|\baccepted[ :=]{{1,3}}(\d{{1,9}}) {_OF}(\d{{1,9}}) (?:draft|proposed)"
    rf"|(?P<before>accept(?:ance|ed)?(?: rate| ratio)?{_IS}{_N}\s?%?|{_PERCENT}\s?(?:draft |token )?accept\w{{0,4}})"
    rf"\s?\((\d{{1,9}})(?: accepted)?(?:\s?/\s?| {_OF})(\d{{1,9}})(?: draft\w*| generated)?(?: tokens)?\)"
    r"|(?<![\d.,])(?P<drafts>\d{1,9}) (?:drafted|proposed)(?: tokens)?[, ]{1,2}(?:and )?(?P<kept>\d{1,9}) accepted\b"
    r"|\bdrafted[ :=]{1,3}(?P<drafted>\d{1,9})[, ]{1,2}(?:and )?accepted[ :=]{1,3}(?P<accepted>\d{1,9})\b(?!\.\d|%)",
    re.I,
)
_COUNTED = (("accepted", "kept"), ("drafted", "drafts"))
_PER_STEP = re.compile(rf"(?<![\d.,])(\d{{1,2}}\.\d{{1,3}}) {_OF}(\d{{1,2}}) (?:draft\w*|proposed)(?: tokens)?\b", re.I)
"""Accepted tokens with decimals are a mean over steps, not a count."""
_LENGTHS = re.compile(
    r"(?<!of )(?<!of the )\b(\d{1,2}) draft(?:ed)? tokens\b"
    r"|\b(\d{1,2})[ -]tok(?:en)?s? drafts?\b|\b(\d{1,2}) tok(?:en)?s? (?:per|a|each) draft\b"
    r"|\bdraft(?:s|ing)? (?:(?:length|depth)[ :=]{1,3}(?:of )?|of |up to )(\d{1,2})\b(?!\.\d|%)"
    rf"|\b(?:{METHODS_IN_HEADINGS.pattern})(?: model)?\s?[,(]\s?(\d{{1,2}}) tok(?:en)?s?\b"
    r"(?!\s?(?:/|per |in |accept|generat))"
    r"|每步\s?(?:起草|草拟|推测|预测|猜)?\s?(\d{1,2})\s?个(?!接受|被)|草稿长度[\s为是:=]{0,3}(\d{1,2})(?![\d.%])|(?<!\d)(\d{1,2})\s?个?草稿\s?(?:token|词元|标记)",
    re.I,
)
_TOLD = {"speedup": _SPEEDUP, "change": _CHANGE, "acceptance fraction": _SHARE, "acceptance length": _LENGTH}
"""Heading -> how a text says a number of it."""
_OF_ELSE = re.compile(rf"{_OF_PROMPTS.pattern}|\b(?:load|start|compil|build|train|download)\w*", re.I)
_OF_THE_WHOLE = re.compile(rf"{_OF_ELSE.pattern}|{WHOLE_RUN.pattern}|\b(?:whole|entire)\b|整体|整个|端到端|总", re.I)
"""Beside rates of decoding, which tell the gain of that themselves, a gain of the whole run is another one."""
_GAINS = (_SPEEDUP, _CHANGE, _PERCENT_OF)
_SPEEDUPS = frozenset({"speedup", "change"})
_TIMED = re.compile(rf"(?<![\d.,])(\d{{1,6}}) tok(?:en)?s? in ({_N})\s?s(?:ec(?:onds?)?)?\b", re.I)
_ITEM = re.compile(rf"\s*(?:[-*+>#]+|\d{{1,2}}[.)])\s|[^:：\n]{{1,60}}[:：] ?{_N}{_UNIT}", re.I)
_SENTENCE = re.compile(r"(?<=[.;!?])\s+")


def read_prose(lines: Sequence[str]) -> Iterator[Grid]:
    """A table of one row for each claim. In a list an item that tells decoding without speculation alone is the others'
    baseline."""
    found, plain, end = 0, "", 0
    for number, paragraph, after in _paragraphs(lines):
        plain, end = plain if number == end else "", after
        if (alone := _plain_alone(paragraph)) is not None:
            plain = alone
            continue
        parts = _SENTENCE.split(paragraph) if len(_RATES.from_to.findall(paragraph)) > 1 else [paragraph]
        for part in parts:
            cells = _claimed(part)
            if plain and "decode_rate" in cells:
                cells = {"baseline_rate": plain, **cells}
            if cells and found < _MAX_CLAIMS:
                found += 1
                grid = Grid([(name,) for name in cells], place=f"text at line {number}", above=part)
                grid.rows.append((f"line {number}", list(cells.values())))
                yield grid


def _plain_alone(text: str) -> str | None:
    """The speed of an item that tells of decoding without speculation and nothing else: `baseline: 23 t/s`."""
    rates = _RATES.one.findall(text)
    told = _is_plain(text) and not (_OF_PROMPTS.search(text) or re.search(r"accept|with\b|接受", text, re.I))
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
    whole, text = text, _spelled(text)
    bare = _BARE.search(text)
    if bare is not None and len(_RATES.one.findall(text[: bare.end()])) == 1:
        text = f"{text[: bare.end()]} t/s{text[bare.end() :]}"
    counts = list(_COUNTS.finditer(text))
    text = _COUNTS.sub(lambda it: it["before"] or (f"accepted: {it['behind']}" if it["behind"] else " "), text)
    cells = _speeds(text)
    other = _OF_THE_WHOLE if len(cells) > 1 else _OF_ELSE
    said = {name: _once(pattern, text, other) for name, pattern in _TOLD.items()}
    if ratio := _once(_PERCENT_OF, text, other):
        said["speedup"] = f"{float(ratio.strip('~≈').replace(',', '.')) / 100:.2f}x"
    share = said["acceptance fraction"]
    if share and "%" not in share and float(share.strip("~≈ ").replace(",", ".")) > 1:
        said["acceptance fraction"] = ""
    lengths = {str(length) for length in draft_lengths(text)} | {_number(match) for match in _LENGTHS.finditer(text)}
    if len(per_step := _PER_STEP.findall(text)) == 1:
        said["accepted_drafts_per_step"] = per_step[0][0]
        lengths.add(per_step[0][1])
    said["gamma"] = lengths.pop() if len(lengths) == 1 else ""
    names = dict.fromkeys(name.lower() for name in METHODS_IN_HEADINGS.findall(in_english(text)))
    families = {name: family for name in names if (family := family_by_name(name)) not in {"unknown", "none"}}
    own = [name for name, family in families.items() if family != "model"]  # in `MTP, 4 draft tokens` MTP drafts
    said["method"] = " + ".join(own or [*families][:1])
    if len(counts) == 1:
        accepted, drafted = (counts[0][name] or counts[0][other] for name, other in _COUNTED)
        if accepted is None:
            accepted, drafted = (it for it in counts[0].groups() if it and it.isdecimal())
        said |= {"accepted": accepted, "drafted": drafted}
    said = {name: cell for name, cell in said.items() if cell}
    if not (cells or _SPEEDUPS & said.keys()) or not (names or said.keys() - _SPEEDUPS):
        return {}
    return {"label": shorten(whole, 60, placeholder=" …"), **cells, **said}


def _once(pattern: re.Pattern[str], text: str, other: re.Pattern[str]) -> str:
    """The number that a text says in this way, gains of something `other` aside; empty where it says several, or
    none."""
    found = {
        _number(match)
        for match in pattern.finditer(text)
        if pattern not in _GAINS or not other.search(_CLAUSE.split(text[: match.start()])[-1])
    }
    return found.pop() if len(found) == 1 else ""


def _number(match: re.Match[str]) -> str:
    return next(filter(None, match.groups()))


def _spelled(text: str) -> str:
    """A text with the punctuation of English and with %, and with tokens per second where it tells of tokens and their
    seconds."""
    text = _PERCENT_WORD.sub("%", text.translate(_PUNCTUATION))
    return text if _RATES.one.search(text) else _TIMED.sub(_rate_of, text)


def _rate_of(timed: re.Match[str]) -> str:
    seconds = float(timed[2].strip("~≈").replace(",", "."))
    return f"{int(timed[1]) / seconds:.1f} t/s" if seconds else timed[0]


def _speeds(text: str) -> dict[str, str]:
    """The speed with drafts, and that without where the words say which is which."""
    said = _way(text)
    plain, drafts = _sides(text, said)
    return {name: f"{cell}{said.unit}" for name, cell in ((said.plain, plain), (said.heading, drafts)) if cell}


def _way(text: str) -> _Speed:
    """Whether a text tells times per token, or rates."""
    return _TIMES if _PER_TOKEN.search(text) and not _RATES.one.search(text) else _RATES


def _sides(text: str, said: _Speed) -> tuple[str, str]:
    """(without drafts, with them); empty where the words do not say, the first also where it is not told."""
    if _RANGE.search(text):
        return "", ""
    changes, speeds = list(said.from_to.finditer(text)), list(said.one.finditer(text))
    if len(changes) == 1:
        change = changes[0]
        others = [it for it in speeds if not change.start() <= it.start() < change.end()]
        of_prompts = bool(others) and all(_OF_PROMPTS.search(_around(text, it)) for it in others)
        if of_prompts or len(speeds) <= 2:
            plain, drafts = filter(None, change.groups())
            return ("", "") if _OF_PROMPTS.search(_around(text, change) if of_prompts else text) else (plain, drafts)
    sides: dict[bool, list[str]] = {True: [], False: []}
    for index, speed in enumerate(speeds):
        first = speeds[index - 1].end() if index else 0
        last = speeds[index + 1].start() if index + 1 < len(speeds) else speed.end() + 40
        around = _around(text, speed, first, last)
        if not _OF_PROMPTS.search(around):
            sides[_is_plain(around)].append(speed.group(1))
    if len(sides[False]) != 1 or len(sides[True]) > 1:
        return "", ""
    return "".join(sides[True]), sides[False][0]


def _around(text: str, speed: re.Match[str], first: int = 0, last: int | None = None) -> str:
    """The words of a speed's own clause; brackets around it alone, `(23 t/s) without`, end none."""
    before, after = text[first : speed.start()].rstrip("( "), text[speed.end() : last].lstrip(") ")
    return f"{_CLAUSE.split(before)[-1]} | {_CLAUSE.split(after)[0]}"


def _is_plain(words: str) -> bool:
    return _PLAIN.search(in_english(words)) is not None


def lacks(text: str) -> str:
    """What a text that tells of speeds lacks to be a claim; empty where it tells of none."""
    text = _spelled(text[:_LONGEST])
    speeds = [" ".join(match.group(0).split()) for match in _way(text).one.finditer(text)]
    if not speeds:
        return "no speed has a unit, such as `41 t/s`" if re.search(r"\baccept|\bspecul", text, re.I) else ""
    if len(speeds) == 1:
        return f"{speeds[0]!r} is the only speed with a unit, and there is no speedup or draft length"
    if all(_sides(text, _way(text))):
        return "two speeds, but no acceptance or draft length"
    return f"it is unclear which of the speeds ({', '.join(speeds[:4])}) is without speculation"
