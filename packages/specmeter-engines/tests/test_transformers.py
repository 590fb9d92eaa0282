"""The engine `transformers` against the real library, on exported cores."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from specmeter.engines import load_engine
from specmeter.errors import EngineStartError
from specmeter.numbers.reconciled import reconciled
from specmeter.record import Arm, EngineSettings, Generation
from specmeter.testing import CASES, Case, Subject
from specmeter.testing.subject import greedy, prompt
from specmeter_engines.folders import folder_model
from specmeter_engines.transformers import ASSISTED, LOOKUP

INSTALL = "needs transformers: pip install 'specmeter-engines[transformers]'"
pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

PLAIN = Arm(id="m/none", target="m", role="baseline", engine=EngineSettings(context=4096))
DRAFTING = PLAIN.model_copy(
    update={"id": "m/assisted", "methods": (ASSISTED,), "draft": "d", "gamma": 4, "role": "speculative"}
)


@pytest.fixture(scope="module")
def subject() -> Iterator[Subject]:
    target, draft = (folder_model(None, it, f"bench:{it}") for it in ("dense", "draft-small"))
    with Subject(load_engine("transformers"), arm=PLAIN, target=target, drafting=DRAFTING, draft=draft) as it:
        yield it


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_conformance(case: Case, subject: Subject) -> None:
    case(subject)


@pytest.mark.parametrize("method", [ASSISTED, LOOKUP])
def test_the_account_of_a_generation_closes(subject: Subject, method: str) -> None:
    looked_up = {"id": "m/lookup", "methods": (LOOKUP,), "draft": None}
    arm = DRAFTING if method == ASSISTED else DRAFTING.model_copy(update=looked_up)
    plain = subject.session.generate(prompt(), greedy(64))
    with subject.start(arm) as session:
        reply = session.generate(prompt(), greedy(64))
        sampled = [session.generate(prompt(), Generation(max_tokens=32, temperature=0.8, seed=7)) for _ in range(2)]
    assert reply.token_ids == plain.token_ids
    assert sampled[0].token_ids == sampled[1].token_ids
    told = reconciled(reply).model_dump()
    assert None not in told.values()
    assert told["steps"] == told["corrected"] + told["bonus"]
    assert told["evaluated"] == told["accepted"] + told["corrected"]
    assert told["emitted"] == 64 == told["accepted"] + told["steps"] + told["plain"]
    assert told["proposed"] >= told["evaluated"] >= told["accepted"] > 0
    assert reply.counters["n_decode_total"] == told["steps"] + told["plain"]
    if method == ASSISTED:
        assert told["plain"] <= 1  # the first draft is verified with the prompt, and none is made for a last token
        assert reply.counters["draft_n_decode_total"] == told["proposed"]


def test_what_cannot_be_loaded_is_refused(subject: Subject, tmp_path: Path) -> None:
    broken = shutil.copytree(subject.target.path, tmp_path / "broken")
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000])
    with pytest.raises(EngineStartError, match="transformers cannot load it"):
        subject.start(target=subject.target.model_copy(update={"path": str(broken)}))


def test_a_draft_of_another_vocabulary_is_refused(subject: Subject) -> None:
    other = folder_model(None, "d", "bench:draft-other-vocab")
    pair = Subject(subject.engine, arm=PLAIN, target=subject.target, drafting=DRAFTING, draft=other)
    with pair, pytest.raises(EngineStartError, match="another vocabulary"):
        pair.start(DRAFTING)
