"""An experiment described by the options of `specmeter run`: the keys that a file would hold, and no others."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specmeter import workloads
from specmeter.engines.registry import late, spec_of
from specmeter.engines.url.spec import ANY, SERVED, UrlOptions, places
from specmeter.errors import UsageError
from specmeter.experiments.defaults import as_name, name_of, simulated
from specmeter.models.reference import made_of, with_dense
from specmeter.record import EngineTraits
from specmeter.workloads.sessions import BUNDLED, SAMPLED, read_sessions, session_path
from specmeter.workloads.spec import STRUCTURED, FileWorkload

GAMMA = (2, 4, 8)
"""Draft lengths that are tried where none is named."""
DRAFTED, LOOKUP = "draft-simple", "ngram-simple"
"""What `--draft` and `--ngram` mean, where the engine knows them."""
TURNS = 32
"""Calls of recorded sessions that are asked again where no number is named."""
LOOKED_UP = 6
"""Tokens of an n-gram, whatever the lengths of drafts: llama.cpp never drafts fewer than it looks up."""


@dataclasses.dataclass(frozen=True)
class Described:
    """Models, how drafts are made, and what is generated."""

    targets: Sequence[str]
    """Model references, as those of drafts; by path from here."""
    drafts: Sequence[str] = ()
    methods: Sequence[str] = ()
    """None: `draft-simple`, or else the engine's own with a model, with the drafts; n-grams where there are none."""
    gamma: Sequence[int] = ()
    ngram: bool = False
    """N-grams of the text as well, at the longest of the draft lengths, or `LOOKED_UP`."""
    engine: str | None = None
    """The engine that is named, if one is."""
    prompts: Sequence[str] = ()
    """Files; of text files every line is a prompt."""
    sessions: Sequence[str] = ()
    """Files of recorded sessions."""
    turns: int = TURNS
    """Of these sessions, calls that are asked again at most."""
    load: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """Keys of `load`; none: one request after the other."""
    servers: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """`url` of a server that runs, perhaps `others` and `baseline_url`; targets are then what it calls its models."""

    def keys(self, folder: Path = Path()) -> dict[str, Any]:
        """The keys of a file that lies in `folder`."""
        keys = self._served() if self.servers else self._started(folder)
        if self.prompts:
            keys["workloads"] = [file_workload([_from(folder, it) for it in self.prompts])]
        if self.sessions:
            keys |= of_sessions([_from(folder, it) for it in self.sessions], self.turns, folder)
        if self.load:
            keys["load"] = dict(self.load)
        return keys

    def _served(self) -> dict[str, Any]:
        alone: dict[str, Any] = {} if "baseline_url" in self.servers else {"baseline": False}
        models = called(UrlOptions.model_validate(self.servers))
        names = {
            url: as_name(models.get(url) or url.partition("://")[2])
            for url in (self.servers["url"], *self.servers.get("others", ()))
        }
        one = next(iter(names.values())) if len(set(names.values())) == 1 else "servers"
        if len(set(names.values())) < len(names):
            told = places(names)
            names = {url: as_name(f"{name[:40]}-{told[url].lstrip(':')}") for url, name in names.items()}
        arms: list[dict[str, Any]] = [
            {"name": name, "method": SERVED, "engine": {"options": {"url": url}}, **alone}
            for url, name in names.items()
        ]
        return {
            "targets": {name_of(it): it for it in self.targets} or {one: ANY},
            "arms": arms if len(arms) > 1 else [{"method": SERVED, **alone}],
            "engine": {"kind": "url", "options": dict(self.servers)},
        }

    def _started(self, folder: Path) -> dict[str, Any]:
        gamma = tuple(dict.fromkeys(self.gamma)) or GAMMA
        arms: list[dict[str, Any]] = []
        if self.methods or self.drafts:
            methods = {"method": _one_or_several(self.methods)} if self.methods else self._own("model", DRAFTED)
            arms.append({**methods, "gamma": _one_or_several(gamma)})
        if self.ngram or not arms:
            looked_up = {"gamma": max(LOOKED_UP, *gamma), "ngram_n": LOOKED_UP}
            arms.append({"method": LOOKUP, **self._own("lookup", LOOKUP), **looked_up})
        keys: dict[str, Any] = {"target": _one_or_several([_from(folder, it) for it in self.targets])}
        if self.drafts:
            keys["draft"] = _one_or_several([_from(folder, it) for it in self.drafts])
        keys["arms"] = arms
        return keys

    def _own(self, drafter: str, usual: str) -> dict[str, Any]:
        """The method that the engine has in the place of the usual one; nothing where it knows that."""
        traits = spec_of(self.engine).traits if self.engine else EngineTraits()
        own = [it.name for it in traits.methods if it.drafter == drafter]
        return {"method": own[0]} if own and usual not in own else {}


def file_workload(paths: Sequence[str]) -> dict[str, Any]:
    """Prompts of files as a workload: of text files every line is one."""
    lines = {} if all(it.lower().endswith(STRUCTURED) for it in paths) else {"per_line": True}
    return {"source": "file", "paths": list(paths), **lines}


def of_sessions(paths: Sequence[str], turns: int, folder: Path = Path()) -> dict[str, Any]:
    """The keys for recorded sessions: their prompts, read once as they were served, and sampled as most calls were."""
    recording = read_sessions([session_path(it, folder) for it in paths])
    sampled = Counter(tuple(sorted(it.sampling.items())) for it in recording.calls)
    sampling = dict(sampled.most_common(1)[0][0])
    known = {"temperature": 0.0, **{name: sampling[name] for name in SAMPLED if name in sampling and name != "seed"}}
    generation = {name: int(value) if name == "top_k" else value for name, value in known.items()}
    return {
        "workloads": [{"source": "sessions", "paths": list(paths), "turns": min(turns, len(recording.calls))}],
        "engine": {"prompt_cache": True, "stream_tokens": False},
        "generation": {"ignore_eos": False, **generation},
    }


def refuse_bad_prompts(prompts: Sequence[str]) -> None:
    """Raise `UsageError` for a file that is not there or has no prompts, before any model is made for them."""
    for file in prompts:
        if not Path(file).is_file():
            wrong = "not a file" if Path(file).exists() else "no such file"
            raise UsageError(f"--prompts {file}: {wrong}", fix="check the path")
    if prompts:
        workloads.load([FileWorkload.model_validate(file_workload(prompts))])


def refuse_engine(kind: str, references: Sequence[str]) -> None:
    """Raise `UsageError` for models of the mock engine beside an engine of another kind."""
    others = simulated(references)
    if others and kind != "mock":
        raise UsageError(
            f"{others[0]}: a model of the mock engine, but the engine is {kind}",
            fix="leave the engine out, or use a GGUF file",
        )


def _one_or_several(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else list(values)


def _from(folder: Path, reference: str) -> str:
    """A path from here as it is written in a file of that folder; any other reference as it is."""
    source = made_of(reference)
    if source.startswith(("hf:", "bench:", "mock:", BUNDLED, "~")) or Path(source).is_absolute() or folder == Path():
        return reference
    try:
        return with_dense(reference, Path(os.path.relpath(source, folder)).as_posix())
    except ValueError:  # another drive
        return with_dense(reference, str(Path(source).absolute()))


called = late("specmeter.engines.url.engine:called")
