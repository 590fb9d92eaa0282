"""How many blocks a part gets: three, and more at fixed looks while claims wait for them and there is time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import ratio_data
from specmeter.advise.observer import Silent
from specmeter.experiments.file import load
from specmeter.laboratory.run import prepare, run
from specmeter.messages import Message
from specmeter.store import RunStore
from specmeter_studies.deciding import Deciding
from specmeter_studies.measured import from_run
from specmeter_studies.order import ExperimentPart, StudyOrder, load_parts
from specmeter_studies.rules import LOOKS, carrying
from specmeter_studies.study import ClaimRuling, RulingWord, StudyData

EXPERIMENT = {
    "name": "mocked",
    "targets": {"dense": "mock:dense"},
    "drafts": {"small": "mock:small"},
    "arms": [{"draft": "small", "gamma": [2, 4]}],
    "workloads": [{"source": "bench", "kinds": ["fact"], "per_kind": 1}],
    "engine": {"kind": "mock"},
    "design": {"blocks": LOOKS[-1], "stopping": "decided"},
    "generation": {"max_tokens": 8},
}


def claim(ruling: RulingWord, found: str) -> ClaimRuling:
    return ClaimRuling(id="c", claim=Message("c"), where=Message("-"), ruling=ruling, found=Message(found))


def blocks(tmp_path: Path, looks: Iterator[ClaimRuling], budget_s: float = 900.0) -> tuple[int, Deciding]:
    """How many blocks were measured where each look finds the next of these."""
    file = tmp_path / "mocked.yaml"
    file.write_text(yaml.safe_dump(EXPERIMENT), encoding="utf-8")
    prepared = prepare(load(str(file)))
    study: Any = SimpleNamespace(claims=lambda _: (next(looks),))
    folder: Any = SimpleNamespace(data=lambda _, vouched: vouched)
    deciding = Deciding(study, folder, SimpleNamespace(), prepared.experiment, budget_s)  # pyright: ignore[reportArgumentType]
    run(prepared, tmp_path / "run", Silent(), next_cells=deciding.after_block)
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        return max(row.block for row in store.rows()) + 1, deciding


CHANGING = (claim("cannot tell", f"{n}") for n in itertools.count())


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([claim("supported", "a")], LOOKS[0]),
        ([claim("cannot tell", "a"), claim("contradicted", "b")], LOOKS[1]),
        ([claim("cannot tell", "a"), claim("cannot tell", "a")], LOOKS[1]),  # waits for something else
        (CHANGING, LOOKS[2]),
    ],
)
def test_blocks_until_claims_are_decided(tmp_path: Path, looks: Any, expected: int) -> None:
    assert blocks(tmp_path, iter(looks))[0] == expected


@pytest.mark.parametrize(("at_the_end", "open_claims"), [("cannot tell", ["c"]), ("supported", [])])
def test_a_spent_budget_leaves_three_blocks_and_says_what_is_open_then(
    tmp_path: Path, at_the_end: RulingWord, open_claims: list[str]
) -> None:
    looks = [claim("cannot tell", "a"), claim(at_the_end, "b")]
    measured, deciding = blocks(tmp_path, iter(looks), budget_s=0.0)
    assert measured == LOOKS[0]
    assert deciding.out_of_time
    assert list(deciding.undecided()) == open_claims


def test_rulings_of_such_a_run_hold_for_all_looks(tmp_path: Path) -> None:
    blocks(tmp_path, iter([claim("supported", "a")]))
    lines = [it for it in from_run("moe-306", tmp_path / "run", vouched=True).arms if it.speedup is not None]
    assert {it.looks for it in lines} == {len(LOOKS)}
    made = lines[0].model_copy(update={"speedup": ratio_data.estimate(1.1), "least_effect": 0.0, "verdict": "valid"})
    wide = carrying(StudyData(study="moe-306", origin="measured", title="", arms=(made,))).arms[0].speedup
    assert wide is not None
    assert wide.low is not None
    assert wide.low < 1.1 / 1.005


@pytest.mark.parametrize(
    ("variants", "changes", "expected"),
    [
        (("bench",), (), ("decided", LOOKS[-1])),
        (("bench",), ("design.blocks=5",), ("decided", 5)),
        (("bench",), ("design.stopping=planned", "design.blocks=4"), ("planned", 4)),
        (("bench", "quick"), (), ("planned", 2)),
        ((), (), ("planned", 5)),
    ],
)
def test_bench_models_are_measured_until_claims_are_decided(
    variants: tuple[str, ...], changes: tuple[str, ...], expected: tuple[str, int]
) -> None:
    (part,) = load_parts(StudyOrder("apple-sd", variants, changes))
    assert isinstance(part, ExperimentPart)
    design = part.loaded.experiment.design
    assert (design.stopping, design.blocks) == expected
