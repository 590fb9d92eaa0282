"""The page about the corpus: what the audit makes of true and of doctored files, computed anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from audit.corpus import Heard, TrueTable, doctored_tables, is_found, listen, misses, true_tables
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
    """Audit every file; about two seconds."""
    true = tuple((item, listen(item.name, item.text)) for item in true_tables())
    before = {item.name: heard for item, heard in true}
    doctored = tuple(
        (item, is_found(item, before[item.file], listen(item.file, item.text))) for item in doctored_tables()
    )
    return Result(true, doctored)


def page(result: Result) -> str:
    """The page as it is in the documentation."""
    rows = sum(sum(heard.words.values()) for _, heard in result.true)
    true, false = len(result.true), len(result.doctored)
    found = false - len(result.missed())
    return f"""# What the audit finds, and where it errs

`specmeter audit` is tested on {true} true tables and logs with {rows} rows, and on {false} false ones, made from them
by {len(RULES)} named rules. `uv run python benchmarks/audit_corpus.py --write` repeats it and makes this page.

## True ones

{_table("source|files|rows|" + "|".join(WORDS) + "|false alarms", _true_rows(result))}

*Measured*: runs of specmeter and llama-bench. *Published*: public repositories, as found, with their sources in
`tests/data/audit/corpus.yaml`. *Drawn*: steps drawn with a seed, in the shapes of tools. `unread`: a cell holds
something other than a number of a known column. Readers were written with these shapes in view, but for those
*gathered last*: expect the same of a new page.

`implausible` is right where an assumption is known to be false:

{_table("assumption that does not hold|file|implausible rows", _known_rows(result))}

## False ones

{found} of {false} are found, each as the word it must earn or a stronger one. Always:

{_found_rules(result)}

Sometimes missed:

{_table("rule|what is changed|must be|found", _rule_rows(result))}

### Missed

{_table("rule|file|why", _missed_rows(result))}
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


def _missed_rows(result: Result) -> Iterable[Sequence[object]]:
    """Files of one rule that are missed for the same reason share a row."""
    why = misses()
    shared: dict[tuple[str, str], list[str]] = {}
    for item in result.missed():
        reason = why.get((item.rule.name, item.file), "not yet explained")
        shared.setdefault((item.rule.name, reason), []).append(f"`{item.file}`")
    for (rule, reason), files in shared.items():
        yield rule, ", ".join(files), reason


def _table(headings: str, rows: Iterable[Sequence[object]]) -> str:
    names = headings.split("|")
    lines = [" | ".join(names), "|".join(["---"] * len(names)), *(" | ".join(map(str, row)) for row in rows)]
    return "\n".join(lines)
