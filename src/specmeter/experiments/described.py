"""An experiment described by the options of `specmeter run`: the keys that a file would hold, and no others.

What an experiment is taken to mean where it says nothing: names of models, its own name, and its prompts.

target: models/Qwen3-8B-Q4_K_M.gguf        targets: {Qwen3-8B-Q4_K_M: models/Qwen3-8B-Q4_K_M.gguf}
draft: models/Qwen3-0.6B-Q8_0.gguf         drafts: {Qwen3-0.6B-Q8_0: models/Qwen3-0.6B-Q8_0.gguf}
arms: [{gamma: [2, 4, 8]}]                 name: Qwen3-8B-Q4_K_M
                                           workloads: [{source: studies, per_kind: 1}]
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

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


_LONGEST = 64
"""Characters of a name."""
_REVISION = re.compile(r"@[^/@]*$")
_PART = re.compile(r"-\d{5}-of-\d{5}$")


def completed(keys: Mapping[str, Any]) -> dict[str, Any]:
    """An experiment's keys with `target` and `draft` among `targets` and `drafts`, and with `name` and `workloads`.

    What is malformed stays as it is, to be refused where it stands.
    """
    full = dict(keys)
    known: dict[str, str] = {}
    for one, several in (("target", "targets"), ("draft", "drafts")):
        named = full.get(several)
        if named is not None and not _is_named(named):
            continue
        given = cast("Mapping[str, str]", named or {})
        known |= given
        references = (full[one],) if isinstance(full.get(one), str) else full.get(one)
        if _are_references(references):
            full[several] = {**_named(references, given, known), **given}
            known |= full[several]
            del full[one]
    targets = full.get("targets")
    if _is_named(targets) and targets:
        full.setdefault("name", _own_name(targets))
        if "workloads" not in full:
            bench = all(reference.startswith("bench:") for reference in targets.values())
            full["workloads"] = [{"source": "bench" if bench else "studies", "per_kind": 1}]
    return full


def _is_named(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(it, str) for pair in cast("Mapping[object, object]", value).items() for it in pair
    )


def _are_references(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(it, str) for it in cast("list[object]", value))


def _named(references: Any, given: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """Name -> reference. A name that another model has gets a number; one of `given` stays with what it has there."""
    taken, found = dict(known), dict[str, str]()
    for reference in dict.fromkeys(cast("tuple[str, ...]", references)):
        plain = name_of(reference)
        name, number = plain, 1
        while name not in given and taken.get(name, reference) != reference:
            number += 1
            name = f"{plain[: _LONGEST - 4]}-{number}"
        found[name] = taken[name] = reference
    return found


def name_of(reference: str) -> str:
    """A name for the model behind a reference: that of its file, or of the bench model."""
    plain = reference.partition("?")[0] if reference.startswith("bench:") else reference
    plain = _REVISION.sub("", plain) if plain.startswith("hf:") else plain
    file = re.split(r"[/\\:]", plain)[-1]
    stem = file[: -len(".gguf")] if file.lower().endswith(".gguf") else file
    return _as_name(_PART.sub("", stem)) or "model"


def _own_name(targets: Mapping[str, str]) -> str:
    first, *others = targets
    return _as_name(f"{first[: _LONGEST - 16]}-and-{len(others)}-more" if others else first) or "experiment"


def _as_name(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text.replace("ß", "ss"))  # letters without their accents
    return re.sub(r"[^A-Za-z0-9._-]+", "-", re.sub(r"[\u0300-\u036f]", "", plain)).strip("._-")[:_LONGEST]
