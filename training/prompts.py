"""Held-out prompts and text: `python prompts.py` writes them into the package.

Prompts end where an item ends, so that what follows is open: the next question, function, problem, section or list.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchtext import KINDS, document
from cores import TEXT_SEED

OUT = Path(__file__).parents[1] / "src" / "specmeter" / "workloads" / "bench"
PROMPTS = 48
LONG_TEXTS, LONG_CHARACTERS = 4, 4_500
HELD_OUT_CHARACTERS = 16_000
WANTED_CHARACTERS = {"fact": 330, "code": 420, "reason": 300, "zh": 260, "edit": 0}
FIRST_LONG, FIRST_TEXT = 10_000, 20_000


def prompt(kind: str, index: int) -> str:
    """The first items of a held-out document, about as long as `WANTED_CHARACTERS` says."""
    text = ""
    for position, item in enumerate(document(kind, TEXT_SEED, index, held_out=True)):
        text += item
        # A list and one request make an edit prompt; the other kinds show a few items first.
        if position >= 1 and len(text) >= WANTED_CHARACTERS[kind]:
            break
    return text


def long_text(kind: str, first: int, characters: int) -> str:
    """At least `characters` characters of whole documents."""
    text = ""
    while len(text) < characters:
        text += "".join(document(kind, TEXT_SEED, first, held_out=True))
        first += 1
    return text


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        lines = [{"id": f"{kind}-{i:02d}", "kind": kind, "text": prompt(kind, i)} for i in range(PROMPTS)]
        _write(OUT / f"{kind}.jsonl", lines)
    longs = [
        {"id": f"long-{kind}-{i}", "kind": kind, "text": long_text(kind, FIRST_LONG + 100 * i, LONG_CHARACTERS)}
        for kind in KINDS
        for i in range(LONG_TEXTS)
    ]
    _write(OUT / "long.jsonl", longs)
    held_out = "\n".join(long_text(kind, FIRST_TEXT, HELD_OUT_CHARACTERS) for kind in KINDS)
    (OUT / "heldout.txt").write_text(held_out, encoding="utf-8", newline="\n")


def _write(path: Path, entries: list[dict[str, str]]) -> None:
    text = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
    path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
