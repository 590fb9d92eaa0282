"""What inflation writes, looked at byte by byte with llama.cpp's own reader."""

from __future__ import annotations

import itertools
import zlib
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmeter.errors import ModelError
from specmeter.models import bench
from specmeter.models.bench import build, parse
from specmeter.models.gguf import read_header
from specmeter.models.gguf_writer import write_gguf
from specmeter.models.inflate import CoreFile, Recipe, donors, fit, inflated, metadata
from specmeter.models.weights import CONVERTIBLE, RANDOM_ONLY, RandomBits, convert, random_chunks, random_rows

_Array = np.ndarray[Any, Any]


pytestmark = pytest.mark.usefixtures("own_cache")


def _tensors(path: Path) -> dict[str, gguf.ReaderTensor]:
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def _floats(tensor: gguf.ReaderTensor) -> _Array:
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(*reversed(tensor.shape.tolist()))


@pytest.mark.parametrize("quant", CONVERTIBLE)
@pytest.mark.parametrize("core", ["dense", pytest.param("moe", marks=pytest.mark.slow)])
def test_the_core_is_kept_to_the_bit_and_all_that_is_added_ends_in_zero(core: str, quant: str, tmp_path: Path) -> None:
    file = CoreFile.read(bench.shipped()[core].path)
    recipe = Recipe(8, file.width + 64, quant)
    with (tmp_path / "grown.gguf").open("wb") as out:
        write_gguf(out, metadata(file, recipe, "0" * 64), inflated(file, recipe))
    plain, grown = _tensors(build(parse(f"bench:{core}?quant={quant}"))), _tensors(tmp_path / "grown.gguf")
    suffix = "_exps" if core == "moe" else ""
    previous = -1
    for layer, donor in enumerate(donors(file.layers, 8)):
        for name in [name for name in plain if name.startswith(f"blk.{donor}.")]:
            part = name.removeprefix(f"blk.{donor}.")
            old, new = plain[name], grown[f"blk.{layer}.{part}"]
            assert old.tensor_type == new.tensor_type
            if donor != previous:
                cut = tuple(slice(size) for size in old.data.shape)
                assert np.array_equal(new.data[cut].view(np.uint8), old.data.view(np.uint8))
            elif old.tensor_type == gguf.GGMLQuantizationType.F32:
                assert np.array_equal(new.data, old.data)
        down, gate = (
            _floats(grown[f"blk.{layer}.ffn_down{suffix}.weight"]),
            grown[f"blk.{layer}.ffn_gate{suffix}.weight"],
        )
        own = file.width if donor != previous else 0
        assert down.shape[-1] > file.width
        assert not down[..., own:].any()
        added = _floats(gate)[..., own:, :]
        assert np.isfinite(added).all()
        assert 0.6 < added.std() * np.sqrt(added.shape[-1]) < 1.6
        if donor == previous:
            assert not _floats(grown[f"blk.{layer}.attn_output.weight"]).any()
        previous = donor


@pytest.mark.slow
@pytest.mark.parametrize("quant", ["Q6_K", "Q4_K_M", "Q2_K"])
def test_a_wider_core_in_a_mixed_type_is_the_core_in_that_type(quant: str, tmp_path: Path) -> None:
    file = CoreFile.read(bench.shipped()["dense"].path)
    recipe = Recipe(file.layers, file.width + 512, quant)
    with (tmp_path / "grown.gguf").open("wb") as out:
        write_gguf(out, metadata(file, recipe, "0" * 64), inflated(file, recipe))
    plain, grown = _tensors(build(parse(f"bench:dense?quant={quant}"))), _tensors(tmp_path / "grown.gguf")
    assert list(plain) == list(grown)
    for name, old in plain.items():
        new = grown[name]
        assert old.tensor_type == new.tensor_type
        assert np.array_equal(new.data[tuple(slice(size) for size in old.data.shape)], old.data)
        if "ffn_down" in name:
            assert not _floats(new)[..., file.width :].any()


def test_no_two_tensors_share_bytes_and_nothing_compresses_away() -> None:
    grown = _tensors(build(parse("bench:dense?size=40MB&quant=Q8_0&layers=12")))
    added = [t.data.tobytes() for name, t in grown.items() if "ffn_" in name and "norm" not in name]
    assert all(len(zlib.compress(data, 1)) > 0.9 * len(data) for data in added)
    blocks = [data[start : start + 4096] for data in added for start in range(0, len(data) - 4096, 65_536)]
    assert len(set(blocks)) == len(blocks)


