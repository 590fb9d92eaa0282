"""What `specmeter audit` makes of public results that it was not written for, and of a falsified twin of each.

    uv run python benchmarks/audit_unseen.py [FOLDER] [--commit REV]... [--write] [--verbose]

FOLDER (default: `benchmarks/audit_unseen/`) has `items/`, files as a user would save them, and `items.yaml`, a list:

    file, source, layout, rows     what it is; `rows`: rows, lines or sentences that hold a result
    true, false_rows, why          whether it is true; else a distinct piece of each false row; the arithmetic
    twin                           `old` and `new` (or `edits`, a list of both), `catchable`: arithmetic can show it

A *twin* is the item with that edit, chosen before any audit of it. It is refused if a row is refused more strongly than
in the item itself. Refused: impossible, implausible or with a contradiction. `--commit` audits with that commit instead
of the working tree; several are compared. `--write` writes `benchmarks/audit-unseen.md`, and its figures into
`docs/how-to/audit.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import sqrt
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
ITEMS = ROOT / "benchmarks" / "audit_unseen"
PAGE = ROOT / "benchmarks" / "audit-unseen.md"
GUIDE = ROOT / "docs" / "how-to" / "audit.md"
IN_GUIDE = ("items of which no row was read", "true rows refused", "of these called impossible", "twins refused",
            "of those that arithmetic can show")  # fmt: skip
"""Figures for users."""
CRASH = "specmeter itself failed"
BEGIN, END = "<!-- Written by benchmarks/audit_unseen.py; do not edit. -->\n", "<!-- Up to here. -->\n"

AUDITS = """
import contextlib, io, json, pathlib, sys, time
from specmeter.cli import invoke
folder = pathlib.Path(sys.argv[1])
paths = sorted(path for path in folder.rglob("*") if path.is_file())
for path in paths[:1] + paths:  # the first one twice: imports take their time
    out, err, begun = io.StringIO(), io.StringIO(), time.perf_counter()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = invoke(["audit", str(path), "--json"])
        except BaseException as error:
            code = repr(error)
    took = time.perf_counter() - begun
    document = json.loads(out.getvalue()) if out.getvalue().lstrip().startswith("{") else {}
    print(json.dumps({"file": path.relative_to(folder).as_posix(), "code": code, "error": err.getvalue()[:300],
                      "seconds": took, "sources": document.get("sources", [])}))
