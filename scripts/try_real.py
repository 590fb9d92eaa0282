"""Asks for advice on a real pair of models as a user would, and checks the answer by measuring whole answers by hand.

    uv run python scripts/try_real.py --out DIR            Qwen2.5-Coder 1.5B with its 0.5B; 20 minutes on two cores
    uv run python scripts/try_real.py --out DIR --page     the same, and writes docs/real-models.md
    uv run python scripts/try_real.py --out DIR --target FILE.gguf [--draft FILE.gguf]

Runs `specmeter advise TARGET --draft DRAFT --prompts benchmarks/real_prompts/mine.jsonl`, then one balanced run of what
it says beside no speculation, the draft model at the length that guides name, and an n-gram, each answering the same
prompts to their end. Only the command line is used. What lies in DIR already is not measured again.

Where the files are neither named nor in the cache of the hub it says so in one line and ends well. It ends with 1 where
the advice failed, or where the duel shows it wrong: something else is more than 2 % faster, beyond the intervals.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "real-models.md"
PROMPTS = ROOT / "benchmarks" / "real_prompts" / "mine.jsonl"
QWEN = "hf:Qwen/Qwen2.5-Coder-{0}-Instruct-GGUF/qwen2.5-coder-{1}-instruct-q4_k_m.gguf"
TARGET, DRAFT = QWEN.format("1.5B", "1.5b"), QWEN.format("0.5B", "0.5b")
ALIKE = 0.02
"""What is less than this apart counts as equal."""
MAX_TOKENS = 1024
Line = dict[str, Any]
"""A line of arms, as experiments have them."""
SETTINGS = {"gamma": "g", "gamma_min": "min", "p_min": "p", "ngram_n": "n", "ngram_min_hits": "hits"}
"""Keys of a line, and how its name has them."""


def specmeter(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of a command; its progress goes to this process's own error stream."""
    done = subprocess.run([sys.executable, "-m", "specmeter", *arguments, "--json"], stdout=subprocess.PIPE, text=True)
    if done.returncode == 130:
        raise KeyboardInterrupt
    return done.returncode, json.loads(done.stdout) if done.stdout.strip() else {}


def missing(models: Sequence[str], engine: str) -> list[str]:
    """Those that are not on this machine."""
    asked = ("--ngram", "--engine", engine, "--offline", "--dry-run")
    found = [specmeter("run", it, *asked)[1].get("models", []) for it in models]
    return [name for name, rows in zip(models, found, strict=True) if not rows or not rows[0]["present"]]


def named(line: Line) -> str:
    """`draft-simple-g4`: what the arm of a line is called in the runs made here."""
    return "-".join(
        [line["method"].replace("+", "."), *(f"{SETTINGS[key]}{line[key]}" for key in SETTINGS if key in line)]
    )


def line_of(arm: Mapping[str, Any]) -> Line:
    """An arm of an advice as a line of an experiment."""
    line = {"method": "+".join(arm["methods"])} | ({"draft": "draft"} if arm["draft"] else {})
    return line | {key: arm[key] for key in SETTINGS if arm[key] is not None}


@dataclass(frozen=True)
class Models:
    """What is served, and how."""

    target: str
    draft: str | None = None
    engine: str = "embedded"

    @property
    def options(self) -> list[str]:
        """For `specmeter advise`, the target first."""
        draft = ["--draft", self.draft] if self.draft else ["--no-find"]
        return [self.target, *draft, "--engine", self.engine]