def _of_mxfp4(raw: _Array) -> _Array:
    """Newer than our `gguf`: an exponent, then 32 floats of 4 bits, the first half of them in the low bits."""
    blocks = raw.reshape(-1, 17)
    values = np.array([0, 1, 2, 3, 4, 6, 8, 12])
    values = np.concatenate([values, -values])
    quants = np.concatenate([blocks[:, 1:] & 15, blocks[:, 1:] >> 4], axis=1)
    return np.ldexp(values[quants], blocks[:, :1].astype(int) - 128).reshape(len(raw), -1)


@pytest.mark.parametrize("kind", [*CONVERTIBLE, *RANDOM_ONLY])
@pytest.mark.parametrize("deviation", [0.2, 0.02])
def test_random_weights_are_of_the_wanted_size(kind: str, deviation: float) -> None:
    raw = random_rows(kind, 64, 1024, deviation, RandomBits("test"))
    weights = _of_mxfp4(raw) if kind == "MXFP4" else gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
    assert weights.shape == (64, 1024)
    assert 0.65 < weights.std() / deviation < 1.5
    assert abs(weights.mean()) < 0.15 * deviation


@pytest.mark.parametrize("kind", CONVERTIBLE)
def test_zero_is_exactly_zero_and_still_has_entropy(kind: str) -> None:
    raw = random_rows(kind, 64, 1024, 0, RandomBits("test"))
    assert not gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind]).any()
    assert len(np.unique(raw)) > 1


def test_chunks_are_the_whole_cut_in_pieces() -> None:
    pieces = list(random_chunks("Q8_0", 40_000, 256, 0.1, RandomBits("a")))
    assert len(pieces) > 1
    assert sum(piece.nbytes for piece in pieces) == 40_000 * 272
    assert bytes(pieces[0]) != bytes(random_rows("Q8_0", 100, 256, 0.1, RandomBits("b")))[: len(bytes(pieces[0]))]


def test_random_bits_are_the_same_everywhere() -> None:
    # A change of these bytes would silently change every bench model: it needs a new recipe version.
    assert RandomBits("specmeter").take(8).tobytes().hex() == "398b0bd2a10d593a"


def test_a_conversion_to_the_same_format_changes_nothing() -> None:
    raw = random_rows("Q8_0", 4, 64, 0.1, RandomBits("test"))
    assert convert(raw, "Q8_0", "Q8_0") is raw


@given(st.integers(1, 40), st.integers(0, 400))
def test_layers_are_added_behind_their_donors(core_layers: int, added: int) -> None:
    layers = donors(core_layers, core_layers + added)
    assert layers == sorted(layers)
    assert set(layers) == set(range(core_layers))
    copies = [len(list(group)) for _, group in itertools.groupby(layers)]
    assert max(copies) - min(copies) <= 1


def test_what_a_core_cannot_become_is_refused(tmp_path: Path) -> None:
    core = CoreFile.read(bench.shipped()["dense"].path)
    with pytest.raises(ModelError, match="not a multiple of 32"):
        inflated(core, Recipe(core.layers, core.width + 8, "Q8_0"))
    with pytest.raises(ModelError, match="limit of 500"):
        inflated(core, Recipe(501, core.width, "Q8_0"))
    writer = gguf.GGUFWriter(tmp_path / "hybrid.gguf", "qwen35")
    writer.add_block_count(4)
    writer.add_feed_forward_length(64)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match="only more width"):
        inflated(CoreFile.read(tmp_path / "hybrid.gguf"), Recipe(5, 64, "Q8_0"))


def test_a_size_between_two_widths_is_refused_with_the_nearest() -> None:
    core = CoreFile.read(bench.shipped()["moe"].path)
    with pytest.raises(ModelError, match="nearest is") as caught:
        fit(core, "F16", 31_500_000, layers=core.layers)
    assert "ask for size=" in caught.value.fix


def test_the_tokenizer_is_the_cores() -> None:
    core = read_header(bench.shipped()["dense"].path).metadata
    grown = read_header(build(parse("bench:dense?size=20MB&quant=Q8_0"))).metadata
    assert {k: v for k, v in core.items() if "tokenizer" in k} == {k: v for k, v in grown.items() if "tokenizer" in k}
