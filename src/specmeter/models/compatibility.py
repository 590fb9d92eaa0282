"""Would llama.cpp accept this draft model for this target, and if not, why?

The conditions of status `refused` are those of `common_speculative_are_compatible` in llama.cpp's
common/speculative.cpp, in its order, and what loading the vocabularies demands before. The version that specmeter
pins refuses every mismatch ("the target and draft vocabs are not compatible") and its server then goes on *without*
speculation; builds of 2025 translated the draft's text token by token instead ("tokens will be translated"), which
measures something else. llama.cpp does not check conditions of status `warning`; they cost acceptance or time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from specmeter.models.facts import ModelFacts, describe
from specmeter.models.gguf_header import Header, StringArray
from specmeter.models.metadata import Metadata
from specmeter.models.split import read_parts
from specmeter.models.vocabulary import Vocabulary
from specmeter.record import Condition, MethodName, Record

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
            _loads(one.vocabulary, other.vocabulary, target_parts[0], draft_parts[0]),
            *_refused(one.vocabulary, other.vocabulary),
            *_texts(_tokens(target_parts[0]), _tokens(draft_parts[0])),
            *_unchecked(one.vocabulary, other.vocabulary),
            *conditions,
        ]
    return Compatibility(method=method, conditions=tuple(conditions))


def _tokens(header: Header) -> StringArray | None:
    return Metadata(header).strings("tokenizer.ggml.tokens")


def _check(
    name: str, same: bool, broken: Literal["ok", "refused", "warning"], target: object, draft: object, why: str
) -> Condition:
    return Condition(name=name, status="ok" if same else broken, target=_shown(target), draft=_shown(draft), why=why)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _loads(target: Vocabulary, draft: Vocabulary, *headers: Header) -> Condition:
    def verdict(vocabulary: Vocabulary, header: Header) -> str:
        if vocabulary.type is None:
            return f"unknown tokenizer {vocabulary.model!r}"
        if vocabulary.type in ("none", "test") or _tokens(header) is None:
            return "no tokens"
        needs_merges = vocabulary.type == "bpe" and vocabulary.pre != "kimi-k2"
        if needs_merges and Metadata(header).strings("tokenizer.ggml.merges") is None:
            return "no merges"
        return "readable"

    one, other = verdict(target, headers[0]), verdict(draft, headers[1])
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