"""
"""Audits every file of a folder, one line of JSON each: the whole interface that commits must share."""


@dataclass(frozen=True)
class Row:
    """One row of a file, as it was ruled."""

    place: str
    label: str
    verdict: str
    contradictions: int
    unread: bool
    why: str

    @property
    def strength(self) -> int:
        """0 for a row that is not refused; more for a stronger ruling, and for a contradiction next to it."""
        verdict = {"impossible": 4, "implausible": 2}.get(self.verdict, 0)
        return verdict + bool(self.contradictions)


@dataclass(frozen=True)
class Heard:
    """A file, audited."""

    rows: tuple[Row, ...]
    error: str
    seconds: float
    crashed: bool = False

    @property
    def unread(self) -> bool:
        """No row was read."""
        return all(row.unread for row in self.rows)


@dataclass
class Outcome:
    """What an audit made of an item and of its twin."""

    item: dict[str, Any]
    heard: Heard
    twin: Heard | None
    refused: list[Row] = field(default_factory=list[Row])
    """Rows held to be true that are refused."""
    true_rows: int = 0
    found: int = 0
    """Of its false rows, those that are refused."""

    @property
    def twin_refused(self) -> bool:
        """Whether a row of the twin is refused more strongly than in the item."""
        if self.twin is None:
            return False
        before = _strengths(self.heard.rows)
        for place, after in _strengths(self.twin.rows).items():
            held = before.get(place, [])
            if any(now > (held[at] if at < len(held) else 0) for at, now in enumerate(after)):
                return True
        return False

    @property
    def catchable(self) -> bool:
        """Whether arithmetic on the twin alone can show its edit."""
        return self.twin is not None and bool(self.item["twin"].get("catchable"))


def _strengths(rows: Iterable[Row]) -> dict[str, list[int]]:
    """Place -> strength of its rulings, the strongest first."""
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row.place, []).append(row.strength)
    return {place: sorted(strengths, reverse=True) for place, strengths in found.items()}


# --- the items and their twins ---------------------------------------------------------------------------------------


def read_items(folder: Path) -> list[dict[str, Any]]:
    """All items of a folder, with its text under `text` and that of its twin under `twin_text`."""
    items: list[dict[str, Any]] = []
    for index in sorted(folder.glob("items*.yaml")):
        read = yaml.safe_load(index.read_text(encoding="utf-8")) or []
        items += [
            {str(key).lower(): value for key, value in item.items()} for item in read
        ]  # YAML's key `true` is True
    if not items:
        sys.exit(f"{folder}: no items.yaml with items")
    for item in items:
        item["text"] = (folder / "items" / item["file"]).read_text(encoding="utf-8")
        item["twin_text"] = _twin(item)
    return items


def _twin(item: dict[str, Any]) -> str | None:
    """The text of its twin; None for an item without one. Exits for an edit that does not fit."""
    text, twin = item["text"], item.get("twin")
    if not twin:
        return None
    for edit in twin.get("edits") or [twin]:
        old, new = str(edit["old"]), str(edit["new"])
        if text.count(old) != 1:
            sys.exit(f"{item['file']}: {old!r} is there {text.count(old)} times, must be once")
        text = text.replace(old, new)
    return text


@contextmanager
def tree_of(commit: str | None) -> Iterator[tuple[str, Path]]:
    """(name, folder) of a commit, in a worktree of its own; of the working tree where none is given."""
    if commit is None:
        yield _git("describe", "--always", "--dirty"), ROOT
        return
    with tempfile.TemporaryDirectory(prefix="specmeter-unseen-") as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            yield _git("describe", "--always", commit), tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def audit_all(items: Sequence[dict[str, Any]], tree: Path) -> list[Outcome]:
    """What the audit of that tree makes of every item and twin, all in one process."""
    sources = [tree / "src", *sorted(tree.glob("packages/*/src"))]
    with tempfile.TemporaryDirectory(prefix="specmeter-unseen-") as name:
        folder = Path(name)
        for item in items:
            for kind, text in (("true", item["text"]), ("twin", item["twin_text"])):
                if text is not None:
                    path = folder / kind / item["file"]
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text, encoding="utf-8", newline="")
        done = subprocess.run(
            [sys.executable, "-c", AUDITS, name],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sources))},
            cwd=name,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        sys.exit(done.stderr)
    heard = {told["file"]: _heard(told) for told in map(json.loads, done.stdout.splitlines())}
    return [_outcome(it, heard[f"true/{it['file']}"], heard.get(f"twin/{it['file']}")) for it in items]


def _heard(told: dict[str, Any]) -> Heard:
    rows = tuple(
        Row(
            it["claim"]["row"],
            it["claim"].get("label", ""),
            it["verdict"],
            len(it["contradictions"]),
            it["bound"] == "unreadable",
            " · ".join(dict.fromkeys(map(_words, [it["arithmetic"], *it["contradictions"]]))),
        )
        for source in told["sources"]
        for it in source["rulings"]
    )
    error = told["error"] if not rows else ""
    return Heard(rows, error, told["seconds"], crashed=told["code"] not in (0, 1, 2, 4) or CRASH in told["error"])


def _words(said: object) -> str:
    """A message of `--json` as words: the English text where it has it."""
    if isinstance(said, dict):
        said = said.get("text") or said.get("code") or said
    return " ".join(str(said).split())


def _outcome(item: dict[str, Any], heard: Heard, twin: Heard | None) -> Outcome:
    outcome = Outcome(item, heard, twin)
    pieces = [] if item["true"] else [str(piece) for piece in item.get("false_rows") or []]
    found: set[str] = set()
    for row in heard.rows:
        if row.unread:
            continue
        false = [piece for piece in pieces if _is_of(row, piece, item["text"])]
        if false and row.strength:
            found |= set(false)
        elif not false:
            outcome.true_rows += 1
            if row.strength:
                outcome.refused.append(row)
    outcome.found = len(found)
    return outcome


def _is_of(row: Row, piece: str, text: str) -> bool:
    """Whether a ruling is of the line that has this piece; of any line where its place is none."""
    places = re.findall(r"\bline (\d+)", row.place)
    lines = text.splitlines()
    inside = [number for number, line in enumerate(lines, 1) if piece in line]
    if not places or not inside:
        return piece in row.label or not places
    return any(int(place) in inside for place in places)


# --- figures ----------------------------------------------------------------------------------------------------------


def wilson(found: int, of: int) -> tuple[float, float]:
    """95% interval of a share, after Wilson."""
    if not of:
        return 0.0, 1.0
    z, share = 1.96, found / of
    middle = share + z * z / (2 * of)
    half = z * sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max(0.0, (middle - half) / (1 + z * z / of)), min(1.0, (middle + half) / (1 + z * z / of))


def share(found: int, of: int) -> str:
    """`4 of 65 (6% [2, 15])`."""
    low, high = wilson(found, of)
    return f"{found} of {of} ({_percent(found / of if of else 0)}% [{_percent(low)}, {_percent(high)}])"


def _percent(value: float) -> str:
    value *= 100
    return f"{value:.0f}" if value >= 9.5 or value < 0.05 else f"{value:.1f}"


def figures(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """What is measured -> how often."""
    refused = [row for it in outcomes for row in it.refused]
    impossible = sum(row.verdict == "impossible" for row in refused)
    twins = [it for it in outcomes if it.twin is not None]
    catchable = [it for it in twins if it.catchable]
    false_rows = sum(len(it.item.get("false_rows") or []) for it in outcomes if not it.item["true"])
    return {
        "items of which no row was read": share(sum(it.heard.unread for it in outcomes), len(outcomes)),
        "true rows refused": share(len(refused), sum(it.true_rows for it in outcomes)),
        "of these called impossible": str(impossible),
        "items with a true row refused": share(sum(bool(it.refused) for it in outcomes), len(outcomes)),
        "published false rows refused": share(sum(it.found for it in outcomes), false_rows),
        "twins refused": share(sum(it.twin_refused for it in twins), len(twins)),
        "of those that arithmetic can show": share(sum(it.twin_refused for it in catchable), len(catchable)),
    }


def misses(outcomes: Sequence[Outcome]) -> list[str]:
    """What went wrong, one line each, sorted by layout."""
    lines: list[str] = []
    for it in sorted(outcomes, key=lambda it: (str(it.item.get("layout", "")).lower(), it.item["file"])):
        wrong: list[str] = []
        if it.heard.unread:
            wrong.append("not read")
        wrong += [f"{row.place}: true, called {_called(row)}" for row in it.refused]
        if (false := len(it.item.get("false_rows") or [])) and not it.item["true"] and it.found < false:
            wrong.append(f"{false - it.found} of {false} false rows not refused")
        if it.catchable and not it.twin_refused:
            wrong.append(f"twin not refused ({it.item['twin'].get('kind', 'edited')})")
        if wrong:
            lines.append(f"- {it.item.get('layout', 'no layout')}: `{it.item['file']}`: {'; '.join(wrong)}")
    return lines


def _called(row: Row) -> str:
    return row.verdict if row.verdict in {"impossible", "implausible"} else "a contradiction"


def table(found: dict[str, list[Outcome]]) -> str:
    """The figures of each commit, side by side."""
    by_name = {name: figures(outcomes) for name, outcomes in found.items()}
    lines = [" | ".join(["", *(f"`{name}`" for name in by_name)]), "|".join(["---"] * (len(by_name) + 1))]
    lines += [" | ".join([what, *(told[what] for told in by_name.values())]) for what in next(iter(by_name.values()))]
    return "\n".join(f"| {line} |" for line in lines)


def page(found: dict[str, list[Outcome]]) -> str:
    """The page, `benchmarks/audit-unseen.md`."""
    outcomes = next(iter(found.values()))
    rows = sum(int(it.item.get("rows") or 0) for it in outcomes)
    parts = [
        "# `specmeter audit` on public results it was not written for\n",
        f"Written by `uv run python benchmarks/audit_unseen.py --write` on {datetime.now(UTC):%Y-%m-%d}.\n",
        f"{len(outcomes)} items with {rows} results from public issues, READMEs, pages and logs, and for each a twin "
        "with a false number, chosen before any audit (`benchmarks/audit_unseen/items.yaml` has sources and edits). "
        "*Refused*: impossible, implausible or with a contradiction. Intervals are 95% (Wilson).\n",
        table(found),
    ]
    for name, outcomes in found.items():
        lines = misses(outcomes)
        parts.append(f"\n## Misses of `{name}`: {len(lines)} items\n\n" + ("\n".join(lines) or "None."))
    return "\n".join(parts) + "\n"


def in_guide(text: str, outcomes: Sequence[Outcome]) -> str:
    """The guide with these figures where it has a place for them."""
    before, rest = text.split(BEGIN)
    told = figures(outcomes)
    lines = [f"| {len(outcomes)} items | how often [95% interval] |", "|---|---|"]
    lines += [f"| {what} | {told[what]} |" for what in IN_GUIDE]
    return before + BEGIN + "\n" + "\n".join(lines) + "\n\n" + END + rest.split(END)[1]


def print_details(outcomes: Sequence[Outcome]) -> None:
    """Each item with its rulings, and the slowest file."""
    for it in outcomes:
        if it.heard.unread:
            why = it.heard.error or "; ".join(row.why for row in it.heard.rows[:3])
            print(f"not read: {it.item['file']}: {' '.join(why.split())}", file=sys.stderr)
        for row in it.refused:
            print(f"refused: {it.item['file']}, {row.place} {row.label}: {_called(row)}: {row.why}", file=sys.stderr)
        if it.twin is not None:
            said = "refused" if it.twin_refused else "passes"
            shows = it.item["twin"].get("shows", "") if it.catchable else "not catchable"
            print(f"twin {said}: {it.item['file']}: {shows}", file=sys.stderr)
    slowest = max(outcomes, key=lambda it: it.heard.seconds)
    print(f"slowest: {slowest.item['file']}: {slowest.heard.seconds:.2f} s", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ITEMS)
    parser.add_argument("--commit", action="append", help="audit with this commit; repeatable")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)} and the guide's figures")
    parser.add_argument("--verbose", action="store_true", help="list every item with its rulings")
    args = parser.parse_args()
    items = read_items(args.folder)
    found: dict[str, list[Outcome]] = {}
    for commit in args.commit or [None]:
        with tree_of(commit) as (name, tree):
            found[name] = audit_all(items, tree)
    print(page(found))
    for name, outcomes in found.items():
        crashed = [it.item["file"] for it in outcomes if it.heard.crashed or (it.twin is not None and it.twin.crashed)]
        if crashed:
            print(f"{name}: the audit crashed on {', '.join(crashed)}", file=sys.stderr)
    if args.verbose:
        for outcomes in found.values():
            print_details(outcomes)
    if args.write:
        PAGE.write_text(page(found), encoding="utf-8")
        first = next(iter(found.values()))
        GUIDE.write_text(in_guide(GUIDE.read_text(encoding="utf-8"), first), encoding="utf-8")


if __name__ == "__main__":
    main()
