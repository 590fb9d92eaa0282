"""A process of its own for what runs inside llama.cpp, so that a crash there ends only the child.

The child reads an order (JSON, from standard input) and leaves in the folder that it is given: `progress`, a line for
every part that is done; then either `error.json`, or `result.json`. It ends with its parent, even when that is killed
(`engines.guard`).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field

from specmeter.errors import EngineDiedError, EngineError, SpecmeterError, UsageError
from specmeter.quality.scoring import Scores, Scoring, score
from specmeter.quality.timing import Times, Timing, time_tests
from specmeter.record import Record

Heard = Callable[[int, int], None]
"""Called with (parts done, parts in all)."""
Result = TypeVar("Result", Scores, Times)

_RESULT, _ERROR, _PROGRESS, _LOG = "result.json", "error.json", "progress", "llama.log"
_MAX_BYTES = 64 * 2**20
_MAX_LOG = 256 * 1024
_POLL_S = 0.1


class _Order(Record):
    score: Scoring | None = None
    time: Timing | None = None


class _Error(Record):
    engine: bool
    """Whether llama.cpp failed, or the order cannot be carried out."""
    message: Annotated[str, Field(max_length=10_000)]
    fix: Annotated[str, Field(max_length=10_000)]


def score_apart(order: Scoring, heard: Heard) -> Scores:
    """`scoring.score` in a child. Raises what it raises, and `EngineDiedError`."""
    return _in_child(_Order(score=order), Scores, heard)


def time_apart(order: Timing) -> Times:
    """`timing.time_tests` in a child. Raises what it raises, and `EngineDiedError`."""
    return _in_child(_Order(time=order), Times, None)


def _in_child(order: _Order, kind: type[Result], heard: Heard | None) -> Result:
    from specmeter.engines.llama_start import clean_environment
    from specmeter.engines.process import EngineProcess

    with tempfile.TemporaryDirectory(prefix="specmeter-quality-") as name:
        folder = Path(name)
        process = EngineProcess(
            (sys.executable, "-m", "specmeter.quality.child", name),
            env=clean_environment(trace=False),
            log_path=folder / _LOG,
            stdin=order.model_dump_json(),
        )
        told = ""
        try:
            while (code := process.wait(_POLL_S)) is None:
                line = _last_line(folder / _PROGRESS) if heard is not None else ""
                if heard is not None and line not in ("", told):
                    told = line
                    heard(*map(int, line.split("/")))
        finally:
            process.close()
        if (folder / _ERROR).exists():
            error = _Error.model_validate_json(_read(folder / _ERROR))
            raise (EngineError if error.engine else UsageError)(error.message, fix=error.fix)
        if code != 0:
            raise _died(code, folder / _LOG)
        return kind.model_validate_json(_read(folder / _RESULT))


def _last_line(path: Path) -> str:
    """The last complete line, empty where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 100))
            lines = file.read().decode().split("\n")
    except OSError:
        return ""
    return lines[-2] if len(lines) > 1 else ""


def _died(code: int, log: Path) -> EngineDiedError:
    from specmeter.engines.llama_log import last_words

    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _MAX_LOG))
        words = last_words(file.read().decode("utf-8", "replace"))
    return EngineDiedError(
        f"llama.cpp ended while it was measured (exit code {code}): {'; '.join(words) or 'it said nothing'}",
        fix="check the model file with `specmeter models inspect`, and that memory is free",
    )


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError:
        content = b""
    if not content or len(content) > _MAX_BYTES:
        raise EngineDiedError(f"{path.name}: the measuring process left no result", fix="try again; is the disk full?")
    return content


def main() -> int:
    """The child: carry out one order."""
    folder = Path(sys.argv[1])
    given = _Order.model_validate_json(sys.stdin.read())
    with (folder / _PROGRESS).open("ab", buffering=0) as progress:

        def done(parts: int, total: int) -> None:
            progress.write(f"{parts}/{total}\n".encode())

        try:
            if given.score is not None:
                result = score(given.score, done).model_dump_json()
            elif given.time is not None:
                result = time_tests(given.time).model_dump_json()
            else:
                raise UsageError("an order for nothing", fix="give something to score or to time")
            (folder / _RESULT).write_text(result, encoding="utf-8")
        except SpecmeterError as error:
            told = _Error(engine=isinstance(error, EngineError), message=error.message[:10_000], fix=error.fix[:10_000])
            (folder / _ERROR).write_text(told.model_dump_json(), encoding="utf-8")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
