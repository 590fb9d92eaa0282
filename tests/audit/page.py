"""The page about the corpus: what the audit says of true and of falsified files, recomputed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from audit.corpus import Heard, TrueTable, doctored_tables, is_found, listen, true_tables
from audit.doctoring import RULES, Doctored, Rule

WORDS = ("possible", "cannot tell", "unread", "implausible", "impossible")
_KINDS = {
    "measured": "own/",
    "published": "published/",
    "published, gathered last": "published/",
    "drawn with a known truth": "simulated/",
}
"""Name -> folder."""
_LAST = "published, gathered last"


@dataclass(frozen=True)
class Result:
    """The whole corpus, audited."""

    true: tuple[tuple[TrueTable, Heard], ...]
    doctored: tuple[tuple[Doctored, bool], ...]

    def alarms(self) -> list[tuple[TrueTable, Heard]]:
        """True files with a ruling that must not be: impossible, or implausible although nothing assumed is false."""
        return [(item, heard) for item, heard in self.true if alarm(item, heard)]

    def missed(self) -> list[Doctored]:
        """Doctored files of which the audit says less than it must."""
        return [item for item, found in self.doctored if not found]


def alarm(item: TrueTable, heard: Heard) -> bool:
    """Whether the audit wrongs a true file."""
    return heard.words["impossible"] > 0 or (heard.words["implausible"] > 0 and not item.known_false)


def audit_all() -> Result:
    """Audit every file; about ten seconds."""
    true = tuple((item, listen(item.name, item.text)) for item in true_tables())
    before = {item.name: heard for item, heard in true}
    doctored = tuple(
        (item, is_found(item, before[item.file], listen(item.file, item.text))) for item in doctored_tables()
    )
    return Result(true, doctored)


def page(result: Result) -> str:
    """The page, `benchmarks/audit-corpus.md`."""
    rows = sum(sum(heard.words.values()) for _, heard in result.true)
    true, false = len(result.true), len(result.doctored)
    found = false - len(result.missed())
    return f"""# How often `specmeter audit` is right

Written by `uv run python benchmarks/audit_corpus.py --write`.

## True tables: {true} files, {rows} rows

{_table("source|files|rows|" + "|".join(WORDS) + "|false alarms", _true_rows(result))}

*Measured*: by specmeter and llama-bench. *Published*: from public repositories (`tests/data/audit/corpus.yaml` has the
sources). *Drawn*: simulated. *Unread*: a cell is not a number of a known column. The readers were written with these
files in view, except those *gathered last*: expect the same of a new page.

These files are rightly called `implausible`, because an assumption of the bounds is false there:

{_table("what is false there|file|implausible rows", _known_rows(result))}

## Falsified tables: {found} of {false} are found

They are made from the true ones by {len(RULES)} rules. Always found, with the verdict they must get or a stronger one:

{_found_rules(result)}

Sometimes missed (`tests/data/audit/corpus.yaml` has the reason for each file):

{_table("rule|what is changed|must be|found", _rule_rows(result))}
"""


def _true_rows(result: Result) -> Iterable[Sequence[object]]:
    every = Counter[str]()
    for name, folder in _KINDS.items():
        of_folder = [(item, heard) for item, heard in result.true if item.name.startswith(folder)]
        files = [(item, heard) for item, heard in of_folder if item.unseen == (name == _LAST)]
        words = sum((heard.words for _, heard in files), Counter[str]())
        every += words
        alarms = sum(alarm(item, heard) for item, heard in files)
        yield (name, len(files), sum(words.values()), *(words[word] for word in WORDS), alarms)
    alarms = len(result.alarms())
    yield ("**all**", len(result.true), sum(every.values()), *(every[word] for word in WORDS), f"**{alarms}**")


def _known_rows(result: Result) -> Iterable[Sequence[object]]:
    known = sorted((item.known_false, item.name, heard) for item, heard in result.true if item.known_false)
    for assumption, named in groupby(known, key=lambda it: it[0]):
        files = list(named)
        implausible = ", ".join(str(heard.words["implausible"]) for _, _, heard in files)
        yield assumption, ", ".join(f"`{name}`" for _, name, _ in files), implausible


def _outcomes(result: Result, rule: Rule) -> list[bool]:
    return [found for item, found in result.doctored if item.rule is rule]


def _found_rules(result: Result) -> str:
    """Rules of which every file is found, by the word they must earn, each with its number of files."""
    always = [rule for rule in RULES if all(_outcomes(result, rule))]
    lines: list[str] = []
    for must in dict.fromkeys(map(_must, always)):
        rules = [f"{rule.name} ({len(_outcomes(result, rule))})" for rule in always if _must(rule) == must]
        lines.append(f"- {must}: {'; '.join(rules)}")
    return "\n".join(lines)


def _rule_rows(result: Result) -> Iterable[Sequence[object]]:
    for rule in RULES:
        of_rule = _outcomes(result, rule)
        if not all(of_rule):
            yield rule.name, rule.what, _must(rule), f"{sum(of_rule)} of {len(of_rule)}"


def _must(rule: Rule) -> str:
    return "noted" if rule.must == "note" else f"`{rule.must}`"


def _table(headings: str, rows: Iterable[Sequence[object]]) -> str:
    names = headings.split("|")
    lines = [" | ".join(names), "|".join(["---"] * len(names)), *(" | ".join(map(str, row)) for row in rows)]
    return "\n".join(lines)
