from __future__ import annotations

import struct
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import gguf
import pytest
from gguf_files import TOKENS, key_u32, raw_gguf, string, tensor, write_gguf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specmeter.errors import ModelError
from specmeter.models.gguf import GGML_TYPES, Header, NumberArray, StringArray, read_header

WEIGHTS = {"token_embd.weight": (32, 12), "blk.0.attn_q.weight": (32, 32), "output_norm.weight": (32,)}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    keys = {"block_count": 1, "flag": True, "text": "grüße", "layers": [1, 2, 3], "scale": [0.5, 2.0]}
    return write_gguf(tmp_path / "model.gguf", keys=keys, tensors=WEIGHTS)


def test_agrees_with_the_gguf_package(model: Path) -> None:
    header, theirs = read_header(model), gguf.GGUFReader(model)
    assert {t.name: (t.shape, t.type.name, t.offset, t.bytes, t.elements) for t in header.tensors} == {
        t.name: (tuple(map(int, t.shape)), t.tensor_type.name, t.data_offset, t.n_bytes, t.n_elements)
        for t in theirs.tensors
    }
    for name, field in theirs.fields.items():
        if name.startswith("GGUF."):
            continue
        ours = header.metadata[name]
        if isinstance(ours, StringArray):
            ours = [text.decode() for text in ours]
        elif isinstance(ours, NumberArray):
            ours = list(ours.values())
        assert ours == field.contents(), name


def test_every_type_has_the_size_that_the_gguf_package_knows() -> None:
    for number, (block, size) in gguf.GGML_QUANT_SIZES.items():
        if int(number) not in (9, 15):  # the package gives Q8_1 and Q8_K, never stored in files, other sizes
            kind = GGML_TYPES[int(number)]
            assert (kind.name, kind.block, kind.block_bytes) == (number.name, block, size)


def test_strings_are_found_by_index_and_text(model: Path) -> None:
    tokens = read_header(model).metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, StringArray)
    assert list(tokens) == [text.encode() for text in TOKENS]
    assert tokens[-1] == b"<|im_end|>"
    assert tokens[1] == b"<s>"
    assert tokens.find(b"b") == 4
    assert tokens.find(b"nowhere") is None
    assert tokens.tail(len(tokens)) == b""
    with pytest.raises(IndexError):
        tokens[len(TOKENS)]


def test_text_within_a_string_is_not_a_string(tmp_path: Path) -> None:
    content = [string(b"x" + string(b"needle") * 3), string(b"needle"), string(string(b"last"))]
    strings = check(tmp_path, raw_gguf([array(8, 3, b"".join(content))])).metadata["k"]
    assert isinstance(strings, StringArray)
    assert strings.find(b"needle") == 1
    assert strings.find(b"last") is None


def check(tmp_path: Path, content: bytes) -> Header:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    return read_header(path)


def array(kind: int, count: int, content: bytes = b"") -> bytes:
    return string(b"k") + struct.pack("<IIQ", 9, kind, count) + content


