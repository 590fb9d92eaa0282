"""What can be tried on a target: draft models that can work, and methods that need none.

Drafts are those that were named; where none is, those found beside the target and in the folders of other programs. Of
a found file the header is read, of at most `MAX_READ` files, those with names like the target's first. What is not
tried is told, each with its reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.advise.advice import AdviceQuestion, LeftOutDraft
from specmeter.engines.registry import own_options, spec_of
from specmeter.errors import ModelError, UsageError
from specmeter.experiments.defaults import name_of
from specmeter.experiments.described import LOOKUP
from specmeter.experiments.file import load
from specmeter.host.machine import memory_free_bytes
from specmeter.messages import Message
from specmeter.models.preflight import (
    METHOD_BY_ARCHITECTURE,
    Compatibility,
    compare_headers,
    other_than_language_model,
)
from specmeter.models.reference import (
    MAX_ENTRIES,
    OFFLINE,
    ONLINE,
    Fetching,
    FoundModel,
    found_models,
    locate,
    origin_of,
    peek,
)
from specmeter.record import EngineTraits, MethodName
from specmeter.text import size

if TYPE_CHECKING:
    from specmeter.models.facts import ModelFacts
    from specmeter.models.gguf import Header

MAX_FOUND = 3
"""Found drafts that are tried: the smallest, the largest, and one between."""
MAX_READ = 24
"""Found files whose headers are read."""
_BENCH_DRAFTS = ("bench:draft-small", "bench:draft-large")
_ALIKE = 4
"""Characters that names of one family begin with."""
_OF_A_FAMILY = frozenset({"first-token-texts", "eot-token", "pre-tokenizer"})
"""Conditions of `models.preflight` that drafts of the target's own family meet."""


@dataclass(frozen=True)
class CandidateDraft:
    """A draft model that can work."""

    reference: str
    """As it was named, by its absolute path; of a found one its path."""
    method: MethodName
    """What it is made for."""
    size_bytes: int | None
    named: bool
    """The user named it; otherwise it was found."""


@dataclass(frozen=True)
class Candidates:
    """What can be tried; nothing of it was measured."""

    drafts: tuple[CandidateDraft, ...] = ()
    """Named ones in their order; found ones from the smallest."""
    lookups: tuple[MethodName, ...] = ()
    """Ways to draft from the text itself, which need no model."""
    heads: tuple[MethodName, ...] = ()
    """Ways to draft by layers of the target's own."""
    left_out: tuple[LeftOutDraft, ...] = ()
    looked: bool = True
    """False: drafts are looked for once the target is here."""
    target_bytes: int | None = None
    """Of its files; None where they are not here, or there is none."""

    @property
    def references(self) -> tuple[str, ...]:
        """Of the drafts."""
        return tuple(it.reference for it in self.drafts)


def find_candidates(
    asked: AdviceQuestion,
    *,
    fetching: Fetching | None = ONLINE,
    found: Sequence[FoundModel] | None = None,
) -> Candidates:
    """What can be tried on the target that is asked about; nothing where an experiment or servers say it themselves.

    Models that are named are built or downloaded, since their headers decide; where nothing is to be fetched (None),
    those that are not here are taken as they are. `found` stands in for what lies on this machine.

    Raises `ModelError` for a target that is not here, or is not a causal language model, and where drafts were named
    of which none can work; `UsageError` for a target that does not fit into memory, `ExperimentError` for settings.
    """
    if asked.from_file is not None or asked.urls:
        return Candidates()
    experiment = load({"target": asked.target, "arms": [{"method": LOOKUP}]}, asked.settings).experiment
    kind = spec_of(experiment.engine.kind)
    lookups = tuple(it.name for it in kind.traits.methods if it.drafter == "lookup")
    if not kind.traits.model_formats:
        for reference in (asked.target, *asked.drafts):
            if kind.model is not None:
                own = own_options(experiment.engine.kind, experiment.engine.own_options)
                kind.model(own, name_of(reference), reference)
        drafts = tuple(CandidateDraft(it, "draft-simple", None, named=True) for it in asked.drafts)
        return Candidates(drafts, lookups)
    context = experiment.engine.settings.full_context * max(asked.clients, default=1)  # of each client
    search = _Search(asked.target, kind.traits, context, fetching)
    named = [it for reference in dict.fromkeys(asked.drafts) if (it := search.named(reference)) is not None]
    if asked.drafts and not named:
        raise ModelError(
            "--draft: none of these draft models can be used:\n"
            + "\n".join(f"  {it.reference}: {it.why}" for it in search.left_out),
            fix="give another draft model (`specmeter models compare TARGET DRAFT` shows why), or leave --draft out "
            "to try those on this machine and n-grams",
        )
    others = search.among(found_models() if found is None else found) if asked.find_drafts else []
    drafts = (*named, *others)
    return Candidates(
        drafts=drafts,
        lookups=lookups,
        heads=search.heads,
        left_out=tuple(search.left_out),
        looked=not asked.find_drafts or search.can_look,
        target_bytes=search.size_bytes,
    )


