"""What an experiment is taken to mean where it says nothing: names of models, its own name, and its prompts.

target: models/Qwen3-8B-Q4_K_M.gguf        targets: {Qwen3-8B-Q4_K_M: models/Qwen3-8B-Q4_K_M.gguf}
draft: models/Qwen3-0.6B-Q8_0.gguf         drafts: {Qwen3-0.6B-Q8_0: models/Qwen3-0.6B-Q8_0.gguf}
arms: [{gamma: [2, 4, 8]}]                 name: Qwen3-8B-Q4_K_M
                                           workloads: [{source: studies, per_kind: 1}]
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, cast

from specmeter.models.reference import made_of
from specmeter.record import Generation


def simulated(references: Sequence[str]) -> list[str]:
    return [it for it in references if it.startswith("mock:")]


_LONGEST = 64
"""Characters of a name."""
_REVISION = re.compile(r"@[^/@]*$")
_PART = re.compile(r"-\d{5}-of-\d{5}$")
COUNTED: Mapping[str, Any] = {"max_tokens": 256, "ignore_eos": True}
"""What is generated where answers have no end of their own, unless the file says otherwise."""


def completed(keys: Mapping[str, Any]) -> dict[str, Any]:
    """An experiment's keys with `target` and `draft` among `targets` and `drafts`, with `name` and `workloads`, with
    the mock engine where models of it are named and no engine is, and with what is generated where answers have no end.

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
            bench = all(made_of(it).startswith("bench:") for it in targets.values())
            full["workloads"] = [{"source": "bench" if bench else "studies", "per_kind": 1}]
    engine = full.get("engine", {})
    references = [
        it for several in ("targets", "drafts") if _is_named(full.get(several)) for it in full[several].values()
    ]
    if isinstance(engine, Mapping) and "kind" not in engine and simulated(references):
        full["engine"] = {**cast("Mapping[str, Any]", engine), "kind": "mock"}
    generation = full.get("generation", {})
    given = generation.model_dump(exclude_unset=True) if isinstance(generation, Generation) else generation
    if isinstance(given, Mapping) and _endless(full):
        full["generation"] = {**COUNTED, **cast("Mapping[str, Any]", given)}
    return full


def _endless(keys: Mapping[str, Any]) -> bool:
    """Whether answers have no end of their own: those of bench and mock models, and to prompts of an exact length."""
    if _field(keys.get("engine"), "kind") == "mock":
        return True
    targets, workloads = keys.get("targets"), keys.get("workloads")
    if _is_named(targets) and targets and all(made_of(it).startswith(("bench:", "mock:")) for it in targets.values()):
        return True
    listed = cast("Sequence[object]", workloads) if isinstance(workloads, list | tuple) else ()
    return bool(listed) and all(_field(it, "source") in ("length", "random") for it in listed)


def _field(of: object, name: str) -> object:
    """A field of a record, or of what is to become one."""
    return cast("Mapping[str, Any]", of).get(name) if isinstance(of, Mapping) else getattr(of, name, None)


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
    if (dense := made_of(reference)) != reference:
        form = reference.removeprefix("twin:").removesuffix(f":{dense}").replace("?router=", "-")
        return as_name(f"{name_of(dense)[: _LONGEST - len(form) - 1]}-{form}") or "twin"
    plain = reference.partition("?")[0] if reference.startswith("bench:") else reference
    plain = _REVISION.sub("", plain) if plain.startswith("hf:") else plain
    file = re.split(r"[/\\:]", plain)[-1]
    stem = file[: -len(".gguf")] if file.lower().endswith(".gguf") else file
    return as_name(_PART.sub("", stem)) or "model"


def _own_name(targets: Mapping[str, str]) -> str:
    first, *others = targets
    return as_name(f"{first[: _LONGEST - 16]}-and-{len(others)}-more" if others else first) or "experiment"


def as_name(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text.replace("ß", "ss"))  # letters without their accents
    return re.sub(r"[^A-Za-z0-9._-]+", "-", re.sub(r"[\u0300-\u036f]", "", plain)).strip("._-")[:_LONGEST]