HOSTILE = {
    "empty": (b"", "does not begin with the letters GGUF"),
    "short": (b"GG", "does not begin with the letters GGUF"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a Git LFS pointer"),
    "page": (b"\n <!DOCTYPE html>\n<html>", "an HTML page"),
    "wrong magic": (b"PK\3\4" + bytes(100), "does not begin with the letters GGUF"),
    "only magic": (b"GGUF", "truncated"),
    "version 0": (raw_gguf(version=0), "version 0"),
    "version 1": (raw_gguf(version=1), "version 1"),
    "version 4": (raw_gguf(version=4), "version 4"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "huge tensor count": (raw_gguf(tensor_count=2**63), "tensors"),
    "huge key count": (raw_gguf(key_count=2**64 - 1), "metadata keys"),
    "claimed keys are zeros": (raw_gguf(key_count=500, data=0), "is empty"),
    "claimed tensors are missing": (raw_gguf(tensor_count=500, data=0), "truncated"),
    "huge key": (raw_gguf([struct.pack("<Q", 2**62)]), "at most 65535"),
    "huge string": (raw_gguf([string(b"k") + struct.pack("<IQ", 8, 2**40)]), "bytes long"),
    "string beyond the end": (raw_gguf([string(b"k") + struct.pack("<IQ", 8, 10**6)]), "truncated"),
    "empty key": (raw_gguf([key_u32(b"", 1)]), "is empty"),
    "duplicate key": (raw_gguf([key_u32(b"k", 1), key_u32(b"k", 1)]), "repeated"),
    "key is not UTF-8": (raw_gguf([key_u32(b"\xff\xfe", 1)]), "UTF-8"),
    "unknown value type": (raw_gguf([string(b"k") + struct.pack("<I", 13)]), "unknown type 13"),
    "nested arrays": (raw_gguf([array(9, 1)]), "array of arrays"),
    "array of unknown type": (raw_gguf([array(99, 1)]), "unknown type 99"),
    "huge number array": (raw_gguf([array(4, 2**62)]), "numbers"),
    "huge string array": (raw_gguf([array(8, 2**61)]), "strings"),
    "string array beyond the end": (raw_gguf([array(8, 3, string(b"a") + struct.pack("<Q", 2**63))]), "truncated"),
    "alignment 0": (raw_gguf([key_u32(b"general.alignment", 0)]), "power of two"),
    "alignment 24": (raw_gguf([key_u32(b"general.alignment", 24)]), "power of two"),
    "alignment is text": (raw_gguf([string(b"general.alignment") + struct.pack("<I", 8) + string(b"32")]), "power"),
    "too many dimensions": (raw_gguf([], [tensor(b"t", [1] * 5)]), "5 dimensions"),
    "a billion dimensions": (raw_gguf([], [string(b"t") + struct.pack("<I", 10**9)]), "dimensions"),
    "dimension of size 0": (raw_gguf([], [tensor(b"t", [32, 0])]), "size 0"),
    "overflowing shape": (raw_gguf([], [tensor(b"t", [2**62, 2**62, 2**62, 2**62])]), "more elements"),
    "unknown ggml type": (raw_gguf([], [tensor(b"t", [32], kind=4)]), "unknown type 4"),
    "rows that do not fill blocks": (raw_gguf([], [tensor(b"t", [33], kind=8)]), "not a multiple"),
    "long tensor name": (raw_gguf([], [tensor(b"t" * 64, [32])]), "at most 63"),
    "tensor name is not UTF-8": (raw_gguf([], [tensor(b"\xc3", [32])]), "UTF-8"),
    "duplicate tensor": (raw_gguf([], [tensor(b"t", [32]), tensor(b"t", [32], offset=64)]), "appears twice"),
    "overlapping tensors": (raw_gguf([], [tensor(b"t", [32]), tensor(b"u", [32])]), "begins at 0, not at 64"),
    "tensor far outside": (raw_gguf([], [tensor(b"t", [32], offset=2**63)]), "begins at"),
    "truncated weights": (raw_gguf([], [tensor(b"t", [4096])], data=100), "truncated: the data of tensor 't'"),
    "no weights at all": (raw_gguf([], [tensor(b"t", [2**40])], data=0), "truncated"),
}


@pytest.mark.parametrize(("content", "reason"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_files_are_refused_with_a_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(ModelError) as caught:
        check(tmp_path, content)
    assert reason in caught.value.message
    assert caught.value.fix


def test_zero_dimensions_are_a_scalar(tmp_path: Path) -> None:
    assert check(tmp_path, raw_gguf([], [tensor(b"t", [])])).tensors[0].shape == (1,)


def test_values_that_are_not_utf8_are_replaced(tmp_path: Path) -> None:
    header = check(tmp_path, raw_gguf([string(b"k") + struct.pack("<I", 8) + string(b"a\xff")]))
    assert header.metadata == {"k": "a�"}


def test_header_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specmeter.models.gguf.MAX_HEADER_BYTES", 300_000)
    with pytest.raises(ModelError, match=r"larger than 300\.0 kB"):
        check(tmp_path, raw_gguf([array(0, 600_000, bytes(600_000))]))


def test_files_that_are_no_files(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path, "is a directory"),
        (tmp_path / "x", "no such file"),
        (Path("a\0b"), "cannot be read"),
    ):
        with pytest.raises(ModelError, match=reason):
            read_header(path)


VALID = raw_gguf(
    [
        string(b"general.architecture") + struct.pack("<I", 8) + string(b"llama"),
        key_u32(b"llama.block_count", 2),
        array(8, 3, string(b"a") + string(b"") + string(b"ccc")),
        string(b"numbers") + struct.pack("<IIQ", 9, 5, 4) + bytes(16),
    ],
    [tensor(b"token_embd.weight", [32, 4]), tensor(b"blk.0.x", [32, 2], kind=8, offset=256)],
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edits=st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), max_size=6),
    cut=st.integers(0, len(VALID)),
)
def test_mutations_never_crash(tmp_path: Path, edits: list[tuple[int, int]], cut: int) -> None:
    content = bytearray(VALID)
    for at, value in edits:
        content[at] = value
    survives(tmp_path, bytes(content) if edits else bytes(content[:cut]))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    counts=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    pieces=st.lists(
        st.one_of(
            st.binary(max_size=24),
            st.builds(string, st.binary(max_size=8)),
            st.builds(
                lambda *numbers: struct.pack("<IIQ", *numbers), st.just(9), st.integers(0, 13), st.integers(0, 9)
            ),
            st.builds(struct.Struct("<Q").pack, st.integers(0, 2**64 - 1)),
            st.builds(struct.Struct("<I").pack, st.integers(0, 40)),
        ),
        max_size=20,
    ),
)
def test_random_bytes_never_crash(tmp_path: Path, counts: tuple[int, int], pieces: list[bytes]) -> None:
    survives(tmp_path, b"GGUF" + struct.pack("<IQQ", 3, *counts) + b"".join(pieces))


