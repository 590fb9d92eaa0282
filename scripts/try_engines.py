"""Prints what every engine that is installed here made of one pair of bench models and the same prompts.

    uv run python scripts/try_engines.py          runs the experiment engines-demo first, one block of it
    uv run python scripts/try_engines.py RUN      the folder of such a run

For each: its version, its plain decoding held against llama.cpp's, each way of drafting held against its own plain
decoding (tokens of the first request of each prompt), and the account of the drafts of all requests. `2/4` reads: of
four prompts two are answered with the same tokens to the end; `~1`: one of the others parts where llama.cpp's target
holds both tokens for as likely (within 0.3 nats); behind it, which share of tokens comes before the first that differs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import specmeter
from specmeter.engines import EngineSession, Launch, load_engine
from specmeter.engines.registry import survey
from specmeter.models.reference import resolve
from specmeter.record import Arm, Generation, Prompt
from specmeter.store import RunStore
from specmeter.testing.subject import NEAR_TIE

Tokens = Mapping[str, Sequence[int]]
"""Prompt -> what was generated."""
REFERENCE = "embedded"
COUNTS = ("proposed", "evaluated", "accepted", "corrected", "bonus", "plain", "steps", "emitted")
COLUMNS = ("engine", "arm", "as plain", "as llama.cpp", *COUNTS, "tokens/s", "speedup", "verdict")


class Judge:
    """Asks llama.cpp's target how likely two tokens are."""

    def __init__(self, session: EngineSession, prompts: Mapping[str, Prompt]) -> None:
        self._session, self._prompts = session, prompts

    def tied(self, name: str, some: Sequence[int], others: Sequence[int], at: int) -> bool:
        """Whether two texts part where both tokens are as good as equally likely."""
        found = self._session.candidates(self._prompts[name], tuple(some[:at]), Generation(), 20)
        logs = {it.token: it.logprob for it in found}
        pair = [logs.get(it[at]) for it in (some, others)]
        return pair[0] is not None and pair[1] is not None and abs(pair[0] - pair[1]) < NEAR_TIE

    def alike(self, some: Tokens, others: Tokens) -> str:
        """How many of the answers are the same, and how far the others agree."""
        shared = sorted(some.keys() & others.keys())
        first = {
            it: next(
                (at for at, pair in enumerate(zip(some[it], others[it], strict=False)) if pair[0] != pair[1]), None
            )
            for it in shared
        }
        parted = {name: at for name, at in first.items() if at is not None}
        ties = sum(self.tied(name, some[name], others[name], at) for name, at in parted.items())
        agreed = sum(parted.get(name, len(some[name])) for name in shared)
        share = agreed / max(1, sum(len(some[it]) for it in shared))
        return f"{len(shared) - len(parted)}/{len(shared)}{f' ~{ties}' if ties else ''} {share:.0%}"


def rows(folder: Path) -> Iterator[tuple[str, ...]]:
    """A line for each arm of a run."""
    run = specmeter.load(folder)
    said: dict[str, dict[str, Sequence[int]]] = {}
    counted: dict[str, dict[str, list[int | None]]] = {}
    for row in run.table("requests"):
        if row["status"] == "ok":
            said.setdefault(row["arm_id"], {}).setdefault(row["prompt_id"], row["token_ids"])
            kept = counted.setdefault(row["arm_id"], {it: [] for it in COUNTS})
            for name in COUNTS:
                kept[name].append(row[f"reconciled_{name}"])
    summary = {row["arm_id"]: row for row in run.table("summary") if not row["kind"]}
    with ExitStack() as stack, RunStore.open(folder, readonly=True) as store:
        target = resolve("dense", "bench:dense", base_dir=Path())
        log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log"
        launch = Launch(Arm(id="dense/none", target="dense", role="baseline"), target, None, log)
        session = stack.enter_context(load_engine(REFERENCE).start(launch))
        judge = Judge(session, {it.id: it for it in store.prompts()})
        for arm, tokens in said.items():
            engine, _, name = arm.partition("/")
            totals = (
                "?" if None in values else str(sum(it for it in values if it is not None))
                for values in counted[arm].values()
            )
            about = summary.get(arm, {})
            rate, speedup = about.get("decode_tok_s"), about.get("speedup")
            yield (
                engine,
                name,
                judge.alike(said.get(f"{engine}/none", {}), tokens),
                judge.alike(said.get(f"{REFERENCE}/none", {}), tokens),
                *totals,
                "" if rate is None else f"{rate:.0f}",
                "" if speedup is None else f"{speedup:.2f}",
                str(about.get("verdict") or ""),
            )


def main(asked: Sequence[str]) -> None:
    """Print the table, and why an engine is not in it."""
    for report in survey():
        if report.package.startswith("specmeter-engines ") and report.name != "several":
            print(f"{report.name}: {report.version or f'{report.problem}; {report.fix}'}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(asked[0]) if asked else Path(scratch) / "run"
        if not asked:
            os.environ.setdefault("SPECMETER_DISTURBED", "keep")  # what is looked at are tokens and counts
            specmeter.run("engines-demo", out=folder, variants=["quick"])
        table = [COLUMNS, *rows(folder)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main(sys.argv[1:])
