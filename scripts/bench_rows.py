"""What runs on bench models found, as rows of the page of all documents: a line for each configuration.

    uv run python scripts/bench_rows.py NAME=RUN ... > bench.csv    # in specmeter_studies/library

NAME is what the page calls the machine. Targets must be named `dense` and `moe`, and each arm drafts with one model.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

from specmeter.show.page.document import read_document
from specmeter_studies.show.figures import slug

FIELDS = [
    "id",
    "device",
    "run",
    "by",
    "measured",
    "verdict",
    "target",
    "model",
    "gamma",
    "clients",
    "speedup",
    "low",
    "high",
    "blocks",
    "method",
    "acceptance",
    "experts_one",
    "experts_step",
]


def rows(device: str, folder: Path) -> Iterator[dict[str, object]]:
    document = read_document(folder)
    run = document.run
    unions = {it.target: {at.tokens: at.union.point for at in it.union.points} for it in document.routing if it.union}
    by = "load" if any(it.load is not None for it in document.arms.values()) else "length"
    for arm in run.summary.arms:
        settings = document.arms[arm.arm_id]
        speedup, drafted = arm.speedup, arm.drafted
        if arm.role != "speculative" or speedup is None or speedup.low is None or not drafted:
            continue
        clients = settings.load.clients if settings.load is not None else 1
        gamma, union = settings.gamma or 0, unions.get(settings.target, {})
        yield {
            "id": slug(f"{device}-{run.name}-{settings.target}-g{gamma}-c{clients}"),
            "device": device,
            "run": run.name,
            "by": by,
            "measured": document.run.state.started_at and f"{document.run.state.started_at:.0f}",
            "verdict": run.certificate.arms.get(arm.arm_id, "valid") if run.certificate else "unchecked",
            "target": settings.target,
            "model": next((it.reference for it in run.models if it.name == settings.target), ""),
            "gamma": gamma,
            "clients": clients,
            "speedup": round(speedup.point, 4),
            "low": round(speedup.low, 4),
            "high": round(speedup.high or 0.0, 4),
            "blocks": speedup.n,
            "method": speedup.method,
            "acceptance": round((arm.accepted or 0) / drafted, 4),
            "experts_one": round(union[1], 3) if 1 in union else "",
            "experts_step": round(union[gamma + 1], 3) if gamma + 1 in union else "",
        }


def main(names: list[str]) -> None:
    out = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    out.writeheader()
    for name in names:
        device, _, folder = name.partition("=")
        out.writerows(rows(device, Path(folder)))


main(sys.argv[1:])
