"""The same measurements by llama.cpp's own tools: `llama-perplexity` and `llama-bench`.

Each tool is a process of its own under `engines.guard`; what it prints goes into a file and is read as untrusted text.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from pydantic import ValidationError

from specmeter.analysis.perplexity import perplexity as estimate_of
from specmeter.analysis.quality import Perplexity, SpeedTest
from specmeter.cache import file_sha256
from specmeter.engines.llama_cpp.tools import (
    BINARY_VARIABLE,
    BUILD_COMMAND,
    binary_libraries,
    checksums,
    executable,
    find_program,
)
from specmeter.engines.process import EngineProcess, clean_environment
from specmeter.errors import EngineError, EngineProtocolError, EngineStartError, UsageError
from specmeter.numbers.estimates import bare
from specmeter.record import EngineIdentity, EngineSettings, Estimate, ModelIdentity

Tool = Literal["llama-perplexity", "llama-bench"]
Heard = Callable[[int, int], None]

AUTO = "auto"
_MAX_OUTPUT = 64 * 2**20
_POLL_S = 0.2
_RUNS = 3
"""Most runs for one answer: the tool prints from a thread of its own, and when it ends it does not wait for what is
not printed yet."""
_BENCH_BATCH = 2048

_WINDOWS = re.compile(r"(?:calculating perplexity|computing) over (\d{1,9}) chunks, n_ctx=(\d{1,9})")
_ROW = re.compile(r"^ *(\d{1,12}) {2}(\d+\.\d{4}) {2,}(-?\d+\.\d+) {2,}(-?\d+\.\d+)\s*$", re.MULTILINE)
_RUNNING = re.compile(r"\[(\d{1,9})\](\d+\.\d{4}),")
_FINAL = re.compile(r"Final estimate: PPL = (\d+\.\d+) \+/- (\d+\.\d+)")
_TOO_SHORT = re.compile(r"you need at least (\d+) tokens .*\n?.*?tokenizes to only (\d+) tokens", re.DOTALL)
_TRAINED = re.compile(r"trained on only (\d{1,9}) context tokens")


def find_tool(tool: Tool, given: str) -> Path:
    """The binary: `given`, or for `auto` the one that `tools.find_program` finds.

    Raises `EngineStartError` when there is none.
    """
    flag = "--native-" + tool.removeprefix("llama-")
    fix = f"build it with `{BUILD_COMMAND}`, or give its path with {flag}"
    if given != AUTO:
        found = executable(given)
        if found is None:
            raise EngineStartError(f"{flag} {given}: not an executable file", fix=fix)
        return found
    found = find_program(tool)
    if found is None:
        raise EngineStartError(
            f"{flag} auto: no {tool} next to {BINARY_VARIABLE}, among specmeter's builds or on PATH",
            fix=fix,
        )
    return found


def native_perplexity(
    binary: Path,
    model: ModelIdentity,
    text: str,
    settings: EngineSettings,
    stride: int,
    heard: Heard,
    *,
    windows: int | None = None,
) -> Perplexity:
    """Perplexity by `llama-perplexity`. `settings.context` is the context that it is asked for, `windows` the most
    windows that it scores (None: all of the text).

    A tool that ends well before its answer is printed is run again, `_RUNS` times in all. Raises `UsageError` for a
    text that is too short for it (two windows), `EngineError` when it fails or what it prints cannot be read.
    """
    context = settings.full_context
    with tempfile.TemporaryDirectory(prefix="specmeter-quality-") as name:
        file = Path(name) / "text.txt"
        file.write_bytes(text.encode() + b"\n")  # the tool drops one line break at the end
        options = ["-m", model.path, "-f", str(file), "-c", str(context), *_common(settings)]
        options += [] if windows is None else ["--chunks", str(windows)]
        # With a stride one sequence at a time: the tool would add up the contexts of all of them otherwise.
        options += ["--ppl-stride", str(stride), "-b", str(context)] if stride else ["--ppl-output-type", "1"]
        told = 0

        def listen(output: str) -> None:
            nonlocal told
            total = _WINDOWS.search(output)
            done = sum(1 for _ in (_RUNNING if stride else _ROW).finditer(output))
            if total and done > told:
                told = done
                heard(done, int(total[1]))

        scored = stride or context - context // 2 - 1
        output = ""
        for _ in range(_RUNS):
            started = time.perf_counter()
            output = _run(binary, options, listen)
            wall_s = time.perf_counter() - started
            if short := _TOO_SHORT.search(output):
                raise UsageError(
                    f"the text has {short[2]} tokens; llama-perplexity needs {short[1]} for windows of {context}",
                    fix="give a longer text, or a smaller --context",
                )
            found = _strided(output) if stride else _plain(output, scored)
            if found is not None:
                break
        else:
            raise EngineProtocolError(
                f"{binary}: printed no perplexity in {_RUNS} runs{_tail(output)}",
                fix="use a llama-perplexity of about the embedded version, or leave the flag out",
            )
    trained = _TRAINED.search(output)
    return Perplexity(
        estimate=found.estimate,
        token_error=found.token_error,
        windows=found.windows,
        window_tokens=found.window_tokens,
        scored=scored * found.windows,
        text_tokens=None,
        tokens_sha256=None,
        window_surprise=found.window_surprise,
        train_context=int(trained[1]) if trained else None,
        begins_with_bos=None,
        wall_s=wall_s,
        engine=_identity(binary, _version(binary)),
    )


def native_times(
    binary: Path, model: ModelIdentity, tests: Sequence[SpeedTest], settings: EngineSettings
) -> tuple[tuple[float, ...], EngineIdentity]:
    """ms of each test, once, by `llama-bench` with its warm-up; and which build it was.

    Raises `EngineError` when it fails or leaves a test out.
    """
    output = _run(binary, ["-m", model.path, *bench_options(tests), *_common(settings)])
    found: dict[SpeedTest, float] = {}
    version = ""
    for line in output.splitlines():
        if line.startswith("{") and len(line) < 1_000_000:
            row = _object(line)
            test = _test_of(row)
            samples = row.get("samples_ns")
            if test is not None and isinstance(samples, list) and samples:
                found[test] = float(cast("list[Any]", samples)[0]) / 1e6
            if "build_commit" in row:
                version = f"build {row.get('build_number')} commit {row['build_commit']}"[:200]
    missing = [test.name for test in tests if not (found.get(test, 0) > 0 and math.isfinite(found[test]))]
    if missing:
        raise EngineProtocolError(
            f"{binary} did not measure {', '.join(missing)}{_tail(output)}", fix="run it by hand to see why"
        )
    return tuple(found[test] for test in tests), _identity(binary, version)


def bench_options(tests: Sequence[SpeedTest]) -> list[str]:
    """Flags of `llama-bench` for these tests, each once."""
    prompts = sorted({test.tokens for test in tests if test.kind == "prompt"})
    generations = sorted({test.tokens for test in tests if test.kind == "generate"})
    depths = sorted({test.depth for test in tests})

    def listed(values: Sequence[int]) -> str:
        return ",".join(map(str, values)) or "0"

    batch = ["-b", str(_BENCH_BATCH)]
    return ["-p", listed(prompts), "-n", listed(generations), "-d", listed(depths), *batch, "-r", "1", "-o", "jsonl"]


def _common(settings: EngineSettings) -> list[str]:
    layers = [] if settings.gpu_layers is None else ["-ngl", str(settings.gpu_layers)]
    return ["-t", str(settings.threads or 1), *layers]


class _Printed(NamedTuple):
    """What the tool found, whole."""

    windows: int
    window_tokens: int
    estimate: Estimate
    token_error: float | None
    window_surprise: tuple[float, ...]


def by_window(means: Sequence[float]) -> tuple[float, ...]:
    """The mean surprise of each window, from those of all windows up to it."""
    return tuple(
        mean * (place + 1) - before * place
        for place, (before, mean) in enumerate(zip([0.0, *means], means, strict=False))
    )


def _plain(output: str, scored: int) -> _Printed | None:
    """From the tool's running means (six digits behind the point each), of `scored` tokens a window. None: not all
    there."""
    means = [float(row[3]) for row in _ROW.finditer(output)]
    final, found = _FINAL.search(output), _WINDOWS.search(output)
    if final is None or found is None or len(means) != int(found[1]):
        return None
    surprise = by_window(means)
    estimate = estimate_of(surprise, scored).model_copy(update={"point": float(final[1])})
    return _Printed(len(means), int(found[2]), estimate, float(final[2]), surprise)


def _strided(output: str) -> _Printed | None:
    """From the tool's last running value. None: not all there."""
    running, found = _RUNNING.findall(output), _WINDOWS.search(output)
    if found is None or len(running) != int(found[1]):
        return None
    method = f"{len(running)} windows, as the tool printed it; no interval"
    return _Printed(len(running), int(found[2]), bare(float(running[-1][1]), "1", method, n=len(running)), None, ())


