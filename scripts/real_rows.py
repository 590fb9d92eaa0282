"""What a study found on bench models and on small real ones, as a section of `studies.toml`, which the page reads.

    uv run python scripts/real_rows.py BENCH-FOLDER REAL-FOLDER >> scripts/studies.toml
    uv run python scripts/make_reference.py

The folders are those of `study run NAME --variant bench` and `--variant real`, both complete. On stderr: claims on
which the bench folder rules otherwise than `studies.toml` says.
"""

from __future__ import annotations

import json
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specmeter.record import Verdict
from specmeter_studies.folder import StudyFolder
from specmeter_studies.study import ArmResult

TOLD: dict[str, Any] = tomllib.loads(Path(__file__).with_name("studies.toml").read_text(encoding="utf-8"))
WORST: tuple[Verdict, ...] = ("invalid", "suspect", "valid")


def section(bench: StudyFolder, real: StudyFolder) -> list[str]:
    """The lines of a section."""
    study = bench.record().study
    if real.record().study != study:
        sys.exit(f"{bench.path} is of {study}, {real.path} of {real.record().study}")
    rulings = {it.id: it.ruling for it in bench.findings().claims}
    for claim, said in TOLD["bench"][study].items():
        if claim != "run" and (before := said.partition(": ")[0]) != rulings[claim]:
            print(f"bench.{study}.{claim}: {before} in studies.toml, {rulings[claim]} here", file=sys.stderr)
    return [
        "",
        f"[real.{study}]",
        f"run = {_quoted(_run(real))}",
        f"bench = {_quoted(_run(bench))}",
        *(f"{_quoted(it.id)} = {_quoted(it.ruling)}" for it in real.findings().claims),
        "arms = [",
        *(f"    [{', '.join(map(_quoted, row))}]," for row in _arms(bench, real)),
        "]",
    ]


def _run(folder: StudyFolder) -> str:
    """`12 min, suspect, 2026-11-29`."""
    states = [it for part in folder.record().parts if (it := folder.run_state(part)) is not None]
    began = min(it.started_at or 0.0 for it in states)
    took = sum((it.finished_at or 0.0) - (it.started_at or 0.0) for it in states)
    verdict = min(folder.verdicts().values(), key=WORST.index)
    return f"{took / 60:.0f} min, {verdict}, {datetime.fromtimestamp(began, UTC):%Y-%m-%d}"


def _arms(bench: StudyFolder, real: StudyFolder) -> list[tuple[str, ...]]:
    """(configuration, what it gains on bench models, on real ones) of those that speculate."""
    found = [{(it.suite, it.config): it for it in folder.data().whole if it.speculates} for folder in (bench, real)]
    keys = dict.fromkeys(key for lines in found for key in lines)
    return [(key[1], *(_number(lines.get(key)) for lines in found)) for key in keys]


def _number(line: ArmResult | None) -> str:
    """`0.71x [0.69, 0.74], 82%`: the speedup to cite, and what was accepted."""
    if line is None:
        return "-"
    speedup, accepted = line.cited or line.speedup, line.acceptance
    if speedup is None or speedup.low is None or speedup.high is None:
        told = f"{line.verdict or 'no speedup'}"
    else:
        told = f"{speedup.point:.2f}x [{speedup.low:.2f}, {speedup.high:.2f}]"
    return told if accepted is None else f"{told}, {accepted.point:.0%}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


if __name__ == "__main__":
    print("\n".join(section(*(StudyFolder(Path(it)) for it in sys.argv[1:3]))))
