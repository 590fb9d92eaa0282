"""The reader of engine logs and the signs it finds."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refused_batches import excerpt
from specmeter.audit.read import llama_server_log, llama_speculative
from specmeter.engines.llama_cpp.log_signs import scan
from specmeter.engines.log_lines import MAX_LOG_LINE, MAX_SAMPLE, log_lines, plain, sample, stream_lines
from specmeter.errors import SpecmeterError, UsageError


def lines_of(data: bytes) -> list[str]:
    return list(stream_lines(io.BytesIO(data)))


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"one", ["one"]),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"10 %\r20 %\rdone\n", ["10 %", "20 %", "done"]),
        (b"\n\na\n", ["", "", "a"]),
        (b"a\x00b\n\x00\n", ["ab", ""]),
        (b"\x1b[31mE \x1b[0mfailed\n", ["E failed"]),
        (b"caf\xc3\xa9 \xff\xfe broken\n", ["café \ufffd\ufffd broken"]),
        (b"\xef\xbb\xbfmarked\n", ["marked"]),
        ("wide\r\nlines\r\n".encode("utf-16"), ["wide", "lines"]),
        ("\u2028one line\x0b\x0c".encode(), ["\u2028one line\x0b\x0c"]),
    ],
)
def test_lines_are_cleaned(data: bytes, expected: list[str]) -> None:
    assert lines_of(data) == expected


def test_an_endless_line_is_cut_and_the_next_one_is_read() -> None:
    data = b"x" * 3_000_000 + b"\nnext\n" + b"y" * 700_000
    lines = lines_of(data)
    assert [len(line) for line in lines] == [MAX_LOG_LINE, 4, MAX_LOG_LINE]
    assert lines[1] == "next"


def test_characters_and_line_ends_may_lie_across_blocks() -> None:
    line = "é" * 1000 + "\r\n"
    assert lines_of((line * 700).encode()) == ["é" * 1000] * 700


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0.00.052.844 I slot print_timing: id  0 | task 12 | x", "slot print_timing: id  0 | task 12 | x"),
        ("12.46.239.704 W srv  load_model: y", "srv  load_model: y"),
        ("2026-11-21T13:37:01.123456789Z llama_decode: failed", "llama_decode: failed"),
        ("2026-11-21T13:37:01.12Z stderr F llama_decode: failed", "llama_decode: failed"),
        ("Nov 21 13:37:01 host llama-server[1234]: llama_decode: failed", "llama_decode: failed"),
        ("llama-1  | 0.00.001.002 E llama_decode: failed", "llama_decode: failed"),
        ("[42027] 2.24.418.070 I slot x", "slot x"),
        ("[2026-11-21 13:37:01] decode: failed", "decode: failed"),
        ('{"log":"llama_decode: failed\\n","stream":"stderr","time":"2026"}', "llama_decode: failed"),
        ('{"type":"log","time":1,"level":"warn","msg":"decode: failed\\n"}', "decode: failed"),
        ('{"msg": [1, 2]}', '{"msg": [1, 2]}'),
        ("slot print_timing: id  0 | task 1 |", "slot print_timing: id  0 | task 1 |"),
        ("", ""),
    ],
)
def test_prefixes_are_taken_off(line: str, expected: str) -> None:
    assert plain(line) == expected


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.log"):
        with pytest.raises(UsageError) as problem:
            list(log_lines(path))
        assert problem.value.fix


# --- signs -----------------------------------------------------------------------------------------------------------


def test_a_failure_counts_once_however_many_lines_tell_of_it() -> None:
    old = ["decode: failed to initialize batch", "llama_decode: failed to decode, ret = -1"]
    server = [*old, "srv  update_slots: Invalid input batch. i = 0, n_batch = 2048, ret = -1"]
    new = ["decode: failed to initialize batch"]
    bare = ["llama_decode: failed to decode, ret = -3"]
    assert scan(old * 3).failed_decodes.count == 3
    assert scan(server * 2).failed_decodes.count == 2
    assert scan(new * 4).failed_decodes.count == 4
    assert scan(bare * 5).failed_decodes.count == 5
    assert scan([*old, *bare, *server, *new]).failed_decodes.count == 4


def test_a_failure_is_the_drafts_where_the_drafter_says_so() -> None:
    target = ["decode: failed to initialize batch", "llama_decode: failed to decode, ret = -1"]
    draft = [*target, "draft: llama_decode[2] returned -1"]
    signs = scan([*target, *draft, *draft, "spec        draft: llama_process returned 1"])
    assert (signs.failed_decodes.count, signs.failed_decodes_of_draft) == (3, 2)
    assert signs.draft_failures.count == 3


def test_a_published_log_has_as_many_failures_as_refused_batches() -> None:
    for name, refused in (("apple_9b", 819), ("apple_35b", 801), ("apple_4b", 657)):
        text = excerpt(name)
        assert text.count("failed to decode, ret = -1") == refused
        signs = scan(text.splitlines())
        assert signs.failed_decodes.count == refused
        assert signs.position_refused.count == refused
        assert signs.failed_decodes_of_draft == 0
        assert signs.build.startswith("8240 (d088d5b74)")


@pytest.mark.parametrize(
    ("sign", "line"),
    [
        (
            "speculation_refused",
            "0.00.028.996 E srv    load_model: failed to initialize speculative decoding context: draft model vocab "
            "type must match target model to use speculation",
        ),
        ("speculation_refused", "srv  load_model: speculative decoding not supported by this context"),
        ("speculation_refused", "srv  load_model: failed to create MTP context"),
        ("vocabulary_mismatch", "E spec common_specu: the target and draft vocabs are not compatible"),
        ("vocabulary_mismatch", "draft model vocab must closely match target model to use speculation but"),
        ("vocabulary_mismatch", "main: draft model eos tokens must match target model to use speculation. add: 1 - 0"),
        ("vocabulary_mismatch", "the draft model 'd.gguf' is not compatible with the target model 't.gguf'"),
        ("tokens_translated", "the draft model is not compatible with the target model. tokens will be translated"),
        ("synthetic", "W spec common_specu: synthetic speculative acceptance is enabled for benchmarking"),
        ("connect_failed", "Failed to connect to 192.168.0.103:50052"),
        ("position_refused", " for M-RoPE, it is required that the position satisfies: X < Y"),
        ("position_refused", " it is required that the sequence positions remain consecutive: Y = X + 1"),
    ],
)
def test_signs_by_their_wording(sign: str, line: str) -> None:
    signs = scan(["llama_context: n_ctx = 4096", line])
    assert getattr(signs, sign).count == 1
    assert getattr(signs, sign).samples == (plain(line),)


def test_a_quiet_log_has_no_signs() -> None:
    signs = scan(["main: loading model", "load_tensors: offloaded 33/33 layers to GPU", "done"])
    assert signs.lines == 3
    assert not any((signs.failed_decodes, signs.draft_failures, signs.speculation_refused, signs.synthetic))
    assert signs.notes == ()


def test_checkpoints_are_counted_with_their_sizes() -> None:
    created = (
        "created speculative checkpoint (pos_min = 9, pos_max = 9, n_tokens = 10, size = 82.500 MiB, draft = 0.500 MiB)"
    )
    restored = "restoring speculative checkpoint (pos_min = 9, pos_max = 9, size = 87031808)"
    slot = "0.00.100.073 D slot   operator(): id  0 | task 2 | "
    signs = scan([slot + created, slot + restored, slot + created])
    assert signs.checkpoints_created.count == 2
    assert signs.checkpoints_created.size_bytes == 2 * 83 * 1024 * 1024
    assert (signs.checkpoints_restored.count, signs.checkpoints_restored.size_bytes) == (1, 87031808)
    assert signs.longest_replay == 1


def test_traced_restores_are_counted_where_sizes_are_not_printed() -> None:
    slot = "slot   operator(): id  0 | task 2 | accepted "
    signs = scan([slot + " 0/ 4 draft tokens (restore checkpoint)", slot + " 1/ 1 draft tokens"] * 5)
    assert signs.checkpoints_restored.count == 5
    assert not signs.failed_decodes


def test_a_replay_that_does_not_advance_is_seen() -> None:
    def restored(task: int, position: int) -> str:
        at = f"(pos_min = 0, pos_max = {position}, size = 9)"
        return f"slot operator(): id  0 | task {task} | restoring speculative checkpoint {at}"

    fine = scan([restored(1, position) for position in range(50)] + [restored(2, 49)])
    assert fine.longest_replay == 1
    stuck = scan([restored(1, 7), *[restored(1, 8)] * 6, restored(1, 9)])
    assert stuck.longest_replay == 6
    assert stuck.longest_replay_at == "slot 0, task 1, position 8"


def test_remote_buffers_belong_to_the_model_that_was_loading() -> None:
    loaded = "llama_model_loader: loaded meta data with 4 key-value pairs and 2 tensors from {}.gguf (version GGUF V3)"
    remote = "load_tensors: RPC0[192.168.0.103:50052] model buffer size =  1121.03 MiB"
    signs = scan([loaded.format("target"), loaded.format("draft"), remote])
    (buffer,) = signs.rpc_buffers
    assert (buffer.device, buffer.model) == ("RPC0[192.168.0.103:50052]", 1)
    assert buffer.size_bytes == round(1121.03 * 1024 * 1024)


def test_samples_are_short_and_printable() -> None:
    text = sample("\x07" + "x\u202e" * 1000)
    assert len(text) <= MAX_SAMPLE
    assert text.isprintable()


# --- whatever comes --------------------------------------------------------------------------------------------------

NASTY = [
    "1e400",
    "-1",
    "9" * 400,
    "nan",
    "decode: failed to initialize batch",
    "llama_decode: failed to decode, ret = ",
    "llama_process[9] returned ",
    "restoring speculative checkpoint (pos_max = ",
    "size = ",
    "created speculative checkpoint",
    "RPC0[a:1] model buffer size = ",
    "n_ctx = ",
    "loaded meta data with ",
    " from ",
    "build: ",
    '{"msg":',
    "slot x: id  0 | task ",
    " MiB",
    "\x1b[",
    "\r",
    "\n",
    "\x00",
]
"""Fragments of lines that mean something, and numbers that no counter prints."""


@settings(deadline=None)
@given(st.binary(max_size=2000))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    signs = scan(stream_lines(io.BytesIO(data)))
    assert signs.lines >= 0


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(NASTY) | st.text(max_size=20), max_size=60))
def test_no_lines_break_the_signs(parts: list[str]) -> None:
    text = "".join(parts)
    try:
        signs = scan(stream_lines(io.BytesIO(text.encode("utf-8", "surrogatepass"))))
    except SpecmeterError:
        return
    assert len(signs.build) <= MAX_SAMPLE
    assert len(signs.rpc_buffers) <= 50


UNKIND = [
    " ",
    "id ",
    "build 1 (",
    "loaded meta data with  from ",
    "\x1b[",
    "\x1b]",
    '{"msg":',
    "[",
    ": - a=",
    "eval time ",
    "n_ctx ",
]


@pytest.mark.parametrize("piece", UNKIND)
@pytest.mark.parametrize(
    "end", ["", " eval time x", " batch build", " draft tokens", "\x1b", " n_drafted draft acceptance"]
)
def test_long_lines_of_one_piece_take_no_more_than_linear_time(piece: str, end: str, tmp_path: Path) -> None:
    """Without it these take minutes each, and the test would end at its own limit."""
    path = tmp_path / "unkind.log"
    path.write_text(((piece * MAX_LOG_LINE)[: MAX_LOG_LINE - 40] + end + "\n") * 3, encoding="utf-8")
    scan(log_lines(path))
    assert list(llama_speculative.read_llama_speculative(path))
    assert list(llama_server_log.read_llama_server(path))


def test_a_large_log_streams_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    long_lines = (b"word " * 3000 + b"\n") * 300 + b"z" * 500_000 + b"\n" + bytes(range(256)) * 40 + b"\n"
    with path.open("wb") as file:
        for _ in range(10):
            file.write(excerpt("apple_4b").encode() + long_lines)
    assert path.stat().st_size > 50_000_000
    program = (
        "import sys, tracemalloc\n"
        "from pathlib import Path\n"
        "from specmeter.engines.llama_cpp.log_signs import scan\n"
        "from specmeter.engines.log_lines import log_lines\n"
        "tracemalloc.start()\n"
        "signs = scan(log_lines(Path(sys.argv[1])))\n"
        "print(signs.failed_decodes.count, tracemalloc.get_traced_memory()[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    failures, peak = map(int, done.stdout.split())
    assert failures == 10 * 657
    assert peak < 8_000_000
