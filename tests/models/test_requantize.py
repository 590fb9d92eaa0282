"""Other quantizations of a file: those of llama-quantize to the byte, made once, never of what is quantized already."""

from __future__ import annotations

import filecmp
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, dequantize

from engines.llama_fixtures import NO_NATIVE, native
from specmeter.errors import ModelError
from specmeter.models.bench import build, parse, shipped
from specmeter.models.facts import read_facts
from specmeter.models.gguf import read_header
from specmeter.models.gguf_writer import write_gguf
from specmeter.models.quantize import MIXES
from specmeter.models.requantize import make
from specmeter.models.shapes import SHAPES, Shape, shape_metadata, shape_tensors

CORE = shipped()["draft-small"].path
"""2 layers of 96; matrices in F16, norms in F32."""
WIDE = shipped()["dense"].path
"""7 layers in rows of 256 and 768."""
TOOL = native("llama-quantize")


pytestmark = pytest.mark.usefixtures("own_cache")


def weights(path: Path, name: str) -> np.ndarray:
    tensor = next(it for it in GGUFReader(path).tensors if it.name == name)
    return dequantize(tensor.data, tensor.tensor_type)


def types(path: Path) -> dict[str, int]:
    return {share.type: share.tensors for share in read_facts(path).weights.quantization}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "bits", "error"),
    [
        ("Q8_0", 8.5, 0.02),
        ("Q6_K", 6.5625, 0.04),
        ("Q5_K_S", 5.5, 0.06),
        ("Q4_K_S", 4.5, 0.11),
        ("Q3_K_S", 3.4375, 0.2),
    ],
)
def test_weights_stay_what_they_were_within_the_format(kind: str, bits: float, error: float) -> None:
    made = make(WIDE, kind)
    assert made.how == f"specmeter to {kind} from F16"
    assert read_facts(made.path).layers == read_facts(WIDE).layers
    name = "blk.5.ffn_up.weight"
    held = next(it for it in read_header(made.path).tensors if it.name == name)
    assert 8 * held.bytes / held.elements == bits
    before, after = weights(WIDE, name), weights(made.path, name)
    assert 0 < np.sqrt(((before - after) ** 2).mean()) < error * before.std()
    assert (weights(made.path, "output_norm.weight") == weights(WIDE, "output_norm.weight")).all()


@pytest.mark.parametrize(
    ("kind", "held"),
    [
        ("Q6_K", {"Q6_K": 50}),
        ("Q4_K_M", {"Q4_K": 43, "Q6_K": 7}),
        ("Q3_K_M", {"Q3_K": 28, "Q4_K": 19, "Q5_K": 2, "Q6_K": 1}),
        ("Q2_K", {"Q2_K": 28, "Q3_K": 21, "Q6_K": 1}),
        ("Q4_0", {"Q4_0": 49, "Q6_K": 1}),
    ],
)
def test_types_mix_formats(kind: str, held: dict[str, int]) -> None:
    assert types(make(WIDE, kind).path) == held | {"F32": 29}


def test_rows_that_are_no_whole_blocks_get_another_format() -> None:
    assert set(types(make(CORE, "Q4_K_M").path)) == {"Q5_0", "Q8_0", "F32"}
    assert set(types(make(CORE, "Q2_K").path)) == {"Q4_0", "Q8_0", "F32"}


def test_a_file_is_made_once() -> None:
    first = make(CORE, "Q4_1").path
    changed = first.stat().st_mtime_ns
    assert make(CORE, "Q4_1").path == first
    assert first.stat().st_mtime_ns == changed
    assert make(CORE, "Q4_0").path != first


def test_what_is_quantized_already_is_not_quantized_again() -> None:
    eight = make(CORE, "Q8_0").path
    with pytest.raises(ModelError, match="already Q8_0"):
        make(eight, "Q4_0")


def test_a_type_that_needs_an_importance_matrix_is_not_made() -> None:
    with pytest.raises(ModelError, match="IQ2_XS cannot be made here"):
        make(CORE, "IQ2_XS")


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    data = bytearray(CORE.read_bytes())
    tensor = next(it for it in read_header(CORE).tensors if it.type.name == "F16")
    data[tensor.offset : tensor.offset + 2] = b"\x00\x7e"  # F16's "not a finite number"
    (tmp_path / "broken.gguf").write_bytes(data)
    with pytest.raises(ModelError, match="not a finite number"):
        make(tmp_path / "broken.gguf", "Q4_K_M")


def shape(folder: Path, name: str, made: Shape) -> Path:
    """A small model of random weights with what no bench core has."""
    path = folder / f"{name}.gguf"
    with path.open("wb") as file:
        metadata = shape_metadata(made, next(iter(SHAPES)), "F16", read_header(CORE))
        write_gguf(file, metadata, shape_tensors(made, "F16"))
    return path


def sources(folder: Path) -> Iterator[tuple[Path, Iterable[str]]]:
    """Files, and the types that are told apart by what they hold."""
    mixed = ("Q6_K", "Q5_K_M", "Q4_K_M", "Q4_K_S", "Q4_0", "Q3_K_L", "Q3_K_M", "Q2_K")
    yield CORE, MIXES
    for name in ("dense", "moe", "hybrid"):
        yield build(parse(f"bench:{name}?quant=F16")), mixed
    plain = Shape("llama", 17, hidden=256, vocabulary=2048, heads=8, kv_heads=2, head=32, width=256)
    yield shape(folder, "grouped", plain), mixed
    yield shape(folder, "eight", replace(plain, layers=2, experts=8, experts_used=2)), mixed
    yield shape(folder, "seventy", replace(plain, layers=80)), ("Q3_K_S",)


@pytest.mark.slow
@pytest.mark.skipif(TOOL is None, reason=NO_NATIVE)
def test_every_file_is_that_of_llama_quantize(tmp_path: Path) -> None:
    made = tmp_path / "made.gguf"
    for source, kinds in sources(tmp_path):
        for kind in kinds:
            subprocess.run([str(TOOL), str(source), str(made), kind, "1"], check=True, capture_output=True)
            assert filecmp.cmp(make(source, kind).path, made, shallow=False), (source.stem, kind)
