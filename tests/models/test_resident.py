"""Memory foreseen from headers: which matrices llama.cpp keeps twice, and what servers really had resident."""

from __future__ import annotations

from pathlib import Path

import pytest

from specmeter.models.gguf import GGML_TYPES, Header, Tensor
from specmeter.models.resident import repacked_bytes

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
