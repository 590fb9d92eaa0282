"""A cell -> the numbers in it, each with its unit, the words near it and what its rounding leaves open.

Nothing here knows what a number means: that is for the words around it to say.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from specmeter.audit.read.document import LARGEST, MAX_CELL

MAX_TEXT = 4_000
"""Characters of a paragraph."""

_END = r"(?![a-z0-9_])"
_TOKEN = r"(?:tokens?|toks?|tk|t)"
_STEP = r"(?:steps?|rounds?|pass(?:es)?|cycles?|forwards?(?: pass(?:es)?)?|verif\w*|draft\w*|iter\w*|步|轮)"
UNITS = (
    ("rate", rf"(?:(?:output|gen\w*|completion)\s*)?{_TOKEN}\s*(?:/|\\|\s?per[\s-]|-per-)\s*(?:seconds?|sec|s){_END}"
             rf"(?:/user)?|tps{_END}|(?:tokens?|toks?|令牌|词元|个)\s?(?:/|每)\s?秒"),
    ("mspt", rf"(?:ms|milliseconds)\s*(?:/|\s?per\s)\s*(?:output )?{_TOKEN}{_END}|毫秒\s?/\s?(?:tokens?|词元|令牌|个)"),
    ("msps", rf"(?:ms|milliseconds)\s*(?:/|\s?per\s)\s*(?:verif\w* |target |draft )?{_STEP}{_END}"),
    ("tps", rf"(?:accepted )?(?:tokens?|toks?)\s*(?:/|\s?per\s)\s*(?!draft{_END})(?:verif\w* |target |draft )?"
            rf"{_STEP}{_END}"),
    ("other", rf"(?:it|req|requests?|steps?|pass(?:es)?|rounds?|drafts?)\s*(?:/|\s?per\s)\s*(?:s|sec|second){_END}"
              rf"|GB/s|TB/s|GiB/s|bits?{_END}|W{_END}|pos{_END}|°C|请求/秒"),
    ("pp", r"(?:pp|pts?|points?|p\.p\.)(?![a-z])|个?百分点"),
    ("%", rf"%|％|percent{_END}|per cent{_END}|pct{_END}"),
    ("size", rf"[GMT]i?B{_END}"),
    ("ms", rf"(?:ms|msec|milliseconds){_END}|毫秒"),
    ("us", rf"(?:us|µs|μs){_END}|微秒"),
    ("s", rf"(?:seconds?|secs?|s){_END}|秒"),
    ("min", rf"(?:minutes?|mins?){_END}|分钟"),
    ("x", r"(?:x|倍|times(?=\)|$| (?:faster|slower|as|the|more|higher|speed|quick)))(?![a-z0-9])"),
    ("tok", rf"(?:tokens?|toks?){_END}|个?词元|个?令牌"),
    ("k", rf"k{_END}"),
    ("big", rf"[BM]{_END}"),
)  # fmt: skip
"""Unit code -> how it is printed behind a number; the first that fits."""
_UNIT = "|".join(f"(?P<u{index}>{pattern})" for index, (_, pattern) in enumerate(UNITS))
NUMBER = re.compile(
    r"(?<![a-z0-9_.,])(?P<sign>[+\-]|–(?=\d)|)\s?(?P<approx>[~≈<>≥≤]?)\s?"
    r"(?P<num>[1-9]\d{0,2}(?:,\d{3}){1,5}(?:\.\d{1,20})?|\d{1,18}\.\d{1,30}(?:e[+-]?\d{1,3})?|\d{1,9},(?:\d{1,2}|\d{4,9})|0,\d{3}|\d{1,18}(?:e[+-]\d{1,3})?|\.\d{1,30})"
    rf"(?:[\s-]?(?:{_UNIT})|(?![.,]?[a-z0-9_]))",
    re.I | re.ASCII,
)
_SCALE = {"us": 0.001, "s": 1000.0, "min": 60000.0}
_SIZE = {"M": 1e-3, "G": 1.0, "T": 1e3}
_BINARY = {"M": 1.024**2, "G": 1.024**3, "T": 1.024**4}


@dataclass(frozen=True)
class Num:
    """One number of a cell. Times are in ms, sizes in GB."""

    value: float
    lo: float
    """`lo` and `hi`: what it may have been before it was rounded."""
    hi: float
    unit: str = ""
    """A code of `UNITS`; empty if none is printed."""
    words: str = ""
    """What stands behind it, or before it if nothing does."""
    bracket: bool = False
    signed: bool = False
    role: str = ""
    """`num` and `den` for the two of a pair `412/530`, `before` and `after` of an arrow, `range`."""

    def scaled(self, by: float, unit: str | None = None) -> Num:
        """The same times a factor."""
        unit = self.unit if unit is None else unit
        return replace(self, value=self.value * by, lo=self.lo * by, hi=self.hi * by, unit=unit)


_CROSSED = re.compile(r"~~[^~]{0,80}~~|<(s|del|sup)>.{0,200}?</\1>|\[\^[^\[\]]{1,20}\]", re.I)
_LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\[\]]{0,80}\]){0,300})\]\([^()\s]{0,500}\)")
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_MACRO = re.compile(r"\\(?:textbf|mathbf|text|emph|underline)\{([^{}]{0,200})\}")
_WORDS = (
    ("\\_", "_"), ("\\%", "%"), ("\\|", "/"), ("\\times", "x"), ("\\gamma", "γ"), ("\\tau", "τ"), ("\\alpha", "α"),
    ("$", ""), ("+/-", "±"), ("\\pm", "±"), ("×", "x"), ("⨉", "x"),
    ("✕", "x"), ("−", "-"), ("‑", "-"), ("﹣", "-"), ("→", " → "), ("->", " → "),
    ("=>", " → "), ("➜", " → "), ("（", " ("), ("）", ")"), ("，", ", "), ("、", ", "), ("。", ". "), ("；", "; "),
    ("：", ": "), ("\u00a0", " "), ("／", "/"),
)  # fmt: skip
_MARKS = re.compile(r"[†‡⚠️✅❌🟢🔴⭐🏆🚀★☆✓✔✗]|(?<=[0-9x%s])[⁰¹²³⁴-⁹ᵃ-ᶻ]+")
_BOLD = re.compile(r"(?<!\w)\*+|\*+(?!\w)|`+|\*\*|(?<![^\W_])_{1,2}(?=[^\W_])(?<!\w_)|(?<=[\w%])_{1,2}(?!\w)")
_VERSUS = re.compile(r"\(([~≈]?[\d.,]{1,12}) ?([a-zA-Z/]{0,8}) (?:vs\.?|versus) ([~≈]?[\d.,]{1,12} ?[a-zA-Z/]{0,8})\)")
"""In `+128% (218 vs 96 tok/s)` the second is the one before."""
_TILDE = re.compile(r"(?<=[\dx%])[~～](?=\d)")
_GROUPS = re.compile(r"(?<=\d)['’\u2009\u202f_](?=\d{3}(?!\d))")
_LIST = re.compile(r"(\.\d{1,12}%?),(?=\d)")
_MINUTES = re.compile(r"(?<![\d.])(\d{1,4})\s?m(?:in)?\s?(\d{1,2}(?:\.\d{1,6})?)\s?s(?![a-z])")


def clean(text: str, most: int = MAX_CELL) -> str:
    """A cell without markup, footnotes and what is crossed out; signs and punctuation in one spelling."""
    text = html.unescape(_CROSSED.sub(" ", text[:most]))
    text = _MACRO.sub(r"\1", _TAG.sub(" ", _LINK.sub(r"\1", text)))
    for printed, plain in _WORDS:
        if printed in text:
            text = text.replace(printed, plain)
    text = _BOLD.sub(" ", _MARKS.sub(" ", _VERSUS.sub(r"(\3 → \1 \2)", text)))
    text = _TILDE.sub("-", _LIST.sub(r"\1, ", _GROUPS.sub("", text)))
    text = _MINUTES.sub(lambda it: f"{60 * int(it[1]) + float(it[2]):g} s", text)
    return " ".join(text.split())


def point(text: str) -> str:
    """A cell whose decimal commas are points."""
    return re.sub(r"(?<![\d.,])(\d+(?:\.\d{3})*),(\d+)(?![\d.,])", lambda it: f"{it[1].replace('.', '')}.{it[2]}", text)


def _exact(token: str) -> tuple[float, float]:
    """A number and half its last digit."""
    token, _, power = token.lower().partition("e")
    plain = token.replace(",", "")
    if "," in token and "." not in token and (token[0] == "0" or not re.fullmatch(r"\d{1,3}(?:,\d{3})+", token)):
        plain = token.replace(",", ".")
    places = len(plain.partition(".")[2])
    return float(f"{plain}e{power or 0}"), 0.5 * 10.0 ** (int(power or 0) - places)


def unit_of(found: re.Match[str]) -> str:
    """The unit code of a match of `NUMBER`; empty if it has none."""
    return UNITS[int(found.lastgroup[1:])][0] if found.lastgroup and found.lastgroup[0] == "u" else ""


RESULTS = frozenset({"rate", "mspt", "msps", "tps", "%", "ms", "us", "s", "min", "x"})
"""Units of what is measured."""


def results(text: str) -> list[str]:
    """The numbers of a text that have decimals or the unit of a result, as printed."""
    found = NUMBER.finditer(text[:MAX_TEXT])
    return [it["num"] for it in found if unit_of(it) in RESULTS or ("." in it["num"] and not unit_of(it))]


def _number(found: re.Match[str], bracket: bool) -> Num:
    unit = unit_of(found)
    value, half = _exact(found["num"])
    if unit == "k":
        value, half, unit = value * 1000, half * 1000, ""
    if unit == "size":
        word = found.group().upper().replace("I", "")[-2:]
        by = _SIZE[word[0]] * (_BINARY[word[0]] if found.group().upper().endswith("IB") else 1.0)
        value, half = value * by, half * by
    low = high = half
    if found["approx"] in {"~", "≈"}:
        low = high = half + 0.05 * value
    elif found["approx"]:  # a limit
        low, high = (value, half) if found["approx"] in {"<", "≤"} else (half, 9 * value)
    if found["sign"] in {"-", "–"}:
        value = -value
    num = Num(value, value - low, value + high, unit, "", bracket, bool(found["sign"]))
    return num.scaled(_SCALE[unit], "ms") if unit in _SCALE else num


def numbers(text: str) -> list[Num]:
    """All numbers of a cleaned cell, in order."""
    return list(_numbers(text[:MAX_TEXT]))


@lru_cache(maxsize=16_384)
def _numbers(text: str) -> tuple[Num, ...]:
    found: list[tuple[int, int, Num]] = []
    depth = at = 0
    for match in NUMBER.finditer(text):
        depth += sum((mark in "([") - (mark in ")]") for mark in text[at : match.start()])
        at = match.start()
        number = _number(match, depth > 0)
        if abs(number.value) <= LARGEST:
            found.append((match.start(), match.end(), number))
    gaps = ["", *(text[one[1] : other[0]].strip() for one, other in pairwise(found)), ""]
    out: list[Num] = []
    index = 0
    while index < len(found):
        start, end, num = found[index]
        after = found[index + 1] if index + 1 < len(found) else None
        if after is not None:
            between = gaps[index + 1]
            if between == "/" and "/" in {gaps[index], gaps[index + 2]}:
                between = ","  # a list of three or more, and no pair
            num, behind, together = _joined(num, after[2], between, text[after[0] : after[0] + 2])
            found[index + 1] = (after[0], after[1], behind)
            if together:
                index, end = index + 1, after[1]
        left = found[index - 1][1] if index and found[index - 1][1] <= start else 0
        right = found[index + 1][0] if index + 1 < len(found) else len(text)
        near = text[end:right] if text[end:right].strip(" ,;()/") else text[left:start]
        out.append(replace(num, words=" ".join(re.sub(r"[^\w ]+", " ", near).split())))
        index += 1
    return tuple(out)


def _joined(num: Num, after: Num, between: str, begins: str) -> tuple[Num, Num, bool]:
    """Two numbers in the light of what stands between them, and whether they are one: `138 ± 0.3`, `0.5-0.9`."""
    unit = num.unit or after.unit
    minus = between == "" and begins == "- " and not num.signed
    if between == "±":
        spread = max(abs(after.value), num.hi - num.value)
        return replace(num, lo=num.value - spread, hi=num.value + spread, unit=unit), after, True
    if (between in {"-", "–", "to", "..", "~", "—", "至"} or minus) and abs(after.value) >= num.value:
        high = abs(after.value) + after.hi - after.value
        return replace(num, value=(num.value + abs(after.value)) / 2, hi=high, unit=unit, role="range"), after, True
    if between in {"/", "of", "out of", "of the"} and (
        num.unit == after.unit or (not num.unit and after.unit == "tok")
    ):
        return replace(num, role="num"), replace(after, role="den"), False
    if between == "→":
        return replace(num, role="before", unit=unit), replace(after, role="after"), False
    return num, after, False


EMPTY = re.compile(
    r"[-–—\s]*|n/?a\b.*|nan|null|none reported|not (?:run|measured|reported)|\.\.\.|…|tbd|\?+|-+\s*\(.*\)", re.I
)
"""A cell without a value."""
_ASIDE = re.compile(
    r"\([^()]*\)|mean|median|avg|average|accept\w*|acc\b|weighted|worse|better|faster|slower|narr\w*|code|prose|total"
    r"|pooled"
)
NAME = re.compile(r"\d+ ?x [A-Z]|\d+[ -]?bits?\b|\d+(?:\.\d+)?B$|\d{4}-\d\d-\d\d")
"""`2x RTX 4090`, `8-bit`, `0.8B`, `2026-01-01`."""
_STRONG = frozenset({"rate", "x", "%"})


@lru_cache(maxsize=16_384)
def is_number(text: str) -> bool:
    """Whether a cleaned cell is a number with trimmings rather than a name that holds one."""
    text = text[:MAX_CELL]
    first = NUMBER.search(text)
    if first is None or EMPTY.fullmatch(text):
        return False
    nums = numbers(text)
    before, after = text[: first.start()], text[first.end() :]
    if not nums or NAME.match(text):
        return False
    if nums[0].unit in {"big", "size"} and re.search(r"[A-Za-z]{2,}", after) and not re.match(r"\s*[(,;/]", after):
        return False
    trailing = re.findall(r"[A-Za-z]{2,}", NUMBER.sub(" ", _ASIDE.sub("", after)))
    if not re.search(r"\w", before):
        return len(trailing) <= 2 or (any(num.unit in _STRONG for num in nums) and len(trailing) <= 8)
    strong = any(num.unit in _STRONG or num.unit == "ms" for num in nums)
    return strong and len(re.findall(r"\w+", before)) <= 2 and not re.search(r"[=:]", before) and len(trailing) <= 2
