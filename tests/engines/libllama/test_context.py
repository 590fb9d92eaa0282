"""A context on real (tiny) models: forgetting is exact, misuse raises, nothing leaks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psutil
import pytest

from engines.libllama.contexts import SETTINGS, Opened, core_path
from engines.llama_fixtures import TEXT
from specmeter.errors import EngineError, EngineProtocolError, EngineStartError
from specmeter.llama_binding.context import Context, ContextFullError
from specmeter.llama_binding.model import Model
from specmeter.record import EngineSettings

CORES = ["dense", "moe", "hybrid"]
SAME_LOGIT = 0.3
"""A forward over another number of tokens adds up in another order, and the KV cache keeps 16 bits of it. Seen here: up
to 0.11 after long sequences of random tokens, 0.006 on text."""


def tokens_of(context: Context, text: str = TEXT) -> list[int]:
    return context.model.tokenize(text, add_special=True, parse_special=True)


def fresh(context: Context, tokens: list[int]) -> np.ndarray:
    """Logits after `tokens`, by a prefill from nothing."""
    context.cut(0)
    return context.extend(tokens)[0].copy()


def played(context: Context, text: list[int], rejected_seed: int) -> tuple[np.ndarray, list[int]]:
    """Logits after `text` and 25 drafts of which some tokens were accepted, and all tokens that stayed.

    Lengths and accepted tokens are always the same, tokens that are rejected depend on `rejected_seed`.
    """
    rng, rejected = np.random.default_rng(3), np.random.default_rng(rejected_seed)
    size = context.model.vocabulary_size
    context.cut(0)
    context.extend(text)
    for _ in range(25):
        drafted = rng.integers(0, size, size=rng.integers(1, 17)).tolist()
        accepted = int(rng.integers(0, len(drafted) + 1))
        drafted[accepted:] = rejected.integers(0, size, size=len(drafted) - accepted).tolist()
        length = context.length
        checkpoint = None if context.can_cut else context.save()
        context.decode(drafted, "all")
        if checkpoint is None:
            assert context.cut(length + accepted)
        elif accepted < len(drafted):
            assert not context.cut(length + accepted)
            context.restore(checkpoint)
            if accepted:
                context.decode(drafted[:accepted], "none")
        text = text + drafted[:accepted]
        assert context.length == len(text)
    return context.decode([7])[0].copy(), [*text, 7]


@pytest.mark.parametrize("name", CORES)
def test_rejected_tokens_leave_nothing_behind(name: str, opened: Opened) -> None:
    """Same forwards, other rejected tokens: the logits are the same to the bit. A fresh prefill, which adds up in
    another order, comes close."""
    context = opened(name)
    one, stayed = played(context, tokens_of(context), rejected_seed=1)
    other, same = played(context, tokens_of(context), rejected_seed=2)
    assert stayed == same
    assert np.array_equal(one, other)
    assert np.abs(one - fresh(context, stayed)).max() < SAME_LOGIT


@pytest.mark.parametrize("name", CORES)
def test_all_rows_of_a_forward_are_those_of_single_tokens(name: str, opened: Opened) -> None:
    context = opened(name)
    text = tokens_of(context)
    context.cut(0)
    one_by_one = [context.decode([token])[0].copy() for token in text]
    context.cut(0)
    together = context.decode(text, "all")
    assert together.shape == (len(text), context.model.vocabulary_size)
    assert np.abs(together - np.stack(one_by_one)).max() < SAME_LOGIT
    context.cut(0)
    assert context.decode(text, "none").shape == (0, context.model.vocabulary_size)


def test_long_texts_go_in_batch_by_batch() -> None:
    settings = EngineSettings(context=512, batch=32)
    with Model(core_path("dense")) as model, Context(model, settings, threads=1) as context:
        assert context.batch_size == 32
        text = (tokens_of(context) * 20)[:300]
        last = context.extend(text)[0].copy()
        assert context.forwards == 10
        with pytest.raises(EngineProtocolError, match=r"33 tokens.*1 to 32"):
            context.decode(text[:33])
    with Model(core_path("dense")) as model, Context(model, SETTINGS, threads=1) as context:
        assert np.abs(last - fresh(context, text)).max() < SAME_LOGIT


def test_misuse_raises_and_changes_nothing(opened: Opened) -> None:
    context = opened("dense")
    context.cut(0)
    context.extend(tokens_of(context))
    length = context.length
    size = context.model.vocabulary_size
    for wrong, message in (
        ([], "0 tokens"),
        ([size], f"token id {size}"),
        ([1, -1], "token id -1"),
        ([0] * (context.batch_size + 1), "engine.batch"),
    ):
        with pytest.raises(EngineProtocolError, match=message):
            context.decode(wrong)
    with pytest.raises(EngineProtocolError, match="rows"):
        context.decode([1] * (context.rows + 1), "all")
    for wrong in (-1, length + 1):
        with pytest.raises(EngineProtocolError, match="cannot cut"):
            context.cut(wrong)
    with pytest.raises(EngineProtocolError, match="no tokens"):
        context.extend([])
    assert context.length == length
    assert context.decode([1]).shape == (1, size)


def test_a_full_context_says_so_and_goes_on_after_a_cut(opened: Opened) -> None:
    context = opened("dense")
    context.cut(0)
    context.extend([5] * (context.capacity - 1))
    with pytest.raises(ContextFullError, match="do not fit"):
        context.decode([5, 5])
    context.decode([5])
    with pytest.raises(ContextFullError):
        context.decode([5])
    assert context.length == context.capacity
    context.cut(3)
    context.decode([5])
    assert context.length == 4


def test_closed_things_raise() -> None:
    model = Model(core_path("draft-small"))
    context = Context(model, SETTINGS, threads=1)
    with pytest.raises(EngineError, match="1 contexts of this model are still open"):
        model.close()
    context.close()
    context.close()
    model.close()
    model.close()
    for call in (
        lambda: context.decode([1]),
        lambda: context.cut(0),
        lambda: context.save(),
        lambda: model.tokenize("a", add_special=False, parse_special=False),
        lambda: model.bytes_of(1),
        lambda: Context(model, SETTINGS, threads=1),
    ):
        with pytest.raises(EngineError, match="is closed"):
            call()


def test_checkpoints_are_of_the_past(opened: Opened) -> None:
    context = opened("hybrid")
    context.cut(0)
    context.extend(tokens_of(context))
    checkpoint = context.save()
    context.cut(0)
    context.extend([1, 2])
    with pytest.raises(EngineError, match="is not a prefix"):
        context.restore(checkpoint)


@pytest.mark.parametrize("damage", ["missing", "empty", "text", "cut", "architecture"])
def test_a_model_that_cannot_be_loaded_says_why(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "model.gguf"
    whole = core_path("draft-small").read_bytes()
    if damage != "missing":
        contents = {"empty": b"", "text": b"no model", "cut": whole[: len(whole) // 2]}
        path.write_bytes(contents.get(damage, whole.replace(b"qwen3", b"qwenX")))
    with pytest.raises(EngineStartError) as raised:
        Model(path)
    assert str(path) in raised.value.message
    if damage == "architecture":
        assert "qwenX" in raised.value.message


def test_a_context_that_cannot_be_made_says_why() -> None:
    with Model(core_path("dense")) as model, pytest.raises(EngineStartError, match="cannot make a context"):
        Context(model, EngineSettings(context=512, kv_type_v="q4_0", flash_attention="off"), threads=1)


@pytest.mark.slow
def test_a_thousand_contexts_leave_nothing_behind() -> None:
    process = psutil.Process()
    with Model(core_path("draft-small")) as model:
        settings = EngineSettings(context=64)

        def cycle(times: int) -> None:
            for _ in range(times):
                with Context(model, settings, threads=1, rows=2) as context:
                    context.decode([1, 2], "all")

        cycle(100)
        before = process.memory_info().rss
        cycle(1000)
        assert process.memory_info().rss - before < 16 * 1024 * 1024


@pytest.mark.slow
def test_models_leave_nothing_behind() -> None:
    process = psutil.Process()

    def cycle(times: int) -> None:
        for _ in range(times):
            with Model(core_path("draft-small")) as model:
                model.tokenize("a", add_special=False, parse_special=False)

    cycle(20)
    before = process.memory_info().rss
    cycle(200)
    assert process.memory_info().rss - before < 16 * 1024 * 1024