class _Search:
    """Looks at models beside one target. Raises as `find_candidates` does, for the target, when it is made."""

    def __init__(
        self,
        target: str,
        traits: EngineTraits,
        context: int,
        fetching: Fetching | None,
    ) -> None:
        from specmeter.models.facts import describe

        self._traits, self._context = traits, context
        self._fetching = fetching
        self.left_out: list[LeftOutDraft] = []
        self.free_bytes = memory_free_bytes()
        self._needs: dict[str, int] = {}
        """Memory of models, by their references."""
        self._target = target
        self._kin: set[str] = set()
        """References of drafts whose special tokens and way of cutting texts are the target's as well."""
        self._path = self._located(target)
        self._parts = None if self._path is None else _target_parts(target, self._path)
        self._facts = None if self._parts is None else describe(self._parts)
        self.size_bytes = peek(target, offline=True)[0] if self._facts is None else self._facts.file_bytes
        if self._facts is not None:
            self._needs[target] = self._facts.file_bytes + _kv_bytes(self._facts, context)
            if self._needs[target] > self.free_bytes:
                raise UsageError(
                    f"{target}: weights and KV cache need {size(self._needs[target])}, "
                    f"but {size(self.free_bytes)} is free",
                    fix="use a smaller model or quantization, a shorter context (-c), or close other programs",
                )

    @property
    def heads(self) -> tuple[MethodName, ...]:
        """Ways to draft by the target's own layers, which its header names and the engine knows."""
        has = self._facts is not None and self._facts.draft_head_layers > 0
        known = [it.name for it in self._traits.methods if it.drafter == "states" and it.draft_model == "allowed"]
        return tuple(known) if has else ()

    @property
    def can_look(self) -> bool:
        """Whether enough is known about the target to look for drafts."""
        return self._path is not None or origin_of(self._target) == "bench"

    def named(self, reference: str) -> CandidateDraft | None:
        """A draft that the user named; None, told, when it cannot work."""
        if self._target == reference:
            self._leave_out(reference, Message("left-out.target"))
            return None
        path = self._located(reference)
        if path is None or self._path is None:
            return CandidateDraft(reference, "draft-simple", peek(reference, offline=True)[0], named=True)
        return self._judged(reference, path, named=True)

    def among(self, found: Sequence[FoundModel]) -> list[CandidateDraft]:
        """Drafts among the models that lie on this machine, the smallest first."""
        if origin_of(self._target) == "bench":  # no other model has their vocabulary
            able = [it for name in _BENCH_DRAFTS if (it := self.named(name)) is not None]
            return [replace(it, named=False) for it in able]
        if self._path is None:
            return []
        own = self._path.resolve()
        files = {it.path.resolve(): it for it in (*_beside(own), *found)}
        smaller = [it for real, it in files.items() if real != own and it.size_bytes < (self.size_bytes or 0)]
        smaller.sort(key=lambda it: (not _alike(it.path.name, self._path or it.path), it.size_bytes, it.name))
        for it in smaller[MAX_READ:]:
            self._leave_out(str(it.path), Message("left-out.unread", most=MAX_READ))
        able = [it for model in smaller[:MAX_READ] if (it := self._found(model, own.parent)) is not None]
        return self._spread(able)

    def _found(self, model: FoundModel, beside: Path) -> CandidateDraft | None:
        from specmeter.laboratory.pairs import SMALLER

        if SMALLER * model.size_bytes > (self.size_bytes or 0):
            why = Message("left-out.not_smaller", size=model.size_bytes, times=SMALLER)
            self._leave_out(str(model.path), why)
            return None
        path = model.path.absolute()
        return self._judged(str(path), path, named=False, strange=path.resolve().parent != beside)

    def _judged(self, reference: str, path: Path, *, named: bool, strange: bool = False) -> CandidateDraft | None:
        """The draft in that file; None, told, when it cannot work with the target. A `strange` one does not lie beside
        it, so that one made for a single target is hardly made for this."""
        from specmeter.models.facts import describe
        from specmeter.models.gguf import read_parts

        try:
            parts = read_parts(path)
            found = self._compared(parts)
        except ModelError as error:
            if named:
                raise
            why = Message("left-out.unreadable", error=error.message.removeprefix(f"{path}: "))
            self._leave_out(reference, why)
            return None
        if isinstance(found, Message):
            self._leave_out(reference, found)
            return None
        if strange and found.method != "draft-simple":
            self._leave_out(reference, Message("left-out.elsewhere"))
            return None
        facts = describe(parts)
        self._needs[reference] = facts.file_bytes + _kv_bytes(facts, self._context)
        needed = self._needs[self._target] + self._needs[reference]
        if needed > self.free_bytes:
            self._leave_out(reference, Message("left-out.memory", needed=needed, free=self.free_bytes))
            return None
        if not any(it.name in _OF_A_FAMILY and it.status == "warning" for it in found.conditions):
            self._kin.add(reference)
        return CandidateDraft(reference, found.method, facts.file_bytes, named)

    def _compared(self, parts: tuple[Header, ...]) -> Compatibility | Message:
        """How the draft with these headers goes with the target, or why it cannot. Raises `ModelError`."""
        from specmeter.models.gguf import Metadata

        assert self._parts is not None
        other = other_than_language_model(Metadata(parts[0]))
        if other is not None:
            return Message("left-out.no_language_model", kind=other)
        file_bytes = sum(part.file_bytes for part in parts)
        if file_bytes >= (self.size_bytes or 0):
            return Message("left-out.as_large", size=file_bytes, target=self.size_bytes or 0)
        found = compare_headers(self._parts, parts)
        if self._traits.method(found.method) is None:
            return Message("left-out.method", method=found.method)
        return found if found.refusal is None else Message("left-out.vocabulary", refusal=found.refusal)

    def _spread(self, able: Sequence[CandidateDraft]) -> list[CandidateDraft]:
        """The smallest, the largest and one between, of the target's family where there are enough of it."""
        distinct: dict[tuple[MethodName, int | None], CandidateDraft] = {}
        for it in sorted(able, key=lambda it: it.size_bytes or 0):
            first = distinct.setdefault((it.method, it.size_bytes), it)
            if first is not it:
                self._leave_out(it.reference, Message("left-out.copy", other=first.reference))
        kin = [it for it in distinct.values() if it.reference in self._kin]
        choice = kin or list(distinct.values())
        kept = choice
        if len(choice) > MAX_FOUND:
            between = range(1, len(choice) - 1)
            middle = (choice[0].size_bytes or 1) * (choice[-1].size_bytes or 1)  # the square of the middle, in ratios
            nearest = min(between, key=lambda at: _apart((choice[at].size_bytes or 1) ** 2, middle))
            kept = [choice[0], choice[nearest], choice[-1]]
        for it in distinct.values():
            if it not in kept:
                enough = Message("left-out.enough", fitting=len(choice), tried=MAX_FOUND)
                self._leave_out(it.reference, enough if it in choice else Message("left-out.farther"))
        return kept

    def _located(self, reference: str) -> Path | None:
        """The model's first file; None where it is not here and not to be brought."""
        if self._fetching is None and origin_of(reference) != "path" and not peek(reference, offline=True)[1]:
            return None
        return locate(reference, base_dir=Path(), fetching=self._fetching or OFFLINE).absolute()

    def _leave_out(self, reference: str, why: Message) -> None:
        self.left_out.append(LeftOutDraft(reference=reference, why=why))


