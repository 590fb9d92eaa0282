"""What runs of the study moe-twin found, as rows of the page of all documents: a line for each pair of models.

    uv run python scripts/twin_rows.py NAME=STUDY-FOLDER ... > twin.csv    # in specmeter_studies/library

NAME is what the page calls the machine. Pairs whose numbers nothing doubts become rows; `counts` says which of them
rulings use.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from specmeter.record import Estimate
from specmeter_studies.folder import StudyFolder
from specmeter_studies.library.moe_twin.cells import Cell, cells, kernel_cells, role
from specmeter_studies.rules import carrying
from specmeter_studies.show.figures import slug
from specmeter_studies.show.twin import FIELDS


def rows(device: str, folder: StudyFolder) -> Iterator[Mapping[str, object]]:
    data = carrying(folder.data())
    began = folder.record().made_at
    for cell in (*cells(data), *kernel_cells(data)):
        if cell.line.stands and cell.base.stands and cell.ratio is not None and cell.reads is not None:
            yield _row(device, began, cell)


def _row(device: str, began: float, cell: Cell) -> Mapping[str, object]:
    line, base, model = cell.line, cell.base, cell.model
    acceptance = [None if it.acceptance is None else round(it.acceptance.point, 4) for it in (line, base)]
    return {
        "id": slug(f"{device}-{line.target}-{role(base.target)}-{cell.method}-g{line.gamma}"),
        "device": device,
        "part": line.suite,
        "model": cell.base_model.reference,
        "measured": f"{began:.0f}",
        "verdict": line.verdict,
        "target": role(line.target),
        "base": role(base.target),
        "drafts": cell.method,
        "gamma": line.gamma,
        "experts": model.experts or 0,
        "used": model.experts_used or 0,
        "counts": cell.stands,
        "union": round(cell.union or 0.0, 3),
        "reads": round(cell.reads or 0.0, 3),
        **_ends("ratio", cell.ratio),
        **_ends("per_step", cell.per_step),
        "predicted": "" if cell.foretold is None else round(cell.foretold, 4),
        **_ends("speedup", line.speedup),
        **_ends("base_speedup", base.speedup),
        **_ends("full", cell.full),
        "blocks": len(cell.logs),
        "method": "" if cell.ratio is None else cell.ratio.method,
        "acceptance": acceptance[0],
        "base_acceptance": acceptance[1],
    }


def _ends(name: str, estimate: Estimate | None) -> dict[str, object]:
    values = (None, None, None) if estimate is None else (estimate.point, estimate.low, estimate.high)
    return {
        key: "" if it is None else round(it, 4)
        for key, it in zip((name, f"{name}_low", f"{name}_high"), values, strict=True)
    }


def main(names: list[str]) -> None:
    out = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    out.writeheader()
    for name in names:
        device, _, folder = name.partition("=")
        out.writerows(rows(device, StudyFolder(Path(folder))))


main(sys.argv[1:])
