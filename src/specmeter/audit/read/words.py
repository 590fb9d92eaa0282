"""What words say by themselves: `meanings.toml` as rules and columns, and headings in one spelling and language."""

from __future__ import annotations

import operator
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Literal

from specmeter.audit.claim import draft_lengths

Kind = Literal[
    "text", "rate", "spread", "ratio", "change", "share", "count", "time", "interval", "bytes", "bandwidth", "tau",
    "length", "per_step", "value", "flag",
]  # fmt: skip
IGNORE = "ignore"
LIMIT = 300
"""Letters of a heading that are read."""


@dataclass(frozen=True)
class Column:
    """A canonical column: a heading that is its name is certain, and `--column HEADING=NAME` chooses it."""

    name: str
    kind: Kind
    meaning: str = ""
    """One line; empty: what its name says."""
    aliases: tuple[str, ...] = ()
    quantity: str = ""
    """Empty: it goes straight into the claim."""
    side: str = ""
    rival: str = ""
    """Another quantity that it may as well be."""
    scale: float = 1.0
    of_row: bool = False
    """True of the whole row, whatever its groups are."""
    everyday: bool = False
    """A word that also heads columns of something else: its name alone is evidence, not certain."""


# --- the data ---------------------------------------------------------------------------------------------------------

Test = Callable[[object, frozenset[str]], bool]
"""Of the facts of a stream and the quantities that have been named so far."""


@dataclass(frozen=True)
class Rule:
    """Points that count where all tests hold and the pattern is found."""

    points: Mapping[str, float]
    tests: tuple[Test, ...] = ()
    pattern: re.Pattern[str] = re.compile("")
    alone: bool = False
    """It takes the place of all evidence before it."""


@dataclass(frozen=True)
class Form:
    """What a quantity may be on closer inspection, at a cost in nats."""

    quantity: str
    tests: tuple[Test, ...]
    basis: str = ""
    cost: float = 0.0
    side: str | None = None
    """Empty: none, whatever the heading says."""


@dataclass(frozen=True)
class Book:
    """`meanings.toml`, compiled."""

    columns: tuple[Column, ...]
    by_name: Mapping[str, Column]
    """Columns by name and alias."""
    conditions: tuple[str, ...]
    """Columns of text that choose a row's baseline among several."""
    words: tuple[Rule, ...]
    rules: tuple[Rule, ...]
    checks: tuple[Rule, ...]
    forms: Mapping[str, list[Form]]
    units: Mapping[str, frozenset[str]]
    """Quantities that a unit allows."""
    heading_units: Mapping[str, re.Pattern[str]]
    spellings: tuple[tuple[re.Pattern[str], str], ...]
    sides: tuple[tuple[re.Pattern[str], str], ...]
    """Spellings of words that tell a side."""
    patterns: Mapping[str, re.Pattern[str]]
    common: frozenset[str]
    sharp: float
    """Nats per point."""
    chinese: Mapping[str, str]
    simplified: Mapping[int, int]


def _pattern(given: str | list[str]) -> re.Pattern[str]:
    return re.compile(given if isinstance(given, str) else "|".join(given), re.I)


def _rule(given: Mapping[str, Any]) -> Rule:
    tests = tuple(map(_test, given.get("when", ())))
    return Rule(given["points"], tests, _pattern(given.get("pattern", "")), given.get("alone", False))


@lru_cache(maxsize=1)
def load() -> Book:
    """The data, read once."""
    text = (resources.files("specmeter.audit.read") / "meanings.toml").read_text(encoding="utf-8")
    data: dict[str, Any] = tomllib.loads(text)
    chinese, aliases = data["chinese"], data["aliases"]
    columns = tuple(
        Column(name=it, aliases=tuple(aliases.get(it, ())), **data["columns"][it]) for it in data["columns"]
    )
    forms: dict[str, list[Form]] = {}
    for it in data["forms"]:
        given = {name: value for name, value in it.items() if name not in {"of", "quantity", "when"}}
        forms.setdefault(it["of"], []).append(
            Form(it.get("quantity", it["of"]), tuple(map(_test, it.get("when", ()))), **given)
        )
    return Book(
        columns=columns,
        by_name={alias: it for it in reversed(columns) for alias in (*it.aliases, it.name)},
        conditions=tuple(data["conditions"]),
        words=tuple(map(_rule, data["words"])),
        rules=tuple(map(_rule, data["rules"])),
        checks=tuple(map(_rule, data["checks"])),
        forms=forms,
        units={unit: frozenset({*within, IGNORE}) for unit, within in data["units"].items()},
        heading_units={unit: _pattern(it) for unit, it in data["heading_units"].items()},
        spellings=tuple((_pattern(it["pattern"]), it["as"]) for it in data["spellings"]),
        sides=tuple((_pattern(it["pattern"]), it["as"]) for it in data["sides"]),
        patterns={name: _pattern(it) for name, it in data["patterns"].items()},
        common=frozenset(data["common"].split()),
        sharp=data["sharp"],
        chinese={word: english for english, words in chinese["words"].items() for word in words.split()},
        simplified=str.maketrans(chinese["traditional"], chinese["simplified"]),
    )


