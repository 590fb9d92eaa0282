"""What is refused before anything is measured: a draft of another vocabulary, models that do not fit.

Whether llama.cpp accepts a draft for a target, and if not, why: the conditions of status `refused` are those of
`common_speculative_are_compatible` in llama.cpp's common/speculative.cpp, in its order, and what loading the
vocabularies demands before. The version that specmeter pins refuses every mismatch ("the target and draft vocabs are
not compatible"); builds of 2025 translated the draft's text token by token instead ("tokens will be translated"), which
measures something else. llama.cpp does not check conditions of status `warning`; they cost acceptance or time.

A server of llama.cpp that refuses a draft continues without speculation and says so in its log only. An arm may ask for
just that to be measured (`refused_draft: measure`), as a published study did without knowing it: its draft is compared
and recorded like any other, and the checks find the arm invalid. A draft that cannot even be loaded is always refused,
and so is one for an engine that does not compare drafts itself: it would draft tokens of another vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from specmeter.engines.registry import check_arm, spec_of
from specmeter.errors import ModelError, UsageError
from specmeter.host.machine import memory_free_bytes
from specmeter.models.facts import ModelFacts, Vocabulary, describe, vocabulary_type
from specmeter.models.gguf import Header, Metadata, StringArray, read_parts
from specmeter.models.resident import Resident
from specmeter.record import Arm, Condition, DraftPair, MethodName, Record
from specmeter.text import quoted, size

MAX_SIZE_DIFFERENCE = 128
"""llama.cpp's SPEC_VOCAB_MAX_SIZE_DIFFERENCE."""
FIRST_CHECKED_TOKEN = 5
"""llama.cpp's SPEC_VOCAB_CHECK_START_TOKEN_ID."""
METHOD_BY_ARCHITECTURE: dict[str, MethodName] = {
    "eagle3": "draft-eagle3",
    "dflash": "draft-dflash",
    "gemma4-assistant": "draft-mtp",
}
"""Drafts that read the target's hidden states; llama.cpp does not compare their vocabulary."""


