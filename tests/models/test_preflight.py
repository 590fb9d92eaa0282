from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_log import loading_log
from gguf_files import TOKENS, write_gguf

from specmeter.errors import ModelError
from specmeter.models import bench
from specmeter.models.preflight import Compatibility, compare

KEYS = {"block_count": 1, "embedding_length": 32, "attention.head_count": 1, "feed_forward_length": 32}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2}


def pair(folder: Path, target: dict[str, Any] | None = None, draft: dict[str, Any] | None = None) -> Compatibility:
    paths: list[Path] = []
    for name, options in (("target", target or {}), ("draft", draft or {})):
        given = {"architecture": "llama", "keys": KEYS, **options}
        given["vocabulary"] = {**SPECIAL, **given.get("vocabulary", {})}
        paths.append(write_gguf(folder / f"{name}.gguf", **given))
    return compare(*paths)


def broken(comparison: Compatibility, status: str) -> set[str]:
    return {condition.name for condition in comparison.conditions if condition.status == status}


def test_equal_vocabularies_are_accepted(tmp_path: Path) -> None:
    comparison = pair(tmp_path)
    assert comparison.accepted
    assert comparison.method == "draft-simple"
    assert {condition.status for condition in comparison.conditions} == {"ok"}


def with_tokens(count: int) -> dict[str, Any]:
    return {"tokens": [*TOKENS, *(f"t{number}" for number in range(count))]}


@pytest.mark.parametrize(
    ("draft", "refused", "warned"),
    [
        ({"vocabulary": {"model": "llama"}}, {"vocabulary-type", "add-bos"}, set()),
        ({"vocabulary": {"model": "of tomorrow"}}, {"vocabulary-readable", "vocabulary-type"}, set()),
        ({"vocabulary": {"add_bos_token": True}}, {"add-bos"}, set()),
        ({"vocabulary": {"add_eos_token": True}}, {"add-eos"}, set()),
        ({"vocabulary": {"bos_token_id": 3}}, set(), {"bos-token"}),
        ({"vocabulary": {"eos_token_id": 3}}, set(), {"eos-token"}),
        (with_tokens(128), set(), {"fingerprint"}),
        (with_tokens(129), {"vocabulary-size"}, {"fingerprint"}),
        ({"tokens": [*TOKENS[:4], "x", *TOKENS[5:]]}, set(), {"first-token-texts", "fingerprint"}),
        ({"tokens": [*TOKENS[:5], "x", *TOKENS[6:]]}, {"token-texts"}, {"fingerprint"}),
        ({"tokens": [*TOKENS[:-1], "x"]}, {"token-texts"}, {"eot-token", "fingerprint"}),
        ({"vocabulary": {"pre": "gpt-2"}}, set(), {"pre-tokenizer"}),
        ({"architecture": "mamba"}, set(), {"forgetting"}),
        ({"tokens": None}, {"vocabulary-readable"}, {"bos-token", "eos-token", "eot-token", "fingerprint"}),
    ],
)  # fmt: skip
def test_each_mismatch_has_its_condition(
    tmp_path: Path, draft: dict[str, Any], refused: set[str], warned: set[str]
) -> None:
    comparison = pair(tmp_path, draft=draft)
    assert (broken(comparison, "refused"), broken(comparison, "warning")) == (refused, warned)
    assert comparison.accepted == (not refused)


def test_special_ids_are_compared_when_they_are_added(tmp_path: Path) -> None:
    added = {"add_bos_token": True, "add_eos_token": True}
    comparison = pair(
        tmp_path,
        {"vocabulary": added},
        {"vocabulary": {**added, "bos_token_id": 3, "eos_token_id": 4}},
    )
    assert broken(comparison, "refused") == {"bos-token", "eos-token"}


def test_both_values_are_shown(tmp_path: Path) -> None:
    comparison = pair(tmp_path, draft={"tokens": [*TOKENS[:6], "\x1b[31m", *TOKENS[7:]]})
    texts = next(condition for condition in comparison.conditions if condition.name == "token-texts")
    assert (texts.target, texts.draft) == ("6: 'd'", r"6: '\x1b[31m'")


def test_a_text_ends_at_a_zero_byte(tmp_path: Path) -> None:
    zero = {"tokens": [*TOKENS[:6], "d\0tail", *TOKENS[7:]]}
    assert "token-texts" not in broken(pair(tmp_path, draft=zero), "refused")


def test_drafts_that_read_hidden_states_are_not_compared(tmp_path: Path) -> None:
    comparison = pair(tmp_path, draft={"architecture": "eagle3", "tokens": None})
    assert (comparison.method, comparison.accepted) == ("draft-eagle3", True)


@pytest.mark.parametrize("head", ["hybrid-eagle3", "hybrid-dflash"])
def test_a_head_fits_the_target_that_it_was_made_for(head: str) -> None:
    """Of another target's states llama.cpp's process dies."""
    hybrid, dense, draft = (bench.shipped()[name].path for name in ("hybrid", "dense", head))
    assert compare(hybrid, draft).accepted
    assert compare(dense, draft).refusal == "state-width is 192, the target's is 256"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        compare(tmp_path / "a.gguf", tmp_path / "b.gguf")


# --- against the engine ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("draft", ["draft-small", "draft-other-vocab", "draft-other-special"])
def test_the_engine_decides_alike(tmp_path: Path, draft: str) -> None:
    target_path, draft_path = (bench.shipped()[name].path for name in ("dense", draft))
    log = loading_log(tmp_path, target_path, draft_path)
    assert "adding speculative implementation 'draft-simple'" in log
    refused = "the target and draft vocabs are not compatible" in log
    assert compare(target_path, draft_path).accepted == (not refused)
