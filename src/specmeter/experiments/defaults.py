"""What an experiment is taken to mean where it says nothing: names of models, its own name, and its prompts.

target: models/Qwen3-8B-Q4_K_M.gguf        targets: {Qwen3-8B-Q4_K_M: models/Qwen3-8B-Q4_K_M.gguf}
draft: models/Qwen3-0.6B-Q8_0.gguf         drafts: {Qwen3-0.6B-Q8_0: models/Qwen3-0.6B-Q8_0.gguf}
arms: [{gamma: [2, 4, 8]}]                 name: Qwen3-8B-Q4_K_M
                                           workloads: [{source: studies, per_kind: 1}]
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, cast

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