class ModelFile(Protocol):
    """Where a model lies; a `ModelIdentity`, or what a dry run knows without reading it."""

    @property
    def reference(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...


def check(
    arms: Sequence[Arm], models: Mapping[str, ModelFile], engine: str = "embedded", *, fits: bool = True
) -> tuple[DraftPair, ...]:
    """How the drafts go with their targets, after refusing what an engine of that kind would refuse; none for an engine
    that names models in its own way.

    Raises `ExperimentError` for parameters that no method of an arm honours, `ModelError` for a draft that is none of
    its target, `UsageError` for models beyond this machine's memory if that is asked (`fits`).
    """
    for arm in arms:
        check_arm(engine, arm, has_draft=arm.draft is not None)
    traits = spec_of(engine).traits
    if "gguf" not in traits.model_formats:
        return ()
    read: dict[str, Metadata] = {}
    for arm in arms:
        _refuse_other_kinds(arm, models, read)
    pairs = _pairs(arms, models, compared=traits.compares_drafts)
    if fits:
        refuse_too_large(arms, models)
    return pairs


def _pairs(arms: Sequence[Arm], models: Mapping[str, ModelFile], *, compared: bool) -> tuple[DraftPair, ...]:

    strict: dict[tuple[str, str], bool] = {}
    for arm in arms:
        if arm.draft is not None:
            pair = (arm.target, arm.draft)
            strict[pair] = strict.get(pair, False) or arm.refused_draft == "refuse" or not compared
    pairs: list[DraftPair] = []
    for (target, draft), refuse in strict.items():
        comparison = compare(Path(models[target].path), Path(models[draft].path))
        loads = not any(it.name == "vocabulary-readable" and it.status == "refused" for it in comparison.conditions)
        if comparison.refusal is not None and (refuse or not loads):
            command = f"specmeter models compare {_shown(models[target])} {_shown(models[draft])}"
            raise ModelError(
                f"drafts.{draft}: llama.cpp rejects it as a draft model for {target}: {comparison.refusal}",
                fix=f"use a draft model with the target's vocabulary; `{command}` lists every condition",
            )
        pairs.append(DraftPair(target=target, draft=draft, conditions=comparison.conditions))
    return tuple(pairs)


_NOT_MODELS = {
    "mmproj": "the image or audio part of a model (mmproj)",
    "adapter": "an adapter (LoRA) of a model",
    "vocab": "a vocabulary without a model",
    "imatrix": "an importance matrix",
}
"""What `general.type` of a GGUF file may say beside `model`."""
_NOT_CAUSAL: Mapping[str, str] = {
    **dict.fromkeys(
        ("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3", "eurobert",
         "gemma-embedding", "llama-embed", "t5encoder"),
        "an encoder, which makes embeddings of texts",
    ),
    "t5": "an encoder with a decoder",
    "wavtokenizer-dec": "a part of a model of speech",
    **dict.fromkeys(("dream", "llada", "llada-moe", "rnd1"), "a diffusion model, which does not write in order"),
}  # fmt: skip
"""Architectures of llama.cpp (`LLM_ARCH_NAMES` in src/llama-arch.cpp) that do not write a text token by token."""


def other_than_language_model(metadata: Metadata) -> str | None:
    """What a GGUF file holds instead of a causal language model; None for one (draft models are ones, too)."""
    kind = "mmproj" if metadata.architecture == "clip" else metadata.text("general.type")
    if kind in _NOT_MODELS:
        return _NOT_MODELS[kind]
    if (other := _NOT_CAUSAL.get(metadata.architecture or "")) is not None:
        return other
    if metadata.flag(".attention.causal") is False:
        return "a model without causal attention"
    if metadata.integer(".pooling_type"):
        return "a model of embeddings or of rankings"
    return None


def _refuse_other_kinds(arm: Arm, models: Mapping[str, ModelFile], read: dict[str, Metadata]) -> None:
    """Raise `ModelError` for files that are not language models, and for drafts in a place that is not theirs.

    `read` keeps what headers said: hundreds of arms share a few models.
    """
    for key, name in (("targets", arm.target), ("drafts", arm.draft)):
        if name is None:
            continue
        if name not in read:
            read[name] = Metadata(read_parts(Path(models[name].path))[0])
        metadata = read[name]
        other = other_than_language_model(metadata)
        if other is not None:
            raise ModelError(
                f"{key}.{name}: {models[name].reference} is {other}, not a causal language model",
                fix="use a GGUF file of a model that generates text",
            )
        # Heads that read the target's states may leave its vocabulary to it.
        if metadata.architecture not in METHOD_BY_ARCHITECTURE and (lack := _lacking_vocabulary(metadata)) is not None:
            raise ModelError(
                f"{key}.{name}: {models[name].reference}: llama.cpp cannot load its vocabulary ({lack})",
                fix="use another copy of the model: this file was converted without a complete tokenizer",
            )
        method = METHOD_BY_ARCHITECTURE.get(metadata.architecture or "")
        if method is not None and key == "targets":
            raise ModelError(
                f"targets.{name}: {models[name].reference} is a draft model ({metadata.architecture}), not a target",
                fix=f"give the model that it was made for as the target, and this one as its draft model with method "
                f"{method}",
            )
        if method is not None and method not in arm.methods:
            raise ModelError(
                f"drafts.{name}: {models[name].reference} only works with method {method}, not {'+'.join(arm.methods)}",
                fix=f"use method {method} (`--method {method}`, or `method: {method}` in the arm)",
            )


def _shown(model: ModelFile) -> str:
    """As a command names it from any folder."""
    return quoted(model.reference if model.reference.startswith(("hf:", "bench:")) else model.path)


def refuse_too_large(arms: Sequence[Arm], models: Mapping[str, ModelFile]) -> None:
    """Raise `UsageError` for an arm whose models do not fit into the memory of this machine."""
    available, resident = memory_free_bytes(), Resident()
    for arm in arms:
        draft = None if arm.draft is None else Path(models[arm.draft].path)
        needed = resident.bytes_of(arm, Path(models[arm.target].path), draft)
        if needed > available:
            raise UsageError(
                f"{arm.id}: weights, KV cache and buffers need {size(needed)}, but {size(available)} is free",
                fix="use a smaller model or quantization, lower engine.context, or close other programs",
            )


class Compatibility(Record):
    """All conditions for one pair of models."""

    method: MethodName
    """The method that the draft is made for."""
    conditions: tuple[Condition, ...]

    @property
    def accepted(self) -> bool:
        """Whether llama.cpp would speculate with this pair."""
        return self.refusal is None

    @property
    def refusal(self) -> str | None:
        """Why llama.cpp would not, by the first condition that is broken; None where it would."""
        refused = [condition for condition in self.conditions if condition.status == "refused"]
        if not refused:
            return None
        first, more = refused[0], f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        return f"{first.name} is {first.draft}, the target's is {first.target}{more}"


def compare(target: Path, draft: Path) -> Compatibility:
    """Compare the models whose (first) files are `target` and `draft`.

    Raises `ModelError` when a file is missing or damaged.
    """
    return compare_headers(read_parts(target), read_parts(draft))


def compare_headers(target_parts: tuple[Header, ...], draft_parts: tuple[Header, ...]) -> Compatibility:
    """The same for models whose headers are read already."""
    one, other = describe(target_parts), describe(draft_parts)
    method = METHOD_BY_ARCHITECTURE.get(other.architecture or "", "draft-simple")
    conditions = [_state(one, other)]
    if method == "draft-simple":
        conditions = [
            _loads(target_parts[0], draft_parts[0]),
            *_refused(one.vocabulary, other.vocabulary),
            *_texts(_tokens(target_parts[0]), _tokens(draft_parts[0])),
            *_unchecked(one.vocabulary, other.vocabulary),
            *conditions,
        ]
    elif method in ("draft-eagle3", "draft-dflash"):
        conditions.insert(0, _reads_states(one, other, Metadata(draft_parts[0])))
    return Compatibility(method=method, conditions=tuple(conditions))


def _reads_states(target: ModelFacts, head: ModelFacts, metadata: Metadata) -> Condition:
    """llama.cpp does not compare them: it ends the process with a failed assertion."""
    width = metadata.integer(".target_hidden_size") or head.hidden
    return _check(
        "state-width", width in (None, target.hidden), "refused", target.hidden, width,
        "a head reads the target's states: it fits the target that it was made for",
    )  # fmt: skip


def _tokens(header: Header) -> StringArray | None:
    return Metadata(header).strings("tokenizer.ggml.tokens")


def _check(
    name: str, same: bool, broken: Literal["ok", "refused", "warning"], target: object, draft: object, why: str
) -> Condition:
    return Condition(name=name, status="ok" if same else broken, target=_quoted(target), draft=_quoted(draft), why=why)


def _quoted(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _lacking_vocabulary(metadata: Metadata) -> str | None:
    """Why llama.cpp cannot load the vocabulary of a file; None where it can."""
    model, pre = metadata.text("tokenizer.ggml.model"), metadata.text("tokenizer.ggml.pre")
    kind = vocabulary_type(model)
    if model is not None and kind is None:
        return f"unknown tokenizer {model!r}"
    if kind in (None, "none", "test") or metadata.strings("tokenizer.ggml.tokens") is None:
        return "no tokens"
    if kind == "bpe" and pre != "kimi-k2" and metadata.strings("tokenizer.ggml.merges") is None:
        return "no merges"
    return None


def _loads(*headers: Header) -> Condition:
    one, other = (_lacking_vocabulary(Metadata(it)) or "readable" for it in headers)
    return _check(
        "vocabulary-readable", one == other == "readable", "refused", one, other, "llama.cpp must be able to load it"
    )


def _refused(target: Vocabulary, draft: Vocabulary) -> list[Condition]:
    difference = abs((target.size or 0) - (draft.size or 0))
    return [
        _check(
            "vocabulary-type", target.type == draft.type, "refused", target.type, draft.type,
            "must be the same kind of tokenizer",
        ),
        _check(
            "add-bos", target.add_bos == draft.add_bos, "refused", target.add_bos, draft.add_bos,
            "both or neither begin a text with a special token",
        ),
        _check(
            "bos-token", target.bos == draft.bos, "refused" if target.add_bos and draft.add_bos else "warning",
            target.bos, draft.bos, "id of the token that begins a text; compared when it is added",
        ),
        _check(
            "add-eos", target.add_eos == draft.add_eos, "refused", target.add_eos, draft.add_eos,
            "both or neither end a prompt with a special token",
        ),
        _check(
            "eos-token", target.eos == draft.eos, "refused" if target.add_eos and draft.add_eos else "warning",
            target.eos, draft.eos, "id of the token that ends a text; compared when it is added to prompts",
        ),
        _check(
            "vocabulary-size", difference <= MAX_SIZE_DIFFERENCE, "refused", target.size, draft.size,
            f"may differ by {MAX_SIZE_DIFFERENCE} tokens; differs by {difference}",
        ),
    ]  # fmt: skip


def _texts(target: StringArray | None, draft: StringArray | None) -> list[Condition]:
    """Token texts: those that llama.cpp compares, and the first five, which it does not."""
    if target is None or draft is None:
        return []
    shared = min(len(target), len(draft))
    checked = _first_difference(target, draft, FIRST_CHECKED_TOKEN, shared)
    unchecked = _first_difference(target, draft, 0, min(FIRST_CHECKED_TOKEN, shared))

    def condition(name: str, at: int | None, broken: Literal["ok", "refused", "warning"], why: str) -> Condition:
        if at is None:
            return _check(name, True, broken, "same", "same", why)
        one, other = (f"{at}: {array[at][:64].decode(errors='replace')!r}" for array in (target, draft))
        return _check(name, False, broken, one, other, why)

    return [
        condition("token-texts", checked, "refused", f"texts of all shared ids from {FIRST_CHECKED_TOKEN} on"),
        condition(
            "first-token-texts", unchecked, "warning",
            f"texts of the first {FIRST_CHECKED_TOKEN} ids, which llama.cpp does not compare",
        ),
    ]  # fmt: skip


def _first_difference(target: StringArray, draft: StringArray, first: int, last: int) -> int | None:
    """First id in [first, last) whose texts differ; as in C, a text ends at its first zero byte."""
    if last == len(target) == len(draft) and target.tail(first) == draft.tail(first):
        return None
    for index in range(first, last):
        one, other = target[index], draft[index]
        if one != other and one.partition(b"\0")[0] != other.partition(b"\0")[0]:
            return index
    return None


def _unchecked(target: Vocabulary, draft: Vocabulary) -> list[Condition]:
    templates = target.chat_template, draft.chat_template
    one, other = ("none" if template is None else f"{len(template)} characters" for template in templates)
    return [
        _check(
            "eot-token", target.eot == draft.eot, "warning", target.eot, draft.eot,
            "id of the token that ends a turn: drafts go wrong at the end of answers",
        ),
        _check(
            "pre-tokenizer", target.pre == draft.pre, "warning", target.pre, draft.pre,
            "text was cut into tokens differently in training: acceptance suffers",
        ),
        _check(
            "fingerprint", target.sha256 == draft.sha256, "warning", _short(target.sha256), _short(draft.sha256),
            "token texts, types and merges all together",
        ),
        _check(
            "chat-template", templates[0] == templates[1] or None in templates, "warning", one, other,
            "the target's is used: a draft trained on another one may guess worse",
        ),
    ]  # fmt: skip


def _short(sha256: str | None) -> str | None:
    return sha256[:16] if sha256 else None


def _state(target: ModelFacts, draft: ModelFacts) -> Condition:
    one, other = ("unknown" if facts.memory is None else facts.memory.kind for facts in (target, draft))
    return _check(
        "forgetting", not (target.is_recurrent or draft.is_recurrent), "warning", one, other,
        "recurrent state cannot forget rejected tokens: it is saved, restored and replayed",
    )  # fmt: skip
