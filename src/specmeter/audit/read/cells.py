"""A cell -> the numbers in it, each with a unit, the words near it and what its rounding leaves open."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, replace

RATE = r"(?:(?:output|gen\w*|completion)\s*)?(?:tokens?|toks?|tk|t)\s*(?:/|\\|\s?per[\s-]|-per-)\s*(?:seconds?|sec|s)\b(?:/user)?|tps\b|令牌/秒"
UNITS = [
    ("rate", RATE),
    ("mspt", r"(?:ms|milliseconds)\s*(?:/|\s?per\s)\s*(?:tokens?|toks?|t)\b"),
    ("msps", r"(?:ms|milliseconds)\s*(?:/|\s?per\s)\s*(?:steps?|rounds?|pass|cycles?|forward)\b"),
    (
        "tps",
        r"(?:tokens?|toks?)\s*(?:/|\s?per\s)\s*(?:steps?|rounds?|pass(?:es)?|cycles?|forwards?|verif\w*|draft\w*|iter\w*)\b",
    ),
    (
        "other",
        r"(?:it|req|requests?|steps?|pass(?:es)?|rounds?|drafts?)\s*(?:/|\s?per\s)\s*(?:s|sec|second)\b|GB/s|TB/s|GiB/s|bits?\b|W\b|pos\b|°C",
    ),
    ("pp", r"(?:pp|pts?|points?|p\.p\.)(?![a-z])"),
    ("%", r"%|％|percent\b|pct\b"),
    ("size", r"(?:[GMT]i?B)\b"),
    ("ms", r"(?:ms|msec|milliseconds)\b"),
    ("us", r"(?:us|µs|μs)\b"),
    ("s", r"(?:seconds?|secs?|s)\b"),
    ("min", r"(?:minutes?|mins?)\b"),
    ("x", r"(?:x|倍|times)(?![a-z\d])"),
    ("tok", r"(?:tokens?|toks?)\b"),
    ("k", r"k\b"),
    ("big", r"[BM]\b"),
]
_UNIT = "|".join(f"(?P<u{i}>{rx})" for i, (_, rx) in enumerate(UNITS))
NUMBER = re.compile(
    r"(?<![\w.,])(?P<sign>[+\-]?)\s?(?P<approx>[~≈<>≥≤]?)\s?(?P<num>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d+|\d+|\.\d+)"
    rf"(?:\s?(?:{_UNIT})|(?![\w.]*\w))",
    re.I,
)
SCALE = {"us": 0.001, "s": 1000.0, "min": 60000.0}


@dataclass(frozen=True)
class Num:
    """One number of a cell. `lo` and `hi` are what it may have been before it was rounded."""

    value: float
    lo: float
    hi: float
    unit: str = ""
    words: str = ""
    bracket: bool = False
    signed: bool = False
    role: str = ""
    """`num` and `den` for the two of a pair `412/530`, `before` and `after` of an arrow."""

    def scaled(self, by: float, unit: str | None = None) -> "Num":
        return replace(
            self, value=self.value * by, lo=self.lo * by, hi=self.hi * by, unit=self.unit if unit is None else unit
        )


def clean(text: str) -> str:
    """A cell without markup, footnotes and what is crossed out; signs unified."""
    text = html.unescape(re.sub(r"~~.*?~~|<s>.*?</s>|<del>.*?</del>", " ", text))
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"</?[a-zA-Z][^>]*>", " ", text).replace("\\_", "_").replace("\\%", "%").replace("\\|", "/")
    text = re.sub(r"\\(?:textbf|mathbf|text|emph|underline)\{([^{}]*)\}", r"\1", text)
    text = (
        re.sub(r"\$?\\times\$?", "x", text)
        .replace("$\\gamma$", "γ")
        .replace("$\\tau$", "τ")
        .replace("$\\alpha$", "α")
        .replace("$", "")
    )
    for a, b in (
        ("×", "x"),
        ("−", "-"),
        ("‑", "-"),
        ("⨉", "x"),
        ("→", " → "),
        ("->", " → "),
        ("=>", " → "),
        ("（", "("),
        ("）", ")"),
        ("，", ", "),
        ("\u00a0", " "),
        ("\u202f", ""),
    ):
        text = text.replace(a, b)
    text = re.sub(r"[†‡⚠️✅❌🟢🔴⭐🏆🚀]|\^\[?\d\]?", " ", text)
    text = re.sub(r"(?<!\w)\*+|\*+(?!\w)|`+|(?<=\w)\*\*|\*\*(?=\w)", " ", text)
    text = re.sub(
        r"\b(\d+)\s?m(?:in)?\s?(\d{1,2}(?:\.\d+)?)\s?s\b", lambda m: f"{60 * int(m[1]) + float(m[2]):g} s", text
    )
    return re.sub(r"\s+", " ", text).strip()


def _exact(token: str) -> tuple[float, float]:
    """A number and half its last digit."""
    plain = token.replace(",", "")
    places = len(plain.split(".")[1]) if "." in plain else 0
    return float(plain), 0.5 * 10.0**-places


def numbers(text: str) -> list[Num]:
    """All numbers of a cleaned cell, in order."""
    found: list[tuple[int, int, Num]] = []
    for m in NUMBER.finditer(text):
        unit = next((UNITS[i][0] for i in range(len(UNITS)) if m[f"u{i}"]), "")
        value, half = _exact(m["num"])
        if unit == "k" or (unit == "big" and False):
            value, half, unit = value * 1000, half * 1000, ""
        if m["approx"]:
            half += 0.05 * value
        if m["sign"] == "-":
            value = -value
        depth = (
            text.count("(", 0, m.start())
            - text.count(")", 0, m.start())
            + text.count("[", 0, m.start())
            - text.count("]", 0, m.start())
        )
        scale = SCALE.get(unit, 1.0)
        if unit == "size":
            word = m.group(0)[-3:].strip().upper()
            power = {"M": 1e-3, "G": 1.0, "T": 1e3}[word[-2 if not word.endswith("IB") else -3]]
            by = power * (1.074 if word.endswith("IB") else 1.0)
            value, half = value * by, half * by
        num = Num(value, value - half, value + half, unit, "", depth > 0, bool(m["sign"]))
        found.append((m.start(), m.end(), num.scaled(scale, "ms") if unit in SCALE else num))
    out: list[Num] = []
    i = 0
    while i < len(found):
        start, end, num = found[i]
        after = found[i + 1] if i + 1 < len(found) else None
        between = text[end : after[0]].strip() if after else ""
        if after and between in {"±", "+/-", "+-", "+ / -"}:
            spread = abs(after[2].value)
            num = replace(num, lo=num.value - spread, hi=num.value + spread, unit=num.unit or after[2].unit)
            i, end = i + 1, after[1]
        elif (
            after
            and (
                between in {"-", "–", "to", "..", "~", "—"}
                or (between == "" and after[2].signed and after[2].value < 0 and not num.signed and text[end] in "-–")
            )
            and not num.bracket
        ):
            high = abs(after[2].value)
            if high >= num.value:
                num = replace(
                    num,
                    value=(num.value + high) / 2,
                    hi=after[2].hi if after[2].value > 0 else high,
                    unit=num.unit or after[2].unit,
                    role="range",
                )
                i, end = i + 1, after[1]
        elif (
            after
            and between in {"/", "of", "out of"}
            and (num.unit == after[2].unit or not num.unit and after[2].unit == "tok")
        ):
            num = replace(num, role="num")
            found[i + 1] = (after[0], after[1], replace(after[2], role="den"))
        elif after and between == "→":
            num = replace(num, role="before", unit=num.unit or after[2].unit)
            found[i + 1] = (after[0], after[1], replace(after[2], role="after"))
        left = found[i - 1][1] if i and found[i - 1][1] <= start else 0
        right = found[i + 1][0] if i + 1 < len(found) else len(text)
        words = re.sub(r"[^\w ]+", " ", text[end:right] if text[end:right].strip(" ,;()/") else text[left:start])
        out.append(replace(num, words=" ".join(words.split())))
        i += 1
    return out


EMPTY = re.compile(
    r"[-–—\s]*|n/?a\b.*|nan|none reported|not (run|measured|reported)|\.\.\.|…|tbd|\?+|-+\s*\(.*\)", re.I
)
_SETTING = re.compile(r"^[^\d]*\b(?:[a-z]\w*[ _-]?)(?:=|:)\s?\d", re.I)


def is_number(text: str) -> bool:
    """Whether a cleaned cell is a number with trimmings rather than a name that holds one."""
    nums = numbers(text)
    if not nums or EMPTY.fullmatch(text):
        return False
    first = NUMBER.search(text)
    assert first
    before, after = text[: first.start()], text[first.end() :]
    if nums[0].unit in {"big", "size"} and re.search(r"[A-Za-z]{2,}", after) and not re.match(r"\s*[(,;/]", after):
        return False
    letters = re.sub(
        r"\([^)]*\)|mean|median|avg|average|accept\w*|acc\b|weighted|worse|better|faster|slower|narr\w*|code|prose|total|pooled",
        "",
        after,
    )
    trailing = re.findall(r"[A-Za-z]{2,}", NUMBER.sub(" ", letters))
    if not re.search(r"\w", before):
        return len(trailing) <= 2 or any(n.unit in {"rate", "x", "%"} for n in nums) and len(trailing) <= 8
    words = re.findall(r"\w+", before)
    return (
        len(words) <= 2
        and any(n.unit in {"rate", "x", "%", "ms"} for n in nums)
        and not re.search(r"[=:]", before)
        and len(trailing) <= 2
    )
