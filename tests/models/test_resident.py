"""Memory foreseen from headers: which matrices llama.cpp keeps twice, and what servers really had resident."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.llama_fixtures import core
from specmeter.models.facts import read_facts
from specmeter.models.gguf import GGML_TYPES, Header, Tensor
from specmeter.models.memory import state_slots
from specmeter.models.resident import Resident, repacked_bytes
from specmeter.record import Arm

AVX2, ARM = ("AVX2",), ("NEON", "DOTPROD")


def header(*tensors: tuple[str, str, tuple[int, ...]]) -> Header:
    kinds = {kind.name: kind for kind in GGML_TYPES.values()}
    placed = tuple(Tensor(name, shape, kinds[kind], 0) for name, kind, shape in tensors)
    return Header(Path("model.gguf"), 3, {}, placed, 0)


Q4_K = 256 * 64 // 256 * 144


@pytest.mark.parametrize(
    ("name", "kind", "shape", "sets", "copied"),
    [
        ("blk.0.ffn_up.weight", "Q4_K", (256, 64), AVX2, Q4_K),
        ("blk.0.ffn_up.weight", "Q4_K", (256, 64), (), 0),
        ("blk.0.ffn_up.weight", "Q4_K", (256, 60), AVX2, 0),
        ("blk.0.ffn_up.weight", "Q4_1", (256, 64), AVX2, 0),
        ("blk.0.ffn_up.weight", "Q8_0", (256, 64), AVX2, 0),
        ("blk.0.ffn_up.weight", "Q8_0", (256, 64), ARM, 256 * 64 // 32 * 34),
        ("token_embd.weight", "Q4_K", (256, 64), AVX2, 0),
        ("blk.0.ffn_up_exps.weight", "Q4_K", (256, 64, 4), AVX2, 4 * Q4_K),
    ],
)
def test_which_matrices_are_repacked(
    name: str, kind: str, shape: tuple[int, ...], sets: tuple[str, ...], copied: int
) -> None:
    assert repacked_bytes((header((name, kind, shape), ("output.weight", "F16", (256, 64))),), sets) == copied


def test_a_table_that_is_the_output_as_well_is_repacked() -> None:
    assert repacked_bytes((header(("token_embd.weight", "Q4_K", (256, 64))),), AVX2) == Q4_K


@pytest.mark.parametrize(
    ("architecture", "methods", "gamma", "slots"),
    [
        ("qwen35moe", ("draft-mtp",), 4, 4),
        ("qwen35", ("ngram-mod", "draft-dflash"), None, 3),
        ("qwen35moe", ("draft-simple",), 8, 0),
        ("qwen35moe", ("ngram-mod",), 64, 0),
        ("qwen3next", ("draft-mtp",), 4, 0),
        ("mamba2", ("draft-eagle3",), 4, 0),
        (None, ("draft-mtp",), 4, 0),
    ],
)
def test_which_methods_keep_states_and_which_save_them(
    architecture: str | None, methods: tuple[str, ...], gamma: int | None, slots: int
) -> None:
    assert state_slots(architecture, methods, gamma) == slots


def test_states_are_counted_as_memory() -> None:
    target = core("hybrid").path
    memory = read_facts(Path(target)).memory
    assert memory is not None
    assert memory.recurrent_state_bytes

    def kept(**arm: object) -> float:
        both = (Arm.model_validate({"id": "a", "target": "t", **changed}) for changed in ({}, arm))
        plain, speculating = (Resident().bytes_of(it, Path(target), None) for it in both)
        return (speculating - plain) / (memory.recurrent_state_bytes or 1)

    assert kept() == 0
    assert kept(methods=("draft-mtp",), gamma=4) == 4
    assert kept(methods=("ngram-mod",), gamma=64) == 1
