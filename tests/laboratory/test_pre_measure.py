"""What a run finds out before an arm's first session, on the real embedded engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from measure.test_measure import Silent
from said import codes, said_of
from specmeter.errors import EngineError
from specmeter.experiments.file import load
from specmeter.laboratory import pre_measure
from specmeter.laboratory.evidence import _without_replays
from specmeter.laboratory.run import prepare, run
from specmeter.messages import Message
from specmeter.probe.replay import Round
from specmeter.probe.steps import RoundSpec
from specmeter.record import StepRound
from specmeter.show import why_report
from specmeter.show.page.document import read_document
from specmeter.store import RunStore

EXPERIMENT: dict[str, Any] = {
    "name": "scouted",
    "targets": {"dense": "bench:dense"},
    "drafts": {"small": "bench:draft-small"},
    "workloads": [{"source": "bench", "kinds": ["code", "fact"], "per_kind": 1}],
    "arms": [{"draft": "small", "gamma": [2, 5]}, {"method": "ngram-simple", "ngram_n": 3, "gamma": 4}],
    "design": {"blocks": 1, "warmup": "short"},
    "engine": {"context": 512, "threads": 1},
    "generation": {"max_tokens": 48},
}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is time for all texts, and the machine may be busy with other tests."""
    monkeypatch.setattr(pre_measure, "SHARE", 100.0)
    monkeypatch.setattr(pre_measure, "REQUESTS", 100.0)
    monkeypatch.setattr(pre_measure, "MAX_ROUNDS", 1)
    monkeypatch.setattr(pre_measure, "is_busy", lambda _shares, _gate: False)


def written(folder: Path, **changes: Any) -> str:
    path = folder / "scouted.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT | changes), encoding="utf-8")
    return str(path)


@pytest.mark.usefixtures("patient")
def test_acceptance_is_foreseen_to_the_token_and_cost_is_probed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(prepare(load(written(tmp_path))), folder, Silent())
    with RunStore.open(folder, readonly=True) as store:
        probes, predictions = store.probes(), {it.arm_id: it for it in store.predictions()}
        sessions, requests = list(store.sessions()), list(store.requests())
        certificate = store.certificate()
    assert [(it.draft, it.gamma, len(it.rounds), it.failure) for it in probes] == [
        ("small", 5, 1, None),
        (None, 4, 1, None),
    ]
    for probe in probes:
        drafting = [it for it in sessions if it.arm_id != "dense/none" and ("small" in it.arm_id) == bool(probe.draft)]
        first = min(it.started_at for it in drafting)
        assert probe.started_at < probe.ended_at <= first
    assert set(predictions) == {arm_id for arm_id in (it.arm_id for it in sessions) if arm_id != "dense/none"}
    for arm_id, prediction in predictions.items():
        assert prediction.speedup is not None
        assert codes(prediction.cost) == {"costs.steps"}
        known = said_of(prediction.acceptance, "rates.replayed").values
        assert (known["arm"], known["prompts"]) == ("dense/none", 2)
        timings = [it.reply.timings for it in requests if it.arm_id == arm_id and it.reply is not None]
        forwards = sum(it.predicted_n - 1 - (it.draft_n_accepted or 0) for it in timings)
        tau = sum(it.predicted_n - 1 for it in timings) / forwards
        assert prediction.inputs["tau"] == pytest.approx(tau)
        assert prediction.inputs["drafted"] == pytest.approx(sum((it.draft_n or 0) for it in timings) / forwards)
    assert certificate is not None
    assert "step-probes" in certificate.data
    explained = why_report.method_notes(read_document(folder))
    assert not any("why.none" in codes(it.said) for it in explained if isinstance(it.said, Message)), (
        "forwards were priced by the run's own steps"
    )


