"""Finds the context that prompts and answers need, before anything starts.

A token has a byte at least, so the bytes of a text are a bound, and if that bound fits nothing is counted. Otherwise
the target's own tokenizer is asked: of a GGUF file its vocabulary alone is loaded, in a process of its own, which takes
a second or two however large the model is; of any other model, and of an architecture that the installed llama.cpp does
not know, a session of the engine.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import TypeAdapter

from specmeter import workloads
from specmeter.engines.registry import spec_of
from specmeter.errors import EngineError, ExperimentError
from specmeter.record import Record
from specmeter.record.spec import USUAL_CONTEXT
from specmeter.workloads.spec import LengthWorkload, RandomWorkload

if TYPE_CHECKING:
    from specmeter.engines import EngineSession
    from specmeter.engines.process import Heard
    from specmeter.experiments.experiment import Experiment
    from specmeter.experiments.file import LoadedExperiment
    from specmeter.record import Arm, Prompt
    from specmeter.workloads.spec import WorkloadSpec

MIN_CONTEXT, STEP = 1024, 256
"""Of a context that fits on its own."""
_TEMPLATE = 256
"""Tokens that a chat template may add to a conversation."""
_PER_MESSAGE = 16
"""And to each further message."""
_ROOM = 64
"""More tokens, so that nothing is cut short at the end of an answer."""
_STRETCHES = ("--rope", "--yarn", "--override-kv")
"""Flags of a native server by which a model reads longer texts than it was trained for."""
_LIMIT_S = 300.0
_COUNTS = "counts.json"

Sessions = Callable[["Arm"], AbstractContextManager["EngineSession"]]
"""Starts a session of an arm's target, to ask its tokenizer."""


class _Text(NamedTuple):
    """What a request needs of the context."""

    name: str
    prompt: Prompt | None
    """None: its tokens are known."""
    tokens: int
    """Of the prompt, at most."""
    answer: int
    added: int
    """What a chat template may add."""

    @property
    def most(self) -> int:
        """Tokens that it may come to."""
        return self.tokens + self.added + self.answer + _ROOM


