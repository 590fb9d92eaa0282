"""Engines that are Python packages, against the real ones on bench models; skipped where they are not installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from specmeter.engines import load_engine
from specmeter.engines.registry import spec_of
from specmeter.errors import EngineStartError, ModelError
from specmeter.numbers.reconciled import reconciled
from specmeter.record import Arm, EngineSettings
from specmeter.testing import CASES, Case, Subject
from specmeter.testing.subject import greedy, prompt
from specmeter_engines.hosted import PARTS, HostedEngine
from specmeter_engines.several.engine import as_read_by

FORWARDS = {"transformers", "mlx", "onnxruntime"}
"""Those whose forwards are counted."""


OWN_LENGTHS = {"transformers": {"p_min": 0.7}, "onnxruntime": {"policy": "adaptive"}}
"""How an arm leaves the length of drafts to the engine."""


def drafting(name: str, drafter: str) -> Arm:
    """An arm of one of an engine's ways of drafting."""
    (method,) = (it.name for it in spec_of(name).traits.methods if it.drafter == drafter)
    return plain(name).model_copy(
        update={
            "id": f"m/{method}",
            "methods": (method,),
            "draft": "d" if drafter == "model" else None,
            "gamma": 4,
            "ngram_n": 3 if drafter == "lookup" else None,
            "role": "speculative",
        }
    )


def plain(name: str) -> Arm:
    """With one thread where that can be said: threads wait for each other on a busy machine."""
    threads = 1 if "threads" in spec_of(name).traits.settings else None
    options = {"precision": "f32"} if name == "openvino" else {}  # its own choice differs from step to step
    settings = EngineSettings(context=2048, threads=threads, options=options)
    return Arm(id="m/none", target="m", role="baseline", engine=settings)


@pytest.fixture(scope="module", params=PARTS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def subject(name: str) -> Iterator[Subject]:
    try:
        engine = load_engine(name)
    except EngineStartError as error:
        pytest.skip(f"{error.message}: {error.fix}")
    target, draft = (as_read_by(name, it, f"bench:{it}") for it in ("dense", "draft-small"))
    with Subject(engine, arm=plain(name), target=target, drafting=drafting(name, "model"), draft=draft) as it:
        yield it


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_conformance(case: Case, subject: Subject) -> None:
    case(subject)


@pytest.mark.parametrize("drafter", ["model", "lookup"])
def test_the_account_of_a_generation_closes(name: str, subject: Subject, drafter: str) -> None:
    if all(it.drafter != drafter for it in spec_of(name).traits.methods):
        pytest.skip(f"{name} has no way of drafting by {drafter}")
    said = subject.session.generate(prompt(), greedy(64))
    with subject.start(drafting(name, drafter)) as session:
        reply = session.generate(prompt(), greedy(64))
        drawn = greedy(32).model_copy(update={"temperature": 0.8, "seed": 7})
        sampled = [session.generate(prompt(), drawn) for _ in range(2)]
    assert reply.token_ids == said.token_ids
    assert sampled[0].token_ids == sampled[1].token_ids or name == "openvino"  # whose drafts have no seed
    told = reconciled(reply).model_dump()
    assert told["emitted"] == 64 == told["accepted"] + told["steps"] + told["plain"]
    assert None not in told.values()
    assert told["steps"] == told["corrected"] + told["bonus"]
    assert told["evaluated"] == told["accepted"] + told["corrected"]
    assert told["proposed"] >= told["evaluated"] >= told["accepted"] > 0
    if name in FORWARDS:
        assert reply.counters["n_decode_total"] == told["steps"] + told["plain"]


def test_an_engines_own_rule_makes_drafts_of_different_lengths(name: str, subject: Subject) -> None:
    if name not in OWN_LENGTHS:
        pytest.skip(f"{name} has no such rule")
    arm = drafting(name, "model").model_copy(update={"gamma": 8, **OWN_LENGTHS[name]})
    said = subject.session.generate(prompt(), greedy(192))
    with subject.start(arm) as session:
        reply = session.generate(prompt(), greedy(192))
    assert reply.token_ids == said.token_ids
    lengths = [it.drafted for it in reply.steps[1:-2]]  # the first has none, or all; the last have what is left to say
    assert len(set(lengths)) > 1
    assert max(lengths) <= 8


def test_what_cannot_be_loaded_is_refused(subject: Subject, tmp_path: Path) -> None:
    whole = Path(subject.target.path)
    broken = tmp_path / whole.name
    if whole.is_dir():
        shutil.copytree(whole, broken)
        weights = max(broken.iterdir(), key=lambda it: it.stat().st_size)
    else:
        weights = Path(shutil.copy(whole, broken))
    weights.write_bytes(weights.read_bytes()[:100_000])
    with pytest.raises(EngineStartError, match=r"cannot load it|died while it was starting"):
        subject.start(target=subject.target.model_copy(update={"path": str(broken)}))


@pytest.mark.parametrize("name", PARTS)
def test_other_versions_are_refused_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specmeter_engines.installed.version", lambda _: "9.9.9")
    with pytest.raises(
        EngineStartError, match=rf"cannot read the counts of {PARTS[name].packages[0]} 9\.9\.9"
    ) as caught:
        HostedEngine(name)
    assert f"specmeter-engines[{name}]" in caught.value.fix


def test_a_draft_of_another_vocabulary_is_refused(subject: Subject, name: str) -> None:
    if name == "openvino":
        pytest.skip("it does not compare vocabularies")
    other = as_read_by(name, "d", "bench:draft-other-vocab")
    pair = Subject(
        subject.engine, arm=plain(name), target=subject.target, drafting=drafting(name, "model"), draft=other
    )
    with pair, pytest.raises(EngineStartError, match="another vocabulary"):
        pair.start(drafting(name, "model"))


def test_no_folder_of_its_form_is_refused() -> None:
    with pytest.raises(ModelError, match=r"not a folder with genai_config\.json"):
        as_read_by("onnxruntime", "dense", "nowhere")
