"""Runs every engine that is installed here on one pair of bench models, and prints what each made of the same prompts.

    uv run python scripts/try_engines.py [ENGINE ...]

For each: its version, its plain decoding held against llama.cpp's, each way of drafting held against its own plain
decoding (tokens of the first request of each prompt), and the account of the drafts of all requests. `2/4` reads: of
four prompts two are answered with the same tokens to the end; behind it, which share of tokens comes before the first
that differs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import specmeter
from specmeter.engines.registry import installed, spec_of, survey
from specmeter.errors import SpecmeterError

Tokens = Mapping[str, Sequence[int]]
"""Prompt -> what was generated."""
GAMMA = 4
ONE_THREAD = {"threads": 1}
ALSO = {"vllm": {"extra_flags": ["--dtype", "float32", "--enforce-eager"]}}
"""What an engine needs on a machine without a GPU."""
COUNTS = ("proposed", "evaluated", "accepted", "corrected", "bonus", "plain", "steps", "emitted")
COLUMNS = ("engine", "arm", "as plain", "as llama.cpp", *COUNTS, "speedup", "verdict")


def experiment(kind: str) -> dict[str, Any]:
    """Plain decoding, and the first method of each sort that the engine has."""
    traits = spec_of(kind).traits
    methods, settings = traits.methods, ONE_THREAD if "threads" in traits.settings else {}
    by_model = next((it for it in methods if it.drafter == "model"), None)
    by_lookup = next((it for it in methods if it.drafter == "lookup"), None)
    arms: list[dict[str, Any]] = []
    if by_model:
        arms.append({"method": by_model.name, "draft": "small", "gamma": GAMMA})
    if by_lookup:
        arms.append({"method": by_lookup.name, "gamma": GAMMA, "ngram_n": 3})
    return {
        "name": f"try-{kind}",
        "targets": {"dense": "bench:dense"},
        "drafts": {"small": "bench:draft-small"},
        "workloads": [{"source": "bench", "kinds": ["fact", "code"], "per_kind": 2}],
        "arms": arms,
        "engine": {"kind": kind, **settings, **ALSO.get(kind, {})},
        "generation": {"max_tokens": 64},
        "design": {"blocks": 1, "probe": "off", "warmup": "short"},
    }


def alike(some: Tokens, others: Tokens) -> str:
    """How many of the answers are the same, and how far the others agree."""
    shared = sorted(some.keys() & others.keys())
    first = [
        next((at for at, pair in enumerate(zip(some[it], others[it], strict=False)) if pair[0] != pair[1]), None)
        for it in shared
    ]
    same = sum(it is None for it in first)
    agreed = sum(len(some[name]) if at is None else at for name, at in zip(shared, first, strict=True))
    return f"{same}/{len(shared)} {agreed / max(1, sum(len(some[it]) for it in shared)):.0%}"


def rows(kind: str, folder: Path, reference: dict[str, Tokens]) -> Iterator[tuple[str, ...]]:
    """A line for each arm of an engine's run; its plain answers are kept in `reference`."""
    run = specmeter.run(experiment(kind), out=folder / kind)
    said: dict[str, dict[str, Sequence[int]]] = {}
    counted: dict[str, dict[str, list[int | None]]] = {}
    for row in run.table("requests"):
        if row["status"] == "ok":
            said.setdefault(row["arm_id"], {}).setdefault(row["prompt_id"], row["token_ids"])
            kept = counted.setdefault(row["arm_id"], {it: [] for it in COUNTS})
            for name in COUNTS:
                kept[name].append(row[f"reconciled_{name}"])
    plain = next(tokens for arm, tokens in said.items() if arm.endswith("/none"))
    reference.setdefault(kind, plain)
    summary = {row["arm_id"]: row for row in run.table("summary") if not row["kind"]}
    for arm, tokens in said.items():
        totals = (
            "?" if None in values else str(sum(it for it in values if it is not None))
            for values in counted[arm].values()
        )
        speedup, verdict = (summary.get(arm, {}).get(it) for it in ("speedup", "verdict"))
        yield (
            kind,
            arm.partition("/")[2],
            alike(plain, tokens),
            alike(reference["embedded"], tokens),
            *totals,
            "" if speedup is None else f"{speedup:.2f}",
            verdict or "",
        )


def main(asked: Sequence[str]) -> None:
    """Print the table, and why an engine is not in it."""
    os.environ.setdefault("SPECMETER_DISTURBED", "keep")  # what is looked at are tokens and counts
    others = [name for name, it in installed().items() if it.package.startswith("specmeter-engines ")]
    reports = {it.name: it for it in survey()}
    table: list[tuple[str, ...]] = [COLUMNS]
    reference: dict[str, Tokens] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in dict.fromkeys(("embedded", *(asked or others))):
            report = reports[kind]
            print(f"{kind}: {report.version or f'{report.problem}; {report.fix}'}")
            if report.problem is None:
                try:
                    table += rows(kind, Path(folder), reference)
                except SpecmeterError as error:
                    print(f"{kind}: {error}")
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main(sys.argv[1:])