def fitted(loaded: LoadedExperiment, files: Mapping[str, Path | None], sessions: Sessions) -> LoadedExperiment:
    """The experiment with a context that its longest prompt fits into, with its answer, unless it says one.

    `files` are those of the targets that are here, None for one without a file. Raises `ExperimentError` for a prompt
    that does not fit, and for a context longer than a target was trained for.
    """
    experiment = loaded.experiment
    traits = spec_of(experiment.engine.kind).traits
    if traits.asked or "context" not in traits.settings:
        return loaded
    each, most = MIN_CONTEXT, None
    for arm in experiment.expand():
        if arm.role != "baseline" and arm.baseline_id is not None:
            continue  # its baseline has the same prompts
        texts = list(_texts(experiment, arm, loaded.base_dir))
        if arm.target not in files:
            each = max((each, *(min(it.most, USUAL_CONTEXT) for it in texts)))
            continue
        file = files[arm.target]
        trained = None
        if file is not None and not _is_stretched(arm):
            from specmeter.models.facts import read_facts

            trained = read_facts(file).context_length
        if arm.engine.context is not None:
            room = arm.engine.slot_context
            if trained is not None and room > trained:
                raise ExperimentError(
                    f"engine.context: {arm.id} has a context of {room} tokens, but its target was trained for "
                    f"{trained}",
                    fix=f"use -c {trained * (1 if arm.load else arm.engine.slots)} or less",
                )
            _fit(
                _counted([it for it in texts if it.tokens + it.answer > room], arm, file, sessions), arm, room, trained
            )
            continue
        bounded = min(USUAL_CONTEXT, trained or USUAL_CONTEXT)
        if any(it.most > bounded for it in texts):
            texts = _counted(texts, arm, file, sessions)
        if trained is not None:
            _fit(texts, arm, trained, trained)
            most = trained if most is None else min(most, trained)
        each = max((each, *(it.most for it in texts)))
    if experiment.engine.context is not None:
        return loaded
    each = -(-each // STEP) * STEP
    context = (each if most is None else min(each, most)) * experiment.engine.slots
    return replace(loaded, value=experiment.with_context(context))


def _fit(texts: Sequence[_Text], arm: Arm, room: int, trained: int | None) -> None:
    """Raise `ExperimentError` for a text that does not fit: a chat template left out, so that what is refused is too
    long."""
    for it in texts:
        if it.tokens + it.answer > room:
            longer = it.tokens + it.answer + _TEMPLATE
            fix = f"use a longer context (-c {longer * (1 if arm.load else arm.engine.slots)}) or shorter prompts"
            limit = f"the context has room for {room}"
            if trained is not None and longer > trained:
                limit = limit if room < trained else f"{arm.target} was trained for texts of {trained}"
                fix = f"use shorter prompts or answers (-n), or a model that was trained for {longer} tokens"
            raise ExperimentError(
                f"{it.name}: the prompt has {it.tokens} tokens, {it.answer} more are to be generated, but {limit}",
                fix=fix,
            )


def _is_stretched(arm: Arm) -> bool:
    return any(flag.startswith(_STRETCHES) for flag in arm.engine.extra_flags)


def most_tokens(experiment: Experiment, spec: WorkloadSpec) -> int:
    """Most tokens that are generated for a prompt of the workload."""
    return experiment.generation.max_tokens if spec.max_tokens is None else spec.max_tokens


def _texts(experiment: Experiment, arm: Arm, base_dir: Path) -> Iterator[_Text]:
    """What an arm measures; prompts by their bytes, unless their number of tokens is written in the experiment."""
    depth = 0 if arm.load is None else arm.load.depth
    for spec in experiment.workloads:
        if arm.workloads and spec.name not in arm.workloads:
            continue
        answer = most_tokens(experiment, spec)
        if isinstance(spec, LengthWorkload | RandomWorkload):
            yield _Text(spec.name, None, depth + max(spec.lengths), answer, 0)
            continue
        for it in experiment.chosen(workloads.load([spec], base_dir=base_dir)):
            added = _TEMPLATE + _PER_MESSAGE * len(it.before) if it.format == "chat" else 0
            size = sum(len(text.encode()) for text in _said(it))
            yield _Text(it.id, it, depth + size, it.max_tokens or answer, added)


_BYTES_PER_TOKEN = 3.5


def prompt_tokens(experiment: Experiment, arm: Arm, base_dir: Path) -> float:
    """Tokens of an arm's prompts in the mean, by their bytes where nothing counted them."""
    texts = list(_texts(experiment, arm, base_dir))
    depth = 0 if arm.load is None else arm.load.depth
    sizes = [it.tokens if it.prompt is None else depth + (it.tokens - depth) / _BYTES_PER_TOKEN for it in texts]
    return sum(sizes) / max(1, len(sizes))


def _said(prompt: Prompt) -> list[str]:
    tools = [json.dumps(prompt.tools)] if prompt.tools else []
    calls = [f"{it.name} {it.arguments}" for message in prompt.before for it in message.tool_calls]
    return [*(message.content for message in prompt.before), *calls, *tools, prompt.text]


def _counted(texts: Sequence[_Text], arm: Arm, file: Path | None, sessions: Sessions) -> list[_Text]:
    """The same with the tokens that the target's own tokenizer makes of the prompts."""
    asked = [said for it in texts if it.prompt is not None for said in _said(it.prompt)]
    if not asked:
        return list(texts)
    counts = iter(_count(asked, arm, file, sessions))
    depth = 0 if arm.load is None else arm.load.depth
    return [
        it if it.prompt is None else it._replace(tokens=depth + sum(next(counts) for _ in _said(it.prompt)))
        for it in texts
    ]


def _count(texts: Sequence[str], arm: Arm, file: Path | None, sessions: Sessions) -> list[int]:
    from specmeter.engines.process import read_result, run_in_subprocess

    if file is not None:
        try:
            with tempfile.TemporaryDirectory(prefix="specmeter-") as folder:
                order = _CountJob(file=str(file), texts=tuple(texts))
                run_in_subprocess(__name__, order, Path(folder), limit_s=_LIMIT_S)
                return _NUMBERS.validate_json(read_result(Path(folder) / _COUNTS))
        except EngineError:
            pass  # an engine of its own may know the architecture
    with sessions(arm) as session:
        return [len(session.tokenize(text)) for text in texts]


# --- in the child ----------------------------------------------------------------------------------------------------

_NUMBERS = TypeAdapter(list[int])


class _CountJob(Record):
    file: str
    texts: tuple[str, ...]


def _job(order: str, folder: Path, _: Heard) -> None:
    from specmeter.llama_binding.model import Model

    job = _CountJob.model_validate_json(order)
    with Model(Path(job.file), vocabulary_only=True, gpu_layers=0) as model:
        counts = [len(model.tokenize(text, add_special=True, parse_special=True)) for text in job.texts]
    (folder / _COUNTS).write_bytes(_NUMBERS.dump_json(counts))


if __name__ == "__main__":
    from specmeter.engines.process import serve

    sys.exit(serve(_job))
