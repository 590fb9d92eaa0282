"""Perplexities of the shipped cores: against whole logits computed anew, and against the native tool."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quality.cores import STORED, model, short_text
from specmeter.analysis.perplexity import perplexity
from specmeter.errors import EngineError, UsageError
from specmeter.llama_binding.context import Context
from specmeter.llama_binding.model import Model
from specmeter.record import EngineSettings
from specmeter_studies.quality.child import score_apart
from specmeter_studies.quality.scoring import Scores, Scoring, score, surprises

THREADS = 1


def scored(name: str, context: int, stride: int = 0, **changes: Any) -> Scores:
    settings = EngineSettings(context=context, threads=THREADS, **changes)
    order = Scoring(model=model(name).path, settings=settings, stride=stride, text=short_text())
    return score(order, lambda *_: None)


def point(scores: Scores) -> float:
    return perplexity([total / scores.scored for total in scores.surprise], scores.scored).point


TRIED = [
    *(("bench:draft-small", context) for context in (512, 200, 256)),
    ("bench:dense", 512),
    ("bench:dense?quant=Q8_0", 200),
    ("bench:dense?quant=Q4_0", 200),
    ("bench:moe", 512),
    ("bench:hybrid", 256),
    ("bench:draft-small?quant=Q8_0", 512),
    ("core:draft-other-special", 256),
]
"""Every model, one of them in every way of reading; windows of 256 tokens overlap."""
SAID = {(entry["model"], entry["context"]): entry for entry in STORED["values"]}


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(
            SAID[it], id=f"{it[0]}/{it[1]}", marks=[pytest.mark.slow] * (it[0] in ("bench:hybrid", "bench:moe"))
        )
        for it in TRIED
    ],
)
def test_the_native_tool_said_the_same(entry: dict[str, Any]) -> None:
    identity = model(entry["model"])
    if identity.sha256 != entry["model_sha256"]:
        pytest.fail("the model is another one than the stored value's: store it anew (benchmarks/perplexity.py)")
    scores = scored(entry["model"], entry["context"], entry["stride"])
    assert len(scores.surprise) == entry["windows"]
    assert point(scores) == pytest.approx(entry["perplexity"], rel=0.002)


@pytest.mark.parametrize(("name", "bos"), [("bench:dense", False), ("core:draft-other-special", True)])
def test_perplexity_is_what_follows_from_the_logits_of_whole_windows(name: str, bos: bool) -> None:
    scores = scored(name, 128)
    expected: list[float] = []
    with Model(Path(model(name).path)) as loaded:
        tokens = loaded.tokenize(short_text(), add_special=True, parse_special=False)
        with Context(loaded, EngineSettings(context=128), threads=THREADS, rows=128) as context:
            for start in range(0, len(tokens) - 127, 128):
                window = tokens[start : start + 128]
                following = window[65:]
                if bos:
                    window[0] = 2046
                context.cut(0)
                rows = np.array(context.decode(window, "all"), dtype=np.float64)[64:127]
                shares = np.exp(rows) / np.exp(rows).sum(axis=1, keepdims=True)
                expected.append(float(-np.log(shares[np.arange(63), following]).sum()))
    assert scores.begins_with_bos is bos
    assert scores.scored == 63
    assert scores.surprise == pytest.approx(expected, rel=3e-3)
    assert sum(scores.surprise) == pytest.approx(sum(expected), rel=3e-4)
    ids = np.array(tokens, dtype="<i4").tobytes()
    assert (scores.text_tokens, scores.tokens_sha256) == (len(tokens), hashlib.sha256(ids).hexdigest())


@pytest.mark.parametrize("name", ["bench:moe", "bench:hybrid"])
def test_batches_do_not_matter(name: str) -> None:
    whole, parts = scored(name, 256), scored(name, 256, batch=48, ubatch=16)
    assert point(parts) == pytest.approx(point(whole), rel=2e-3)


def test_windows_do_not_know_each_other() -> None:
    twice = Scoring(
        model=model("bench:hybrid").path,
        settings=EngineSettings(context=64, threads=1),
        text=short_text()[:400],
    )
    alone = score(twice, lambda *_: None)
    again = score(twice.model_copy(update={"text": short_text()[:300]}), lambda *_: None)
    assert len(alone.surprise) > len(again.surprise) >= 1
    assert again.surprise[0] == pytest.approx(alone.surprise[0], rel=1e-6)


def test_surprise_of_rows() -> None:
    rng = np.random.default_rng(3)
    logits = (rng.normal(0, 4, (7, 50)) + 300).astype(np.float32)
    following = rng.integers(0, 50, 7)
    exact = logits.astype(np.float64)
    expected = np.log(np.exp(exact - 300).sum(axis=1)) - (exact[np.arange(7), following] - 300)
    assert surprises(logits, following) == pytest.approx(expected, rel=1e-5)


def test_every_window_is_told() -> None:
    told: list[tuple[int, int]] = []
    order = Scoring(
        model=model("bench:draft-small").path, settings=EngineSettings(context=64, threads=1), text=short_text()[:2000]
    )
    scores = score(order, lambda *parts: told.append(parts))
    assert told == [(done, len(scores.surprise)) for done in range(1, len(scores.surprise) + 1)]


def test_a_child_says_the_same() -> None:
    settings = EngineSettings(context=512, threads=THREADS)
    order = Scoring(model=model("bench:draft-small").path, settings=settings, text=short_text())
    told: list[tuple[int, int]] = []
    assert score_apart(order, lambda *parts: told.append(parts)) == score(order, lambda *_: None)
    assert all(total == 7 for _, total in told)


def test_what_a_child_cannot_do_is_told_as_it_is() -> None:
    settings = EngineSettings(context=512, threads=1)
    order = Scoring(model=model("bench:draft-small").path, settings=settings, text="Too short.")
    with pytest.raises(UsageError, match="one window needs 512"):
        score_apart(order, lambda *_: None)


def test_a_file_that_llama_cpp_cannot_load(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 100)
    order = Scoring(model=str(broken), settings=EngineSettings(context=64, threads=1), text=short_text())
    with pytest.raises(EngineError, match="cannot load"):
        score_apart(order, lambda *_: None)
