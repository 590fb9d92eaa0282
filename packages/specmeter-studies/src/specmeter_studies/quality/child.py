"""Scoring and timing in a process of their own; see `engines.process`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from specmeter.analysis.quality import SpeedTest
from specmeter.engines.process import Heard, read_result, run_in_subprocess, serve
from specmeter.errors import EngineStartError, UsageError
from specmeter.extensions import installing
from specmeter.record import EngineIdentity, ModelIdentity, Record
from specmeter_studies.quality import mlx
from specmeter_studies.quality.scoring import Scores, Scoring, score
from specmeter_studies.quality.timing import Times, Timing, time_tests

Result = TypeVar("Result", Scores, Times)

_RESULT = "result.json"


class _QualityJob(Record):
    score: Scoring | None = None
    time: Timing | None = None
    time_mlx: mlx.MlxTiming | None = None


def score_apart(order: Scoring, heard: Heard) -> Scores:
    """`scoring.score` in a child. Raises what it raises, and `EngineDiedError`."""
    return _apart(_QualityJob(score=order), Scores, heard)


def time_apart(order: Timing) -> Times:
    """`timing.time_tests` in a child. Raises what it raises, and `EngineDiedError`."""
    return _apart(_QualityJob(time=order), Times, None)


def mlx_times(model: ModelIdentity, tests: Sequence[SpeedTest], seed: int) -> tuple[tuple[float, ...], EngineIdentity]:
    """ms of each test by `mlx.time_tests`, once, in a child; and which MLX it was.

    Raises `EngineStartError` without MLX, `EngineError` when it fails.
    """
    if reason := mlx.missing():
        raise EngineStartError(f"MLX cannot be used: {reason}", fix=installing("mlx", "specmeter-studies"))
    order = mlx.MlxTiming(folder=model.path, tests=tuple(tests), seed=seed)
    return _apart(_QualityJob(time_mlx=order), Times, None).ms, mlx.identify()


def _apart(order: _QualityJob, kind: type[Result], heard: Heard | None) -> Result:
    with tempfile.TemporaryDirectory(prefix="specmeter-quality-") as name:
        run_in_subprocess(__name__, order, Path(name), heard)
        return kind.model_validate_json(read_result(Path(name) / _RESULT))


def _carry_out(given: str, folder: Path, heard: Heard) -> None:
    order = _QualityJob.model_validate_json(given)
    if order.score is not None:
        result = score(order.score, heard).model_dump_json()
    elif order.time is not None:
        result = time_tests(order.time).model_dump_json()
    elif order.time_mlx is not None:
        result = mlx.time_tests(order.time_mlx).model_dump_json()
    else:
        raise UsageError("nothing to measure", fix="give something to score or to time")
    (folder / _RESULT).write_text(result, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(serve(_carry_out))
