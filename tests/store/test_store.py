"""The run folder: what goes in comes out, nothing twice, nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hosts import HOST
from specmeter.errors import StoreError
from specmeter.messages import Message
from specmeter.numbers import rates
from specmeter.record import (
    Arm,
    Estimate,
    GpuSample,
    ModelIdentity,
    Prediction,
    Prompt,
    Reply,
    Request,
    Step,
    Telemetry,
    Timings,
)
from specmeter.store import RequestKey, RequestRow, RunStore
from specmeter.store.integrity import _hash_rows, changed, hash_data


def test_what_goes_in_comes_out(store, make_request, make_session):
    first, second = make_request(), make_request((0, 1, "sd/g4", "p2"))
    session = make_session()
    store.add_session(session)
    store.update_session(session.model_copy(update={"ended_at": 9.0}))
    sample = Telemetry(at=3, cpu_percent=1, other_cpu_percent=0, memory_available_bytes=5, gpus=(GpuSample(index=0),))
    store.add_request(first)
    store.add_request(second, telemetry=[sample])
    store.add_telemetry([sample])
    store.write_environment("# machine\n")
    folder = store.folder
    store.close()

    with RunStore.open(folder) as again:
        assert list(again.requests()) == [first, second]
        assert list(again.sessions()) == [session.model_copy(update={"ended_at": 9.0})]
        assert list(again.telemetry()) == [sample, sample]
        assert again.experiment_yaml == "name: t # ✓\n"
        assert again.experiment_json == '{"name": "t"}'
        again.check()
    assert (folder / "experiment.yaml").read_text("utf-8") == "name: t # ✓\n"
    assert (folder / "BENCHMARK_ENV.md").read_text("utf-8") == "# machine\n"


def test_parts_of_the_run_can_be_set_again(store):
    arms = [Arm(id="b", target="t", role="baseline"), Arm(id="a", target="t")]
    prompt = Prompt(id="p", workload="w", kind="code", text="x", sha256="1")
    model = ModelIdentity(name="t", reference="mock:t", path="m", sha256="1", size_bytes=1, origin="mock")
    for _ in range(2):
        store.set_arms(arms)
        store.set_prompts([prompt])
        store.set_models([model])
        store.set_host(HOST)
    assert store.arms() == arms
    assert list(store.prompts()) == [prompt]
    assert store.models() == [model]
    assert store.hosts() == [HOST]
    store.set_host(HOST.model_copy(update={"governor": "powersave"}))
    assert [host.governor for host in store.hosts()] == [None, "powersave"]
    with pytest.raises(StoreError, match="two arms have the same id"):
        store.set_arms([arms[0], arms[0]])
    assert store.arms() == arms


def test_rows_carry_every_number_without_the_bulk(store, make_request):
    request = make_request()
    store.add_request(request)
    store.add_request(make_request((0, 0, "base", "p2"), failed=True))
    row, failed = store.rows()
    assert row.key == RequestKey(0, 0, "base", "p1")
    assert row.timings == request.reply.timings
    assert row.step_n == 1
    assert row.target_forwards == rates.target_forwards(request.reply.timings, request.reply.steps)
    assert failed.timings is None
    assert failed.error == "it died"


def test_row_fields_are_the_record_fields():
    names = set(RequestRow._fields)
    assert set(Request.model_fields) - {"reply"} <= names
    assert set(Timings.model_fields) <= names
    bulk = {"text", "reasoning", "token_ids", "raw_timings", "counters", "arrival_ms", "steps", "drafting"}
    bulk |= {"tool_calls", "known_n"}
    assert set(Reply.model_fields) - {"timings"} == bulk | (set(Reply.model_fields) & names)


def test_nothing_is_stored_twice(store, make_request):
    store.add_request(make_request())
    with pytest.raises(StoreError, match="p1 of base in invocation 0, block 0: already stored"):
        store.add_request(make_request())
    assert len(list(store.rows())) == 1


def test_a_request_outside_the_plan_is_refused(store, make_request):
    with pytest.raises(StoreError, match="not in the plan"):
        store.add_request(make_request((0, 7, "base", "p1")))
    assert list(store.rows()) == []


def test_a_retry_supersedes_a_failure_and_keeps_it(store, make_request, plan):
    failure, success = make_request(failed=True), make_request()
    store.add_request(failure)
    assert store.missing() == [RequestKey(*key) for key in plan]
    assert store.done_keys() == set()
    store.add_request(failure)
    store.add_request(success)
    assert list(store.requests()) == [success]
    assert list(store.attempts()) == [(1, failure), (2, failure), (3, success)]
    assert [row.attempt for row in store.rows()] == [3]
    assert len(list(store.rows(superseded=True))) == 3
    assert store.done_keys() == {plan[0]}
    assert store.missing() == plan[1:]


def test_state_is_counted_and_stored(store, make_request, plan):
    assert store.state().state == "partial"
    store.begin(10.0)
    for key in plan[:-1]:
        store.add_request(make_request(key))
    store.add_request(make_request(plan[-1], failed=True))
    store.end(20.0, interrupted=True, reason="Ctrl-C")
    assert store.state().state == "partial"
    store.begin(30.0)
    store.end(40.0, reason="engine died")
    state = store.state()
    assert (state.state, state.ok, state.failed, state.planned) == ("failed", 7, 1, 8)
    assert (state.started_at, state.finished_at, state.reason) == (10.0, 40.0, "engine died")
    store.begin(50.0)
    assert store.state().state == "partial"
    store.add_request(make_request(plan[-1]))
    store.end(60.0)
    assert store.state().state == "complete"
    assert not store.was_complete(), "it is not certified yet"


def test_readers_look_on_while_a_run_is_written(store, make_request, plan):
    with RunStore.open(store.folder, readonly=True) as reader:
        assert list(reader.rows()) == []
        store.add_request(make_request(plan[0]))
        assert len(list(reader.rows())) == 1
        with pytest.raises(StoreError, match="read-only"):
            reader.add_request(make_request(plan[1]))


def test_an_interrupt_inside_a_transaction_stores_nothing(store, make_request):
    def samples():
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        store.add_request(make_request(), telemetry=samples())
    assert list(store.rows()) == []
    store.add_request(make_request())
    assert len(list(store.rows())) == 1


def test_log_names_fit_every_file_system(store):
    path = store.log_path("abc", 'moe/draft:"simple" g8?')
    assert store.relative(path) == "logs/moe-draft-simple-g8-abc.log"


def test_create_needs_an_empty_folder(tmp_path: Path, store):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.doc").write_text("mine")
    for folder, match in ((tmp_path / "full", "thesis.doc"), (store.folder, "process")):
        with pytest.raises(StoreError, match=match):
            RunStore.create(folder, experiment_yaml="", experiment_json="{}", plan=[])
    assert [it.name for it in (tmp_path / "full").iterdir()] == ["thesis.doc"]  # left as it was
    store.close()
    with pytest.raises(StoreError, match="already contains a run"):
        RunStore.create(store.folder, experiment_yaml="", experiment_json="{}", plan=[])
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be created"):
        RunStore.create(tmp_path / "file", experiment_yaml="", experiment_json="{}", plan=[])


def test_a_creation_that_was_cut_short_can_be_repeated(tmp_path: Path, plan):
    folder = tmp_path / "run"
    with pytest.raises(StoreError, match="same request twice"):
        RunStore.create(folder, experiment_yaml="", experiment_json="{}", plan=[*plan, plan[0]])
    assert not RunStore.exists(folder)
    with pytest.raises(StoreError, match="stopped before it started"):
        RunStore.open(folder)
    with RunStore.create(folder, experiment_yaml="", experiment_json="{}", plan=plan) as store:
        assert store.missing() == plan
    assert RunStore.exists(folder)


finite = st.floats(allow_nan=False, allow_infinity=False, min_value=0, max_value=1e12)
count = st.integers(0, 10**9)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
replies = st.builds(
    Reply,
    text=text,
    reasoning=text,
    token_ids=st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple),
    stop_reason=text,
    timings=st.builds(Timings, prompt_n=count, prompt_ms=finite, predicted_n=count, predicted_ms=finite, draft_n=count),
    raw_timings=st.dictionaries(text, finite | text | st.none() | st.lists(count, max_size=2), max_size=3),
    counters=st.dictionaries(text, finite, max_size=3),
    wall_ms=finite,
    ttft_ms=st.none() | finite,
    arrival_ms=st.lists(finite, max_size=4).map(tuple),
    steps=st.lists(st.builds(Step, drafted=count, accepted=count, at_ms=finite), max_size=4).map(tuple),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reply=replies)
def test_any_reply_survives_exactly(tmp_path_factory, make_request, plan, reply):
    folder = tmp_path_factory.mktemp("any") / "run"
    request = make_request(reply=reply)
    with RunStore.create(folder, experiment_yaml="", experiment_json="{}", plan=plan) as store:
        store.add_request(request)
        assert list(store.requests()) == [request]


def prediction(arm_id: str = "sd/g4", speedup: float | None = 1.5) -> Prediction:
    estimate = None if speedup is None else Estimate(point=speedup, low=1.2, high=1.9, n=3, unit="x", method="draws")
    reason = None if estimate else Message("costs.unknown")
    return Prediction(arm_id=arm_id, made_at=1.0, speedup=estimate, reason=reason, inputs={"gamma": 4, "tau": 3.25})


def test_predictions_are_written_once_and_before_the_measurement(store, make_request):
    assert store.predictions() == []
    store.add_prediction(prediction())
    store.add_request(make_request())
    with pytest.raises(StoreError, match="prediction of sd/g4: already stored"):
        store.add_prediction(prediction(speedup=2.0))
    with pytest.raises(StoreError, match="prediction of base: a prediction must come before the measurement"):
        store.add_prediction(prediction("base"))
    store.add_prediction(prediction("base", speedup=None))
    assert store.predictions() == [prediction(), prediction("base", speedup=None)]


def test_hashes_tell_types_apart_and_stay_the_same_for_ever(store):
    """A certificate is compared on other machines, by other versions of Python."""
    values = "SELECT 1, -9223372036854775808, 2.5, 'é', x'00ff', NULL"
    assert (
        _hash_rows(store, f"{values} UNION ALL {values}")
        == "1f8707109978ec79d053188914e37cdbe23c103563bfd769352da9a6217c7440"
    )
    assert len({_hash_rows(store, f"SELECT {it}") for it in ("1", "1.0", "'1'", "x'31'", "NULL", "'', ''", "''")}) == 7


def test_a_changed_prediction_changes_the_hash_of_the_run(store):
    store.add_prediction(prediction())
    before = hash_data(store)
    store._db.execute("UPDATE prediction SET json = replace(json, '1.5', '1.6')")
    assert changed(before, hash_data(store)) == ["predictions"]