def _target_parts(reference: str, path: Path) -> tuple[Header, ...]:
    from specmeter.models.gguf import Metadata, read_parts

    parts = read_parts(path)
    metadata = Metadata(parts[0])
    other = other_than_language_model(metadata)
    if other is not None:
        raise ModelError(
            f"{reference} is {other}, not a causal language model",
            fix="use a GGUF file of a model that generates text",
        )
    method = METHOD_BY_ARCHITECTURE.get(metadata.architecture or "")
    if method is not None:
        raise ModelError(
            f"{reference} is a draft model ({metadata.architecture}), not a target",
            fix="give the model that it was made for as the target, and this one with --draft",
        )
    return parts


def _kv_bytes(facts: ModelFacts, context: int) -> int:
    return facts.memory.kv_bytes(context) if facts.memory else 0


def _beside(target: Path) -> Iterator[FoundModel]:
    """GGUF files in the target's folder, of split models the first part; links are followed to files only."""
    from specmeter.models.gguf import first_part

    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in islice(entries, MAX_ENTRIES):
            with suppress(OSError):  # a link that leads to itself hides no other file
                if entry.name.lower().endswith(".gguf") and first_part(entry.name) and entry.is_file():
                    path = Path(entry.path)
                    yield FoundModel(path.stem, path, entry.stat().st_size, "beside the target")


def _alike(name: str, target: Path) -> bool:
    return name[:_ALIKE].lower() == target.name[:_ALIKE].lower()


def _apart(one: int, other: int) -> float:
    return max(one, other) / min(one, other)
