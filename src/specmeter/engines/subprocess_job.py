"""One job in a process of its own, for what runs inside llama.cpp: a crash there ends only the child.

`run_in_subprocess` is the parent's side, `serve` the child's. The child reads an order (JSON, from standard input) and
leaves in the folder that it is given: `progress`, a line for every part that is done; what the job itself writes; and
`error.json` where the job cannot be done. It ends with its parent, even when that is killed (`engines.guard`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from specmeter.engines.llama_cpp.log import last_words
from specmeter.engines.process import EngineProcess, clean_environment
from specmeter.errors import EngineDiedError, EngineError, EngineHungError, SpecmeterError, UsageError
from specmeter.record import Record

Heard = Callable[[int, int], None]
"""Called with (parts done, parts in all)."""

_ERROR, _PROGRESS, _LOG = "error.json", "progress", "llama.log"
_MAX_BYTES = 64 * 2**20
_MAX_LOG = 256 * 1024
_POLL_S = 0.1


class _Error(Record):
    engine: bool
    """Whether llama.cpp failed, or the order cannot be carried out."""
    message: Annotated[str, Field(max_length=10_000)]
    fix: Annotated[str, Field(max_length=10_000)]


def run_in_subprocess(
    module: str,
    order: BaseModel,
    folder: Path,
    heard: Heard | None = None,
    *,
    limit_s: float | None = None,
    started: Callable[[Sequence[int]], None] | None = None,
) -> None:
    """Run `python -m MODULE`, whose main program is `serve`, to its end in `folder`, which must be empty.

    `started` receives the ids of its processes.

    Raises what the job raised as `EngineError` or `UsageError`, `EngineDiedError` when the child ended otherwise, and
    `EngineHungError` when it is not done after `limit_s`; it is ended then.
    """
    process = EngineProcess(
        (sys.executable, "-m", module, str(folder)),
        env=clean_environment(trace=False),
        log_path=folder / _LOG,
        stdin=order.model_dump_json(),
    )
    if started is not None:
        started(process.pids())
    told, ends_at = "", None if limit_s is None else time.monotonic() + limit_s
    try:
        code = None
        while code is None:
            if ends_at is not None and time.monotonic() > ends_at:
                raise EngineHungError(f"llama.cpp did not finish within {limit_s:.0f} s", fix="use a smaller model")
            code = process.wait(_POLL_S)
            # Also after the end: a child that is done within one look has told what it did all the same.
            line = _last_line(folder / _PROGRESS) if heard is not None else ""
            if heard is not None and line not in ("", told):
                told = line
                heard(*map(int, line.split("/")))
    finally:
        process.close()
    if (folder / _ERROR).exists():
        error = _Error.model_validate_json(read_result(folder / _ERROR))
        raise (EngineError if error.engine else UsageError)(error.message, fix=error.fix)
    if code != 0:
        raise _died(code, folder / _LOG)


def read_result(path: Path) -> bytes:
    """What the job left in a file. Raises `EngineDiedError` when there is nothing, or too much."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError:
        content = b""
    if not content or len(content) > _MAX_BYTES:
        raise EngineDiedError(f"{path.name}: the measuring process left no result", fix="try again; is the disk full?")
    return content


def serve(job: Callable[[str, Path, Heard], None]) -> int:
    """The child's main program: carry out one order; the exit code. `job` gets the order as JSON, and the folder."""
    folder = Path(sys.argv[1])
    order = sys.stdin.read()
    with (folder / _PROGRESS).open("ab", buffering=0) as progress:

        def heard(parts: int, total: int) -> None:
            progress.write(f"{parts}/{total}\n".encode())

        try:
            job(order, folder, heard)
        except SpecmeterError as error:
            told = _Error(engine=isinstance(error, EngineError), message=error.message[:10_000], fix=error.fix[:10_000])
            (folder / _ERROR).write_text(told.model_dump_json(), encoding="utf-8")
            return 1
    return 0


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
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _MAX_LOG))
        words = last_words(file.read().decode("utf-8", "replace"))
    return EngineDiedError(
        f"llama.cpp ended while it was measured (exit code {code}): {'; '.join(words) or 'it printed nothing'}",
        fix="check the model file with `specmeter models inspect`, and that memory is free",
    )
