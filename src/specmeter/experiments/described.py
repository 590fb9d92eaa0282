"""An experiment described by the options of `specmeter run`: the keys that a file would hold, and no others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specmeter.errors import UsageError

GAMMA = (2, 4, 8)
"""Draft lengths that are tried where none is named."""
LOOKUP = "ngram-simple"
"""What `--ngram` means."""
LOOKED_UP = 6
"""Tokens of an n-gram, unless drafts are shorter."""


@dataclass(frozen=True)
class Described:
    """Models, how drafts are made, and what is generated."""

    targets: Sequence[str]
    """Model references, as those of drafts; by path from here."""
    drafts: Sequence[str] = ()
    methods: Sequence[str] = ()
    """None: `draft-simple` with the drafts, n-grams where there are none."""
    gamma: Sequence[int] = ()
    ngram: bool = False
    """N-grams of the text as well, at the longest of the draft lengths."""
    prompts: Sequence[str] = ()
    """Files; of text files every line is a prompt."""
    load: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Keys of `load`; none: one request after the other."""

    def keys(self, folder: Path = Path()) -> dict[str, Any]:
        """The keys of a file that lies in `folder`."""
        gamma = tuple(dict.fromkeys(self.gamma)) or GAMMA
        arms: list[dict[str, Any]] = []
        if self.methods or self.drafts:
            methods = {"method": _one_or_several(self.methods)} if self.methods else {}
            arms.append({**methods, "gamma": _one_or_several(gamma)})
        if self.ngram or not arms:
            arms.append({"method": LOOKUP, "gamma": max(gamma), "ngram_n": min(LOOKED_UP, max(gamma))})
        keys: dict[str, Any] = {"target": _one_or_several([_from(folder, it) for it in self.targets])}
        if self.drafts:
            keys["draft"] = _one_or_several([_from(folder, it) for it in self.drafts])
        keys["arms"] = arms
        if self.prompts:
            keys["workloads"] = [file_workload([_from(folder, it) for it in self.prompts])]
        if self.load:
            keys["load"] = dict(self.load)
        return keys


def file_workload(paths: Sequence[str]) -> dict[str, Any]:
    """Prompts of files as a workload: of text files every line is one."""
    lines = {} if all(it.lower().endswith((".jsonl", ".json")) for it in paths) else {"per_line": True}
    return {"source": "file", "paths": list(paths), **lines}


def refuse_absent_prompts(prompts: Sequence[str]) -> None:
    """Raise `UsageError` for a file of prompts that is not there."""
    for file in prompts:
        if not Path(file).is_file():
            wrong = "not a file" if Path(file).exists() else "no such file"
            raise UsageError(f"--prompts {file}: {wrong}", fix="check the path")


def with_simulation(references: Sequence[str], changes: Sequence[str]) -> tuple[str, ...]:
    """The changes, after the mock engine where models of it are named."""
    return (*(("engine.kind=mock",) if _simulated(references) else ()), *changes)


def refuse_engine(kind: str, references: Sequence[str]) -> None:
    """Raise `UsageError` for models of the mock engine beside an engine of another kind."""
    simulated = _simulated(references)
    if simulated and kind != "mock":
        raise UsageError(
            f"{simulated[0]}: a model of the mock engine, and the engine {kind} is named",
            fix="leave the engine out, or name a GGUF file",
        )


def _simulated(references: Sequence[str]) -> list[str]:
    return [it for it in references if it.startswith("mock:")]


def _one_or_several(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else list(values)


def _from(folder: Path, reference: str) -> str:
    """A path from here as it is written in a file of that folder; any other reference as it is."""
    if reference.startswith(("hf:", "bench:", "mock:", "~")) or Path(reference).is_absolute() or folder == Path():
        return reference
    try:
        return Path(os.path.relpath(reference, folder)).as_posix()
    except ValueError:  # another drive
        return str(Path(reference).absolute())