def _test(text: str) -> Test:
    """One test: a fact, `unit x`, `has rate`, `middle > 3` or `heading ~ pattern`, `not` before it for the contrary."""
    plain = text.removeprefix("not ")
    if plain != text:
        contrary = _test(plain)
        return lambda facts, named: not contrary(facts, named)
    if " ~ " in plain:
        zone, _, pattern = plain.partition(" ~ ")
        found = re.compile(pattern, re.I)
        return lambda facts, _: found.search(getattr(facts, zone)) is not None
    name, _, rest = plain.partition(" ")
    if name == "has":
        return lambda _, named: rest in named
    if rest[:1] in {"<", ">"}:
        sign, limit = rest.split()
        compare = {">": operator.gt, "<": operator.lt, "<=": operator.le}[sign]
        return lambda facts, _: compare(getattr(facts, name), float(limit))
    if rest and name in {"unit", "slot", "side"} and plain != "unit in cells":
        return lambda facts, _: getattr(facts, name) == rest
    attribute = plain.replace(" ", "_")
    return lambda facts, _: bool(getattr(facts, attribute))


# --- words ------------------------------------------------------------------------------------------------------------


def in_english(text: str) -> str:
    """The text with its Chinese words in English; unchanged where it has none. `unknown` stands for the others.

    Traditional characters are made simplified first. It is read from left to right, the longest known word first;
    characters that stand in no known word leave a mark, so that nothing is understood by half.
    """
    if not re.search(r"[\u3400-\u9fff]", text):
        return text
    book, out, at = load(), list[str](), 0
    text = text.translate(book.simplified)
    longest = max(map(len, book.chinese))
    while at < len(text):
        for size in range(min(longest, len(text) - at), 0, -1):
            if (word := book.chinese.get(text[at : at + size].lower())) is not None:
                out.append(f" {word} ")
                at += size
                break
        else:
            out.append(" unknown " if re.match(r"[\u3400-\u9fff]", text[at]) else text[at])
            at += 1
    return "".join(out)


@lru_cache(maxsize=4096)
def norm(text: str) -> str:
    """A heading in one spelling: lower case, units as words, Chinese words in English."""
    text = re.sub(r"_|‐|(?<=[a-z]{3})-(?=[a-z])", " ", in_english(text[:LIMIT]).lower())
    for pattern, spelling in load().spellings:
        text = pattern.sub(spelling, text)
    return " ".join(text.split())


@lru_cache(maxsize=4096)
def side_of(text: str) -> str:
    """What words say of the side: `base`, `sd` or nothing."""
    sides = load().patterns
    text = sides["versus"].sub(" ", in_english(text[: 4 * LIMIT]).replace("_", " "))
    text = " ".join(text.split())
    for pattern, spelling in load().sides:
        text = pattern.sub(spelling, text)
    if sides["base"].search(text):
        weak = sides["weak_base"].search(text) and not sides["strong_base"].search(text)
        return "sd" if weak and sides["sd"].search(re.sub(r"\bwith\b", " ", text, flags=re.I)) else "base"
    return "sd" if sides["sd"].search(text) or any(draft_lengths(text)) else ""


def is_plain(text: str) -> bool:
    """Whether a method, draft or label says no more than that nothing is drafted."""
    text = re.sub(r"\([^()]*\)", " ", in_english(text[:160].lower()))
    text = re.sub(r"\bw/o\b", "without", text)
    last = text.rpartition("/")[2]  # `target/none`: an arm of a run
    plain = load().patterns["plain"]
    return any(plain.fullmatch(" ".join(re.findall(r"[a-z0-9]+", part))) for part in (text, last))


def requests_at_once(text: str) -> int | None:
    """How many requests are served at once, where a text says that and nothing else: `np=2`, `4 users`."""
    found = load().patterns["at_once"].fullmatch(text[:LIMIT].strip("*_` "))
    return None if found is None else int(found[1] or found[2])


def is_task(text: str) -> bool:
    """Whether a text names a data set, a task, or all of them together."""
    return any(load().patterns[name].search(text[:LIMIT]) is not None for name in ("tasks", "overall"))


def scope_of(heading: str) -> frozenset[str]:
    """Words of a heading that tell of which method or data set it speaks."""
    words = re.findall(r"[\w.+=]+|[^\x00-\x7f]+", load().patterns["versus"].sub(" ", norm(heading)))
    return frozenset(word for word in words if word not in load().common and not re.fullmatch(r"\W+", word))


def split_bracket(heading: str) -> tuple[str, str]:
    """A heading and what stands in parentheses at its end."""
    found = re.search(r"\(([^()]*)\)\s*$", heading[:LIMIT])
    main = heading[: found.start()].strip() if found else ""
    return (main, found[1]) if found and main else (heading, "")


# --- columns ----------------------------------------------------------------------------------------------------------


def column_named(name: str) -> Column | None:
    """The column of that canonical name."""
    found = load().by_name.get(name)
    return found if found is not None and found.name == name else None


_RATE = re.compile(r"(?<![a-z])(?:toks?|tokens?|t)_(?:per_)?(?:s|sec|seconds?)(?![a-z])")


def known_column(heading: str) -> Column | None:
    """The column of that name or alias, however it is written: of columns of text, and as evidence."""
    heading = heading[:LIMIT].lower()
    for text in (in_english(heading), re.sub(r"[\u3400-\u9fff]", "", heading)):
        name = _RATE.sub("tps", "_".join(re.findall(r"[a-z0-9αγτ.]+", text)))
        if (found := load().by_name.get(name)) is not None:
            return found
    return None


def canonical(heading: str) -> Column | None:
    """The column of a heading that leaves no doubt: a canonical name, or another name of what has no rivals."""
    found = known_column(heading)
    if found is None or found.everyday or found.kind == "text":
        return None
    alone = found.quantity in {"", "condition", IGNORE}
    return found if alone or found.name == heading.strip().lower() else None
