"""Options for experts in the CPU's memory and for batches, as the engine itself reports them.

There is no GPU here, so these say that the engine got an option, not what it does to speed.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from llama_fixtures import arm, greedy, launch, prompt

from specmeter.engines.llama_cpp.engine import EmbeddedEngine
from specmeter.engines.llama_cpp.options import to_fields
from specmeter.record import ALL_LAYERS

TOLD = "overrides to CPU"


def log_with(tmp_path: Path, target: str, **engine: object) -> str:
    """What the embedded engine wrote when it started with these settings and answered."""
    with EmbeddedEngine().start(launch(tmp_path, arm(engine=engine), target=target)) as session:
        assert session.generate(prompt(), greedy(4)).token_ids
    return (tmp_path / "logs" / "engine.log").read_text("utf-8")


@pytest.mark.parametrize(
    "engine",
    [{"cpu_moe_layers": 1}, {"cpu_moe_layers": ALL_LAYERS}, {"override_tensors": (r"blk\.0\.ffn_up_exps=CPU",)}],
)
def test_experts_stay_with_the_cpu(tmp_path: Path, engine: dict[str, object]) -> None:
    assert TOLD in log_with(tmp_path, "moe", mmap=True, **engine)


def test_a_model_without_experts_has_none_to_keep(tmp_path: Path) -> None:
    assert TOLD not in log_with(tmp_path, "dense", mmap=True, cpu_moe_layers=ALL_LAYERS)


def test_batches_and_one_cache_reach_the_engine(tmp_path: Path) -> None:
    log = log_with(tmp_path, "dense", batch=128, ubatch=64, kv_unified=True, slots=2)
    for told in (r"n_batch += 128", r"n_ubatch += 64", r"kv_unified = 'true'"):
        assert re.search(told, log), told


def test_several_overrides_are_one_list() -> None:
    fields = to_fields({"cpu_moe_layers": 2, "override_tensors": ["a=CPU", "b=CPU"]})
    assert fields == {"tensor_buft_overrides": r"blk\.(0|1)\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU,a=CPU,b=CPU"}