def advise(folder: Path, models: Models, *options: str) -> dict[str, Any]:
    """What is advised, with `code` and `wall_s`; a finished advice in `folder` is read."""
    kept = folder.with_suffix(".json")
    if kept.exists():
        return json.loads(kept.read_text(encoding="utf-8"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    code, found = specmeter("advise", *models.options, *options, "--out", str(folder))
    found |= {"code": code, "wall_s": time.monotonic() - began}
    if found.get("finished") or found.get("why_undecided") == "budget":
        kept.write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")
    return found


def in_question(advice: Mapping[str, Any]) -> Line | None:
    """What the advice's number is of."""
    of = advice["speedup_of"]
    arm = next((it for it in advice["arms"] if it["id"] == of), advice["arm"])
    return None if arm is None else line_of(arm)


def chosen(advice: Mapping[str, Any]) -> Line | None:
    """What to serve with; None: no speculation."""
    leaves_off = advice["decision"] in ("off", "no-difference") or advice["arm"] is None
    return None if leaves_off else line_of(advice["arm"])


def measure(
    folder: Path,
    models: Models,
    lines: Sequence[Line],
    workloads: Sequence[Mapping[str, Any]],
    *,
    blocks: int,
    tokens: int = MAX_TOKENS,
    probe: str = "off",
) -> list[Row]:
    """One balanced run of these lines and of no speculation on whole answers; the fastest first."""
    keys = {
        "name": folder.name,
        "targets": {"target": models.target},
        "drafts": {"draft": models.draft} if any("draft" in it for it in lines) else {},
        "workloads": [dict(it) for it in workloads],
        "arms": [{"name": named(it), **it} for it in lines],
        "design": {"blocks": blocks, "warmup": "brief", "probe": probe},
        "engine": {"kind": models.engine, "context": 4096},
        "generation": {"max_tokens": tokens, "temperature": 0, "ignore_eos": False},
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    file = folder.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(keys, sort_keys=False, allow_unicode=True), encoding="utf-8")
    code, found = specmeter("run", str(file), "--out", str(folder))
    if code not in (0, 1) or found["state"] != "complete":
        sys.exit(f"{folder.name}: `specmeter run` ended with {code}")
    return rows(found, {f"target/{named(it)}": it for it in lines})


@dataclass(frozen=True)
class Row:
    """A configuration as a run measured it."""

    line: Line | None
    """None: no speculation."""
    rate: float
    """Tokens per second."""
    speedup: float
    low: float | None = None
    high: float | None = None
    acceptance: float | None = None
    verdict: str = ""

    @property
    def name(self) -> str:
        return "no speculation" if self.line is None else named(self.line)

    def table_row(self) -> str:
        accepted = "" if self.acceptance is None else f"{self.acceptance:.0%}"
        speedup = number(self.speedup, self.low, self.high)
        return f"| {self.name} | {self.rate:.1f} | {speedup} | {accepted} | {self.verdict} |"


def number(point: float, low: float | None, high: float | None) -> str:
    """`1.42x [1.38, 1.46]`."""
    return f"{point:.2f}x" + ("" if low is None or high is None else f" [{low:.2f}, {high:.2f}]")


def rows(found: Mapping[str, Any], lines: Mapping[str, Line]) -> list[Row]:
    arms = {it["arm_id"]: it for it in found["summary"]["arms"]}
    plain = next(it for name, it in arms.items() if name not in lines)["decode_rate"]["point"]
    made = [Row(None, plain, 1.0)]
    for name, line in lines.items():
        arm, withheld = arms[name], found["withheld"].get(name)
        rate, accepted = arm["decode_rate"]["point"], arm["acceptance"]
        said = arm["speedup"] or withheld or {"point": rate / plain, "low": None, "high": None}
        share = accepted["point"] if accepted else None
        made.append(Row(line, rate, said["point"], said["low"], said["high"], share, found["verdicts"].get(name, "")))
    return sorted(made, key=lambda it: -it.speedup)


def wrong(advice: Mapping[str, Any], table: Sequence[Row]) -> str:
    """In which way a duel shows an advice wrong, beyond its intervals; empty where it does not."""
    if advice["decision"] == "undecided":
        return ""
    own = next((it for it in table if it.line == chosen(advice)), None)
    if own is None:
        return "what was advised was not measured"
    if own.line is not None and own.high is not None and own.high < 1 - ALIKE:
        return f"{own.name} is slower than no speculation: {number(own.speedup, own.low, own.high)}"
    held = own.high or own.speedup
    better = [it for it in table if it.low is not None and it.low > (1 + ALIKE) * (1.0 if own.line is None else held)]
    return f"{better[0].name} is faster: {number(better[0].speedup, better[0].low, better[0].high)}" if better else ""


def told(advice: Mapping[str, Any]) -> str:
    """The answer and what it took, in a few lines."""
    speedup, line = advice["speedup"], in_question(advice)
    of = "" if line is None else f" of {named(line)}"
    said = "no number" if speedup is None else f"{number(speedup['point'], speedup['low'], speedup['high'])}{of}"
    reason = f" ({advice['why_undecided']})" if advice["why_undecided"] else ""
    answer = f"{advice['decision']}{reason}: {said}; {advice['verdict']}; {advice['wall_s']:.0f} s"
    return f"{answer}\n{advice['headline']}\n{' '.join(advice['command'])}".rstrip()


def head() -> str:
    return "| configuration | tok/s | speedup | accepted | verdict |\n|---|---:|---:|---:|---|"


def machine() -> str:
    """Processor, memory, system and the engine, in a line."""
    from specmeter.host.machine import read_host

    host = read_host()
    build = importlib.metadata.version("xllamacpp")
    memory = f"{host.memory_bytes / 1e9:.0f} GB"
    return f"{host.cpu}, {host.logical_cores} cores, {memory}, {platform.system()}; xllamacpp {build}"


def page(advice: Mapping[str, Any], table: Sequence[Row], duel_s: float) -> str:
    """docs/real-models.md."""
    asked = [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]
    kinds = ", ".join(f"{n} {kind}" for kind, n in Counter(it["kind"] for it in asked).items())
    stages = "\n".join(
        f"| {it['stage']} | {it['seconds']:.0f} | {it['prompts']} | {it['blocks']} |" for it in advice["stages"]
    )
    fault = wrong(advice, table)
    verdict = "The advice was right." if not fault else f"The advice is wrong: {fault}."
    if advice["decision"] == "undecided":
        verdict = "The advice did not decide."
    return f"""# Real models

What `specmeter advise` says about a real pair of models, and what measuring whole outputs says. Written by
`uv run python scripts/try_real.py --out DIR --page` on {datetime.now(UTC):%Y-%m-%d}; {machine()}.

On two CPU cores decoding is limited by arithmetic as much as by memory: verifying several tokens costs nearly as much
as decoding them one by one. A GPU may gain with the same pair.

## The question

Target: `{advice["target"]["reference"]}`. Draft model: `{", ".join(advice["asked"]["drafts"])}`.
Prompts: the {len(asked)} of `benchmarks/real_prompts/mine.jsonl` ({kinds}).

## The answer, after {advice["wall_s"]:.0f} s

```text
{told(advice)}
```

| stage | seconds | prompts | blocks |
|---|---:|---:|---:|
{stages}

## The check: whole outputs, {duel_s:.0f} s

All configurations answer the same prompts to the end of the output, in balanced order. {verdict}

{head()}
{chr(10).join(it.table_row() for it in table)}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--target", default=TARGET)
    parser.add_argument("--draft")
    parser.add_argument("--engine", default="embedded")
    parser.add_argument("--blocks", type=int, default=3, help="of the duel; 0: none, and no page")
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    args = parser.parse_args()
    draft = DRAFT if args.target == TARGET else args.draft
    models = Models(args.target, draft, args.engine)
    if gone := missing([it for it in (models.target, models.draft) if it], args.engine):
        print(f"try_real: skipped, not on this machine: {', '.join(gone)}")
        return 0
    advice = advise(args.out / "advice", models, "--prompts", str(PROMPTS))
    if not (advice.get("finished") or advice.get("why_undecided") == "budget"):
        print(f"try_real: `specmeter advise` ended with {advice['code']}")
        return 1
    print(told(advice), flush=True)
    if not args.blocks:
        return 0 if advice["code"] in (0, 4) else 1
    lines: list[Line] = [{"method": "draft-simple", "draft": "draft", "gamma": 4}] if models.draft else []
    lines.append({"method": "ngram-simple", "ngram_n": 4, "gamma": 16})
    lines += [it for it in (in_question(advice), chosen(advice)) if it is not None]
    unique = list({named(it): it for it in lines}.values())
    workload = {"source": "file", "name": "mine", "paths": [str(PROMPTS)]}
    tokens = advice["asked"]["max_tokens"] or MAX_TOKENS
    began = time.monotonic()
    table = measure(args.out / "duel", models, unique, [workload], blocks=args.blocks, tokens=tokens)
    duel_s = time.monotonic() - began
    print(f"\n{head()}", *(it.table_row() for it in table), sep="\n")
    failed = wrong(advice, table)
    print(f"\n{'wrong: ' + failed if failed else 'nothing measured contradicts the advice'}")
    if args.page:
        PAGE.write_text(page(advice, table, duel_s), encoding="utf-8")
    return 1 if failed or advice["code"] not in (0, 4) else 0


if __name__ == "__main__":
    sys.exit(main())