def survives(tmp_path: Path, content: bytes) -> None:
    """A header or a `ModelError`, and little memory."""
    tracemalloc.start()
    try:
        with suppress(ModelError):
            check(tmp_path, content)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 4_000_000


_MEASURE = """
import sys
from pathlib import Path
from specmeter.models.facts import read_facts
assert read_facts(Path(sys.argv[1])).vocabulary.size == 248_320
status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
print(1024 * int(status["VmHWM"].removesuffix("kB")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_a_large_vocabulary_costs_little_memory(tmp_path: Path) -> None:
    count = 248_320
    tokens = [b"%x-token" % (number * 2_654_435_761 % 2**32) for number in range(count)]
    merges = (one + b" " + other for one, other in pairwise(tokens))
    keys = [
        string(b"tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, count) + b"".join(map(string, tokens)),
        string(b"tokenizer.ggml.token_type") + struct.pack("<IIQ", 9, 5, count) + bytes(4 * count),
        string(b"tokenizer.ggml.scores") + struct.pack("<IIQ", 9, 6, count) + bytes(4 * count),
        string(b"tokenizer.ggml.merges") + struct.pack("<IIQ", 9, 8, count - 1) + b"".join(map(string, merges)),
    ]
    path = tmp_path / "large.gguf"
    path.write_bytes(raw_gguf(keys))
    done = subprocess.run([sys.executable, "-c", _MEASURE, str(path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100_000_000


def test_a_header_full_of_empty_strings_ends_soon(tmp_path: Path) -> None:
    count = 1_000_000
    start = perf_counter()
    check(tmp_path, raw_gguf([array(8, count, bytes(8 * count))]))
    assert perf_counter() - start < 10
