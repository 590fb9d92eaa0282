"""llama.cpp's own tools: found, asked, read; the real ones where there are any."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

import pytest

from engines.llama_fixtures import NO_NATIVE, native
from programs import write_program
from quality.cores import model, short_text
from specmeter.analysis.perplexity import perplexity
from specmeter.analysis.quality import Perplexity, SpeedTest
from specmeter.engines.llama_cpp.tools import Program
from specmeter.errors import EngineError, EngineProtocolError, EngineStartError, UsageError
from specmeter.record import EngineSettings
from specmeter_studies.quality.native import bench_options, find_tool, native_perplexity, native_times
from specmeter_studies.quality.scoring import Scoring, score

PLAIN = """0.00 I perplexity: calculating perplexity over 3 chunks, n_ctx=512, batch_size=2048, n_seq=4
       0  2.0000  0.693147    0.1
     512  3.0000  1.098612  0.05
    1024  2.5000  0.916291  0.04
0.22 I Final estimate: PPL = 2.5000 +/- 0.02242
"""
STRIDED = "computing over 3 chunks, n_ctx=768, batch_size=512, n_seq=1\n[1]2.0000,[2]3.0000,[3]2.5000,\n"
TOO_SHORT = (
    "you need at least 1024 tokens to evaluate\nperplexity: the data file you provided tokenizes to only 600 tokens"
)
TESTS = (SpeedTest(kind="prompt", tokens=64), SpeedTest(kind="generate", tokens=8, depth=32))


def acting(folder: Path, output: str, code: int = 0) -> Path:
    """A tool that prints `output`, and writes into `asked` what it was called with and the text that it was given."""
    script = folder / "tool.py"
    script.write_text(
        "import json, sys, pathlib\n"
        "args = sys.argv[1:]\n"
        "if args != ['--version']:\n"
        "    text = open(args[args.index('-f') + 1], 'rb').read().decode() if '-f' in args else ''\n"
        f"    pathlib.Path({str(folder / 'asked')!r}).write_text(json.dumps([args, text]))\n"
        f"print({output!r} if args != ['--version'] else 'version: 7 (abc)')\n"
        f"sys.exit({code} if args != ['--version'] else 0)\n",
        encoding="utf-8",
    )
    binary = folder / "llama-acting"
    write_program(binary, f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    return binary


def asked(folder: Path) -> tuple[list[str], str]:
    args, text = json.loads((folder / "asked").read_text(encoding="utf-8"))
    return args, text


def run(binary: Path, stride: int = 0, context: int = 512) -> Perplexity:
    settings = EngineSettings(context=context, threads=1)
    return native_perplexity(binary, model("bench:draft-small"), short_text(), settings, stride, lambda *_: None)


def test_running_means_become_windows(tmp_path: Path) -> None:
    found = run(acting(tmp_path, PLAIN))
    assert found.estimate.point == 2.5
    assert found.token_error == 0.02242
    assert found.window_surprise == pytest.approx([math.log(2), math.log(4.5), math.log(2.5**3 / 9)], abs=1e-5)
    assert (found.windows, found.window_tokens, found.scored) == (3, 512, 765)
    assert (found.engine.version, found.engine.kind) == ("7 (abc)", "llama-acting")
    args, text = asked(tmp_path)
    assert text == short_text() + "\n"
    assert args[args.index("-c") + 1] == "512"
    assert args[args.index("-t") + 1] == "1"
    assert "--ppl-stride" not in args


def test_with_a_stride_the_last_running_value_counts(tmp_path: Path) -> None:
    found = run(acting(tmp_path, STRIDED), stride=256)
    assert (found.estimate.point, found.estimate.low, found.token_error) == (2.5, None, None)
    assert (found.windows, found.window_tokens, found.scored, found.window_surprise) == (3, 768, 768, ())
    args, _ = asked(tmp_path)
    assert args[args.index("--ppl-stride") + 1] == "256"
    assert args[args.index("-b") + 1] == "512"


def test_a_text_too_short_for_the_tool(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="600 tokens; llama-perplexity needs 1024"):
        run(acting(tmp_path, TOO_SHORT))


@pytest.mark.parametrize("output", ["", "nonsense", PLAIN.replace("chunks", "lumps"), PLAIN.replace("512  3", "512 3")])
def test_what_cannot_be_read_is_no_number(tmp_path: Path, output: str) -> None:
    with pytest.raises(EngineProtocolError, match="no perplexity"):
        run(acting(tmp_path, output))


def hasty(folder: Path, output: str, written: str, times: int) -> Path:
    """A tool that so many times ends when only `written` of its output is printed."""
    (folder / "whole").mkdir()
    whole = acting(folder / "whole", output)
    (folder / "written").write_text(written, encoding="utf-8")
    cut = folder / "llama-hasty"
    runs = folder / "runs"
    write_program(
        cut,
        '#!/bin/sh\n[ "$1" = --version ] && exec echo version: 7\n'
        f'echo >> "{runs}"\n'
        f'[ $(wc -l < "{runs}") -gt {times} ] && exec "{whole}" "$@"\ncat "{folder / "written"}"\n',
    )
    return cut


@pytest.mark.parametrize(
    ("output", "end", "stride"),
    [
        (PLAIN, "0.00 I", 0),
        (PLAIN, "       0", 0),
        (PLAIN, "    1024", 0),
        (PLAIN, "0.22 I Final", 0),
        (STRIDED, "computing", 256),
        (STRIDED, "[3]", 256),
    ],
)
def test_a_tool_that_ends_before_all_is_written_runs_again(tmp_path: Path, output: str, end: str, stride: int) -> None:
    assert run(hasty(tmp_path, output, output[: output.index(end)], times=2), stride).estimate.point == 2.5


def test_a_tool_that_never_writes_all_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(EngineProtocolError, match="printed no perplexity in 3 runs"):
        run(hasty(tmp_path, PLAIN, "", times=3))
    assert (tmp_path / "runs").read_text(encoding="utf-8") == "\n" * 3


@pytest.mark.parametrize("written", ["", "you need at least 1024 tokens to evaluate\n"])
def test_that_the_text_is_too_short_may_come_late(tmp_path: Path, written: str) -> None:
    with pytest.raises(UsageError, match="600 tokens; llama-perplexity needs 1024"):
        run(hasty(tmp_path, TOO_SHORT, written, times=1))


def test_a_tool_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"exit code 3(?s:.*)out of memory"):
        run(acting(tmp_path, "out of memory", code=3))


def bench_rows(*rows: tuple[int, int, int, float]) -> str:
    keys = ("n_prompt", "n_gen", "n_depth", "samples_ns")
    found = [
        dict(zip(keys, (*row[:3], [row[3]]), strict=True)) | {"build_commit": "abc", "build_number": 5} for row in rows
    ]
    return "loading\n{not json\n" + "\n".join(json.dumps(row) for row in found)


def test_times_of_llama_bench(tmp_path: Path) -> None:
    output = bench_rows((64, 0, 0, 2e6), (0, 8, 0, 9e6), (64, 0, 32, 3e6), (0, 8, 32, 4e6))
    settings = EngineSettings(threads=2, gpu_layers=7)
    times, engine = native_times(acting(tmp_path, output), model("bench:draft-small"), TESTS, settings)
    assert times == (2.0, 4.0)
    assert engine.version == "build 5 commit abc"
    args, _ = asked(tmp_path)
    assert args[args.index("-ngl") + 1] == "7"
    assert [args[args.index(flag) + 1] for flag in ("-p", "-n", "-d", "-r")] == ["64", "8", "0,32", "1"]


@pytest.mark.parametrize(
    "output",
    [
        bench_rows((64, 0, 0, 2e6)),
        bench_rows((64, 0, 0, 2e6), (0, 8, 32, 0)),
        bench_rows((64, 0, 0, 2e6), (0, 8, 32, -5)),
        bench_rows((64, 0, 0, 2e6), (64, 8, 32, 4e6)),
        "[" * 100_000,
        "{" * 1000,
    ],
)
def test_a_test_that_llama_bench_left_out(tmp_path: Path, output: str) -> None:
    with pytest.raises(EngineProtocolError, match="did not measure"):
        native_times(acting(tmp_path, output), model("bench:draft-small"), TESTS, EngineSettings(threads=1))


def test_kinds_without_tests_are_asked_for_nowhere() -> None:
    assert bench_options(TESTS[:1])[:6] == ["-p", "64", "-n", "0", "-d", "0"]


def test_tools_are_found_beside_the_server_or_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("llama-server", "llama-perplexity"):
        (tmp_path / name).write_text("#!/bin/sh\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("SPECMETER_LLAMA_SERVER", str(tmp_path / "llama-server"))
    assert find_tool("llama-perplexity", "auto") == tmp_path / "llama-perplexity"
    with pytest.raises(EngineStartError, match="no llama-bench"):
        find_tool("llama-bench", "auto")
    monkeypatch.delenv("SPECMETER_LLAMA_SERVER")
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "empty"), str(tmp_path)]))
    assert find_tool("llama-perplexity", "auto") == tmp_path / "llama-perplexity"
    assert find_tool("llama-bench", str(tmp_path / "llama-server")) == tmp_path / "llama-server"
    with pytest.raises(EngineStartError, match=r"--native-bench .*absent: not an executable file"):
        find_tool("llama-bench", str(tmp_path / "absent"))


def real(tool: Program) -> Path:
    found = native(tool)
    assert found is not None
    return found


needs_perplexity = pytest.mark.skipif(native("llama-perplexity") is None, reason=NO_NATIVE)
needs_bench = pytest.mark.skipif(native("llama-bench") is None, reason=NO_NATIVE)


@needs_perplexity
@pytest.mark.parametrize(
    ("name", "context", "stride"),
    [
        ("bench:dense?quant=Q8_0", 512, 0),
        ("bench:moe", 200, 0),
        ("bench:hybrid", 256, 256),
        ("core:draft-other-special", 300, 0),
    ],
)
def test_the_real_tool_says_the_same(name: str, context: int, stride: int) -> None:
    settings = EngineSettings(context=context, threads=1)
    theirs = native_perplexity(real("llama-perplexity"), model(name), short_text(), settings, stride, lambda *_: None)
    ours = score(Scoring(model=model(name).path, settings=settings, stride=stride, text=short_text()), lambda *_: None)
    means = [total / ours.scored for total in ours.surprise]
    assert perplexity(means, ours.scored).point == pytest.approx(theirs.estimate.point, rel=0.005)
    assert (len(means), ours.window_tokens, len(means) * ours.scored) == (
        theirs.windows,
        theirs.window_tokens,
        theirs.scored,
    )
    if (
        not stride
    ):  # where two experts are nearly as good, arithmetic decides, and a window may differ more than the text
        assert theirs.window_surprise == pytest.approx(means, abs=0.03)


@needs_perplexity
def test_the_real_tool_and_a_text_that_is_too_short() -> None:
    settings = EngineSettings(context=512, threads=1)
    with pytest.raises(UsageError, match="llama-perplexity needs 1024"):
        native_perplexity(
            real("llama-perplexity"), model("bench:draft-small"), short_text()[:2000], settings, 0, lambda *_: None
        )


@needs_bench
def test_the_real_llama_bench_measures_every_test() -> None:
    times, engine = native_times(real("llama-bench"), model("bench:draft-small"), TESTS, EngineSettings(threads=1))
    assert len(times) == 2
    assert all(ms > 0 for ms in times)
    assert "commit" in engine.version
