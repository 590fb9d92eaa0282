"""Loads the prompts of an experiment: those of each of its workloads, in order, hashed.

| source | what it is | for |
|---|---|---|
| `bench` | held-out text of the kinds that the bench models were trained on | bench models |
| `studies` | short facts, code, long reasoning, Chinese, and text to be edited | real models |
| `length` | text cut to an exact number of tokens | the cost of context |
| `file` | the user's own | the user's own question |
| `sessions` | calls of a model, as they were recorded | the user's own traffic |
| `random` | random tokens of an exact number | timing only |

Two runs are comparable only over the same prompts: each carries the SHA-256 of its UTF-8 text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from specmeter.errors import ExperimentError
from specmeter.record import Prompt
from specmeter.text import counted
from specmeter.workloads.spec import (
    BenchWorkload,
    FileWorkload,
    LengthWorkload,
    RandomWorkload,
    SessionsWorkload,
    StudiesWorkload,
    WorkloadSpec,
)
from specmeter.workloads.texts import (
    PROMPTS,
    Item,
    Tokenizer,
    behind,
    collection,
    cut_lengths,
    drawn,
    held_out_text,
    natural_text,
    packaged,
    random_lengths,
)


def needs_tokenizer(spec: WorkloadSpec) -> bool:
    """Whether the workload's prompts are cut to an exact number of tokens."""
    return isinstance(spec, LengthWorkload | RandomWorkload)


def load(
    specs: Sequence[WorkloadSpec],
    *,
    base_dir: Path = Path(),
    tokenize: Callable[[str], tuple[int, ...]] | None = None,
    detokenize: Callable[[tuple[int, ...]], str] | None = None,
) -> tuple[Prompt, ...]:
    """All prompts of the workloads, in their order; ids are `WORKLOAD/ITEM`.

    Files are relative to `base_dir`. `tokenize` (without special tokens) and `detokenize` are the target's, as an
    `EngineSession` has them; exact lengths hold for that tokenizer only. `needs_tokenizer` says where they are needed.

    Raises `ExperimentError` when a file cannot be used, when prompts are too few, when a length cannot be reached,
    when two workloads share a name, or when a tokenizer is needed and none was given.
    """
    tokenizer = Tokenizer(tokenize, detokenize) if tokenize is not None and detokenize is not None else None
    _refuse_same_names(specs)
    prompts = tuple(_prompt(spec, item) for spec in specs for item in _items(spec, base_dir, tokenizer))
    _refuse_too_many_in_turn(specs, Counter(prompt.workload for prompt in prompts))
    return prompts


def behind_text(
    specs: Sequence[WorkloadSpec], prompts: Sequence[Prompt], depth: int, tokenizer: Tokenizer
) -> tuple[Prompt, ...]:
    """The prompts, each behind exactly `depth` tokens of other text of its sort. Raises `ExperimentError`."""
    bench = {spec.name for spec in specs if isinstance(spec, BenchWorkload)}
    return tuple(
        behind(it, depth, held_out_text() if it.workload in bench else natural_text(), tokenizer) for it in prompts
    )


def count(specs: Sequence[WorkloadSpec], *, base_dir: Path = Path()) -> dict[str, int]:
    """Workload name -> number of its prompts, without a tokenizer.

    Raises `ExperimentError` for whatever `load` would refuse, except unreachable lengths.
    """
    _refuse_same_names(specs)
    counts = {
        spec.name: len(spec.lengths) * spec.per_length
        if isinstance(spec, LengthWorkload | RandomWorkload)
        else sum(1 for _ in _items(spec, base_dir, None))
        for spec in specs
    }
    _refuse_too_many_in_turn(specs, counts)
    return counts


def _refuse_same_names(specs: Sequence[WorkloadSpec]) -> None:
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise ExperimentError(
                f"workloads: the name {name!r} is used twice", fix="give each workload its own `name`"
            )


def _refuse_too_many_in_turn(specs: Sequence[WorkloadSpec], counts: Mapping[str, int]) -> None:
    for spec in specs:
        if spec.baseline_per_block is not None and spec.baseline_per_block > counts[spec.name]:
            raise ExperimentError(
                f"workloads: {spec.name} has {counts[spec.name]} prompts, but baseline_per_block is "
                f"{spec.baseline_per_block}",
                fix=f"set baseline_per_block to {counts[spec.name]} or less, or leave it out",
            )


def _items(spec: WorkloadSpec, base_dir: Path, tokenizer: Tokenizer | None) -> Iterable[Item]:
    match spec:
        case StudiesWorkload(collection=str(name)):
            return collection(name)
        case BenchWorkload() | StudiesWorkload():
            return packaged(spec.source, spec.kinds, spec.per_kind, spec.seed)
        case FileWorkload():
            from specmeter.workloads.user_files import read_prompts

            files = [base_dir / Path(path).expanduser() for path in spec.paths]
            items = list(read_prompts(files, spec.kind, per_line=spec.per_line))
            if spec.count is not None and spec.count > len(items):
                raise ExperimentError(
                    f"workloads: {spec.name}: count is {spec.count}, but the files contain "
                    f"{counted(len(items), 'prompt')}",
                    fix=f"set count to {len(items)} or less",
                )
            return drawn(items, spec.count, spec.seed)
        case LengthWorkload():
            text, place = held_out_text(), "the held-out text of the bench models"
            if spec.file == PROMPTS:
                text, place = natural_text(), PROMPTS
            elif spec.file is not None:
                from specmeter.workloads.user_files import read_text

                text, place = read_text(base_dir / spec.file), str(base_dir / spec.file)
            return cut_lengths(text, spec.lengths, spec.per_length, spec.seed, _given(tokenizer, spec.name), place)
        case SessionsWorkload():
            from specmeter.workloads.sessions import read_sessions, session_path
            from specmeter.workloads.turns import chosen

            recording = read_sessions([session_path(path, base_dir) for path in spec.paths])
            return chosen(recording, spec.turns, spec.seed)
        case RandomWorkload():
            return random_lengths(spec.lengths, spec.per_length, spec.seed, _given(tokenizer, spec.name))


def _given(tokenizer: Tokenizer | None, name: str) -> Tokenizer:
    if tokenizer is None:
        raise ExperimentError(
            f"workloads: {name} needs exact token counts, which need a loaded model",
            fix="load its prompts with a session of the target, or leave this workload out",
        )
    return tokenizer


def _prompt(spec: WorkloadSpec, item: Item) -> Prompt:
    if item.before and spec.format != "chat":
        raise ExperimentError(
            f"workloads: {spec.name}: {item.id} is a conversation, which needs the model's chat template",
            fix="set `format: chat`, or give plain prompts",
        )
    if spec.thinking is not None and spec.format != "chat":
        raise ExperimentError(
            f"workloads: {spec.name}: `thinking` is an argument of the chat template, which these prompts do not use",
            fix="set `format: chat`, or leave `thinking` out",
        )
    prompt = Prompt(
        id=f"{spec.name}/{item.id}",
        workload=spec.name,
        kind=item.kind,
        text=item.text,
        before=item.before,
        format=spec.format,
        thinking=spec.thinking,
        sha256="",
        token_count=item.token_count,
        max_tokens=item.max_tokens if item.max_tokens is not None else spec.max_tokens,
        random_tokens=item.random_tokens,
        tools=item.tools,
        held=dict(item.held),
        turn=item.turn,
    )
    return prompt.model_copy(update={"sha256": prompt.digest()})