@pytest.mark.usefixtures("patient")
def test_a_probe_that_was_interrupted_is_taken_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, folder = written(tmp_path), tmp_path / "run"
    with monkeypatch.context() as once:
        once.setattr(pre_measure, "measure_round", raising(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            run(prepare(load(file)), folder, Silent())
    with RunStore.open(folder, readonly=True) as store:
        assert store.probes() == store.predictions() == []
        assert {session.arm_id for session in store.sessions()} == {"dense/none"}
    assert run(prepare(load(file)), folder, Silent()).state == "complete"
    with RunStore.open(folder, readonly=True) as store:
        assert all(probe.rounds for probe in store.probes())


@pytest.mark.usefixtures("patient")
def test_a_probe_that_fails_leaves_a_reason_and_no_failed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pre_measure, "measure_round", raising(EngineError("it broke", fix="mend it")))
    folder = tmp_path / "run"
    assert run(prepare(load(written(tmp_path))), folder, Silent()).state == "complete"
    with RunStore.open(folder, readonly=True) as store:
        why = Message("text.outside", text="it broke")
        assert {probe.failure for probe in store.probes()} == {why}
        assert all(said_of(it.cost, "costs.unprobed").values["why"] == why for it in store.predictions())
        assert all("rates.replayed" in codes(it.acceptance) for it in store.predictions())


@pytest.mark.usefixtures("patient")
def test_a_probe_takes_as_many_prompts_of_one_kind_as_of_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each length but the longest is timed once per prompt, so one prompt would leave every disturbed step as it is."""
    seen: list[int] = []

    def refuse(_engine: object, spec: RoundSpec, _index: int) -> list[StepRound]:
        seen.append(len(spec.prompts))
        raise EngineError("out of order", fix="none")

    monkeypatch.setattr(pre_measure, "measure_round", refuse)
    one_kind = [{"source": "bench", "kinds": ["code"], "per_kind": 4}]
    run(prepare(load(written(tmp_path, workloads=one_kind))), tmp_path / "run", Silent())
    assert seen == [3, 3]  # the draft model, and lookups


def test_a_probe_beside_other_work_says_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = StepRound(plain_ms=10.0, step_ms={5: 20.0}, other_cpu_percent=(60.0, 70.0))
    monkeypatch.setattr(pre_measure, "measure_round", lambda _engine, order, _index: [busy] * len(order.drafting))
    folder = tmp_path / "run"
    run(prepare(load(written(tmp_path))), folder, Silent())
    with RunStore.open(folder, readonly=True) as store:
        for probe in store.probes():
            assert not probe.rounds
            assert probe.left_out
            assert probe.failure == Message("step-probe.busy", share=0.65)
        # They say more than the sizes of files do, and less than calm ones would.
        for it in store.predictions():
            assert said_of(it.cost, "costs.disturbed").values["why"] == Message("step-probe.busy", share=0.65)
            assert it.speedup is not None
            assert it.speedup.low is not None
            assert it.speedup.low < (0.9 if "small" in it.arm_id else 0.97) * it.speedup.point


def test_lengths_that_the_run_drafts_are_timed_one_by_one_where_a_change_of_length_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[tuple[int | None, ...]]] = []

    def measured(_engine: object, order: RoundSpec, _index: int) -> list[StepRound]:
        asked.append([tuple(it.gamma for it in order.shorter.get(arm.id, ())) for arm in order.drafting])
        steady = {2: 12.0, 5: 15.0} if order.shorter else {}
        return [StepRound(plain_ms=10.0, step_ms={2: 17.0, 4: 19.0, 5: 15.0}, steady_ms=steady) for _ in order.drafting]

    monkeypatch.setattr(pre_measure, "MAX_ROUNDS", 2)
    monkeypatch.setattr(pre_measure, "is_busy", lambda _shares, _gate: False)
    monkeypatch.setattr(pre_measure, "measure_round", measured)
    folder = tmp_path / "run"
    run(prepare(load(written(tmp_path))), folder, Silent())
    assert asked == [[()], [(2,)], [()], [()]]
    with RunStore.open(folder, readonly=True) as store:
        inputs = {it.arm_id: it.inputs for it in store.predictions() if "small" in it.arm_id}
    two, five = (float(inputs[f"dense/draft-simple/small/g{gamma}"]["verify"] or 0) for gamma in (2, 5))
    assert five / two == pytest.approx(15 / 12, rel=0.02)  # as long steps 15 / 17


def test_no_probe_where_none_is_wanted(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(prepare(load(written(tmp_path, design={"blocks": 1, "warmup": "short", "probe": "off"}))), folder, Silent())
    with RunStore.open(folder, readonly=True) as store:
        assert not store.probes()


def test_a_run_too_short_for_more_has_a_coarse_probe_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int, tuple[int | None, ...]]] = []
    texts: list[str] = []

    def measured(_engine: object, order: RoundSpec, _index: int) -> list[StepRound]:
        asked.append((len(order.prompts), order.whole_steps, tuple(it.gamma for it in order.drafting)))
        texts.extend("\n\n".join([*(turn.content for turn in it.before), it.text]) for it in order.prompts)
        return [StepRound(plain_ms=10.0, step_ms={1: 14.0, 4: 15.0}) for _ in order.drafting]

    monkeypatch.setattr(pre_measure, "SHARE", 0.0)
    monkeypatch.setattr(pre_measure, "measure_round", measured)
    told = Told()
    arms = [{"draft": "small", "gamma": 16}, {"method": "ngram-simple", "ngram_n": 3, "gamma": 3}]
    run(prepare(load(written(tmp_path, arms=arms))), tmp_path / "run", told)
    assert asked == [(1, 2, (4,)), (1, 2, (3,))]
    assert [it.code for it in told.doing] == ["looking.steps", "looking.reading", "looking.lookups"]
    assert told.doing[0].values["drafts"] == ("small",)
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        prompts = {it.id: it.text for it in store.prompts()}
        answers = {it.prompt_id: it.reply.text for it in store.requests() if it.arm_id == "dense/none" and it.reply}
    deep = {
        answer
        for name, text in prompts.items()
        for half in [answers[name][: len(answers[name]) // 2]]
        for answer in (f"{text}\n\n{half}\n\n{text}", f"{text}{half}\n\n{text}")
    }
    assert set(texts) <= deep, "steps are priced at the mean depth of the run"


def test_what_is_found_out_between_sessions_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the second session no more than two requests of the baseline, however long the run is."""
    limits: list[float] = []
    monkeypatch.setattr(pre_measure, "SHARE", 100.0)
    monkeypatch.setattr(pre_measure, "measure_round", raising(EngineError("out of order", fix="none")))
    monkeypatch.setattr(
        "specmeter.probe.profile.profile_texts", lambda *_, **given: limits.append(given["limit_s"]) or []
    )
    folder = tmp_path / "run"
    run(prepare(load(written(tmp_path))), folder, Silent())
    with RunStore.open(folder, readonly=True) as store:
        plain = [it.reply for it in store.requests() if it.arm_id == "dense/none" and it.reply is not None]
    request_s = sum(it.timings.prompt_ms + it.timings.predicted_ms for it in plain) / len(plain) / 1000
    assert limits[0] <= max(pre_measure._MIN_READING_S, pre_measure.REQUESTS * request_s)


@pytest.mark.usefixtures("patient")
def test_a_draft_reads_the_texts_of_each_target_that_it_drafts_for(tmp_path: Path) -> None:
    folder, design = tmp_path / "run", {"blocks": 1, "warmup": "short", "probe": "off"}
    targets = {"dense": "bench:dense", "moe": "bench:moe"}
    changed = {"targets": targets, "design": design, "arms": [{"draft": "small", "gamma": 2}]}
    run(prepare(load(written(tmp_path, **changed))), folder, Silent())
    with RunStore.open(folder, readonly=True) as store:
        known = {it.arm_id.partition("/")[0]: codes(it.acceptance) for it in store.predictions()}
    assert known.keys() == {"dense", "moe"}
    assert all("rates.replayed" in it for it in known.values()), known


class Told(Silent):
    """Remembers what was found out ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.doing: list[Message] = []

    def looking_ahead(self, doing: Message) -> None:
        self.doing.append(doing)


def raising(error: BaseException) -> Callable[..., list[StepRound]]:
    def measure(*_: object) -> list[StepRound]:
        raise error

    return measure


def test_the_forward_after_a_rejection_is_no_step_of_its_own() -> None:
    rounds = [Round(3, 1), Round(0, 0), Round(0, 0), Round(3, 3), Round(2, 0), Round(0, 0), Round(1, 0)]
    kept = _without_replays(rounds)
    assert kept == [Round(3, 1), Round(0, 0), Round(3, 3), Round(2, 0), Round(1, 0)]