def _test_of(row: dict[str, Any]) -> SpeedTest | None:
    """The test of a row; None for both kinds at once, and for what cannot be read."""
    prompt, generated, depth = row.get("n_prompt"), row.get("n_gen"), row.get("n_depth")
    if bool(prompt) == bool(generated):
        return None
    test = {"kind": "prompt" if prompt else "generate", "tokens": prompt or generated, "depth": depth}
    try:
        return SpeedTest.model_validate(test)
    except ValidationError:
        return None


def _object(line: str) -> dict[str, Any]:
    try:
        row: object = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", row) if isinstance(row, dict) else {}


def _run(binary: Path, options: Sequence[str], listen: Callable[[str], None] | None = None) -> str:
    """What the tool prints; `listen` is given what there is so far, several times a second.

    Raises `EngineError` when it ends with an error.
    """
    with tempfile.TemporaryDirectory(prefix="specmeter-native-") as name:
        log = Path(name) / "output.txt"
        process = EngineProcess((str(binary), *options), env=clean_environment(trace=False), log_path=log)
        try:
            while (code := process.wait(_POLL_S)) is None:
                if listen is not None:
                    listen(_text(log))
        finally:
            process.close()
        output = _text(log)
    if code != 0:
        raise EngineError(
            f"{binary} ended with exit code {code}{_tail(output)}", fix="run it by hand with the same model to see why"
        )
    return output


def _text(log: Path) -> str:
    with log.open("rb") as file:
        return file.read(_MAX_OUTPUT).decode("utf-8", "replace")


def _tail(output: str) -> str:
    lines = [line.strip()[:300] for line in output.splitlines() if line.strip()]
    return "".join(f"\n  | {line}" for line in lines[-5:])


def _version(binary: Path) -> str:
    try:
        done = subprocess.run(
            [binary, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
            env=clean_environment(trace=False),
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    text = (done.stdout + done.stderr)[:100_000].decode("utf-8", "replace")
    found = re.search(r"^version: (.{1,200})", text, re.MULTILINE)
    return found[1].strip() if found else "unknown"


def _identity(binary: Path, version: str) -> EngineIdentity:
    return EngineIdentity(
        kind=binary.stem,
        version=version or "unknown",
        build=version or "unknown",
        binary=str(binary),
        binary_sha256=file_sha256(binary),
        libraries=checksums(binary_libraries(binary)),
    )
