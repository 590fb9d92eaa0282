"""A process of its own for what runs inside llama.cpp, so that a crash there ends only the child.

`in_child` is the parent's side. The child reads an order (JSON, from standard input) and leaves in the folder that it
is given: `progress`, a byte for every part that is done; then either `error.json`, or the result. It ends with its
parent, even when that is killed (`engines.guard`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from specmeter.errors import EngineDiedError, EngineError, SpecmeterError, UsageError
from specmeter.probe.routing import RoutingOrder, read_routing, save_routing
from specmeter.probe.sweep import Samples, Sweep, sweep
from specmeter.record import Record

SAMPLES, ROUTING, PROGRESS, LOG = "samples.json", "routing.npz", "progress", "llama.log"
_ERROR = "error.json"
_MAX_BYTES = 64 * 2**20
_MAX_LOG = 256 * 1024
_POLL_S = 0.1


class _Order(Record):
    job: Literal["sweep", "routing"]
    order: Sweep | RoutingOrder


class _Error(Record):
    engine: bool
    """Whether llama.cpp failed, or the order cannot be carried out."""
    message: Annotated[str, Field(max_length=10_000)]
    fix: Annotated[str, Field(max_length=10_000)]


def measure_sweep(order: Sweep, folder: Path, done: Callable[[int], None]) -> Samples:
    """`sweep` in a child; `done` is called with the number of complete rounds. Raises what `sweep` raises."""
    _in_child(_Order(job="sweep", order=order), folder, done)
    return Samples.model_validate_json(_read(folder / SAMPLES))


def measure_routing(order: RoutingOrder, folder: Path, done: Callable[[int], None]) -> Path:
    """`read_routing` in a child: the file of what it saw. Raises what `read_routing` raises."""
    _in_child(_Order(job="routing", order=order), folder, done)
    return folder / ROUTING


def _in_child(order: _Order, folder: Path, done: Callable[[int], None]) -> None:
    """Run the order to its end, in `folder`, which must be empty. Raises what the child raised."""
    from specmeter.engines.llama_start import clean_environment
    from specmeter.engines.process import EngineProcess

    process = EngineProcess(
        (sys.executable, "-m", "specmeter.probe.child", str(folder)),
        env=clean_environment(trace=False),
        log_path=folder / LOG,
        stdin=order.model_dump_json(),
    )
    progress, told = folder / PROGRESS, 0
    try:
        while (code := process.wait(_POLL_S)) is None:
            parts = progress.stat().st_size if progress.exists() else 0
            if parts > told:
                told = parts
                done(told)
    finally:
        process.close()
    if (folder / _ERROR).exists():
        error = _Error.model_validate_json(_read(folder / _ERROR))
        raise (EngineError if error.engine else UsageError)(error.message, fix=error.fix)
    if code != 0:
        raise _died(code, folder / LOG)


def _died(code: int, log: Path) -> EngineDiedError:
    from specmeter.engines.llama_log import last_words

    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _MAX_LOG))
        words = last_words(file.read().decode("utf-8", "replace"))
    said = "; ".join(words) or "it said nothing"
    return EngineDiedError(
        f"llama.cpp ended while it was measured (exit code {code}): {said}",
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
    given = TypeAdapter(_Order).validate_json(sys.stdin.read())
    with (folder / PROGRESS).open("ab", buffering=0) as progress:

        def done(_: int) -> None:
            progress.write(b".")

        try:
            if isinstance(given.order, Sweep):
                result = sweep(given.order, done).model_dump_json()
                (folder / SAMPLES).write_text(result, encoding="utf-8")
            else:
                save_routing(read_routing(given.order, done), folder / ROUTING)
        except SpecmeterError as error:
            told = _Error(engine=isinstance(error, EngineError), message=error.message[:10_000], fix=error.fix[:10_000])
            (folder / _ERROR).write_text(told.model_dump_json(), encoding="utf-8")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
